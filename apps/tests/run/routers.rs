//! Programs whose peers are behind routers, or whose address comes from a DHCP server.

use crate::harness::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A program on a function of a server, with its own configuration.
fn on(socket: &Path, config: &Path, program: &str) -> Command {
    let mut command = on_socket("timeout", socket);
    command
        .args(["-k", "5", "60", program])
        .env("RINGSIDE_CONFIG", config);
    command
}

/// The first address of the list is in no network of a router.
#[test]
fn peers_behind_a_router_are_reached_from_an_address_of_its_network() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("sources", folder.path()) else {
        return;
    };
    let [near, far, near_config, far_config] =
        ["near", "far", "near.toml", "far.toml"].map(|name| folder.path().join(name));
    let addresses = "addresses = [\"10.1.0.1/24\", \"192.0.2.1/24\", \"fd00::1/64\", \
                     \"2001:db8:1::1/64\"]\n\
                     gateways = [\"192.0.2.254\", \"2001:db8:1::fe\"]\n";
    std::fs::write(&near_config, format!("[network]\n{addresses}")).expect("a file");
    let addresses = "addresses = [\"192.0.2.254/24\", \"2001:db8:1::fe/64\"]\n";
    std::fs::write(&far_config, format!("[network]\n{addresses}")).expect("a file");
    let _server = serve(&[&near, &far]);
    let mut router = on(&far, &far_config, &program)
        .arg("stay")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut ready = String::new();
    let output = router.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut ready).expect("text");
    assert_eq!(ready, "ready\n");
    let peers = ["203.0.113.9", "2001:db8:9::9", "192.0.2.254"];
    let output = on(&near, &near_config, &program).args(peers).output();
    let text = succeeded(&output.expect("the program"));
    drop(router.stdin.take());
    assert!(router.wait().expect("the program").success());
    let expected = "203.0.113.9 from 192.0.2.1\n\
                    2001:db8:9::9 from 2001:db8:1::1\n\
                    192.0.2.254 from 192.0.2.1\n";
    assert_eq!(text, expected);
}

#[test]
fn a_program_waits_for_a_dhcp_server_and_says_that_there_is_none() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("sources", folder.path()) else {
        return;
    };
    let [socket, config] = ["socket", "config"].map(|name| folder.path().join(name));
    std::fs::write(&config, "[network]\ndhcp = true\n").expect("a file");
    let _server = serve(&[&socket]);
    let began = Instant::now();
    let output = on(&socket, &config, &program).arg("10.0.0.1").output();
    assert!(began.elapsed() >= Duration::from_secs(3), "it did not wait");
    let output = output.expect("the program");
    assert_eq!(succeeded(&output), "10.0.0.1 from 10.0.0.1\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no DHCP server"), "{errors}");
}
