//! The RDMA engine of one device, shared by all verbs objects: control queue, host memory cache,
//! numbers, and the register of live objects.
//!
//! All of it is control path. The state is behind one lock, which is free while a command is in
//! flight: see [`Session`](super::session::Session). The data path has its own rings and never
//! takes the lock.

use super::accumulated::Accumulated;
use super::address::MacAddress;
use super::carried::Carried;
use super::claim::Claims;
use super::connected::ConnectedInterrupt;
use super::end::End;
use super::event::Event;
use super::event_vectors::CompletionEventQueue;
use super::faults::PeerBook;
use super::gids::Gids;
use super::group_list::MulticastGroups;
use super::group_rules::GroupRules;
use super::host_memory::HostMemory;
use super::kept::Kept;
use super::objects::{Objects, RestedNumbers};
use super::records::FedQueuePair;
use crate::Registers;
use crate::admin::AdminQueue;
use crate::control::ControlQueue;
use crate::health::Baseline;
use crate::lan::port::PortRegistry;
use rand::Rng;
use rand::rngs::StdRng;
use ringside_bus::process::{self, Birth};
use ringside_bus::{DmaBuffer, DmaPool, Doorbell, FunctionError, Instant};
use ringside_cq::EventRing;
use std::borrow::{Borrow, BorrowMut};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Facts that never change after bring-up.
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
    /// Configured path MTU, bytes.
    pub(crate) path_mtu: u32,
}

/// The asynchronous event queue.
#[derive(Debug)]
pub(crate) struct AsynchronousEvents {
    pub(crate) ring: EventRing<2>,
    pub(crate) buffer: DmaBuffer,
    pub(crate) entries: u32,
}

/// The state of the engine, divided by the module that owns each part.
pub(crate) struct EngineState {
    /// owner: `session`
    pub(super) claims: Claims,
    /// owner: the stages of bring-up
    pub(crate) made: Made,
    /// the objects of the device; none before the host memory cache is sized. Owner: `lifecycle`
    pub(crate) objects: Objects,
    /// owner: `multicast`
    pub(crate) group_rules: GroupRules,
    /// owner: the modules that make objects
    pub(crate) names: Names,
    /// owner: `containment`, and `health` and `events` for their reports
    pub(crate) service: Service,
    /// owner: `quarantine`
    pub(crate) withheld: Withheld,
    /// owner: `faults`
    pub(crate) peers: PeerBook,
}

impl BorrowMut<Claims> for EngineState {
    fn borrow_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }
}

impl Borrow<Claims> for EngineState {
    fn borrow(&self) -> &Claims {
        &self.claims
    }
}

/// The products of the stages of bring-up. Each is present from its stage until its undo.
#[derive(Default)]
pub(crate) struct Made {
    /// completion event queues, each at the place of its number
    pub(crate) completion_events: Vec<CompletionEventQueue>,
    pub(crate) asynchronous_events: Option<AsynchronousEvents>,
    pub(crate) queue_set_handle: Option<u16>,
    pub(crate) statistics: Option<Accumulated>,
}

/// The sources of keys and numbers that no peer can guess and no earlier object had.
pub(crate) struct Names {
    pub(crate) random: StdRng,
    /// counts queue pairs and completion queues made, to distinguish two uses of a number
    pub(crate) generation: u32,
    /// numbers of an earlier period of service that are not reused yet
    pub(crate) rested: RestedNumbers,
}

/// The period of service, its reports and its end.
pub(crate) struct Service {
    /// a shutdown has begun: nothing new is made
    pub(crate) closed: bool,
    /// the end of this period of service, if it ended
    pub(crate) end: End,
    /// the number of resets of the device when this period of service began
    pub(crate) baseline: Option<Baseline>,
    /// the time at which registers are read next
    pub(crate) next_look: Option<Instant>,
    /// taken from the event queue and not reported yet
    pub(crate) pending_events: Vec<Event>,
    /// at most one for each vector
    pub(crate) interrupts: Vec<ConnectedInterrupt>,
}

/// Memory that the device may still use.
#[derive(Default)]
pub(crate) struct Withheld {
    /// memory of objects that a shutdown destroyed while their owners still hold them
    pub(crate) kept: Vec<DmaBuffer>,
    pub(crate) quarantined: Vec<Kept>,
    /// regions and windows without an owner that the device refused to destroy. Owner: `refused`
    pub(crate) refused: Vec<Kept>,
    /// the time at which taking events makes the driver destroy those
    pub(crate) next_attempt: Option<Instant>,
    /// queue pairs that shared receive queues feed, by number
    pub(crate) fed: BTreeMap<u32, FedQueuePair>,
}

