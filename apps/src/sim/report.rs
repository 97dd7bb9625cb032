//! The report of a simulation.

use super::options::Sim;
use ringside_sim::fault::FrameFault;
use ringside_sim::{
    Counts, FaultEvent, FaultMix, Faults, Finding, Outcome, Scenario, Shrunk, Step,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The results of all runs so far.
pub(super) struct Summary {
    pub(super) runs: u64,
    first_seed: u64,
    steps: u32,
    pub(super) findings: Vec<(u64, Finding)>,
    /// the first run that did not take place, for want of memory or files of the machine
    pub(super) lack: Option<(u64, Finding)>,
    counts: Counts,
    struck: BTreeMap<String, u64>,
    virtual_ns: u64,
    /// the sum of the times that the runs took
    took: Duration,
    /// from the start of the first run to the end of the last, before findings are made short
    pub(super) simulated: Duration,
    pub(super) next_progress: Duration,
    /// of the one run, with `--trace`
    pub(super) trace: Vec<String>,
}

impl Summary {
    pub(super) fn new(options: &Sim) -> Self {
        Self {
            runs: 0,
            first_seed: options.seed,
            steps: options.steps,
            findings: Vec::new(),
            lack: None,
            counts: Counts::default(),
            struck: BTreeMap::new(),
            virtual_ns: 0,
            took: Duration::ZERO,
            simulated: Duration::ZERO,
            next_progress: Duration::from_secs(10),
            trace: Vec::new(),
        }
    }

    /// Adds a run, and the time that it took. A run for which the machine lacks something is none.
    pub(super) fn take(&mut self, seed: u64, outcome: Outcome, took: Duration) {
        if let Some(lack) = outcome.finding.as_ref().filter(|one| one.is_of_machine()) {
            self.lack.get_or_insert_with(|| (seed, lack.clone()));
            return;
        }
        self.runs += 1;
        self.took += took;
        self.counts.add(&outcome.counts);
        self.trace = outcome.trace;
        self.virtual_ns = self.virtual_ns.saturating_add(outcome.time_ns);
        for event in &outcome.events {
            *self.struck.entry(kind(event)).or_default() += 1;
        }
        if let Some(finding) = outcome.finding {
            self.findings.push((seed, finding));
        }
    }
}

fn kind(event: &FaultEvent) -> String {
    match event {
        FaultEvent::Frame { fault, .. } => match fault {
            FrameFault::Drop => "drop",
            FrameFault::Duplicate => "duplicate",
            FrameFault::Reorder(_) => "reorder",
            FrameFault::Delay(_) => "delay",
            FrameFault::Corrupt(_) => "corrupt",
            FrameFault::Mark => "mark",
        }
        .to_owned(),
        FaultEvent::Clock { .. } => "clock-jump".to_owned(),
        FaultEvent::Function { fault, .. } => {
            let words = fault.to_string();
            words.split(' ').next().unwrap_or_default().to_owned()
        }
    }
}

/// A finding, as it is shown.
#[derive(Serialize)]
pub(super) struct Found {
    seed: u64,
    pub(super) rule: &'static str,
    /// The text of the rule.
    meaning: &'static str,
    what: String,
    step: Option<u32>,
    time_ns: u64,
    /// The shortened scenario.
    shortest: Option<Short>,
    /// The command that shows it.
    replay: String,
    /// It shows with each packet as a frame, too; `None` if a signal left no time to see.
    #[serde(skip)]
    shows_frames: Option<bool>,
}

/// The options of the command that shows a finding again.
#[derive(Clone, Copy)]
pub(super) struct Replay {
    /// Steps of the run before `--keep` leaves some out.
    pub(super) steps: u32,
    /// The trace may have the frames: with them the run takes the same course. `None` if that was
    /// not tried.
    pub(super) shows_frames: Option<bool>,
}

#[derive(Serialize)]
struct Short {
    faults: Vec<String>,
    steps: Vec<u32>,
    what: String,
    runs_needed: usize,
}

impl Found {
    /// A finding in `scenario`.
    pub(super) fn new(
        scenario: &Scenario,
        finding: &Finding,
        shrunk: Option<&Shrunk>,
        options: Replay,
    ) -> Self {
        let seed = scenario.seed;
        let shortest_scenario = shrunk.map_or(scenario, |shrunk| &shrunk.scenario);
        let replay = replay(shortest_scenario, options);
        let shortest = shrunk.map(|shrunk| Short {
            faults: match &shrunk.scenario.faults {
                Faults::Events(events) => events.iter().map(ToString::to_string).collect(),
                Faults::Mix(_) => Vec::new(),
            },
            steps: shrunk
                .scenario
                .steps
                .iter()
                .map(|step| step.number)
                .collect(),
            what: shrunk.finding.to_string(),
            runs_needed: shrunk.runs,
        });
        Self {
            seed,
            rule: finding.rule.name(),
            meaning: finding.rule.describe(),
            what: finding.what.clone(),
            step: finding.step,
            time_ns: finding.time_ns,
            shortest,
            replay,
            shows_frames: options.shows_frames,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\nseed {} breaks the rule {}: {}\n",
            self.seed, self.rule, self.meaning
        )?;
        writeln!(
            f,
            "  {} (step {:?}, {} ns)",
            self.what, self.step, self.time_ns
        )?;
        if let Some(short) = &self.shortest {
            writeln!(
                f,
                "  shortest: {} faults, {} steps (found in {} runs): {}",
                short.faults.len(),
                short.steps.len(),
                short.runs_needed,
                short.what
            )?;
            writeln!(
                f,
                "  faults: {}",
                if short.faults.is_empty() {
                    "none".to_owned()
                } else {
                    short.faults.join(", ")
                }
            )?;
        }
        writeln!(f, "  replay: {}", self.replay)?;
        if self.shows_frames == Some(false) {
            writeln!(
                f,
                "  with --trace each packet is a frame of its own, and the run takes another course"
            )?;
        }
        Ok(())
    }
}

/// The command that runs `scenario` again and prints its steps.
pub(super) fn replay(scenario: &Scenario, options: Replay) -> String {
    let steps = options.steps;
    let mut command = format!(
        "ringside sim --seed {} --runs 1 --steps {steps}",
        scenario.seed
    );
    match &scenario.faults {
        Faults::Events(events) => {
            let events: Vec<String> = events.iter().map(ToString::to_string).collect();
            command.push_str(&format!(" --only '{}'", events.join(",")));
        }
        Faults::Mix(FaultMix::BySeed) => {}
        Faults::Mix(mix) => command.push_str(&format!(" --faults {mix}")),
    }
    if scenario.steps.len() != steps as usize {
        command.push_str(&format!(" --keep '{}'", steps_text(&scenario.steps)));
    }
    if scenario.frames_as_bytes {
        command.push_str(" --frames-as-bytes");
    }
    command.push_str(match options.shows_frames {
        Some(true) => " --trace",
        Some(false) | None => " --trace=steps",
    });
    command
}

/// Everything, as it is shown.
#[derive(Serialize)]
pub(super) struct SummaryView {
    runs: u64,
    first_seed: u64,
    steps: u32,
    findings: Vec<Found>,
    requests_posted: u64,
    completions: u64,
    successes: u64,
    bytes: u64,
    frames: u64,
    faults: BTreeMap<String, u64>,
    virtual_seconds: f64,
    seconds: f64,
    /// Of all jobs together, before findings are made short.
    seeds_per_second: f64,
    /// Of one run: jobs side by side do not make it shorter.
    milliseconds_per_run: f64,
    /// The reason for which some runs were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_early: Option<&'static str>,
}

impl SummaryView {
    pub(super) fn new(
        summary: &Summary,
        findings: Vec<Found>,
        (ended_early, elapsed): (Option<&'static str>, Duration),
    ) -> Self {
        Self {
            ended_early,
            runs: summary.runs,
            first_seed: summary.first_seed,
            steps: summary.steps,
            findings,
            requests_posted: summary.counts.posted,
            completions: summary.counts.completed,
            successes: summary.counts.succeeded,
            bytes: summary.counts.bytes,
            frames: summary.counts.frames,
            faults: summary.struck.clone(),
            virtual_seconds: summary.virtual_ns as f64 / 1e9,
            seconds: elapsed.as_secs_f64(),
            seeds_per_second: summary.runs as f64 / summary.simulated.as_secs_f64().max(1e-9),
            milliseconds_per_run: summary.took.as_secs_f64() * 1e3 / summary.runs.max(1) as f64,
        }
    }
}

impl fmt::Display for SummaryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs from seed {} on, {} steps each: {} findings",
            self.runs,
            self.first_seed,
            self.steps,
            self.findings.len()
        )?;
        if let Some(why) = self.ended_early {
            writeln!(f, "  ended early: {why}")?;
        }
        writeln!(
            f,
            "  {} requests, {} completions ({} successes), {} frames, {} bytes",
            self.requests_posted, self.completions, self.successes, self.frames, self.bytes
        )?;
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let faults = if faults.is_empty() {
            "none".to_owned()
        } else {
            faults.join(", ")
        };
        writeln!(f, "  faults that struck: {faults}")?;
        writeln!(
            f,
            "  {:.1} s of virtual time in {:.1} s, {:.1} ms a run, {:.1} seeds a second",
            self.virtual_seconds, self.seconds, self.milliseconds_per_run, self.seeds_per_second
        )?;
        for found in &self.findings {
            write!(f, "{found}")?;
        }
        Ok(())
    }
}

/// Steps as the command line takes them.
pub(super) fn steps_text(steps: &[Step]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for step in steps {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == step.number => *last = step.number,
            _ => ranges.push((step.number, step.number)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}
