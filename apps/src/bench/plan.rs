//! Makes the list of measurements from the flags, and names every wrong flag.

use crate::cli::{Bench, Measure, Operation, Over};
use std::time::Duration;

/// Largest message, as perftest's `-a` ends.
pub(crate) const MAX_MESSAGE: u64 = 8 << 20;

/// Most queue pairs.
pub(crate) const MAX_QUEUE_PAIRS: u32 = 64;

/// Largest payload inside a work request. Source: reference of the send queue, inline rules.
pub(crate) const MAX_INLINE: u32 = ringside_spec::rdma::limits::MAX_INLINE_BYTES;

/// The deepest queue of a test.
pub(crate) const DEEPEST_QUEUE: u32 = 2048;

/// The default duration of a test.
const DEFAULT_TIME: Duration = Duration::from_millis(1000);

/// The number of messages, or the time, measured at each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// A number of messages.
    Messages(u64),
    /// As many as fit into a time.
    Time(Duration),
}

/// One table to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) measure: Measure,
    pub(crate) sizes: Vec<u64>,
    pub(crate) amount: Amount,
    pub(crate) queue_pairs: u32,
    pub(crate) send_depth: u32,
    pub(crate) receive_depth: u32,
    pub(crate) inline: u32,
}

/// A flag that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlagError(pub(crate) String);

impl std::fmt::Display for FlagError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FlagError {}

fn within(flag: &str, value: u64, least: u64, most: u64, unit: &str) -> Result<(), FlagError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(FlagError(format!(
        "{flag} {value}: choose {least} to {most} {unit}"
    )))
}

/// Every table that the flags request, in perftest's order: latency, then bandwidth.
pub(crate) fn plans(options: &Bench) -> Result<Vec<Plan>, FlagError> {
    check(options)?;
    let operations = options
        .operation
        .map_or(Operation::ALL.to_vec(), |one| vec![one]);
    let measures = options
        .measure
        .map_or(Measure::ALL.to_vec(), |one| vec![one]);
    let waits_for_a_byte =
        operations.contains(&Operation::Write) && measures.contains(&Measure::Lat);
    if options.size == Some(0) && waits_for_a_byte {
        return Err(FlagError(
            "-s 0 with write lat: a write of nothing leaves nothing to wait for at the peer; choose at least 1"
                .into(),
        ));
    }
    let mut plans = Vec::new();
    for &measure in &measures {
        for &operation in &operations {
            plans.push(plan(options, operation, measure));
        }
    }
    Ok(plans)
}

pub(crate) fn check(options: &Bench) -> Result<(), FlagError> {
    check_numbers(options)?;
    check_combinations(options)
}

/// Refuses a number outside its range.
fn check_numbers(options: &Bench) -> Result<(), FlagError> {
    if let Some(size) = options.size {
        within("-s", size, 0, MAX_MESSAGE, "bytes")?;
    }
    if let Some(iterations) = options.iterations {
        within("-n", iterations, 5, 10_000_000_000, "messages")?;
    }
    if let Some(duration) = options.duration {
        within("-D", duration, 1, 86_400, "seconds")?;
    }
    if let Some(inline) = options.inline {
        within(
            "-I",
            inline.into(),
            0,
            MAX_INLINE.into(),
            "bytes, the most that fits a work request",
        )?;
    }
    within(
        "-q",
        options.queue_pairs().into(),
        1,
        MAX_QUEUE_PAIRS.into(),
        "queue pairs",
    )?;
    within(
        "-t",
        options.send_depth().into(),
        1,
        DEEPEST_QUEUE.into(),
        "messages in flight",
    )?;
    within(
        "-r",
        options.receive_depth().into(),
        1,
        DEEPEST_QUEUE.into(),
        "receives posted",
    )?;
    if let Some(timeout) = options.timeout {
        within("-u", timeout.into(), 14, 18, "(4.096 us x 2^N)")?;
    }
    if let Some(wait) = options.wait {
        within("--wait", wait, 1, 86_400, "seconds")?;
    }
    if ![256, 512, 1024, 2048, 4096].contains(&options.mtu()) {
        return Err(FlagError(format!(
            "-m {}: choose 256, 512, 1024, 2048 or 4096 bytes",
            options.mtu()
        )));
    }
    if options.mtu() > options.largest_mtu {
        return Err(FlagError(format!(
            "-m {}: link.mtu of the configuration has room for {} bytes at most; raise it, or choose as many",
            options.mtu(),
            options.largest_mtu
        )));
    }
    Ok(())
}

/// Refuses flags that do not go together.
fn check_combinations(options: &Bench) -> Result<(), FlagError> {
    if options.cores.len() > 2 {
        return Err(FlagError(format!(
            "--cores: {} cores are named, at most two are used: the driver's, then the model's",
            options.cores.len()
        )));
    }
    let of_meetings = [
        ("--perftest", options.perftest),
        ("-R", options.manager),
        ("--over nic", options.over == Over::Nic),
        ("--wait", options.wait.is_some()),
        ("--idle", options.idle.is_some()),
    ];
    if let Some((flag, _)) = of_meetings
        .iter()
        .find(|(_, given)| *given && !options.meets())
    {
        return Err(FlagError(format!(
            "{flag} is for two processes: it goes with --listen or --connect"
        )));
    }
    check_companions(options)?;
    if options.hgrm.is_some() && options.measure == Some(Measure::Bw) {
        return Err(FlagError(
            "--hgrm with bw: a bandwidth test measures no latencies; measure lat".into(),
        ));
    }
    if options.listen.is_some() && options.all && !options.perftest {
        return Err(FlagError(
            "-a with --listen: the side that connects decides the sizes; give it -a".into(),
        ));
    }
    if let [driver, model] = options.cores[..]
        && options.meets()
    {
        return Err(FlagError(format!(
            "--cores {driver},{model}: with --listen or --connect there is no model in this process; name the driver's core only"
        )));
    }
    if let [driver, model] = options.cores[..]
        && driver == model
    {
        return Err(FlagError(format!(
            "--cores {driver},{model}: driver and model busy-poll, so each needs a core of its own"
        )));
    }
    Ok(())
}

