//! A driver of a few hundred lines, for two engines on one wire.

use crate::chip::{Causes, Context, FunctionSettings};
use crate::faults::Fault;
use crate::rdma::RdmaEngine;
use crate::strict::Ledger;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaSpace, Instant, Iova, Memory, PageSize};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::control_completion::ControlCompletion;
use ringside_spec::rdma::cqp_context::{CqpContext, HmcProfile, Protocol, ring_size_code};
use ringside_spec::rdma::events::{AsynchronousEvent, CompletionEvent, CqShadowArm};
use ringside_spec::rdma::fpm::{FpmCommit, ObjectType, PerObject};
use ringside_spec::rdma::qp_context::{RoceQueuePairContext, ird_code, queue_size_code};
use ringside_spec::rdma::registers as reg;
use ringside_spec::rdma::segments::{SegmentData, SegmentEntry};
use ringside_spec::verbs::completion::CompletionHeader;
use ringside_spec::verbs::{
    CompletionElement, CompletionExtension, Fragment, SendHeader, SendOpcode,
};

pub(super) const BASE: u64 = 0x1000_0000;
pub(super) const LENGTH: usize = 24 << 20;
const COMMANDS: u32 = 16;
const CQP_CONTEXT: u64 = 0x10;
pub(super) const FPM_BUFFER: u64 = 0x104;
const COMMAND_RING: u64 = 0x1000;
const CCQ_RING: u64 = 0x2000;
const CCQ_SIZE: u32 = 32;
const CCQ_SHADOW: u64 = 0x2800;
const CEQ_RING: u64 = 0x3000;
const AEQ_RING: u64 = 0x4000;
pub(super) const EVENTS: u32 = 32;
const RINGS: u64 = 0x1_0000;
const SEGMENTS: u64 = 0x20_0000;
const SEGMENT_COUNT: u64 = 3;
const DATA: u64 = SEGMENTS + SEGMENT_COUNT * 0x20_0000;
pub(super) const DOMAIN: u32 = 5;
pub(super) const QUANTA: u32 = 64;
pub(super) const CQ_CONTEXT: u64 = 0x4444;
const CQP_COMPLETION_CONTEXT: u64 = 0x5151_5151;

pub(super) const ALL: AccessRights = AccessRights(0x1F);

/// One function and its driver.
pub(super) struct Side {
    pub(super) engine: RdmaEngine,
    pub(super) ledger: Ledger,
    pub(super) causes: Causes,
    pub(super) faults: Vec<Fault>,
    pub(super) memory: Memory,
    command: u32,
    commands_done: u64,
    next_ring: u64,
    next_data: u64,
    next_event: u32,
    pub(super) pble_base: u64,
}

/// A completion queue as its driver sees it.
pub(super) struct Cq {
    pub(super) number: u32,
    pub(super) ring: u64,
    pub(super) shadow: u64,
    pub(super) size: u32,
    next: u32,
}

/// A queue pair as its driver sees it.
pub(super) struct Qp {
    pub(super) number: u32,
    pub(super) send: u64,
    pub(super) receive: u64,
    pub(super) context_at: u64,
    pub(super) shadow: u64,
    pub(super) head: u32,
    pub(super) receive_head: u32,
}

pub(super) struct Rig {
    /// Payload that a frame may hold; 0: one packet each.
    pub(super) run_bytes: u32,
    /// Packets that were delivered without a frame, as is tried where frames may hold several.
    pub(super) direct: u32,
    pub(super) sides: Vec<Side>,
    pub(super) spaces: Vec<DmaSpace>,
    pub(super) now: Instant,
}

impl Rig {
    /// Two functions with memory, nothing set up.
    pub(super) fn bare() -> Self {
        let mut spaces = Vec::new();
        let sides = (0..2u16)
            .map(|index| {
                let memory = Memory::allocate(LENGTH, PageSize::FourKiB, None).unwrap();
                let mut space = DmaSpace::new();
                space.set_bus_master(true);
                assert!(space.map(Iova(BASE), &memory, 0, LENGTH, DmaAccess::ReadWrite));
                spaces.push(space);
                Side {
                    engine: RdmaEngine::new(&FunctionSettings::numbered(index)),
                    ledger: Ledger::default(),
                    causes: Causes::default(),
                    faults: Vec::new(),
                    memory,
                    command: 0,
                    commands_done: 0,
                    next_ring: RINGS,
                    next_data: DATA,
                    next_event: 0,
                    pble_base: 0,
                }
            })
            .collect();
        Self {
            run_bytes: crate::frame::RUN_BYTES,
            direct: 0,
            sides,
            spaces,
            now: Instant(1),
        }
    }

