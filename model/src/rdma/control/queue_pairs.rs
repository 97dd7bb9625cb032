//! Commands about queue pairs.

use super::{CommandFailure, DONE, Executed, NO_SUCH_OBJECT, Outcome, REFUSED, cache_failure};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::access::{aligned, reached};
use crate::rdma::objects::queue_pair::{CONTEXT_WORDS, ContextFault, QueuePair};
use crate::rdma::queues::ActiveQueuePair;
use ringside_bus::Iova;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{
    CreateQueuePair, DestroyQueuePair, FlushWorkQueues, ModifyQueuePair, QueuePairState,
    QueuePairType, ResumeQueuePair, SuspendQueuePair, UploadContext,
};
use ringside_spec::rdma::limits::SHADOW_BYTES;
use ringside_spec::rdma::qp_context::{RoceQueuePairContext, SOURCE_PORT_WITHOUT_PATH};

/// Handles of queue sets have 10 bits.
const QUEUE_SETS: u32 = 1024;

/// Codes of asynchronous events have 12 bits.
const EVENT_CODES: u16 = 1 << 12;

/// Alignment of a context in bytes.
/// Source: irdma `verbs.c`, `irdma_create_qp`.
const CONTEXT_ALIGNMENT: usize = 256;

/// The same for the driver's own queue pairs. Source: irdma `puda.c`, irdma_puda_qp_create.
const OWN_CONTEXT_ALIGNMENT: usize = 64;

impl RdmaEngine {
    /// Reads a queue pair's context from the host.
    fn read_context(
        context: &mut Context<'_>,
        address: u64,
        kind: QueuePairType,
    ) -> Result<RoceQueuePairContext, CommandFailure> {
        let roce = is_roce(kind);
        let alignment = match roce {
            true => CONTEXT_ALIGNMENT,
            false => OWN_CONTEXT_ALIGNMENT,
        };
        if !aligned(context, "queue pair context", address, alignment) {
            return Err(REFUSED);
        }
        let words = context.memory.read_words(Iova(address));
        let words: [u64; CONTEXT_WORDS] =
            reached(context, "queue pair context", words).ok_or(REFUSED)?;
        let reserved = RoceQueuePairContext::reserved_bits(&words);
        if roce && reserved != [0; CONTEXT_WORDS] {
            context
                .ledger
                .breach("reserved bits are set in a queue pair context", || {
                    format!("{reserved:x?}")
                });
        }
        let decoded = RoceQueuePairContext::decode(&words);
        if kind == QueuePairType::RoceUnreliableDatagram && !is_without_path(&decoded) {
            context
                .ledger
                .breach("the context of a datagram queue pair names a path", || {
                    format!("{decoded:?}")
                });
        }
        Ok(decoded)
    }

    fn context_refused(
        context: &mut Context<'_>,
        number: u32,
        fault: ContextFault,
    ) -> CommandFailure {
        context
            .ledger
            .breach("a queue pair context makes no sense", || {
                format!("queue pair {number}: {fault}")
            });
        REFUSED
    }

    fn no_queue_pair(context: &mut Context<'_>, number: u32) -> CommandFailure {
        context
            .ledger
            .breach("a command for an object that does not exist", || {
                format!("queue pair {number}")
            });
        NO_SUCH_OBJECT
    }

