//! The common part of every bench: its output, the bring-up of functions, the report at the end.

use super::accesses::Counters;
use super::distributions::{self, Distribution};
use super::report::{self, Report, StageTime};
use crate::bring_up::print_stage;
use crate::cli::Bench;
use crate::failure::{Failure, both};
use crate::interrupt;
use crate::outfile::{OutFile, check_distinct, check_no_output, check_writable, not_written};
use crate::output::{microseconds, span, stdout};
use crate::release;
use anyhow::anyhow;
use ringside_bus::Function;
use ringside_config::Config;
use ringside_pmd::trace::{StageOutcome, StageReport};
use ringside_pmd::{BringUpOptions, Device, ShutdownReport};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A bench under way.
pub(crate) struct Run<'a> {
    pub(crate) options: &'a Bench,
    pub(crate) config: &'a Config,
    pub(crate) out: Box<dyn Write>,
    /// the report so far
    pub(crate) report: Report,
    pub(crate) distributions: Vec<Distribution>,
    /// counters of register accesses, if they are counted
    pub(crate) counters: Option<Counters>,
    /// warnings that are printed already
    warned: Vec<String>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(options: &'a Bench, config: &'a Config) -> Self {
        Self {
            options,
            config,
            out: output(options),
            report: Report::default(),
            distributions: Vec::new(),
            counters: None,
            warned: Vec::new(),
        }
    }

    /// Brings a function up and prints one line, or a line for each stage with `--verbose`. A
    /// warning that an earlier function gave is not repeated.
    pub(crate) fn bring_up(&mut self, function: &Arc<dyn Function>) -> Result<Device, Failure> {
        let function = Arc::clone(function);
        let name = function.address().to_string();
        let verbose = self.options.verbose;
        if verbose {
            writeln!(self.out, "Bring-up of {name}")?;
        }
        let (out, stages) = (&mut self.out, &mut self.report.bring_up);
        let mut shown = Ok(());
        let mut progress = |stage: &StageReport| {
            if verbose && shown.is_ok() {
                shown = print_stage(out, stage, false);
            }
            stages.push(stage_time(&name, stage));
        };
        let options = BringUpOptions {
            progress: Some(&mut progress),
            ..BringUpOptions::default()
        };
        let began = Instant::now();
        let device = Device::bring_up(function, self.config, options)
            .map_err(|error| Failure::claim(anyhow!("{error}")))?;
        shown?;
        let stages = device.trace().stages.len();
        let took = span(began.elapsed());
        writeln!(self.out, "Bring-up of {name}: {stages} stages in {took}")?;
        for (stage, text) in device.trace().warnings() {
            self.report.warnings.push(format!("{name} {stage}: {text}"));
            if !verbose && !self.warned.iter().any(|warned| warned == text) {
                writeln!(self.out, "warning: {stage}: {text}")?;
                self.warned.push(text.to_owned());
            }
        }
        release::watch(&device)?;
        Ok(device)
    }

    /// Shuts the devices down and records failures. No object of the devices may be in use.
    pub(crate) fn take_down(
        &mut self,
        devices: impl IntoIterator<Item = Device>,
    ) -> io::Result<Vec<ShutdownReport>> {
        let downs: Vec<_> = devices.into_iter().map(Device::shutdown).collect();
        for failure in downs.iter().flat_map(|down| &down.failures) {
            let warning = format!("taking down: {failure}");
            writeln!(self.out, "warning: {warning}")?;
            self.report.warnings.push(warning);
        }
        Ok(downs)
    }

    /// Prints comparisons and counts, writes files and JSON, then returns the end of the
    /// measurement. After a failure or a signal the files hold what was measured until then.
    pub(crate) fn finish(&mut self, measured: Result<(), Failure>) -> Result<(), Failure> {
        let measured = match measured {
            Ok(()) if interrupt::seen() => Err(Failure::interrupted()),
            other => other,
        };
        let Err(failure) = measured else {
            self.print_counts()?;
            return self.write_files();
        };
        if self.report.is_empty() {
            return Err(failure);
        }
        self.report.ended_early = Some(failure.text());
        let written = if failure.is_output() {
            Ok(())
        } else {
            self.print_counts().map_err(Failure::from)
        };
        match written.and_then(|()| self.write_files()) {
            Ok(()) => Err(failure),
            Err(further) => Err(failure.and(&further.text())),
        }
    }

    fn print_counts(&mut self) -> io::Result<()> {
        let report = &self.report;
        let verified = report.tables.iter().map(report::Table::verified_messages);
        let breaches = report.interface_breaches.map_or(
            "breaches of the device's interface are counted by its own process".into(),
            |count| format!("{count} kinds of breach of the device's interface"),
        );
        let apart = report.verified.iter().map(|row| row.verified_messages);
        let verified = verified.sum::<u64>() + apart.sum::<u64>();
        let verified = match self.options.perftest {
            true => "No message verified: perftest compares no data".into(),
            false => format!("{verified} messages verified byte by byte"),
        };
        writeln!(self.out, "\n{verified}; {breaches}.")
    }

    fn write_files(&mut self) -> Result<(), Failure> {
        let (options, out) = (self.options, &mut self.out);
        let hgrm = options.hgrm.as_deref();
        let hgrm = hgrm.map(|path| distributions::write(options, path, &self.distributions, out));
        let json = write_json(options, &self.report, out);
        both(hgrm.transpose().map(drop), json)
    }
}

