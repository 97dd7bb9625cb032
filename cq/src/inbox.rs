//! Access from other cores to a completion queue that is being polled.

use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use crate::table::{AttachError, Sides};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use ringside_spec::verbs::completion::CompletionHeader;
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

/// Bits of a header that no header has once it is cut to what a poll compares.
pub(crate) const NOTHING_IS_PLAIN: u64 = CompletionHeader::MINOR_MASK;

/// Requests that wait for the polling core, and the word by which its polls notice them.
///
/// `expected` is what a plain success has in its header. Each poll compares the next slot with it.
/// Whoever puts a request in makes it [`NOTHING_IS_PLAIN`]: so the next poll takes nothing from the
/// ring before it has looked here. A poll needs no test of its own for that.
///
/// Both sides change the word by a swap. The polling core looks for requests after each of its own:
/// of two swaps the later one sees what came before the earlier. So either the request is seen, or
/// the word still says that nothing is plain.
#[derive(Debug)]
pub(crate) struct Inbox {
    expected: AtomicU64,
    requests: ArrayQueue<Request>,
}

impl Inbox {
    pub(crate) fn new(capacity: usize, expected: u64) -> Self {
        Self {
            expected: AtomicU64::new(expected),
            requests: ArrayQueue::new(capacity.max(1)),
        }
    }

    /// What a poll compares the next slot with: one relaxed load.
    #[inline(always)]
    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Has polls look for `plain` from now on, unless a request waits. For the polling core.
    pub(crate) fn expect(&self, plain: u64) {
        // One that came meanwhile has changed it: that stays.
        if self.expected() == plain {
            return;
        }
        self.expected.swap(plain, Ordering::AcqRel);
        if self.is_waiting() {
            self.expected.swap(NOTHING_IS_PLAIN, Ordering::AcqRel);
        }
    }

    /// True if a request waits. Not for each poll: [`Inbox::expected`] tells that.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(crate) fn take(&self) -> Option<Request> {
        self.requests.pop()
    }

    fn put(&self, request: Request) -> Result<(), HandleError> {
        self.requests
            .push(request)
            .map_err(|_| HandleError::InboxFull {
                waiting: self.requests.len(),
            })?;
        self.expected.swap(NOTHING_IS_PLAIN, Ordering::AcqRel);
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