    pub(super) fn create_queue_pair(
        &mut self,
        command: &CreateQueuePair,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        self.check_queue_pair_number(number, context)?;
        if command.qp_type == QueuePairType::Iwarp {
            let kind = "queue pair of iWARP, which the model does not have";
            let ledger = &mut context.ledger;
            ledger.remark(kind, || format!("queue pair {number}"));
            return Err(REFUSED);
        }
        if matches!(command.qp_type, QueuePairType::Unknown(_)) {
            return Self::refuse(
                context,
                "a queue pair of a kind that is not there",
                REFUSED,
                || format!("{:?}", command.qp_type),
            );
        }
        let settings = Self::read_context(context, command.host_context_address, command.qp_type)?;
        aligned(
            context,
            "queue pair shadow area",
            command.shadow_address,
            SHADOW_BYTES,
        );
        let mut qp = QueuePair::new(
            number,
            command.qp_type,
            settings,
            command.queues_virtual,
            command.shadow_address,
        )
        .map_err(|fault| Self::context_refused(context, number, fault))?;
        if is_roce(qp.kind) && !(command.mac_valid && command.cq_numbers_valid) {
            context
                .ledger
                .breach("CREATE_QP lacks a valid flag", || format!("{command:?}"));
        }
        self.check_completion_queues(&qp, context)?;
        qp.state = match command.next_state {
            QueuePairState::Invalid => QueuePairState::Idle,
            // The driver's own datagram queue pairs start at once.
            state @ (QueuePairState::Idle | QueuePairState::ReadyToSend) => state,
            other => {
                return Self::refuse(context, "a state that cannot be taken", REFUSED, || {
                    format!("queue pair {number} is created in {other:?}")
                });
            }
        };
        let hmc = &mut self.objects.hmc;
        let kept = qp.keep_context(hmc, context.memory);
        qp.forget_memory();
        let found = kept.and_then(|()| qp.resolve(hmc, context.memory));
        if let Err(fault) = found {
            return Err(cache_failure(context, "queue pair", fault));
        }
        self.use_completion_queues(qp.send_cq, qp.receive_cq, true);
        if let Some(slot) = self.queue_pairs.get_mut(number as usize) {
            *slot = Some(Box::new(qp));
            self.objects.former_queue_pairs.remove(&number);
        }
        self.schedule_new(number);
        DONE
    }

