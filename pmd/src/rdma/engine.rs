//! The RDMA engine of one device, shared by all verbs objects: control queue, host memory cache,
//! numbers, and the register of live objects.
//!
//! Everything here is control path and behind one lock. The data path holds its own rings and never
//! comes here.

use super::RdmaError;
use super::address::{ArpChange, ArpTable, MacAddress};
use super::events::Event;
use super::faults::PeerBook;
use super::host_memory::HostMemory;
use super::interrupt::ConnectedInterrupt;
use super::numbers::Numbers;
use super::quarantine::Kept;
use super::records::{
    AddressHandleRecord, CompletionQueueRecord, FedQueuePair, GroupKey, MulticastRecord,
    QueuePairCondition, QueuePairRecord, RegionRecord,
};
use super::statistics::Accumulated;
use crate::Registers;
use crate::admin::AdminQueue;
use crate::control::ControlQueue;
use crate::recovery::{Baseline, Carried, End};
use rand::Rng;
use rand::rngs::StdRng;
use ringside_bus::{DmaBuffer, DmaPool, Doorbell, Instant};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::ManageArp;
use ringside_spec::rdma::fpm::ObjectType;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What never changes after bring-up.
#[derive(Clone, Debug)]
pub(crate) struct EngineFacts {
    /// Function index in the host memory cache: the number of the physical function.
    pub(crate) function_index: u8,
    /// Number of the port.
    pub(crate) port: u8,
    /// Number of the VSI.
    pub(crate) vsi_number: u16,
    /// MAC address of the function.
    pub(crate) mac: MacAddress,
    /// Local IP addresses; the first is used where none is chosen.
    pub(crate) addresses: Vec<IpAddr>,
    /// Path MTU wanted, bytes.
    pub(crate) path_mtu: u32,
}

/// The asynchronous event queue.
#[derive(Debug)]
pub(crate) struct AsynchronousEvents {
    pub(crate) ring: EventRing<2>,
    pub(crate) buffer: DmaBuffer,
    pub(crate) entries: u32,
}

/// The completion event queue that every completion queue names.
#[derive(Debug)]
pub(crate) struct CompletionEvents {
    pub(crate) ring: EventRing<1>,
    pub(crate) buffer: DmaBuffer,
    pub(crate) entries: u32,
}

/// Numbers of verbs objects.
#[derive(Debug)]
pub(crate) struct ObjectNumbers {
    pub(crate) queue_pairs: Numbers,
    pub(crate) completion_queues: Numbers,
    pub(crate) regions: Numbers,
    pub(crate) address_handles: Numbers,
    pub(crate) multicast_groups: Numbers,
    pub(crate) protection_domains: Numbers,
    pub(crate) arp: ArpTable,
    /// bits of a steering tag's index that name the region
    pub(crate) region_index_bits: u32,
    /// queue pairs that a completion queue must be ready for
    pub(crate) queue_pair_slots: u32,
}

/// What changes.
pub(crate) struct EngineState {
    pub(crate) control: ControlQueue,
    pub(crate) memory: Option<HostMemory>,
    pub(crate) completion_events: Option<CompletionEvents>,
    pub(crate) asynchronous_events: Option<AsynchronousEvents>,
    pub(crate) queue_set_handle: Option<u16>,
    pub(crate) numbers: Option<ObjectNumbers>,
    pub(crate) queue_pairs: BTreeMap<u32, QueuePairRecord>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueueRecord>,
    pub(crate) regions: BTreeMap<u32, RegionRecord>,
    pub(crate) address_handles: BTreeMap<u32, AddressHandleRecord>,
    pub(crate) multicast_groups: BTreeMap<GroupKey, MulticastRecord>,
    /// rules of the switch that let groups' MAC addresses in: number, and how many groups use it
    pub(crate) group_rules: BTreeMap<MacAddress, (u16, u32)>,
    /// taken from the event queue and not reported yet
    pub(crate) pending_events: Vec<Event>,
    pub(crate) quarantined: Vec<Kept>,
    pub(crate) peers: PeerBook,
    pub(crate) interrupts: Option<ConnectedInterrupt>,
    pub(crate) statistics: Option<Accumulated>,
    pub(crate) random: StdRng,
    /// a shutdown has begun: nothing new is made
    pub(crate) closed: bool,
    /// memory of objects that a shutdown destroyed while their owners still hold them
    pub(crate) kept: Vec<DmaBuffer>,
    /// Queue pairs that shared receive queues feed, by number.
    pub(crate) fed: BTreeMap<u32, FedQueuePair>,
    /// counts queue pairs made, so that a number used twice has two completion contexts
    pub(crate) generation: u32,
    /// whether and how the life of the device in service ended
    pub(crate) end: End,
    /// resets that the device had seen when this life began
    pub(crate) baseline: Option<Baseline>,
    /// when registers are looked at next
    pub(crate) next_look: Option<Instant>,
}

