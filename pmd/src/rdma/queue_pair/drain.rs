//! A connection that stops sending and resumes later (SQD).

use super::inner::Inner;
use super::life::{modify, to_send};
use super::{Connected, Drained, QueuePair, Sending};
use crate::Returned;
use crate::rdma::RdmaError;
use crate::rdma::claim::Claim;
use crate::rdma::engine::{Engine, EngineState};
use crate::rdma::records::{Condition, QueuePairCondition, QueuePairRecord, SendState};
use crate::rdma::session::Session;
use ringside_bus::clock::wait_for;
use ringside_spec::rdma::ae_codes::FlushCode;
use ringside_spec::rdma::commands::{ModifyQueuePair, QueuePairState as DeviceState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The longest time for a queue pair to stop sending. Source: irdma `verbs.c`,
/// irdma_wait_for_suspend.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// The interval at which the event queue is read meanwhile. The clock sleeps that long, so that
/// threads that wait for the engine's lock get it.
const EVENT_STEP: Duration = Duration::from_millis(1);

/// A queue pair that did not stop sending, or did not go on.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DrainError<S> {
    /// The error.
    #[source]
    pub error: RdmaError,
    queue_pair: Returned<QueuePair<S>>,
}

impl<S> DrainError<S> {
    /// The queue pair, unchanged: one that did not stop continues to send.
    #[must_use]
    pub fn into_queue_pair(self) -> QueuePair<S> {
        self.queue_pair.into_inner()
    }
}

impl<S> QueuePair<S> {
    fn become_state<T>(self) -> QueuePair<T> {
        QueuePair {
            inner: self.inner,
            state: PhantomData,
        }
    }
}

impl QueuePair<Connected> {
    /// Stops sending, and waits until all that was sent is answered, 5 s at most. It receives on.
    pub fn drain(self) -> Result<QueuePair<Drained>, DrainError<Connected>> {
        match self.send_switch().stop() {
            Ok(()) => Ok(self.become_state()),
            Err(error) => Err(DrainError {
                error,
                queue_pair: Returned::new(self),
            }),
        }
    }
}

impl QueuePair<Drained> {
    /// Goes on sending.
    pub fn resume(self) -> Result<QueuePair<Connected>, DrainError<Drained>> {
        match self.inner.send_switch().resume() {
            Ok(()) => Ok(self.become_state()),
            Err(error) => Err(DrainError {
                error,
                queue_pair: Returned::new(self),
            }),
        }
    }
}

/// Stops and resumes the sending of a queue pair that keeps its type: its owner may post meanwhile.
///
/// Requests that are posted while it is stopped wait in the ring, and are sent once it resumes. It
/// receives all the time. Usable from any thread; refers to the queue pair, and does not keep it.
#[derive(Clone, Debug)]
pub struct SendSwitch {
    engine: Arc<Engine>,
    condition: Arc<Condition>,
    number: u32,
}

impl SendSwitch {
    /// Stops sending, and waits until all that was sent is answered, 5 s at most. Returns at once
    /// if it has stopped.
    ///
    /// Errors: [`RdmaError::NotDrained`] if requests are still without an answer then, and the
    /// queue pair continues to send, or fails if the device refuses that; [`RdmaError::Failed`];
    /// [`RdmaError::Gone`] for a queue pair that was destroyed or reset; [`RdmaError::Draining`]
    /// while another thread stops it.
    pub fn stop(&self) -> Result<(), RdmaError> {
        self.engine.drain(self)
    }

    /// Resumes sending, with the requests that were posted meanwhile. Does nothing if it sends.
    ///
    /// Errors: as for [`SendSwitch::stop`].
    pub fn resume(&self) -> Result<(), RdmaError> {
        let mut state = self.engine.open_state()?;
        match self.sending(&state)? {
            SendState::Drained => state.resume(self.number),
            SendState::Draining => Err(self.occupied()),
            SendState::NotYet | SendState::Active => Ok(()),
        }
    }

    fn sending(&self, state: &EngineState) -> Result<SendState, RdmaError> {
        let record = state.objects.queue_pairs.must(self.number)?;
        if Arc::ptr_eq(&record.condition, &self.condition) {
            return Ok(record.sending);
        }
        // Its number belongs to another one now.
        Err(RdmaError::Gone {
            what: "queue pair",
            number: self.number,
        })
    }

