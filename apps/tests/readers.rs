//! Output into a FIFO or pipe that no process reads: a signal ends every command all the same, and
//! nothing is left behind.

mod running;
mod without_verbs;

use running::{end, start};
use rustix::fs::{Mode, OFlags};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use without_verbs::until;

/// A pipe of the kernel's usual size is full at 65,536 bytes; the last packet may not fit.
const FULL: u64 = 60_000;

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

fn fifo(folder: &tempfile::TempDir) -> String {
    let path = path(folder, "fifo");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path
}

/// A reader of a FIFO that does not read.
fn idle_reader(fifo: &str) -> impl AsFd {
    rustix::fs::open(fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap()
}

/// Waits until a process catches SIGTERM.
fn until_it_catches(child: &Child) {
    let path = format!("/proc/{}/status", child.id());
    until("signals are caught", || {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (Signal::TERM.as_raw() - 1) & 1 == 1)
    });
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Ends a command by one signal; returns its exit code and its complaints.
fn ended_by(child: Child, by: Signal) -> (Option<i32>, String) {
    signal(&child, by);
    let output = end(child);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Waits for the end of a process whose output is not read; kills it after the longest wait.
fn ends_unread(child: &mut Child) -> bool {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > running::LIMIT {
            child.kill().unwrap();
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn a_server_whose_file_has_no_reader_yet_ends_by_one_signal() {
    for (flag, by) in [
        ("--pcap", Signal::TERM),
        ("--record", Signal::INT),
        ("--pcap", Signal::HUP),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (socket, fifo) = (path(&folder, "socket"), fifo(&folder));
        let child = start(["model", "serve", "--socket", &socket, flag, &fifo]);
        until("the socket is there", || Path::new(&socket).exists());
        until_it_catches(&child);
        let (code, said) = ended_by(child, by);
        assert_eq!(code, Some(130), "{flag}: {said}");
        assert!(said.contains("no process reads this FIFO yet"), "{said}");
        assert!(!Path::new(&socket).exists(), "{flag} leaves the socket");
    }
}

#[test]
fn a_server_whose_reader_takes_nothing_ends_by_one_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, fifo) = (path(&folder, "socket"), fifo(&folder));
    let reader = idle_reader(&fifo);
    let (local, far) = (path(&folder, "local"), path(&folder, "far"));
    let wire = format!("{local},{far}");
    let line = ["model", "serve", "--socket", &socket, "--pcap", &fifo];
    let child = start(line.into_iter().chain(["--dgram", &wire]));
    let far = UnixDatagram::bind(&far).unwrap();
    until("the wire is there", || far.connect(&local).is_ok());
    far.set_nonblocking(true).unwrap();
    let mut frame = vec![0xFF; 6];
    frame.resize(1500, 2);
    until("the pipe is full", || {
        while far.send(&frame).is_ok() {}
        ioctl_fionread(&reader).unwrap() >= FULL
    });
    // Further frames wait in the server.
    for _ in 0..10 {
        while far.send(&frame).is_ok() {}
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, said) = ended_by(child, Signal::TERM);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the reader does not read"), "{said}");
    assert!(!Path::new(&socket).exists(), "the socket is left");
}

#[test]
fn a_capture_and_a_bench_whose_file_has_no_reader_yet_end_by_one_signal() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(&folder);
    for (line, by) in [
        ("capture --device model:0 -w", Signal::TERM),
        ("bench write lat -n 5 --pcap", Signal::INT),
        ("bench write lat -n 5 --hgrm", Signal::HUP),
        ("bench write lat -n 5 --out_json_file", Signal::TERM),
    ] {
        let child = start(line.split(' ').chain([&*fifo]));
        until_it_catches(&child);
        // Long enough to come to the file, mostly: earlier signals have to end it too.
        std::thread::sleep(Duration::from_millis(1500));
        let (code, said) = ended_by(child, by);
        assert_eq!(code, Some(130), "{line}: {said}");
    }
}

#[test]
fn a_capture_whose_output_is_a_full_pipe_ends_by_one_signal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = path(&folder, "mirror");
    let line = "forward --device model:0 --device model:1 --mode txonly,rxonly --stats-period 0 --duration 600 --mirror";
    let mut forward = start(line.split(' ').chain([&*socket]));
    until("the mirror is there", || Path::new(&socket).exists());
    let mut capture = start(["capture", "--attach", &socket, "-w", "-"]);
    let output = capture.stdout.as_ref().unwrap();
    until("the pipe is full", || {
        ioctl_fionread(output).unwrap() >= FULL
    });
    signal(&capture, Signal::TERM);
    let ended = ends_unread(&mut capture);
    forward.kill().unwrap();
    forward.wait().unwrap();
    assert!(ended, "the capture does not end");
    let output = capture.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told = "the reader of standard output does not read";
    assert!(said.contains(told), "{said}");
}

#[test]
fn a_run_that_ends_before_its_capture_has_a_reader_leaves_no_model() {
    let folder = without_verbs::Folder::new();
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let mut run = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(["run", "--libraries"])
        .arg(folder.path())
        .arg("--pcap")
        .arg(&fifo)
        .args(["--", "true"])
        .env("XDG_RUNTIME_DIR", folder.path())
        .spawn()
        .unwrap();
    let noted: PathBuf = folder.at("model.pid");
    let mut model = String::new();
    until("the model begins", || {
        model = std::fs::read_to_string(&noted).unwrap_or_default();
        !model.is_empty() && folder.at("0.sock").exists()
    });
    signal(&run, Signal::TERM);
    run.wait().unwrap();
    let line = PathBuf::from(format!("/proc/{model}/cmdline"));
    until("the model ends", || {
        let line = std::fs::read(&line).unwrap_or_default();
        !String::from_utf8_lossy(&line).contains("serve")
    });
    assert!(!folder.at("0.sock").exists(), "a socket is left");
}
