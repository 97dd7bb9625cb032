//! The production clock: the processor's time stamp counter.
#![allow(unsafe_code)] // reads the time stamp counter, which has no safe wrapper in `core`

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use ringside_clock::{Clock, Deadline, Instant, wait_for};

/// Raw ticks of the processor's time stamp counter.
///
/// Meant for a data path: one time stamp a burst. Steps may be coarse (10 ns on some virtual
/// machines).
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

/// True if the processor reports that its time stamp counter runs at a constant rate in every power
/// state. Source: Intel SDM volume 2, CPUID leaf 80000007H, EDX bit 8.
#[must_use]
pub fn has_invariant_counter() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        const LEAF: u32 = 0x8000_0007;
        __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx >> 8 & 1 == 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        true // `ticks` are the operating system's nanoseconds
    }
}

/// The source of a [`TscClock`].
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The time stamp counter, with nanoseconds for each 2^32 ticks.
    Counter { origin_ticks: u64, scale: u64 },
    /// The operating system's clock, where the counter's rate may change.
    System { origin: std::time::Instant },
}

/// The production clock: ticks scaled to nanoseconds; the operating system's clock on a processor
/// whose counter is not invariant.
///
/// It never runs backwards. If a counter steps back (different cores, a virtual machine that was
/// moved), the clock stays at its latest value until the counter has passed it again.
#[derive(Debug)]
pub struct TscClock {
    source: Source,
    scale: u64,
    /// the latest value returned, in nanoseconds
    latest: AtomicU64,
}

impl TscClock {
    /// Measures the counter against the operating system's clock. Takes about 5 ms, once per
    /// process.
    #[must_use]
    pub fn new() -> Self {
        let scale = match SCALE.load(Ordering::Relaxed) {
            0 => {
                let measured = measure();
                let first =
                    SCALE.compare_exchange(0, measured, Ordering::Relaxed, Ordering::Relaxed);
                first.err().unwrap_or(measured)
            }
            known => known,
        };
        let source = if has_invariant_counter() {
            let origin_ticks = ticks();
            Source::Counter {
                origin_ticks,
                scale,
            }
        } else {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    "the processor's time stamp counter is not invariant: the operating system's \
                     clock is used, which takes longer to read"
                );
            });
            let origin = std::time::Instant::now();
            Source::System { origin }
        };
        Self {
            source,
            scale,
            latest: AtomicU64::new(0),
        }
    }

    /// Returns a span of ticks in nanoseconds.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self, span_ticks: u64) -> u64 {
        scaled(span_ticks, self.scale)
    }

    /// Returns the moment at `nanoseconds`, or the latest one returned if that is later.
    ///
    /// Two threads that call at the same moment may store the earlier of their two values: the
    /// guard is then slightly weaker, and still no thread sees its own time step back.
    #[inline]
    fn not_before_latest(&self, nanoseconds: u64) -> Instant {
        let latest = self.latest.load(Ordering::Relaxed);
        if nanoseconds <= latest {
            return Instant(latest);
        }
        self.latest.store(nanoseconds, Ordering::Relaxed);
        Instant(nanoseconds)
    }
}

/// Nanoseconds for each 2^32 ticks; 0 until measured. Threads that begin at a time each measure,
/// and take the first result: a child of a fork would wait without end for a measurement that was
/// another thread's.
static SCALE: AtomicU64 = AtomicU64::new(0);

/// Readings of both clocks, of which the closest pair counts: the processor may be taken away
/// between the two.
const READINGS: u32 = 16;

/// The operating system's clock and the counter at the same moment.
fn both(
    system: impl Fn() -> std::time::Instant,
    counter: impl Fn() -> u64,
) -> (std::time::Instant, u64) {
    let read = |_| {
        let before = counter();
        let moment = system();
        // A counter that steps back is another processor's.
        let took = counter().checked_sub(before)?;
        Some((took, (moment, before + took / 2)))
    };
    let closest = (0..READINGS).filter_map(read).min_by_key(|(took, _)| *took);
    closest.map_or_else(|| (system(), counter()), |(_, pair)| pair)
}

