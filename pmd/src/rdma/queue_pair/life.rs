//! Making, connecting, failing and destroying queue pairs.

use super::context::{Attributes, Path, Wanted};
use super::{Inner, QueuePairConfig};
use crate::control::ControlError;
use crate::rdma::connection::Endpoint;
use crate::rdma::engine::{Engine, EngineState};
use crate::rdma::faults::FaultCounters;
use crate::rdma::protection_domain::Kind;
use crate::rdma::records::{Condition, QueuePairCondition, QueuePairMemory, QueuePairRecord};
use crate::rdma::{ProtectionDomain, RdmaError};
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

/// Makes a queue pair in the device's idle state.
pub(super) fn create(
    domain: &ProtectionDomain,
    config: &QueuePairConfig,
    kind: QueuePairType,
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
    let mut guard = engine.open_state()?;
    let state = &mut *guard;
    let numbers = state.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
    let number = numbers.queue_pairs.take(&mut state.random)?;
    state.generation = state.generation.wrapping_add(1);
    let context = CompletionContext::new(number, state.generation);
    let start_psn = state.random_24_bits();
    let facts = Attributes {
        kind,
        queue_key: 0,
        protection_domain: domain.number(),
        completion_context: context,
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
        outbound_reads: config.outbound_reads,
        inbound_reads: config.inbound_reads,
        hop_limit: config.hop_limit,
        traffic_class: config.traffic_class,
        flow_label: config.flow_label,
        queue_set_handle: state.queue_set_handle.unwrap_or(0),
    };
    let made = Making {
        engine,
        config,
        sizes: &sizes,
        number,
    };
    match made.finish(state, memory, facts) {
        Ok((attributes, send, receive, condition)) => Ok(Inner {
            send,
            receive_capacity: receive.capacity(),
            receive: Some(receive),
            condition,
            number,
            attributes,
            peer: None,
            domain: domain.clone(),
            _share: share,
        }),
        Err((error, number_is_free)) => {
            if number_is_free && let Some(numbers) = &mut state.numbers {
                numbers.queue_pairs.give(number);
            }
            Err(error)
        }
    }
}

/// A queue pair that has a number and nothing else yet.
struct Making<'a> {
    engine: &'a Engine,
    config: &'a QueuePairConfig,
    sizes: &'a Sizes,
    number: u32,
}

type Made = (Attributes, SendQueue, ReceiveQueue, Arc<Condition>);

impl Making<'_> {
    /// The queue pair, or the error and whether its number is free again.
    fn finish(
        &self,
        state: &mut EngineState,
        memory: QueuePairMemory,
        attributes: Attributes,
    ) -> Result<Made, (RdmaError, bool)> {
        let (number, config) = (self.number, self.config);
        let shared = Arc::new(QueuePairState::new(
            attributes.completion_context,
            number,
            self.sizes.send_quanta,
            self.sizes.receive_quanta >> self.sizes.receive_shift,
            self.sizes.receive_shift,
        ));
        let free = |error: RdmaError| (error, true);
        let doorbell = self.engine.send_doorbell.clone();
        let send = SendQueue::new(memory.send.words(), doorbell, Arc::clone(&shared))
            .map_err(|error| free(error.into()))?;
        let receive = ReceiveQueue::new(memory.receive.words(), Arc::clone(&shared))
            .map_err(|error| free(error.into()))?;
        state.back(ObjectType::QueuePair, number).map_err(free)?;
        for target in [&config.send, &config.receive] {
            state.use_completion_queue(target.number()).map_err(free)?;
        }
        let record = QueuePairRecord {
            kind: attributes.kind,
            memory,
            context: attributes.completion_context,
            condition: Arc::new(Condition::default()),
            send: config.send.reports().clone(),
            receive: config.receive.reports().clone(),
            peer: None,
            was_connected: false,
            drained: false,
            faults: FaultCounters::default(),
        };
        let condition = Arc::clone(&record.condition);
        match state.create_queue_pair(number, &record, &attributes, &shared) {
            Ok(()) => {
                state.queue_pairs.insert(number, record);
                Ok((attributes, send, receive, condition))
            }
            Err(error) => {
                let nothing_there = match &error {
                    RdmaError::Control(error) => error.is_refusal(),
                    _ => true,
                };
                if !nothing_there {
                    let buffers = record.memory.into_buffers().into();
                    state.quarantine("queue pair", number, buffers, &error);
                    return Err((error, false));
                }
                for target in [&config.send, &config.receive] {
                    let released = state.release_completion_queue(target.number());
                    released.map_err(|error| (error, nothing_there))?;
                }
                Err((error, nothing_there))
            }
        }
    }
}

impl EngineState {
    fn create_queue_pair(
        &mut self,
        number: u32,
        record: &QueuePairRecord,
        attributes: &Attributes,
        shared: &Arc<QueuePairState>,
    ) -> Result<(), RdmaError> {
        write_context(&record.memory, attributes, number, None);
        attach(record, shared)?;
        let created = self.control.execute(CreateQueuePair {
            host_context_address: record.memory.context.iova().0,
            shadow_address: record.memory.shadow.iova().0,
            qp_number: number,
            cq_numbers_valid: true,
            qp_type: record.kind,
            mac_valid: true,
            next_state: DeviceState::Idle,
            ..CreateQueuePair::ZERO
        });
        if created.is_err() {
            detach(record);
        }
        created?;
        Ok(())
    }

