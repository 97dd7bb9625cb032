//! Requests from other cores to a completion queue that is being polled.

use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use crate::table::{AttachError, Sides};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use ringside_spec::verbs::completion::CompletionHeader;
use std::sync::Arc;
use thiserror::Error;

/// Reasons why a request to a completion queue was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandleError {
    /// Too many requests wait for the next poll.
    #[error("{waiting} requests wait already: let the completion queue be polled, then try again")]
    InboxFull {
        /// requests that wait
        waiting: usize,
    },
    /// The queue pair does not fit the table.
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

/// Header bits that no header has after masking with the bits that a poll compares.
pub(crate) const NOTHING_IS_PLAIN: u64 = CompletionHeader::MINOR_MASK;

/// Requests that wait for the polling core, and the word by which its polls notice them.
///
/// `expected` holds the header of a plain success. Each poll compares the next slot with it. A core
/// that adds a request sets it to [`NOTHING_IS_PLAIN`], so the next poll takes nothing from the
/// ring before it has handled the request. A poll therefore needs no separate test for requests.
///
/// Both sides change the word by a swap. The polling core checks for requests after each of its own
/// swaps. Of two swaps the later one sees everything before the earlier one. So either the polling
/// core sees the request, or the word is still [`NOTHING_IS_PLAIN`].
#[derive(Debug)]
pub(crate) struct Inbox {
    expected: AtomicU64,
    requests: ArrayQueue<Request>,
    /// Places of the queue that are promised: one for each attachment that waits, and
    /// [`PLACES_LATER`] for each queue pair whose detachment was not read.
    promised: AtomicU64,
    places: u64,
}

/// Requests that follow the attachment of a queue pair: a flush of each side, and its detachment.
/// Each attachment keeps places for them, so that an end is never refused.
const PLACES_LATER: u64 = 3;
/// Places that an attachment takes.
const PLACES: u64 = 1 + PLACES_LATER;
/// The fewest requests from other cores that can wait for the next poll. With many queue pairs it
/// is more: all can be attached, flushed and detached without a poll between, and half as many be
/// made once more. A queue that is not polled takes a quarter as many queue pairs as requests,
/// those that have ended counted too.
pub(crate) const CAPACITY: usize = 512;

impl Inbox {
    /// One for up to `queue_pairs` context slots.
    pub(crate) fn new(queue_pairs: u32, expected: u64) -> Self {
        let places = CAPACITY.max(6 * queue_pairs as usize);
        Self {
            expected: AtomicU64::new(expected),
            requests: ArrayQueue::new(places),
            promised: AtomicU64::new(0),
            places: places as u64,
        }
    }

    /// Returns the header that a poll compares the next slot with: one relaxed load.
    #[inline(always)]
    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Makes polls look for `plain` from now on, unless a request waits. For the polling core.
    pub(crate) fn expect(&self, plain: u64) {
        // A request that arrived meanwhile has changed the word: it stays changed.
        if self.expected() == plain {
            return;
        }
        self.expected.swap(plain, Ordering::AcqRel);
        if self.is_waiting() {
            self.expected.swap(NOTHING_IS_PLAIN, Ordering::AcqRel);
        }
    }

    /// True if a request waits. Polls do not need it on every call: [`Inbox::expected`] covers
    /// that.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(crate) fn take(&self) -> Option<Request> {
        let request = self.requests.pop()?;
        match request {
            Request::Attach(..) => self.free(1),
            // Its flushes came before.
            Request::Detach(_) => self.free(PLACES_LATER),
            Request::Flush(..) => {}
        }
        Some(request)
    }

    /// Puts the attachment of a queue pair, if there is room for the requests that follow it, too.
    fn put_attachment(&self, request: Request) -> Result<(), HandleError> {
        let more = |promised: u64| Some(promised + PLACES).filter(|now| *now <= self.places);
        let promised = self
            .promised
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        match promised {
            Ok(_) => self.put(request).inspect_err(|_| self.free(PLACES)),
            Err(_) => Err(self.full()),
        }
    }

    fn has_room(&self) -> bool {
        self.promised.load(Ordering::Acquire) + PLACES <= self.places
    }

    fn free(&self, places: u64) {
        let less = |promised: u64| Some(promised.saturating_sub(places));
        let _ = self
            .promised
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn full(&self) -> HandleError {
        HandleError::InboxFull {
            waiting: self.requests.len(),
        }
    }

    fn put(&self, request: Request) -> Result<(), HandleError> {
        self.requests.push(request).map_err(|_| self.full())?;
        self.expected.swap(NOTHING_IS_PLAIN, Ordering::AcqRel);
        Ok(())
    }
}

/// Access to a completion queue from any core. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionQueueHandle {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) slots: usize,
}

impl CompletionQueueHandle {
    /// Makes the queue accept completions of a queue pair.
    ///
    /// Call it before the device can complete any request of the queue pair: before its first post.
    /// Errors: the slot is beyond the table, or too many requests wait. A slot that is in use is
    /// found only at the next poll, which counts it in [`crate::Anomalies::attach_refused`].
    ///
    /// With the attachment, the queue keeps room for the end of the queue pair: one flush of each
    /// side and [`Self::detach`] are not refused.
    pub fn attach(&self, state: Arc<QueuePairState>, sides: Sides) -> Result<(), HandleError> {
        let slot = state.context.slot() as u32;
        if slot as usize >= self.slots {
            let slots = self.slots;
            return Err(AttachError::NoSuchSlot { slot, slots }.into());
        }
        self.inbox.put_attachment(Request::Attach(state, sides))
    }

    /// Finds out if [`Self::attach`] has room, for a caller that is about to give something up for
    /// it. Errors: too many requests wait.
    pub fn check_room(&self) -> Result<(), HandleError> {
        match self.inbox.has_room() {
            true => Ok(()),
            false => Err(self.inbox.full()),
        }
    }

    /// Detaches a queue pair; its requests that have not completed are discarded. The queue does so
    /// at the beginning of its next poll, and delivers no completion of the queue pair afterwards.
    ///
    /// Call it when the device has destroyed the queue pair. It is complete when the queue has
    /// dropped its reference to the queue pair's state ([`Arc::strong_count`]).
    pub fn detach(&self, context: CompletionContext) -> Result<(), HandleError> {
        self.inbox.put(Request::Detach(context))
    }

    /// Completes all outstanding requests, and all requests posted later, as flushed.
    ///
    /// Call it when the device has completed a flush command: all completions that it will write
    /// for this queue are then in memory, and the poll takes those first.
    pub fn flush(&self, context: CompletionContext, side: QueueSide) -> Result<(), HandleError> {
        self.inbox.put(Request::Flush(context, side))
    }
}
