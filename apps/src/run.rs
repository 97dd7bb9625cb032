//! `ringside run`: an RDMA program on ringside instead of the kernel's driver.
//!
//! Programs that are to meet run on functions of one model, which the first one starts and the
//! last one ends. A folder of the user holds its sockets and locks; see [`users`].

mod elf;
mod layout;
mod loopback;
mod options;
mod program;
mod signals;

use crate::failure::Failure;
use crate::farewell;
use crate::file_size;
use crate::users::{self, DeviceFiles, Peers, Port, Remark, Taken, socket};
use anyhow::{Context, anyhow};
use layout::Layout;
pub(crate) use options::Run;
use options::{FaultText, PORTS};
use program::{Places, libraries, program, to_its_end};
use ringside_bus::DeviceAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGXFSZ;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the path of a unix socket. Source: unix(7).
const SOCKET_PATH_BYTES: usize = 107;
/// Longest wait for the model to come up.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The wait for the model after which the command says what it waits for.
const WORD_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the end of a model, after a command and after each of two signals.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for a port whose former program's peers are told: more than that takes.
const LEAVING_LIMIT: Duration = Duration::from_secs(20);

/// Runs the program; `config` is the file that it reads too.
pub(crate) fn run(options: &Run, config: Option<&Path>) -> Result<(), Failure> {
    if options.device.is_none() {
        file_size::check_highest(file_size::OF_A_MODEL)?;
    }
    let libraries = libraries(options)?;
    let folder = users::folder()?;
    let (status, model) = match &options.device {
        Some(device) => (
            on_device(options, config, &folder, &libraries, device)?,
            Ok(()),
        ),
        None => on_model(options, config, &folder, &libraries)?,
    };
    if status.signal() == Some(SIGXFSZ) {
        eprintln!(
            "ringside: the program wrote beyond the limit of file sizes, to which memory that it shares with a \
             device counts: `ulimit -f unlimited` lifts it"
        );
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    match (code, model) {
        (Some(0), model) => model,
        (code, model) => {
            if let Err(failure) = model {
                failure.report();
            }
            std::process::exit(code.unwrap_or(1))
        }
    }
}

/// Runs the program on a device, and removes the files that it had there.
fn on_device(
    options: &Run,
    config: Option<&Path>,
    folder: &Path,
    libraries: &Path,
    device: &DeviceAddress,
) -> Result<ExitStatus, Failure> {
    let device = anywhere(device)?;
    let shared = DeviceFiles::share(folder, &device)?;
    let places = Places {
        folder,
        libraries,
        files: shared.path(),
        loopback: None,
    };
    let mut command = program(options, config, text_of(&device), &places)?;
    let ended = to_its_end(&mut command, || {});
    shared.leave();
    ended.map_err(|error| not_started(options, error))
}

/// The address of a device in a form that stays right if the program changes its folder.
fn anywhere(device: &DeviceAddress) -> Result<DeviceAddress, Failure> {
    let DeviceAddress::VfioUser(path) = device else {
        return Ok(device.clone());
    };
    let whole = std::path::absolute(path).context("finding the folder of the device's socket")?;
    // A longer path is none of a socket: the given one may be short enough.
    let whole = Some(whole).filter(|whole| whole.as_os_str().len() <= SOCKET_PATH_BYTES);
    Ok(DeviceAddress::VfioUser(whole.unwrap_or(path.clone())))
}

/// The address as programs read it.
fn text_of(device: &DeviceAddress) -> OsString {
    match device {
        DeviceAddress::VfioUser(path) => {
            let mut text = OsString::from("vfio-user:");
            text.push(path);
            text
        }
        other => other.to_string().into(),
    }
}

/// Runs the program on a port of the model. Returns its end and the model's, if this command has
/// ended that.
fn on_model(
    options: &Run,
    config: Option<&Path>,
    folder: &Path,
    libraries: &Path,
) -> Result<(ExitStatus, Result<(), Failure>), Failure> {
    let port = join(folder, options)?;
    let mut remark = Remark::new(folder);
    if let Err(error) = inject(folder, &options.faults) {
        return Err(match leave(folder, port) {
            Ok(()) => error,
            Err(further) => error.and(&further.text()),
        });
    }
    let socket = users::socket(folder, port.number);
    let files = users::files(folder, port.number);
    // A program that was killed, with its command.
    farewell::say(&files, &socket, config);
    let _ = std::fs::remove_dir_all(&files);
    let ports = Layout::read(folder).ports();
    let places = Places {
        folder,
        libraries,
        files: &files,
        loopback: options.loopback.value(port.number, &ports),
    };
    let device = text_of(&DeviceAddress::VfioUser(socket.clone()));
    let ended = program(options, config, device, &places).and_then(|mut command| {
        port.inherit()?;
        to_its_end(&mut command, || remark.look()).map_err(|error| not_started(options, error))
    });
    // Those of a model that was killed as well are left to the next one.
    if farewell::is_left(&files) && answers(folder) {
        farewell::say(&files, &socket, config);
    }
    let model = leave(folder, port);
    // The model's last look is at its end.
    remark.show();
    Ok((ended?, model))
}

/// The failure of a program that does not start, with its name.
fn not_started(options: &Run, error: std::io::Error) -> Failure {
    let name = options.program.first().map(OsString::as_os_str);
    let name = name.unwrap_or_default();
    let missing = Some(name).filter(|_| error.kind() == ErrorKind::NotFound);
    let shown = name.display();
    let text = match missing.and_then(elf::missing_interpreter) {
        Some(interpreter) => format!(
            "starting {shown}: the file is there, its interpreter {} is not",
            interpreter.display()
        ),
        None => format!("starting {shown}"),
    };
    let is_limit = error.kind() == ErrorKind::WouldBlock;
    let error = anyhow::Error::new(error).context(text);
    match is_limit {
        true => Failure::operation(error),
        false => Failure::usage(error),
    }
}

/// Begins faults of the model. They last as long as the model does.
fn inject(folder: &Path, faults: &[FaultText]) -> Result<(), Failure> {
    for FaultText(text) in faults {
        let line = format!("fault {}", text.replacen(':', " ", 1));
        crate::model::tell(&control(folder), &line)?;
    }
    Ok(())
}

/// The control socket of the model.
fn control(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Takes a port, and starts the model if no program has one. Waits while the model tells the peers
/// of the port's former program that it was killed.
fn join(folder: &Path, options: &Run) -> Result<Port, Failure> {
    let limit = Instant::now() + LEAVING_LIMIT;
    loop {
        match (try_to_join(folder, options)?, options.port) {
            (Taken::Port(port), _) => return Ok(port),
            (Taken::Leaving, _) if Instant::now() < limit => {
                std::thread::sleep(Duration::from_millis(20));
            }
            (Taken::Leaving, _) => {
                return Err(Failure::claim(anyhow!(
                    "the model still tells the peers of a port's former program that it was killed: try again"
                )));
            }
            (_, Some(port)) => {
                return Err(Failure::claim(anyhow!(
                    "port {port} of the model has a program: choose another --port"
                )));
            }
            (_, None) => {
                return Err(Failure::claim(anyhow!(
                    "all {PORTS} ports of the model have programs: end one"
                )));
            }
        }
    }
}

fn try_to_join(folder: &Path, options: &Run) -> Result<Taken, Failure> {
    let _turn = users::turn(folder)?;
    let alone = users::model_alone(folder);
    let layout = if alone.is_some() {
        // The model of a run whose last program was killed; its failure was that run's.
        tell_peers(folder, Layout::read(folder).peers());
        end_model(folder)?;
        let _ = users::take_failure(folder);
        users::forget_remark(folder);
        let wanted = Layout::wanted(options)?;
        check_port(&wanted, options.port)?;
        // The new model sends the messages of programs that a failure of the host has ended.
        users::remove_files(folder, wanted.peers() == Peers::BehindWires);
        wanted.write(folder)?;
        start_model(folder, &wanted)?;
        wanted
    } else {
        let found = Layout::read(folder);
        found.check(options)?;
        check_port(&found, options.port)?;
        found
    };
    drop(alone);
    let numbers = options.port.map_or(layout.ports(), |port| port..port + 1);
    Port::take(folder, numbers)
}

fn check_port(layout: &Layout, port: Option<u16>) -> Result<(), Failure> {
    let ports = layout.ports();
    match port.filter(|port| !ports.contains(port)) {
        None => Ok(()),
        Some(port) => Err(Failure::usage(anyhow!(
            "the model has no port {port}: its ports are {} to {}",
            ports.start,
            ports.end - 1
        ))),
    }
}

/// Releases the port, and ends the model if no other program uses one. Fails with the failure of
/// the model, such as a capture that is not whole, or where it has ended before.
fn leave(folder: &Path, port: Port) -> Result<(), Failure> {
    let _turn = users::turn(folder)?;
    // It does not end by itself while a program has a port.
    let has_ended = has_no_listener(&control(folder));
    let peers = Layout::read(folder).peers();
    let is_last = port.leave(folder, peers);
    if is_last {
        tell_peers(folder, peers);
        end_model(folder)?;
    }
    let log = folder.join("model.log");
    let failure = is_last.then(|| users::take_failure(folder)).flatten();
    let Some((code, text)) = failure else {
        return match has_ended {
            false => Ok(()),
            true => Err(Failure::operation(anyhow!(
                "the model ended before the program; without a reason in {}, it was killed, such as by \
                 the kernel for want of memory",
                log.display()
            ))),
        };
    };
    let error = anyhow!(
        "the model ended with exit code {code}: {text} (see {})",
        log.display()
    );
    Err(Failure::with_code(code, error))
}

/// Tells the peers behind wires of programs that were killed, before a model without programs ends.
/// Peers on the model itself have ended.
fn tell_peers(folder: &Path, peers: Peers) {
    if peers == Peers::OnModel || !answers(folder) {
        return;
    }
    for thread in users::say_farewells(folder) {
        let _ = thread.join();
    }
    // Of some the model has begun to tell.
    let limit = Instant::now() + LEAVING_LIMIT;
    while users::is_telling(folder) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True if the model can send messages. One that was killed may listen for a while, and does not
/// answer.
fn answers(folder: &Path) -> bool {
    crate::model::tell(&control(folder), "help").is_ok()
}

/// True if no process listens at a socket's path.
fn has_no_listener(socket: &Path) -> bool {
    let gone = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    UnixStream::connect(socket).is_err_and(|error| gone.contains(&error.kind()))
}

fn start_model(folder: &Path, layout: &Layout) -> Result<(), Failure> {
    let own =
        std::env::current_exe().context("finding this command, which /proc tells: mount it")?;
    let mut command = Command::new(own);
    command.args(["model", "serve", "--doorbell-page"]);
    for port in layout.ports() {
        let path = socket(folder, port);
        let _ = std::fs::remove_file(&path);
        command.arg("--socket").arg(path);
    }
    command.arg("--first").arg(layout.first.to_string());
    for wire in &layout.wires {
        command.arg("--wire").arg(wire);
    }
    if let Some(file) = &layout.pcap {
        command.arg("--pcap").arg(file);
    }
    let _ = std::fs::remove_file(control(folder));
    command.arg("--control").arg(control(folder));
    command.arg("--users").arg(folder);
    let log = File::create(folder.join("model.log"))
        .map_err(|error| users::not_made("making the model's log", error))?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("duplicating a descriptor")?)
        .stderr(log)
        // Signals of the terminal are for programs.
        .process_group(0);
    let mut model = command.spawn().context("starting the model")?;
    std::fs::write(users::pid_file(folder), model.id().to_string())
        .map_err(|error| users::not_made("noting the model's process", error))?;
    let limit = Instant::now() + START_LIMIT;
    // A pipe opens once a program reads it.
    let is_pipe = |file: &&PathBuf| file.metadata().is_ok_and(|file| file.file_type().is_fifo());
    let mut unread = layout.pcap.as_ref().filter(is_pipe);
    let word_at = Instant::now() + WORD_AFTER;
    // The model makes the control socket last. Its path is there a moment before it listens.
    while UnixStream::connect(control(folder)).is_err() {
        if let Some(file) = unread.take_if(|_| Instant::now() > word_at) {
            eprintln!(
                "ringside: the model starts once a program reads {}",
                file.display()
            );
        }
        let gone = model.try_wait().ok().flatten();
        if gone.is_some() || Instant::now() > limit {
            let log = folder.join("model.log");
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let error = anyhow!(
                "the model did not start: {} (see {})",
                text.lines().last().unwrap_or("it said nothing"),
                log.display()
            );
            // Its wires and its capture are those of this command line.
            return Err(match gone.and_then(|status| status.code()) {
                Some(2) => Failure::usage(error),
                _ => Failure::claim(error),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Ends the model of the folder, and waits until it has ended: it removes its sockets at its end,
/// and the next model's have the same paths.
fn end_model(folder: &Path) -> Result<(), Failure> {
    let process = take_process(folder);
    let control = control(folder);
    // By its socket it is found from another container, too, which shares the folder.
    let is_told = !has_no_listener(&control) && crate::model::tell(&control, "end").is_ok();
    // One that was not told may have ended, or waits for a signal.
    let limit = if is_told { END_LIMIT } else { Duration::ZERO };
    let mut is_over = has_ended(folder, process.as_ref(), limit);
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(process) = process.as_ref().filter(|_| !is_over) else {
            break;
        };
        let _ = pidfd_send_signal(process, signal);
        is_over = has_ended(folder, Some(process), END_LIMIT);
    }
    if is_over {
        // One that was killed has left them.
        let sockets = Layout::read(folder)
            .ports()
            .map(|port| socket(folder, port));
        for path in sockets.chain([control]) {
            let _ = std::fs::remove_file(path);
        }
        return Ok(());
    }
    Err(Failure::claim(anyhow!(
        "the model of an earlier program, which has {}, does not end: end it, and try again",
        control.display()
    )))
}

/// The process of the model, if this command may see it. From now on the folder names none, so that
/// the model heeds signals.
fn take_process(folder: &Path) -> Option<OwnedFd> {
    let path = users::pid_file(folder);
    let text = std::fs::read_to_string(&path).ok()?;
    let _ = std::fs::remove_file(&path);
    // Zero and negative numbers are those of groups of processes.
    let number = text.trim().parse().ok().filter(|number: &i32| *number > 0);
    let pid = number.and_then(Pid::from_raw)?;
    // From here on the number is this process's: the descriptor stands for it.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let control = control(folder);
    let mut words = line.split(|byte| *byte == 0);
    // It may be another one's by now.
    let is_model = words.any(|word| word == control.as_os_str().as_encoded_bytes());
    is_model.then_some(process)
}

/// True once the model has ended; waits for `time` at most.
fn has_ended(folder: &Path, process: Option<&OwnedFd>, time: Duration) -> bool {
    let limit = Instant::now() + time;
    // A descriptor of a process can be read once that has ended.
    let runs = |process: &OwnedFd| {
        let mut watched = [PollFd::new(process, PollFlags::IN)];
        matches!(poll(&mut watched, Some(&Timespec::default())), Ok(0))
    };
    while !users::has_model_ended(folder) || process.is_some_and(runs) {
        if Instant::now() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
