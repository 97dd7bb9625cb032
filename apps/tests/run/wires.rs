//! Models that are joined by a wire, faults of the wire, and captures.

use crate::harness::*;
use std::collections::HashSet;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    let rping = ["rping", "-a", "10.0.0.1", "-C", "60", "-V"];
    let mut server = run("0", fault, &[&rping[..], &["-s"]].concat());
    let client = client_of(&mut server, has_succeeded, || {
        run("1", fault, &[&rping[..], &["-c"]].concat())
    });
    succeeded(&client);
    succeeded(&server.wait_with_output().expect("rping"));
    assert!(!folder.pid_file().exists());
}

#[test]
fn programs_on_two_models_meet_over_a_udp_wire() {
    if !is_installed("rping") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let [here, there] = ends_of_a_wire();
    let (one, two) = (Folder::new(), Folder::new());
    let rping = ["rping", "-a", "10.0.0.1", "-C", "20", "-S", "20000", "-V"];
    let server = [&rping[..], &["-s"]].concat();
    let client = [&rping[..], &["-c"]].concat();
    let mut server = run_with(one.path(), &["--port", "0", "--wire", &here], &server);
    one.wait_for_model();
    let other = ["--wire", &here, "--first", "16"];
    let refused = run_with(one.path(), &other, &["true"]).wait_with_output();
    let text = String::from_utf8_lossy(&refused.expect("ringside").stderr).into_owned();
    assert!(text.contains("leave --wire and --first away"), "{text}");
    let outside = run_with(one.path(), &["--port", "8"], &["true"]).wait_with_output();
    let text = String::from_utf8_lossy(&outside.expect("ringside").stderr).into_owned();
    assert!(text.contains("its ports are 0 to 7"), "{text}");
    let flags = ["--wire", &there, "--first", "8", "--port", "8"];
    let client = client_of(&mut server, has_succeeded, || {
        run_with(two.path(), &flags, &client)
    });
    succeeded(&client);
    succeeded(&server.wait_with_output().expect("the server"));
}

/// A server that only waits for events, on a model of its own, hears of its client's death over the
/// wire. `script` is run as the client, with the program as `$0`, the file of its model's number as
/// `$1`; `afterwards` gets the client's folder and flags.
fn hears_over_the_wire(script: &str, afterwards: impl FnOnce(&Folder, &[&str])) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let [here, there] = ends_of_a_wire();
    let (one, two) = (Folder::new(), Folder::new());
    let server = [&program, "server", "10.0.0.1"];
    let flags = ["--port", "0", "--loopback", "always", "--wire", &here];
    let mut server = run_with(one.path(), &flags, &server);
    one.wait_for_model();
    let flags = ["--wire", &there, "--first", "8", "--loopback", "always"];
    let model = two.pid_file();
    let client = [
        "sh",
        "-c",
        script,
        &program,
        model.to_str().expect("a path"),
    ];
    let died = client_of(&mut server, was_killed, || {
        run_with(
            two.path(),
            &[&flags[..], &["--port", "8"]].concat(),
            &client,
        )
    });
    assert!(was_killed(&died), "{died:?}");
    afterwards(&two, &flags);
    let text = succeeded(&server.wait_with_output().expect("the server"));
    assert!(text.contains("the peer has left"), "{text}");
}

