//! Queue pairs that failed a short time ago.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Queue pairs that failed a short time ago. The device writes one completion for each queue of
/// such a pair, and an event for that; the library completes the other requests, and those that are
/// posted while the pair fails.
#[derive(Default)]
pub(crate) struct Failing {
    /// when they failed, by number
    times: Mutex<HashMap<u32, Instant>>,
}

impl Failing {
    /// The event of the device has been taken by then: it comes before the library's own one.
    const REST: Duration = Duration::from_millis(50);
    /// A thread that has begun to post has done it by then.
    const TIME: Duration = Duration::from_secs(2);

    /// A queue pair has failed.
    pub(crate) fn add(&self, queue_pair: u32) {
        self.times().insert(queue_pair, Instant::now());
    }

    /// The numbers of those that it is time to look at; for the last time of those whose time is
    /// over.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.numbers_at(Instant::now())
    }

    fn numbers_at(&self, now: Instant) -> Vec<u32> {
        let mut times = self.times();
        let age = |failed: &Instant| now.saturating_duration_since(*failed);
        let due = times.iter().filter(|(_, failed)| age(failed) >= Self::REST);
        let numbers = due.map(|(number, _)| *number).collect();
        times.retain(|_, failed| age(failed) < Self::TIME);
        numbers
    }

    fn times(&self) -> MutexGuard<'_, HashMap<u32, Instant>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Failing;
    use std::time::Instant;

    #[test]
    fn each_is_looked_at_after_a_rest_and_once_more_when_its_time_is_over() {
        let failing = Failing::default();
        let begun = Instant::now();
        failing.add(7);
        assert!(failing.numbers_at(begun).is_empty());
        let end = Instant::now() + Failing::TIME;
        assert_eq!(failing.numbers_at(begun + Failing::TIME / 2), [7]);
        assert_eq!(failing.numbers_at(end), [7]);
        assert!(failing.numbers_at(end).is_empty());
    }
}
