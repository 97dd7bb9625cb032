//! `ringside sim`: driver, model and wire from one seed, judged by an oracle.

mod options;
mod report;

mod watch;

pub(crate) use options::Sim;

use crate::failure::Failure;
use crate::interrupt;
use crate::output::stdout;
use anyhow::anyhow;
use options::TraceOf;
use report::{Found, Replay, Summary, SummaryView};
use ringside_sim::{FaultEvent, Faults, Finding, Scenario, Trace, Untouched, run, shrink};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use watch::{Job, Watch};

/// Findings after which a run ends early.
const MAX_FINDINGS: usize = 10;

/// Functions of a run.
const FUNCTIONS: u16 = 2;

/// Runs that the search for a shorter one may take.
const SHRINK_RUNS: usize = 300;

/// The options besides the seed.
struct Wanted {
    faults: Faults,
    keep: Option<Vec<u32>>,
}

impl Wanted {
    fn of(options: &Sim) -> Result<Self, Failure> {
        let faults = match &options.only {
            None => Faults::Mix(options.faults.clone()),
            Some(list) => {
                let words = list
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty());
                let events = words
                    .map(str::parse)
                    .collect::<Result<Vec<FaultEvent>, _>>();
                let events = events.map_err(|error| Failure::usage(anyhow!("--only: {error}")))?;
                for event in &events {
                    can_strike(event, options.steps)?;
                }
                Faults::Events(events)
            }
        };
        let keep = options.keep.as_deref().map(numbers).transpose();
        let keep = keep.map_err(|error| Failure::usage(anyhow!("--keep: {error}")))?;
        let highest = keep.as_ref().and_then(|keep| keep.iter().max());
        if let Some(beyond) = highest.filter(|step| **step >= options.steps) {
            return Err(Failure::usage(anyhow!(
                "--keep: there is no step {beyond}: a run with --steps {} has the steps 0 to {}",
                options.steps,
                options.steps.saturating_sub(1)
            )));
        }
        if options.trace.is_some() && options.runs != 1 {
            return Err(Failure::usage(anyhow!(
                "--trace shows one run: add --runs 1 and the --seed"
            )));
        }
        Ok(Self { faults, keep })
    }

    fn scenario(&self, seed: u64, options: &Sim) -> Scenario {
        let mut scenario = Scenario::new(seed, options.steps, options.faults.clone());
        scenario.faults = self.faults.clone();
        scenario.frames_as_bytes = options.frames_as_bytes;
        match &self.keep {
            Some(numbers) => scenario.keeping(numbers),
            None => scenario,
        }
    }
}

/// Refuses an event that no run of so many steps can have: it would not strike, or excuse what it
/// did not cause.
fn can_strike(event: &FaultEvent, steps: u32) -> Result<(), Failure> {
    let (step, function) = match *event {
        FaultEvent::Function { step, function, .. } => (step, function),
        FaultEvent::Clock { step, .. } => (step, 0),
        FaultEvent::Frame { .. } => return Ok(()),
    };
    if function >= FUNCTIONS {
        return Err(Failure::usage(anyhow!(
            "--only: {event}: there is no function {function}: a run has the functions 0 and 1"
        )));
    }
    if step >= steps {
        return Err(Failure::usage(anyhow!(
            "--only: {event}: there is no step {step}: a run with --steps {steps} has the steps 0 to {}",
            steps.saturating_sub(1)
        )));
    }
    Ok(())
}

/// Numbers and ranges of them, apart by commas.
fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for word in text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1_000_000 => all.extend(first..=last),
            _ => {
                return Err(format!(
                    "'{word}' is no step; write numbers and ranges such as 0,3,17-20"
                ));
            }
        }
    }
    Ok(all)
}

pub(crate) fn run_command(options: &Sim) -> Result<(), Failure> {
    let wanted = Wanted::of(options)?;
    interrupt::catch()?;
    let started = Instant::now();
    let summary = simulate(options, &wanted, started);
    // A reader that has seen enough of the trace may close it.
    let mut lines = summary.trace.iter();
    let traced = match options.json {
        true => {
            // Standard output holds one JSON value. A trace that cannot be shown is no reason to
            // stop.
            let _ = lines.try_for_each(|line| writeln!(std::io::stderr(), "{line}"));
            Ok(())
        }
        false => lines.try_for_each(|line| writeln!(stdout(), "{line}")),
    };
    let found = shortened(options, &wanted, &summary);
    let enough = summary.findings.len() >= MAX_FINDINGS;
    let early = (summary.runs < options.runs).then_some(match (enough, &summary.lack) {
        (true, _) => "there were ten findings",
        (false, Some(_)) => "the machine lacks memory or files",
        (false, None) => "a signal came",
    });
    let view = SummaryView::new(&summary, found, (early, started.elapsed()));
    let shown = if traced.is_err() {
        traced
    } else if options.json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&view)?)
    } else {
        write!(stdout(), "{view}")
    };
    let lack = summary.lack.as_ref().map(lacking);
    match (summary.findings.len(), lack) {
        (0, Some(failure)) => Err(failure),
        (0, None) if interrupt::seen() && shown.is_ok() => Err(Failure::interrupted()),
        (0, None) => Ok(shown?),
        (count, lack) => {
            let broken = anyhow!("{count} of {} runs broke a rule", summary.runs);
            let broken = Failure::operation(broken);
            Err(match lack {
                Some(lack) => broken.and(&lack.text()),
                None => broken,
            })
        }
    }
}

