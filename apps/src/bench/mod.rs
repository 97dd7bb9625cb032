//! `ringside bench`: two functions, a cable, and what passes between them.

mod accesses;
mod bandwidth;
mod capture;
pub(crate) mod chaos;
mod latency;
mod meeting;
mod pair;
mod perftest;
mod plan;
mod progress;
pub(crate) mod report;
mod verify;
mod watch;

use crate::bring_up::print_stage;
use crate::cli::{Bench, Measure};
use crate::failure::Failure;
use crate::open::{Cores, model_function, model_index, open, start_model};
use accesses::Counters;
use anyhow::{Context, anyhow};
use capture::Capture;
use hdrhistogram::Histogram;
use pair::Pair;
use plan::{Plan, plans};
use progress::Progress;
use report::{RegisterAccesses, Report, Rows, StageTime, Table};
use ringside_bus::function::Backend;
use ringside_bus::pinning::pin_to;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_model::Threaded;
use ringside_pmd::trace::{StageOutcome, StageReport};
use ringside_pmd::{BringUpOptions, Device};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn run(options: &Bench, config: &Config) -> Result<(), Failure> {
    can_be_written(options)?;
    if options.meets() {
        return meeting::run(options, config);
    }
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    if options.chaos {
        return chaos::run(options, address, config);
    }
    let plans = plans(options).map_err(Failure::usage)?;
    let config = sized(config, options);
    let config = &config;
    let cores = Cores::choose(&options.cores, config);
    let mut bed = Bed::find(options, address, config, cores)?;
    let counters = options
        .count_writes
        .then(|| Counters::before(&mut bed.functions));
    // Pinned last, so that the model's thread does not inherit the driver's core.
    if let Some(core) = cores.driver {
        pin_to(core).map_err(Failure::usage)?;
    }
    let capture = options
        .pcap
        .as_deref()
        .map(|path| Capture::start(bed.model_to_capture()?, path))
        .transpose()?;
    let mut bench = Run {
        options,
        config,
        out: output(options),
        stages: Vec::new(),
        counters,
        accesses: Vec::new(),
    };
    let began = Instant::now();
    let client = bench.bring_up(&bed.functions[0])?;
    let server = bench.bring_up(&bed.functions[1])?;
    let ready = bench.time_to_ready(&client, &server, &plans, began)?;
    let driven = driven(&bed, cores, capture.is_some());
    writeln!(
        bench.out,
        "\nTwo functions to RTS in {}.\n{driven}\n",
        report::span(ready)
    )?;
    let (tables, distributions) = bench.tables(&client, &server, &plans)?;
    let warnings = [&client, &server].into_iter().flat_map(|device| {
        let of = device.function().address().to_string();
        let lines = device.trace().warnings();
        lines
            .map(|(stage, text)| format!("{of} {stage}: {text}"))
            .collect::<Vec<_>>()
    });
    let mut report = Report {
        driven,
        devices: vec![
            client.function().address().to_string(),
            server.function().address().to_string(),
        ],
        bring_up: std::mem::take(&mut bench.stages),
        bring_up_to_rts_milliseconds: ready.as_secs_f64() * 1e3,
        tables,
        verified: Vec::new(),
        register_accesses: std::mem::take(&mut bench.accesses),
        interface_breaches: None,
        warnings: warnings.collect(),
    };
    let downs = [client.shutdown(), server.shutdown()];
    for failure in downs.iter().flat_map(|down| &down.failures) {
        report.warnings.push(format!("taking down: {failure}"));
    }
    let breaches = bed.breaches()?;
    report.interface_breaches = breaches.as_ref().map(|found| found.len() as u64);
    let breaches = breaches.unwrap_or_default();
    bench.finish(&report, &distributions)?;
    if let Some(capture) = capture {
        let frames = capture.finish(bed.model_to_capture()?)?;
        writeln!(
            bench.out,
            "{frames} frames captured in {}",
            path_text(options.pcap.as_deref())
        )?;
    }
    judge(&breaches, &downs)
}

/// The configuration with room for what the flags ask for.
fn sized(config: &Config, options: &Bench) -> Config {
    let mut config = config.clone();
    config.rdma.queue_pairs = config.rdma.queue_pairs.max(options.queue_pairs() + 1);
    config
}

/// Finds out before a long run that its results could not be written after it.
fn can_be_written(options: &Bench) -> Result<(), Failure> {
    let json = options.out_json_file.as_path();
    let json = Some(json).filter(|path| options.out_json && *path != Path::new("-"));
    let hgrm = options.hgrm.as_deref();
    for path in [json, hgrm].into_iter().flatten() {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() || path.is_dir() {
            return Err(Failure::usage(anyhow!(
                "{} cannot be written: name a file in a folder that exists",
                path.display()
            )));
        }
    }
    Ok(())
}

fn path_text(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string())
        .unwrap_or_default()
}

/// Tables go to standard output unless JSON does.
fn output(options: &Bench) -> Box<dyn Write> {
    if options.out_json && options.out_json_file == Path::new("-") {
        Box::new(std::io::stderr())
    } else {
        Box::new(std::io::stdout())
    }
}

