//! The tests that both sides make.

use crate::bench::meeting::end::{READS, Role};
use crate::bench::plan::{Amount, FlagError, MAX_INLINE, MAX_MESSAGE, Plan};
use crate::cli::{Bench, Measure, Operation};

/// The tests, with perftest's defaults.
pub(in crate::bench) struct Wanted {
    pub(super) operation: Operation,
    pub(super) measure: Measure,
    pub(super) sizes: Vec<u64>,
    /// messages on each queue pair
    pub(super) messages: u64,
    pub(super) queue_pairs: u32,
}

impl Wanted {
    /// Source: perftest `perftest_parameters.h`, DEF_SIZE_BW, DEF_SIZE_LAT, DEF_ITERS,
    /// DEF_ITERS_WB.
    pub(super) fn of(options: &Bench) -> Result<Self, FlagError> {
        let (Some(operation), Some(measure)) = (options.operation, options.measure) else {
            return Err(FlagError(
                "--perftest: say what the program on the other side measures, such as write bw for ib_write_bw; its exchange does not"
                    .into(),
            ));
        };
        let latency = measure == Measure::Lat;
        let sizes = match (options.all, options.size, latency) {
            (true, ..) => (1..=23).map(|power| 1 << power).collect(),
            (false, Some(0), _) => {
                return Err(FlagError("-s 0: perftest sends at least 1 byte".into()));
            }
            (false, Some(size), _) => vec![size],
            (false, None, true) => vec![2],
            (false, None, false) => vec![65_536],
        };
        let most = 5_000_000;
        let messages = match (options.iterations, operation, latency) {
            (Some(messages), ..) if messages > most => {
                return Err(FlagError(format!(
                    "-n {messages}: choose 5 to {most} messages with --perftest"
                )));
            }
            (Some(messages), ..) => messages,
            (None, Operation::Write, false) => 5_000,
            (None, ..) => 1_000,
        };
        Ok(Self {
            operation,
            measure,
            sizes,
            messages,
            queue_pairs: if latency { 1 } else { options.queue_pairs() },
        })
    }

    /// The largest message.
    pub(super) fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(MAX_MESSAGE)
    }

    /// True if keys are exchanged once more before the others.
    pub(super) fn greets_twice(&self) -> bool {
        self.measure == Measure::Lat && self.operation != Operation::Send
    }

    /// Reads that this side has under way: only the client reads, and measures latency one by one.
    pub(super) fn reads_under_way(&self, role: Role) -> u8 {
        match (self.operation, role, self.measure) {
            (Operation::Read, Role::Client, Measure::Bw) => READS,
            (Operation::Read, Role::Client, Measure::Lat) => 1,
            _ => 0,
        }
    }

    /// The plan for `size`.
    pub(super) fn plan(&self, options: &Bench, size: u64) -> Plan {
        Plan {
            operation: self.operation,
            measure: self.measure,
            sizes: vec![size],
            amount: Amount::Messages(self.messages * u64::from(self.queue_pairs)),
            queue_pairs: self.queue_pairs,
            send_depth: options.send_depth(),
            receive_depth: options.receive_depth(),
            inline: options.inline.unwrap_or(match self.measure {
                Measure::Lat => MAX_INLINE,
                Measure::Bw => 0,
            }),
        }
    }
}
