//! Moments, deadlines, and the clock that a caller injects.
//!
//! Engines take the time as an argument ([`Instant`]); code that waits takes a [`Clock`]. Neither
//! reads the operating system's clock, so a test or a simulation controls the time.
#![forbid(unsafe_code)]

use std::time::Duration;

/// A moment, in nanoseconds since the clock's own start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The moment `after` later; saturates instead of wrapping.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time, also used for waits.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Instant;

    /// Lets time pass while waiting for a device: at most `at_most`, possibly much less.
    ///
    /// In production this spins or yields; in simulation it advances the model and its clock. A
    /// caller therefore always loops on its own condition and its own deadline.
    fn pause(&self, at_most: Duration);
}

/// A moment after which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The start of the wait.
    pub start: Instant,
    /// The end of the wait.
    pub end: Instant,
}

impl Deadline {
    /// Makes a deadline `limit` from now.
    #[must_use]
    pub fn after(clock: &dyn Clock, limit: Duration) -> Self {
        let start = clock.now();
        Self {
            start,
            end: start.plus(limit),
        }
    }

    /// True once the time is up.
    #[must_use]
    pub fn passed(&self, clock: &dyn Clock) -> bool {
        clock.now() >= self.end
    }

    /// The permitted length of the whole wait.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// Waits until `ready` returns a value or `limit` has passed, calling it every `step`.
///
/// `ready` is called once more after the deadline, so that a process that was not scheduled for a
/// while does not report a timeout of the device.
pub fn wait_for<T, E>(
    clock: &dyn Clock,
    limit: Duration,
    step: Duration,
    mut ready: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let deadline = Deadline::after(clock, limit);
    loop {
        let last = deadline.passed(clock);
        if let Some(value) = ready()? {
            return Ok(Some(value));
        }
        if last {
            return Ok(None);
        }
        clock.pause(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Stepping(AtomicU64);
    impl Clock for Stepping {
        fn now(&self) -> Instant {
            Instant(self.0.load(Ordering::Relaxed))
        }
        fn pause(&self, at_most: Duration) {
            self.0
                .fetch_add(at_most.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    #[test]
    fn moments_and_times_stop_at_the_ends_of_the_clock() {
        let (late, early) = (Instant(u64::MAX - 1), Instant(7));
        assert_eq!(late.plus(Duration::from_nanos(1)), Instant(u64::MAX));
        assert_eq!(late.plus(Duration::from_nanos(2)), Instant(u64::MAX));
        // More nanoseconds than 64 bits hold.
        assert_eq!(early.plus(Duration::MAX), Instant(u64::MAX));
        assert_eq!(late.since(early), Duration::from_nanos(u64::MAX - 8));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn a_deadline_has_passed_from_its_moment_on() {
        let clock = Stepping(AtomicU64::new(5));
        let deadline = Deadline::after(&clock, Duration::from_nanos(10));
        assert_eq!(deadline.limit(), Duration::from_nanos(10));
        for (time, passed) in [(14, false), (15, true), (16, true)] {
            clock.0.store(time, Ordering::Relaxed);
            assert_eq!(deadline.passed(&clock), passed, "at {time}");
        }
    }

    /// A process that is not scheduled for a while looks once more, and finds what came meanwhile.
    #[test]
    fn what_comes_during_the_last_pause_is_found() {
        let clock = Stepping(AtomicU64::new(0));
        let step = Duration::from_millis(1);
        let mut looks = 0;
        let result: Result<_, ()> = wait_for(&clock, step, 100 * step, || {
            looks += 1;
            Ok((looks == 2).then_some(looks))
        });
        assert_eq!(result, Ok(Some(2)));
    }

    #[test]
    fn a_wait_ends_at_its_deadline_after_one_more_check() {
        let clock = Stepping(AtomicU64::new(0));
        let mut asked = 0;
        let step = Duration::from_millis(1);
        let result: Result<Option<()>, ()> = wait_for(&clock, 10 * step, step, || {
            asked += 1;
            Ok(None)
        });
        assert_eq!(result, Ok(None));
        assert_eq!((asked, clock.now()), (11, Instant(10_000_000)));
    }
}