fn stage_time(name: &str, stage: &StageReport) -> StageTime {
    StageTime {
        stage: format!("{name} {}", stage.stage),
        microseconds: microseconds(stage.took),
        summary: match &stage.outcome {
            StageOutcome::Done => "done".into(),
            StageOutcome::Skipped(reason) => format!("skipped: {reason}"),
            StageOutcome::Failed(reason) => format!("failed: {reason}"),
        },
    }
}

/// The configuration, with room for the objects that the flags need.
pub(crate) fn sized(config: &Config, options: &Bench) -> Config {
    let mut config = config.clone();
    config.rdma.queue_pairs = config.rdma.queue_pairs.max(options.queue_pairs() + 1);
    config
}

/// Finds out before a long run that its results could not be written after it.
pub(crate) fn can_be_written(options: &Bench) -> Result<(), Failure> {
    let is_output = |path: &&Path| *path == Path::new("-");
    let (pcap, hgrm) = (options.pcap.as_deref(), options.hgrm.as_deref());
    for (flag, path) in [("--pcap", pcap), ("--hgrm", hgrm)] {
        check_no_output(flag, path)?;
    }
    let json = options.json_path().filter(|path| !is_output(path));
    let flag = match options.out_json_file {
        Some(_) => "--out_json_file",
        None => "--out_json",
    };
    let hgrm = hgrm.map(|path| distributions::files(options, path));
    let hgrm = hgrm.transpose()?.unwrap_or_default();
    let hgrm = hgrm.iter().map(|(_, path)| ("--hgrm", &**path));
    let others = [("--pcap", pcap), (flag, json)].into_iter();
    let others = others.filter_map(|(flag, path)| Some((flag, path?)));
    let files: Vec<_> = hgrm.chain(others).collect();
    check_distinct(files.iter().copied())?;
    for (_, path) in files {
        check_writable(path).map_err(|error| {
            Failure::usage(anyhow!(
                "{} cannot be written: {error}; name a file in a folder that exists and that you \
                 may write to",
                path.display()
            ))
        })?;
    }
    Ok(())
}

/// Tables go to standard output unless JSON does.
pub(crate) fn output(options: &Bench) -> Box<dyn Write> {
    if options.json_path() == Some(Path::new("-")) {
        Box::new(io::stderr())
    } else {
        Box::new(stdout())
    }
}

/// Writes a report as JSON, if the flags request that.
pub(crate) fn write_json(
    options: &Bench,
    report: &impl Serialize,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Some(path) = options.json_path() else {
        return Ok(());
    };
    let json = serde_json::to_string_pretty(report)?;
    if path == Path::new("-") {
        writeln!(stdout(), "{json}")?;
        return Ok(());
    }
    let written =
        OutFile::create(path).and_then(|mut file| file.write_all((json + "\n").as_bytes()));
    written.map_err(|error| not_written("the report", path, error))?;
    writeln!(out, "report in {}", path.display())?;
    Ok(())
}

/// The breaches that the model counted, and the state in which the devices were left.
pub(crate) fn judge(breaches: &[String], downs: &[ShutdownReport]) -> Result<(), Failure> {
    if !breaches.is_empty() {
        return Err(Failure::wrong(anyhow!(
            "the driver broke the device's interface: {}; please report this",
            breaches.join("; ")
        )));
    }
    let leaked: usize = downs.iter().map(|down| down.leaked_bytes).sum();
    match downs.iter().flat_map(|down| &down.failures).next() {
        Some(failure) => Err(Failure::operation(anyhow!(
            "a device was not left as it was found: {failure} ({leaked} bytes leaked)"
        ))),
        None => Ok(()),
    }
}
