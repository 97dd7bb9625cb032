//! The options of `ringside sim`.

use clap::{Args, ValueEnum};
use ringside_sim::{FaultKind, FaultMix, Trace};

const HELP: &str = "\
Two devices, the wire between them and a random workload of all verbs run in one thread and in \
virtual time. Everything follows from the seed: the same seed does the same again, on every machine. \
An oracle judges each completion, each byte, each event and each call by the requests alone; of the \
model it reads counts: time-outs, breaches of its interface and what is left after the shutdown.

Examples:
  ringside sim                                 seeds 1 to 100, faults drawn by seed
  ringside sim --runs 2000 --jobs 2            more of them, on two cores
  ringside sim --faults drop=20000,corrupt     these faults; 2 % of all frames are lost
  ringside sim --faults none --steps 1000      a long workload on a good wire
  ringside sim --seed 42 --runs 1 --trace      what happens in one run, step by step

Faults: NAME or NAME=AMOUNT, apart by commas; 'mixed' draws them by seed, 'all' takes every one, \
'none' takes none. These have a rate, of a million frames:
{RATES}
and these an amount, the number of times in a run:
{COUNTS}

The command repeats each finding with ever fewer faults and steps, and prints the shortest run with the \
command that shows it again. Ten findings end it. Exit codes: 0 all rules held, 1 a rule was broken, \
2 wrong arguments, 3 the machine lacks memory or files for a run, 130 interrupted. Ctrl-C ends it after the runs under way, and \
shows the findings until then.";

/// Longest line of the names of faults.
const MAX_LINE: usize = 90;

/// The help, with the names of all kinds of faults.
fn help() -> String {
    let names = |rates: bool| -> String {
        let mut lines = vec![String::from(" ")];
        for kind in FaultKind::all().filter(|kind| kind.is_rate() == rates) {
            if let Some(line) = lines.last_mut() {
                if line.len() + 1 + kind.name().len() > MAX_LINE {
                    lines.push(format!("  {}", kind.name()));
                } else {
                    *line = format!("{line} {}", kind.name());
                }
            }
        }
        lines.join("\n")
    };
    HELP.replace("{RATES}", &names(true))
        .replace("{COUNTS}", &names(false))
}

/// The lines of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceOf {
    Frames,
    Steps,
}

impl TraceOf {
    /// The trace of a run, from the option.
    pub(super) fn of(option: Option<Self>) -> Trace {
        match option {
            None => Trace::Off,
            Some(Self::Steps) => Trace::Steps,
            Some(Self::Frames) => Trace::Frames,
        }
    }
}

#[derive(Args, Debug, Clone)]
#[command(after_help = help())]
pub(crate) struct Sim {
    /// The first seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
    /// Seeds to run, one after the other
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) runs: u64,
    /// Steps of the workload in each run
    #[arg(long, value_name = "COUNT", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) steps: u32,
    /// Kinds of faults; see below
    #[arg(long, value_name = "LIST", default_value = "mixed")]
    pub(super) faults: FaultMix,
    /// Carry every frame as bytes, which the model parses again; its results are the same
    #[arg(long)]
    pub(super) frames_as_bytes: bool,
    /// Runs at a time, each on a thread of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) jobs: u16,
    /// Exactly these faults, as an earlier run printed them; '' for none
    #[arg(long, value_name = "EVENTS", conflicts_with = "faults")]
    pub(super) only: Option<String>,
    /// Only these steps of the workload, such as 0,3,17-20
    #[arg(long, value_name = "STEPS")]
    pub(super) keep: Option<String>,
    /// Print each step (with --runs 1); with --json on standard error. 'frames' also prints every
    /// frame. It makes each packet a frame, which can change a run without faults of frames.
    /// 'steps' changes nothing
    #[arg(long, value_name = "LINES", num_args = 0..=1, require_equals = true, default_missing_value = "frames")]
    pub(crate) trace: Option<TraceOf>,
    /// Do not search for the shortest run that shows a finding
    #[arg(long)]
    pub(super) no_shrink: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_kind_of_fault() {
        let help = help();
        let words: Vec<&str> = help.split_whitespace().collect();
        for kind in FaultKind::all() {
            assert!(words.contains(&kind.name()), "{}", kind.name());
        }
        assert!(!help.contains('{'), "{help}");
        assert!(
            help.lines()
                .filter(|line| line.starts_with("  "))
                .all(|line| line.len() <= MAX_LINE)
        );
    }
}
