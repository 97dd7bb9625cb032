//! Making, connecting, failing and destroying queue pairs.

use super::context::{Attributes, Path, Wanted};
use super::{Inner, QueuePairConfig};
use crate::control::ControlError;
use crate::rdma::connection::Endpoint;
use crate::rdma::engine::{Engine, EngineState};
use crate::rdma::faults::FaultCounters;
use crate::rdma::lifecycle::{By, Destroyed, Making};
use crate::rdma::objects::Object;
use crate::rdma::objects::{Held, Objects, Table};
use crate::rdma::protection_domain::Kind;
use crate::rdma::records::{
    Condition, QueuePairCondition, QueuePairMemory, QueuePairRecord, SendState,
};
use crate::rdma::{ProtectionDomain, RdmaError};
use ringside_bus::{DmaBuffer, Doorbell};
use ringside_cq::Sides;
use ringside_qp::{CompletionContext, QueuePairState, ReceiveQueue, SendQueue};
use ringside_spec::rdma::ae_codes::{FLUSH_MAJOR_CODE, FlushCode};
use ringside_spec::rdma::commands::{
    CreateQueuePair, DestroyQueuePair, FlushWorkQueues, ModifyQueuePair,
    QueuePairState as DeviceState, QueuePairType,
};
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{
    MAX_WORK_QUEUE_QUANTA, QP_CONTEXT_ALIGNMENT, QP_CONTEXT_BYTES, QUANTUM_BYTES, SHADOW_BYTES,
};
use ringside_spec::rdma::qp_context::{queue_size_code, rq_wqe_size_code};
use ringside_spec::verbs::QueueSide;
use ringside_spec::verbs::sizes::{element_shift, receive_ring_quanta, send_ring_quanta};
use std::sync::Arc;

/// Sizes of both rings.
struct Sizes {
    send_quanta: u32,
    receive_quanta: u32,
    receive_shift: u32,
}

impl Sizes {
    fn of(config: &QueuePairConfig) -> Result<Self, RdmaError> {
        // Immediate data takes the place of a fragment.
        let send_shift = element_shift(
            config.send_fragments as usize + 1,
            config.inline_bytes as usize,
        );
        let receive_shift = element_shift(config.receive_fragments as usize, 0);
        let too_many = |what, given: u32, shift: u32| RdmaError::OutOfRange {
            what,
            given: given.into(),
            least: 1,
            most: (u64::from(MAX_WORK_QUEUE_QUANTA) >> shift) - 16,
        };
        let send_quanta = send_ring_quanta(config.send_requests, send_shift).ok_or_else(|| {
            too_many(
                "the number of sends of this size",
                config.send_requests,
                send_shift,
            )
        })?;
        let receive_quanta = receive_ring_quanta(config.receive_requests, receive_shift)
            .ok_or_else(|| {
                let what = "the number of receives of this size";
                too_many(what, config.receive_requests, receive_shift)
            })?;
        Ok(Self {
            send_quanta,
            receive_quanta,
            receive_shift,
        })
    }
}

fn allocate(engine: &Engine, sizes: &Sizes) -> Result<QueuePairMemory, RdmaError> {
    let ring = |quanta: u32| engine.pool.allocate(quanta as usize * QUANTUM_BYTES, 4096);
    Ok(QueuePairMemory {
        send: ring(sizes.send_quanta)?,
        receive: ring(sizes.receive_quanta)?,
        shadow: engine.pool.allocate(SHADOW_BYTES, SHADOW_BYTES)?,
        context: engine
            .pool
            .allocate(QP_CONTEXT_BYTES, QP_CONTEXT_ALIGNMENT)?,
    })
}

