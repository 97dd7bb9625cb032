//! Starts the command and waits for its end, with a deadline.

use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time that a command may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Starts the command with its input and both outputs as pipes. No signal is ignored in it: `nohup`
/// and shells without job control have tests ignore SIGHUP or SIGINT.
pub(crate) fn start(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Child {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_ringside")]);
    command.args(arguments).env_remove("RUST_LOG");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the end of a command. Panics after [`LIMIT`], once the command is killed.
pub(crate) fn end(mut child: Child) -> Output {
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("still running after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}
