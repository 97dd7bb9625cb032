//! `ringside model serve`.

use super::options::{OutsideWire, Serve};
use crate::failure::{Failure, both};
use crate::file_size;
use crate::interrupt;
use crate::open_files;
use crate::outfile::{
    OutFile, Prepared, check_distinct, check_no_output, check_writable, no_reader, not_written,
};
use crate::output::stdout;
use crate::patience;
use crate::users::{self, Peers, Watch};
use anyhow::anyhow;
use ringside_bus::pinning::pin_to;
use ringside_bus::tap::TapError;
use ringside_config::{Config, Core};
use ringside_model::record::Recorder;
use ringside_model::{Fault, FunctionSettings, TimerAccess, World};
use ringside_server::control::Control;
use ringside_server::ports::{
    Capture, DatagramWire, OWN_ADDRESS, Ports, TapWire, UdpError, UdpWire, WireReport,
};
use ringside_server::report::{Report, Sources, breaches_text};
use ringside_server::vfio_user::{Server, ServerSettings};
use ringside_server::{FaultAt, Place};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) fn run(options: &Serve, config: &Config) -> Result<(), Failure> {
    let mut users = watch(options)?;
    let served = serve(options, config, users.as_mut());
    // The server is no child of the command that ends it, which cannot see its exit code.
    if let (Err(failure), Some(folder)) = (&served, &options.users) {
        users::note_failure(folder, failure.code(), &failure.text());
    }
    served
}

/// Sets what the process needs beside its arguments: faults that it survives, and its limits.
fn prepare_process(options: &Serve) -> Result<(), Failure> {
    ringside_bus::survive_vanished_pages();
    open_files::raise();
    file_size::raise(largest_file(options))
}

