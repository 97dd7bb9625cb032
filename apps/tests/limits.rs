//! Limits of the process: of threads and processes, of open files, of the size of files. No command
//! panics, and each names the limit.

mod running;

use running::{LIMIT, end};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command in a folder that every user may read and write; the folder goes with it. The limit
/// of processes of a user counts threads, but not those of root: no place if this is not root.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI runs this as root");
            eprintln!("not run: only root becomes another user");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::copy(env!("CARGO_BIN_EXE_ringside"), place.program()).unwrap();
        place.open(place.0.path());
        place.open(&place.program());
        Some(place)
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("command")
    }

    fn open(&self, path: &Path) {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }

    /// Runs the command as a user who has no other process, with at most `most` threads.
    fn limited(&self, user: u32, most: usize, line: &str) -> Output {
        let mut command = Command::new("setpriv");
        let [user, group] = ["--reuid", "--regid"].map(|flag| format!("{flag}={user}"));
        command.args([&user, &group, "--clear-groups", "bash", "-c"]);
        let line = format!("ulimit -u {most}; exec \"$0\" {line}");
        command.arg(line).arg(self.program());
        command.env("XDG_RUNTIME_DIR", self.0.path());
        end(started(&mut command))
    }
}

/// Ends with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("RUST_LOG");
    command.spawn().unwrap()
}

#[test]
fn a_simulation_runs_with_the_threads_that_it_gets() {
    let Some(place) = Place::new() else { return };
    // Its own thread, that for signals, and the one that looks at the jobs.
    let output = place.limited(65_533, 3, "sim --runs 2 --steps 20 --jobs 4 --json");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("raise the limit of processes"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["runs"], 2);
}

/// Each number of threads ends the commands at another place.
#[test]
fn commands_whose_threads_are_refused_end_and_name_the_limit() {
    let Some(place) = Place::new() else { return };
    let socket = place.0.path().join("socket");
    let _server = Killed(running::start([
        OsStr::new("model"),
        OsStr::new("serve"),
        OsStr::new("--socket"),
        socket.as_os_str(),
    ]));
    let begin = Instant::now();
    while !socket.exists() {
        assert!(begin.elapsed() < LIMIT, "no server");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    place.open(&socket);
    let listen = format!(
        "bench --listen 127.0.0.1:0 --wait 1 --device vfio-user:{}",
        socket.display()
    );
    let mirror = format!(
        "forward --duration 1 --mirror {}",
        place.0.path().join("mirror").display()
    );
    // `true` needs none of the libraries.
    std::fs::write(place.0.path().join("libibverbs.so.1"), "").unwrap();
    let run = format!("run --libraries {} -- true", place.0.path().display());
    let commands: [(&str, usize, &str); 6] = [
        ("forward --duration 1 --queues 4", 8, "of the 4 of --queues"),
        ("forward --duration 1 --cores 0", 6, "on a core of --cores"),
        (
            "forward --duration 1 --interactive",
            6,
            "reads standard input",
        ),
        (&mirror, 6, "the thread of --mirror"),
        (&listen, 3, "for the port's IP stack"),
        (&run, 2, "starting "),
    ];
    for (line, most, place_of_end) in commands {
        let mut texts = String::new();
        for most in 1..=most {
            let output = place.limited(65_532, most, line);
            let said = text(&output.stderr);
            let code = output.status.code();
            let is_limit =
                matches!(code, Some(1 | 3)) && said.contains("raise the limit of processes");
            // With enough threads it ends otherwise: no peer comes, for instance.
            let is_enough = code == Some(0) || said.contains("no peer connected");
            assert!(
                is_limit || is_enough,
                "{line}, {most} threads, {code:?}: {said}"
            );
            texts += &said;
        }
        assert!(texts.contains(place_of_end), "{line}: {texts}");
    }
}

/// A want of the machine is no broken rule: no replay shows it on another one.
#[test]
fn a_simulation_that_the_machine_has_no_room_for_is_no_finding() {
    for (limit, remedy) in [("-f 10", "ulimit -f"), ("-n 10", "ulimit -n")] {
        let mut command = Command::new("bash");
        let line = format!("ulimit {limit}; exec \"$0\" sim --runs 3 --json");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_ringside")]);
        let output = end(started(&mut command));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{limit}: {said}");
        assert!(said.contains(remedy), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["findings"], serde_json::json!([]), "{report}");
        assert_eq!(report["runs"], 0, "{report}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_named() {
    let device = OsStr::from_bytes(b"vfio-user:/tmp/\xFF");
    let output = end(running::start([
        OsStr::new("info"),
        OsStr::new("--device"),
        device,
    ]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("\"vfio-user:/tmp/\\xFF\": not text in UTF-8"),
        "{said}"
    );
}
