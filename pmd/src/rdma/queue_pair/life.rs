//! Connecting, failing and destroying queue pairs.

use super::context::{Attributes, Path};
use crate::control::{Completed, ControlError};
use crate::failure::FailureCause;
use crate::rdma::RdmaError;
use crate::rdma::address::MacAddress;
use crate::rdma::claim::Claim;
use crate::rdma::connection::Endpoint;
use crate::rdma::end::OwedFlush;
use crate::rdma::lifecycle::{By, Destroyed};
use crate::rdma::objects::Object;
use crate::rdma::objects::{Held, Objects, Table};
use crate::rdma::records::{QueuePairCondition, QueuePairMemory, QueuePairRecord, SendState};
use crate::rdma::session::Session;
use ringside_bus::DmaBuffer;
use ringside_cq::{CompletionContext, Sides};
use ringside_qp::QueuePairState;
use ringside_spec::rdma::ae_codes::{FLUSH_MAJOR_CODE, FlushCode};
use ringside_spec::rdma::commands::{
    DestroyQueuePair, FlushWorkQueues, ModifyQueuePair, QueuePairState as DeviceState,
};
use ringside_spec::rdma::control_completion::{CommandFailure, FlushResult};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::QP_CONTEXT_BYTES;
use ringside_spec::verbs::{QUANTUM_WORDS, QueueSide, SendHeader};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

    /// Releases its number. A number whose slot is still in use in a completion queue is not used
    /// again, nor one that a shared receive queue still uses.
    fn retire(&mut self) -> bool {
        self.condition.advance(QueuePairCondition::Destroyed);
        if self.ends_flushed {
            // Its attachment has kept room for them in the completion queues.
            self.last_flushes().iter().for_each(|owed| {
                let _ = owed.try_again();
            });
            return false;
        }
        self.is_detached = self.detach();
        self.is_detached && !self.is_fed
    }

    fn retire_unconfirmed(&mut self) -> Vec<OwedFlush> {
        if !self.ends_flushed {
            self.retire();
            return Vec::new();
        }
        self.condition.advance(QueuePairCondition::Destroyed);
        self.last_flushes()
    }

    fn into_memory(self) -> Vec<DmaBuffer> {
        self.memory.into_buffers().into()
    }

    fn is_destroyed(&self) -> bool {
        self.is_destroyed
    }
}

