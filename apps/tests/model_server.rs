//! `ringside model serve` and `ringside model tell` as processes: what they say, what they leave
//! behind, and how they end.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const RINGSIDE: &str = env!("CARGO_BIN_EXE_ringside");
const LIMIT: Duration = Duration::from_secs(30);

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Server(Option<Child>);

impl Server {
    fn start(socket: &Path, arguments: &[&str]) -> Self {
        let child = Command::new(RINGSIDE)
            .args(["model", "serve", "--socket"])
            .arg(socket)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let server = Self(Some(child));
        let mut words = arguments.iter();
        let control = words
            .find(|word| **word == "--control")
            .and_then(|_| words.next());
        until("the server listens", || {
            let sockets = [Some(socket), control.map(Path::new)];
            let mut sockets = sockets.into_iter().flatten();
            sockets.all(|socket| UnixStream::connect(socket).is_ok())
        });
        server
    }

    /// Ends it with a signal; gives its exit code and what it said.
    fn end(mut self, signal: Signal) -> (Option<i32>, String, String) {
        let child = self.0.take().unwrap();
        let id = Pid::from_child(&child);
        // More than once, as `timeout` does it, which signals the process and its group.
        for _ in 0..3 {
            kill_process(id, signal).unwrap();
        }
        let Output {
            status,
            stdout,
            stderr,
        } = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tell(control: &str, words: &str) -> (Option<i32>, Value, String) {
    let output = Command::new(RINGSIDE)
        .args(["model", "tell", control])
        .args(words.split(' '))
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), answer, said)
}

fn frame() -> Vec<u8> {
    let mut frame = [[0xFF; 6], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend([0x88, 0xB5]);
    frame.resize(60, 7);
    frame
}

#[test]
fn a_signal_ends_it_in_order_and_the_report_says_what_was_counted() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::new();
        let (socket, local) = (folder.path("function"), folder.path("local"));
        let wire = format!("{},{}", local.display(), folder.text("far"));
        let (pcap, report) = (folder.text("wire.pcap"), folder.text("report"));
        let control = folder.text("control");
        let server = Server::start(
            &socket,
            &[
                "--dgram",
                &wire,
                "--pcap",
                &pcap,
                "--report",
                &report,
                "--control",
                &control,
            ],
        );
        let far = UnixDatagram::bind(folder.path("far")).unwrap();
        until("the wire is there", || far.connect(&local).is_ok());
        for bytes in [&frame()[..], &frame(), &[], &vec![0; 60_000]] {
            far.send(bytes).unwrap();
        }
        let wires = |answer: &Value, what: &str| answer["wires"][0][what].as_u64();
        let mut status = Value::Null;
        until("all datagrams are counted", || {
            status = tell(&control, "status").1;
            wires(&status, "too_long") == Some(1)
        });
        let (code, said, complaints) = server.end(signal);
        assert_eq!(code, Some(0), "{said}{complaints}");
        assert!(said.contains("function 0 on"), "{said}");
        for path in [&socket, &local, &folder.path("control")] {
            assert!(!path.exists(), "{} is left", path.display());
        }
        let report = std::fs::read_to_string(&report).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["breaches"], 0);
        assert_eq!(report["captured_frames"], 2);
        assert_eq!(report["switch"]["flooded"], 2);
        assert_eq!(wires(&report, "received"), Some(2));
        assert_eq!(wires(&report, "too_short"), Some(1));
        let captured = std::fs::read(&pcap).unwrap();
        assert_eq!(captured.len(), 24 + 2 * (16 + 60));
        assert_eq!(captured[24 + 16..][..60], frame()[..]);
    }
}

/// A driver that writes to a read-only register.
fn break_the_interface(socket: &Path) {
    let clock = std::sync::Arc::new(ringside_bus::TscClock::new());
    let limits = ringside_bus::vfio_user::ClientLimits::default();
    let function = ringside_bus::vfio_user::VfioUserFunction::connect(socket, clock, limits);
    let function: std::sync::Arc<dyn ringside_bus::Function> =
        std::sync::Arc::new(function.unwrap());
    function.config_write(4, &[6, 0]).unwrap();
    // GLNVM_ULD is read-only.
    let read_only = 0xB_6008;
    function.write32(0, read_only, 1).unwrap();
    // The answer to a read comes after the write was looked at.
    function.read32(0, read_only).unwrap();
}

