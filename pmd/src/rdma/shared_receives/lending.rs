//! Queue pairs that receive into memory of the shared queue's owner, who copies each message.

use super::SharedReceiveQueue;
use crate::rdma::{Completion, CompletionQueue, Event, RdmaError};
use ringside_qp::Fragment;
use ringside_spec::rdma::ae_codes::{AeCode, FlushCode};
use ringside_spec::rdma::events::Side;
use std::sync::atomic::Ordering;

/// The memory that a receive named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A receive posted to the shared queue, or a send.
    Posted,
    /// A lent one: the completion's `id` is that of [`SharedReceiveQueue::lend`].
    Lent,
}

/// Lending.
///
/// A receive that a queue pair has in its own queue cannot be taken back: few receives among many
/// queue pairs can all be where no message comes, while others wait. A queue that lends has no such
/// limit: each queue pair receives into places that the owner lends, and a posted receive is used
/// when a message is there, for any of the queue pairs. The owner copies each message.
impl SharedReceiveQueue {
    /// Gives queue pairs no more posted receives from now on: the owner gives them places with
    /// [`Self::lend`], polls with [`Self::poll_lent`] and takes receives with [`Self::take_for`].
    /// Receives that they have are used first. It cannot be ended.
    ///
    /// Control path.
    pub fn begin_lending(&mut self) {
        self.inner.begin_lending();
    }

    /// True once [`Self::begin_lending`] was called.
    #[must_use]
    pub fn is_lending(&self) -> bool {
        self.inner.is_lending()
    }

    /// Lends a queue pair that it feeds a place for one message. False if its receive queue is
    /// full, or it is not fed by this queue.
    pub fn lend(&mut self, queue_pair: u32, id: u64, place: Fragment) -> bool {
        self.inner.lend(queue_pair, id, place)
    }

    /// Takes the oldest posted receive for a message that is in a lent place: calls `fill` with its
    /// number and its fragments. `None` if there is none: the message has to wait.
    pub fn take_for<R>(&mut self, fill: impl FnOnce(u64, &[Fragment]) -> R) -> Option<R> {
        self.inner.take_for(fill)
    }

    /// Bytes that the receive which [`Self::take_for`] takes next has room for. `None` if there is
    /// none.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        self.inner.room()
    }

    /// Breaks the connection of a queue pair whose message could not be delivered: a card does the
    /// same where a message does not fit its receive. `code` is the card's code for the reason. An
    /// [`Event::QueuePairFailed`] is reported, unless it had failed before.
    ///
    /// Errors: as for [`QueuePair::fail`](crate::rdma::QueuePair::fail).
    #[cold]
    pub fn fail(&mut self, queue_pair: u32, code: AeCode) -> Result<(), RdmaError> {
        let engine = self.domain.engine();
        let mut state = engine.open_state()?;
        let general = FlushCode::General;
        let failed = state.fail_queue_pair(queue_pair, general, general, None);
        match failed {
            Ok(None) => {}
            Ok(flushed) => state.report_later([Event::QueuePairFailed {
                queue_pair,
                code,
                side: Side::ReceiveQueue,
                reason: code.flush_code().event(),
                flushed,
            }]),
            Err(_) => engine.look_after(&mut state, true),
        }
        failed.map(|_| ())
    }

    /// Polls one completion, as [`Self::poll`] does, and says whose place a receive named. Lent
    /// places that were flushed unused are not reported.
    pub fn poll_lent(&mut self, queue: &mut CompletionQueue) -> Option<(Completion, Place)> {
        let mut done = Completion::EMPTY;
        while queue.poll_one(&mut done) {
            if let Some(found) = self.accept(queue, done) {
                return Some(found);
            }
        }
        self.take_flushed().map(|left| (left, Place::Posted))
    }

    /// Takes a completion of a queue pair that it feeds, which the caller polled from `queue`, one
    /// at a time: so that one completion queue serves the queue pairs of several shared queues.
    /// Says whose place a receive named; `None` for a receive that was flushed unused, which serves
    /// others.
    pub fn accept(
        &mut self,
        queue: &CompletionQueue,
        done: Completion,
    ) -> Option<(Completion, Place)> {
        if done.is_send() || done.outlives_queue_pair() {
            return Some((done, Place::Posted));
        }
        let place = match self.inner.is_lent(done.queue_pair()) {
            true => Place::Lent,
            false => Place::Posted,
        };
        if done.is_received() {
            self.inner.consumed(done.queue_pair());
        } else if self.sort_failed(queue, &mut [done], 0, 1) == 0 {
            return None;
        }
        Some((done, place))
    }

    /// The next receive that is left once the device failed, when the completion queues of its
    /// queue pairs are empty: flushed, of queue pair 0. `None` while the device is in service.
    pub fn take_flushed(&mut self) -> Option<Completion> {
        if !self.is_to_attend() {
            return None;
        }
        let mut one = [Completion::EMPTY];
        (self.attend(&mut one) == 1).then_some(one[0])
    }

    /// True if [`Self::take_flushed`] gives a receive, once the completion queues are empty.
    #[must_use]
    pub fn owes_flushed(&self) -> bool {
        self.domain.engine().over.load(Ordering::Relaxed) && self.left() > 0
    }
}
