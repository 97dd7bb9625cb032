//! Two processes that meet over the ports themselves: no socket of the kernel takes part.

use crate::dhcp::{DhcpServer, GRANTED};
use crate::perftest::keys_of_client;
use crate::processes::{Ended, LIMIT, Model, Process};
use std::time::{Duration, Instant};

/// A bench that listens on all addresses of its port, and the first of them.
fn listen(model: &Model, flags: &[&str]) -> (Process, String) {
    let device = model.device("a");
    let words = [
        "bench",
        "--listen",
        "0.0.0.0:0",
        "--over",
        "nic",
        "--device",
        &device,
    ];
    let mut process = Process::start(&[&words, flags].concat());
    let places = process.line("Listening on ");
    let first = places.split(' ').next().expect("an address").to_owned();
    (process, first)
}

/// A bench that connects.
fn connect(model: &Model, place: &str, flags: &[&str]) -> Process {
    let device = model.device("b");
    let words = [
        "bench",
        "--connect",
        place,
        "--over",
        "nic",
        "--device",
        &device,
    ];
    Process::start(&[&words, flags].concat())
}

fn bench(model: &Model, flags: &[&str]) -> (Ended, Ended) {
    let (server, place) = listen(model, &[]);
    assert!(place.starts_with("10."), "{place}");
    let client = connect(model, &place, flags).end(LIMIT);
    let server = server.end(LIMIT);
    client.with(0, "messages verified byte by byte");
    server.with(0, "messages verified byte by byte");
    (client, server)
}

#[test]
fn tests_run_over_the_ports_alone_with_greetings_and_with_the_connection_manager() {
    let mut model = Model::serve();
    bench(&model, &["--verify-only", "-s", "1000"]);
    for flags in [
        "write lat -s 64 -n 50",
        "send bw -s 4096 -n 300 -q 3",
        "-R send lat -s 64 -n 50",
    ] {
        bench(&model, &flags.split(' ').collect::<Vec<_>>());
    }
    model.is_content();
}

#[test]
fn options_that_disagree_end_both_sides_with_both_values() {
    let model = Model::serve();
    let (server, place) = listen(&model, &["-s", "64"]);
    let client = connect(&model, &place, &["write", "lat", "-s", "128"]).end(LIMIT);
    let part = "-s: the listening side insists on 64, the connecting side asks for 128";
    client.with(2, part).with(2, "refuses");
    server.end(LIMIT).with(2, part);
}

#[test]
fn no_peer_is_an_error_in_time_that_names_the_cause() {
    let model = Model::serve();
    let began = Instant::now();
    let client = |place: &str| connect(&model, place, &["--wait", "1"]).end(LIMIT);
    client("192.0.2.1").with(1, "no way to 192.0.2.1: add an address of its network");
    client("10.200.0.1").with(1, "cannot connect to 10.200.0.1:18515");
    let (server, place) = listen(&model, &["--wait", "20"]);
    let (ip, _) = place.rsplit_once(':').expect("a port");
    client(&format!("{ip}:9")).with(1, "the host refused");
    drop(server);
    let (server, _) = listen(&model, &["--wait", "1"]);
    server.end(LIMIT).with(1, "no peer connected to 0.0.0.0:");
    let device = model.device("a");
    let words = [
        "bench",
        "--listen",
        "192.0.2.9",
        "--over",
        "nic",
        "--device",
        &device,
    ];
    let foreign = Process::start(&words).end(LIMIT);
    foreign.with(
        2,
        "cannot listen on 192.0.2.9: the port has the addresses 10.",
    );
    Process::start(&["bench", "--over", "nic"])
        .end(LIMIT)
        .with(2, "--over nic is for two processes");
    assert!(began.elapsed() < LIMIT);
}

/// No segment tells that a process was killed.
#[test]
fn a_side_that_is_killed_ends_the_other_in_time() {
    let model = Model::serve();
    let long = ["write", "lat", "-D", "60", "--idle", "yield", "-s", "64"];
    let (mut server, place) = listen(&model, &[]);
    let mut client = connect(&model, &place, &long);
    client.line(" #bytes ");
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let ended = client.end(Duration::from_secs(90));
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    let (server, place) = listen(&model, &[]);
    let mut client = connect(&model, &place, &long);
    client.line(" #bytes ");
    std::thread::sleep(Duration::from_millis(500));
    client.kill();
    let ended = server.end(Duration::from_secs(90));
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    bench(&model, &["--verify-only", "-s", "1000"]);
}

#[test]
fn a_model_that_is_killed_ends_both_sides() {
    let model = Model::serve();
    let (server, place) = listen(&model, &[]);
    let mut client = connect(
        &model,
        &place,
        &["write", "lat", "-D", "60", "--idle", "yield"],
    );
    client.line(" #bytes ");
    std::thread::sleep(Duration::from_millis(500));
    drop(model);
    crate::end_with_the_reason([server, client]);
}

/// A configuration file in the folder of a model, as `--config` takes it.
fn config(model: &Model, name: &str, network: &str) -> [String; 2] {
    let path = model.folder().join(name);
    std::fs::write(&path, format!("[network]\n{network}\n")).unwrap();
    ["--config".to_owned(), path.display().to_string()]
}

#[test]
fn a_side_waits_for_the_address_of_a_dhcp_server_and_sends_from_it() {
    let mut model = Model::serve_with_wire();
    let [far, wire] = ["far", "wire"].map(|name| model.folder().join(name));
    let server_of_dhcp = DhcpServer::start(&far, &wire);
    let fixed = config(&model, "fixed.toml", "addresses = [\"198.51.100.1/24\"]");
    let leasing = config(&model, "leasing.toml", "dhcp = true");
    let [fixed, leasing] = [&fixed, &leasing].map(|words| words.each_ref().map(String::as_str));
    let granted = GRANTED.map(|byte| byte.to_string()).join(".");
    for flags in [
        &["--verify-only", "-s", "1000"][..],
        &["-R", "write", "lat", "-n", "20"],
    ] {
        let (server, place) = listen(&model, &fixed);
        let client = connect(&model, &place, &[&leasing[..], flags].concat());
        client.end(LIMIT).with(0, "messages verified byte by byte");
        // The exchange and the traffic come from the lease.
        server
            .end(LIMIT)
            .with(0, &format!("the process at {granted}:"));
    }
    let device = model.device("b");
    let words = [
        "bench", "--listen", &granted, "--over", "nic", "--device", &device, "--wait", "1",
    ];
    let listening = Process::start(&[&words, &leasing[..]].concat());
    listening
        .end(LIMIT)
        .with(1, &format!("no peer connected to {granted}:"));
    // RDMA comes from the lease, too.
    let keys = keys_of_client(&model, &leasing);
    assert!(keys.contains(":ff:ff:c6:33:64:4d:"), "{keys}");
    drop(server_of_dhcp);
    model.is_content();
}

#[test]
fn a_dhcp_server_that_is_missing_is_named() {
    let model = Model::serve();
    let leasing = config(&model, "leasing.toml", "dhcp = true");
    let leasing = leasing.each_ref().map(String::as_str);
    let client = connect(&model, "198.51.100.1", &leasing).end(LIMIT);
    client.with(1, "no DHCP server has granted an address within 5 s");
    // Over the kernel's TCP the addresses without a configuration do.
    let (server, place) = model.listen(&leasing);
    let client = model.connect(&place, &["--verify-only", "-s", "1000"]);
    client.end(LIMIT).with(0, "messages verified byte by byte");
    server
        .end(LIMIT)
        .with(0, "warning: no DHCP server has granted");
}