/// See the module.
pub(crate) struct Engine {
    pub(crate) registers: Registers,
    pub(crate) pool: Arc<DmaPool>,
    pub(crate) facts: EngineFacts,
    pub(crate) send_doorbell: Doorbell,
    pub(crate) arm_doorbell: Doorbell,
    /// for the filters of the switch
    pub(crate) admin: Arc<AdminQueue>,
    /// the device failed: readable without the lock
    pub(crate) over: Arc<AtomicBool>,
    /// a shutdown of the device has begun, also in a later period of service
    pub(super) shut_down: Arc<AtomicBool>,
    /// packet queues of the same function
    pub(crate) ports: Arc<PortRegistry>,
    /// the addresses that queue pairs send from
    gids: Mutex<Gids>,
    /// the multicast groups with members, for the IP stack
    pub(crate) groups: Arc<MulticastGroups>,
    pub(crate) control: ControlQueue,
    /// the host memory cache, from the stage `rdma-sizing` on. Locked after the state, or alone:
    /// commands that bring memory are executed under this lock
    memory: Mutex<Option<HostMemory>>,
    pub(super) state: parking_lot::Mutex<EngineState>,
    /// signalled when a claim ends
    pub(super) claim_ended: parking_lot::Condvar,
    /// operations share it; a shutdown, a reset of a queue pair and the end of a life have it alone
    pub(super) operations: parking_lot::RwLock<()>,
    birth: Birth,
}

/// The parts of an engine.
pub(crate) struct Parts {
    pub(crate) registers: Registers,
    pub(crate) pool: Arc<DmaPool>,
    pub(crate) facts: EngineFacts,
    pub(crate) send_doorbell: Doorbell,
    pub(crate) arm_doorbell: Doorbell,
    pub(crate) admin: Arc<AdminQueue>,
    pub(crate) baseline: Option<Baseline>,
    /// used unless an earlier period of service left addresses
    pub(crate) gids: Gids,
    pub(crate) ports: Arc<PortRegistry>,
    /// of the device, for all its periods of service
    pub(crate) shut_down: Arc<AtomicBool>,
}

impl Engine {
    /// An engine with a control queue and nothing else yet.
    pub(crate) fn new(parts: Parts, mut control: ControlQueue, carried: Carried) -> Self {
        control.watch(parts.baseline);
        let over = Arc::default();
        process::tell_in_child_of(&over);
        let group_rules = GroupRules::new(Arc::clone(&parts.admin), parts.facts.vsi_number);
        Self {
            registers: parts.registers,
            pool: parts.pool,
            facts: parts.facts,
            send_doorbell: parts.send_doorbell,
            arm_doorbell: parts.arm_doorbell,
            admin: parts.admin,
            over,
            shut_down: parts.shut_down,
            birth: Birth::now(),
            ports: parts.ports,
            gids: Mutex::new(carried.gids.unwrap_or(parts.gids)),
            groups: Arc::default(),
            control,
            memory: Mutex::default(),
            claim_ended: parking_lot::Condvar::new(),
            operations: parking_lot::RwLock::new(()),
            state: parking_lot::Mutex::new(EngineState {
                claims: Claims::default(),
                made: Made::default(),
                objects: Objects::none(),
                group_rules,
                names: Names {
                    random: carried.random,
                    generation: carried.generation,
                    rested: carried.rested,
                },
                service: Service {
                    closed: false,
                    end: End {
                        owed: carried.owed,
                        ..End::default()
                    },
                    baseline: parts.baseline,
                    next_look: None,
                    pending_events: carried.events,
                    interrupts: Vec::new(),
                },
                withheld: Withheld::default(),
                peers: carried.peers,
            }),
        }
    }

    /// Locks the host memory cache, also after a thread panicked with the lock held.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Option<HostMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the GID table, also after a thread panicked with the lock held: each change is one
    /// assignment.
    pub(crate) fn gids(&self) -> MutexGuard<'_, Gids> {
        self.gids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True in a child by fork of the process that made it: the lock may be held for ever there,
    /// and the objects are the parent's.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.birth.is_here()
    }

    /// True once a shutdown of the device has begun, also in a later period of service.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Refuses calls in a child by fork.
    pub(crate) fn check_process(&self) -> Result<(), FunctionError> {
        self.birth.check(self.registers.function().address())
    }
}

impl EngineState {
    /// Returns an unpredictable number of 24 bits.
    pub(crate) fn random_24_bits(&mut self) -> u32 {
        self.names.random.random_range(0..1 << 24)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
