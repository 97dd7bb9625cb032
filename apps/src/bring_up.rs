//! `ringside bring-up`: every stage with its requests, answers and duration.

use crate::cli::BringUp;
use crate::failure::Failure;
use crate::open::{Opened, open};
use crate::output::{span, stdout};
use ringside_config::Config;
use ringside_pmd::bring_up::{Undo, UndoFailure, stage_names};
use ringside_pmd::trace::{StageOutcome, StageReport, Trace};
use ringside_pmd::{BringUpError, BringUpOptions, Device};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Outcome<'a> {
    device: String,
    brought_up: bool,
    error: Option<String>,
    trace: &'a Trace,
    undone: Vec<String>,
    undo_failures: Vec<String>,
    leaked_bytes: usize,
    interface_breaches: Vec<String>,
}

pub(crate) fn run(options: &BringUp, config: &Config) -> Result<(), Failure> {
    if options.fail_at.as_deref() == Some("list") {
        let names = stage_names();
        match options.json {
            true => writeln!(stdout(), "{}", serde_json::to_string(&names)?)?,
            false => names
                .iter()
                .try_for_each(|name| writeln!(stdout(), "{name}"))?,
        }
        return Ok(());
    }
    check_stage(options)?;
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    let Opened { function, model } = open(address, config)?;
    let show_exchanges = options.trace;
    let quiet = options.json;
    // An error of the output ends nothing before the device is as it was found.
    let mut shown = Ok(());
    let mut progress = |report: &StageReport| {
        if !quiet && shown.is_ok() {
            shown = print_stage(&mut stdout(), report, show_exchanges);
        }
    };
    let result = Device::bring_up(
        function,
        config,
        BringUpOptions {
            fail_at: options.fail_at.as_deref(),
            progress: Some(&mut progress),
            predictable: None,
        },
    );
    let end = End::of(result);
    // A model in another process counts and reports its breaches itself.
    let breaches = model
        .and_then(|(model, index)| model.with(move |world| world.breaches(index)))
        .unwrap_or_default();
    let outcome = Outcome {
        device: address.to_string(),
        brought_up: end.error.is_none(),
        error: end.error,
        trace: &end.trace,
        undone: end.undone.iter().map(ToString::to_string).collect(),
        undo_failures: end.undo_failures.iter().map(ToString::to_string).collect(),
        leaked_bytes: end.leaked_bytes,
        interface_breaches: breaches
            .iter()
            .map(|breach| format!("{breach:?}"))
            .collect(),
    };
    let shown = shown
        .map_err(Failure::from)
        .and_then(|()| show(&outcome, options));
    judge(outcome)?;
    shown
}

/// Refuses a stage for `--fail-at` that does not exist.
fn check_stage(options: &BringUp) -> Result<(), Failure> {
    let Some(stage) = &options.fail_at else {
        return Ok(());
    };
    if stage_names().contains(&stage.as_str()) {
        return Ok(());
    }
    let names = stage_names().join(", ");
    Err(Failure::usage(anyhow::anyhow!(
        "there is no stage '{stage}'; stages are: {names}"
    )))
}

/// The result of a bring-up that was taken down again.
struct End {
    error: Option<String>,
    trace: Trace,
    undone: Vec<Undo>,
    undo_failures: Vec<UndoFailure>,
    leaked_bytes: usize,
}

impl End {
    fn of(result: Result<Device, Box<BringUpError>>) -> Self {
        match result {
            Ok(device) => {
                let trace = device.trace().clone();
                let down = device.shutdown();
                Self {
                    error: None,
                    trace,
                    undone: down.undone,
                    undo_failures: down.failures,
                    leaked_bytes: down.leaked_bytes,
                }
            }
            Err(error) => Self {
                error: Some(error.to_string()),
                trace: error.trace,
                undone: error.undone,
                undo_failures: error.undo_failures,
                leaked_bytes: error.leaked_bytes,
            },
        }
    }
}

fn show(outcome: &Outcome<'_>, options: &BringUp) -> Result<(), Failure> {
    let mut out = stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(outcome)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "\n{} stages in {}",
        outcome.trace.stages.len(),
        span(outcome.trace.took())
    )?;
    writeln!(out, "Taken down again; undone, latest first:")?;
    for undo in &outcome.undone {
        writeln!(out, "  {undo}")?;
    }
    for failure in &outcome.undo_failures {
        writeln!(out, "  NOT undone: {failure}")?;
    }
    for breach in &outcome.interface_breaches {
        writeln!(out, "  the driver broke the interface: {breach}")?;
    }
    Ok(())
}

fn judge(outcome: Outcome<'_>) -> Result<(), Failure> {
    if let Some(error) = outcome.error {
        return Err(Failure::claim(anyhow::anyhow!(error)));
    }
    if !outcome.undo_failures.is_empty() || outcome.leaked_bytes > 0 {
        return Err(Failure::operation(anyhow::anyhow!(
            "the device was not left as it was found: {} undos failed, {} bytes leaked",
            outcome.undo_failures.len(),
            outcome.leaked_bytes
        )));
    }
    if !outcome.interface_breaches.is_empty() {
        return Err(Failure::wrong(anyhow::anyhow!(
            "{} kinds of breach of the device's interface; please report this output",
            outcome.interface_breaches.len()
        )));
    }
    Ok(())
}

/// Prints one line for a stage, and its exchanges if requested.
pub(crate) fn print_stage(
    out: &mut dyn Write,
    report: &StageReport,
    exchanges: bool,
) -> io::Result<()> {
    let mark = match &report.outcome {
        StageOutcome::Done => "done".to_string(),
        StageOutcome::Skipped(reason) => format!("skipped: {reason}"),
        StageOutcome::Failed(reason) => format!("FAILED: {reason}"),
    };
    writeln!(
        out,
        "  {:<28} {:>11}  {mark}",
        report.stage,
        span(report.took)
    )?;
    for warning in &report.warnings {
        writeln!(out, "      warning: {warning}")?;
    }
    if exchanges {
        for exchange in &report.exchanges {
            writeln!(out, "      {exchange}")?;
        }
        if report.exchanges_dropped > 0 {
            writeln!(out, "      and {} exchanges more", report.exchanges_dropped)?;
        }
    }
    Ok(())
}
