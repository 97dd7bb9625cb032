//! `ringside run`: unmodified programs of the distribution, two at a time on one model.

use std::io::{BufRead, BufReader};
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
        let pid = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        if pid.trim().parse::<u32>().is_ok() {
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

/// One pair of programs at a time: server, client and model poll without end, and there may be two
/// cores.
static ONE_PAIR: Mutex<()> = Mutex::new(());

/// Runs server and client; the client again until the server listens.
fn meet(server: &[&str], client: &[&str]) -> [String; 2] {
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

#[test]
fn programs_that_sleep_on_a_channel_wake_when_the_device_is_gone() {
    if !is_installed("ibv_rc_pingpong") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let port = (30_000 + std::process::id() % 10_000).to_string();
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    // Each line is to be seen at once.
    let server = format!("stdbuf -oL ibv_rc_pingpong -g 1 -n 100000000 -e -p {port}");
    let server: Vec<&str> = server.split(' ').collect();
    let client = [&server[..], &["localhost"]].concat();
    let folder = Folder::new();
    let server = start(folder.path(), "0", &server);
    let limit = Instant::now() + Duration::from_secs(30);
    let client = loop {
        let mut client = start(folder.path(), "1", &client);
        let lines = BufReader::new(client.stdout.take().expect("its output")).lines();
        // It knows its peer: the exchange begins.
        if lines
            .map_while(Result::ok)
            .any(|line| line.contains("remote address"))
        {
            break client;
        }
        let output = client.wait_with_output().expect("the client");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < limit, "the server does not listen: {text}");
        std::thread::sleep(Duration::from_millis(300));
    };
    std::thread::sleep(Duration::from_secs(1));
    let model = std::fs::read_to_string(folder.pid_file()).expect("a model");
    let killed = Command::new("kill").args(["-KILL", model.trim()]).status();
    assert!(killed.expect("kill").success());
    for program in [server, client] {
        let output = program.wait_with_output().expect("the program");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("Work Request Flushed Error"), "{text}");
        assert_eq!(output.status.code(), Some(1), "{text}");
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
    // 236 inline bytes by default, more than the card has
    let common = ["ib_send_lat", "-s", "200", "-n", "20"];
    let Some(texts) = meet_with(&common, &["localhost"]) else {
        return;
    };
    for text in texts {
        assert_eq!(measured(&text, "200").as_deref(), Some("20"), "{text}");
    }
}

/// The number of iterations that perftest reports for a size.
fn measured(text: &str, size: &str) -> Option<String> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some(size))?;
    line.nth(1).map(str::to_owned)
}

/// perftest makes two connections, and its server listens for the second one only after the client
/// may have asked for it.
#[test]
fn perftest_connects_by_the_connection_manager() {
    let common = ["ib_send_lat", "-R", "-s", "64", "-n", "20"];
    for _ in 0..3 {
        let texts = meet_with(&common, &["10.0.0.1"]);
        for text in texts.iter().flatten() {
            assert_eq!(measured(text, "64").as_deref(), Some("20"), "{text}");
        }
    }
}

#[test]
fn what_programs_read_of_the_kernel_is_answered() {
    if !is_installed("ibv_devices") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let folder = Folder::new();
    let place = "/sys/class/infiniband/ringside0/ports/1";
    let script = format!(
        "ibv_devices >/dev/null && cat {place}/gid_attrs/types/1 {place}/gids/1 {place}/state && \
         stat -c %F /dev/infiniband/uverbs0"
    );
    let output = start(folder.path(), "3", &["bash", "-c", &script]).wait_with_output();
    let text = succeeded(&output.expect("bash"));
    let lines: Vec<&str> = text.lines().collect();
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0004";
    let expected = ["RoCE v2", gid, "4: ACTIVE", "character special file"];
    assert_eq!(lines, expected);
}

