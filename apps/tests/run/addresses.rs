//! Sockets of the kernel that name a port of the model by its address.

use crate::harness::*;

#[test]
fn sockets_of_the_kernel_reach_the_program_of_a_port_and_see_its_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("reached", folder.path()) else {
        return;
    };
    let number = (40_000 + std::process::id() % 10_000).to_string();
    let server = [program.as_str(), "server", &number];
    let client = [program.as_str(), "client", &number];
    for text in meet(&server, &client) {
        assert_eq!(text, "ok\n");
    }
}

/// Runs a program twice, the client with the address of the server's port.
fn by_address(server: &str, said: [&str; 2]) {
    let server: Vec<&str> = server.split(' ').collect();
    for (text, said) in meet_with(&server, &["10.0.0.1"]).iter().flatten().zip(said) {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn ping_pongs_exchange_their_numbers_by_the_address_of_a_port() {
    let number = 50_000 + std::process::id() % 10_000;
    let server = format!("ibv_rc_pingpong -g 1 -n 50 -c -p {number}");
    by_address(&server, ["50 iters in"; 2]);
}

#[test]
fn perftest_exchanges_its_numbers_by_the_address_of_a_port() {
    for program in ["ib_write_bw -n 50", "ib_send_lat -n 50"] {
        by_address(program, ["", " 50 "]);
    }
}

#[test]
fn qperf_meets_by_the_address_of_a_port() {
    if !is_installed("qperf") {
        eprintln!("qperf is not installed: not run");
        return;
    }
    let number = (30_000 + std::process::id() % 10_000).to_string();
    let client = ["qperf", "-lp", &number, "-t", "1", "-cm", "1", "10.0.0.1"];
    let client = [&client[..], &["rc_lat", "quit"]].concat();
    let [_, told] = meet(&["qperf", "-lp", &number], &client);
    assert!(told.contains("latency"), "{told}");
}

/// The own address of a program, in a network of its own. `$1` is the program, `$2` the folder of
/// sockets, `$3` the command, `$4` the libraries.
const OWN_NETWORK: &str = r#"
set -e
program=$1 command=$3 libraries=$4
export XDG_RUNTIME_DIR=$2
own() { # WORD FLAGS...
  word=$1
  shift
  echo "$word $*: $(timeout 50 "$command" run --libraries "$libraries" "$@" -- "$program" own "$word")"
}
ip link set lo up
own loopback
own loopback --model --port 0
own no --loopback never
own no --device model:0
ip addr add 10.0.0.1/32 dev lo
own kernel
own loopback --loopback always
ip addr del 10.0.0.1/32 dev lo
ip route add 10.0.0.0/24 dev lo
own no
ip route del 10.0.0.0/24 dev lo
ip route add default dev lo
own loopback
"#;

#[test]
fn addresses_of_ports_are_the_kernels_if_it_has_them_or_a_route() {
    let folder = Folder::new();
    let Some(program) = compiled("reached", folder.path()) else {
        return;
    };
    if !has_namespaces() {
        return;
    }
    let mut command = own_network(OWN_NETWORK);
    command.arg(&program).arg(folder.path());
    command.arg(env!("CARGO_BIN_EXE_ringside")).arg(libraries());
    let text = succeeded(&command.output().expect("unshare"));
    assert_eq!(text.lines().count(), 8, "{text}");
    for line in text.lines() {
        assert!(line.ends_with(": ok"), "{text}");
    }
}
