//! The engine's records of live objects: enough to destroy them without their owners.

use super::RdmaError;
use super::address::MacAddress;
use super::event_request::EventRequest;
use super::faults::FaultCounters;
use ringside_bus::DmaBuffer;
use ringside_bus::process::Inherited;
use ringside_cq::{CompletionContext, CompletionQueueHandle};
use ringside_qp::QueuePairState;
use ringside_spec::rdma::commands::{CreateAddressHandle, CreateMulticastGroup, QueuePairType};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

/// The usability of a queue pair; shared with its owner's data path.
#[derive(Debug, Default)]
pub(crate) struct Condition(AtomicU8);

/// The conditions of a queue pair, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePairCondition {
    /// It may be posted to.
    Usable,
    /// The device reported an error; outstanding requests complete with errors.
    Failed,
    /// The device failed as a whole; outstanding requests complete as flushed.
    Lost,
    /// The device no longer has it.
    Destroyed,
    /// This process is a child by fork of the one that made it.
    OtherProcess,
}

impl Condition {
    #[inline(always)]
    pub(crate) fn is_usable(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn get(&self) -> QueuePairCondition {
        match self.0.load(Ordering::Relaxed) {
            0 => QueuePairCondition::Usable,
            1 => QueuePairCondition::Failed,
            2 => QueuePairCondition::Lost,
            3 => QueuePairCondition::Destroyed,
            _ => QueuePairCondition::OtherProcess,
        }
    }

    /// Never goes back.
    pub(crate) fn advance(&self, to: QueuePairCondition) {
        self.0.fetch_max(to as u8, Ordering::Relaxed);
    }
}

impl Inherited for Condition {
    fn found_in_child(&self) {
        self.advance(QueuePairCondition::OtherProcess);
    }
}

/// Memory of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePairMemory {
    pub(crate) send: DmaBuffer,
    pub(crate) receive: DmaBuffer,
    pub(crate) shadow: DmaBuffer,
    pub(crate) context: DmaBuffer,
}

impl QueuePairMemory {
    /// Its buffers.
    pub(crate) fn into_buffers(self) -> [DmaBuffer; 4] {
        [self.send, self.receive, self.shadow, self.context]
    }
}

/// A completion queue that a queue pair reports to.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) number: u32,
    /// distinguishes it from an earlier or later queue of the same number
    pub(crate) generation: u32,
    pub(crate) handle: CompletionQueueHandle,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePairRecord {
    pub(crate) kind: QueuePairType,
    pub(crate) memory: QueuePairMemory,
    pub(crate) context: CompletionContext,
    /// gone once the queue pair and its completion queues have dropped it
    pub(crate) state: Weak<QueuePairState>,
    pub(crate) condition: Arc<Condition>,
    pub(crate) send: Reports,
    pub(crate) receive: Reports,
    /// its peer's entry in the table of MAC addresses, once connected
    pub(crate) peer: Option<MacAddress>,
    /// ready to send at least once: destroyed by way of the error state
    pub(crate) was_connected: bool,
    pub(crate) sending: SendState,
    /// a shared receive queue feeds it
    pub(crate) is_fed: bool,
    /// its completion queues have a free slot for another queue pair of this number
    pub(crate) is_detached: bool,
    /// The device has destroyed it, as it did not move it to its error state. Its owner does not
    /// know yet.
    pub(crate) is_destroyed: bool,
    /// The shutdown destroys it: what is outstanding completes as flushed, once the device has
    /// confirmed that it destroyed it, or writes nothing more.
    pub(crate) ends_flushed: bool,
    /// It failed before that shutdown: its flushes were asked for then.
    pub(crate) was_flushed: bool,
    pub(crate) faults: FaultCounters,
}

impl QueuePairRecord {
    /// The queue pair, if it may be used: the device takes a failed one to no other state, and may
    /// have destroyed it already.
    ///
    /// Errors: [`RdmaError::Failed`].
    pub(crate) fn usable(&self, number: u32) -> Result<&Self, RdmaError> {
        match self.condition.get() {
            QueuePairCondition::Usable => Ok(self),
            _ => Err(RdmaError::Failed { queue_pair: number }),
        }
    }
}

/// The sending state of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// It has not been let send.
    NotYet,
    /// It sends posted requests.
    Active,
    /// It was told to stop, and has requests without an answer.
    Draining,
    /// It sends nothing until it is resumed (SQD).
    Drained,
}

/// A queue pair that a shared receive queue feeds.
#[derive(Debug)]
pub(crate) struct FedQueuePair {
    /// Its rings, once it was destroyed, or the device did not confirm that: the shared receive
    /// queue may still write to them.
    pub(crate) rings: Vec<DmaBuffer>,
    /// It was destroyed, and its number may be used again.
    pub(crate) is_number_free: bool,
    /// Its end, once its owner has destroyed it.
    pub(crate) end: Option<FedEnd>,
    /// Set with that, for the shared receive queue.
    pub(crate) departed: Arc<AtomicBool>,
}

/// The end of a queue pair that a shared receive queue feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FedEnd {
    /// The device has destroyed it, or failed before.
    Gone,
    /// The device did not confirm, and may write to its receives.
    Unconfirmed,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueueRecord {
    /// distinguishes it from an earlier or later queue of the same number
    pub(crate) generation: u32,
    pub(crate) ring: DmaBuffer,
    pub(crate) shadow: DmaBuffer,
    pub(crate) entries: u32,
    /// number of the completion event queue that it reports to
    pub(crate) event_queue: u16,
    /// the event that its owner asked for
    pub(crate) request: EventRequest,
    /// queues of queue pairs that report here
    pub(crate) users: u32,
    /// its owner was dropped: it is destroyed with its last user
    pub(crate) orphaned: bool,
    /// it overflowed: the device writes no more to it
    pub(crate) failed: bool,
}

impl CompletionQueueRecord {
    /// The context that the device returns in its events.
    pub(crate) fn context(&self, number: u32) -> u64 {
        completion_queue_context(number, self.generation)
    }
}

/// The context of a completion queue, of 63 bits: its number, and above it the generation.
pub(crate) fn completion_queue_context(number: u32, generation: u32) -> u64 {
    u64::from(number) | u64::from(generation << 1 >> 1) << 32
}

/// A memory region, or a memory window.
#[derive(Debug)]
pub(crate) struct RegionRecord {
    pub(crate) is_window: bool,
    /// index part of the steering tag, random bits included
    pub(crate) stag_index: u32,
    pub(crate) protection_domain: u32,
}

/// An address handle.
#[derive(Debug)]
pub(crate) struct AddressHandleRecord {
    /// the command that created it: destroying it needs the same fields
    pub(crate) command: CreateAddressHandle,
}

/// A multicast group with queue pairs of this function as members.
#[derive(Debug)]
pub(crate) struct MulticastRecord {
    pub(crate) key: GroupKey,
    /// the command that created it; changes and its destruction need the same fields
    pub(crate) command: CreateMulticastGroup,
    /// the list of its members, which the device reads at each command
    pub(crate) list: DmaBuffer,
    /// numbers of its queue pairs
    pub(crate) members: Vec<u32>,
}

/// The key of a multicast group: address and VLAN.
pub(crate) type GroupKey = (IpAddr, Option<u16>);
