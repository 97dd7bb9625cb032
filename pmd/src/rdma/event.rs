//! Reports of the RDMA engine.

use super::address::MacAddress;
use crate::failure::FailureCause;
use ringside_spec::rdma::ae_codes::{AeCode, QueuePairEvent};
use ringside_spec::rdma::commands::AeSource;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::rdma::events::Side;
use std::net::IpAddr;

/// A report of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue pair failed and is in the error state. Its outstanding requests complete with
    /// errors, the oldest with the reason.
    QueuePairFailed {
        /// Its number.
        queue_pair: u32,
        /// The result.
        code: AeCode,
        /// The place in it.
        side: Side,
        /// The class of the reason in verbs.
        reason: QueuePairEvent,
        /// The queues that had work outstanding; `None` if it had failed before, is destroyed, or
        /// the device did not flush it: its requests complete as flushed all the same.
        flushed: Option<FlushResult>,
    },
    /// A completion queue failed: it overflowed, and completions were lost. Its queue pairs are in
    /// the error state; their outstanding requests complete as flushed.
    CompletionQueueFailed {
        /// Its number.
        completion_queue: u32,
        /// The result.
        code: AeCode,
    },
    /// An event after which the queue pair continues.
    Notice {
        /// Number of the queue pair.
        queue_pair: u32,
        /// The result.
        code: AeCode,
    },
    /// A multicast group has members that the device does not take, or none.
    MulticastRefused {
        /// Number of the queue pair that the device names.
        queue_pair: u32,
        /// The error.
        code: AeCode,
    },
    /// A peer has sent a number of wrong requests on all its queue pairs together: invalid keys,
    /// invalid requests. See [`Device::watch_peers`](crate::Device::watch_peers).
    PeerSuspected {
        /// Its MAC address.
        peer: MacAddress,
        /// The number so far.
        faults: u32,
    },
    /// The device failed. All its outstanding requests complete as flushed. Bring it up again with
    /// [`Device::recover`](crate::Device::recover), and make its objects again. Reported once.
    DeviceFailed {
        /// The cause.
        cause: FailureCause,
    },
    /// An event of no known object.
    Unattributed {
        /// The result.
        code: AeCode,
        /// The source that the device names.
        source: AeSource,
        /// The number that came with it.
        queue_number: u32,
    },
    /// An address was added to the GID table or removed from it: see
    /// [`Device::gids`](crate::Device::gids).
    /// Verbs: `IBV_EVENT_GID_CHANGE`.
    GidChange {
        /// Its index in the table.
        index: u16,
        /// The address.
        address: IpAddr,
    },
    /// The link of the port came up. Verbs: `IBV_EVENT_PORT_ACTIVE`.
    PortUp,
    /// The link of the port went down. Verbs: `IBV_EVENT_PORT_ERR`.
    PortDown,
    /// The device failed and is in service again: make its objects again. A housekeeping thread
    /// reports each recovery, also one by a call of the program; without one the result of that
    /// call is the report.
    DeviceRecovered {
        /// The number of this period of service, from 2.
        life: u32,
    },
    /// The host asks the program to release the device: a driver is to be unbound from it, or it is
    /// to be unplugged. The kernel waits until the device is shut down, and asks again meanwhile. A
    /// registry removes the device by itself.
    ReleaseRequested,
    /// Events that were not taken in time: their queue was full, and they were dropped. Ask
    /// [`Device::failure`](crate::Device::failure) and the queue pairs for their state.
    Dropped {
        /// The number of events.
        events: u64,
    },
}