/// Makes a queue pair in the device's idle state; with a number of a fixed purpose, if one is named.
pub(super) fn create(
    domain: &ProtectionDomain,
    config: &QueuePairConfig,
    kind: QueuePairType,
    fixed: Option<u32>,
) -> Result<Inner, RdmaError> {
    let engine = domain.engine();
    config.check()?;
    let ours = |of: &Arc<Engine>| Arc::ptr_eq(of, engine);
    if !ours(config.send.engine()) || !ours(config.receive.engine()) {
        return Err(RdmaError::ForeignQueue);
    }
    let wanted = Wanted::of(config, engine.facts.path_mtu, &engine.facts.addresses)?;
    let sizes = Sizes::of(config)?;
    let share = domain.take_share(Kind::QueuePairs, 1)?;
    let memory = allocate(engine, &sizes)?;
    let mut state = engine.open_state()?;
    state.names.generation = state.names.generation.wrapping_add(1);
    let generation = state.names.generation;
    let queue_set_handle = state.made.queue_set_handle.unwrap_or(0);
    let mut making = match fixed {
        Some(number) => Making::begin_fixed(&mut state, number)?,
        None => Making::begin(&mut state)?,
    };
    let number = making.number();
    let start_psn = making.state().random_24_bits();
    let attributes = Attributes {
        kind,
        queue_key: 0,
        protection_domain: domain.number(),
        completion_context: CompletionContext::new(number, generation),
        send_address: memory.send.iova().0,
        receive_address: memory.receive.iova().0,
        send_size_code: queue_size_code(sizes.send_quanta).unwrap_or(0),
        receive_size_code: queue_size_code(sizes.receive_quanta).unwrap_or(0),
        receive_element_code: rq_wqe_size_code((QUANTUM_BYTES as u32) << sizes.receive_shift)
            .unwrap_or(0),
        send_queue_number: config.send.number(),
        receive_queue_number: config.receive.number(),
        local_address: wanted.local_address,
        mac: engine.facts.mac,
        path_mtu: wanted.path_mtu,
        vlan_tag: config.vlan_tag,
        start_psn,
        retries: config.retries,
        receiver_not_ready_retries: config.receiver_not_ready_retries,
        retransmission_timeout: config.retransmission_timeout,
        outbound_reads: config.outbound_reads,
        inbound_reads: config.inbound_reads,
        hop_limit: config.hop_limit,
        traffic_class: config.traffic_class,
        flow_label: config.flow_label,
        queue_set_handle,
    };
    let doorbell = engine.send_doorbell.clone();
    let (send, receive, condition) = make(making, config, &sizes, doorbell, memory, &attributes)?;
    Ok(Inner {
        send,
        receive_capacity: receive.capacity(),
        receive: Some(receive),
        condition,
        number,
        attributes,
        peer: None,
        path: None,
        is_destroyed: false,
        domain: domain.clone(),
        _share: share,
    })
}

type Made = (SendQueue, ReceiveQueue, Arc<Condition>);

/// Has the device make a queue pair that has a number.
fn make(
    mut making: Making<'_, QueuePairRecord>,
    config: &QueuePairConfig,
    sizes: &Sizes,
    doorbell: Doorbell,
    memory: QueuePairMemory,
    attributes: &Attributes,
) -> Result<Made, RdmaError> {
    let number = making.number();
    let shared = Arc::new(QueuePairState::new(
        attributes.completion_context,
        number,
        sizes.send_quanta,
        sizes.receive_quanta >> sizes.receive_shift,
        sizes.receive_shift,
    ));
    let send = SendQueue::new(memory.send.words(), doorbell, Arc::clone(&shared))?;
    let receive = ReceiveQueue::new(memory.receive.words(), Arc::clone(&shared))?;
    let targets = [config.send.reports(), config.receive.reports()];
    making.state().use_completion_queues(targets)?;
    making.hold(Held::Reports(targets.map(|target| target.number)));
    let record = QueuePairRecord {
        kind: attributes.kind,
        memory,
        context: attributes.completion_context,
        condition: Arc::new(Condition::default()),
        send: config.send.reports().clone(),
        receive: config.receive.reports().clone(),
        peer: None,
        was_connected: false,
        sending: SendState::Active,
        is_fed: false,
        is_detached: false,
        faults: FaultCounters::default(),
    };
    let condition = Arc::clone(&record.condition);
    write_context(&record.memory, attributes, number, None);
    if let Err((error, is_clean)) = record.attach(&shared) {
        if !is_clean {
            making.keep_number();
        }
        return Err(error);
    }
    let command = CreateQueuePair {
        host_context_address: record.memory.context.iova().0,
        shadow_address: record.memory.shadow.iova().0,
        qp_number: number,
        cq_numbers_valid: true,
        qp_type: record.kind,
        mac_valid: true,
        next_state: DeviceState::Idle,
        ..CreateQueuePair::ZERO
    };
    making.finish(command, record)?;
    Ok((send, receive, condition))
}

