//! Slices of time of a bandwidth test: the best of them is its peak.

/// Slices of at least this long are compared for the peak.
pub(crate) const SLICE_NANOSECONDS: u64 = 5_000_000;

/// The longest time between two looks at the completion queue at whose end a slice may end: what
/// completed in it counts for the one or the other.
const LOOK_NANOSECONDS: u64 = SLICE_NANOSECONDS / 32;

/// Finds the best of the slices of time that a test consists of. Times: nanoseconds since the start
/// of the measurement.
#[derive(Default)]
pub(crate) struct Slices {
    /// the last look at the completion queue
    looked: u64,
    began: u64,
    /// messages that were done when it began
    done: u64,
    /// messages in a second
    pub(crate) peak: f64,
}

impl Slices {
    /// Takes a look at the completion queue: so many messages are done, and `drained` if no
    /// completion was left.
    ///
    /// A slice ends only with a look that saw everything which had completed, soon after the one
    /// before. The completions that pile up while this thread is away would else fall into the
    /// slice after the pause, and show a peak that never happened.
    pub(crate) fn look(&mut self, now: u64, done: u64, drained: bool) {
        let since = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let slice = now.saturating_sub(self.began);
        if slice < SLICE_NANOSECONDS || since > LOOK_NANOSECONDS || !drained {
            return;
        }
        let messages = done.saturating_sub(self.done) as f64;
        self.peak = self.peak.max(messages * 1e9 / slice as f64);
        (self.began, self.done) = (now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 100_000;

    /// A message in each 50 us, 100 in a slice, until `end`.
    fn steady(slices: &mut Slices, end: u64) {
        let mut now = slices.looked;
        while now < end {
            now += LOOK;
            slices.look(now, now / 50_000, true);
        }
    }

    /// The peak, as a multiple of the rate of [`steady`].
    fn peak(slices: &Slices) -> f64 {
        slices.peak / 20_000.0
    }

    #[test]
    fn completions_that_pile_up_during_a_pause_are_no_peak() {
        let mut slices = Slices::default();
        steady(&mut slices, 3 * SLICE_NANOSECONDS);
        // Away for four slices, in the middle of one; the pile is taken in batches, the last of
        // which leaves nothing.
        let mut now = slices.looked + 4 * SLICE_NANOSECONDS;
        let all = now / 50_000;
        for left in (0..=6).rev() {
            slices.look(now, all - left * 64, left == 0);
            now += 1_000;
        }
        steady(&mut slices, 12 * SLICE_NANOSECONDS);
        assert!((0.9..1.1).contains(&peak(&slices)), "{}", peak(&slices));
    }

    #[test]
    fn completions_of_a_pause_after_the_poll_are_no_peak() {
        let mut slices = Slices::default();
        steady(&mut slices, 2 * SLICE_NANOSECONDS);
        // The poll found nothing, and the clock was looked at only after the pause.
        let now = slices.looked + 3 * SLICE_NANOSECONDS / 2;
        slices.look(now, slices.looked / 50_000, true);
        steady(&mut slices, 8 * SLICE_NANOSECONDS);
        assert!((0.9..1.1).contains(&peak(&slices)), "{}", peak(&slices));
    }

    #[test]
    fn a_slice_of_more_messages_is_the_peak() {
        let mut slices = Slices::default();
        steady(&mut slices, 2 * SLICE_NANOSECONDS);
        let (start, done) = (slices.looked, slices.looked / 50_000);
        for look in 1..=50 {
            slices.look(start + look * LOOK, done + look * 6, true);
        }
        assert!((2.9..3.1).contains(&peak(&slices)), "{}", peak(&slices));
    }
}
