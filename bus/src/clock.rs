//! Time, injected: the time stamp counter in production, a virtual clock in simulation.
#![allow(unsafe_code)] // reads the time stamp counter, which has no safe wrapper in `core`

use std::time::Duration;

/// A moment, in nanoseconds since the clock's own start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The moment `after` later; stops at the end of time rather than wrapping.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What the driver asks the time of, and through which it waits.
pub trait Clock: Send + Sync {
    /// Now.
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
    /// When waiting started.
    pub start: Instant,
    /// When it ends.
    pub end: Instant,
}

impl Deadline {
    /// Waiting from now for at most `limit`.
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

    /// How long the whole wait was allowed to take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// Waits until `ready` gives a value or `limit` has passed, asking every `step`.
///
/// The condition is asked once more after the deadline, so that a process that was not scheduled
/// for a while does not blame the device.
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

/// Raw ticks of the processor's time stamp counter.
///
/// Meant for a data path: one stamp a burst. Steps may be coarse (10 ns on some virtual machines).
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC is part of every x86-64 processor, reads no memory and has no precondition.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        START
            .get_or_init(std::time::Instant::now)
            .elapsed()
            .as_nanos() as u64
    }
}

/// The production clock: ticks scaled to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    origin_ticks: u64,
    /// nanoseconds for each 2^32 ticks
    scale: u64,
}

impl TscClock {
    /// Measures the counter against the operating system's clock; takes about 5 ms, once a process.
    #[must_use]
    pub fn new() -> Self {
        use std::sync::OnceLock;
        static SCALE: OnceLock<u64> = OnceLock::new();
        let scale = *SCALE.get_or_init(|| {
            let (began, first) = (std::time::Instant::now(), ticks());
            while began.elapsed() < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
            let (elapsed, last) = (began.elapsed().as_nanos(), ticks());
            let span = u128::from(last.wrapping_sub(first).max(1));
            u64::try_from((elapsed << 32) / span).unwrap_or(1 << 32)
        });
        Self {
            origin_ticks: ticks(),
            scale,
        }
    }

    /// A span of ticks in nanoseconds.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self, span_ticks: u64) -> u64 {
        ((u128::from(span_ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    fn now(&self) -> Instant {
        Instant(self.nanoseconds(ticks().wrapping_sub(self.origin_ticks)))
    }

    fn pause(&self, at_most: Duration) {
        if at_most >= Duration::from_millis(1) {
            std::thread::sleep(at_most);
        } else if at_most >= Duration::from_micros(20) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
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
    fn a_wait_ends_at_its_deadline_and_asks_once_more() {
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

    #[test]
    fn ticks_scale_to_the_time_that_passes() {
        let clock = TscClock::new();
        let (start, real) = (clock.now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (ours, theirs) = (clock.now().since(start), real.elapsed());
        let difference = ours.abs_diff(theirs);
        assert!(
            difference < Duration::from_millis(10),
            "{ours:?} against {theirs:?}"
        );
    }
}
