//! IP on the port's own queues.
//!
//! - [`QueueDevice`] is `smoltcp::phy::Device` for one receive and one transmit queue: a stack of
//!   smoltcp runs on the port's queues as on any other interface.
//! - [`Stack`] announces the port's addresses, answers ARP, IPv6 neighbour discovery and ping for
//!   them, gets an address from a DHCP server if configured, and resolves neighbours:
//!   [`Stack::resolve`] finds the MAC address that RDMA needs for an address handle or a
//!   connection.
//! - [`StackThread`] runs a stack on a thread of its own and resolves for other threads.
//! - [`TcpListener`] and [`TcpConnection`] are TCP over the port itself: [`Stack::listen_tcp`],
//!   [`Stack::connect_tcp`], and the same calls of [`Resolver`] for other threads.
//! - [`host::HostInterface`] is a network interface of the host beside the stack.
//!
//! The protocols are those of smoltcp. Four things are here because smoltcp does not have them: a
//! neighbour table with look-ups, VLANs, answers to ARP and neighbour discovery for stations of
//! other networks and for those that look whether an address is free, and reports of groups to
//! routers of each version.
//!
//! The stack sees the frames that arrive in its receive queue. On a port of several receive queues,
//! [`StackSettings::queue`] names the stack's: rules of the flow director bring ARP, neighbour
//! discovery, DHCP and ICMP to it.
#![forbid(unsafe_code)]

mod announcements;
mod bootp;
mod connecting;
mod copies;
mod device;
mod error;
mod exchange;
mod extensions;
mod filters;
mod groups;
mod header;
pub mod host;
mod igmp;
mod leased_gid;
mod link;
mod listeners;
mod mac;
mod martian;
mod neighbours;
mod reports;
mod resolving;
mod route;
mod serve;
mod stack;
mod tcp;
mod thread;
mod wire;

pub use device::QueueDevice;
pub use error::{ResolveError, StackError};
pub use leased_gid::LeasedGid;
pub use mac::MacAddress;
pub use neighbours::{Neighbour, NeighbourState, ResolveSettings};
pub use ringside_config::{LocalAddress, Within};
pub use serve::ServeError;
pub use stack::{Stack, StackCounters, StackSettings};
pub use tcp::{TcpConnection, TcpError, TcpListener};
pub use thread::{Resolver, StackThread};

/// Returns the source and the destination of the request for a TCP connection in a frame.
///
/// The frame has no VLAN tag. Only for fuzzing: [`Stack`] reads such frames itself.
#[doc(hidden)]
#[must_use]
pub fn request_in(frame: &[u8]) -> Option<(std::net::SocketAddr, std::net::SocketAddr)> {
    tcp::request_in(frame)
}

/// Returns the address and the MAC address of the neighbour that a frame of address resolution
/// names.
///
/// The frame has no VLAN tag. Only for fuzzing: [`Stack`] reads such frames itself.
#[doc(hidden)]
#[must_use]
pub fn neighbour_in(frame: &[u8]) -> Option<(std::net::IpAddr, MacAddress)> {
    wire::said(frame).map(|said| (said.address, said.mac))
}