#[test]
fn the_interface_of_the_device_is_found_by_its_name() {
    let folder = Folder::new();
    let Some(program) = compiled("interface", folder.path()) else {
        return;
    };
    let output = start(folder.path(), "3", &[&program]).wait_with_output();
    assert_eq!(succeeded(&output.expect("the program")), "ok\n");
}

#[test]
fn ucx_finds_the_device_and_sends_over_reliable_connections() {
    let server = [
        "env",
        "UCX_TLS=rc_v",
        "UCX_NET_DEVICES=ringside0:1",
        "ucx_perftest",
        "-t",
        "tag_lat",
        "-n",
        "50",
        "-w",
        "5",
    ];
    if !is_installed("ucx_perftest") {
        eprintln!("ucx-utils is not installed: not run");
        return;
    }
    let client = [&server[..], &["127.0.0.1"]].concat();
    let [_, client] = meet(&server, &client);
    let last = client.lines().find(|line| line.starts_with("Final:"));
    let count = last.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(count, Some("50"), "{client}");
}

/// Compiles a program of `capi/tests`; nothing if the headers are missing.
fn compiled(name: &str, folder: &Path) -> Option<String> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "librdmacm-dev is missing: .ci/run --tools");
        return None;
    }
    let source = format!("{}/../capi/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(name);
    let mut compile = Command::new("cc");
    compile.args([
        "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", &source, "-o",
    ]);
    compile.arg(&program).args(["-lrdmacm", "-libverbs"]);
    succeeded(&compile.output().expect("cc"));
    Some(program.to_str().expect("a path").to_owned())
}

#[test]
fn a_program_that_ends_without_a_word_is_missed_by_its_peer_and_its_child_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let server = [program.as_str(), "server", "10.0.0.1"];
    let client = [program.as_str(), "client", "10.0.0.1"];
    let [server, _] = meet(&server, &client);
    assert!(server.contains("the peer has left"), "{server}");
}

/// A server that only waits for events is told that its client was killed: by the client's command,
/// or by the model if that was killed too.
fn hears_of_the_killed(how: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let waiting = start(sockets.path(), "0", &[&program, "server", "10.0.0.1"]);
    std::thread::sleep(Duration::from_secs(1));
    let dying = start(sockets.path(), "1", &[&program, how, "10.0.0.1"]);
    let died = dying.wait_with_output().expect("the client");
    assert!(!died.status.success(), "{died:?}");
    let text = succeeded(&waiting.wait_with_output().expect("the server"));
    assert!(text.contains("the peer has left"), "{text}");
}

#[test]
fn a_server_that_waits_hears_that_its_client_was_killed() {
    hears_of_the_killed("killed");
}

#[test]
fn a_server_that_waits_hears_that_its_client_was_killed_with_its_command() {
    hears_of_the_killed("both");
}

#[test]
fn the_next_program_of_a_command_tells_the_peers_of_a_killed_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let waiting = start(sockets.path(), "0", &[&program, "server", "10.0.0.1"]);
    std::thread::sleep(Duration::from_secs(1));
    let script = "\"$0\" killed 10.0.0.1; \"$0\" idle 10.0.0.1; exec sleep 40";
    let command = start(sockets.path(), "1", &["sh", "-c", script, &program]);
    let waited = waiting.wait_with_output().expect("the server");
    let _ = Command::new("kill").arg(command.id().to_string()).status();
    let text = succeeded(&waited);
    assert!(text.contains("the peer has left"), "{text}");
    command.wait_with_output().expect("the command");
}

#[test]
fn sockets_stream_peek_map_and_end_between_two_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("sockets", folder.path()) else {
        return;
    };
    let server = [program.as_str(), "server", "10.0.0.1"];
    let client = [program.as_str(), "client", "10.0.0.1"];
    for text in meet(&server, &client) {
        assert_eq!(text, "ok\n");
    }
}