    /// Two functions brought up.
    pub(super) fn new() -> Self {
        let mut rig = Self::bare();
        for side in 0..2 {
            rig.create_control_queue(side);
            rig.commit_and_back(side);
            rig.create_queues(side);
            rig.create_queue_set(side);
            rig.sides[side].engine.set_receive_enabled(true);
        }
        rig
    }

    pub(super) fn with<T>(
        &mut self,
        side: usize,
        act: impl FnOnce(&mut RdmaEngine, &mut Context<'_>) -> T,
    ) -> T {
        let Side {
            engine,
            ledger,
            causes,
            faults,
            ..
        } = &mut self.sides[side];
        let mut context = Context {
            now: self.now,
            memory: &self.spaces[side],
            ledger,
            faults,
            causes,
        };
        act(engine, &mut context)
    }

    pub(super) fn write(&mut self, side: usize, offset: u64, value: u32) {
        assert!(self.with(side, |engine, context| {
            engine.register_write(offset, value, context)
        }));
    }

    pub(super) fn read(&mut self, side: usize, offset: u64) -> u32 {
        let value = self.with(side, |engine, context| {
            engine.register_read(offset, context)
        });
        value.unwrap()
    }

    pub(super) fn put(&mut self, side: usize, at: u64, words: &[u64]) {
        self.spaces[side]
            .write_words(Iova(BASE + at), words)
            .unwrap();
    }

    pub(super) fn get<const N: usize>(&self, side: usize, at: u64) -> [u64; N] {
        self.spaces[side].read_words(Iova(BASE + at)).unwrap()
    }

    pub(super) fn handshake(&mut self, side: usize) -> reg::CqpStatus {
        let context = CqpContext {
            protocol_used: Protocol::RoceOnly,
            ring_size_code: ring_size_code(COMMANDS).unwrap(),
            hmc_profile: HmcProfile::Default,
            completion_context: CQP_COMPLETION_CONTEXT,
            hardware_major_version: 1,
            ..CqpContext::ZERO
        }
        .with_ring_address(BASE + COMMAND_RING);
        self.put(side, CQP_CONTEXT, &context.encode());
        for register in [reg::CQP_TAIL, reg::CQP_DOORBELL, reg::CQP_STATUS] {
            self.write(side, register, 0);
        }
        self.write(side, reg::CQP_CONTEXT_HIGH, 0);
        self.write(side, reg::CQP_CONTEXT_LOW, (BASE + CQP_CONTEXT) as u32);
        reg::CqpStatus(self.read(side, reg::CQP_STATUS))
    }

    pub(super) fn create_control_queue(&mut self, side: usize) {
        let status = self.handshake(side);
        assert!(status.done() && !status.error(), "{status:?}");
    }

    /// Puts a command into the ring and rings; the tail register afterwards.
    pub(super) fn submit(&mut self, side: usize, command: impl Into<Command>) -> reg::CqpTail {
        let polarity = (self.sides[side].command / COMMANDS).is_multiple_of(2);
        let words = command.into().encode(polarity);
        self.submit_words(side, words)
    }

    /// Puts a command into the ring, without a doorbell.
    pub(super) fn place(&mut self, side: usize, command: impl Into<Command>) {
        let polarity = (self.sides[side].command / COMMANDS).is_multiple_of(2);
        let words = command.into().encode(polarity);
        self.place_words(side, words);
    }

    fn place_words(&mut self, side: usize, words: [u64; 8]) {
        let index = self.sides[side].command % COMMANDS;
        self.put(side, COMMAND_RING + u64::from(index) * 64, &words);
        self.sides[side].command += 1;
    }

    /// The same as [`Self::submit`] for the words of a command.
    pub(super) fn submit_words(&mut self, side: usize, words: [u64; 8]) -> reg::CqpTail {
        self.place_words(side, words);
        self.ring_commands(side)
    }

    /// Rings for all commands in the ring; the tail register afterwards.
    pub(super) fn ring_commands(&mut self, side: usize) -> reg::CqpTail {
        let head = self.sides[side].command % COMMANDS;
        self.write(side, reg::CQP_DOORBELL, head);
        reg::CqpTail(self.read(side, reg::CQP_TAIL))
    }

    /// A command whose completion is awaited by register.
    pub(super) fn by_register(&mut self, side: usize, command: impl Into<Command>) {
        let tail = self.submit(side, command);
        let codes = reg::CqpErrorCodes(self.read(side, reg::CQP_ERROR_CODES));
        assert!(
            !tail.operation_error(),
            "{codes:?} {:?}",
            self.breaches(side)
        );
        assert_eq!(tail.tail(), self.sides[side].command % COMMANDS);
    }

    /// A command whose completion is taken from the control completion queue.
    pub(super) fn command(
        &mut self,
        side: usize,
        command: impl Into<Command>,
    ) -> ControlCompletion {
        let index = self.sides[side].command % COMMANDS;
        self.submit(side, command);
        let done = self.sides[side].commands_done;
        let at = CCQ_RING + done % u64::from(CCQ_SIZE) * 32;
        let completion = ControlCompletion::decode(&self.get(side, at));
        let polarity = (done / u64::from(CCQ_SIZE)).is_multiple_of(2);
        assert_eq!(
            completion.valid,
            polarity,
            "no completion: {:?}",
            self.breaches(side)
        );
        assert_eq!(completion.cqp_context, CQP_COMPLETION_CONTEXT);
        assert_eq!(u32::from(completion.wqe_index), index);
        self.sides[side].commands_done += 1;
        let head = self.sides[side].commands_done % u64::from(CCQ_SIZE);
        self.put(side, CCQ_SHADOW, &[head]);
        completion
    }

    /// A command that succeeds.
    pub(super) fn done(&mut self, side: usize, command: impl Into<Command>) -> ControlCompletion {
        let completion = self.command(side, command);
        assert!(
            !completion.error,
            "{completion:?} {:?}",
            self.breaches(side)
        );
        completion
    }

    /// The counts that the driver requests.
    pub(super) fn counts() -> PerObject<u32> {
        PerObject::from_fn(|object| match object {
            ObjectType::QueuePair => 16,
            ObjectType::CompletionQueue => 32,
            ObjectType::MemoryRegion => 64,
            ObjectType::Arp | ObjectType::AddressVector => 16,
            ObjectType::PageBufferList => 4096,
            ObjectType::InboundRead => 512,
            _ => 64,
        })
    }

    pub(super) fn commit(&mut self, side: usize) {
        self.commit_counts(side, &Self::counts());
    }

    pub(super) fn commit_counts(&mut self, side: usize, counts: &PerObject<u32>) {
        let buffer_address = BASE + FPM_BUFFER;
        let hmc_function_index = 0;
        self.by_register(
            side,
            QueryFpm {
                hmc_function_index,
                buffer_address,
            },
        );
        self.put(side, FPM_BUFFER, &FpmCommit::encode_request(counts));
        self.by_register(
            side,
            CommitFpm {
                hmc_function_index,
                buffer_length: 176,
                buffer_address,
            },
        );
        let granted = FpmCommit::decode(&self.get(side, FPM_BUFFER));
        self.sides[side].pble_base = granted.0[ObjectType::PageBufferList].base();
    }

    pub(super) fn back(&mut self, side: usize) {
        let entries: Vec<_> = (0..SEGMENT_COUNT as u16)
            .map(|index| {
                let at = BASE + SEGMENTS + u64::from(index) * 0x20_0000;
                SegmentEntry::write(index, SegmentData::backed(at, true))
            })
            .collect();
        let (command, listed) = UpdateSegments::from_entries(0, &entries, 0).unwrap();
        assert!(listed.is_empty());
        self.by_register(side, command);
    }

    pub(super) fn commit_and_back(&mut self, side: usize) {
        self.commit(side);
        self.back(side);
        let hmc_function_index = 0;
        self.by_register(side, StaticHmcPagesAllocated { hmc_function_index });
    }

    pub(super) fn control_completion_queue() -> CreateCompletionQueue {
        CreateCompletionQueue {
            size_entries: CCQ_SIZE,
            completion_context: 0xCC,
            shadow_read_threshold: 16,
            ring_address: BASE + CCQ_RING,
            shadow_address: BASE + CCQ_SHADOW,
            check_overflow: true,
            ceq_number_valid: true,
            ..CreateCompletionQueue::ZERO
        }
    }

    pub(super) fn create_queues(&mut self, side: usize) {
        self.done(side, Self::control_completion_queue());
        self.done(
            side,
            CreateCompletionEventQueue {
                size_entries: EVENTS,
                ring_address: BASE + CEQ_RING,
                ..CreateCompletionEventQueue::ZERO
            },
        );
        self.done(
            side,
            CreateAsynchronousEventQueue {
                size_entries: EVENTS,
                ring_address: BASE + AEQ_RING,
                ..CreateAsynchronousEventQueue::ZERO
            },
        );
    }

    /// A node of the work scheduler, as it is added.
    pub(super) fn scheduler_node(node_id: u16, parent_id: u16, leaf: bool) -> WorkSchedulerNode {
        WorkSchedulerNode {
            node_id,
            parent_id,
            leaf,
            enable: !leaf,
            priority_type: SchedulerPriority::WeightedRoundRobin,
            weight: 1,
            ..WorkSchedulerNode::ZERO
        }
    }

    /// The handle that [`Self::create_queue_set`] gets.
    pub(super) const QUEUE_SET: u16 = 1;

    /// Nodes 0, 1 and the leaf 2 of the work scheduler, whose queue set the port has.
    fn create_queue_set(&mut self, side: usize) {
        self.done(side, Self::scheduler_node(0, 0, false));
        self.done(side, Self::scheduler_node(1, 0, false));
        let leaf = Self::scheduler_node(2, 1, true);
        let given = self.done(side, leaf).return_value;
        assert_eq!(given, u32::from(Self::QUEUE_SET));
        self.set_port_queue_sets(side, &[Self::QUEUE_SET]);
        self.enable_leaf(side, true);
    }

    pub(super) fn set_port_queue_sets(&mut self, side: usize, sets: &[u16]) {
        let sets = sets.iter().copied().collect();
        self.with(side, |engine, context| {
            engine.set_port_queue_sets(sets, context.ledger);
        });
    }

    /// Enables the leaf 2, or disables it.
    pub(super) fn enable_leaf(&mut self, side: usize, enable: bool) {
        let modify = WorkSchedulerNode {
            operation: SchedulerOperation::Modify,
            enable,
            ..Self::scheduler_node(2, 1, true)
        };
        self.done(side, modify);
    }

    pub(super) fn ring_memory(&mut self, side: usize, bytes: u64) -> u64 {
        let at = self.sides[side].next_ring;
        self.sides[side].next_ring += bytes.next_multiple_of(4096);
        assert!(self.sides[side].next_ring <= SEGMENTS);
        at
    }

    pub(super) fn data(&mut self, side: usize, bytes: u64) -> u64 {
        let at = self.sides[side].next_data;
        self.sides[side].next_data += bytes.next_multiple_of(4096);
        assert!(self.sides[side].next_data <= LENGTH as u64);
        at
    }

    pub(super) fn fill(&mut self, side: usize, at: u64, bytes: &[u8]) {
        assert!(self.sides[side].memory.write(at as usize, bytes));
    }

    pub(super) fn bytes(&self, side: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.sides[side].memory.read(at as usize, &mut bytes));
        bytes
    }

