//! The requests that a queue pair has outstanding.

use super::QueuePair;
use crate::rdma::earlier::Earlier;

impl<S> QueuePair<S> {
    /// The sends that are outstanding now.
    #[must_use]
    pub fn outstanding_sends(&self) -> Earlier {
        Earlier::sends(&self.inner.send)
    }

    /// The receives that are outstanding now; `None` if a shared receive queue feeds it.
    #[must_use]
    pub fn outstanding_receives(&self) -> Option<Earlier> {
        self.inner.receive.as_ref().map(Earlier::receives)
    }
}
