//! Reports of the RDMA engine.

use super::address::MacAddress;
use crate::failure::FailureCause;
use ringside_spec::rdma::ae_codes::{AeCode, QueuePairEvent};
use ringside_spec::rdma::commands::AeSource;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::rdma::events::Side;

/// Something that the device reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue pair failed. It was taken to the error state; what it had outstanding completes with
    /// errors, the oldest with the reason.
    QueuePairFailed {
        /// Its number.
        queue_pair: u32,
        /// The result.
        code: AeCode,
        /// The place in it.
        side: Side,
        /// The reason, as verbs sort it.
        reason: QueuePairEvent,
        /// The queues that had work outstanding; `None` if it had failed before or is gone.
        flushed: Option<FlushResult>,
    },
    /// A completion queue failed: it overflowed, and completions were lost. Its queue pairs were
    /// taken to the error state; what they had outstanding completes as flushed.
    CompletionQueueFailed {
        /// Its number.
        completion_queue: u32,
        /// The result.
        code: AeCode,
    },
    /// Something that a queue pair survives.
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
    /// A peer has done so much wrong, on all its queue pairs together: keys that are none, requests
    /// that make no sense. See [`Device::watch_peers`](crate::Device::watch_peers).
    PeerSuspected {
        /// Its MAC address.
        peer: MacAddress,
        /// The number so far.
        faults: u32,
    },
    /// The device failed. Everything outstanding on it completes as flushed; bring it up again with
    /// [`Device::recover`](crate::Device::recover), and make its objects anew. Comes once.
    DeviceFailed {
        /// Why.
        cause: FailureCause,
    },
    /// Something that belongs to no object.
    Unattributed {
        /// The result.
        code: AeCode,
        /// The source that the device names.
        source: AeSource,
        /// The number that came with it.
        queue_number: u32,
    },
    /// The event queue overflowed: events were lost. Reset the device.
    Overflow,
}