    pub(super) fn cq(&mut self, side: usize, number: u32, size: u32) -> Cq {
        let ring = self.ring_memory(side, u64::from(size) * 32);
        let shadow = self.ring_memory(side, 64);
        self.done(
            side,
            CreateCompletionQueue {
                cq_number: number,
                size_entries: size,
                completion_context: CQ_CONTEXT + u64::from(number),
                ring_address: BASE + ring,
                shadow_address: BASE + shadow,
                check_overflow: true,
                ceqe_mask: true,
                ceq_number_valid: true,
                ..CreateCompletionQueue::ZERO
            },
        );
        Cq {
            number,
            ring,
            shadow,
            size,
            next: 0,
        }
    }

    /// The next completion, and its extension.
    pub(super) fn poll(
        &mut self,
        side: usize,
        cq: &mut Cq,
    ) -> Option<(CompletionElement, Option<CompletionExtension>)> {
        let slot = |next: u32| cq.ring + u64::from(next % cq.size) * 32;
        let words = self.get::<4>(side, slot(cq.next));
        if CompletionHeader(words[3]).valid() != (cq.next / cq.size).is_multiple_of(2) {
            return None;
        }
        let element = CompletionElement::decode(&words);
        let extension = element
            .extended
            .then(|| CompletionExtension::decode(&self.get(side, slot(cq.next + 1))));
        cq.next += 1 + u32::from(element.extended);
        let head = u64::from(cq.next % cq.size);
        self.put(side, cq.shadow, &[head]);
        Some((element, extension))
    }

