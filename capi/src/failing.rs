//! Queue pairs that failed a short time ago.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Queue pairs that failed a short time ago. The device writes one completion for each queue of
/// such a pair, and an event for that; the library completes the other requests, and those that are
/// posted while the pair fails.
#[derive(Default)]
pub(crate) struct Failing {
    /// the end of the time, by number
    ends: Mutex<HashMap<u32, Instant>>,
}

impl Failing {
    /// A thread that has begun to post has done it by then, and programs have polled.
    const TIME: Duration = Duration::from_secs(2);

    /// A queue pair has failed.
    pub(crate) fn add(&self, queue_pair: u32) {
        self.ends().insert(queue_pair, Instant::now() + Self::TIME);
    }

    /// Their numbers, for the last time for those whose time is over.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut ends = self.ends();
        let numbers = ends.keys().copied().collect();
        if !ends.is_empty() {
            let now = Instant::now();
            ends.retain(|_, end| now < *end);
        }
        numbers
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<u32, Instant>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
