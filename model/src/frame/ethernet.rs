//! A frame that is not parsed: bytes as the network stack of a host sends them.

use crate::packet::MacAddress;

/// Any Ethernet frame, from its Ethernet header on, without frame check sequence. A VLAN tag is
/// part of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetFrame {
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl EthernetFrame {
    /// Its destination; `None` if it is too short.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Option<MacAddress> {
        let (address, _) = self.bytes.split_first_chunk::<6>()?;
        Some(MacAddress(*address))
    }

    /// Its source; `None` if it is too short.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Option<MacAddress> {
        let (_, rest) = self.bytes.split_first_chunk::<6>()?;
        let (address, _) = rest.split_first_chunk::<6>()?;
        Some(MacAddress(*address))
    }
}

/// The kind of an address. Promiscuous rules of the switch distinguish the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// One.
    Unicast,
    /// A group.
    Multicast,
    /// All.
    Broadcast,
}

impl Cast {
    /// The kind of `address`.
    pub(crate) const fn of(address: MacAddress) -> Self {
        match address {
            MacAddress([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]) => Self::Broadcast,
            address if is_group(address) => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// True for broadcast and multicast addresses.
#[inline]
pub(crate) const fn is_group(address: MacAddress) -> bool {
    address.0[0] & 1 != 0
}