fn serve(options: &Serve, config: &Config, mut users: Option<&mut Watch>) -> Result<(), Failure> {
    let report_path = match &options.report {
        _ if options.json => Some(Path::new("-")),
        given => given.as_deref(),
    };
    check_paths(options)?;
    prepare_process(options)?;
    if let Some(path) = report_path {
        check_report(path)?;
    }
    let mut output = Output {
        to_error: report_path == Some(Path::new("-")),
    };
    let stop = stop_flag(options)?;
    let configured = match config.model.thread_core {
        Core::Pinned(core) => Some(core as usize),
        Core::Any => None,
    };
    if let Some(core) = options.core.or(configured) {
        pin_to(core).map_err(Failure::usage)?;
    }
    let mut server = bind(options)?;
    inject_faults(options, server.world())?;
    let wires = attach_wires(options, &mut server)?;
    let files = Files::prepare(options, &mut || is_over(&mut users))?;
    let (sources, recorder) = attach(options, &mut server, wires, files, &stop)?;
    for (index, path) in options.sockets.iter().enumerate() {
        output.say(&format!("function {index} on {}\n", path.display()));
    }
    for (name, _) in sources.wires.wires() {
        output.say(&format!("wire: {name}\n"));
    }
    if let Some(users) = users.as_deref_mut() {
        users.begin_to_serve();
    }
    let mut told = vec![0; options.sockets.len()];
    server.run(&stop, |world| {
        for (index, told) in told.iter_mut().enumerate() {
            tell_breaches(world, index, told, &mut output);
        }
        if let Some(capture) = &sources.capture {
            // A failure is reported at the end.
            let _ = capture.flush();
        }
        note_own_addresses(options, &sources.wires);
        if is_over(&mut users) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    note_own_addresses(options, &sources.wires);
    let report = Report::of(server.world(), &sources);
    // Sockets are removed first: a process that waits for that finds the report written.
    server.world().switch().set_tap(None);
    drop(server);
    let captured = sources.capture.map(|capture| capture.finish());
    let written = match report_path {
        Some(path) => write_json(path, &report),
        None => {
            output.say(&report.to_text());
            Ok(())
        }
    };
    let captured = captured.transpose().map(drop).map_err(Failure::operation);
    judge(&report, recorder, [written, captured])
}

/// True if the server is to end: by a signal that counts, which takes no turn of the folder, or
/// because no program uses it any more.
fn is_over(users: &mut Option<&mut Watch>) -> bool {
    interrupt::seen() || users.as_deref_mut().is_some_and(Watch::is_over)
}

/// The flag that ends the server. A signal sets it, unless programs use this server as the model of
/// `ringside run`: one to all processes of a service must not take the device from them.
fn stop_flag(options: &Serve) -> Result<Arc<AtomicBool>, Failure> {
    let signalled = interrupt::catch_for_server()?;
    let Some(folder) = options.users.clone() else {
        return Ok(signalled);
    };
    let ends = Arc::new(AtomicBool::new(false));
    patience::serve(Arc::clone(&ends), move || !users::is_own_model(&folder));
    Ok(ends)
}

/// The server's view of its programs, as the model of `ringside run`. Kept to the end.
fn watch(options: &Serve) -> Result<Option<Watch>, Failure> {
    let peers = Peers::of(&options.wires);
    let folder = options.users.clone();
    folder.map(|folder| Watch::new(folder, peers)).transpose()
}

/// Tells the users of programs that both ends of a wire have the same addresses: the log of the
/// model of `ringside run` is in a file.
fn note_own_addresses(options: &Serve, wires: &WireReport) {
    let Some(folder) = &options.users else { return };
    for (name, counters) in wires.wires() {
        if counters.own_address > 0 {
            users::note_remark(folder, &format!("{name}: {OWN_ADDRESS}"));
        }
    }
}

/// All failures of a server; breaches are the first, which has the exit code.
fn judge(
    report: &Report,
    recorder: Option<Recorder>,
    files: [Result<(), Failure>; 2],
) -> Result<(), Failure> {
    let recorded = match recorder.and_then(|recorder| recorder.failure()) {
        Some(reason) => Err(Failure::operation(anyhow!(
            "the recording is not whole: {reason}; free some disk space"
        ))),
        None => Ok(()),
    };
    let judged = match report.breaches() {
        0 => Ok(()),
        count => Err(Failure::wrong(anyhow!(
            "drivers broke the interface of the device {count} times; the report names each kind"
        ))),
    };
    let files = files.into_iter().chain([recorded]);
    files.fold(judged, both)
}

/// Bytes of the largest file that the server makes.
fn largest_file(options: &Serve) -> u64 {
    match options.doorbell_page {
        true => file_size::OF_A_MODEL,
        false => 0,
    }
}

/// Refuses a path that two flags name, and standard output where there is other text.
fn check_paths(options: &Serve) -> Result<(), Failure> {
    for (flag, path) in [("--pcap", &options.pcap), ("--record", &options.record)] {
        check_no_output(flag, path.as_deref())?;
    }
    let sockets = options.sockets.iter().map(|path| ("--socket", &**path));
    let wires = &options.datagram_wires;
    let wires = wires.iter().map(|ends| ("--dgram", &*ends.local));
    let files = [
        ("--control", &options.control),
        ("--pcap", &options.pcap),
        ("--record", &options.record),
        ("--report", &options.report),
    ];
    let files = files
        .into_iter()
        .filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
    check_distinct(sockets.chain(wires).chain(files))
}

/// Finds out before a long run that its report could not be written after it.
fn check_report(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Ok(());
    }
    check_writable(path).map_err(|error| not_written("the report", path, error).into_usage())
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
    settings.world.frames_as_bytes = options.frames_as_bytes;
    settings.doorbell_page = options.doorbell_page;
    settings.accept_shrinkable_memory = options.accept_shrinkable_memory;
    settings.refused_through_client = options.refused_through_client;
    settings.spin = Duration::from_micros(options.spin_us);
    // The numbers of sockets and functions are one: a path is left as the cause.
    Server::bind(&settings).map_err(Failure::named)
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

/// The files that the server writes while it runs.
struct Files<'a> {
    record: Option<(&'a Path, Prepared)>,
    capture: Option<(&'a Path, Prepared)>,
}

impl<'a> Files<'a> {
    /// Checks the files; waits for the readers of FIFOs.
    fn prepare(options: &'a Serve, is_over: &mut dyn FnMut() -> bool) -> Result<Self, Failure> {
        let record = options.record.as_deref().map(|path| {
            let file = Prepared::new(path, &mut *is_over);
            let file =
                file.map_err(|error| not_written("a recording", path, error).into_usage())?;
            Ok::<_, Failure>((path, file))
        });
        let record = record.transpose()?;
        let capture = options.pcap.as_deref().map(|path| {
            let file = Prepared::new(path, &mut *is_over);
            let file = file.map_err(|error| not_captured(path, error).into_usage())?;
            Ok::<_, Failure>((path, file))
        });
        Ok(Self {
            record,
            capture: capture.transpose()?,
        })
    }

    /// Creates the files, or truncates them.
    fn begin(self) -> Result<(Option<Recorder>, Option<Capture>), Failure> {
        let record = self.record.map(|(path, file)| {
            let file = file.begin();
            let file = file.map_err(|error| not_written("a recording", path, error))?;
            Ok::<_, Failure>(Recorder::to_writer(Box::new(file)))
        });
        let capture = self.capture.map(|(path, file)| {
            let file = file.begin().map(|file| Box::new(file) as _);
            Capture::begin(path, file).map_err(Failure::operation)
        });
        Ok((record.transpose()?, capture.transpose()?))
    }
}

/// The failure of the file of a capture.
fn not_captured(path: &Path, error: std::io::Error) -> Failure {
    no_reader(path, &error).unwrap_or_else(|| match Capture::begin(path, Err(error)) {
        Err(error) => Failure::operation(error),
        Ok(_) => Failure::operation(anyhow!("{}: no capture", path.display())),
    })
}

fn attach_wires(options: &Serve, server: &mut Server) -> Result<WireReport, Failure> {
    let mut ports = Ports::default();
    for ends in &options.datagram_wires {
        let wire = DatagramWire::bind(&ends.local, &ends.far).map_err(Failure::named)?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    for OutsideWire(ends) in &options.wires {
        let wire = UdpWire::open(ends).map_err(|error| match error {
            UdpError::Unreachable { .. } => Failure::operation(error),
            error => Failure::named(error),
        })?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    let numbers = (options.first..).take(options.sockets.len());
    ports.refuse_from(
        numbers
            .map(|number| FunctionSettings::numbered(number).mac)
            .collect(),
    );
    for name in &options.taps {
        let wire = TapWire::open(name).map_err(|error| match error {
            TapError::BadName { .. } | TapError::OtherKind { .. } => Failure::usage(error),
            error => Failure::operation(error),
        })?;
        ports.attach(server.world().switch(), Box::new(wire));
    }
    let wires = ports.report();
    if !wires.wires().is_empty() {
        server.attach(Box::new(ports));
    }
    Ok(wires)
}

/// Attaches control socket, recording and capture. The files are made last: an old one keeps its
/// content if the server does not start.
fn attach(
    options: &Serve,
    server: &mut Server,
    wires: WireReport,
    files: Files<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<(Sources, Option<Recorder>), Failure> {
    let functions = 0..options.sockets.len();
    let before = functions.filter_map(|index| server.world().snapshot(index));
    let mut sources = Sources {
        sockets: options.sockets.clone(),
        before: before.collect(),
        wires,
        capture: None,
    };
    let control = options.control.as_deref();
    let control = control.map(|path| Control::bind(path, sources.clone()));
    let mut control = control.transpose().map_err(Failure::named)?;
    let (recorder, capture) = files.begin()?;
    if let Some(recorder) = &recorder {
        server.world().record(recorder);
    }
    if let Some(capture) = capture.map(Arc::new) {
        server.world().switch().set_tap(Some(capture.tap()));
        if let Some(control) = &mut control {
            control.set_capture(Arc::clone(&capture));
        }
        sources.capture = Some(capture);
    }
    if let Some(mut control) = control {
        control.set_end(Arc::clone(stop));
        server.attach(Box::new(control));
    }
    Ok((sources, recorder))
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
            let mut output = stdout();
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
        OutFile::create(path).and_then(|mut file| file.write_all(text.as_bytes()))
    };
    written.map_err(|error| not_written("the report", path, error))
}