    /// The error for a queue pair that was told to stop and has not.
    fn occupied(&self) -> RdmaError {
        let queue_pair = self.number;
        match self.condition.get() {
            QueuePairCondition::Usable => RdmaError::Draining { queue_pair },
            _ => RdmaError::Failed { queue_pair },
        }
    }
}

impl<S: Sending> QueuePair<S> {
    /// Stops and resumes its sending without changing its type (SQD of verbs).
    #[must_use]
    pub fn send_switch(&self) -> SendSwitch {
        self.inner.send_switch()
    }
}

impl Inner {
    fn send_switch(&self) -> SendSwitch {
        SendSwitch {
            engine: Arc::clone(self.engine()),
            condition: Arc::clone(&self.condition),
            number: self.number,
        }
    }
}

impl Engine {
    /// Makes a queue pair stop sending. The engine's lock is free between two reads of the events.
    fn drain(&self, switch: &SendSwitch) -> Result<(), RdmaError> {
        let number = switch.number;
        {
            let mut state = self.open_state()?;
            match switch.sending(&state)? {
                SendState::Drained => return Ok(()),
                SendState::Draining => return Err(switch.occupied()),
                SendState::NotYet | SendState::Active => {}
            }
            // Before the command: another thread may take the event before this one goes on.
            let before = state.set_sending(number, SendState::Draining)?;
            if let Err(error) = state.move_drained(number, to_drain) {
                let _ = state.set_sending(number, before);
                return Err(error);
            }
        }
        let clock = self.registers.clock();
        let drained = wait_for(&**clock, DRAIN_LIMIT, EVENT_STEP, || {
            let mut state = self.open_state()?;
            self.take_events_for_later(&mut state);
            let sending = switch.sending(&state)?;
            if switch.condition.get() != QueuePairCondition::Usable {
                return Err(RdmaError::Failed { queue_pair: number });
            }
            Ok((sending == SendState::Drained).then_some(()))
        })?;
        if drained.is_some() {
            return Ok(());
        }
        // It would stop later, unnoticed by its owner: it resumes instead.
        let mut state = self.open_state()?;
        let resumed = state.resume(number);
        // An event that came meanwhile must not answer the next call.
        self.take_events_for_later(&mut state);
        if let Err(error) = resumed {
            // It neither stops nor sends: its requests would wait for ever.
            let general = FlushCode::General;
            let failed = state.fail_queue_pair(number, general, general, None);
            if failed.is_err() {
                self.look_after(&mut state, true);
            }
            return Err(error);
        }
        Err(RdmaError::NotDrained {
            queue_pair: number,
            waited_ms: DRAIN_LIMIT.as_millis() as u64,
        })
    }

    /// Takes and acts on events for a caller that does not report them: the next `poll_events`
    /// does. An error concerns the object of its event, not the caller.
    pub(in crate::rdma) fn take_events_for_later(&self, state: &mut Session<'_>) {
        let mut events = Vec::new();
        if let Err(error) = self.take_events(state, &mut events) {
            tracing::warn!(%error, "an event was not acted on completely");
            self.look_after(state, true);
        }
        state.report_later(events);
    }
}

impl EngineState {
    /// Records that a queue pair has stopped sending. False if it was not told to stop.
    pub(crate) fn note_drained(&mut self, number: u32) -> bool {
        match self.objects.queue_pairs.get_mut(number) {
            Some(record) if record.sending == SendState::Draining => {
                record.sending = SendState::Drained;
                true
            }
            _ => false,
        }
    }

    fn set_sending(&mut self, number: u32, to: SendState) -> Result<SendState, RdmaError> {
        let record = self.objects.queue_pairs.must_mut(number)?;
        Ok(std::mem::replace(&mut record.sending, to))
    }
}

impl Session<'_> {
    fn move_drained(
        &mut self,
        number: u32,
        step: impl FnOnce(&QueuePairRecord, u32) -> ModifyQueuePair,
    ) -> Result<(), RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            let record = session.objects.queue_pairs.must(number)?.usable(number)?;
            session.execute(step(record, number))?;
            Ok(())
        })
    }

    fn resume(&mut self, number: u32) -> Result<(), RdmaError> {
        self.move_drained(number, to_send)?;
        self.set_sending(number, SendState::Active)?;
        Ok(())
    }
}

/// The step that lets it send what is under way and then stop.
fn to_drain(record: &QueuePairRecord, number: u32) -> ModifyQueuePair {
    ModifyQueuePair {
        next_state: DeviceState::Closing,
        ..modify(record, number)
    }
}