#[test]
fn datagram_sockets_keep_boundaries_sources_and_wakeups_between_two_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("datagrams", folder.path()) else {
        return;
    };
    let server = [program.as_str(), "server", "10.0.0.1"];
    let client = [program.as_str(), "client", "10.0.0.1"];
    for text in meet(&server, &client) {
        assert_eq!(text, "ok\n");
    }
}

#[test]
fn udpong_gets_its_datagrams_back() {
    if !is_installed("udpong") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let sockets = Folder::new();
    // It serves without end.
    let serving = start(
        sockets.path(),
        "0",
        &["udpong", "-b", "10.0.0.1", "-T", "b"],
    );
    std::thread::sleep(Duration::from_secs(1));
    let client = ["udpong", "-s", "10.0.0.1", "-T", "e", "-T", "b"];
    let client = [&client[..], &["-S", "1000", "-C", "100"]].concat();
    let client = start(sockets.path(), "1", &client).wait_with_output();
    let _ = Command::new("kill").arg(serving.id().to_string()).status();
    serving.wait_with_output().expect("the server");
    let text = succeeded(&client.expect("the client"));
    assert!(text.contains("custom    1000    200"), "{text}");
}

/// A socket that waits for data learns that its peer was killed, and how it learns it.
fn socket_hears_of_the_killed(how: &str, wanted: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("sockets", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let waiting = start(sockets.path(), "0", &[&program, "waits", "10.0.0.1"]);
    std::thread::sleep(Duration::from_secs(1));
    let dying = start(sockets.path(), "1", &[&program, how, "10.0.0.1"]);
    let died = dying.wait_with_output().expect("the client");
    assert_eq!(died.status.code(), Some(128 + 9), "{died:?}");
    let text = succeeded(&waiting.wait_with_output().expect("the server"));
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_socket_that_waits_hears_that_its_peer_was_killed() {
    socket_hears_of_the_killed("dies", "the peer is gone: end");
}

#[test]
fn a_socket_that_waits_notices_that_its_peer_is_gone_without_a_word() {
    socket_hears_of_the_killed("vanishes", "the peer is gone: Connection");
}

/// A stream in one mode of rstream or riostream, every byte compared.
fn stream(program: &str, mode: &str) {
    let common = [
        program, "-T", mode, "-T", "v", "-S", "4096", "-I", "4", "-C", "20",
    ];
    let mut client = common.to_vec();
    client.extend(["-s", "10.0.0.1"]);
    for text in meet(&common, &client) {
        assert!(text.contains("custom") || text.contains("4k"), "{text}");
    }
}

#[test]
fn rstream_and_riostream_compare_what_they_receive() {
    if !is_installed("rstream") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    stream("rstream", "a");
    stream("riostream", "b");
}

#[test]
fn faults_of_the_wire_are_survived_and_wrong_ones_refused() {
    if !is_installed("rping") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let folder = Folder::new();
    let run = |port: &str, fault: &str, program: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "50", env!("CARGO_BIN_EXE_ringside"), "run"]);
        command.args(["--port", port, "--fault", fault, "--libraries"]);
        command.arg(libraries()).arg("--").args(program);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ringside")
    };
    let wrong = run("0", "0:drop 3", &["rping"]).wait_with_output();
    let wrong = wrong.expect("ringside");
    assert!(!wrong.status.success());
    let errors = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(errors.contains("a fault of the wire"), "{errors}");
    let fault = "wire:corrupt 5000";
    let server = run(
        "0",
        fault,
        &["rping", "-s", "-a", "10.0.0.1", "-C", "60", "-V"],
    );
    std::thread::sleep(Duration::from_secs(1));
    let client = run(
        "1",
        fault,
        &["rping", "-c", "-a", "10.0.0.1", "-C", "60", "-V"],
    );
    for end in [client, server] {
        succeeded(&end.wait_with_output().expect("rping"));
    }
    assert!(!folder.pid_file().exists());
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
fn a_model_has_ended_before_the_next_one_starts() {
    let folder = Folder::new();
    let mut killed = start(folder.path(), "0", &["sleep", "40"]);
    let limit = Instant::now() + Duration::from_secs(20);
    let model = loop {
        assert!(Instant::now() < limit, "the model does not start");
        let pid = std::fs::read_to_string(folder.pid_file()).unwrap_or_default();
        if !pid.is_empty() && folder.path().join("ringside/0.lock").exists() {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let signal = |name: &str, pid: &str| {
        let sent = Command::new("kill").args([name, pid]).status();
        assert!(sent.expect("kill").success());
    };
    let everything = format!("pkill -9 -P {0} sleep; kill -9 {0}", family(killed.id()));
    let ended = Command::new("sh").args(["-c", &everything]).status();
    ended.expect("sh");
    killed.wait().expect("a child");
    // A model that is slow to end, as on a busy machine. Not stopped before: the kernel ends a stopped
    // process group when its parent ends.
    signal("-STOP", &model);
    let is_there = format!("! grep -q . /proc/{model}/cmdline");
    let next = start(folder.path(), "0", &["sh", "-c", &is_there]);
    std::thread::sleep(Duration::from_secs(4));
    signal("-CONT", &model);
    succeeded(&next.wait_with_output().expect("the next program"));
    assert!(!folder.pid_file().exists());
}

/// The `ringside run` that `timeout` has started.
fn family(timeout: u32) -> u32 {
    let list = std::fs::read_to_string(format!("/proc/{timeout}/task/{timeout}/children"));
    let list = list.expect("the children of timeout");
    list.trim().parse().expect("one child")
}

/// A port of 127.0.0.1 that no process uses now.
fn free_port() -> u16 {
    let probe = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    probe.local_addr().expect("its address").port()
}

/// `ringside run` with more flags before the program.
fn run_with(folder: &Path, flags: &[&str], program: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "50", env!("CARGO_BIN_EXE_ringside"), "run"]);
    command.args(flags).arg("--libraries").arg(libraries());
    command.arg("--").args(program);
    command.env("XDG_RUNTIME_DIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("ringside")
}

#[test]
fn programs_on_two_models_meet_over_a_udp_wire() {
    if !is_installed("rping") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let (a, b) = (free_port(), free_port());
    let here = format!("udp:127.0.0.1:{b}@127.0.0.1:{a}");
    let there = format!("udp:127.0.0.1:{a}@127.0.0.1:{b}");
    let (one, two) = (Folder::new(), Folder::new());
    let rping = ["rping", "-a", "10.0.0.1", "-C", "20", "-S", "20000", "-V"];
    let server = [&rping[..], &["-s"]].concat();
    let client = [&rping[..], &["-c"]].concat();
    let server = run_with(one.path(), &["--port", "0", "--wire", &here], &server);
    std::thread::sleep(Duration::from_secs(2));
    let other = ["--wire", &here, "--first", "16"];
    let refused = run_with(one.path(), &other, &["true"]).wait_with_output();
    let text = String::from_utf8_lossy(&refused.expect("ringside").stderr).into_owned();
    assert!(text.contains("leave --wire and --first away"), "{text}");
    let outside = run_with(one.path(), &["--port", "8"], &["true"]).wait_with_output();
    let text = String::from_utf8_lossy(&outside.expect("ringside").stderr).into_owned();
    assert!(text.contains("its ports are 0 to 7"), "{text}");
    let flags = ["--wire", &there, "--first", "8", "--port", "8"];
    let client = run_with(two.path(), &flags, &client).wait_with_output();
    succeeded(&client.expect("the client"));
    succeeded(&server.wait_with_output().expect("the server"));
}

#[test]
fn every_frame_between_two_programs_is_captured() {
    if !is_installed("rping") || !is_installed("tshark") {
        eprintln!("rdmacm-utils or tshark is not installed: not run");
        return;
    }
    let folder = Folder::new();
    let file = folder.path().join("frames of rping.pcap");
    let flags = ["--port", "0", "--pcap", file.to_str().expect("a name")];
    let rping = ["rping", "-a", "10.0.0.1", "-C", "10", "-V"];
    let server = run_with(folder.path(), &flags, &[&rping[..], &["-s"]].concat());
    std::thread::sleep(Duration::from_secs(2));
    let other = run_with(folder.path(), &["--pcap", "other.pcap"], &["true"]);
    let refused = other.wait_with_output().expect("ringside");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("frames of rping.pcap: leave --pcap away"),
        "{text}"
    );
    assert_eq!(refused.status.code(), Some(2), "{text}");
    let client = run_with(
        folder.path(),
        &["--port", "1"],
        &[&rping[..], &["-c"]].concat(),
    );
    succeeded(&client.wait_with_output().expect("the client"));
    succeeded(&server.wait_with_output().expect("the server"));
    let counted = |filter: &str| {
        let mut tshark = Command::new("tshark");
        let tshark = tshark.arg("-r").arg(&file).args(["-Y", filter]);
        succeeded(&tshark.output().expect("tshark")).lines().count()
    };
    // Each ping is a read of the server and a write back, in one packet each.
    assert_eq!(counted("infiniband.bth.opcode == 12"), 10, "read requests");
    assert_eq!(counted("infiniband.bth.opcode == 16"), 10, "read responses");
    assert_eq!(
        counted("infiniband.mad.attributeid == 0x0010"),
        1,
        "requests for a connection"
    );
}

