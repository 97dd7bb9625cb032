//! Making queue pairs.

use super::QueuePairConfig;
use super::context::{Attributes, Wanted};
use super::inner::Inner;
use super::life::write_context;
use crate::rdma::engine::Engine;
use crate::rdma::faults::FaultCounters;
use crate::rdma::lifecycle::Making;
use crate::rdma::objects::Held;
use crate::rdma::protection_domain::{Kind, Share};
use crate::rdma::records::{Condition, QueuePairMemory, QueuePairRecord, SendState};
use crate::rdma::session::Session;
use crate::rdma::{ProtectionDomain, RdmaError};
use ringside_bus::Doorbell;
use ringside_bus::process::tell_in_child_of;
use ringside_qp::{CompletionContext, QueuePairState, ReceiveQueue, SendQueue};
use ringside_spec::rdma::ae_codes::FlushCode;
use ringside_spec::rdma::commands::{
    CreateQueuePair, QueuePairState as DeviceState, QueuePairType,
};
use ringside_spec::rdma::limits::{
    QP_CONTEXT_ALIGNMENT, QP_CONTEXT_BYTES, QUANTUM_BYTES, SHADOW_BYTES,
};
use ringside_spec::rdma::qp_context::{queue_size_code, rq_wqe_size_code};
use ringside_spec::verbs::sizes::{
    element_shift, most_receives, most_sends, receive_ring_quanta, send_ring_quanta,
};
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
        let too_many = |what, given: u32, most: u32| RdmaError::OutOfRange {
            what,
            given: given.into(),
            least: 1,
            most: most.into(),
        };
        let send_quanta = send_ring_quanta(config.send_requests, send_shift).ok_or_else(|| {
            too_many(
                "the number of sends of this size",
                config.send_requests,
                most_sends(send_shift),
            )
        })?;
        let receive_quanta = receive_ring_quanta(config.receive_requests, receive_shift)
            .ok_or_else(|| {
                let what = "the number of receives of this size";
                too_many(what, config.receive_requests, most_receives(receive_shift))
            })?;
        Ok(Self {
            send_quanta,
            receive_quanta,
            receive_shift,
        })
    }
}

fn allocate(engine: &Engine, sizes: &Sizes) -> Result<QueuePairMemory, RdmaError> {
    let ring = |quanta: u32| engine.allocate(quanta as usize * QUANTUM_BYTES, 4096);
    Ok(QueuePairMemory {
        send: ring(sizes.send_quanta)?,
        receive: ring(sizes.receive_quanta)?,
        shadow: engine.allocate(SHADOW_BYTES, SHADOW_BYTES)?,
        context: engine.allocate(QP_CONTEXT_BYTES, QP_CONTEXT_ALIGNMENT)?,
    })
}

/// The number that a new queue pair gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// A free one.
    Any,
    /// One of a fixed purpose.
    Fixed(u32),
    /// The number that its predecessor has just freed.
    Again(u32),
}

/// The resources of a queue pair besides the device.
pub(super) struct Prepared {
    wanted: Wanted,
    sizes: Sizes,
    memory: QueuePairMemory,
}

/// Checks the requested sizes, and allocates the memory.
pub(super) fn prepare(
    engine: &Arc<Engine>,
    config: &QueuePairConfig,
) -> Result<Prepared, RdmaError> {
    config.check()?;
    for of in [config.send.engine(), config.receive.engine()] {
        if !Arc::ptr_eq(of, engine) {
            return Err(engine.end_or(of.end_or(RdmaError::ForeignQueue)));
        }
    }
    let wanted = Wanted::of(config, engine.facts.path_mtu, &engine.gids())?;
    let sizes = Sizes::of(config)?;
    let memory = allocate(engine, &sizes)?;
    Ok(Prepared {
        wanted,
        sizes,
        memory,
    })
}

/// Makes a queue pair in the device's idle state.
pub(super) fn create(
    domain: &ProtectionDomain,
    config: QueuePairConfig,
    kind: QueuePairType,
    number: Number,
) -> Result<Inner, RdmaError> {
    let engine = domain.engine();
    let share = domain.take_share(Kind::QueuePairs, 1)?;
    let prepared = prepare(engine, &config)?;
    let mut state = engine.open_state()?;
    let plan = Plan {
        domain,
        share,
        config: Box::new(config),
        kind,
        number,
        prepared,
    };
    plan.build(&mut state)
}

/// All that a new queue pair is made of.
pub(super) struct Plan<'a> {
    pub(super) domain: &'a ProtectionDomain,
    pub(super) share: Share,
    pub(super) config: Box<QueuePairConfig>,
    pub(super) kind: QueuePairType,
    pub(super) number: Number,
    pub(super) prepared: Prepared,
}

