//! `ringside model serve`.

use super::{OutsideWire, Serve};
use crate::failure::Failure;
use crate::file_size;
use crate::output::stdout;
use crate::users::{self, Watch};
use anyhow::{Context, anyhow};
use ringside_bus::pinning::pin_to;
use ringside_model::record::Recorder;
use ringside_model::{Fault, FunctionSettings, TimerAccess, World};
use ringside_server::control::Control;
use ringside_server::ports::{Capture, DatagramWire, Ports, TapWire, UdpWire};
use ringside_server::report::{Report, Sources, breaches_text};
use ringside_server::vfio_user::{Server, ServerSettings};
use ringside_server::{FaultAt, Place};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) fn run(options: &Serve) -> Result<(), Failure> {
    let served = serve(options);
    // The server is no child of the command that ends it, which cannot see its exit code.
    if let (Err(failure), Some(folder)) = (&served, &options.users) {
        users::note_failure(folder, failure.code(), &failure.text());
    }
    served
}

fn serve(options: &Serve) -> Result<(), Failure> {
    let report_path = match &options.report {
        _ if options.json => Some(Path::new("-")),
        given => given.as_deref(),
    };
    check_paths(options)?;
    let largest_file = if options.doorbell_page {
        file_size::OF_A_MODEL
    } else {
        0
    };
    file_size::raise(largest_file)?;
    if let Some(path) = report_path {
        check_report(path)?;
    }
    let mut output = Output {
        to_error: report_path == Some(Path::new("-")),
    };
    let stop = stop_by_signal()?;
    if let Some(core) = options.core {
        pin_to(core).map_err(Failure::usage)?;
    }
    let mut server = bind(options)?;
    inject_faults(options, server.world())?;
    let recorder = options.record.as_deref().map(record_to).transpose()?;
    if let Some(recorder) = &recorder {
        server.world().record(recorder);
    }
    let sources = attach(options, &mut server)?;
    for (index, path) in options.sockets.iter().enumerate() {
        output.say(&format!("function {index} on {}\n", path.display()));
    }
    for (name, _) in sources.wires.wires() {
        output.say(&format!("wire: {name}\n"));
    }
    let mut told = vec![0; options.sockets.len()];
    let mut users = options.users.clone().map(Watch::new);
    server.run(&stop, |world| {
        for (index, told) in told.iter_mut().enumerate() {
            tell_breaches(world, index, told, &mut output);
        }
        if let Some(capture) = &sources.capture {
            capture.flush();
        }
        if users.as_mut().is_some_and(Watch::is_over) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let report = Report::of(server.world(), &sources);
    // Sockets are removed first: a process that waits for that finds the report written.
    server.world().switch().set_tap(None);
    drop(server);
    let captured = sources.capture.map(|capture| capture.finish());
    match report_path {
        Some(path) => write_json(path, &report)?,
        None => output.say(&report.to_text()),
    }
    captured.transpose().map_err(Failure::operation)?;
    if let Some(reason) = recorder.and_then(|recorder| recorder.failure()) {
        return Err(Failure::operation(anyhow!(
            "the recording is not whole: {reason}; free some disk space"
        )));
    }
    match report.breaches() {
        0 => Ok(()),
        count => Err(Failure::wrong(anyhow!(
            "drivers broke the interface of the device {count} times; the report names each kind"
        ))),
    }
}

/// Refuses a path that two flags name: the later one would replace what the earlier one made there.
fn check_paths(options: &Serve) -> Result<(), Failure> {
    let sockets = options.sockets.iter().map(|path| ("--socket", path));
    let wires = &options.datagram_wires;
    let wires = wires.iter().map(|ends| ("--dgram", &ends.local));
    let files = [
        ("--control", &options.control),
        ("--pcap", &options.pcap),
        ("--record", &options.record),
        ("--report", &options.report),
    ];
    let files = files
        .into_iter()
        .filter_map(|(flag, path)| Some((flag, path.as_ref()?)))
        // Several flags may name /dev/null.
        .filter(|(_, path)| !path.starts_with("/dev"));
    let mut earlier: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in sockets.chain(wires).chain(files) {
        let whole = std::path::absolute(path)
            .map_err(|error| Failure::usage(anyhow!("{flag} {}: {error}", path.display())))?;
        if let Some((other, _)) = earlier.iter().find(|(_, known)| *known == whole) {
            return Err(Failure::usage(anyhow!(
                "{other} and {flag} name the same path {}: give each its own",
                path.display()
            )));
        }
        earlier.push((flag, whole));
    }
    Ok(())
}

/// Finds out before a long run that its report could not be written after it.
fn check_report(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Ok(());
    }
    let opened = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    opened.with_context(|| format!("writing the report to {}", path.display()))?;
    Ok(())
}

/// Set by SIGTERM and SIGINT. A second one changes nothing: `timeout` and shells send a signal to the
/// process and to its group, so that it comes twice.
fn stop_by_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("installing a handler of signals")?;
    }
    Ok(stop)
}