    /// A number under which a queue pair can be created now.
    fn check_queue_pair_number(&self, number: u32, context: &mut Context<'_>) -> Executed {
        if !self.objects.hmc.static_pages_allocated {
            return Self::refuse(
                context,
                "an object is created before its memory is there",
                CommandFailure::InvalidState,
                || format!("queue pair {number} before SHMC_PAGES_ALLOCATED"),
            );
        }
        match self.queue_pairs.get(number as usize) {
            Some(None) => DONE,
            Some(Some(_)) => Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("queue pair {number}"),
            ),
            None => Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("queue pair {number}"),
            ),
        }
    }

    fn check_completion_queues(&mut self, qp: &QueuePair, context: &mut Context<'_>) -> Executed {
        for number in [qp.send_cq, qp.receive_cq] {
            if number == 0 || self.objects.completion_queue(number).is_none() {
                return Self::refuse(
                    context,
                    "a queue pair without completion queue",
                    NO_SUCH_OBJECT,
                    || format!("queue pair {}: completion queue {number}", qp.number),
                );
            }
        }
        DONE
    }

    fn use_completion_queues(&mut self, send: u32, receive: u32, more: bool) {
        for number in [send, receive] {
            if let Some(queue) = self.objects.completion_queue(number) {
                queue.users = if more {
                    queue.users + 1
                } else {
                    queue.users.saturating_sub(1)
                };
            }
        }
    }

    pub(super) fn modify_queue_pair(
        &mut self,
        command: &ModifyQueuePair,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        if command.next_state == QueuePairState::Error {
            self.send_before_stop(number, context);
        }
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return Err(Self::no_queue_pair(context, number));
        };
        let next = match command.next_state {
            QueuePairState::Invalid => qp.state,
            state => state,
        };
        if !allowed(qp.state, next) {
            let now = qp.state;
            return Self::refuse(
                context,
                "a state that cannot be taken",
                CommandFailure::InvalidState,
                || format!("queue pair {number}: {now:?} to {next:?}"),
            );
        }
        if (command.shadow_address, command.qp_type) != (qp.shadow_address, qp.kind) {
            context
                .ledger
                .breach("MODIFY_QP does not fit what was created", || {
                    format!("{command:?}")
                });
        }
        if !carries_what_the_state_needs(command) {
            context
                .ledger
                .breach("MODIFY_QP lacks a valid flag of its state", || {
                    format!("{command:?}")
                });
        }
        let settings = Self::read_context(context, command.host_context_address, qp.kind)?;
        let starts =
            (qp.state, next) == (QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend);
        let queues = (settings.tx_cq_number, settings.rx_cq_number);
        if queues != (qp.send_cq, qp.receive_cq) {
            context
                .ledger
                .breach("MODIFY_QP names other completion queues", || {
                    format!("queue pair {number}: {queues:?}")
                });
        }
        let taken = take_context(qp, &settings, next);
        taken.map_err(|fault| Self::context_refused(context, number, fault))?;
        let kept = qp.keep_context(&mut self.objects.hmc, context.memory);
        qp.forget_memory();
        if let Err(fault) = kept {
            return Err(cache_failure(context, "queue pair context", fault));
        }
        self.enter(number, next, context);
        if starts {
            let user = format!("queue pair {number}");
            self.check_queue_set(settings.queue_set_handle, &user, context);
        }
        DONE
    }

    /// Performs the effects of a new state.
    fn enter(&mut self, number: u32, next: QueuePairState, context: &mut Context<'_>) {
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return;
        };
        let before = qp.state;
        qp.state = next;
        if next == QueuePairState::Error {
            qp.stop();
        }
        if next == QueuePairState::ReadyToSend {
            // Nothing waits for the end of draining any more, only for that of a suspend command.
            qp.quiesce &= qp.suspended;
        }
        let drains = next == QueuePairState::Closing && before != next;
        qp.quiesce |= drains;
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        if drains {
            active.drain_completions();
        }
        if next == QueuePairState::Error {
            active.settle();
        }
        self.wake(number);
    }

    pub(super) fn destroy_queue_pair(
        &mut self,
        command: &DestroyQueuePair,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        let slot = self.queue_pairs.get_mut(number as usize);
        let Some(mut qp) = slot.and_then(Option::take) else {
            return Err(Self::no_queue_pair(context, number));
        };
        let mut active = ActiveQueuePair {
            qp: &mut qp,
            objects: &mut self.objects,
            context,
        };
        active.answer_at_the_end();
        active.end_suspend();
        self.use_completion_queues(qp.send_cq, qp.receive_cq, false);
        if qp.has_bound {
            self.unbind_all(number, context);
        }
        self.objects.former_queue_pairs.insert(number);
        self.forget(number);
        DONE
    }

    pub(super) fn flush_work_queues(
        &mut self,
        command: &FlushWorkQueues,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return Err(Self::no_queue_pair(context, number));
        };
        let state = qp.state;
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        if command.generate_ae {
            let code = AeCode::from_code(command.ae_code % EVENT_CODES);
            active.raise(code, command.ae_source, 0);
        }
        if !command.flush_sq && !command.flush_rq {
            return DONE;
        }
        if state == QueuePairState::Closing {
            // Linux's irdma asks for it after each change to SQD and goes on with either answer
            // (`verbs.c`, irdma_modify_qp_roce). What waits in the queues is for RTS.
            return Err(CommandFailure::InvalidState);
        }
        if state != QueuePairState::Error {
            return Self::refuse(
                context,
                "flush of a queue pair that is not in error",
                CommandFailure::InvalidState,
                || format!("queue pair {number} is in {state:?}"),
            );
        }
        let result = active.flush(command);
        Ok(Outcome {
            value: 0,
            minor: result.minor_code(),
        })
    }

    pub(super) fn suspend_queue_pair(
        &mut self,
        command: &SuspendQueuePair,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return Err(Self::no_queue_pair(context, number));
        };
        qp.suspended = true;
        qp.quiesce = true;
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        active.drain_completions();
        DONE
    }

    pub(super) fn resume_queue_pair(
        &mut self,
        command: &ResumeQueuePair,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return Err(Self::no_queue_pair(context, number));
        };
        qp.suspended = false;
        let handle = (command.queue_set_handle % QUEUE_SETS) as u16;
        qp.context.queue_set_handle = handle;
        self.check_queue_set(handle, &format!("queue pair {number}"), context);
        self.wake(number);
        DONE
    }

    pub(super) fn upload_context(
        &mut self,
        command: &UploadContext,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.qp_number;
        let found = self.queue_pairs.get(number as usize);
        let Some(qp) = found.and_then(Option::as_deref) else {
            return Err(Self::no_queue_pair(context, number));
        };
        let mut current = qp.context;
        if let Some(requester) = &qp.requester {
            let (next, unacknowledged) = requester.sequence_numbers();
            current.psn_next = next.value();
            current.psn_max = next.value();
            current.psn_unacknowledged = unacknowledged.value();
        }
        if let Some(responder) = &qp.responder {
            current.expected_psn = responder.expected_psn().value();
        }
        let at = Iova(command.buffer_address);
        let written = context.memory.write_words(at, &current.encode());
        reached(context, "context buffer", written).ok_or(REFUSED)?;
        DONE
    }
}

