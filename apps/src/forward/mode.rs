//! Modes of forwarding, in testpmd's words.

use clap::ValueEnum;

/// The forwarding mode: the use of received packets, or packets made without any.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// Send packets as they came
    Io,
    /// Exchange source and destination address
    Macswap,
    /// Set source to the sending port's address, destination to its peer's
    Mac,
    /// Count and drop
    Rxonly,
    /// Send one packet over and over
    Txonly,
    /// Answer ARP and ping for every address, behind up to two VLAN tags
    #[value(alias = "icmpecho")]
    IcmpEcho,
    /// Send many flows of UDP
    Flowgen,
}

impl Mode {
    pub(crate) const ALL: [Self; 7] = [
        Self::Io,
        Self::Macswap,
        Self::Mac,
        Self::Rxonly,
        Self::Txonly,
        Self::IcmpEcho,
        Self::Flowgen,
    ];

    /// The mode of that number; the first where there is none.
    pub(crate) fn of(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::Io)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Macswap => "macswap",
            Self::Mac => "mac",
            Self::Rxonly => "rxonly",
            Self::Txonly => "txonly",
            Self::IcmpEcho => "icmp-echo",
            Self::Flowgen => "flowgen",
        }
    }
}
