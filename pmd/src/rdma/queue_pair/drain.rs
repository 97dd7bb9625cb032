//! A connection that stops sending and goes on later (SQD).

use super::life::modify;
use super::{Connected, QueuePair};
use crate::rdma::engine::{Engine, EngineState};
use crate::rdma::records::{QueuePairCondition, QueuePairRecord};
use crate::rdma::{Event, RdmaError};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{ModifyQueuePair, QueuePairState as DeviceState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A connected queue pair that sends nothing: what was sent is acknowledged, what is posted waits.
#[derive(Clone, Copy, Debug)]
pub struct Drained;

/// How long a queue pair may take to stop sending. Source: irdma `verbs.c`, irdma_wait_for_suspend.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// A queue pair that did not stop sending, or did not go on.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DrainError<S> {
    /// Why.
    #[source]
    pub error: RdmaError,
    /// The queue pair, as it was: one that did not stop goes on sending.
    pub queue_pair: Box<QueuePair<S>>,
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
        let engine = Arc::clone(self.inner.engine());
        let result = engine
            .open_state()
            .and_then(|mut state| engine.drain(&mut state, self.inner.number));
        match result {
            Ok(()) => Ok(self.become_state()),
            Err(error) => Err(DrainError {
                error,
                queue_pair: Box::new(self),
            }),
        }
    }
}

impl QueuePair<Drained> {
    /// Goes on sending.
    pub fn resume(self) -> Result<QueuePair<Connected>, DrainError<Drained>> {
        let engine = Arc::clone(self.inner.engine());
        let result = engine
            .open_state()
            .and_then(|mut state| state.resume(self.inner.number));
        match result {
            Ok(()) => Ok(self.become_state()),
            Err(error) => Err(DrainError {
                error,
                queue_pair: Box::new(self),
            }),
        }
    }
}

impl Engine {
    fn drain(&self, state: &mut EngineState, number: u32) -> Result<(), RdmaError> {
        state.move_drained(number, DeviceState::Closing)?;
        let over = |event: &Event| match event {
            Event::Notice { queue_pair, code } => {
                *queue_pair == number && *code == AeCode::SuspendComplete
            }
            _ => false,
        };
        let done = self.wait_for_event(state, DRAIN_LIMIT, over)?;
        let usable =
            |record: &QueuePairRecord| record.condition.get() == QueuePairCondition::Usable;
        if !done && state.queue_pairs.get(&number).is_some_and(usable) {
            // It would stop later, unseen by whoever gets it back: it goes on instead.
            state.move_drained(number, DeviceState::ReadyToSend)?;
        }
        let Some(record) = state.queue_pairs.get_mut(&number) else {
            let what = "queue pair";
            return Err(RdmaError::Gone { what, number });
        };
        if record.condition.get() != QueuePairCondition::Usable {
            return Err(RdmaError::Failed { queue_pair: number });
        }
        if !done {
            return Err(RdmaError::NotDrained {
                queue_pair: number,
                waited_ms: DRAIN_LIMIT.as_millis() as u64,
            });
        }
        record.drained = true;
        Ok(())
    }
}

impl EngineState {
    fn move_drained(&mut self, number: u32, next_state: DeviceState) -> Result<(), RdmaError> {
        let what = "queue pair";
        let Some(record) = self.queue_pairs.get(&number) else {
            return Err(RdmaError::Gone { what, number });
        };
        if record.condition.get() != QueuePairCondition::Usable {
            return Err(RdmaError::Failed { queue_pair: number });
        }
        self.control.execute(ModifyQueuePair {
            next_state,
            ..modify(record, number)
        })?;
        Ok(())
    }

    fn resume(&mut self, number: u32) -> Result<(), RdmaError> {
        self.move_drained(number, DeviceState::ReadyToSend)?;
        if let Some(record) = self.queue_pairs.get_mut(&number) {
            record.drained = false;
        }
        Ok(())
    }
}
