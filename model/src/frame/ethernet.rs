//! The kinds of addresses of Ethernet frames.

use crate::packet::MacAddress;

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
