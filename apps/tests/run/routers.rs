//! Programs whose peers are behind routers, or whose address comes from a DHCP server.

use crate::harness::*;
use ringside_bus::DeviceAddress;
use ringside_lan::Burst;
use ringside_pmd::Device;
use ringside_pmd::lan::{OpenPort, PortSettings};
use ringside_testkit::{bring_up_function, claim, config, lease_for};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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

/// The server's address, and the one that it grants.
const SERVER: [u8; 4] = [10, 50, 0, 1];
const GRANTED: [u8; 4] = [10, 50, 0, 77];

/// A station on a function of a model, which is a DHCP server until it is dropped.
struct DhcpServer {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DhcpServer {
    fn on(socket: &Path) -> Self {
        let address = DeviceAddress::VfioUser(socket.to_owned());
        let function = claim(&address).expect("the function");
        let device = bring_up_function(function, 1, &config());
        let settings = PortSettings {
            promiscuous: true,
            ..PortSettings::default()
        };
        let port = device.open_port(&settings).expect("a port");
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = std::thread::spawn(move || answer_until(&seen, device, port));
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for DhcpServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// Grants [`GRANTED`], and answers by ARP for [`SERVER`].
fn answer_until(ends: &AtomicBool, device: Device, mut port: OpenPort) {
    let mac = port.port.mac();
    let mut burst = Burst::with_limit(32);
    while !ends.load(Ordering::Relaxed) {
        port.receive[0].receive(&mut burst);
        let frames: Vec<Vec<u8>> = burst.drain().map(|packet| packet.to_vec()).collect();
        for frame in frames {
            let lease = lease_for(&frame, (mac, SERVER), GRANTED);
            let Some(sent) = lease.or_else(|| own_answer(&frame, mac)) else {
                continue;
            };
            let packet = port.pool.packet_with(&sent).expect("a buffer");
            burst.push(packet).expect("room");
            port.transmit[0].send(&mut burst);
            burst.clear();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(port);
    assert!(device.shutdown().failures.is_empty());
}

/// The answer to a question by ARP for [`SERVER`].
fn own_answer(frame: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    let is_question = frame.get(12..14)? == [8, 6] && frame.get(38..42)? == SERVER;
    let (station, address) = (frame.get(22..28)?, frame.get(28..32)?);
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    let parts = [station, &mac, &head, &mac, &SERVER, station, address];
    is_question.then(|| parts.concat())
}

/// A program whose configuration asks for DHCP, on a link that comes up after a time; its output
/// and its errors.
fn leased_program(rises: Option<Duration>) -> Option<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("sources", folder.path())?;
    let [near, far, config] = ["near", "far", "config"].map(|name| folder.path().join(name));
    std::fs::write(&config, "[network]\ndhcp = true\n[link]\nwait_ms = 0\n").expect("a file");
    let _model = serve(&[&near, &far]);
    let _server = DhcpServer::on(&far);
    let tell = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command
            .args(["model", "tell"])
            .arg(near.with_extension("control"));
        succeeded(&command.args(words).output().expect("ringside"));
    };
    if rises.is_some() {
        tell(&["fault", "0", "link-down"]);
    }
    let mut command = on(&near, &config, &program);
    command
        .arg("10.50.0.1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = command.spawn().expect("the program");
    if let Some(rises) = rises {
        std::thread::sleep(rises);
        tell(&["clear", "0", "link-down"]);
    }
    let output = running.wait_with_output().expect("the program");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((succeeded(&output), errors))
}

#[test]
fn a_program_has_the_address_of_its_lease_at_its_first_call() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((text, errors)) = leased_program(None) {
        assert_eq!(text, "10.50.0.1 from 10.50.0.77\n", "{errors}");
        assert!(!errors.contains("no DHCP server"), "{errors}");
    }
}

/// The search that was sent before has not left the port, and the next one is 10 s later.
#[test]
fn a_link_that_comes_up_during_the_wait_for_a_lease_is_noticed() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((text, errors)) = leased_program(Some(Duration::from_millis(1500))) {
        assert_eq!(text, "10.50.0.1 from 10.50.0.77\n", "{errors}");
        assert!(!errors.contains("no DHCP server"), "{errors}");
    }
}

#[test]
fn a_program_has_the_address_of_a_dhcp_server_once_it_has_opened_the_device() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let Some(program) = compiled("leased", folder.path()) else {
        return;
    };
    let [near, far, config] = ["near", "far", "config"].map(|name| folder.path().join(name));
    std::fs::write(&config, "[network]\ndhcp = true\n").expect("a file");
    let _model = serve(&[&near, &far]);
    let _server = DhcpServer::on(&far);
    let device = format!("vfio-user:{}", near.display());
    let variable = format!("RINGSIDE_CONFIG={}", config.display());
    let words = ["env", &variable, &program, "10.50.0.77"];
    let program = run_with(folder.path(), &["--device", &device], &words);
    let output = program.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("no DHCP server"), "{errors}");
}

/// The process that writes the files for `cat` waits for a DHCP server itself.
#[test]
fn a_program_beside_one_that_reads_the_files_waits_for_the_device_as_long_as_that_for_its_lease() {
    let _one_pair = ONE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let Some(program) = compiled("leased", folder.path()) else {
        return;
    };
    let config = folder.path().join("config");
    std::fs::write(&config, "[network]\ndhcp = true\n").expect("a file");
    let variable = format!("RINGSIDE_CONFIG={}", config.display());
    let script = "cat /sys/class/infiniband/ringside0/ports/1/state & sleep 0.4; \"$0\"; wait";
    let words = ["env", &variable, "bash", "-c", script, &program];
    let output = start(folder.path(), "3", &words).wait_with_output();
    let text = succeeded(&output.expect("the programs"));
    assert_eq!(text, "4: ACTIVE\nok\n");
}
