//! A bench whose two ends are both driven by this process.

use super::accesses::{self, Counters};
use super::bed::Bed;
use super::capture::Capture;
use super::distributions::title;
use super::pair::Pair;
use super::plan::{Plan, plans};
use super::progress::Progress;
use super::report::{self, Rows, Table};
use super::run::{Run, judge, sized};
use super::{bandwidth, latency, verify};
use crate::cli::{Bench, Measure};
use crate::failure::{Failure, both};
use crate::interrupt;
use crate::open::Cores;
use crate::output::{microseconds, span};
use ringside_bus::DeviceAddress;
use ringside_bus::pinning::pin_to;
use ringside_config::Config;
use ringside_pmd::Device;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) fn run(
    options: &Bench,
    address: &DeviceAddress,
    config: &Config,
) -> Result<(), Failure> {
    let plans = plans(options).map_err(Failure::usage)?;
    let config = sized(config, options);
    let cores = Cores::choose(&options.cores, &config);
    interrupt::catch()?;
    let mut bed = Bed::find(options, address, &config, cores)?;
    let mut run = Run::new(options, &config);
    run.counters = options
        .count_writes
        .then(|| Counters::before(&mut bed.functions));
    // Pinned last, so that the model's thread does not inherit the driver's core.
    if let Some(core) = cores.driver {
        pin_to(core).map_err(Failure::usage)?;
    }
    let capture = options.pcap.as_deref();
    let capture = capture
        .map(|path| bed.model_to_capture().and_then(|_| Capture::prepare(path)))
        .transpose()?;
    let began = Instant::now();
    let client = run.bring_up(&bed.functions[0])?;
    let server = run.bring_up(&bed.functions[1])?;
    let capture = capture
        .map(|file| Capture::start(bed.model_to_capture()?, file, capture_path(options)))
        .transpose()?;
    run.report.driven = bed.driven(capture.is_some());
    let ended = drive(&mut run, &bed, [client, server], &plans, began);
    let Some(capture) = capture else {
        return ended;
    };
    // After a failure and a signal too: it names a file that is not whole.
    let captured = bed.model_to_capture().and_then(|model| {
        let frames = capture.finish(model)?;
        let path = capture_path(options).display();
        writeln!(run.out, "{frames} frames captured in {path}")?;
        Ok(())
    });
    both(ended, captured)
}

/// Measures with two devices, shuts them down, and writes the report.
fn drive(
    run: &mut Run<'_>,
    bed: &Bed,
    devices: [Device; 2],
    plans: &[Plan],
    began: Instant,
) -> Result<(), Failure> {
    let [client, server] = devices;
    let ready = time_to_ready(run, &client, &server, plans, began)?;
    run.report.placement = Some(bed.placement);
    run.report.devices = [&client, &server]
        .map(|device| device.function().address().to_string())
        .to_vec();
    run.report.bring_up_to_rts_milliseconds = microseconds(ready) / 1e3;
    let ready = span(ready);
    writeln!(
        run.out,
        "Two functions to RTS in {ready}.\n{}",
        run.report.driven
    )?;
    let measured = tables(run, &client, &server, plans);
    let downs = run.take_down([client, server])?;
    let breaches = bed.breaches();
    let counted = breaches.as_ref().ok().and_then(Option::as_ref);
    run.report.interface_breaches = counted.map(|found| found.len() as u64);
    run.finish(measured)?;
    judge(&breaches?.unwrap_or_default(), &downs)
}

fn capture_path(options: &Bench) -> &Path {
    options.pcap.as_deref().unwrap_or(Path::new(""))
}

/// Connects a first pair, to measure the time until traffic can flow.
fn time_to_ready(
    run: &Run<'_>,
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
    let pair = Pair::connect(client, server, &smallest, run)?;
    let ready = began.elapsed();
    drop(pair);
    Ok(ready)
}

/// Measures each plan, until a signal ends it.
fn tables(
    run: &mut Run<'_>,
    client: &Device,
    server: &Device,
    plans: &[Plan],
) -> Result<(), Failure> {
    for plan in plans {
        let table = Table::empty(plan, run.options.mtu());
        report::print_head(&mut run.out, &table, run.options.report_gbits)?;
        run.report.tables.push(table);
        for &size in &plan.sizes {
            // A pair a size: receives left over from the last one would have its length.
            let of_size = Plan {
                sizes: vec![size],
                ..plan.clone()
            };
            let mut pair = Pair::connect(client, server, &of_size, run)?;
            row(run, &mut pair, plan, size)?;
            if interrupt::seen() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn row(run: &mut Run<'_>, pair: &mut Pair<'_>, plan: &Plan, size: u64) -> Result<(), Failure> {
    let title = title(plan.operation, plan.measure, size);
    let mut progress = Progress::start(title.clone());
    let verified = verify::verify(pair, plan, size)?;
    if let Some(counters) = &run.counters {
        counters.restart();
    }
    let messages = match plan.measure {
        Measure::Lat => {
            let (times, before) = latency::measure(pair, plan, size, &mut progress)?;
            drop(progress);
            if times.is_empty() {
                return Ok(());
            }
            let row = report::latency_row(size, &times, verified);
            report::print_latency(&mut run.out, &row)?;
            let messages = row.iterations + before;
            run.report.push(Rows::Latency(vec![row]));
            run.distributions.push((title.clone(), times));
            messages
        }
        Measure::Bw => {
            let row = bandwidth::measure(pair, plan, size, &mut progress, verified)?;
            drop(progress);
            if row.iterations == 0 {
                return Ok(());
            }
            report::print_bandwidth(&mut run.out, &row, run.options.report_gbits)?;
            let messages = row.iterations;
            run.report.push(Rows::Bandwidth(vec![row]));
            messages
        }
    };
    if let Some(counters) = &run.counters {
        let counted = counters.take(title, messages);
        accesses::print(&mut run.out, &counted)?;
        run.report.register_accesses.push(counted);
    }
    run.out.flush()?;
    Ok(())
}