/// Two hosts: network namespaces with a cable of 1,500 bytes between them, without any right outside.
const TWO_HOSTS: &str = r#"
set -e
ip link set lo up
unshare --net sleep 60 &
other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add name left type veth peer name right netns $other
ip addr add 192.0.2.1/24 dev left
ip link set left up
in_other() { nsenter -t $other --net "$@"; }
in_other ip link set lo up
in_other ip addr add 192.0.2.2/24 dev right
in_other ip link set right up
XDG_RUNTIME_DIR=$1 timeout 50 "$3" run --libraries "$4" --port 0 --wire udp:192.0.2.2 -- rping -s -a 10.0.0.1 -C 20 -S 20000 -V &
server=$!
sleep 2
XDG_RUNTIME_DIR=$2 in_other timeout 50 "$3" run --libraries "$4" --first 8 --wire udp:192.0.2.1 -- rping -c -a 10.0.0.1 -C 20 -S 20000 -V
wait $server
in_other grep '^Ip:' /proc/net/snmp
"#;

#[test]
fn programs_on_two_hosts_meet_over_udp_without_rights() {
    let has_namespaces = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !is_installed("rping") || !has_namespaces {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "user namespaces are needed: allow them");
        eprintln!("rdmacm-utils or user namespaces are missing: not run");
        return;
    }
    let (one, two) = (Folder::new(), Folder::new());
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "bash",
        "-c",
        TWO_HOSTS,
        "-",
    ]);
    command.arg(one.path()).arg(two.path());
    command.arg(env!("CARGO_BIN_EXE_ringside")).arg(libraries());
    let text = succeeded(&command.output().expect("unshare"));
    // Counters of the kernel, by name: packets of 1,500 bytes do not hold a frame of 4 KiB.
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let joined = both
        .find(|(name, _)| *name == "ReasmOKs")
        .expect("a counter")
        .1;
    assert_ne!(joined, "0", "frames were cut and joined:\n{text}");
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

#[test]
fn the_configuration_of_the_command_is_the_programs_too() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("own.toml"), "[network]\ndhcp = true\n").expect("a file");
    let shown = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(["--config", "own.toml", "run", "--device", "model:0"])
        .arg("--libraries")
        .arg(libraries())
        .args(["--", "sh", "-c", "cd / && cat \"$RINGSIDE_CONFIG\""])
        .env("XDG_RUNTIME_DIR", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("the command");
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("dhcp = true"), "{shown:?}");
}
