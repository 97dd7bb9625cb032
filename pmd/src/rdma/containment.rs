//! Takes a failed device out of service, and notifies its users.
//!
//! First bus mastering is switched off and read back, so that the device writes nothing more. Then
//! all outstanding requests complete as flushed, in software, after those that the device had
//! completed itself. Polling cores are notified through the inboxes of their completion queues,
//! without a lock on their path. Memory stays allocated until a reset of the function was confirmed
//! ([`Engine::release`]).
//!
//! A device that gives no answer may still write: the server of a function can be stopped, and goes
//! on later with the requests that it had. The requests then stay outstanding, and the driver tries
//! again ([`Engine::silence_again`]) until the device answers, or its backend says that it is gone.

use super::RdmaError;
use super::carried::Carried;
use super::end::OwedFlush;
use super::engine::{Engine, EngineState};
use super::event::Event;
use super::records::{CompletionQueueRecord, QueuePairCondition, QueuePairRecord};
use crate::event_descriptor::disconnect_vector;
use crate::failure::FailureCause;
use ringside_bus::config_space::{COMMAND, Command};
use ringside_bus::{Function, FunctionError};
use ringside_cq::{CompletionContext, CompletionQueueHandle};
use ringside_spec::verbs::QueueSide;
use std::time::Duration;

/// The pause between two attempts to silence a device. An attempt takes as long as the backend
/// waits for an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause between two looks of a thread that waits until a device is silent.
const STEP: Duration = Duration::from_millis(5);

/// Offset of vendor and device identifier in configuration space. A function that is there has
/// other values than all ones.
const IDENTIFIERS: u16 = 0;

/// The result of the attempt to switch bus mastering off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It is off, and reads so.
    Confirmed,
    /// The device is gone from the bus, or the process that served it has ended.
    NobodyThere,
    /// It is still on, or the device does not answer: it may write.
    Unknown,
}

/// Takes bus mastering away and reads back that it is off.
pub(crate) fn silence(function: &dyn Function) -> Silence {
    match try_silence(function) {
        Ok(silence) => silence,
        Err(FunctionError::Gone { .. }) => Silence::NobodyThere,
        // No answer is no sign that the device has stopped.
        Err(_) => Silence::Unknown,
    }
}

fn try_silence(function: &dyn Function) -> Result<Silence, FunctionError> {
    let read = || {
        let mut bytes = [0; 2];
        function.config_read(COMMAND, &mut bytes)?;
        Ok::<_, FunctionError>(u16::from_le_bytes(bytes))
    };
    let found = read()?;
    if found == u16::MAX {
        return absence(function);
    }
    let off = Command(found).with_bus_master(false).0;
    function.config_write(COMMAND, &off.to_le_bytes())?;
    match read()? {
        u16::MAX => absence(function),
        value if Command(value).bus_master() => Ok(Silence::Unknown),
        _ => Ok(Silence::Confirmed),
    }
}

/// The conclusion from a command register of all ones: the function is gone only if its identifiers
/// read so too.
fn absence(function: &dyn Function) -> Result<Silence, FunctionError> {
    let mut bytes = [0; 4];
    function.config_read(IDENTIFIERS, &mut bytes)?;
    Ok(match u32::from_le_bytes(bytes) {
        u32::MAX => Silence::NobodyThere,
        _ => Silence::Unknown,
    })
}

impl Engine {
    /// Takes the device out of service: nothing more is posted or made, and users are notified
    /// once. Does nothing if it is out of service already.
    pub(crate) fn fail(&self, state: &mut EngineState, cause: FailureCause) {
        self.fail_after(state, cause, false);
    }

    /// The same for a device that has just left a read unanswered until the deadline of its
    /// backend. The attempt to silence it would take as long again: it comes later, and the program
    /// gets the report first.
    pub(crate) fn fail_unanswered(&self, state: &mut EngineState) {
        self.fail_after(state, FailureCause::Gone, true);
    }

    fn fail_after(&self, state: &mut EngineState, cause: FailureCause, is_unanswered: bool) {
        if state.service.closed || state.service.end.cause.is_some() {
            return;
        }
        tracing::error!(device = %self.registers.function().address(), %cause, "the device failed");
        state.service.end.cause = Some(cause);
        state.service.end.since = Some(self.registers.clock().now());
        state.service.end.queue_pairs = state.objects.queue_pairs.iter().count();
        self.over.store(true, std::sync::atomic::Ordering::Release);
        self.retire_doorbells();
        self.control.abandon(cause);
        self.ports.fail();
        let EngineState {
            objects, service, ..
        } = &mut *state;
        for (_, record) in objects.queue_pairs.iter() {
            // Queue pairs that failed before are flushed already, or their flush is owed.
            if record.condition.get() == QueuePairCondition::Usable {
                service.end.waiting.extend(record.owed_flushes());
            }
            record.condition.advance(QueuePairCondition::Lost);
        }
        state
            .service
            .pending_events
            .push(Event::DeviceFailed { cause });
        for interrupt in &state.service.interrupts {
            interrupt.event.wake();
        }
        let found = match is_unanswered {
            true => Silence::Unknown,
            false => silence(&**self.registers.function()),
        };
        self.note_silence(state, found);
    }

    fn note_silence(&self, state: &mut EngineState, found: Silence) {
        if found != Silence::Unknown {
            state.service.end.silent = true;
            return state.flush_all();
        }
        let device = self.registers.function().address();
        tracing::warn!(%device, "the failed device may still write: requests stay outstanding");
        let now = self.registers.clock().now();
        state.service.end.next_attempt = Some(now.plus(PAUSE));
    }

