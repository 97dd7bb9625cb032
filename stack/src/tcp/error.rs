//! Errors of TCP connections.

use crate::ResolveError;
use ringside_pmd::lan::PortError;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The reason why a call of a TCP connection or listener failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TcpError {
    /// The port does not have the address that is to be listened on.
    #[error(
        "cannot listen on {address}: the port has the addresses {own}; choose one of them, or \
         0.0.0.0 for all"
    )]
    NotOwn {
        /// The address.
        address: IpAddr,
        /// The port's addresses.
        own: String,
    },
    /// Another listener of the stack has the port number.
    #[error("cannot listen on {0}: another listener has this port number; choose another one")]
    InUse(SocketAddr),
    /// A listener without room for connections.
    #[error("a listener for {given} connections: choose 1 to {limit}")]
    Backlog {
        /// The given number.
        given: usize,
        /// The most that are possible.
        limit: usize,
    },
    /// The stack has as many connections as it takes, or as many listeners, or no free port number.
    #[error("the stack has {limit} connections or listeners already: close one first")]
    TooMany {
        /// The most that are possible.
        limit: usize,
    },
    /// The device did not take the rule that brings packets to the stack's queue.
    #[error("the port does not bring TCP to the stack's queue: {0}")]
    Port(#[from] PortError),
    /// An address that no peer has: a group, or one of this port's own.
    #[error("{0} is no address of a peer: connect to a unicast address of another station")]
    NotPeer(SocketAddr),
    /// There is no route to the peer, or no host answers for its address.
    #[error("cannot connect to {peer}: {error}")]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        #[source]
        error: ResolveError,
    },
    /// The peer's host refused: no program listens there.
    #[error(
        "cannot connect to {0}: the host refused; start the listening side first and check the port number"
    )]
    Refused(SocketAddr),
    /// No answer to the request for a connection came in time.
    #[error(
        "cannot connect to {peer} within {} ms: no answer; check the address and the peer's \
         firewall", limit.as_millis()
    )]
    Unanswered {
        /// The peer.
        peer: SocketAddr,
        /// The time waited.
        limit: Duration,
    },
    /// No peer connected in time.
    #[error(
        "no peer connected to {address} within {} ms; start the other side and check that it \
         connects to this address", limit.as_millis()
    )]
    NoPeer {
        /// The address that was listened on.
        address: SocketAddr,
        /// The time waited.
        limit: Duration,
    },
    /// Nothing arrived in time.
    #[error("the peer {peer} sent nothing within {} ms", limit.as_millis())]
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// The time waited.
        limit: Duration,
    },
    /// The peer did not take all bytes in time.
    #[error("the peer {peer} did not receive within {} ms: it hangs, or the network does", limit.as_millis())]
    Stalled {
        /// The peer.
        peer: SocketAddr,
        /// The time waited.
        limit: Duration,
    },
    /// The peer reset the connection, or stopped answering.
    #[error("the connection to {0} broke: the peer reset it, or stopped answering")]
    Broken(SocketAddr),
    /// The port no longer has the own address of the connection: the program removed it, or the
    /// lease of a DHCP server ended.
    #[error(
        "the connection ended: the port no longer has its own address {0}; connect again from \
         another address, or add this one first"
    )]
    AddressRemoved(IpAddr),
    /// A write after [`TcpConnection::finish`](crate::TcpConnection::finish).
    #[error("this side has finished sending to {0}")]
    Finished(SocketAddr),
    /// The stack's queues do nothing more.
    #[error("the stack's queues are out of service: recover the device and open the port again")]
    OutOfService,
    /// The stack's thread did not serve the request in time.
    #[error(
        "the stack's thread did not answer within {} s: look for the threads that keep it from a core",
        limit.as_secs()
    )]
    Late {
        /// The time that it had.
        limit: Duration,
    },
    /// The stack has ended.
    #[error("the stack has ended: start another one, and connect again")]
    Ended,
}