    pub(super) fn arm(&mut self, side: usize, cq: &Cq, solicited_only: bool) {
        self.arm_in_memory(side, cq, solicited_only);
        self.write(side, reg::CQ_ARM, cq.number);
    }

    /// Writes the request of [`Self::arm`]; its doorbell is still to be rung.
    pub(super) fn arm_in_memory(&mut self, side: usize, cq: &Cq, solicited_only: bool) {
        let [word] = self.get(side, cq.shadow + 32);
        let word = CqShadowArm(word).armed(solicited_only);
        self.put(side, cq.shadow + 32, &[word.0]);
    }

    /// A region over the data at `at`, by one block; its tag.
    pub(super) fn region(&mut self, side: usize, index: u32, at: u64, length: u64) -> u32 {
        let command = self.contiguous(index, at, length);
        self.done(side, command);
        SteeringTag::ZERO.with_index(index).with_key(7).0
    }

    pub(super) fn contiguous(&self, index: u32, at: u64, length: u64) -> RegisterMemoryRegion {
        RegisterMemoryRegion {
            virtual_address: BASE + at,
            length_bytes: length,
            protection_domain: DOMAIN,
            stag_key: 7,
            stag_index: index,
            first_block_address: (BASE + at) & !0xFFF,
            is_memory_region: true,
            access_rights: ALL,
            remote_access: true,
            va_based: true,
            ..RegisterMemoryRegion::ZERO
        }
    }