#[test]
fn a_server_on_another_host_hears_that_its_client_was_killed_with_its_command() {
    let script = "exec \"$0\" both 10.0.0.1";
    hears_over_the_wire(script, |folder, _| {
        let limit = Instant::now() + Duration::from_secs(20);
        while folder.pid_file().exists() {
            assert!(Instant::now() < limit, "the model does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn both_sides_are_told_that_they_have_the_same_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let [here, there] = ends_of_a_wire();
    let (one, two) = (Folder::new(), Folder::new());
    let told = one.path().join("told");
    let script = r#"until [ -e "$0" ]; do sleep 0.1; done"#;
    let waiting = ["sh", "-c", script, told.to_str().expect("a path")];
    let mut waiting = run_with(one.path(), &["--wire", &here], &waiting);
    one.wait_for_model();
    let flags = ["--port", "1", "--wire", &there];
    let says_so = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stderr);
        text.contains("give each side its own --first")
    };
    // On a busy machine, the frame comes back after the end of a short program.
    let short = client_of(&mut waiting, says_so, || {
        run_with(two.path(), &flags, &[&program, "idle", "10.0.0.1"])
    });
    std::fs::write(told, "").expect("a file");
    let waiting = waiting.wait_with_output().expect("ringside");
    for output in [short, waiting] {
        assert!(says_so(&output), "{output:?}");
        succeeded(&output);
    }
}

/// The messages are left in the folder, as by a failure of the host.
const EVERYTHING_IS_KILLED: &str = r#"
"$0" killed 10.0.0.1
[ $? = 137 ] || exit 1
kill -9 "$(cat "$1")" $PPID
kill -9 $$
"#;

#[test]
fn a_server_on_another_host_hears_of_the_former_model_from_the_next_one() {
    hears_over_the_wire(EVERYTHING_IS_KILLED, |folder, flags| {
        let flags = [flags, &["--port", "9"]].concat();
        let next = run_with(folder.path(), &flags, &["true"]);
        succeeded(&next.wait_with_output().expect("the next program"));
    });
}

/// The program and its model are killed, the command is not: it cannot send the messages, and has
/// to leave them.
const PROGRAM_AND_MODEL_ARE_KILLED: &str = r#"
"$0" killed 10.0.0.1
[ $? = 137 ] || exit 1
kill -9 "$(cat "$1")"
kill -9 $$
"#;

#[test]
fn a_server_on_another_host_hears_of_a_killed_model_though_the_command_lives() {
    hears_over_the_wire(PROGRAM_AND_MODEL_ARE_KILLED, |folder, flags| {
        let flags = [flags, &["--port", "9"]].concat();
        let next = run_with(folder.path(), &flags, &["true"]);
        succeeded(&next.wait_with_output().expect("the next program"));
    });
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
    let mut server = run_with(folder.path(), &flags, &[&rping[..], &["-s"]].concat());
    folder.wait_for_model();
    let other = run_with(folder.path(), &["--pcap", "other.pcap"], &["true"]);
    let refused = other.wait_with_output().expect("ringside");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("frames of rping.pcap: leave --pcap away"),
        "{text}"
    );
    assert_eq!(refused.status.code(), Some(2), "{text}");
    let client = [&rping[..], &["-c"]].concat();
    let mut tries = 0;
    let client = client_of(&mut server, has_succeeded, || {
        tries += 1;
        run_with(folder.path(), &["--port", "1"], &client)
    });
    succeeded(&client);
    succeeded(&server.wait_with_output().expect("the server"));
    let transactions = |filter: &str| {
        let mut tshark = Command::new("tshark");
        let tshark = tshark.arg("-r").arg(&file).args(["-Y", filter]);
        let tshark = tshark.args(["-T", "fields", "-e", "infiniband.mad.transactionid"]);
        let text = succeeded(&tshark.output().expect("tshark"));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let counted = |filter: &str| transactions(filter).len();
    // Each ping is a read of the server and a write back, in one packet each.
    assert_eq!(counted("infiniband.bth.opcode == 12"), 10, "read requests");
    assert_eq!(counted("infiniband.bth.opcode == 16"), 10, "read responses");
    // A try before the server listens is refused, and a slow answer makes the client send its
    // request again.
    let requests: HashSet<_> = transactions("infiniband.mad.attributeid == 0x0010")
        .into_iter()
        .collect();
    assert!(
        (1..=tries).contains(&requests.len()),
        "{tries} tries, requests for a connection: {requests:?}"
    );
}

/// Two hosts: network namespaces with a cable of 1,500 bytes between them, without any right
/// outside.
const TWO_HOSTS: &str = r#"
set -e
ip link set lo up
unshare --net sleep 120 &
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
server() {
  XDG_RUNTIME_DIR=$1 exec timeout 50 "$2" run --libraries "$3" --port 0 --wire udp:192.0.2.2 -- "${@:4}"
}
client() {
  XDG_RUNTIME_DIR=$1 in_other timeout 50 "$2" run --libraries "$3" --first 8 --wire udp:192.0.2.1 -- "${@:4}"
}
# The client runs again until the server listens.
pair() { # SERVER CLIENT
  server "$one" "$command" "$libraries" $1 &
  local server=$!
  until client "$two" "$command" "$libraries" $2; do
    kill -0 $server
    sleep 0.3
  done
  wait $server
}
one=$1 two=$2 command=$3 libraries=$4
pair 'rping -s -a 10.0.0.1 -C 20 -S 20000 -V' 'rping -c -a 10.0.0.1 -C 20 -S 20000 -V'
# The numbers of perftest go over the kernel's TCP, to the other host.
pair 'ib_write_bw -x 1 -n 50' 'ib_write_bw -x 1 -n 50 192.0.2.1'
in_other grep '^Ip:' /proc/net/snmp
"#;

#[test]
fn programs_on_two_hosts_meet_over_udp_without_rights() {
    if !is_installed("rping") || !is_installed("ib_write_bw") {
        eprintln!("rdmacm-utils or perftest is not installed: not run");
        return;
    }
    if !has_namespaces() {
        return;
    }
    let (one, two) = (Folder::new(), Folder::new());
    let mut command = own_network(TWO_HOSTS);
    command.arg(one.path()).arg(two.path());
    command.arg(env!("CARGO_BIN_EXE_ringside")).arg(libraries());
    let text = succeeded(&command.output().expect("unshare"));
    let measured = text
        .lines()
        .filter(|line| line.trim_start().starts_with("65536 "));
    assert_eq!(measured.count(), 2, "ib_write_bw on both sides:\n{text}");
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