    /// Tries again to silence a failed device that may still write, unless the last attempt was a
    /// moment ago. Its outstanding requests complete if that succeeds.
    ///
    /// Waits for the device, with the engine unlocked meanwhile.
    pub(crate) fn silence_again(&self) {
        let mut state = self.state();
        let now = self.registers.clock().now();
        let end = &mut state.service.end;
        if end.silent || end.next_attempt.is_none_or(|next| now < next) {
            return;
        }
        // Other threads leave it to this one.
        end.next_attempt = None;
        let found = state.function(silence);
        self.note_silence(&mut state, found);
    }

    /// Waits until a device that failed is known to write nothing more, `limit` after its failure
    /// at most, plus one attempt to silence it. False if it may still write. True at once while it
    /// is in service, and in a child by fork.
    pub(crate) fn await_silence(&self, limit: Duration) -> bool {
        if self.is_elsewhere() {
            return true;
        }
        let clock = self.registers.clock();
        loop {
            self.silence_again();
            {
                let state = self.state();
                let end = &state.service.end;
                let Some(since) = end.since.filter(|_| !end.silent) else {
                    return true;
                };
                if clock.now().since(since) >= limit {
                    return false;
                }
            }
            clock.pause(STEP);
        }
    }

    /// Takes the device out of service although it has not failed.
    pub(crate) fn give_up(&self) -> Result<(), RdmaError> {
        let mut state = self.open_state()?;
        self.fail(&mut state, FailureCause::Requested);
        Ok(())
    }

    /// Ends all writes to registers, before a reset of the function: operations that were under way
    /// end first. The device is out of service, so none begins.
    pub(crate) fn begin_reset(&self) {
        self.state_alone().service.end.reset_begun = true;
    }

    /// Disconnects all doorbells from the device: a thread that posted before and rings later has
    /// no effect. The next period of service has doorbells of its own.
    pub(crate) fn retire_doorbells(&self) {
        for doorbell in [&self.send_doorbell, &self.arm_doorbell] {
            if let Err(error) = doorbell.retire() {
                let device = self.registers.function().address();
                tracing::error!(%device, %error, "a doorbell stays in service: do not ring old queue pairs");
            }
        }
    }

    /// Frees the memory that this period of service left to the device, after a confirmed reset of
    /// the function.
    /// Returns the bytes that were kept apart until now.
    pub(crate) fn release(&self) -> usize {
        // Operations that were under way end first: none of them waits any more.
        let mut state = self.state_alone();
        state.service.end.silent = true;
        state.flush_all();
        state.service.end.released = true;
        state.withheld.kept.clear();
        *self.memory() = None;
        state.made.completion_events.clear();
        state.made.asynchronous_events = None;
        state.made.statistics = None;
        state.forget_unconfirmed::<QueuePairRecord>();
        state.forget_unconfirmed::<CompletionQueueRecord>();
        state.objects.regions.clear();
        state.objects.address_handles.clear();
        state.objects.multicast_groups.clear();
        self.groups.set(Vec::new());
        state.group_rules.forget();
        drop(self.control.drop_completions());
        let interrupts = std::mem::take(&mut state.service.interrupts);
        let reclaimed = state.reclaim_quarantine();
        drop(state);
        for interrupt in interrupts {
            disconnect_vector(&**self.registers.function(), interrupt.vector);
        }
        reclaimed
    }
}

impl EngineState {
    /// Notes flushes of a queue pair that the device may still have: it may write completions until
    /// its reset, unless its DMA has stopped.
    pub(crate) fn owe(&mut self, owed: Vec<OwedFlush>) {
        self.service.end.waiting.extend(owed);
        if self.service.end.silent {
            self.flush_all();
        }
    }

    /// Makes the completion queues complete all outstanding requests of every queue pair, once.
    pub(crate) fn flush_all(&mut self) {
        self.service.end.owed.append(&mut self.service.end.waiting);
        self.flush_owed();
    }

    /// Has a completion queue complete what is outstanding on one side of a queue pair; later, if
    /// it has no room for that now.
    pub(crate) fn flush_side(
        &mut self,
        handle: &CompletionQueueHandle,
        context: CompletionContext,
        side: QueueSide,
    ) {
        if handle.flush(context, side).is_err() {
            self.service
                .end
                .owed
                .push(OwedFlush::new(handle, context, side));
        }
    }

    /// The same once the device writes nothing more: at once, if it was silenced meanwhile.
    pub(crate) fn flush_when_silent(
        &mut self,
        handle: &CompletionQueueHandle,
        context: CompletionContext,
        side: QueueSide,
    ) {
        self.service
            .end
            .waiting
            .push(OwedFlush::new(handle, context, side));
        if self.service.end.silent {
            self.flush_all();
        }
    }

    /// Tells completion queues that had no room in their inbox.
    pub(crate) fn flush_owed(&mut self) {
        if self.service.end.owed.is_empty() {
            return;
        }
        self.service.end.owed.retain(|owed| !owed.try_again());
    }
}

/// The facts of this period of service that the next one needs.
pub(crate) fn carry(engine: &Engine) -> Carried {
    let gids = Some(engine.gids().clone());
    let mut state = engine.state();
    // A bring-up that failed before it had numbers passes on what it got.
    let rested = match state.objects.are_sized() {
        true => state.objects.rested(),
        false => std::mem::take(&mut state.names.rested),
    };
    Carried {
        rested,
        gids,
        random: state.names.random.clone(),
        generation: state.names.generation,
        peers: std::mem::take(&mut state.peers),
        events: std::mem::take(&mut state.service.pending_events),
        owed: std::mem::take(&mut state.service.end.owed),
    }
}