impl Plan<'_> {
    /// Makes the queue pair in the device's idle state, under the engine's lock.
    pub(super) fn build(self, state: &mut Session<'_>) -> Result<Inner, RdmaError> {
        state.names.generation = state.names.generation.wrapping_add(1);
        let generation = state.names.generation;
        let queue_set_handle = state.made.queue_set_handle.unwrap_or(0);
        let mut making = match self.number {
            Number::Any => Making::begin(state)?,
            Number::Fixed(number) => Making::begin_fixed(state, number)?,
            Number::Again(number) => Making::begin_again(state, number)?,
        };
        let number = making.number();
        let context = CompletionContext::new(number, generation);
        let start_psn = making.state().random_24_bits();
        let attributes = self.attributes(context, start_psn, queue_set_handle);
        let Self { domain, config, .. } = self;
        let Prepared { sizes, memory, .. } = self.prepared;
        let doorbell = domain.engine().send_doorbell.clone();
        let (send, receive, condition) =
            make(making, &config, &sizes, doorbell, memory, &attributes)?;
        // One that failed while the device made this queue pair has failed without it.
        let targets = [config.send.reports(), config.receive.reports()];
        if state.check_completion_queues(targets).is_err() {
            let general = FlushCode::General;
            // Its owner gets it in any case: it destroys it, and sees that it has failed.
            if let Err(error) = state.fail_queue_pair(number, general, general, None) {
                tracing::warn!(%error, number, "a queue pair of a failed completion queue");
            }
        }
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
            share: Some(self.share),
            config,
        })
    }

    /// The attributes of the device's context.
    fn attributes(
        &self,
        completion_context: CompletionContext,
        start_psn: u32,
        queue_set_handle: u16,
    ) -> Attributes {
        let config = &self.config;
        let Prepared {
            wanted,
            sizes,
            memory,
        } = &self.prepared;
        Attributes {
            kind: self.kind,
            queue_key: 0,
            protection_domain: self.domain.number(),
            completion_context,
            send_address: memory.send.iova().0,
            receive_address: memory.receive.iova().0,
            send_size_code: queue_size_code(sizes.send_quanta).unwrap_or(0),
            receive_size_code: queue_size_code(sizes.receive_quanta).unwrap_or(0),
            receive_element_code: rq_wqe_size_code((QUANTUM_BYTES as u32) << sizes.receive_shift)
                .unwrap_or(0),
            send_queue_number: config.send.number(),
            receive_queue_number: config.receive.number(),
            local_address: wanted.local_address,
            mac: self.domain.engine().facts.mac,
            path_mtu: wanted.path_mtu,
            vlan_tag: wanted.vlan_tag,
            start_psn,
            retries: config.retries,
            receiver_not_ready_retries: config.receiver_not_ready_retries,
            retransmission_timeout: config.retransmission_timeout,
            outbound_reads: config.outbound_reads,
            inbound_reads: config.inbound_reads,
            access: config.access,
            hop_limit: config.hop_limit,
            traffic_class: config.traffic_class,
            flow_label: config.flow_label,
            queue_set_handle,
        }
    }
}

type Made = (SendQueue, ReceiveQueue, Arc<Condition>);

/// Creates a queue pair with a number in the device.
fn make(
    mut making: Making<'_, '_, QueuePairRecord>,
    config: &QueuePairConfig,
    sizes: &Sizes,
    doorbell: Doorbell,
    memory: QueuePairMemory,
    attributes: &Attributes,
) -> Result<Made, RdmaError> {
    let number = making.number();
    let state = QueuePairState::new(
        attributes.completion_context,
        number,
        sizes.send_quanta,
        sizes.receive_quanta >> sizes.receive_shift,
        sizes.receive_shift,
    );
    let shared =
        Arc::new(state.of_datagrams(attributes.kind == QueuePairType::RoceUnreliableDatagram));
    let send = SendQueue::new(memory.send.words(), doorbell, Arc::clone(&shared))?;
    let receive = ReceiveQueue::new(memory.receive.words(), Arc::clone(&shared))?;
    let targets = [config.send.reports(), config.receive.reports()];
    making.state().use_completion_queues(targets)?;
    making.hold(Held::Reports(targets.map(|target| target.number)));
    let record = QueuePairRecord {
        kind: attributes.kind,
        memory,
        context: attributes.completion_context,
        state: Arc::downgrade(&shared),
        condition: Arc::new(Condition::default()),
        send: config.send.reports().clone(),
        receive: config.receive.reports().clone(),
        peer: None,
        was_connected: false,
        sending: SendState::NotYet,
        is_fed: false,
        is_detached: false,
        is_destroyed: false,
        ends_flushed: false,
        was_flushed: false,
        faults: FaultCounters::default(),
    };
    let condition = Arc::clone(&record.condition);
    tell_in_child_of(&condition);
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