    /// Takes queue pair `number` to the state in which it sends and receives.
    pub(super) fn connect(
        &mut self,
        number: u32,
        attributes: &Attributes,
        peer: &Endpoint,
    ) -> Result<(), RdmaError> {
        let what = "queue pair";
        if !self.queue_pairs.contains_key(&number) {
            return Err(RdmaError::Gone { what, number });
        }
        let arp_index = self.take_address(peer.mac)?;
        let Some(record) = self.queue_pairs.get_mut(&number) else {
            return Err(RdmaError::Gone { what, number });
        };
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
        let ready_to_send = ModifyQueuePair {
            ord_valid: true,
            next_state: DeviceState::ReadyToSend,
            ..ready_to_receive
        };
        record.was_connected = true;
        self.control.execute(ready_to_receive)?;
        self.control.execute(ready_to_send)?;
        Ok(())
    }

    /// Takes a datagram queue pair to the state in which it sends and receives.
    pub(super) fn make_ready(
        &mut self,
        number: u32,
        attributes: &Attributes,
    ) -> Result<(), RdmaError> {
        let what = "queue pair";
        let Some(record) = self.queue_pairs.get_mut(&number) else {
            return Err(RdmaError::Gone { what, number });
        };
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
    /// What was outstanding completes with errors, from the completion queues' next polls on.
    /// Nothing to do for one that has failed before, or is gone.
    pub(crate) fn fail_queue_pair(
        &mut self,
        number: u32,
        send_code: FlushCode,
        receive_code: FlushCode,
        error_receive_index: Option<u16>,
    ) -> Result<Option<FlushResult>, RdmaError> {
        let Some(record) = self.queue_pairs.get(&number) else {
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
        let context = record.context;
        let [send, receive] = [&record.send, &record.receive].map(|reports| reports.handle.clone());
        let stuck = self.control.is_stuck();
        for (handle, side) in [(send, QueueSide::Send), (receive, QueueSide::Receive)] {
            match stuck {
                true => self.flush_when_silent(&handle, context, side),
                false => self.flush_side(&handle, context, side),
            }
        }
        Ok(Some(flushed?))
    }

    /// The device failed and knows nothing of it, or will not once it was reset.
    fn let_go_of(&mut self, number: u32, record: QueuePairRecord) {
        detach(&record);
        for number in [record.send.number, record.receive.number] {
            // It asks nothing of a device that failed.
            let _ = self.release_completion_queue(number);
        }
        let buffers = record.memory.into_buffers();
        match self.fed.get_mut(&number) {
            Some(fed) => fed.rings.extend(buffers),
            None => self.free_after_reset(buffers),
        }
    }

    /// Destroys a queue pair. Its memory goes back once the device has confirmed; `keep` keeps it,
    /// because an owner may still write to it.
    pub(crate) fn destroy_queue_pair(
        &mut self,
        engine: &Engine,
        number: u32,
        keep: bool,
    ) -> Result<(), RdmaError> {
        let Some(record) = self.queue_pairs.remove(&number) else {
            return Ok(());
        };
        let usable = record.condition.get() == QueuePairCondition::Usable;
        record.condition.advance(QueuePairCondition::Destroyed);
        if self.end.cause.is_some() {
            self.let_go_of(number, record);
            return Ok(());
        }
        let mut result = self.leave_all_groups(engine, number);
        if record.was_connected && usable {
            let to_error = ModifyQueuePair {
                next_state: DeviceState::Error,
                ..modify(&record, number)
            };
            let failed = tolerate(self.control.execute(to_error));
            result = result.and(failed.map_err(RdmaError::from));
        }
        let destroyed = result.and_then(|()| {
            let destroyed = self.control.execute(DestroyQueuePair {
                host_context_address: record.memory.context.iova().0,
                shadow_address: record.memory.shadow.iova().0,
                qp_number: number,
                qp_type: record.kind,
                remove_hash_entry: true,
                ..DestroyQueuePair::ZERO
            });
            destroyed.map_err(RdmaError::from)
        });
        let detached = detach(&record);
        let (send, receive, peer) = (record.send.number, record.receive.number, record.peer);
        let buffers = record.memory.into_buffers();
        if let Err(error) = destroyed {
            self.quarantine("queue pair", number, buffers.into(), &error);
            return Err(error);
        }
        let fed = self.fed.get_mut(&number).filter(|_| !keep);
        let was_fed = fed.is_some();
        match fed {
            Some(fed) => {
                fed.rings.extend(buffers);
                fed.destroyed = detached;
            }
            None if keep => self.kept.extend(buffers),
            None => drop(buffers),
        }
        // A number whose slot is still taken in a completion queue is not used again, nor one that
        // a shared receive queue knows.
        if detached
            && !was_fed
            && let Some(numbers) = &mut self.numbers
        {
            numbers.queue_pairs.give(number);
        }
        self.release_completion_queue(send)?;
        self.release_completion_queue(receive)?;
        if let Some(mac) = peer {
            self.give_address(mac)?;
        }
        match was_fed {
            true => Err(RdmaError::Fed { number }),
            false => Ok(()),
        }
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

fn attach(record: &QueuePairRecord, shared: &Arc<QueuePairState>) -> Result<(), RdmaError> {
    let shared = || Arc::clone(shared);
    if record.send.number == record.receive.number {
        record.send.handle.attach(shared(), Sides::Both)?;
        return Ok(());
    }
    record.send.handle.attach(shared(), Sides::Send)?;
    if let Err(error) = record.receive.handle.attach(shared(), Sides::Receive) {
        let _ = record.send.handle.detach(record.context);
        return Err(error.into());
    }
    Ok(())
}

/// False if a completion queue could not be told.
fn detach(record: &QueuePairRecord) -> bool {
    let sends = record.send.handle.detach(record.context).is_ok();
    let both = record.send.number == record.receive.number;
    let receives = both || record.receive.handle.detach(record.context).is_ok();
    sends && receives
}
