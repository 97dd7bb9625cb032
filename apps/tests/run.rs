//! `ringside run`: unmodified programs of the distribution, two at a time on one model.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The folder with `libibverbs.so.1`, linked from the archive of this build.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("this test");
        let deps = own.parent().expect("deps");
        let files = std::fs::read_dir(deps).expect("deps").flatten();
        let archive = files
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("libringside_capi") && name.ends_with(".a")
            })
            .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
        let folder = tempfile::tempdir().expect("a folder").keep();
        let link = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/link");
        let linked = Command::new(link)
            .arg(archive.expect("the archive of this build"))
            .arg(&folder)
            .status();
        assert!(linked.expect("capi/link").success());
        folder
    })
}

/// False where the program is missing, which only a machine that is not CI's may be.
fn is_installed(program: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    let may_miss = std::env::var_os("CI").is_none();
    assert!(
        is_there || may_miss,
        "{program} is missing: .ci/run --tools"
    );
    is_there
}

/// The folder of sockets. A model that a failed test left there is ended.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn pid_file(&self) -> PathBuf {
        self.path().join("ringside/model.pid")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.pid_file()) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

fn start(folder: &Path, port: &str, program: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command
        .args([
            "-k",
            "5",
            "50",
            env!("CARGO_BIN_EXE_ringside"),
            "run",
            "--port",
            port,
        ])
        .arg("--libraries")
        .arg(libraries())
        .arg("--")
        .args(program)
        .env("XDG_RUNTIME_DIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("ringside")
}

fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    text
}