/// See the module.
pub(crate) struct Engine {
    pub(crate) registers: Registers,
    pub(crate) pool: Arc<DmaPool>,
    pub(crate) facts: EngineFacts,
    pub(crate) send_doorbell: Doorbell,
    pub(crate) arm_doorbell: Doorbell,
    /// for what the switch must let in
    pub(crate) admin: Arc<AdminQueue>,
    /// the device failed: for those who want to know without a lock
    pub(crate) over: Arc<AtomicBool>,
    state: Mutex<EngineState>,
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) registers: Registers,
    pub(crate) pool: Arc<DmaPool>,
    pub(crate) facts: EngineFacts,
    pub(crate) send_doorbell: Doorbell,
    pub(crate) arm_doorbell: Doorbell,
    pub(crate) admin: Arc<AdminQueue>,
    pub(crate) baseline: Option<Baseline>,
}

impl Engine {
    /// An engine with a control queue and nothing else yet.
    pub(crate) fn new(parts: Parts, control: ControlQueue, carried: Carried) -> Self {
        Self {
            registers: parts.registers,
            pool: parts.pool,
            facts: parts.facts,
            send_doorbell: parts.send_doorbell,
            arm_doorbell: parts.arm_doorbell,
            admin: parts.admin,
            over: Arc::default(),
            state: Mutex::new(EngineState {
                control,
                memory: None,
                completion_events: None,
                asynchronous_events: None,
                queue_set_handle: None,
                numbers: None,
                queue_pairs: BTreeMap::new(),
                completion_queues: BTreeMap::new(),
                regions: BTreeMap::new(),
                address_handles: BTreeMap::new(),
                multicast_groups: BTreeMap::new(),
                group_rules: BTreeMap::new(),
                pending_events: carried.events,
                quarantined: Vec::new(),
                peers: carried.peers,
                interrupts: None,
                statistics: None,
                random: carried.random,
                closed: false,
                kept: Vec::new(),
                fed: BTreeMap::new(),
                generation: carried.generation,
                end: End {
                    owed: carried.owed,
                    ..End::default()
                },
                baseline: parts.baseline,
                next_look: None,
            }),
        }
    }

