//! Waking a thread that waits for work.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes a thread that waits for work.
#[derive(Default)]
pub(crate) struct Wakeup {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    /// Ends a wait: the one under way, or the next.
    pub(crate) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits until it is set, or so long.
    pub(crate) fn wait(&self, limit: Duration) {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_set, limit, |is_set| !*is_set);
        let (mut is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *is_set = false;
    }
}