/// Runs server and client; the client again until the server listens. One pair at a time: server,
/// client and model poll without end, and there may be two cores.
fn meet(server: &[&str], client: &[&str]) -> [String; 2] {
    static ONE_PAIR: Mutex<()> = Mutex::new(());
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let mut waiting = start(folder.path(), "0", server);
    let limit = Instant::now() + Duration::from_secs(40);
    let client = loop {
        let output = start(folder.path(), "1", client).wait_with_output();
        let output = output.expect("the client");
        let over = Instant::now() > limit || waiting.try_wait().is_ok_and(|end| end.is_some());
        if output.status.success() || over {
            break output;
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    let server = waiting.wait_with_output().expect("the server");
    let texts = [succeeded(&server), succeeded(&client)];
    assert!(
        !folder.pid_file().exists(),
        "the last program ends the model"
    );
    texts
}

#[test]
fn two_ping_pongs_meet_on_one_model_and_compare_every_byte() {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let common = ["ibv_rc_pingpong", "-g", "1", "-n", "50", "-c", "-p", &port];
    let mut client = common.to_vec();
    client.push("localhost");
    for text in meet(&common, &client) {
        assert!(text.contains("50 iters in"), "{text}");
        assert!(!text.contains("invalid data"), "{text}");
    }
}

#[test]
fn two_ping_pongs_sleep_on_their_completion_channels() {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let port = (40_000 + std::process::id() % 20_000).to_string();
    let common = ["ibv_rc_pingpong", "-g", "1", "-n", "50", "-e", "-p", &port];
    let mut client = common.to_vec();
    client.push("localhost");
    for text in meet(&common, &client) {
        assert!(text.contains("50 iters in"), "{text}");
    }
}

/// Runs a program with itself; the client gets more arguments. Nothing if it is not installed.
fn meet_with(server: &[&str], more: &[&str]) -> Option<[String; 2]> {
    let program = server.first().expect("a program");
    if !is_installed(program) {
        eprintln!("{program} is not installed: not run");
        return None;
    }
    let client = [server, more].concat();
    Some(meet(server, &client))
}

#[test]
fn rping_connects_by_address_and_compares_what_it_reads() {
    if !is_installed("rping") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let server = ["rping", "-s", "-a", "10.0.0.1", "-C", "10", "-V", "-v"];
    let client = ["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v"];
    for text in meet(&server, &client) {
        assert!(text.contains("ping data: rdma-ping-9: "), "{text}");
    }
}

#[test]
fn eight_connections_are_made_and_ended() {
    let server = ["ucmatose", "-b", "10.0.0.1", "-c", "8"];
    if !is_installed("ucmatose") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let client = ["ucmatose", "-b", "10.0.0.2", "-s", "10.0.0.1", "-c", "8"];
    for text in meet(&server, &client) {
        assert!(text.contains("return status 0"), "{text}");
    }
}

#[test]
fn datagram_services_are_found_and_answered() {
    if !is_installed("udaddy") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let server = ["udaddy", "-b", "10.0.0.1", "-c", "2"];
    let client = ["udaddy", "-b", "10.0.0.2", "-s", "10.0.0.1", "-c", "2"];
    for text in meet(&server, &client) {
        assert!(text.contains("return status 0"), "{text}");
    }
}

#[test]
fn an_endpoint_is_made_in_one_call() {
    if !is_installed("rdma_client") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let [server, client] = meet(&["rdma_server"], &["rdma_client", "-s", "10.0.0.1"]);
    assert!(server.contains("rdma_server: end 0"), "{server}");
    assert!(client.contains("rdma_client: end 0"), "{client}");
}

#[test]
fn perftest_counts_what_it_measures() {
    let common = ["ib_send_lat", "-s", "64", "-I", "64", "-n", "20"];
    let Some(texts) = meet_with(&common, &["localhost"]) else {
        return;
    };
    for text in texts {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("64 "));
        let count = line.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(count, Some("20"), "{text}");
    }
}

#[test]
fn ping_pongs_share_their_receives() {
    let port = (10_000 + std::process::id() % 10_000).to_string();
    let common = [
        "ibv_srq_pingpong",
        "-g",
        "1",
        "-n",
        "50",
        "-q",
        "4",
        "-p",
        &port,
    ];
    let texts = meet_with(&common, &["localhost"]);
    for text in texts.iter().flatten() {
        assert!(text.contains("50 iters in"), "{text}");
    }
}

#[test]
fn datagrams_are_answered_by_the_way_that_they_came() {
    let port = (30_000 + std::process::id() % 10_000).to_string();
    let common = ["ibv_ud_pingpong", "-g", "1", "-n", "50", "-c", "-p", &port];
    let texts = meet_with(&common, &["localhost"]);
    for text in texts.iter().flatten() {
        assert!(text.contains("50 iters in"), "{text}");
        assert!(!text.contains("invalid data"), "{text}");
    }
}

/// Kills the program of a `ringside run`, or that and `ringside run` itself, until it has ended.
fn end(mut run: Child, and_itself: bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while run.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < limit, "it does not end");
        kill(run.id(), and_itself);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(own: u32, and_itself: bool) {
    let list = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    let programs = list.unwrap_or_default();
    let is_program = |pid: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "rping"
    };
    let mut victims: Vec<&str> = programs.split_whitespace().filter(is_program).collect();
    let own = own.to_string();
    if and_itself {
        victims.insert(0, &own);
    }
    let _ = Command::new("kill").arg("-9").args(victims).status();
}

#[test]
fn programs_that_are_killed_leave_nothing_behind() {
    if !is_installed("rping") || !is_installed("ibv_devinfo") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let folder = Folder::new();
    let begin = |port: &str, program: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(["run", "--port", port, "--libraries"]);
        command.arg(libraries()).arg("--").args(program);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("ringside")
    };
    for round in 0..6_u64 {
        let server = begin("0", &["rping", "-s", "-a", "10.0.0.1"]);
        let client = begin("1", &["rping", "-c", "-a", "10.0.0.1", "-C", "1000000"]);
        std::thread::sleep(Duration::from_millis(50 + 333 * round));
        end(server, round % 2 == 1);
        end(client, round % 3 == 2);
    }
    for port in ["0", "1"] {
        let output = start(folder.path(), port, &["ibv_devinfo"]).wait_with_output();
        let text = succeeded(&output.expect("ibv_devinfo"));
        assert!(text.contains("PORT_ACTIVE"), "{text}");
    }
    assert!(!folder.pid_file().exists());
}

#[test]
fn a_program_that_does_not_exist_is_said_so() {
    let folder = Folder::new();
    let child = start(folder.path(), "2", &["no-such-program-here"]);
    let output = child.wait_with_output().expect("ringside");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no-such-program-here"), "{errors}");
    assert!(!folder.pid_file().exists());
}
