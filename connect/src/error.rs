//! Why there is no connection.

use ringside_bus::DeviceAddress;
use ringside_cm::{Reason, RequestError};
use ringside_pmd::rdma::RdmaError;
use ringside_pmd::recovery::FailureCause;
use std::net::IpAddr;
use std::time::Duration;

/// Why the connection manager did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The device is out of service, or queue pair 1 has another owner.
    #[error("no queue pair 1 for the connection manager: {0}; a device has one connection manager")]
    Device(#[from] RdmaError),
    /// The device has no MAC address to be known by.
    #[error("the device has no MAC address: {reason}")]
    NoIdentity {
        /// The driver's message.
        reason: String,
    },
    /// The manager cannot be restored: its device was shut down, or is another process's.
    #[error("{0}: open the device again and start another manager")]
    Closed(#[from] Closed),
    /// The manager was started on another device than the one to restore it on.
    #[error(
        "the connection manager was started on {made_on} and cannot be restored on {given}: name \
         the device that it was started on"
    )]
    ForeignDevice {
        /// The device of the manager.
        made_on: DeviceAddress,
        /// The device that was given.
        given: DeviceAddress,
    },
    /// The operating system made no thread.
    #[error("no thread for the connection manager: {0}")]
    Thread(#[from] std::io::Error),
}

/// The reason why a connection manager does nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// Its device was shut down or dropped.
    #[error("the device of the connection manager was shut down")]
    ShutDown,
    /// The manager was dropped. Its drop tells the peers of its connections; once it has returned,
    /// the device can have another manager.
    #[error("the connection manager was dropped")]
    Dropped,
    /// This process is a child by fork: the manager stays with the process that started it, where
    /// it goes on.
    #[error(
        "the connection manager was started in process {made_in} and this is process {this}, a \
         child by fork: open a device in this process and start a manager for it"
    )]
    OtherProcess {
        /// The process that started it.
        made_in: u32,
        /// This process.
        this: u32,
    },
}

/// Why nothing listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The manager refused: the port has a listener, or the address is not the node's.
    #[error(transparent)]
    Refused(#[from] ringside_cm::ListenError),
    /// Port 0 names no service.
    #[error("port 0 names no service: choose one from 1 to 65535")]
    NoPort,
    /// The device was shut down, or is another process's.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The peer ended it, or confirmed the end that this side asked for.
    Disconnected,
    /// The peer refused it.
    Rejected(Reason),
    /// The peer did not answer: the message was repeated, and never confirmed.
    Silent,
    /// The device of this side failed, and the queue pair with it. The peer is told once the
    /// manager is restored.
    DeviceFailed(FailureCause),
    /// The connection manager of this side is closed.
    Closed(Closed),
}

/// Why there is no connection. The queue pair that was given is destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer refused.
    #[error("the peer refused: {reason}")]
    Rejected {
        /// Why, by the standard's codes. [`Reason::INVALID_SERVICE_ID`]: nothing listens there.
        reason: Reason,
        /// Private data of the peer's program about it, 148 bytes, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The peer did not answer any repeat.
    #[error("{peer} did not answer: check its address and that its connection manager runs")]
    Unreachable {
        /// The peer.
        peer: IpAddr,
    },
    /// The peer ended the connection before it was established.
    #[error("{peer} ended the connection before it was established")]
    Ended {
        /// The peer.
        peer: IpAddr,
    },
    /// The time is over.
    #[error("no connection with {peer} within {waited:?}: wait longer, or check the peer")]
    Deadline {
        /// The peer.
        peer: IpAddr,
        /// The time that was given.
        waited: Duration,
    },
    /// The device of this side failed, and queue pair 1 with it.
    #[error(
        "the device failed: {cause}; once it is in service again, have the connection manager \
         restored (ConnectionManager::restore), and connect again"
    )]
    DeviceFailed {
        /// The cause.
        cause: FailureCause,
    },
    /// The connection manager of this side is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The queue pair belongs to another device, or was made before a recovery of this one.
    #[error(
        "queue pair {queue_pair} was not made on the connection manager's device since its last \
         recovery: make one in a protection domain of that device"
    )]
    ForeignQueuePair {
        /// Its number.
        queue_pair: u32,
    },
    /// The address is not that of one node: a group, all nodes, or none.
    #[error("{peer} is not the address of a peer: name one node")]
    NoPeer {
        /// The address.
        peer: IpAddr,
    },
    /// No way to the peer was found.
    #[error("no MAC address of {peer} is known: check the route and that the peer is up")]
    NoNeighbour {
        /// The peer.
        peer: IpAddr,
    },
    /// The device has no address of the peer's family.
    #[error("the device has no address that reaches {peer}: add one of its family")]
    NoAddress {
        /// The peer.
        peer: IpAddr,
    },
    /// The connection manager refused: private data too long, too many connections.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The settings are out of range, or the device refused them.
    #[error("the queue pair was not connected: {0}")]
    QueuePair(#[from] RdmaError),
}
