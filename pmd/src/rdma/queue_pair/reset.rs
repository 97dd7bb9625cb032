//! Back to the beginning (RESET): the same number, nothing outstanding, no peer.
//!
//! The card has no such step. The driver destroys the queue pair and makes it again from the
//! configuration that it was made with, and keeps its number, while no other operation runs.

use super::create::{Number, Plan, prepare};
use super::{QueuePair, Resettable};
use crate::Returned;
use crate::rdma::RdmaError;
use crate::rdma::lifecycle::By;
use crate::rdma::records::Reports;
use std::marker::PhantomData;
use std::sync::Arc;

/// A queue pair that was not reset.
#[derive(Debug, thiserror::Error)]
#[error("the queue pair was not reset: {error}")]
pub struct ResetError<S> {
    /// The error.
    #[source]
    pub error: RdmaError,
    queue_pair: Option<Returned<QueuePair<S>>>,
}

impl<S> ResetError<S> {
    pub(in crate::rdma) fn destroyed(error: RdmaError) -> Self {
        Self {
            error,
            queue_pair: None,
        }
    }

    /// True if the queue pair is unchanged: [`Self::into_queue_pair`] returns it.
    #[must_use]
    pub fn still_exists(&self) -> bool {
        self.queue_pair.is_some()
    }

    /// The queue pair, unchanged, if no command was sent yet; otherwise it is destroyed.
    #[must_use]
    pub fn into_queue_pair(self) -> Option<QueuePair<S>> {
        self.queue_pair.map(Returned::into_inner)
    }
}

impl<S: Resettable> QueuePair<S> {
    /// Takes it back to the state in which it was made, with the attributes of its configuration
    /// and the same number. Requests that are outstanding are dropped; their completions are not
    /// reported, nor are those that were not polled; reports of its failure that were not taken are
    /// dropped. The start PSN is another one.
    ///
    /// Verbs: `ibv_modify_qp` to `IBV_QPS_RESET`, and to `IBV_QPS_INIT`. Control path.
    ///
    /// Errors: [`RdmaError::Fed`] if a shared receive queue feeds it: reset it there, with
    /// [`SharedReceiveQueue::reset`](crate::rdma::SharedReceiveQueue::reset). [`ResetError`] shows
    /// if it still exists.
    pub fn reset(self) -> Result<QueuePair<S::After>, ResetError<S>> {
        let number = self.inner.number;
        if self.inner.receive.is_none() {
            return Err(self.not_reset(RdmaError::Fed { number }));
        }
        self.make_again()
    }

    /// The same for one that nothing feeds any more. It has a receive queue of its own then.
    pub(in crate::rdma) fn make_again(mut self) -> Result<QueuePair<S::After>, ResetError<S>> {
        let number = self.inner.number;
        let engine = Arc::clone(self.inner.engine());
        let prepared = match prepare(&engine, &self.inner.config) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.not_reset(error)),
        };
        let mut state = match engine.open_state_alone() {
            Ok(state) => state,
            Err(error) => return Err(self.not_reset(error)),
        };
        let config = &self.inner.config;
        let reports = [config.send.reports(), config.receive.reports()];
        let has_room = |reports: &Reports| reports.handle.check_room().map_err(RdmaError::from);
        let possible = state
            .check_completion_queues(reports)
            .and_then(|()| reports.into_iter().try_for_each(has_room));
        if let Err(error) = possible {
            drop(state);
            return Err(self.not_reset(error));
        }
        self.inner.is_destroyed = true;
        let destroyed = state.destroy_queue_pair(number, By::Owner);
        let gone = ResetError::destroyed;
        destroyed.map_err(gone)?;
        engine.drop_events_of(&mut state, number);
        let what = "the share of queue pair";
        let share = self.inner.share.take();
        let share = share.ok_or(gone(RdmaError::Gone { what, number }))?;
        let plan = Plan {
            domain: &self.inner.domain,
            share,
            config: self.inner.config.clone(),
            kind: self.inner.attributes.kind,
            number: Number::Again(number),
            prepared,
        };
        let made = plan.build(&mut state);
        drop(state);
        Ok(QueuePair {
            inner: made.map_err(gone)?,
            state: PhantomData,
        })
    }

    fn not_reset(self, error: RdmaError) -> ResetError<S> {
        ResetError {
            error,
            queue_pair: Some(Returned::new(self)),
        }
    }
}