/// True if state `next` may follow `now`. ERROR may follow any state, and none may follow it.
fn allowed(now: QueuePairState, next: QueuePairState) -> bool {
    use QueuePairState::{Closing, Error, Idle, ReadyToReceive, ReadyToSend};
    match next {
        Error => true,
        Idle => now == Idle,
        ReadyToReceive => matches!(now, Idle | ReadyToReceive),
        ReadyToSend => matches!(now, ReadyToReceive | ReadyToSend | Closing),
        Closing => matches!(now, ReadyToSend | Closing),
        _ => false,
    }
}

/// True for queue pairs of programs.
fn is_roce(kind: QueuePairType) -> bool {
    matches!(
        kind,
        QueuePairType::RoceReliableConnected | QueuePairType::RoceUnreliableDatagram
    )
}

/// True if a modification has the flags with which drivers take a queue pair to its next state.
/// Source: irdma `verbs.c`, irdma_modify_qp_roce.
fn carries_what_the_state_needs(command: &ModifyQueuePair) -> bool {
    let receives = command.arp_index_valid && command.cq_numbers_valid;
    match command.next_state {
        QueuePairState::ReadyToReceive => receives,
        QueuePairState::ReadyToSend => receives && command.ord_valid,
        _ => true,
    }
}

/// True for the context of a queue pair that never had an address vector: datagrams take addresses
/// and their like from address handles. Source: as above.
fn is_without_path(context: &RoceQueuePairContext) -> bool {
    let addresses = context.local_ip | context.destination_ip;
    let tag = (context.insert_vlan, context.vlan_tag);
    let header = (context.ttl, context.tos, context.flow_label);
    (addresses, context.ipv4, tag, header) == (0, false, (false, 0), (0, 0, 0))
        && context.source_port == SOURCE_PORT_WITHOUT_PATH
}

/// Takes the host's context, which always holds the first packet numbers: those count only when the
/// half that they are for starts.
fn take_context(
    qp: &mut QueuePair,
    settings: &RoceQueuePairContext,
    next: QueuePairState,
) -> Result<(), ContextFault> {
    let before = qp.state;
    let kept = qp.context;
    qp.context = *settings;
    // Addresses and completion queues are those of the creation.
    qp.context.sq_address = kept.sq_address;
    qp.context.rq_address = kept.rq_address;
    qp.context.sq_size_code = kept.sq_size_code;
    qp.context.rq_size_code = kept.rq_size_code;
    qp.context.rq_wqe_size_code = kept.rq_wqe_size_code;
    qp.context.completion_context = kept.completion_context;
    qp.context.tx_cq_number = kept.tx_cq_number;
    qp.context.rx_cq_number = kept.rx_cq_number;
    qp.take_path();
    if qp.kind != QueuePairType::RoceReliableConnected {
        return Ok(());
    }
    if next == QueuePairState::ReadyToReceive && before == QueuePairState::Idle {
        qp.start_responder()?;
    }
    match (before, next) {
        (QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend) => qp.start_requester()?,
        (_, QueuePairState::ReadyToSend) => qp.change_requester()?,
        _ => {}
    }
    Ok(())
}
