//! Requests that were posted before a moment.

use super::QueuePair;
use ringside_qp::{QueuePairState, ReceiveQueue};
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

impl<S> QueuePair<S> {
    /// The sends that are outstanding now.
    #[must_use]
    pub fn outstanding_sends(&self) -> Earlier {
        Earlier {
            state: Arc::clone(self.inner.send.state()),
            is_send: true,
            head: self.inner.send.head(),
        }
    }

    /// The receives that are outstanding now; `None` if a shared receive queue feeds it.
    #[must_use]
    pub fn outstanding_receives(&self) -> Option<Earlier> {
        let of = |queue: &ReceiveQueue| Earlier {
            state: Arc::clone(queue.state()),
            is_send: false,
            head: queue.head(),
        };
        self.inner.receive.as_ref().map(of)
    }
}