    /// Writes a page buffer list entry, as the host does it.
    pub(super) fn set_pble(&mut self, side: usize, index: u64, value: u64) {
        let at = SEGMENTS + self.sides[side].pble_base + index * 8;
        self.put(side, at, &[value]);
    }

    pub(super) fn context(side: usize, peer: u32) -> RoceQueuePairContext {
        RoceQueuePairContext {
            ipv4: true,
            protection_domain: DOMAIN,
            ttl: 64,
            rq_size_code: queue_size_code(QUANTA).unwrap(),
            sq_size_code: queue_size_code(QUANTA).unwrap(),
            source_port: 0xC001,
            destination_port: 4791,
            local_ip: 0x0A00_0001 + side as u128,
            destination_ip: 0x0A00_0002 - side as u128,
            send_mss: 1024,
            arp_index: 3,
            remote_endpoint_index: 3,
            p_key: 0xFFFF,
            ack_credits: 0x1E,
            destination_qp: peer,
            psn_next: 0xFF_FFF0 + side as u32,
            psn_max: 0xFF_FFF0 + side as u32,
            psn_unacknowledged: 0xFF_FFF0 + side as u32,
            expected_psn: 0xFF_FFF0 + 1 - side as u32,
            congestion_window: 0x400,
            retransmit_threshold: 3,
            rnr_retry_threshold: 2,
            rto_min: 5,
            ord_size: 4,
            ird_size: ird_code(8).unwrap(),
            write_and_read_response_ok: true,
            read_ok: true,
            bind_enable: true,
            fast_register_enable: true,
            queue_set_handle: Self::QUEUE_SET,
            source_mac: FunctionSettings::numbered(side as u16).mac,
            ..RoceQueuePairContext::ZERO
        }
    }

    /// Creates a queue pair, not connected.
    pub(super) fn qp(&mut self, side: usize, number: u32, cq: &Cq) -> Qp {
        let (qp, command) = self.describe_qp(side, number, cq.number);
        self.done(side, command);
        qp
    }

    pub(super) fn describe_qp(
        &mut self,
        side: usize,
        number: u32,
        cq: u32,
    ) -> (Qp, CreateQueuePair) {
        let send = self.ring_memory(side, u64::from(QUANTA) * 32);
        let receive = self.ring_memory(side, u64::from(QUANTA) * 32);
        let context_at = self.ring_memory(side, 256 + 64);
        let context = RoceQueuePairContext {
            sq_address: BASE + send,
            rq_address: BASE + receive,
            tx_cq_number: cq,
            rx_cq_number: cq,
            completion_context: 0xA000 + u64::from(number),
            ..Self::context(side, number)
        };
        self.put(side, context_at, &context.encode());
        let shadow = context_at + 256;
        let command = CreateQueuePair {
            host_context_address: BASE + context_at,
            shadow_address: BASE + shadow,
            qp_number: number,
            cq_numbers_valid: true,
            mac_valid: true,
            qp_type: QueuePairType::RoceReliableConnected,
            next_state: QueuePairState::Idle,
            ..CreateQueuePair::ZERO
        };
        let qp = Qp {
            number,
            send,
            receive,
            context_at,
            shadow,
            head: 0,
            receive_head: 0,
        };
        (qp, command)
    }