    /// The state, whatever a thread that panicked left of it.
    pub(crate) fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for making something new.
    pub(crate) fn open_state(&self) -> Result<MutexGuard<'_, EngineState>, RdmaError> {
        let state = self.state();
        if let Some(cause) = state.end.cause {
            return Err(RdmaError::DeviceFailed { cause });
        }
        if state.closed {
            return Err(RdmaError::ShutDown);
        }
        Ok(state)
    }

    /// Begins the shutdown: nothing new is made, and all objects that are left are destroyed. Their
    /// owners' handles stay harmless.
    pub(crate) fn destroy_objects(&self) -> Result<(), RdmaError> {
        let mut state = self.state();
        state.closed = true;
        let mut result = self.disconnect_interrupt(&mut state);
        let queue_pairs: Vec<u32> = state.queue_pairs.keys().copied().collect();
        for number in queue_pairs {
            let destroyed = state.destroy_queue_pair(self, number, true);
            result = result.and(destroyed);
        }
        let address_handles: Vec<u32> = state.address_handles.keys().copied().collect();
        for number in address_handles {
            result = result.and(state.destroy_address_handle(number));
        }
        let completion_queues: Vec<u32> = state.completion_queues.keys().copied().collect();
        for number in completion_queues {
            result = result.and(state.destroy_completion_queue(number, true));
        }
        let rules = self.remove_group_rules(&mut state);
        result = result.and(rules);
        state.statistics = None;
        // Windows first: a region with windows on it is not let go.
        for windows in [true, false] {
            let of_kind = state
                .regions
                .iter()
                .filter(|(_, one)| one.is_window == windows);
            let numbers: Vec<u32> = of_kind.map(|(number, _)| *number).collect();
            for number in numbers {
                result = result.and(state.destroy_region(number));
            }
        }
        self.retire_doorbells();
        result
    }

    /// The same when the engine does not answer: the handles are cut off, and the memory is given
    /// up until the reset of the function.
    pub(crate) fn abandon_objects(&self) {
        let mut state = self.state();
        state.closed = true;
        self.retire_doorbells();
        state.statistics = None;
        let quiet = self.disconnect_interrupt(&mut state);
        let rules = self.remove_group_rules(&mut state);
        if let Err(error) = quiet.and(rules) {
            tracing::error!(%error, "objects given up");
        }
        for record in std::mem::take(&mut state.queue_pairs).into_values() {
            record.condition.advance(QueuePairCondition::Destroyed);
            record
                .memory
                .into_buffers()
                .into_iter()
                .for_each(DmaBuffer::leak);
        }
        for record in std::mem::take(&mut state.completion_queues).into_values() {
            record.ring.leak();
            record.shadow.leak();
        }
        state.regions.clear();
        state.address_handles.clear();
        for group in std::mem::take(&mut state.multicast_groups).into_values() {
            group.list.leak();
        }
    }
}

impl EngineState {
    /// The numbers; they are there from the stage that sized the host memory cache.
    pub(crate) fn numbers(&mut self) -> Result<&mut ObjectNumbers, RdmaError> {
        self.numbers.as_mut().ok_or(RdmaError::ShutDown)
    }

    /// Takes a number, and brings the memory that its object needs.
    pub(crate) fn back(&mut self, object: ObjectType, index: u32) -> Result<(), RdmaError> {
        let memory = self.memory.as_mut().ok_or(RdmaError::ShutDown)?;
        memory.ensure(&mut self.control, object, index..index + 1)
    }

    /// Index of the table entry of `mac`, told to the device if it is new.
    pub(crate) fn take_address(&mut self, mac: MacAddress) -> Result<u16, RdmaError> {
        let numbers = self.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
        match numbers.arp.take(mac, &mut self.random)? {
            ArpChange::Nothing(index) => Ok(index),
            ArpChange::Tell(index) => {
                let told = self
                    .back(ObjectType::Arp, u32::from(index))
                    .and_then(|()| self.tell_address(mac, index, true));
                match told {
                    Ok(()) => Ok(index),
                    Err(error) => {
                        let numbers = self.numbers()?;
                        let _ = numbers.arp.give(mac);
                        numbers.arp.forget(index);
                        Err(error)
                    }
                }
            }
        }
    }

    /// One user of `mac` less.
    pub(crate) fn give_address(&mut self, mac: MacAddress) -> Result<(), RdmaError> {
        let change = self.numbers()?.arp.give(mac);
        if let Some(ArpChange::Tell(index)) = change {
            self.tell_address(mac, index, false)?;
            self.numbers()?.arp.forget(index);
        }
        Ok(())
    }

    fn tell_address(&mut self, mac: MacAddress, index: u16, valid: bool) -> Result<(), RdmaError> {
        self.control.execute(ManageArp {
            mac_address: mac,
            arp_index: index,
            entry_valid: valid,
            permanent: valid,
            ..ManageArp::ZERO
        })?;
        Ok(())
    }

    /// A number of 24 bits that nobody can guess.
    pub(crate) fn random_24_bits(&mut self) -> u32 {
        self.random.random_range(0..1 << 24)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