/// The one line that says what the figures are figures of.
fn driven(bed: &Bed, cores: Cores, captured: bool) -> String {
    let core = |core: Option<usize>| core.map_or("any core".into(), |core| format!("core {core}"));
    let capture = if captured {
        "; every frame was captured, which slows it"
    } else {
        ""
    };
    if bed.model.is_none() {
        let device = match bed.functions[0].backend() {
            Backend::Vfio => "PCI functions of this machine, through the kernel's VFIO",
            _ => "a device in another process, over vfio-user, not hardware",
        };
        return format!("Driven: {device} (driver on {}).", core(cores.driver));
    }
    format!(
        "Driven: the software model of the E810 (driver on {}, model on {}), not hardware; its wire \
         has no speed limit{capture}.",
        core(cores.driver),
        core(cores.model)
    )
}

fn breaches(model: &Threaded, functions: &[u16]) -> Result<Vec<String>, Failure> {
    let functions = functions.to_vec();
    let told = model.with(move |world| {
        let of = |&index: &u16| {
            let breaches = world.breaches(usize::from(index)).into_iter();
            breaches
                .map(|breach| {
                    format!(
                        "model:{index}: {} ({} times), first: {}",
                        breach.kind, breach.count, breach.first
                    )
                })
                .collect::<Vec<_>>()
        };
        functions.iter().flat_map(of).collect()
    });
    told.ok_or_else(|| Failure::operation(anyhow!("the model's thread has ended")))
}

fn judge(breaches: &[String], downs: &[ringside_pmd::ShutdownReport]) -> Result<(), Failure> {
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

/// The two functions of a test, and the model that they live in where that is in this process.
struct Bed {
    functions: [Arc<dyn Function>; 2],
    model: Option<(Threaded, [u16; 2])>,
}

impl Bed {
    fn find(
        options: &Bench,
        address: &DeviceAddress,
        config: &Config,
        cores: Cores,
    ) -> Result<Self, Failure> {
        let by_itself = |address: &DeviceAddress| !matches!(address, DeviceAddress::Model(_));
        match &options.peer {
            Some(peer) if by_itself(peer) && by_itself(address) => {
                let functions = [
                    open(address, config)?.function,
                    open(peer, config)?.function,
                ];
                return Ok(Self {
                    functions,
                    model: None,
                });
            }
            Some(_) => {
                return Err(Failure::usage(anyhow!(
                    "--peer goes with --device where both are PCI addresses or vfio-user:PATH; \
                     otherwise the peer is the next function of the same model"
                )));
            }
            None => {}
        }
        let index = model_index(address)?;
        let model = start_model(config, cores)?;
        let peer = (index + 1) % u16::try_from(config.model.functions).unwrap_or(1).max(1);
        if peer == index {
            return Err(Failure::usage(anyhow!(
                "a test needs two functions: set model.functions to 2 or more in the configuration"
            )));
        }
        let functions = [
            model_function(&model, index)?,
            model_function(&model, peer)?,
        ];
        Ok(Self {
            functions,
            model: Some((model, [index, peer])),
        })
    }

    fn model_to_capture(&self) -> Result<&Threaded, Failure> {
        let model = self.model.as_ref().map(|(model, _)| model);
        model.ok_or_else(|| {
            Failure::usage(anyhow!(
                "--pcap captures the wire of the model in this process only"
            ))
        })
    }

    /// What the model saw broken; `None` if it is in another process, which says so itself.
    fn breaches(&self) -> Result<Option<Vec<String>>, Failure> {
        let model = self.model.as_ref();
        let found = model.map(|(model, functions)| breaches(model, functions));
        found.transpose()
    }
}

/// The name of a test, and its latencies.
type Distribution = (String, Histogram<u64>);

struct Run<'a> {
    options: &'a Bench,
    config: &'a Config,
    out: Box<dyn Write>,
    stages: Vec<StageTime>,
    /// where register accesses are counted
    counters: Option<Counters>,
    accesses: Vec<RegisterAccesses>,
}