impl Object for QueuePairRecord {
    const NAME: &'static str = "queue pair";
    const CONTEXT: ObjectType = ObjectType::QueuePair;
    type Destroy = DestroyQueuePair;

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.queue_pairs
    }

    fn destruction(&self, number: u32) -> DestroyQueuePair {
        DestroyQueuePair {
            host_context_address: self.memory.context.iova().0,
            shadow_address: self.memory.shadow.iova().0,
            qp_number: number,
            qp_type: self.kind,
            remove_hash_entry: true,
            ..DestroyQueuePair::ZERO
        }
    }

    /// A number whose slot is still taken in a completion queue is not used again, nor one that a
    /// shared receive queue knows.
    fn retire(&mut self) -> bool {
        self.condition.advance(QueuePairCondition::Destroyed);
        self.is_detached = self.detach();
        self.is_detached && !self.is_fed
    }

    fn into_memory(self) -> Vec<DmaBuffer> {
        self.memory.into_buffers().into()
    }
}

impl EngineState {
    /// Takes queue pair `number` to the state in which it sends and receives.
    pub(super) fn connect(
        &mut self,
        number: u32,
        attributes: &Attributes,
        peer: &Endpoint,
    ) -> Result<(), RdmaError> {
        let path = self.let_receive(number, attributes, peer)?;
        self.let_send(number, attributes, &path)
    }

    /// Takes queue pair `number` to the state in which it receives and answers.
    pub(super) fn let_receive(
        &mut self,
        number: u32,
        attributes: &Attributes,
        peer: &Endpoint,
    ) -> Result<Path, RdmaError> {
        self.objects.queue_pairs.must(number)?;
        let arp_index = self.take_address(peer.mac)?;
        let held = Held::Address(peer.mac);
        self.objects.queue_pairs.hold(number, held);
        let record = self.objects.queue_pairs.must_mut(number)?;
        record.peer = Some(peer.mac);
        let path = Path {
            peer: *peer,
            arp_index,
        };
        write_context(&record.memory, attributes, number, Some(&path));
        let ready_to_receive = ModifyQueuePair {
            arp_index_valid: true,
            cq_numbers_valid: true,
            next_state: DeviceState::ReadyToReceive,
            ..modify(record, number)
        };
        record.was_connected = true;
        self.control.execute(ready_to_receive)?;
        Ok(path)
    }

    /// Takes queue pair `number` from there to the state in which it sends too.
    pub(super) fn let_send(
        &mut self,
        number: u32,
        attributes: &Attributes,
        path: &Path,
    ) -> Result<(), RdmaError> {
        let record = self.objects.queue_pairs.must(number)?;
        write_context(&record.memory, attributes, number, Some(path));
        let ready_to_send = ModifyQueuePair {
            arp_index_valid: true,
            cq_numbers_valid: true,
            ord_valid: true,
            next_state: DeviceState::ReadyToSend,
            ..modify(record, number)
        };
        self.control.execute(ready_to_send)?;
        Ok(())
    }