#[test]
fn breaches_are_told_beside_files_that_are_not_whole() {
    let folder = Folder::new();
    let socket = folder.path("function");
    let server = Server::start(&socket, &["--report", "/dev/full"]);
    break_the_interface(&socket);
    let (code, _, complaints) = server.end(Signal::TERM);
    assert_eq!(code, Some(4), "{complaints}");
    for part in ["broke the interface", "writing the report to /dev/full"] {
        assert!(complaints.contains(part), "{part}: {complaints}");
    }
}

#[test]
fn breaches_are_told_and_end_in_exit_code_4() {
    let folder = Folder::new();
    let socket = folder.path("function");
    let server = Server::start(&socket, &["--json"]);
    break_the_interface(&socket);
    let (code, report, complaints) = server.end(Signal::TERM);
    assert_eq!(code, Some(4), "{complaints}");
    let report: Value = serde_json::from_str(&report).expect("nothing but JSON on the output");
    assert_eq!(report["breaches"], 1);
    let kind = &report["functions"][0]["breaches"][0]["kind"];
    assert_eq!(kind, "write to a read-only register");
    assert!(complaints.contains("broke the interface"), "{complaints}");
}

#[test]
fn a_running_server_takes_faults_and_says_what_is_wrong_with_others() {
    let folder = Folder::new();
    let control = folder.text("control");
    let socket = folder.path("function");
    let server = Server::start(&socket, &["--control", &control, "--drop", "5,9"]);
    let (code, answer, _) = tell(&control, "fault 0 link-down");
    assert_eq!((code, &answer["ok"]), (Some(0), &Value::Bool(true)));
    let (_, status, _) = tell(&control, "status");
    assert_eq!(status["functions"][0]["faults"][0], "link-down");
    assert_eq!(status["wire_faults"][0], "drop 5 9");
    let (code, answer, said) = tell(&control, "fault 3 link-down");
    assert_eq!((code, &answer["ok"]), (Some(1), &Value::Bool(false)));
    assert!(said.contains("no function 3"), "{said}");
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    let (code, _, said) = tell(&control, "status");
    assert_eq!(code, Some(1));
    assert!(said.contains("no server listens there"), "{said}");
}

#[test]
fn a_server_that_ends_the_connection_is_not_said_to_be_late() {
    let folder = Folder::new();
    let path = folder.text("control");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let output = Command::new(RINGSIDE)
        .args(["model", "tell", &path, "report"])
        .output();
    let output = output.unwrap();
    server.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the server ended the connection"), "{said}");
    assert!(!said.contains("no answer within"), "{said}");
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_made() {
    let folder = Folder::new();
    let socket = folder.text("function");
    for (arguments, reason) in [
        (&["--fault", "1:link-down"][..], "no function 1"),
        (&["--fault", "wire:link-down"], "of a function"),
        (&["--fault", "0:nothing"], "there is no fault"),
        (&["--drop", "many"], "not a number"),
        (&["--first", "65535"], "end at 65534"),
        (&["--dgram", "one"], "two paths"),
        (&["--dgram", "/tmp/x,/tmp/x"], "path of its own"),
        (&["--tap", "a/b"], "not an interface name"),
        (&["--pcap", "/nowhere/x"], "/nowhere/x"),
        (&["--record", "/nowhere/y"], "/nowhere/y"),
        (&["--control", "/nowhere/z"], "/nowhere/z"),
    ] {
        let output = Command::new("timeout")
            .args(["20", RINGSIDE, "model", "serve", "--socket", &socket])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
        assert!(!Path::new(&socket).exists(), "{arguments:?} left a socket");
    }
}

#[test]
fn a_server_whose_output_nobody_reads_goes_on() {
    let folder = Folder::new();
    let (socket, control) = (folder.path("function"), folder.text("control"));
    let mut child = Command::new(RINGSIDE)
        .args(["model", "serve", "--control", &control, "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    until("the server listens", || {
        UnixStream::connect(&control).is_ok()
    });
    let mut raw = UnixStream::connect(&control).unwrap();
    raw.write_all(&[0xFF; 100]).unwrap();
    drop(raw);
    assert_eq!(tell(&control, "status").0, Some(0));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
