//! Bring-up: a list of stages, each with its undo recorded before its effect.
//!
//! [`Device::bring_up`](crate::Device::bring_up) performs the stages in order and unwinds when one
//! fails; teardown of a device in service unwinds the same list. Undo is data ([`Undo`]): it can be
//! printed and compared.

mod context;
mod error;
mod facts;
pub(crate) mod reset;
mod stage;
mod stages;
mod undo;
mod unwind;

pub use context::{Context, UndoToken};
pub use error::{BringUpError, StageError, UndoFailure};
pub use facts::{Bus, Facts, Identity, Missing, RdmaFacts, SchedulerTree};
pub use stage::{Needs, Stage};
pub use undo::{RdmaUndo, Undo};
pub use unwind::Unwound;

use crate::trace::{StageOutcome, StageReport, Trace};
use ringside_bus::Function;
use ringside_config::Config;
use std::sync::Arc;

/// Options of a bring-up.
#[derive(Default)]
pub struct BringUpOptions<'a> {
    /// Name of a stage that fails after its effects, for tests of their undos.
    pub fail_at: Option<&'a str>,
    /// Called after each stage.
    pub progress: Option<&'a mut dyn FnMut(&StageReport)>,
    /// Derives every random choice from this seed, so that a simulation can be run again: the
    /// places of memory, keys, numbers of objects, sequence numbers. Peers can then guess them: not
    /// for service. `None`: the system's randomness.
    pub predictable: Option<u64>,
}

/// Names of all stages, in order.
#[must_use]
pub fn stage_names() -> Vec<&'static str> {
    stages::all().map(|stage| stage.name).collect()
}

/// Runs all stages on `function`.
///
/// If a stage fails, all effects have been undone when this returns. The error lists the undos that
/// were performed and those that failed.
pub(crate) fn run(
    function: Arc<dyn Function>,
    config: &Config,
    options: BringUpOptions<'_>,
) -> Result<(Context, Trace), Box<BringUpError>> {
    run_stages(function, config, options, stages::all())
}

fn run_stages<'s>(
    function: Arc<dyn Function>,
    config: &Config,
    mut options: BringUpOptions<'_>,
    stages: impl Iterator<Item = &'s Stage> + Clone,
) -> Result<(Context, Trace), Box<BringUpError>> {
    let mut context = Context::new(function, config.clone());
    if let Some(seed) = options.predictable {
        context.draw_from(seed);
    }
    match run_on(&mut context, &mut options, stages, 0) {
        Ok(trace) => Ok((context, trace)),
        Err(error) => Err(error),
    }
}

/// Runs all stages once more on a function that has been reset. The oldest `keep` undos stay
/// recorded when one fails.
pub(crate) fn run_again(
    context: &mut Context,
    mut options: BringUpOptions<'_>,
    keep: usize,
) -> Result<Trace, Box<BringUpError>> {
    context.recorder().switch(true);
    let _ = context.recorder().take();
    run_on(context, &mut options, stages::all(), keep)
}

/// Runs the stages that commands to the firmware need, on a function that has been reset: for the
/// settings that a shutdown restores. What they did is recorded also if one fails.
pub(crate) fn start_firmware(context: &mut Context) -> Result<(), StageError> {
    stages::start_firmware(context)
}

fn run_on<'s>(
    context: &mut Context,
    options: &mut BringUpOptions<'_>,
    stages: impl Iterator<Item = &'s Stage> + Clone,
    keep: usize,
) -> Result<Trace, Box<BringUpError>> {
    let mut trace = Trace::default();
    if let Some(name) = options.fail_at
        && !stages.clone().any(|stage| stage.name == name)
    {
        let names = stages.map(|stage| stage.name).collect();
        let cause = StageError::NoSuchStage {
            name: name.to_owned(),
            names,
        };
        return Err(fail(context, trace, "options", cause, keep));
    }
    for stage in stages {
        let (report, result) = run_stage(stage, context, options.fail_at);
        if let Some(progress) = &mut options.progress {
            progress(&report);
        }
        trace.stages.push(report);
        if let Err(cause) = result {
            return Err(fail(context, trace, stage.name, cause, keep));
        }
    }
    context.recorder().switch(false);
    Ok(trace)
}

fn run_stage(
    stage: &Stage,
    context: &mut Context,
    fail_at: Option<&str>,
) -> (StageReport, Result<(), StageError>) {
    let start = context.clock().now();
    let skipped = match stage.needs {
        Needs::Rdma => context.facts.rdma_unavailable.clone(),
        Needs::Device => None,
    };
    let result = match &skipped {
        Some(_) => Ok(()),
        None => (stage.run)(context),
    };
    let result = match result {
        Ok(()) if fail_at == Some(stage.name) => Err(StageError::Injected),
        other => other,
    };
    context.warn_of_page_size();
    let outcome = match (&result, skipped) {
        (Err(error), _) => StageOutcome::Failed(error.to_string()),
        (Ok(()), Some(reason)) => StageOutcome::Skipped(reason),
        (Ok(()), None) => StageOutcome::Done,
    };
    let (exchanges, exchanges_dropped) = context.recorder().take();
    let report = StageReport {
        stage: stage.name,
        outcome,
        took: context.clock().now().since(start),
        warnings: context.take_warnings(),
        exchanges,
        exchanges_dropped,
    };
    tracing::debug!(stage = report.stage, took = ?report.took, outcome = ?report.outcome, "bring-up");
    (report, result)
}

fn fail(
    context: &mut Context,
    mut trace: Trace,
    stage: &'static str,
    cause: StageError,
    keep: usize,
) -> Box<BringUpError> {
    let start = context.clock().now();
    let unwound = context.unwind_to(keep);
    let (exchanges, exchanges_dropped) = context.recorder().take();
    trace.stages.push(StageReport {
        stage: "unwinding",
        outcome: match unwound.failures.as_slice() {
            [] => StageOutcome::Done,
            failures => StageOutcome::Failed(format!("{} undos failed", failures.len())),
        },
        took: context.clock().now().since(start),
        warnings: context.take_warnings(),
        exchanges,
        exchanges_dropped,
    });
    Box::new(BringUpError {
        device: context.function().address().clone(),
        stage,
        cause,
        undone: unwound.undone,
        undo_failures: unwound.failures,
        leaked_bytes: unwound.leaked_bytes,
        trace,
    })
}

#[cfg(test)]
mod tests;
