//! Recoveries that follow one another: a device that fails again soon after each of them is left
//! out of service for longer and longer.

use ringside_bus::clock::Instant;
use std::time::Duration;

/// A failure so soon after a recovery belongs to the series of that recovery.
const SOON: Duration = Duration::from_secs(10);
/// Recoveries of a series without a pause: one failure may hide others.
const AT_ONCE: u32 = 4;
/// The longest pause, in intervals between two attempts.
const MAX_PAUSE: u32 = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// the end of the last recovery
    recovered: Option<Instant>,
    /// recoveries one soon after the other, with the last one
    length: u32,
    /// the time of the next recovery, once the failure was seen
    due: Option<Instant>,
}

impl Series {
    /// Notes a recovery. One that [`Series::is_due`] did not decide is the program's own, and
    /// begins a series.
    pub(crate) fn note(&mut self, now: Instant) {
        if self.due.is_none() {
            self.length = 0;
        }
        self.recovered = Some(now);
        self.length = self.length.saturating_add(1);
        self.due = None;
    }

    /// True if a device that failed may be recovered now; `interval` is the one between attempts
    /// that fail. The first call after a failure decides the time.
    pub(crate) fn is_due(&mut self, now: Instant, interval: Duration) -> bool {
        let due = match self.due {
            Some(due) => due,
            None => self.decide(now, interval),
        };
        now >= due
    }

    fn decide(&mut self, now: Instant, interval: Duration) -> Instant {
        let due = match self.recovered {
            Some(recovered) if now.since(recovered) < SOON => {
                recovered.plus(interval.saturating_mul(pause(self.length)))
            }
            _ => {
                self.length = 0;
                now
            }
        };
        self.due = Some(due);
        due
    }
}

/// The pause after the last recovery of a series of this length, in intervals.
fn pause(length: u32) -> u32 {
    match length.checked_sub(AT_ONCE) {
        Some(beyond) => 1_u32
            .checked_shl(beyond)
            .unwrap_or(MAX_PAUSE)
            .min(MAX_PAUSE),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, SOON, Series};
    use ringside_bus::clock::Instant;
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_secs(1);
    const STEP: Duration = Duration::from_millis(100);

    /// The pause before a recovery of a device that failed at `now`.
    fn pause(series: &mut Series, now: &mut Instant) -> Duration {
        let failed = *now;
        while !series.is_due(*now, INTERVAL) {
            *now = now.plus(STEP);
        }
        series.note(*now);
        now.since(failed)
    }

    #[test]
    fn pauses_grow_while_a_device_fails_soon_after_each_recovery() {
        let (mut series, mut now) = (Series::default(), Instant(0));
        for _ in 0..AT_ONCE {
            assert_eq!(pause(&mut series, &mut now), Duration::ZERO);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            let wanted = Duration::from_secs(seconds);
            assert_eq!(pause(&mut series, &mut now), wanted);
        }
        now = now.plus(SOON);
        for _ in 0..AT_ONCE {
            assert_eq!(pause(&mut series, &mut now), Duration::ZERO);
        }
        assert_eq!(pause(&mut series, &mut now), INTERVAL);
    }

    #[test]
    fn recoveries_by_the_program_make_no_pause() {
        let (mut series, now) = (Series::default(), Instant(0));
        for _ in 0..100 {
            series.note(now);
        }
        assert!(series.is_due(now, INTERVAL));
    }

    #[test]
    fn a_series_of_any_length_and_any_interval_has_a_pause() {
        let (mut series, now) = (Series::default(), Instant(0));
        series.note(now);
        series.length = 100;
        assert!(!series.is_due(now, Duration::MAX));
        series.length = u32::MAX;
        series.note(now);
        assert!(!series.is_due(now, INTERVAL));
        assert!(series.is_due(now.plus(32 * INTERVAL), INTERVAL));
    }
}