fn bind(options: &Serve) -> Result<Server, Failure> {
    let count = u16::try_from(options.sockets.len()).ok();
    let Some(end) = count.and_then(|count| options.first.checked_add(count)) else {
        return Err(Failure::usage(anyhow!(
            "--first {}: the numbers of functions end at 65534, so choose at most {}",
            options.first,
            usize::from(u16::MAX).saturating_sub(options.sockets.len())
        )));
    };
    let mut settings = ServerSettings::new(options.sockets.clone());
    let numbers = options.first..end;
    let timer = options.timer.map_or(TimerAccess::Absent, TimerAccess::from);
    let function = |number| FunctionSettings {
        timer,
        ..FunctionSettings::numbered(number)
    };
    settings.world.functions = numbers.map(function).collect();
    settings.doorbell_page = options.doorbell_page;
    settings.accept_shrinkable_memory = options.accept_shrinkable_memory;
    settings.refused_through_client = options.refused_through_client;
    settings.spin = Duration::from_micros(options.spin_us);
    Server::bind(&settings).map_err(Failure::operation)
}

fn inject_faults(options: &Serve, world: &mut World) -> Result<(), Failure> {
    let functions = options.sockets.len();
    let mut faults = options.faults.clone();
    faults.extend(options.drop.map(|lost| FaultAt {
        place: Place::Wire,
        fault: lost.0,
    }));
    if options.no_package {
        faults.extend((0..functions).map(|index| FaultAt {
            place: Place::Function(index),
            fault: Fault::NoPackageLoaded,
        }));
    }
    for FaultAt { place, fault } in faults {
        let checked = place.check(fault, functions);
        checked.map_err(|error| Failure::usage(anyhow!("{error}")))?;
        world.inject(place.index(), fault);
    }
    Ok(())
}

fn record_to(path: &Path) -> Result<Recorder, Failure> {
    let file =
        File::create(path).with_context(|| format!("writing a recording to {}", path.display()))?;
    Ok(Recorder::to_writer(Box::new(file)))
}

/// Attaches wires, capture and control socket.
fn attach(options: &Serve, server: &mut Server) -> Result<Sources, Failure> {
    let mut ports = Ports::default();
    for ends in &options.datagram_wires {
        let wire = DatagramWire::bind(&ends.local, &ends.far).map_err(Failure::operation)?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    for OutsideWire(ends) in &options.wires {
        let wire = UdpWire::open(ends).map_err(Failure::operation)?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    let numbers = (options.first..).take(options.sockets.len());
    ports.refuse_from(
        numbers
            .map(|number| FunctionSettings::numbered(number).mac)
            .collect(),
    );
    for name in &options.taps {
        let wire = TapWire::open(name).map_err(Failure::operation)?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    let wires = ports.report();
    if !wires.wires().is_empty() {
        server.attach(Box::new(ports));
    }
    let capture = options.pcap.as_deref().map(Capture::create);
    let capture = capture.transpose().map_err(Failure::operation)?;
    if let Some(capture) = &capture {
        server.world().switch().set_tap(Some(capture.tap()));
    }
    let functions = 0..options.sockets.len();
    let before = functions.filter_map(|index| server.world().snapshot(index));
    let sources = Sources {
        sockets: options.sockets.clone(),
        before: before.collect(),
        wires,
        capture: capture.map(Arc::new),
    };
    if let Some(path) = &options.control {
        let control = Control::bind(path, sources.clone()).map_err(Failure::operation)?;
        server.attach(Box::new(control));
    }
    Ok(sources)
}

/// The output of a server. A closed output does not end the server.
struct Output {
    to_error: bool,
}

impl Output {
    fn say(&mut self, text: &str) {
        let _ = if self.to_error {
            std::io::stderr().write_all(text.as_bytes())
        } else {
            let mut output = std::io::stdout();
            output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush())
        };
    }
}

/// Prints the rules of the interface that a driver has broken, each time there are new breaches.
fn tell_breaches(world: &World, index: usize, told: &mut u64, output: &mut Output) {
    let breaches = world.breaches(index);
    let count = breaches.iter().map(|breach| breach.count).sum();
    if count != *told {
        *told = count;
        output.say(&breaches_text(index, &breaches));
    }
}

fn write_json(path: &Path, report: &Report) -> Result<(), Failure> {
    let text = format!("{:#}\n", report.to_json());
    let written = if path == Path::new("-") {
        let mut output = stdout();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
    } else {
        std::fs::write(path, text)
    };
    written.with_context(|| format!("writing the report to {}", path.display()))?;
    Ok(())
}
