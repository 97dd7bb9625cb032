//! Requests that were posted before a moment.

use ringside_qp::{QueuePairState, ReceiveQueue, SendQueue};
use std::sync::Arc;

/// The requests that one side of a queue pair had outstanding at a moment. For completions that
/// software makes itself: they must not be delivered before those of earlier requests.
#[derive(Clone, Debug)]
pub struct Earlier {
    state: Arc<QueuePairState>,
    is_send: bool,
    /// quanta posted
    head: u64,
}

impl Earlier {
    /// The sends of this queue that are outstanding now.
    pub(super) fn sends(queue: &SendQueue) -> Self {
        Self {
            state: Arc::clone(queue.state()),
            is_send: true,
            head: queue.head(),
        }
    }

    /// The receives of this queue that are outstanding now.
    pub(super) fn receives(queue: &ReceiveQueue) -> Self {
        Self {
            state: Arc::clone(queue.state()),
            is_send: false,
            head: queue.head(),
        }
    }

    /// True if a poll of their completion queue has delivered all of them. Never true any more once
    /// the queue pair is destroyed with some outstanding.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        let tracker = match self.is_send {
            true => &self.state.send,
            false => &self.state.receive,
        };
        tracker.tail() >= self.head
    }
}
