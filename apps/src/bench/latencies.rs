//! The latencies of a test: a distribution, and the exact least, greatest and mean one.

use hdrhistogram::Histogram;
use std::io::{self, Write};

/// The longest latency that the distribution tells from longer ones, nanoseconds.
const LONGEST: u64 = 10_000_000_000;

/// Latencies in nanoseconds. The distribution has two significant digits, from 1 ns to 10 s: its
/// values are the upper ends of buckets that are up to 0.8 % wide. It never grows while recording.
pub(crate) struct Latencies {
    distribution: Histogram<u64>,
    least: u64,
    most: u64,
    sum: u64,
    /// messages without a latency
    untimed: u64,
}

impl Latencies {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            distribution: Histogram::new_with_bounds(1, LONGEST, 2)?,
            least: u64::MAX,
            most: 0,
            sum: 0,
            untimed: 0,
        })
    }

    /// Records one; 0 counts as 1 ns.
    #[inline]
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        let nanoseconds = nanoseconds.max(1);
        self.least = self.least.min(nanoseconds);
        self.most = self.most.max(nanoseconds);
        self.sum = self.sum.saturating_add(nanoseconds);
        self.distribution.saturating_record(nanoseconds);
    }

    /// Counts a message that was not timed.
    pub(crate) fn skip(&mut self) {
        self.untimed += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.distribution.is_empty()
    }

    /// Latencies recorded.
    pub(crate) fn count(&self) -> u64 {
        self.distribution.len()
    }

    /// Messages, with those that were not timed.
    pub(crate) fn messages(&self) -> u64 {
        self.count() + self.untimed
    }

    /// The exact least one; 0 if there is none.
    pub(crate) fn least(&self) -> u64 {
        self.least.min(self.most)
    }

    /// The exact greatest one; 0 if there is none.
    pub(crate) const fn most(&self) -> u64 {
        self.most
    }

    /// The latency that this fraction of all does not exceed, up to 0.8 % too much.
    pub(crate) fn at(&self, quantile: f64) -> u64 {
        self.distribution.value_at_quantile(quantile).min(self.most)
    }

    /// The latency that all but one in `beyond` do not exceed: the greatest one if there are fewer
    /// messages than `beyond`, as perftest has it.
    pub(crate) fn all_but_one_in(&self, beyond: u32) -> u64 {
        let greater = self.messages() / u64::from(beyond);
        if greater == 0 {
            return self.most;
        }
        let rank = self.count().saturating_sub(greater);
        // The distribution rounds up to the next rank.
        self.at((rank as f64 - 0.5) / self.count().max(1) as f64)
    }

    /// The exact mean, nanoseconds; 0 if there is none.
    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }

    /// The standard deviation of the distribution, nanoseconds.
    pub(crate) fn deviation(&self) -> f64 {
        self.distribution.stdev()
    }

    /// Writes the distribution the way HdrHistogram's own tools do, values in microseconds.
    pub(crate) fn write_percentiles(&self, out: &mut dyn Write) -> io::Result<()> {
        let times = &self.distribution;
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut total = 0;
        for step in times.iter_quantiles(5) {
            total += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let value = step.value_iterated_to().min(self.most) as f64 / 1000.0;
            if quantile < 1.0 {
                writeln!(
                    out,
                    "{value:12.3} {quantile:14.12} {total:10} {:14.2}",
                    1.0 / (1.0 - quantile)
                )?;
            } else {
                writeln!(out, "{value:12.3} {quantile:14.12} {total:10}")?;
            }
        }
        writeln!(
            out,
            "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]",
            self.mean() / 1000.0,
            times.stdev() / 1000.0
        )?;
        writeln!(
            out,
            "#[Max     = {:12.3}, Total count    = {:12}]",
            self.most as f64 / 1000.0,
            times.len()
        )?;
        writeln!(
            out,
            "#[Buckets = {:12}, SubBuckets     = {:12}]",
            times.buckets(),
            parts_of_a_bucket(times)
        )
    }
}

/// The parts of each of a histogram's buckets: enough to tell its digits apart. Source:
/// HdrHistogram, `subBucketCount`.
fn parts_of_a_bucket(times: &Histogram<u64>) -> u64 {
    (2 * 10_u64.pow(times.sigfig().into())).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_exact_and_no_percentile_exceeds_the_greatest() {
        let mut times = Latencies::new().unwrap();
        assert_eq!((times.least(), times.most(), times.at(0.5)), (0, 0, 0));
        for nanoseconds in [10_158_081, 2_001, 20_000_000_001] {
            times.record(nanoseconds);
        }
        assert_eq!((times.least(), times.most()), (2_001, 20_000_000_001));
        let mut times = Latencies::new().unwrap();
        times.record(10_158_081);
        assert_eq!((times.at(0.5), times.at(1.0)), (10_158_081, 10_158_081));
        times.record(10_158_083);
        assert_eq!(times.mean(), 10_158_082.0);
    }

    #[test]
    fn a_percentile_of_fewer_messages_than_it_leaves_one_out_of_is_the_greatest() {
        let mut times = Latencies::new().unwrap();
        for _ in 0..998 {
            times.record(50);
        }
        times.record(90);
        assert_eq!(times.all_but_one_in(1_000), 90);
        times.record(50);
        assert_eq!(times.all_but_one_in(100), 50);
        assert_eq!(times.all_but_one_in(1_000), 50);
        assert_eq!(times.all_but_one_in(10_000), 90);
        let mut times = Latencies::new().unwrap();
        for _ in 0..998 {
            times.record(50);
        }
        times.record(70);
        assert_eq!(times.all_but_one_in(1_000), 70);
        times.skip();
        assert_eq!(times.all_but_one_in(1_000), 50, "one is greater");
    }

    #[test]
    fn the_file_of_a_distribution_names_the_parts_of_a_bucket() {
        let mut times = Latencies::new().unwrap();
        times.record(5_000);
        let mut text = Vec::new();
        times.write_percentiles(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for exact in [
            "5.000 1.000000000000",
            "#[Mean    =        5.000",
            "#[Max     =        5.000",
        ] {
            assert!(text.contains(exact), "{text}");
        }
        let last = text.lines().last().unwrap();
        assert!(last.ends_with("SubBuckets     =          256]"), "{last}");
    }
}
