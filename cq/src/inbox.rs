//! Access from other cores to a completion queue that is being polled.

use crate::sync::{ArrayQueue, AtomicBool, Ordering};
use crate::table::{AttachError, Sides};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use std::sync::Arc;
use thiserror::Error;

/// Why a request to a completion queue was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandleError {
    /// Too many requests wait for the next poll.
    #[error("{waiting} requests wait already: let the completion queue be polled, then try again")]
    InboxFull {
        /// requests that wait
        waiting: usize,
    },
    /// The queue pair doesn't fit the table.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// A request that the polling core carries out at its next poll.
#[derive(Debug)]
pub(crate) enum Request {
    Attach(Arc<QueuePairState>, Sides),
    Detach(CompletionContext),
    Flush(CompletionContext, QueueSide),
}

/// Requests that wait for the polling core.
#[derive(Debug)]
pub(crate) struct Inbox {
    requests: ArrayQueue<Request>,
    waiting: AtomicBool,
}

impl Inbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            requests: ArrayQueue::new(capacity.max(1)),
            waiting: AtomicBool::new(false),
        }
    }

    /// True if a request may wait: one relaxed load, for a poll that finds nothing.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Option<Request> {
        self.requests.pop()
    }

    pub(crate) fn seen(&self) {
        self.waiting.swap(false, Ordering::AcqRel);
    }

    fn put(&self, request: Request) -> Result<(), HandleError> {
        self.requests
            .push(request)
            .map_err(|_| HandleError::InboxFull {
                waiting: self.requests.len(),
            })?;
        self.waiting.store(true, Ordering::Release);
        Ok(())
    }
}

/// A way to a completion queue from any core. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionQueueHandle {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) slots: usize,
}

impl CompletionQueueHandle {
    /// Makes the queue accept completions of a queue pair, from its first on.
    ///
    /// To be called before the device can complete anything of it: before its first post.
    /// Errors: the slot is beyond the table, or too many requests wait. That a slot is taken shows
    /// only at the poll: it is counted in [`crate::Anomalies::attach_refused`].
    pub fn attach(&self, state: Arc<QueuePairState>, sides: Sides) -> Result<(), HandleError> {
        let slot = state.context.slot() as u32;
        if slot as usize >= self.slots {
            let slots = self.slots;
            return Err(AttachError::NoSuchSlot { slot, slots }.into());
        }
        self.inbox.put(Request::Attach(state, sides))
    }

    /// Makes the queue forget a queue pair; its requests that have not completed are discarded. The
    /// queue does so at the beginning of its next poll, and delivers no completion of it afterwards.
    ///
    /// To be called when the device has destroyed the queue pair. Done when the reference that the
    /// queue held to its state is gone ([`Arc::strong_count`]).
    pub fn detach(&self, context: CompletionContext) -> Result<(), HandleError> {
        self.inbox.put(Request::Detach(context))
    }

    /// Completes what is outstanding, and all that will be posted, as flushed.
    ///
    /// To be called when the device has answered a flush: then all completions that it will ever
    /// write for this queue are in memory, and the poll takes those first.
    pub fn flush(&self, context: CompletionContext, side: QueueSide) -> Result<(), HandleError> {
        self.inbox.put(Request::Flush(context, side))
    }
}
