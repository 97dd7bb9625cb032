//! Looks for the next hop to a peer.

use ringside_config::Within;
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

/// The resolver of a manager: looks for the next hop to an IP address.
pub(crate) type Resolver = dyn Fn(Peer) -> Lookup<NextHop> + Send + Sync;

/// The resolver as queue pair 1 uses it: its messages stay on the VLANs of their own addresses.
pub(crate) fn neighbours(resolve: &Resolver) -> impl Fn(IpAddr, Option<u16>) -> Lookup {
    move |address, vlan| {
        let within = Within::Vlan(vlan);
        resolve(Peer { address, within }).mac()
    }
}
