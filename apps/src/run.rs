//! `ringside run`: an RDMA program on ringside instead of the kernel's driver.
//!
//! Programs that are to meet run on functions of one model, which the first one starts and the
//! last one ends. A folder of the user holds its sockets and two locks: one that starting and
//! ending take in turn, and one that every program shares while it runs.

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Functions of the model, and so programs that meet.
const PORTS: u16 = 8;
/// Longest wait for the model to come up.
const START_LIMIT: Duration = Duration::from_secs(20);

const RUN_HELP: &str = "\
The program finds ringside's libibverbs.so.1 before rdma-core's. It has to be linked dynamically, and
not be setuid. On a model, programs meet on one switch: give each its own port, or none to take the
first that is free. Port N has the address 10.0.0.(N+1) and the GID index 1; index 0 is link-local.

Examples:
  ringside run -- ibv_devinfo -v
  ringside run --port 0 -- ibv_rc_pingpong -g 1
  ringside run --port 1 -- ibv_rc_pingpong -g 1 localhost
  ringside run --device 0000:3b:00.0 -- ib_write_bw -x 1

The exit code is the program's.";

#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// Device to run on, such as 0000:3b:00.0 or vfio-user:PATH; without it, a model
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) device: Option<String>,
    /// Run on a model, as without --device
    #[arg(long, conflicts_with = "device")]
    pub(crate) model: bool,
    /// Function of the model; without it, the first that no program uses
    #[arg(long, value_name = "NUMBER", conflicts_with = "device",
          value_parser = clap::value_parser!(u16).range(0..i64::from(PORTS)))]
    pub(crate) port: Option<u16>,
    /// Folder with the C libraries; without it, c-libraries beside this command
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    let libraries = libraries(options)?;
    if let Some(device) = &options.device {
        let error = program(options, &libraries, device)?.exec();
        return Err(Failure::operation(error));
    }
    let folder = folder()?;
    let port = join(&folder, options.port)?;
    let address = format!("vfio-user:{}", socket(&folder, port.number).display());
    // Ctrl-C goes to the program too, which decides; the model must outlive it.
    let ignored =
        signal_hook::flag::register(signal_hook::consts::SIGINT, std::sync::Arc::default());
    ignored.context("installing a handler of signals")?;
    let ended = program(options, &libraries, &address)?.status();
    leave(&folder, port)?;
    let status = ended.with_context(|| format!("starting {:?}", options.program.first()));
    let status = status.map_err(Failure::usage)?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    match code {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}

/// The folder of the C libraries.
fn libraries(options: &Run) -> Result<PathBuf, Failure> {
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join("c-libraries"))
    };
    let folder = options
        .libraries
        .clone()
        .or_else(beside)
        .unwrap_or_default();
    if folder.join("libibverbs.so.1").is_file() {
        return Ok(folder);
    }
    Err(Failure::usage(anyhow!(
        "no libibverbs.so.1 in {}: build it with capi/build, or name its folder with --libraries",
        folder.display()
    )))
}

fn program(options: &Run, libraries: &Path, device: &str) -> Result<Command, Failure> {
    let (name, arguments) = options
        .program
        .split_first()
        .ok_or_else(|| Failure::usage(anyhow!("no program is named")))?;
    let mut path = libraries.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", path)
        .env("RINGSIDE_DEVICE", device);
    Ok(command)
}

/// The user's folder for sockets and locks.
fn folder() -> Result<PathBuf, Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("ringside"),
        None => PathBuf::from(format!("/tmp/ringside-{user}")),
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.with_context(|| format!("making {}", folder.display()))?;
    let owner = std::fs::symlink_metadata(&folder).context("looking at the folder of sockets")?;
    if owner.uid() != user || !owner.is_dir() {
        return Err(Failure::operation(anyhow!(
            "{} belongs to another user: remove it",
            folder.display()
        )));
    }
    Ok(folder)
}

fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

/// A lock file, opened and locked, waiting if need be.
fn locked(path: &Path, how: FlockOperation) -> Result<File, Failure> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    flock(&file, how).with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// A function of the model that this program has.
struct Port {
    number: u16,
    /// held while the program runs
    users: File,
    _own: File,
}

/// Takes a port, and starts the model if no program has one.
fn join(folder: &Path, wanted: Option<u16>) -> Result<Port, Failure> {
    let turn = locked(&folder.join("turn"), FlockOperation::LockExclusive)?;
    let alone = locked(
        &folder.join("users"),
        FlockOperation::NonBlockingLockExclusive,
    );
    if alone.is_ok() {
        // Of a run whose last program was killed.
        end_model(folder);
        start_model(folder)?;
    }
    drop(alone);
    let users = locked(&folder.join("users"), FlockOperation::LockShared)?;
    let numbers = wanted.map_or(0..PORTS, |port| port..port + 1);
    let taken = numbers.into_iter().find_map(|number| {
        let path = folder.join(format!("{number}.lock"));
        let own = locked(&path, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some((number, own))
    });
    drop(turn);
    match (taken, wanted) {
        (Some((number, own)), _) => Ok(Port {
            number,
            users,
            _own: own,
        }),
        (None, Some(port)) => Err(Failure::claim(anyhow!(
            "port {port} of the model has a program: choose another --port"
        ))),
        (None, None) => Err(Failure::claim(anyhow!(
            "all {PORTS} ports of the model have programs: end one"
        ))),
    }
}

/// Gives the port back, and ends the model if no other program has one.
fn leave(folder: &Path, port: Port) -> Result<(), Failure> {
    let turn = locked(&folder.join("turn"), FlockOperation::LockExclusive)?;
    drop(port.users);
    if locked(
        &folder.join("users"),
        FlockOperation::NonBlockingLockExclusive,
    )
    .is_ok()
    {
        end_model(folder);
    }
    drop(turn);
    Ok(())
}

fn start_model(folder: &Path) -> Result<(), Failure> {
    let own = std::env::current_exe().context("finding this command")?;
    let mut command = Command::new(own);
    command.args(["model", "serve", "--doorbell-page"]);
    for port in 0..PORTS {
        let path = socket(folder, port);
        let _ = std::fs::remove_file(&path);
        command.arg("--socket").arg(path);
    }
    let log = File::create(folder.join("model.log")).context("making the model's log")?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("duplicating a descriptor")?)
        .stderr(log)
        // Signals of the terminal are for programs.
        .process_group(0);
    let mut model = command.spawn().context("starting the model")?;
    std::fs::write(folder.join("model.pid"), model.id().to_string())
        .context("noting the model's process")?;
    let limit = Instant::now() + START_LIMIT;
    while !(0..PORTS).all(|port| socket(folder, port).exists()) {
        let gone = model.try_wait().ok().flatten().is_some();
        if gone || Instant::now() > limit {
            let log = folder.join("model.log");
            return Err(Failure::claim(anyhow!(
                "the model did not start: see {}",
                log.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn end_model(folder: &Path) {
    let path = folder.join("model.pid");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
        return;
    };
    let _ = std::fs::remove_file(&path);
    // The number may be another process's by now: only a model of ours is ended.
    let line =
        std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero().get())).unwrap_or_default();
    let ours = socket(folder, 0);
    let mut words = line.split(|byte| *byte == 0);
    if words.any(|word| word == ours.as_os_str().as_encoded_bytes()) {
        let _ = kill_process(pid, Signal::TERM);
    }
}
