//! The time for which packets are forwarded: pauses do not count.

use std::time::{Duration, Instant};

/// See the module. It begins paused.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// until the last pause
    before: Duration,
    /// the end of the last pause; none during one
    since: Option<Instant>,
}

impl Stopwatch {
    /// A second call changes nothing.
    pub(super) fn run(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// A second call changes nothing.
    pub(super) fn pause(&mut self, now: Instant) {
        self.before = self.elapsed(now);
        self.since = None;
    }

    /// The time without the pauses.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        let since = self.since.map(|since| now.saturating_duration_since(since));
        self.before + since.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut watch = Stopwatch::default();
        let elapsed = |watch: &Stopwatch, seconds| watch.elapsed(at(seconds)).as_secs();
        assert_eq!(elapsed(&watch, 5), 0);
        watch.run(at(5));
        watch.run(at(6));
        assert_eq!(elapsed(&watch, 8), 3);
        watch.pause(at(9));
        watch.pause(at(20));
        assert_eq!(elapsed(&watch, 30), 4);
        watch.run(at(40));
        assert_eq!(elapsed(&watch, 41), 5);
    }
}