    /// Takes a datagram queue pair to the state in which it sends and receives.
    pub(super) fn make_ready(
        &mut self,
        number: u32,
        attributes: &Attributes,
    ) -> Result<(), RdmaError> {
        let record = self.objects.queue_pairs.must_mut(number)?;
        write_context(&record.memory, attributes, number, None);
        let ready_to_receive = ModifyQueuePair {
            cq_numbers_valid: true,
            next_state: DeviceState::ReadyToReceive,
            ..modify(record, number)
        };
        let ready_to_send = ModifyQueuePair {
            next_state: DeviceState::ReadyToSend,
            ..ready_to_receive
        };
        record.was_connected = true;
        self.control.execute(ready_to_receive)?;
        self.control.execute(ready_to_send)?;
        Ok(())
    }

    /// Takes a queue pair to the error state and has its queues flushed with these codes.
    ///
    /// Outstanding requests complete with errors, from the completion queues' next polls on.
    /// Nothing to do for one that has failed before, or is gone.
    pub(crate) fn fail_queue_pair(
        &mut self,
        number: u32,
        send_code: FlushCode,
        receive_code: FlushCode,
        error_receive_index: Option<u16>,
    ) -> Result<Option<FlushResult>, RdmaError> {
        let Some(record) = self.objects.queue_pairs.get(number) else {
            return Ok(None);
        };
        if record.condition.get() != QueuePairCondition::Usable {
            return Ok(None);
        }
        record.condition.advance(QueuePairCondition::Failed);
        if let Some(index) = error_receive_index {
            note_error_index(&record.memory, index);
        }
        let to_error = ModifyQueuePair {
            next_state: DeviceState::Error,
            ..modify(record, number)
        };
        let flush = FlushWorkQueues {
            rq_minor_code: receive_code.code(),
            rq_major_code: FLUSH_MAJOR_CODE,
            sq_minor_code: send_code.code(),
            sq_major_code: FLUSH_MAJOR_CODE,
            qp_number: number,
            use_given_codes: true,
            flush_sq: true,
            flush_rq: true,
            ..FlushWorkQueues::ZERO
        };
        let context = record.context;
        let [send, receive] = [&record.send, &record.receive].map(|reports| reports.handle.clone());
        let control = &mut self.control;
        let flushed =
            tolerate(control.execute(to_error)).and_then(|()| match control.execute(flush) {
                Ok(completed) => Ok(FlushResult::from_minor_code(completed.minor_code)),
                Err(ControlError::Refused { failure, .. }) if failure.is_harmless() => {
                    Ok(FlushResult::Nothing)
                }
                Err(error) => Err(error),
            });
        // What is posted from now on is completed by the completion queues themselves, and so is
        // everything if the device does not answer: users must not wait for ever. A completion gives
        // memory back: of a device that answers nothing they come once it is silent.
        let stuck = self.control.is_stuck();
        for (handle, side) in [(send, QueueSide::Send), (receive, QueueSide::Receive)] {
            match stuck {
                true => self.flush_when_silent(&handle, context, side),
                false => self.flush_side(&handle, context, side),
            }
        }
        Ok(Some(flushed?))
    }

    /// Destroys a queue pair. Its memory goes back once the device has confirmed; a shutdown keeps
    /// it, because an owner may still write to it.
    pub(crate) fn destroy_queue_pair(&mut self, number: u32, by: By) -> Result<(), RdmaError> {
        let in_service = self.service.end.cause.is_none();
        if let Some(record) = self.objects.queue_pairs.get(number)
            && in_service
        {
            let usable = record.condition.get() == QueuePairCondition::Usable;
            record.condition.advance(QueuePairCondition::Destroyed);
            let to_error = (record.was_connected && usable).then(|| ModifyQueuePair {
                next_state: DeviceState::Error,
                ..modify(record, number)
            });
            let mut result = self.leave_all_groups(number);
            if let Some(to_error) = to_error {
                let failed = tolerate(self.control.execute(to_error));
                result = result.and(failed.map_err(RdmaError::from));
            }
            if let Err(error) = result {
                self.set_apart::<QueuePairRecord>(number, &error);
                return Err(error);
            }
        }
        match self.destroy::<QueuePairRecord>(number, by) {
            Destroyed::Gone(record) if in_service => self.free_rings(number, record, by),
            Destroyed::Gone(object) | Destroyed::DeviceFailed { object, .. } => {
                let memory = object.map(QueuePairRecord::into_memory).unwrap_or_default();
                match self.withheld.fed.get_mut(&number) {
                    Some(fed) => fed.rings.extend(memory),
                    None => self.free_after_reset(memory),
                }
                Ok(())
            }
            Destroyed::Refused(error) => {
                self.set_apart::<QueuePairRecord>(number, &error);
                Err(error)
            }
            Destroyed::Unconfirmed(error) => Err(error),
        }
    }