impl Session<'_> {
    /// Takes queue pair `number` to the state in which it receives and answers. If the device
    /// refuses, the queue pair is as it was.
    pub(super) fn let_receive(
        &mut self,
        number: u32,
        attributes: &Attributes,
        peer: &Endpoint,
    ) -> Result<Path, RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            session.receive_claimed(number, attributes, peer)
        })
    }

    fn receive_claimed(
        &mut self,
        number: u32,
        attributes: &Attributes,
        peer: &Endpoint,
    ) -> Result<Path, RdmaError> {
        self.objects.queue_pairs.must(number)?.usable(number)?;
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
        let ready_to_receive = to_receive(record, number);
        record.was_connected = true;
        let moved = self.execute(ready_to_receive).map_err(RdmaError::from);
        if moved.as_ref().is_err_and(RdmaError::leaves_object) {
            self.forget_peer(number, attributes, peer.mac);
        }
        moved.map(|_| path)
    }

    /// Undoes the preparations for a peer: the device did not take the step.
    fn forget_peer(&mut self, number: u32, attributes: &Attributes, mac: MacAddress) {
        if let Ok(record) = self.objects.queue_pairs.must_mut(number) {
            record.peer = None;
            record.was_connected = false;
            write_context(&record.memory, attributes, number, None);
        }
        if self.objects.queue_pairs.release_address(number, mac)
            && let Err(error) = self.give_address(mac)
        {
            tracing::error!(%error, "the entry of a MAC address could not be freed");
        }
    }

    /// Takes queue pair `number` from there to the state in which it sends too. If the device
    /// refuses, the queue pair is as it was.
    pub(super) fn let_send(
        &mut self,
        number: u32,
        attributes: &Attributes,
        path: &Path,
    ) -> Result<(), RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            session.send_claimed(number, attributes, path)
        })
    }

    fn send_claimed(
        &mut self,
        number: u32,
        attributes: &Attributes,
        path: &Path,
    ) -> Result<(), RdmaError> {
        let record = self.objects.queue_pairs.must(number)?.usable(number)?;
        write_context(&record.memory, attributes, number, Some(path));
        self.execute(to_send(record, number))?;
        self.objects.queue_pairs.must_mut(number)?.sending = SendState::Active;
        Ok(())
    }

    /// Takes a datagram queue pair to the state in which it sends and receives. If the device
    /// refuses a step, the next call begins with that step.
    pub(super) fn make_ready(
        &mut self,
        number: u32,
        attributes: &Attributes,
    ) -> Result<(), RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            session.make_ready_claimed(number, attributes)
        })
    }

    fn make_ready_claimed(
        &mut self,
        number: u32,
        attributes: &Attributes,
    ) -> Result<(), RdmaError> {
        self.objects.queue_pairs.must(number)?.usable(number)?;
        let record = self.objects.queue_pairs.must_mut(number)?;
        write_context(&record.memory, attributes, number, None);
        let ready_to_receive = to_receive(record, number);
        let ready_to_send = to_send(record, number);
        if !std::mem::replace(&mut record.was_connected, true) {
            let moved = self.execute(ready_to_receive).map_err(RdmaError::from);
            if moved.as_ref().is_err_and(RdmaError::leaves_object)
                && let Ok(record) = self.objects.queue_pairs.must_mut(number)
            {
                record.was_connected = false;
            }
            moved?;
        }
        self.execute(ready_to_send)?;
        self.objects.queue_pairs.must_mut(number)?.sending = SendState::Active;
        Ok(())
    }

    /// Moves a queue pair to the error state and has its queues flushed with these codes.
    ///
    /// Outstanding requests complete with errors, from the completion queues' next polls on. Does
    /// nothing if it has failed before, or is destroyed.
    pub(crate) fn fail_queue_pair(
        &mut self,
        number: u32,
        send_code: FlushCode,
        receive_code: FlushCode,
        error_receive_index: Option<u16>,
    ) -> Result<Option<FlushResult>, RdmaError> {
        let record = self.objects.queue_pairs.get(number);
        let Some(context) = record.map(|record| record.context) else {
            return Ok(None);
        };
        self.fail_this(
            context,
            number,
            send_code,
            receive_code,
            error_receive_index,
        )
    }

    /// The same for the queue pair with this context: not for another one that was made with its
    /// number since.
    pub(crate) fn fail_this(
        &mut self,
        context: CompletionContext,
        number: u32,
        send_code: FlushCode,
        receive_code: FlushCode,
        error_receive_index: Option<u16>,
    ) -> Result<Option<FlushResult>, RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            let record = session.objects.queue_pairs.get(number);
            if record.is_none_or(|record| record.context != context) {
                return Ok(None);
            }
            session.fail_claimed(number, send_code, receive_code, error_receive_index)
        })
    }

    fn fail_claimed(
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
        let (state, posted) = (record.state.clone(), record.posted_sends());
        let [send, receive] = [&record.send, &record.receive].map(|reports| reports.handle.clone());
        let moved = tolerate(self.execute(to_error));
        let mut at_rest = moved.is_ok() || self.destroy_unmoved(number);
        let flushed = moved.and_then(|()| flushed(self.execute(flush)));
        if let (Ok((_, true)), Some(state)) = (&flushed, state.upgrade()) {
            state.settle_sends(posted);
        }
        // The completion queues themselves complete requests that are posted from now on, and all
        // requests if the device does not answer: users must not wait for ever. A completion
        // returns memory, so for a device that does not answer, or still has the queue pair, they
        // come once its DMA is stopped.
        at_rest &= !self.is_stuck();
        for (handle, side) in [(send, QueueSide::Send), (receive, QueueSide::Receive)] {
            match at_rest {
                true => self.flush_side(&handle, context, side),
                false => self.flush_when_silent(&handle, context, side),
            }
        }
        Ok(Some(flushed?.0))
    }

    /// Destroys a queue pair that the device did not move to its error state, and keeps the record
    /// for the owner: otherwise the device would write into memory that completions return. True if
    /// the device confirmed. A device that answers and keeps the queue pair is taken out of
    /// service.
    #[cold]
    fn destroy_unmoved(&mut self, number: u32) -> bool {
        // Groups that keep a destroyed queue pair are no danger for its memory.
        let _ = self.leave_all_groups(number);
        let Some(record) = self.objects.queue_pairs.get(number) else {
            return false;
        };
        let destruction = record.destruction(number);
        let destroyed = self.execute(destruction);
        if destroyed.is_ok() {
            if let Some(record) = self.objects.queue_pairs.get_mut(number) {
                record.is_destroyed = true;
            }
            return true;
        }
        if !self.is_stuck() {
            self.fail(FailureCause::QueuePairStays { number });
        }
        false
    }

    /// Destroys a queue pair. Its memory goes back once the device has confirmed; a shutdown keeps
    /// it, because an owner may still write to it.
    pub(crate) fn destroy_queue_pair(&mut self, number: u32, by: By) -> Result<(), RdmaError> {
        let destroyed = self.claimed(Claim::QueuePair(number), |session| {
            session.destroy_claimed(number, by)
        });
        // Windows of type 2 that were bound through it are closed: regions may be free of windows.
        self.destroy_refused();
        if destroyed.is_err() {
            self.look_after();
        }
        destroyed
    }

    fn destroy_claimed(&mut self, number: u32, by: By) -> Result<(), RdmaError> {
        let in_service = self.service.end.cause.is_none();
        // The device did not take the step that ends its access to the memory of receives.
        let mut is_open = false;
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
                let failed = match tolerate(self.execute(to_error)) {
                    // The device destroys it in any state. Source: irdma `verbs.c`,
                    // irdma_destroy_qp, which asks for that after any answer to this step.
                    Err(ControlError::Refused { .. }) => {
                        is_open = true;
                        Ok(())
                    }
                    other => other,
                };
                result = result.and(failed.map_err(RdmaError::from));
            }
            if let Err(error) = result {
                return self.stays(number, error, is_open);
            }
        }
        match self.destroy::<QueuePairRecord>(number, by) {
            Destroyed::Gone(record) if in_service => {
                self.free_rings(number, record, by);
                Ok(())
            }
            Destroyed::Gone(object) | Destroyed::DeviceFailed { object, .. } => {
                let memory = object.map(QueuePairRecord::into_memory).unwrap_or_default();
                match self.withheld.fed.get_mut(&number) {
                    Some(fed) => fed.rings.extend(memory),
                    None => self.free_after_reset(memory),
                }
                Ok(())
            }
            Destroyed::Refused(error) => self.stays(number, error, is_open),
            Destroyed::Unconfirmed(error) => Err(error),
        }
    }

    /// The device keeps a queue pair whose owner destroys it. One that it did not move to its error
    /// state writes into memory that the owner uses again: the device is taken out of service.
    #[cold]
    fn stays(&mut self, number: u32, error: RdmaError, is_open: bool) -> Result<(), RdmaError> {
        self.set_apart::<QueuePairRecord>(number, &error);
        if is_open {
            self.fail(FailureCause::QueuePairStays { number });
        }
        Err(error)
    }

    /// The device uses the rings no more; a shared receive queue or an owner may.
    fn free_rings(&mut self, number: u32, record: Option<QueuePairRecord>, by: By) {
        let Some(record) = record else {
            return;
        };
        let is_detached = record.is_detached;
        let memory = record.into_memory();
        if by == By::Shutdown {
            self.withheld.kept.extend(memory);
            return;
        }
        let Some(fed) = self.withheld.fed.get_mut(&number) else {
            drop(memory);
            return;
        };
        fed.rings.extend(memory);
        fed.is_number_free = is_detached;
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

/// The step to the state in which a queue pair of any kind receives.
///
/// Source: irdma `verbs.c`, irdma_modify_qp_roce, for the flags of this step and the next.
pub(super) fn to_receive(record: &QueuePairRecord, number: u32) -> ModifyQueuePair {
    ModifyQueuePair {
        arp_index_valid: true,
        cq_numbers_valid: true,
        next_state: DeviceState::ReadyToReceive,
        ..modify(record, number)
    }
}

/// The step to the state in which it sends too, also from there and after a drain.
pub(super) fn to_send(record: &QueuePairRecord, number: u32) -> ModifyQueuePair {
    ModifyQueuePair {
        ord_valid: true,
        next_state: DeviceState::ReadyToSend,
        ..to_receive(record, number)
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

pub(super) fn write_context(
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

/// The result of a flush command; true with it if the device says that no send was pending.
///
/// Other refusals leave open what the device has completed.
fn flushed(answer: Result<Completed, ControlError>) -> Result<(FlushResult, bool), ControlError> {
    match answer {
        Ok(completed) => {
            let result = FlushResult::from_minor_code(completed.minor_code);
            let no_send = matches!(result, FlushResult::Nothing | FlushResult::ReceiveQueue);
            Ok((result, no_send))
        }
        Err(ControlError::Refused { failure, .. }) if failure.is_harmless() => {
            let no_send = failure == CommandFailure::FlushNothingPending;
            Ok((FlushResult::Nothing, no_send))
        }
        Err(error) => Err(error),
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
    /// Position after the sends that the device can see now.
    ///
    /// Each quantum of an element has the valid bit of its pass. A core that posts meanwhile makes
    /// an element valid last: one whose valid bit is missing, and all behind it, are not counted.
    /// Another core may retire requests meanwhile; they stay valid in the ring.
    fn posted_sends(&self) -> u64 {
        let Some(state) = self.state.upgrade() else {
            return 0;
        };
        let words = self.memory.send.words();
        let ring = words.as_slice();
        let slots = state.send.slots() as u64;
        state.send.posted_while(|position| {
            let quantum = (position % slots) as usize;
            let header = ring.get(quantum * QUANTUM_WORDS + QUANTUM_WORDS - 1);
            let pass = (position / slots).is_multiple_of(2);
            let header = header.map(|header| u64::from_le(header.load(Ordering::Acquire)));
            header.is_some_and(|header| SendHeader(header).valid() == pass)
        })
    }

    /// Attaches it to its completion queues. The error carries true if none of them was attached.
    pub(super) fn attach(&self, shared: &Arc<QueuePairState>) -> Result<(), (RdmaError, bool)> {
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

    /// The flushes of both sides, for their completion queues.
    pub(crate) fn owed_flushes(&self) -> [OwedFlush; 2] {
        let sides = [
            (&self.send, QueueSide::Send),
            (&self.receive, QueueSide::Receive),
        ];
        sides.map(|(reports, side)| OwedFlush::new(&reports.handle, self.context, side))
    }

    /// Those that a shutdown asks for: of a queue pair that failed before, each side is flushed
    /// already, or its flush is owed.
    fn last_flushes(&self) -> Vec<OwedFlush> {
        match self.was_flushed {
            true => Vec::new(),
            false => self.owed_flushes().into(),
        }
    }

    /// Detaches it. False if a completion queue could not be notified.
    fn detach(&self) -> bool {
        let sends = self.send.handle.detach(self.context).is_ok();
        let both = self.send.number == self.receive.number;
        let receives = both || self.receive.handle.detach(self.context).is_ok();
        sends && receives
    }
}
