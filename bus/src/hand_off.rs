//! The time that a cache line takes from one core to another: it tells near cores from far ones.
//!
//! Figures of a driver and a model that spin on two cores depend on it, so each report of a bench
//! prints it.

use crate::pinning::{PinError, pin_to};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Turns of the probe.
const TURNS: u64 = 4_000;

/// Parts of which the median counts: a part during which another program had a core does not.
const PARTS: u64 = 20;

/// Looks at the line between two looks at the clock.
const LOOKS: u32 = 1_000;

/// The hand-off was not measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOffError {
    /// A core cannot be used.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// One of the cores did not run within the limit.
    #[error("core {first} and core {second} did not run at the same time for {limit:?}")]
    Busy {
        /// One of the cores.
        first: usize,
        /// The other one.
        second: usize,
        /// The limit.
        limit: Duration,
    },
    /// The operating system started no thread.
    #[error("the probe's threads could not be started: {0}")]
    Threads(String),
}

/// Measures how long a cache line takes from core `first` to core `second`. Returns nanoseconds,
/// the median of 20 parts.
///
/// Takes about a millisecond, and at most `limit`. Call it before other threads spin on the cores,
/// and from a thread that is not pinned.
///
/// # Errors
/// [`HandOffError`] if a core cannot be used, or did not run within `limit`.
pub fn hand_off(first: usize, second: usize, limit: Duration) -> Result<f64, HandOffError> {
    let probe = Probe {
        line: Line(AtomicU64::new(0)),
        ended: AtomicBool::new(false),
        until: Instant::now() + limit,
    };
    // Each side has a thread of its own: the caller stays on the cores that it had.
    let (asked, answered) = std::thread::scope(|scope| {
        let start = |name: &str| std::thread::Builder::new().name(name.into());
        let answers = start("hand-off-answers").spawn_scoped(scope, || probe.answer(second))?;
        let asks = start("hand-off-asks").spawn_scoped(scope, || probe.ask(first));
        if asks.is_err() {
            probe.ended.store(true, Ordering::Relaxed);
        }
        Ok((asks?.join(), answers.join()))
    })
    .map_err(|error: std::io::Error| HandOffError::Threads(error.to_string()))?;
    let panicked = |_| HandOffError::Threads("a thread panicked".into());
    answered.map_err(panicked)??;
    let nanoseconds = asked.map_err(panicked)??;
    nanoseconds.ok_or(HandOffError::Busy {
        first,
        second,
        limit,
    })
}

/// A number in a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

struct Probe {
    line: Line,
    /// One side has ended, so the other one does not wait for it.
    ended: AtomicBool,
    until: Instant,
}

impl Probe {
    /// True if the other side has ended or time is up.
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || Instant::now() > self.until
    }

    /// Answers each odd value with the next even one.
    fn answer(&self, core: usize) -> Result<(), HandOffError> {
        if let Err(error) = pin_to(core) {
            self.ended.store(true, Ordering::Relaxed);
            return Err(error.into());
        }
        let mut expected = 1;
        while expected < 2 * TURNS && !self.is_over() {
            for _ in 0..LOOKS {
                if self.line.0.load(Ordering::Acquire) == expected {
                    self.line.0.store(expected + 1, Ordering::Release);
                    expected += 2;
                }
            }
        }
        Ok(())
    }

    /// Returns nanoseconds of half a turn, or none if the other side did not answer in time.
    fn ask(&self, core: usize) -> Result<Option<f64>, HandOffError> {
        let asked = pin_to(core).map(|()| self.turns());
        self.ended.store(true, Ordering::Relaxed);
        Ok(asked?)
    }

    fn turns(&self) -> Option<f64> {
        const TURNS_OF_A_PART: u64 = TURNS / PARTS;
        let mut parts = Vec::with_capacity(PARTS as usize);
        let mut value = 1;
        for _ in 0..PARTS {
            let began = Instant::now();
            for _ in 0..TURNS_OF_A_PART {
                self.line.0.store(value, Ordering::Release);
                let mut looks = 0_u32;
                while self.line.0.load(Ordering::Acquire) != value + 1 {
                    looks += 1;
                    if looks.is_multiple_of(LOOKS) && self.is_over() {
                        return None;
                    }
                }
                value += 2;
            }
            parts.push(began.elapsed().as_secs_f64() * 1e9 / TURNS_OF_A_PART as f64 / 2.0);
        }
        parts.sort_by(f64::total_cmp);
        parts.get(parts.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinning::allowed_cores;

    #[test]
    fn two_cores_hand_a_line_over_within_the_limit() {
        let [first, second, ..] = *allowed_cores() else {
            return;
        };
        let began = Instant::now();
        let limit = Duration::from_secs(20);
        let nanoseconds = hand_off(first, second, limit).unwrap();
        assert!(nanoseconds > 1.0, "{nanoseconds}");
        assert!(nanoseconds < limit.as_nanos() as f64, "{nanoseconds}");
        assert!(began.elapsed() < limit, "{:?}", began.elapsed());
    }

    #[test]
    fn a_core_that_is_missing_is_named_at_once() {
        let first = allowed_cores()[0];
        for (one, other) in [(first, 100_000), (100_000, first)] {
            let began = Instant::now();
            let refused = hand_off(one, other, Duration::from_secs(60)).unwrap_err();
            assert!(matches!(refused, HandOffError::Pin(_)), "{refused}");
            assert!(refused.to_string().contains("100000"), "{refused}");
            assert!(began.elapsed() < Duration::from_secs(30));
        }
    }

    #[test]
    fn one_core_for_both_sides_ends_at_the_limit() {
        let core = allowed_cores()[0];
        let limit = Duration::from_millis(50);
        let began = Instant::now();
        let measured = hand_off(core, core, limit);
        let busy = HandOffError::Busy {
            first: core,
            second: core,
            limit,
        };
        assert_eq!(measured, Err(busy));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
