//! The RDMA engine ("protocol engine") of the E810 in software: registers, control queue pair, host
//! memory cache, queues, and the transport that they feed.
//!
//! Doorbells and registers come in through [`RdmaEngine::register_write`]; commands are carried out
//! at once, of many the first ones. [`RdmaEngine::step`] carries out the others and takes posted
//! work, [`RdmaEngine::next_frame`] gives packets, and
//! [`RdmaEngine::receive`] takes them; completions and events appear in the host's memory.

mod access;
mod control;
mod counters;
mod direct;
mod fault_codes;
mod heads;
mod hmc;
mod objects;
mod queue_sets;
mod queues;
mod regions;
mod registers;
mod ring;
mod schedule;
mod snapshot;
mod stall;
mod translation;
mod way;

pub(crate) use direct::deliver;
pub use snapshot::RdmaSnapshot;
pub(crate) use way::Way;

use crate::chip::{Context, FunctionSettings};
use crate::frame::Frame;
use crate::packet::{OpcodeClass, Packet};
use crate::record::Tap;
use crate::strict::Ledger;
use control::ControlQueue;
use control::SchedulerNode;
use objects::Objects;
use objects::event_queues::Event;
use objects::multicast::MulticastGroup;
use objects::queue_pair::QueuePair;
use queue_sets::QueueSets;
use queues::ActiveQueuePair;
use registers::{DoorbellPage, Registers};
use ringside_bus::{DmaSpace, Memory};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::AeSource;
use schedule::Schedule;
use stall::Stall;
use std::collections::{BTreeMap, BTreeSet};

/// Destination queue pair of datagrams to a group.
/// Source: InfiniBand Architecture Specification volume 1, 10.5.2.
const MULTICAST_QP: u32 = 0xFF_FFFF;

/// The RDMA engine of one function.
pub struct RdmaEngine {
    hmc_function: u8,
    receive_enabled: bool,
    stall: Stall,
    registers: Registers,
    page: Option<DoorbellPage>,
    control: Option<ControlQueue>,
    queue_pairs: Vec<Option<Box<QueuePair>>>,
    objects: Objects,
    scheduler_nodes: BTreeMap<u16, SchedulerNode>,
    queue_sets: QueueSets,
    multicast_groups: BTreeMap<u16, MulticastGroup>,
    schedule: Schedule,
    /// events that a fault has it report
    injected_events: Vec<Event>,
    tap: Option<Tap>,
}

impl RdmaEngine {
    /// An engine as a reset leaves it.
    #[must_use]
    pub fn new(settings: &FunctionSettings) -> Self {
        Self {
            hmc_function: settings.pci_function,
            receive_enabled: false,
            stall: Stall::No,
            registers: Registers::default(),
            page: None,
            control: None,
            queue_pairs: Vec::new(),
            objects: Objects::new(settings.first_segment),
            scheduler_nodes: BTreeMap::new(),
            queue_sets: QueueSets::default(),
            multicast_groups: BTreeMap::new(),
            schedule: Schedule::default(),
            injected_events: Vec::new(),
            tap: None,
        }
    }

