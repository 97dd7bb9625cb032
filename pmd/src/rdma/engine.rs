//! The RDMA engine of one device, shared by all verbs objects: control queue, host memory cache,
//! numbers, and the register of live objects.
//!
//! Everything here is control path and behind one lock. The data path holds its own rings and never
//! comes here.

use super::RdmaError;
use super::accumulated::Accumulated;
use super::address::{ArpChange, MacAddress};
use super::carried::Carried;
use super::connected::ConnectedInterrupt;
use super::end::End;
use super::event::Event;
use super::faults::PeerBook;
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
use ringside_bus::{DmaBuffer, DmaPool, Doorbell, Instant};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::ManageArp;
use ringside_spec::rdma::fpm::ObjectType;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
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

/// The state of the engine, divided by the module that owns each part.
pub(crate) struct EngineState {
    pub(crate) control: ControlQueue,
    /// owner: the stages of bring-up
    pub(crate) made: Made,
    /// what the device has; none before the host memory cache is sized. Owner: `lifecycle`
    pub(crate) objects: Objects,
    /// owner: `multicast`
    pub(crate) group_rules: GroupRules,
    /// owner: the modules that make objects
    pub(crate) names: Names,
    /// owner: `containment`, and `health` and `events` for what they report
    pub(crate) service: Service,
    /// owner: `quarantine`
    pub(crate) withheld: Withheld,
    /// owner: `faults`
    pub(crate) peers: PeerBook,
}

/// The products of the stages of bring-up. Each is present from its stage until its undo.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) memory: Option<HostMemory>,
    pub(crate) completion_events: Option<CompletionEvents>,
    pub(crate) asynchronous_events: Option<AsynchronousEvents>,
    pub(crate) queue_set_handle: Option<u16>,
    pub(crate) statistics: Option<Accumulated>,
}

/// The sources of keys and numbers that no peer can guess and no earlier object had.
pub(crate) struct Names {
    pub(crate) random: StdRng,
    /// counts queue pairs and completion queues made, so that a number used twice is told apart
    pub(crate) generation: u32,
    /// numbers of an earlier life that rest in this one
    pub(crate) rested: RestedNumbers,
}

/// The period of service, its reports and its end.
pub(crate) struct Service {
    /// a shutdown has begun: nothing new is made
    pub(crate) closed: bool,
    /// whether and how the life of the device in service ended
    pub(crate) end: End,
    /// resets that the device had seen when this life began
    pub(crate) baseline: Option<Baseline>,
    /// the time at which registers are read next
    pub(crate) next_look: Option<Instant>,
    /// taken from the event queue and not reported yet
    pub(crate) pending_events: Vec<Event>,
    pub(crate) interrupts: Option<ConnectedInterrupt>,
}

/// Memory that the device may still use.
#[derive(Default)]
pub(crate) struct Withheld {
    /// memory of objects that a shutdown destroyed while their owners still hold them
    pub(crate) kept: Vec<DmaBuffer>,
    pub(crate) quarantined: Vec<Kept>,
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
    /// for what the switch must let in
    pub(crate) admin: Arc<AdminQueue>,
    /// the device failed: for those who want to know without a lock
    pub(crate) over: Arc<AtomicBool>,
    /// packet queues of the same function
    pub(crate) ports: Arc<PortRegistry>,
    state: Mutex<EngineState>,
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
    pub(crate) ports: Arc<PortRegistry>,
}

impl Engine {
    /// An engine with a control queue and nothing else yet.
    pub(crate) fn new(parts: Parts, control: ControlQueue, carried: Carried) -> Self {
        let group_rules = GroupRules::new(Arc::clone(&parts.admin), parts.facts.vsi_number);
        Self {
            registers: parts.registers,
            pool: parts.pool,
            facts: parts.facts,
            send_doorbell: parts.send_doorbell,
            arm_doorbell: parts.arm_doorbell,
            admin: parts.admin,
            over: Arc::default(),
            ports: parts.ports,
            state: Mutex::new(EngineState {
                control,
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
                    interrupts: None,
                },
                withheld: Withheld::default(),
                peers: carried.peers,
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
        if let Some(cause) = state.service.end.cause {
            return Err(RdmaError::DeviceFailed { cause });
        }
        if state.service.closed {
            return Err(RdmaError::ShutDown);
        }
        Ok(state)
    }
}

impl EngineState {
    /// Brings the memory behind an object's context.
    pub(crate) fn back(&mut self, object: ObjectType, index: u32) -> Result<(), RdmaError> {
        let memory = self.made.memory.as_mut().ok_or(RdmaError::ShutDown)?;
        memory.ensure(&mut self.control, object, index..index + 1)
    }

    /// Index of the table entry of `mac`, told to the device if it is new.
    pub(crate) fn take_address(&mut self, mac: MacAddress) -> Result<u16, RdmaError> {
        let index = match self.objects.arp.take(mac, &mut self.names.random)? {
            ArpChange::Nothing(index) => return Ok(index),
            ArpChange::Tell(index) => index,
        };
        let told = self
            .back(ObjectType::Arp, u32::from(index))
            .and_then(|()| self.tell_address(mac, index, true));
        if let Err(error) = told {
            let _ = self.objects.arp.give(mac);
            // An entry that the device may have keeps its number.
            let unconfirmed = matches!(&error, RdmaError::Control(error) if !error.is_refusal());
            if !unconfirmed {
                self.objects.arp.forget(index);
            }
            return Err(error);
        }
        Ok(index)
    }

    /// One user of `mac` less.
    pub(crate) fn give_address(&mut self, mac: MacAddress) -> Result<(), RdmaError> {
        if let Some(ArpChange::Tell(index)) = self.objects.arp.give(mac) {
            self.tell_address(mac, index, false)?;
            self.objects.arp.forget(index);
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