    pub(super) fn modify(&mut self, qp: &Qp, next_state: QueuePairState) -> ModifyQueuePair {
        ModifyQueuePair {
            host_context_address: BASE + qp.context_at,
            shadow_address: BASE + qp.shadow,
            qp_number: qp.number,
            arp_index_valid: true,
            cq_numbers_valid: true,
            ord_valid: true,
            qp_type: QueuePairType::RoceReliableConnected,
            next_state,
            ..ModifyQueuePair::ZERO
        }
    }

    /// Idle to ready to send, with an ARP entry for the peer.
    pub(super) fn connect(&mut self, side: usize, qp: &Qp) {
        let peer = FunctionSettings::numbered(1 - side as u16).mac;
        self.done(
            side,
            ManageArp {
                mac_address: peer,
                arp_index: 3,
                entry_valid: true,
                permanent: true,
                ..ManageArp::ZERO
            },
        );
        for state in [
            QueuePairState::Idle,
            QueuePairState::ReadyToReceive,
            QueuePairState::ReadyToSend,
        ] {
            let command = self.modify(qp, state);
            self.done(side, command);
        }
    }

    /// Queue pair 3 of both sides connected, with completion queue 3.
    pub(super) fn pair(&mut self) -> (Vec<Qp>, Vec<Cq>) {
        let mut cqs: Vec<_> = (0..2).map(|side| self.cq(side, 3, 64)).collect();
        let qps: Vec<_> = (0..2).map(|side| self.qp(side, 3, &cqs[side])).collect();
        for (side, qp) in qps.iter().enumerate() {
            self.connect(side, qp);
        }
        cqs.truncate(2);
        (qps, cqs)
    }

    /// Writes an element's quanta at the head; the first header word last.
    pub(super) fn post(&mut self, side: usize, qp: &mut Qp, words: &[u64]) -> u32 {
        let index = qp.head % QUANTA;
        let at = qp.send + u64::from(index) * 32;
        self.put(side, at, words);
        qp.head += (words.len() / 4) as u32;
        index
    }

    pub(super) fn polarity(head: u32) -> bool {
        (head / QUANTA).is_multiple_of(2)
    }

    /// A signalled request with up to two quanta of fragments.
    pub(super) fn request(
        &mut self,
        side: usize,
        qp: &mut Qp,
        opcode: SendOpcode,
        remote: (u64, u32),
        pieces: &[Fragment],
    ) -> u32 {
        let polarity = Self::polarity(qp.head);
        let mut slots: Vec<_> = pieces.to_vec();
        if slots.is_empty() || slots.len().is_multiple_of(2) {
            slots.push(Fragment::default());
        }
        let mut words = vec![0; (slots.len() / 2 + 1) * 4];
        let header = SendHeader::ZERO
            .with_opcode(opcode.code().into())
            .with_steering_tag(remote.1.into())
            .with_further_fragments(slots.len() as u64 - 1)
            .with_signalled(true)
            .with_valid(polarity);
        words[..2].copy_from_slice(&slots[0].encode(polarity));
        words[2] = remote.0;
        words[3] = header.0;
        for (place, piece) in slots[1..].iter().enumerate() {
            words[4 + place * 2..6 + place * 2].copy_from_slice(&piece.encode(polarity));
        }
        self.post(side, qp, &words)
    }

    pub(super) fn post_receive(&mut self, side: usize, qp: &mut Qp, piece: Fragment) {
        let polarity = Self::polarity(qp.receive_head);
        let at = qp.receive + u64::from(qp.receive_head % QUANTA) * 32;
        let [address, key] = piece.encode(polarity);
        let header = SendHeader::ZERO.with_valid(polarity);
        self.put(side, at, &[address, key, 0, header.0]);
        qp.receive_head += 1;
    }

    pub(super) fn ring(&mut self, side: usize, qp: &Qp) {
        self.write(side, reg::WQE_ALLOCATE, qp.number);
    }