    /// Records control commands from now on.
    pub(crate) fn record(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    /// A reset of the function, or a stronger one: everything is forgotten.
    pub fn reset(&mut self) {
        self.receive_enabled = false;
        self.stall = Stall::No;
        // Doorbells from before do not count for objects that are made later.
        if let Some(page) = &mut self.page {
            let _ = page.take();
        }
        self.registers = Registers::default();
        self.control = None;
        self.injected_events.clear();
        self.destroy_objects();
        self.objects.hmc = hmc::Hmc::new(self.objects.hmc.first_segment());
        self.objects.counters = counters::Counters::default();
    }

    /// Every queue and tag goes; segments stay until they are cleared.
    fn destroy_objects(&mut self) {
        let fresh = Objects::new(self.objects.hmc.first_segment());
        self.queue_pairs.clear();
        self.schedule = Schedule::default();
        let former = std::mem::replace(&mut self.objects, fresh);
        self.objects.hmc = former.hmc;
        self.objects.counters = former.counters;
        self.objects.arp = former.arp;
        self.objects.arp.clear(0);
        self.scheduler_nodes.clear();
        self.queue_sets.forget();
        self.multicast_groups.clear();
    }

    /// True if queues or tags in the host memory cache exist.
    fn has_objects(&self) -> bool {
        self.queue_pairs.iter().any(Option::is_some)
            || self.objects.completion_queues.iter().any(Option::is_some)
            || self.objects.regions.in_use().next().is_some()
    }

    /// Polls a doorbell page that clients ring by plain stores.
    pub fn share_doorbell_page(&mut self, page: Memory) {
        self.page = DoorbellPage::new(&page);
    }

    /// Lets frames in, or not: the filter of the function's VSI.
    pub fn set_receive_enabled(&mut self, on: bool) {
        self.receive_enabled = on;
    }

    /// The firmware's scheduler has these RDMA queue sets. Counts those whose handle no leaf has.
    /// Source: ice `ice_idc.c`, `ice_add_rdma_qset`, which gets it from irdma `ws.c`,
    /// `irdma_ws_add`.
    pub(crate) fn set_port_queue_sets(&mut self, sets: BTreeSet<u16>, ledger: &mut Ledger) {
        for handle in self.queue_sets.set_port(sets) {
            if self.leaf_of(handle).is_none() {
                ledger.breach("RDMA queue set that WORK_SCHED_NODE did not give", || {
                    format!("queue set {handle}")
                });
            }
        }
    }

    /// The next step reports this event.
    pub(crate) fn inject_event(&mut self, code: u16, source: u8, queue_number: u32) {
        self.injected_events.push(Event {
            code: AeCode::from_code(code),
            source: AeSource::from_code(source),
            queue_number,
            wqe_index: 0,
            completion_context: 0,
        });
    }

    #[cold]
    fn report_injected_events(&mut self, context: &mut Context<'_>) {
        for event in std::mem::take(&mut self.injected_events) {
            self.objects.raise(&event, context);
        }
    }

    /// The engine stops where it is.
    pub fn stall(&mut self) {
        self.stall = Stall::Yes;
    }

    /// Continues where the engine stopped, if it is stalled.
    pub fn end_stall(&mut self) {
        if self.stall == Stall::Yes {
            self.stall = Stall::Ending;
        }
    }

    /// Processes the requests that arrived meanwhile.
    #[cold]
    fn go_on(&mut self, context: &mut Context<'_>) {
        self.stall = Stall::No;
        self.run_commands(self.registers.doorbell.head(), context);
        for number in 0..self.queue_pairs.len() {
            self.wake(number as u32);
        }
    }

    /// Times that the requester of a queue pair waited in full for an answer, since it began to
    /// send. `None` if there is no such queue pair, or it does not send.
    #[must_use]
    pub fn timeouts(&self, queue_pair: u32) -> Option<u64> {
        let found = self.queue_pairs.get(queue_pair as usize)?.as_deref()?;
        let requester = found.requester.as_ref()?;
        Some(requester.statistics().timeouts)
    }

    /// True if a packet is this engine's business: RoCEv2, while its filter lets frames in.
    #[must_use]
    pub fn claims(&self, packet: &Packet) -> bool {
        self.receive_enabled && packet.transport.opcode.class() != OpcodeClass::Unknown
    }

    /// Counts a packet that is not sound as discarded. False while the filter lets no frames in.
    pub(crate) fn discard_damaged(&mut self, is_ipv4: bool) -> bool {
        if self.receive_enabled {
            self.objects.counters.count_damaged(is_ipv4);
        }
        self.receive_enabled
    }

    /// Takes a frame from the wire. Its payload may lie in another function's memory, hence
    /// `spaces`.
    pub fn receive(&mut self, frame: &Frame, spaces: &[DmaSpace], context: &mut Context<'_>) {
        if self.stall == Stall::Yes || !context.memory.is_bus_master() {
            return;
        }
        self.objects.counters.count_received(frame);
        let number = frame.packet.transport.destination_qp.value();
        let taken = if number == MULTICAST_QP {
            self.receive_group(frame, spaces, context)
        } else {
            self.receive_at(number, frame, spaces, context)
        };
        if !taken {
            self.objects.counters.count_discarded(frame);
        }
    }

    /// Hands a frame to a queue pair; false if that cannot use it.
    #[inline]
    fn receive_at(
        &mut self,
        number: u32,
        frame: &Frame,
        spaces: &[DmaSpace],
        context: &mut Context<'_>,
    ) -> bool {
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return false;
        };
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        let taken = active.receive(frame, spaces);
        if taken {
            self.wake(number);
        }
        taken
    }

    /// Delivers a datagram to every queue pair of its group; false if none took it.
    #[cold]
    fn receive_group(
        &mut self,
        frame: &Frame,
        spaces: &[DmaSpace],
        context: &mut Context<'_>,
    ) -> bool {
        self.objects.counters.count_group_received(frame);
        let groups = self.multicast_groups.values();
        let members: Vec<u32> = groups
            .filter(|group| group.hears(&frame.packet.path))
            .flat_map(|group| group.members().into_iter().flatten())
            .collect();
        let mut taken = false;
        for number in members {
            taken |= self.receive_at(number, frame, spaces, context);
        }
        taken
    }

    /// Delivers datagrams of this function to its own members of the group, where the sender
    /// requested it.
    #[cold]
    fn loop_back(&mut self, context: &mut Context<'_>) {
        while let Some(frame) = self.objects.looped_back.pop_front() {
            // A datagram holds its bytes itself: no other memory is read.
            self.receive(&frame, &[], context);
        }
    }
}

#[cfg(test)]
mod tests;