impl Run<'_> {
    fn bring_up(&mut self, function: &Arc<dyn Function>) -> Result<Device, Failure> {
        let function = Arc::clone(function);
        let name = function.address().to_string();
        writeln!(self.out, "Bring-up of {name}")?;
        let stages = &mut self.stages;
        let to_stdout = !(self.options.out_json && self.options.out_json_file == Path::new("-"));
        let mut progress = |stage: &StageReport| {
            if to_stdout {
                print_stage(stage, false);
            }
            stages.push(StageTime {
                stage: format!("{name} {}", stage.stage),
                microseconds: stage.took.as_secs_f64() * 1e6,
                summary: match &stage.outcome {
                    StageOutcome::Done => "done".into(),
                    StageOutcome::Skipped(reason) => format!("skipped: {reason}"),
                    StageOutcome::Failed(reason) => format!("failed: {reason}"),
                },
            });
        };
        let options = BringUpOptions {
            progress: Some(&mut progress),
            ..BringUpOptions::default()
        };
        Device::bring_up(function, self.config, options)
            .map_err(|error| Failure::claim(anyhow!("{error}")))
    }

    /// Connects a first pair, to say how long a user waits until traffic can flow.
    fn time_to_ready(
        &self,
        client: &Device,
        server: &Device,
        plans: &[Plan],
        began: Instant,
    ) -> Result<Duration, Failure> {
        let Some(first) = plans.first() else {
            return Ok(began.elapsed());
        };
        let smallest = Plan {
            sizes: vec![8],
            queue_pairs: 1,
            ..first.clone()
        };
        let pair = Pair::connect(client, server, &smallest, self.options.mtu())?;
        let ready = began.elapsed();
        drop(pair);
        Ok(ready)
    }

    fn tables(
        &mut self,
        client: &Device,
        server: &Device,
        plans: &[Plan],
    ) -> Result<(Vec<Table>, Vec<Distribution>), Failure> {
        let mut tables = Vec::new();
        let mut distributions = Vec::new();
        for plan in plans {
            let mut table = Table {
                operation: plan.operation,
                measure: plan.measure,
                queue_pairs: plan.queue_pairs,
                mtu: self.options.mtu(),
                rows: match plan.measure {
                    Measure::Lat => Rows::Latency(Vec::new()),
                    Measure::Bw => Rows::Bandwidth(Vec::new()),
                },
            };
            report::print_head(&mut self.out, &table, self.options.report_gbits)?;
            for &size in &plan.sizes {
                // A pair a size: receives left over from the last one would have its length.
                let of_size = Plan {
                    sizes: vec![size],
                    ..plan.clone()
                };
                let mut pair = Pair::connect(client, server, &of_size, self.options.mtu())?;
                self.row(&mut pair, plan, size, &mut table, &mut distributions)?;
            }
            tables.push(table);
        }
        Ok((tables, distributions))
    }

    fn row(
        &mut self,
        pair: &mut Pair<'_>,
        plan: &Plan,
        size: u64,
        table: &mut Table,
        distributions: &mut Vec<Distribution>,
    ) -> Result<(), Failure> {
        let title = format!(
            "{} {} {size} B",
            plan.operation.title(),
            plan.measure.title()
        );
        let mut progress = Progress::start(title.clone());
        let verified = verify::verify(pair, plan, size)?;
        if let Some(counters) = &self.counters {
            counters.restart();
        }
        let messages = match &mut table.rows {
            Rows::Latency(rows) => {
                let times = latency::measure(pair, plan, size, &mut progress)?;
                drop(progress);
                let row = report::latency_row(size, &times, verified);
                report::print_latency(&mut self.out, &row)?;
                let messages = row.iterations + latency::warm_up(plan);
                rows.push(row);
                distributions.push((title.clone(), times));
                messages
            }
            Rows::Bandwidth(rows) => {
                let row = bandwidth::measure(pair, plan, size, &mut progress, verified)?;
                drop(progress);
                report::print_bandwidth(&mut self.out, &row, self.options.report_gbits)?;
                let messages = row.iterations;
                rows.push(row);
                messages
            }
        };
        if let Some(counters) = &self.counters {
            let counted = counters.take(title, messages);
            accesses::print(&mut self.out, &counted)?;
            self.accesses.push(counted);
        }
        self.out.flush()?;
        Ok(())
    }

    /// Warnings, files and JSON.
    fn finish(&mut self, report: &Report, distributions: &[Distribution]) -> Result<(), Failure> {
        let verified = report.tables.iter().map(|table| match &table.rows {
            Rows::Latency(rows) => rows.iter().map(|row| row.verified_messages).sum::<u64>(),
            Rows::Bandwidth(rows) => rows.iter().map(|row| row.verified_messages).sum(),
        });
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
        writeln!(self.out, "\n{verified}; {breaches}.")?;
        for warning in &report.warnings {
            writeln!(self.out, "warning: {warning}")?;
        }
        if let Some(path) = &self.options.hgrm {
            self.write_distributions(path, distributions)?;
        }
        if !self.options.out_json {
            return Ok(());
        }
        let json = serde_json::to_string_pretty(report)?;
        let path = &self.options.out_json_file;
        if path == Path::new("-") {
            println!("{json}");
        } else {
            std::fs::write(path, json + "\n")
                .with_context(|| format!("writing the report to {}", path.display()))?;
            writeln!(self.out, "report in {}", path.display())?;
        }
        Ok(())
    }

    /// One file for one table; with several, the name of the test goes before the extension.
    fn write_distributions(
        &mut self,
        path: &Path,
        distributions: &[Distribution],
    ) -> Result<(), Failure> {
        if distributions.is_empty() {
            writeln!(
                self.out,
                "warning: --hgrm has nothing to write: no latency was measured"
            )?;
        }
        for (title, times) in distributions {
            let path = if distributions.len() == 1 {
                path.to_owned()
            } else {
                let name = title.to_lowercase().replace(' ', "-");
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!("{stem}-{name}.hgrm"))
            };
            let mut file = std::fs::File::create(&path)
                .with_context(|| format!("writing a distribution to {}", path.display()))?;
            report::write_percentiles(&mut file, times)?;
            writeln!(self.out, "distribution of {title} in {}", path.display())?;
        }
        Ok(())
    }
}