/// Refuses flags without the one that they belong to. clap does not, if one that excludes that is
/// given too: `write lat` goes without `--chaos`, so clap would take `write lat --chaos-seed 7`.
fn check_companions(options: &Bench) -> Result<(), FlagError> {
    let companions = [
        ("--chaos-rounds", options.chaos_rounds.is_some(), "--chaos"),
        ("--chaos-kinds", !options.chaos_kinds.is_empty(), "--chaos"),
        ("--chaos-seed", options.chaos_seed.is_some(), "--chaos"),
        (
            "--chaos-control",
            options.chaos_control.is_some(),
            "--chaos",
        ),
        (
            "--chaos-function",
            options.chaos_function.is_some(),
            "--chaos",
        ),
        ("--chaos-prompt", options.chaos_prompt, "--chaos"),
        ("--verify-only", options.verify_only, "--connect"),
        ("--peer-mac", options.peer_mac.is_some(), "--perftest"),
        ("-x", options.gid_index.is_some(), "--perftest"),
    ];
    let is_there = |flag| match flag {
        "--chaos" => options.chaos,
        "--connect" => options.connect.is_some(),
        _ => options.perftest,
    };
    let mut alone = companions
        .iter()
        .filter(|(_, given, other)| *given && !is_there(*other));
    match alone.next() {
        None => Ok(()),
        Some((flag, _, other)) => Err(FlagError(format!("{flag} goes with {other}"))),
    }
}

fn plan(options: &Bench, operation: Operation, measure: Measure) -> Plan {
    let sizes = match (options.all, options.size, measure) {
        (true, ..) => (1..=23).map(|power| 1 << power).collect(),
        (false, Some(size), _) => vec![size],
        (false, None, Measure::Lat) => vec![8],
        (false, None, Measure::Bw) => vec![8, 64 << 10, 1 << 20],
    };
    let amount = match (options.iterations, options.duration) {
        (Some(messages), _) => Amount::Messages(messages),
        (None, Some(seconds)) => Amount::Time(Duration::from_secs(seconds)),
        (None, None) => Amount::Time(DEFAULT_TIME),
    };
    let latency = measure == Measure::Lat;
    Plan {
        operation,
        measure,
        sizes,
        amount,
        queue_pairs: if latency { 1 } else { options.queue_pairs() },
        send_depth: options.send_depth(),
        receive_depth: options.receive_depth(),
        inline: options
            .inline
            .unwrap_or(if latency { MAX_INLINE } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn bench(flags: &str) -> Bench {
        let words = ["ringside", "bench"]
            .into_iter()
            .chain(flags.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Bench(bench) => *bench,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_arguments_everything_is_measured_in_well_under_30_seconds() {
        let plans = plans(&bench("")).unwrap();
        assert_eq!(plans.len(), 6);
        let tests: usize = plans.iter().map(|plan| plan.sizes.len()).sum();
        assert!(
            DEFAULT_TIME * tests as u32 <= Duration::from_secs(15),
            "{tests} tests"
        );
    }

    #[test]
    fn all_sizes_are_the_powers_of_two_up_to_8_mib() {
        let plans = plans(&bench("write bw -a")).unwrap();
        assert_eq!(plans[0].sizes.first(), Some(&2));
        assert_eq!(plans[0].sizes.last(), Some(&MAX_MESSAGE));
    }

    #[test]
    fn each_flag_out_of_range_is_refused_by_name_with_its_range() {
        for (flags, part) in [
            ("-s 8388609", "-s 8388609: choose 0 to 8388608 bytes"),
            ("-n 4", "-n 4: choose 5 to"),
            ("-D 0", "-D 0: choose 1 to 86400 seconds"),
            ("-I 102", "-I 102: choose 0 to 101 bytes"),
            ("-q 0", "-q 0: choose 1 to 64"),
            ("-q 65", "-q 65: choose 1 to 64"),
            ("-t 0", "-t 0: choose 1 to 2048"),
            ("-r 4096", "-r 4096: choose 1 to 2048"),
            ("-s 0", "-s 0 with write lat"),
            ("-m 1500", "-m 1500: choose 256, 512, 1024, 2048 or 4096"),
            ("--cores 1,1", "each needs a core of its own"),
            (
                "-R",
                "-R is for two processes: it goes with --listen or --connect",
            ),
            ("write bw --hgrm x.hgrm", "--hgrm with bw"),
            (
                "write lat --chaos-rounds 3",
                "--chaos-rounds goes with --chaos",
            ),
            ("write --chaos-seed 3", "--chaos-seed goes with --chaos"),
            (
                "--verify-only --count-writes",
                "--verify-only goes with --connect",
            ),
        ] {
            let error = plans(&bench(flags)).unwrap_err().to_string();
            assert!(error.contains(part), "{flags}: {error}");
        }
    }

    #[test]
    fn latency_uses_one_queue_pair_and_sends_inline_unless_told_otherwise() {
        let plan = &plans(&bench("write lat -q 8")).unwrap()[0];
        assert_eq!((plan.queue_pairs, plan.inline), (1, 101));
        let plan = &plans(&bench("write bw -q 8 -I 64")).unwrap()[0];
        assert_eq!((plan.queue_pairs, plan.inline), (8, 64));
    }
}
