//! A program that goes on after failures of its device.

use crate::harness::*;
use serde_json::Value;
use std::io::Read;
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

#[test]
fn a_program_opens_its_device_again_after_each_failure() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("recovered", folder.path()) else {
        return;
    };
    let [socket, others] = ["socket", "others"].map(|name| folder.path().join(name));
    let control = socket.with_extension("control");
    let _server = serve(&[&socket, &others]);
    let tell = format!(
        "{} model tell {}",
        env!("CARGO_BIN_EXE_ringside"),
        control.display()
    );
    let faults = [
        "critical-error 1",
        "function-reset",
        "protocol-engine-stall",
        "global-reset",
        "firmware-stall",
    ];
    let peer = format!(
        "RINGSIDE_DEVICE=vfio-user:{} {program} peer",
        others.display()
    );
    let output = on_socket("timeout", &socket)
        .args(["-k", "5", "100", &program, &peer])
        .args(faults.map(|fault| format!("{tell} fault 0 {fault} >/dev/null")))
        .output();
    assert_eq!(succeeded(&output.expect("the program")), "ok\n");
    let status = Command::new("sh")
        .args(["-c", &format!("{tell} status")])
        .output();
    let status: Value = serde_json::from_slice(&status.expect("tell").stdout).expect("JSON");
    assert_eq!(status["breaches"], 0, "{status}");
}

#[test]
fn memory_stays_registered_while_a_device_whose_server_is_stopped_may_write() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("stopped", folder.path()) else {
        return;
    };
    let socket = folder.path().join("socket");
    let server = serve(&[&socket]);
    let process = server.0.id().to_string();
    let output = on_socket("timeout", &socket)
        .args(["-k", "5", "100", &program, &process])
        .output();
    // A program that failed left it stopped.
    let _ = Command::new("kill").args(["-CONT", &process]).status();
    assert_eq!(succeeded(&output.expect("the program")), "ok\n");
}

/// The messages to peers wait for the recovery: a program that ends at once waits for it, too.
#[test]
fn a_program_that_ends_when_its_device_fails_tells_its_peer() {
    if !is_installed("rping") {
        return;
    }
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let rping = |port: &str, side: &str| {
        let words = ["rping", "-a", "10.0.0.1", "-S", "20000", "-v", side];
        start(folder.path(), port, &words)
    };
    let mut server = rping("0", "-s");
    folder.wait_for_model();
    let limit = Instant::now() + Duration::from_secs(40);
    let mut client = loop {
        let mut client = rping("1", "-c");
        let mut words = client.stdout.take().expect("a pipe");
        let mut first = [0];
        if words.read(&mut first).is_ok_and(|bytes| bytes > 0) {
            std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()));
            break client;
        }
        let _ = client.wait();
        assert!(Instant::now() < limit, "the server does not listen");
    };
    let mut pings = server.stdout.take().expect("a pipe");
    std::thread::spawn(move || std::io::copy(&mut pings, &mut std::io::sink()));
    let told = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(["model", "tell"])
        .arg(folder.path().join("ringside/control.sock"))
        .args(["fault", "0", "global-reset"])
        .output();
    succeeded(&told.expect("ringside"));
    let limit = Instant::now() + Duration::from_secs(20);
    for (name, program) in [("server", &mut server), ("client", &mut client)] {
        while program.try_wait().expect("a status").is_none() {
            assert!(Instant::now() < limit, "the {name} waits on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // A peer that is not told ends later, when its requests have failed, or never.
    let mut said = String::new();
    let mut words = client.stderr.take().expect("a pipe");
    words.read_to_string(&mut said).expect("text");
    assert!(said.contains("DISCONNECT EVENT"), "{said}");
}
