//! `ringside run`: unmodified programs of the distribution, two at a time on one model.

mod addresses;
mod faults;
mod folders;
mod gids;
mod harness;
mod killed;
mod link;
mod log;
mod memory;
mod owned;
mod random;
mod recovered;
mod routers;
mod sockets;
mod surroundings;
mod wires;

use harness::*;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

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

/// A shell, `ls` and `ibstat` do not open a device. Nor do they keep it from a program that does.
#[test]
fn files_are_there_for_programs_that_open_no_device() {
    if !is_installed("ibv_devices") {
        eprintln!("ibverbs-utils is not installed: not run");
        return;
    }
    let folder = Folder::new();
    let script = "cd /sys/class/infiniband && echo * && cat ringside0/ports/1/state && \
         ls /sys/class/infiniband/ringside0/ports && ibv_devices | grep -c ringside0";
    let output = start(folder.path(), "3", &["bash", "-c", script]).wait_with_output();
    let text = succeeded(&output.expect("bash"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["ringside0", "4: ACTIVE", "1", "1"]);
}

/// Programs that look at the files get no signal and no child by it; those without verbs that only
/// list interfaces do not have the device opened, and see the addresses once it was.
#[test]
fn the_process_that_writes_the_files_is_not_noticed() {
    if !is_installed("python3") {
        eprintln!("python3 is not installed: not run");
        return;
    }
    let script = "
import ctypes, os, signal
got = []
signal.signal(signal.SIGCHLD, lambda *_: got.append(1))
head = ctypes.c_void_p()
assert ctypes.CDLL(None).getifaddrs(ctypes.byref(head)) == 0
print(os.path.exists(os.environ['RINGSIDE_FILES'] + '/sys'))
print(os.listdir('/sys/class/infiniband'), got)
try:
    print(os.wait())
except ChildProcessError:
    print('no child')
";
    let folder = Folder::new();
    let output = start(folder.path(), "2", &["python3", "-c", script]).wait_with_output();
    let text = succeeded(&output.expect("python3"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["False", "['ringside0'] []", "no child"]);
}

/// Open MPI's `openib` and corosync look for the address of their device among the interfaces, and
/// open the device afterwards.
#[test]
fn a_program_with_verbs_lists_the_interface_before_it_opens_the_device() {
    if !is_installed("python3") {
        eprintln!("python3 is not installed: not run");
        return;
    }
    // SIOCGIFCONF, with an ifconf of length and buffer; an entry is 40 bytes, the name first
    let script = "
import array, ctypes, fcntl, os, socket, struct, sys
ctypes.CDLL('libibverbs.so.1')
if sys.argv[1] == 'names':
    print([name for _, name in socket.if_nameindex()].count('ringside0'))
elif sys.argv[1] == 'addresses':
    room = array.array('B', bytes(4096))
    asked = struct.pack('iL', len(room), room.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        length, _ = struct.unpack('iL', fcntl.ioctl(one, 0x8912, asked))
    print([room.tobytes()[at:at + 9] for at in range(0, length, 40)].count(b'ringside0'))
else:
    head = ctypes.c_void_p()
    assert ctypes.CDLL(None).getifaddrs(ctypes.byref(head)) == 0
    name = ctypes.cast(head.value + 8, ctypes.POINTER(ctypes.c_char_p))[0]
    print([name].count(b'ringside0'))
";
    let folder = Folder::new();
    for list in ["names", "addresses", "entries"] {
        let words = ["python3", "-c", script, list];
        let output = start(folder.path(), "3", &words).wait_with_output();
        assert_eq!(succeeded(&output.expect("python3")), "1\n", "{list}");
    }
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
fn the_interface_of_the_device_has_the_networks_of_the_configuration() {
    let folder = Folder::new();
    let Some(program) = compiled("interface", folder.path()) else {
        return;
    };
    // A VLAN has at most eight.
    let others = (1..=20).map(|net| format!(", \"10.21.{net}.1/25@{}\"", 10 + net / 5));
    let others = others.collect::<String>();
    let config = folder.path().join("networks.toml");
    let text = format!("[network]\naddresses = [\"10.20.0.1/20\"{others}]\n");
    std::fs::write(&config, text).expect("a file");
    let variable = format!("RINGSIDE_CONFIG={}", config.display());
    let words = ["env", &variable, &program, "networks"];
    let output = start(folder.path(), "3", &words).wait_with_output();
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