fn measure() -> u64 {
    let (began, first) = both(std::time::Instant::now, ticks);
    while began.elapsed() < Duration::from_millis(5) {
        std::hint::spin_loop();
    }
    let (ended, last) = both(std::time::Instant::now, ticks);
    let span = u128::from(last.saturating_sub(first).max(1));
    u64::try_from((ended.duration_since(began).as_nanos() << 32) / span)
        .unwrap_or(1 << 32)
        .max(1)
}

#[inline]
fn scaled(span_ticks: u64, scale: u64) -> u64 {
    ((u128::from(span_ticks) * u128::from(scale)) >> 32) as u64
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    fn now(&self) -> Instant {
        let nanoseconds = match self.source {
            // A counter behind its origin has stepped back: the guard returns the latest moment.
            Source::Counter {
                origin_ticks,
                scale,
            } => scaled(ticks().saturating_sub(origin_ticks), scale),
            Source::System { origin } => {
                u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
        };
        self.not_before_latest(nanoseconds)
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

    #[test]
    fn an_interruption_between_the_clocks_is_no_part_of_the_measurement() {
        use std::cell::Cell;
        // The thread loses its processor at every reading of the system's clock but one.
        let (counter, readings) = (Cell::new(0), Cell::new(0));
        let origin = std::time::Instant::now();
        let system = || {
            readings.set(readings.get() + 1);
            if readings.get() != 9 {
                counter.set(counter.get() + 1_000_000);
            }
            origin + Duration::from_micros(readings.get())
        };
        let step = || {
            counter.set(counter.get() + 10);
            counter.get()
        };
        let (moment, at) = both(system, step);
        assert_eq!(moment, origin + Duration::from_micros(9));
        assert_eq!(at, 8 * 1_000_020 + 15);
    }

    #[test]
    fn a_counter_that_steps_back_between_its_readings_is_not_the_closest() {
        use std::cell::Cell;
        let readings = Cell::new(0_u64);
        let origin = std::time::Instant::now();
        let counter = || {
            readings.set(readings.get() + 1);
            // Each third pair ends on a processor whose counter is behind.
            let behind = if readings.get().is_multiple_of(6) {
                5_000
            } else {
                0
            };
            10_000 + 10 * readings.get() - behind
        };
        let (_, at) = both(|| origin, counter);
        assert_eq!(at, 10_015, "the first pair");
        let always = Cell::new(1_000_u64);
        let back = || {
            always.set(always.get() - 1);
            always.get()
        };
        assert_eq!(
            both(|| origin, back).1,
            967,
            "any reading, if there is no pair"
        );
    }

    #[test]
    fn a_counter_that_steps_back_holds_the_clock_where_it_was() {
        let mut clock = TscClock::new();
        // The first moment of a clock may be 0: the counter may not have stepped since.
        let before = clock.not_before_latest(clock.now().0.max(1));
        // The counter is set back behind its value when the clock was made.
        clock.source = Source::Counter {
            origin_ticks: ticks() + (1 << 50),
            scale: clock.scale,
        };
        assert_eq!(clock.now(), before);
        assert_eq!(clock.not_before_latest(before.0 - 1), before);
        assert_eq!(clock.not_before_latest(before.0 + 1), Instant(before.0 + 1));
    }

    #[test]
    fn without_an_invariant_counter_the_systems_clock_serves() {
        let mut clock = TscClock::new();
        let origin = std::time::Instant::now();
        clock.source = Source::System { origin };
        std::thread::sleep(Duration::from_millis(5));
        let passed = clock.now().since(Instant(0));
        assert!(passed >= Duration::from_millis(5), "{passed:?}");
        assert!(passed <= origin.elapsed());
    }
}