    /// The device uses the rings no more; a shared receive queue or an owner may.
    fn free_rings(
        &mut self,
        number: u32,
        record: Option<QueuePairRecord>,
        by: By,
    ) -> Result<(), RdmaError> {
        let Some(record) = record else {
            return Ok(());
        };
        let is_detached = record.is_detached;
        let memory = record.into_memory();
        if by == By::Shutdown {
            self.withheld.kept.extend(memory);
            return Ok(());
        }
        let Some(fed) = self.withheld.fed.get_mut(&number) else {
            drop(memory);
            return Ok(());
        };
        fed.rings.extend(memory);
        fed.destroyed = is_detached;
        Err(RdmaError::Fed { number })
    }
}

/// The fields that every modification carries.
pub(super) fn modify(record: &QueuePairRecord, number: u32) -> ModifyQueuePair {
    ModifyQueuePair {
        host_context_address: record.memory.context.iova().0,
        shadow_address: record.memory.shadow.iova().0,
        qp_number: number,
        qp_type: record.kind,
        ..ModifyQueuePair::ZERO
    }
}

/// Success also for the failures after which drivers go on.
fn tolerate<T>(result: Result<T, ControlError>) -> Result<(), ControlError> {
    match result {
        Ok(_) => Ok(()),
        Err(ControlError::Refused { failure, .. }) if failure.is_harmless() => Ok(()),
        Err(error) => Err(error),
    }
}

fn write_context(
    memory: &QueuePairMemory,
    attributes: &Attributes,
    number: u32,
    path: Option<&Path>,
) {
    let words = memory.context.words();
    let context = attributes.context(number, path).encode();
    for (index, word) in context.iter().enumerate() {
        words.store(index, *word);
    }
}

/// Puts the index of the receive that failed into the context.
fn note_error_index(memory: &QueuePairMemory, index: u16) {
    use ringside_spec::rdma::qp_context::RoceQueuePairContext;
    let words = memory.context.words();
    let mut context = [0; QP_CONTEXT_BYTES / 8];
    for (at, word) in context.iter_mut().enumerate() {
        *word = words.load(at);
    }
    let noted = RoceQueuePairContext {
        error_rq_index: index & 0x3FFF,
        error_rq_index_valid: true,
        ..RoceQueuePairContext::decode(&context)
    };
    for (at, word) in noted.encode().iter().enumerate() {
        words.store(at, *word);
    }
}

impl QueuePairRecord {
    /// Tells its completion queues of it. The error comes with whether none of them knows of it.
    fn attach(&self, shared: &Arc<QueuePairState>) -> Result<(), (RdmaError, bool)> {
        let to_send = match self.send.number == self.receive.number {
            true => Sides::Both,
            false => Sides::Send,
        };
        let attached = self.send.handle.attach(Arc::clone(shared), to_send);
        attached.map_err(|error| (error.into(), true))?;
        if to_send == Sides::Both {
            return Ok(());
        }
        let attached = self
            .receive
            .handle
            .attach(Arc::clone(shared), Sides::Receive);
        attached.map_err(|error| {
            let is_clean = self.send.handle.detach(self.context).is_ok();
            (error.into(), is_clean)
        })
    }

    /// False if a completion queue could not be told.
    fn detach(&self) -> bool {
        let sends = self.send.handle.detach(self.context).is_ok();
        let both = self.send.number == self.receive.number;
        let receives = both || self.receive.handle.detach(self.context).is_ok();
        sends && receives
    }
}
