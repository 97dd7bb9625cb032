//! Sockets over RDMA.

use crate::harness::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::PoisonError;

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
    // fewer queue pairs than the program makes one after the other
    let config = folder.path().join("few.toml");
    std::fs::write(&config, "[rdma]\nqueue_pairs = 512\n").expect("a file");
    let variable = format!("RINGSIDE_CONFIG={}", config.display());
    let command = |role| ["env", variable.as_str(), program.as_str(), role, "10.0.0.1"];
    for text in meet(&command("server"), &command("client")) {
        assert_eq!(text, "ok\n");
    }
}

/// Runs a program of random connections in two processes, on two functions.
fn random(name: &str, seed: &str, rounds: &str) {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let Some(program) = compiled(name, folder.path()) else {
        return;
    };
    let words = |role| [program.as_str(), "10.0.0.1", seed, rounds, role];
    let mut server = start(folder.path(), "0", &words("server"));
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let first = lines.next().map(|line| line.expect("text"));
    if first.as_deref() == Some("listening") {
        let client = start(folder.path(), "1", &words("client")).wait_with_output();
        assert_eq!(
            succeeded(&client.expect("the client")),
            "ok\n",
            "{name}, seed {seed}"
        );
    }
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let output = server.wait_with_output().expect("the server");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(rest, ["ok"], "{name}, seed {seed}: {errors}");
}

#[test]
fn random_streams_between_two_programs_end_in_any_order() {
    random("streams", "5", "40");
}

#[test]
fn random_connections_between_two_programs_end_in_any_order() {
    random("chaos", "5", "60");
}

/// Ends the program of a `ringside run` that is behind `timeout`.
fn end_program(run: &mut Child) {
    let programs = children(family(run.id()), "datagrams");
    let killed = Command::new("kill").arg("-9").args(programs).status();
    assert!(killed.expect("kill").success());
    run.wait().expect("ringside run");
}

#[test]
fn a_datagram_socket_follows_an_address_to_another_card() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let Some(program) = compiled("datagrams", folder.path()) else {
        return;
    };
    let names = |name| [program.as_str(), "names", "10.0.0.1", name];
    let mut first = start(folder.path(), "0", &names("a"));
    let mut client = start(folder.path(), "1", &[&program, "hears", "10.0.0.1", "ab"]);
    let mut heard = BufReader::new(client.stdout.take().expect("a pipe")).lines();
    let line = heard.next().expect("a line").expect("text");
    assert_eq!(line, "a");
    end_program(&mut first);
    // Function 2 has the address now, and another MAC address.
    let config = folder.path().join("moved.toml");
    std::fs::write(&config, "[network]\naddresses = [\"10.0.0.1/24\"]\n").expect("a file");
    let config = config.to_str().expect("a path");
    let mut second = run_with(
        folder.path(),
        &["--port", "2", "--config", config],
        &names("b"),
    );
    let rest: Vec<String> = heard.map(|line| line.expect("text")).collect();
    end_program(&mut second);
    let output = client.wait_with_output().expect("the client");
    assert_eq!(
        rest,
        ["b", "ok"],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn udpong_gets_its_datagrams_back() {
    if !is_installed("udpong") {
        eprintln!("rdmacm-utils is not installed: not run");
        return;
    }
    let sockets = Folder::new();
    // It serves without end.
    let mut serving = start(
        sockets.path(),
        "0",
        &["udpong", "-b", "10.0.0.1", "-T", "b"],
    );
    // A datagram that comes too early is lost, and the client waits for it.
    let client = ["timeout", "12", "udpong", "-s", "10.0.0.1", "-T", "e"];
    let client = [&client[..], &["-T", "b", "-S", "1000", "-C", "100"]].concat();
    let client = client_of(&mut serving, has_succeeded, || {
        start(sockets.path(), "1", &client)
    });
    let _ = Command::new("kill").arg(serving.id().to_string()).status();
    serving.wait_with_output().expect("the server");
    let text = succeeded(&client);
    assert!(text.contains("custom    1000    200"), "{text}");
}

/// A socket that waits for data, or looks for it again and again, learns that its peer was killed,
/// and how it learns it.
fn socket_hears_of_the_killed(mode: &str, how: &str, wanted: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("sockets", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let mut waiting = start(sockets.path(), "0", &[&program, mode, "10.0.0.1"]);
    let died = client_of(&mut waiting, was_killed, || {
        start(sockets.path(), "1", &[&program, how, "10.0.0.1"])
    });
    assert!(was_killed(&died), "{died:?}");
    let text = succeeded(&waiting.wait_with_output().expect("the server"));
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_socket_that_waits_hears_that_its_peer_was_killed() {
    socket_hears_of_the_killed("waits", "dies", "the peer is gone: end");
}

#[test]
fn a_socket_that_waits_notices_that_its_peer_is_gone_without_a_word() {
    socket_hears_of_the_killed("waits", "vanishes", "the peer is gone: Connection");
}

#[test]
fn a_socket_that_looks_without_waiting_notices_that_its_peer_is_gone() {
    socket_hears_of_the_killed("polls", "vanishes", "the peer is gone: Connection");
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
