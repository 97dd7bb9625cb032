//! Errors of the stack.

use ringside_config::{AddressFault, LocalAddress};
use ringside_pmd::lan::PortError;
use ringside_pmd::lan::port::MTU_MIN;
use std::net::IpAddr;
use std::time::Duration;

/// The reason why the stack cannot carry out a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StackError {
    /// The port did not take a filter.
    #[error("the port does not let frames for the stack in: {0}")]
    Port(#[from] PortError),
    /// The stack has the address on that VLAN.
    #[error("the stack has the address {0} already")]
    Duplicate(LocalAddress),
    /// An address that no station can have.
    #[error("{0} is no address of a station: add a unicast address")]
    NotUnicast(IpAddr),
    /// An address that no port can have: its prefix or VLAN does not exist, or it is none of a
    /// host.
    #[error("no port has the address {address}: {fault}")]
    Address {
        /// The address.
        address: LocalAddress,
        /// Its fault.
        fault: AddressFault,
    },
    /// An MTU that no packet of IPv4 fits into.
    #[error("an MTU of {given} bytes: choose {MTU_MIN} or more, as the port has")]
    Mtu {
        /// The given MTU.
        given: u16,
    },
    /// The stack has no such address on that VLAN.
    #[error("the stack has no address {address} on {}: nothing to remove", name(*.vlan))]
    Unknown {
        /// The address.
        address: IpAddr,
        /// The VLAN; `None` for frames without a tag.
        vlan: Option<u16>,
    },
    /// One more address than an interface takes.
    #[error("no room for {address}: {limit} addresses of a VLAN are possible; remove one first")]
    TooMany {
        /// The address.
        address: LocalAddress,
        /// The most that an interface accepts.
        limit: usize,
    },
    /// A gateway that no address reaches.
    #[error("no address of the stack is in the network of the gateway {0}: add one first")]
    FarGateway(IpAddr),
    /// An address of the stack itself is no gateway.
    #[error("the gateway {0} is an address of the stack itself: name the router's")]
    OwnGateway(IpAddr),
    /// A gateway that no single station can be.
    #[error("the gateway {0} is no address of a station: name a router's unicast address")]
    GatewayOfNone(IpAddr),
    /// No thread could be started.
    #[error("the stack's thread did not start: {0}")]
    Thread(String),
    /// The stack's thread has ended.
    #[error("the stack's thread has ended: start another one")]
    Ended,
    /// The stack's thread did not serve a request in time.
    #[error(
        "the stack's thread did not answer within {} s: look for the threads that keep it from a core",
        limit.as_secs()
    )]
    Late {
        /// The time that it had.
        limit: std::time::Duration,
    },
}

fn name(vlan: Option<u16>) -> String {
    vlan.map_or("frames without a tag".to_owned(), |vlan| {
        format!("VLAN {vlan}")
    })
}

/// The reason why an address has no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No network of the stack holds the address, and there is no gateway.
    #[error(
        "no way to {0}: add an address of its network to network.addresses, or a gateway to \
         network.gateways"
    )]
    NoRoute(IpAddr),
    /// No host answered.
    #[error(
        "no host answered for {next_hop} on the way to {address}: {probes} requests in {} ms; check \
         the address, its VLAN and the peer's link", waited.as_millis()
    )]
    NoAnswer {
        /// The destination.
        address: IpAddr,
        /// The requested neighbour: the destination, or the gateway to it.
        next_hop: IpAddr,
        /// Requests that were sent.
        probes: u8,
        /// The time waited.
        waited: Duration,
    },
    /// An address that no host has.
    #[error("{0} is no address of a host: resolve a unicast or multicast address")]
    NotUnicast(IpAddr),
    /// An address of the host itself.
    #[error(
        "{0} is the host itself, to which no wire leads: resolve the address of a peer, or one of \
         network.addresses for this port"
    )]
    Loopback(IpAddr),
    /// Too many neighbours are being resolved at once.
    #[error("{limit} neighbours are being resolved already: try again in a second")]
    Busy {
        /// The most that are possible.
        limit: usize,
    },
    /// The stack's queues do nothing more.
    #[error("the stack's queues are out of service: recover the device and open the port again")]
    OutOfService,
    /// The stack's thread has ended.
    #[error("the stack's thread has ended: start another one")]
    Ended,
    /// The stack's thread did not serve the request in time.
    #[error(
        "the stack's thread did not answer within {} s: look for the threads that keep it from a core",
        limit.as_secs()
    )]
    Late {
        /// The time that it had.
        limit: Duration,
    },
}
