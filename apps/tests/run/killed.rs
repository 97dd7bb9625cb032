//! Programs that are killed, and programs that exit without a word.

use crate::harness::*;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// The parent lists the devices and ends; its connection to the model must end with it.
#[test]
fn a_daemon_opens_the_device_that_its_parent_has_listed() {
    let folder = Folder::new();
    let Some(program) = compiled("daemon", folder.path()) else {
        return;
    };
    let wait = r#""$0" list leave >out 2>&1; until [ -s out ]; do sleep 0.1; done; cat out"#;
    let shell = format!("cd '{}'; {wait}", folder.path().display());
    let began = start(folder.path(), "0", &["sh", "-c", &shell, &program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

/// A server that only waits for events is told that its client was killed: by the client's command,
/// or by the model if that was killed too. `meanwhile` is called after the death, with the folder
/// of the model and the server.
fn hears_of_the_killed(how: &str, meanwhile: impl FnOnce(&Folder, &mut Child)) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let mut waiting = start(sockets.path(), "0", &[&program, "server", "10.0.0.1"]);
    let died = client_of(&mut waiting, was_killed, || {
        start(sockets.path(), "1", &[&program, how, "10.0.0.1"])
    });
    assert!(was_killed(&died), "{died:?}");
    meanwhile(&sockets, &mut waiting);
    let text = succeeded(&waiting.wait_with_output().expect("the server"));
    assert!(text.contains("the peer has left"), "{text}");
}

#[test]
fn a_server_that_waits_hears_that_its_client_was_killed() {
    hears_of_the_killed("killed", |_, _| {});
}

#[test]
fn a_server_that_waits_hears_that_its_client_was_killed_with_its_command() {
    hears_of_the_killed("both", |_, _| {});
}

/// The model has the lock of the port while it tells the peers.
#[test]
fn the_port_of_a_program_that_was_killed_with_its_command_can_be_named_at_once() {
    hears_of_the_killed("both", |sockets, waiting| {
        let mark = sockets.path().join("ringside/1.leaving");
        let limit = Instant::now() + Duration::from_secs(30);
        while !mark.exists() && waiting.try_wait().is_ok_and(|end| end.is_none()) {
            assert!(Instant::now() < limit, "the model tells no peer");
            std::thread::sleep(Duration::from_millis(2));
        }
        let next = start(sockets.path(), "1", &["true"]);
        succeeded(&next.wait_with_output().expect("the next program"));
    });
}

#[test]
fn a_model_that_was_killed_is_told_of_although_the_program_succeeds() {
    let folder = Folder::new();
    let script = r#"kill -9 "$(cat "$0")"; sleep 0.2"#;
    let pid_file = folder.pid_file();
    let pid_file = pid_file.to_str().expect("a path");
    let output = start(folder.path(), "0", &["sh", "-c", script, pid_file])
        .wait_with_output()
        .expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the model ended before the program"),
        "{text}"
    );
}

#[test]
fn the_next_program_of_a_command_tells_the_peers_of_a_killed_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let waiting = start(sockets.path(), "0", &[&program, "server", "10.0.0.1"]);
    // It is killed only once it is connected.
    let script = "until \"$0\" killed 10.0.0.1; [ $? = 137 ]; do sleep 0.3; done; \"$0\" idle 10.0.0.1; exec sleep 40";
    let command = start(sockets.path(), "1", &["sh", "-c", script, &program]);
    let waited = waiting.wait_with_output().expect("the server");
    let _ = Command::new("kill").arg(command.id().to_string()).status();
    let text = succeeded(&waited);
    assert!(text.contains("the peer has left"), "{text}");
    command.wait_with_output().expect("the command");
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
    let mut victims = children(own, "rping");
    if and_itself {
        victims.insert(0, own.to_string());
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
    let model = folder.wait_for_model();
    let signal = |name: &str, pid: &str| {
        let sent = Command::new("kill").args([name, pid]).status();
        assert!(sent.expect("kill").success());
    };
    let everything = format!("pkill -9 -P {0} sleep; kill -9 {0}", family(killed.id()));
    let ended = Command::new("sh").args(["-c", &everything]).status();
    ended.expect("sh");
    killed.wait().expect("a child");
    // A model that is slow to end, as on a busy machine. Not stopped before: the kernel ends a
    // stopped process group when its parent ends.
    signal("-STOP", &model);
    let is_there = format!("! grep -q . /proc/{model}/cmdline");
    let next = start(folder.path(), "0", &["sh", "-c", &is_there]);
    std::thread::sleep(Duration::from_secs(4));
    signal("-CONT", &model);
    succeeded(&next.wait_with_output().expect("the next program"));
    assert!(!folder.pid_file().exists());
}

/// As at the end of a service, whose processes all get a signal.
#[test]
fn a_model_goes_on_after_a_signal_as_long_as_a_program_uses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let script = r#"kill "$(cat "$1")"; sleep 2.5; exec "$0" idle 10.0.0.1"#;
    let model = sockets.pid_file();
    let words = [
        "sh",
        "-c",
        script,
        &program,
        model.to_str().expect("a path"),
    ];
    let ended = start(sockets.path(), "0", &words).wait_with_output();
    succeeded(&ended.expect("the program"));
    assert!(!sockets.pid_file().exists());
}

/// Its last program is in another container, which does not see the model's process.
const TWO_CONTAINERS: &str = r#"
folder=$1 command=$2 libraries=$3 wire=$4
run() { timeout 40 "$command" run --libraries "$libraries" "$@"; }
export -f run
export XDG_RUNTIME_DIR=$folder command libraries folder wire
own() { unshare --pid --fork --mount-proc bash -c "$1"; }
own 'run --port 0 --wire $wire -- sh -c "until [ -e $folder/joined ]; do sleep 0.05; done"
     touch $folder/left; until [ -e $folder/over ]; do sleep 0.05; done' &
trap 'touch $folder/over; wait' EXIT
until [ -e $folder/ringside/0.lock ]; do sleep 0.05; done
set -e
run --port 1 -- sh -c "touch $folder/joined; until [ -e $folder/left ]; do sleep 0.05; done"
run --port 1 --wire $wire -- true
run --port 1 --wire $wire -- true
"#;

#[test]
fn a_model_of_another_container_has_ended_before_the_next_one_starts() {
    let containers = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let made = Command::new("unshare")
        .args(containers)
        .arg("true")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        let may_miss = std::env::var_os("CI").is_none();
        assert!(may_miss, "user namespaces are needed: allow them");
        eprintln!("user namespaces are not allowed: not run");
        return;
    }
    let folder = Folder::new();
    let [wire, _] = ends_of_a_wire();
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "100",
        "unshare",
        "--user",
        "--map-root-user",
        "bash",
        "-c",
    ]);
    command.args([TWO_CONTAINERS, "-"]).arg(folder.path());
    command.arg(env!("CARGO_BIN_EXE_ringside")).arg(libraries());
    succeeded(&command.arg(wire).output().expect("unshare"));
}