/// The failure of a run that did not take place.
fn lacking((seed, finding): &(u64, Finding)) -> Failure {
    Failure::claim(anyhow!(
        "the run of seed {seed} proves nothing, because the machine lacks what it needs: {}",
        finding.what
    ))
}

/// The findings, each with the shortest run that shows it. After a signal no shorter one is sought.
fn shortened(options: &Sim, wanted: &Wanted, summary: &Summary) -> Vec<Found> {
    let mut found = Vec::new();
    for (seed, finding) in &summary.findings {
        let scenario = wanted.scenario(*seed, options);
        // One of each rule is made short.
        let known = found
            .iter()
            .any(|one: &Found| one.rule == finding.rule.name());
        let shrunk = if options.no_shrink || known || interrupt::seen() {
            None
        } else {
            shrink(&scenario, SHRINK_RUNS, || Box::new(Untouched))
        };
        let shortest = shrunk.as_ref().map_or(&scenario, |one| &one.scenario);
        let replay = Replay {
            steps: options.steps,
            shows_frames: (!interrupt::seen()).then(|| shows_with_frames(shortest, finding)),
        };
        found.push(Found::new(&scenario, finding, shrunk.as_ref(), replay));
    }
    found
}

/// True if the finding shows with every frame in the trace, too.
fn shows_with_frames(scenario: &Scenario, finding: &Finding) -> bool {
    let outcome = run(scenario, Trace::Frames, &mut Untouched);
    let found = outcome.finding;
    found.is_some_and(|found| found.rule == finding.rule)
}

/// The state that the jobs share.
struct Jobs<'a> {
    options: &'a Sim,
    wanted: &'a Wanted,
    started: Instant,
    summary: Mutex<Summary>,
    /// number of the next run
    next: AtomicU64,
    /// there are as many findings as are kept, or the machine lacks memory or files
    has_enough: AtomicBool,
}

impl Jobs<'_> {
    /// Runs seeds until there are no more.
    fn work(&self, job: &Job<'_>) {
        let Self {
            options, wanted, ..
        } = self;
        while !self.has_enough.load(Ordering::Relaxed) && !interrupt::seen() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= options.runs {
                break;
            }
            let seed = options.seed.wrapping_add(number);
            let scenario = wanted.scenario(seed, options);
            job.run(seed);
            let began = Instant::now();
            let outcome = run(&scenario, TraceOf::of(options.trace), &mut Untouched);
            let took = began.elapsed();
            let mut all = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
            all.take(seed, outcome, took);
            if all.findings.len() >= MAX_FINDINGS || all.lack.is_some() {
                self.has_enough.store(true, Ordering::Relaxed);
            }
            progress(&mut all, options, self.started);
        }
    }
}

/// Runs all seeds, with as many threads as could be started. The first job is this thread's.
fn simulate(options: &Sim, wanted: &Wanted, started: Instant) -> Summary {
    let jobs = Jobs {
        options,
        wanted,
        started,
        summary: Mutex::new(Summary::new(options)),
        next: AtomicU64::new(0),
        has_enough: AtomicBool::new(false),
    };
    let watch = Watch::new(options.jobs.max(1));
    std::thread::scope(|scope| {
        let threads = std::thread::Builder::new;
        // Without it, runs that take long are not told of.
        let _ = threads().spawn_scoped(scope, || watch.look_at_jobs());
        let mut missing = None;
        for number in 1..options.jobs.max(1) {
            // One that is not started ends here.
            let (jobs, job) = (&jobs, watch.job(number));
            let working = threads().spawn_scoped(scope, move || jobs.work(&job));
            missing = working.err().or(missing);
        }
        if let Some(error) = missing {
            let _ = writeln!(
                std::io::stderr(),
                "fewer threads than the {} of --jobs run: {error}; raise the limit of processes \
                 (ulimit -u, pids.max)",
                options.jobs
            );
        }
        jobs.work(&watch.job(0));
    });
    let summary = jobs.summary.into_inner();
    let mut summary = summary.unwrap_or_else(PoisonError::into_inner);
    summary.findings.sort_by_key(|(seed, _)| *seed);
    summary.simulated = started.elapsed();
    summary
}

/// Prints progress from time to time.
fn progress(summary: &mut Summary, options: &Sim, started: Instant) {
    let elapsed = started.elapsed();
    if elapsed < summary.next_progress {
        return;
    }
    summary.next_progress = elapsed + Duration::from_secs(10);
    // Progress that cannot be shown is no reason to stop.
    let _ = writeln!(
        std::io::stderr(),
        "{} of {} runs, {} findings, {:.0} s",
        summary.runs,
        options.runs,
        summary.findings.len(),
        elapsed.as_secs_f64()
    );
}

#[cfg(test)]
mod tests;