    /// Lets both engines run until they rest at this moment; false if they never do.
    pub(super) fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the engines never rest");
    }

    pub(super) fn turn(&mut self) -> bool {
        let mut worked = false;
        for side in 0..2 {
            worked |= self.with(side, |engine, context| engine.step(context));
            for _ in 0..32 {
                let run_bytes = self.run_bytes;
                if run_bytes > 0 && self.deliver_directly(side) {
                    worked = true;
                    continue;
                }
                let next = self.with(side, |engine, context| engine.next_run(run_bytes, context));
                let Some(mut frame) = next else {
                    break;
                };
                worked = true;
                if let crate::frame::Payload::Memory { source, .. } = &mut frame.payload {
                    *source = side;
                }
                self.deliver(1 - side, &frame);
            }
        }
        worked
    }

    /// Lets a side hand short writes or an acknowledgement to the other; false if there are none.
    fn deliver_directly(&mut self, side: usize) -> bool {
        let engine = &mut self.sides[side].engine;
        if engine.direct_way(&self.spaces[side]).is_none() || engine.direct_path().is_none() {
            return false;
        }
        let mut contexts = Vec::new();
        for (one, memory) in self.sides.iter_mut().zip(&self.spaces) {
            let context = Context {
                now: self.now,
                memory,
                ledger: &mut one.ledger,
                faults: &one.faults,
                causes: &mut one.causes,
            };
            contexts.push((&mut one.engine, context));
        }
        let [near, far] = contexts.as_mut_slice() else {
            unreachable!("a rig has two sides");
        };
        let (from, to) = if side == 0 { (near, far) } else { (far, near) };
        let (from, to) = ((&mut *from.0, &mut from.1), (&mut *to.0, &mut to.1));
        let delivered = crate::rdma::deliver(from, to, 32);
        self.direct += delivered.as_ref().map_or(0, |some| some.packets);
        delivered.is_some()
    }

    pub(super) fn deliver(&mut self, side: usize, frame: &crate::frame::Frame) {
        let Side {
            engine,
            ledger,
            causes,
            faults,
            ..
        } = &mut self.sides[side];
        let mut context = Context {
            now: self.now,
            memory: &self.spaces[side],
            ledger,
            faults,
            causes,
        };
        assert!(engine.claims(&frame.packet));
        engine.receive(frame, &self.spaces, &mut context);
    }

    /// Runs, and lets time pass to the next timer, until no timer runs.
    pub(super) fn run_out(&mut self) {
        for _ in 0..10_000 {
            self.run();
            let timers = self
                .sides
                .iter()
                .filter_map(|side| side.engine.next_timer());
            match timers.min() {
                Some(timer) => self.now = self.now.max(timer),
                None => return,
            }
        }
        panic!("timers never end");
    }

    /// The next asynchronous event.
    pub(super) fn event(&mut self, side: usize) -> Option<AsynchronousEvent> {
        let next = self.sides[side].next_event;
        let at = AEQ_RING + u64::from(next % EVENTS) * 16;
        let event = AsynchronousEvent::decode(&self.get(side, at));
        if event.valid != (next / EVENTS).is_multiple_of(2) {
            return None;
        }
        self.sides[side].next_event += 1;
        self.write(side, reg::AEQ_ALLOCATE, 1);
        Some(event)
    }

    pub(super) fn event_code(&mut self, side: usize) -> Option<AeCode> {
        self.event(side).map(|event| event.ae_code)
    }

    pub(super) fn completion_event(&self, side: usize, index: u64) -> CompletionEvent {
        CompletionEvent::decode(&self.get(side, CEQ_RING + index * 8))
    }

    pub(super) fn breaches(&self, side: usize) -> Vec<String> {
        let breaches = self.sides[side].ledger.breaches();
        breaches
            .into_iter()
            .map(|breach| format!("{}: {}", breach.kind, breach.first))
            .collect()
    }

    pub(super) fn kinds(&self, side: usize) -> Vec<&'static str> {
        let breaches = self.sides[side].ledger.breaches();
        breaches.into_iter().map(|breach| breach.kind).collect()
    }

    /// Kinds of remarks.
    pub(super) fn remarks(&self, side: usize) -> Vec<&'static str> {
        let remarks = self.sides[side].ledger.remarks();
        remarks.into_iter().map(|remark| remark.kind).collect()
    }

    pub(super) fn assert_no_breach(&self) {
        for side in 0..2 {
            assert_eq!(self.breaches(side), Vec::<String>::new(), "side {side}");
        }
    }
}
