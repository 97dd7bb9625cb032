//! Looks for the next hop to a peer.

use ringside_pmd::rdma::address::MacAddress;
use std::net::IpAddr;

/// The result of a look for a peer's MAC address, or for its [`NextHop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<T = MacAddress> {
    /// It is this one.
    Found(T),
    /// The peer is being asked for it: look again later.
    Asked,
    /// There is none: no route, or no answer.
    Unknown,
}

/// A peer whose next hop is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The networks to look in.
    pub within: Within,
}

/// Networks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// All of them: the route to the peer decides.
    All,
    /// Those of the own addresses on this VLAN, or, for `None`, on frames without a tag. A peer
    /// that has sent a message is answered there: other VLANs may have another host with its
    /// address.
    Vlan(Option<u16>),
}

/// The next hop to a peer, and the own address on the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// MAC address of the peer, or of the router on the way to it.
    pub mac: MacAddress,
    /// Own address in the network of the next hop. If there is none, the connection manager takes
    /// the one of the longest prefix that holds the peer.
    pub local_address: Option<IpAddr>,
    /// VLAN of that own address; not read without one.
    pub vlan: Option<u16>,
}

impl From<MacAddress> for NextHop {
    fn from(mac: MacAddress) -> Self {
        Self {
            mac,
            local_address: None,
            vlan: None,
        }
    }
}

impl<T: From<MacAddress>> From<Option<MacAddress>> for Lookup<T> {
    /// For tables, which send no requests.
    fn from(found: Option<MacAddress>) -> Self {
        found.map_or(Self::Unknown, |mac| Self::Found(mac.into()))
    }
}

impl Lookup<NextHop> {
    /// The same, with the MAC address alone.
    pub(crate) fn mac(self) -> Lookup {
        match self {
            Self::Found(hop) => Lookup::Found(hop.mac),
            Self::Asked => Lookup::Asked,
            Self::Unknown => Lookup::Unknown,
        }
    }
}
