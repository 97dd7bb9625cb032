//! `ringside forward --vsi` on the model: further VSIs forward from their own queues, count for
//! themselves, take commands, and are there again after a recovery of the device.

mod running;
mod session;

use running::{LIMIT, end};
use serde_json::Value;
use session::Session;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last report of a run.
fn total(line: &str) -> Value {
    let output = end(running::start(line.split_whitespace()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    last_report(&text(&output.stdout))
}

fn last_report(output: &str) -> Value {
    serde_json::from_str(output.lines().last().expect("a report")).unwrap()
}

/// A count of a port (`ports`) or a further VSI (`vsis`).
fn count(report: &Value, kind: &str, at: usize, name: &str) -> u64 {
    let value = &report[kind][at][name];
    value.as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn a_vsi_receives_what_is_sent_to_it_and_counts_apart_from_its_port() {
    let report = total(
        "forward --device model:0 --device model:1 --mode txonly,rxonly --txpkts 200 \
         --eth-peer 02:aa:00:00:00:02 --vsi 02:aa:00:00:00:01,2@1 --vsi 02:aa:00:00:00:02,3@1 \
         --duration 2 --stats-period 0 --json",
    );
    let sent = count(&report, "ports", 0, "tx_packets");
    let received = count(&report, "vsis", 1, "rx_packets");
    assert!(received > 0 && received <= sent, "{report}");
    assert_eq!(count(&report, "vsis", 1, "rx_bytes"), received * 200);
    assert_eq!(count(&report, "ports", 1, "rx_packets"), 0, "{report}");
    assert_eq!(count(&report, "vsis", 0, "rx_packets"), 0, "{report}");
    let one = &report["vsis"][1];
    assert_eq!((&one["port"], &one["vsi"]), (&1.into(), &2.into()));
    assert_eq!(one["address"], "02:aa:00:00:00:02");
    assert_eq!(one["device"], "model:1");
    assert_eq!(one["queue_drops"].as_array().unwrap().len(), 3);
    // The device counts these for a port alone.
    assert!(one["device_drops"].get("rx_crc_errors.nic").is_none());
    assert!(one.get("malicious_events").is_none());
    assert!(report["ports"][1]["device_drops"]["rx_crc_errors.nic"] == 0);
}

#[test]
fn a_vsi_forwards_from_its_own_queues() {
    let report = total(
        "forward --device model:0 --device model:1 --mode txonly,macswap --no-promiscuous \
         --eth-peer 02:aa:00:00:00:01 --vsi 02:aa:00:00:00:01,2@1 --duration 2 --json",
    );
    let sent = count(&report, "vsis", 0, "tx_packets");
    assert!(sent > 0, "{report}");
    assert_eq!(count(&report, "ports", 1, "tx_packets"), 0, "{report}");
    // They return to the address that they came from.
    let back = count(&report, "ports", 0, "rx_packets");
    assert!(back > 0 && back <= sent, "{report}");
}

#[test]
fn vsis_of_paired_ports_send_to_each_other_in_their_ports_modes() {
    let report = total(
        "forward --device model:0 --device model:1 --mode txonly,rxonly --queues 2 \
         --vsi 02:aa:00:00:00:01,3@0 --vsi 02:aa:00:00:00:02,3@1 --duration 2 --json",
    );
    let sent = count(&report, "vsis", 0, "tx_packets");
    let received = count(&report, "vsis", 1, "rx_packets");
    assert!(received > 0 && received <= sent, "{report}");
    let (of_port, at_port) = (
        count(&report, "ports", 0, "tx_packets"),
        count(&report, "ports", 1, "rx_packets"),
    );
    assert!(at_port > 0 && at_port <= of_port, "{report}");
    assert_eq!(count(&report, "vsis", 0, "rx_packets"), 0);
    assert_eq!(report["vsis"][1]["mode"], "rxonly");
}

#[test]
fn a_vsi_that_cannot_be_is_refused_with_its_value_and_the_remedy() {
    let two = "--device model:0 --device model:1";
    let wrong = [
        ("--vsi nonsense", "nonsense", "six pairs of hexadecimal"),
        (
            "--vsi 02:aa:00:00:00:01,17",
            "'17' is no number of queues",
            "1 to 16",
        ),
        (
            "--vsi 02:aa:00:00:00:01@x",
            "'x' is no number of a port",
            "write 0 for the first",
        ),
        (
            "--vsi 01:00:5e:00:00:01",
            "01:00:5e:00:00:01",
            "not that of a group",
        ),
        (
            "--vsi 02:aa:00:00:00:01,1@1",
            "02:aa:00:00:00:01,1@1: there is no port 1",
            "give --device once more",
        ),
        (
            "--vsi 02:aa:00:00:00:01 --vsi 02:aa:00:00:00:01,4",
            "another VSI of port 0 has the address 02:aa:00:00:00:01",
            "choose a different one",
        ),
        (
            "--vsi 02:aa:00:00:00:01,2 --vsi 02:aa:00:00:00:02,4@1",
            "02:aa:00:00:00:01,2@0 and 02:aa:00:00:00:02,4@1 are paired",
            "give both the same number",
        ),
    ];
    for (flags, value, remedy) in wrong {
        let devices = if flags.contains("4@1") { two } else { "" };
        let line = format!("forward {devices} {flags} --duration 1");
        let output = end(running::start(line.split_whitespace()));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains(value), "{flags}: {said}");
        assert!(said.contains(remedy), "{flags}: {said}");
    }
    // The device has the address: only it can tell.
    let line = "forward --vsi 02:00:00:00:00:01 --duration 1";
    let shown = end(running::start(["port", "--json"])).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    let own = shown["address"].as_str().expect("an address");
    let line = line.replace("02:00:00:00:00:01", own);
    let output = end(running::start(line.split_whitespace()));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("model:0: VSI 02:"), "{said}");
}

/// The totals that a session shows.
fn shown(session: &mut Session) -> Value {
    let line = session.ask("show port stats all", "\"kind\":\"total\"");
    let (_, json) = line.split_once('{').expect("an object");
    serde_json::from_str(&format!("{{{json}")).unwrap()
}

/// Asks for the totals until they hold.
fn wait_for(session: &mut Session, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        let report = shown(session);
        if holds(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "not in time: {what}: {report}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn commands_name_vsis_and_change_them_alone() {
    let mut session = Session::start(
        "forward --device model:0 --device model:1 --mode txonly,rxonly --no-promiscuous --json \
         --eth-peer 02:aa:00:00:00:09 --vsi 02:aa:00:00:00:01,2@1 --interactive",
    );
    session.ask("help", "0.1 is the first one of port 0");
    session.ask("show port info 1.1", "\"name\":\"1.1\"");
    session.ask("show port info 1.2", "no VSI 1.2: port 1 has 1.1 to 1.1");
    session.ask("show port info 1.0", "no VSI 1.0: port 1 has 1.1 to 1.1");
    session.ask(
        "show port info 0.1",
        "port 0 has no further VSIs: --vsi adds them",
    );
    session.ask("show port info 7.1", "no port 7: there are 2");
    session.ask("vlan rm 5 1.1", "VLAN 5 was not added");
    session.ask(
        "start\nmac_addr remove 1.1 02:aa:00:00:00:09",
        "was not added",
    );
    session.ask(
        "mac_addr add 1.1 02:aa:00:00:00:09\nshow port info 1",
        "\"kind\":\"info\"",
    );
    let received = |report: &Value| count(report, "vsis", 0, "rx_packets");
    let sent = |report: &Value| count(report, "ports", 0, "tx_packets");
    wait_for(&mut session, "packets to the further address", |report| {
        received(report) > 0
    });
    let counted = session.ask("show port xstats 1.1", "\"rx_unicast\":");
    assert!(!counted.contains("\"rx_unicast\":0"), "{counted}");
    session.ask(
        "rule add 1.1 udp4 dst-port 9 action drop",
        "\"kind\":\"rule\"",
    );
    // What was in its rings is received; then nothing comes, while the other port sends.
    let deadline = Instant::now() + LIMIT;
    let mut before = shown(&mut session);
    loop {
        let now = wait_for(&mut session, "more packets", |now| {
            sent(now) > sent(&before)
        });
        if received(&now) == received(&before) {
            break;
        }
        assert!(Instant::now() < deadline, "the rule drops nothing: {now}");
        before = now;
    }
    session.ask("rule list 1.1", "udp4 dst-port 9 action drop");
    let report = shown(&mut session);
    assert_eq!(count(&report, "ports", 1, "rx_packets"), 0, "{report}");
    session.ask("set promisc 1 on\nshow port info 1", "\"kind\":\"info\"");
    wait_for(&mut session, "the port is promiscuous", |report| {
        count(report, "ports", 1, "rx_packets") > 0
    });
    let (rest, output) = session.quit("quit");
    // Lines were refused.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(rest.iter().all(|line| !line.contains("no command")));
}

#[test]
fn the_table_names_a_vsi_as_commands_do() {
    let line = "forward --mode rxonly --vsi 02:aa:00:00:00:01 --duration 1 --stats-period 0";
    let output = end(running::start(line.split_whitespace()));
    let shown = text(&output.stdout);
    let rows = shown.lines().map(|line| line.split_whitespace());
    let names: Vec<_> = rows
        .map(|row| row.skip(1).take(3).collect::<Vec<_>>())
        .collect();
    assert_eq!(names[1][..2], ["model:0", "rxonly"], "{shown}");
    assert_eq!(names[3], ["VSI", "0.1", "rxonly"], "{shown}");
}

/// Interfaces of the packets in a capture: enhanced packet blocks of pcapng are of type 6.
fn interfaces(mut bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if word(0) == 6 {
            found.push(word(8));
        }
        bytes = &bytes[word(4) as usize..];
    }
    found
}

#[test]
fn a_capture_has_an_interface_for_a_vsi() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (mirror, file) = (path("mirror"), path("x.pcapng"));
    let forward = format!(
        "forward --device model:0 --device model:1 --mode txonly,rxonly --no-promiscuous \
         --eth-peer 02:aa:00:00:00:01 --vsi 02:aa:00:00:00:01@1 --mirror {mirror} --interactive"
    );
    let mut session = Session::start(&forward);
    session.ask("start\nshow port info 0", "port 0:");
    let captured = |count: usize, direction: &str| {
        let line = format!(
            "capture --attach {mirror} --write {file} --count {count} --direction {direction}"
        );
        let output = end(running::start(line.split_whitespace()));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        std::fs::read(&file).unwrap()
    };
    // Only the VSI receives. Its interface follows those of the ports.
    let bytes = captured(50, "in");
    assert!(bytes.windows(7).any(|part| part == b"VSI 1.1"));
    assert_eq!(interfaces(&bytes), [2; 50]);
    session.ask("set fwd txonly\nshow port info 0", "port 0:");
    let found = interfaces(&captured(2000, "out"));
    for interface in 0..3 {
        assert!(found.contains(&interface), "{interface}: {found:?}");
    }
    let (_, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A server of the model with two functions.
struct Server(Option<Child>);

impl Server {
    fn start(folder: &Path) -> Self {
        let paths = ["a", "b", "control"].map(|name| folder.join(name));
        let [a, b, control] = paths.each_ref().map(|path| path.to_str().unwrap());
        let words = [
            "model",
            "serve",
            "--socket",
            a,
            "--socket",
            b,
            "--control",
            control,
        ];
        let server = Self(Some(running::start(words)));
        let deadline = Instant::now() + LIMIT;
        while !paths.iter().all(|path| UnixStream::connect(path).is_ok()) {
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Ends it; it must have seen no breach.
    fn end(mut self) {
        let child = self.0.take().unwrap();
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let output = end(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

/// A test that fails leaves no server.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn after_a_reset_of_the_device_its_vsis_receive_again_with_their_filters_and_rules() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let at = folder.path().to_str().unwrap();
    let mut session = Session::start(&format!(
        "forward --device vfio-user:{at}/a --device vfio-user:{at}/b --mode txonly,rxonly --json \
         --eth-peer 02:aa:00:00:00:09 --vsi 02:aa:00:00:00:01,2@1 --vsi 02:aa:00:00:00:02@1 \
         --interactive"
    ));
    session.ask(
        "mac_addr add 1.2 02:aa:00:00:00:09\nshow port info 1",
        "\"kind\":\"info\"",
    );
    session.ask("rule add 1.1 udp4 dst-port 5 action 1", "\"kind\":\"rule\"");
    session.ask("start\nshow port info 1", "\"kind\":\"info\"");
    let received = |report: &Value| count(report, "vsis", 1, "rx_packets");
    let mut report = wait_for(&mut session, "packets", |report| received(report) > 0);
    for resets in 1..=2 {
        let before = received(&report);
        let words = [
            "model",
            "tell",
            &format!("{at}/control"),
            "fault",
            "1",
            "function-reset",
        ];
        assert_eq!(end(running::start(words)).status.code(), Some(0));
        let again = wait_for(&mut session, "a recovery", |report| {
            count(report, "ports", 1, "recoveries") == resets
        });
        assert_eq!(count(&again, "vsis", 1, "recoveries"), resets, "{again}");
        assert_eq!(count(&again, "ports", 0, "recoveries"), 0, "{again}");
        assert!(received(&again) >= before, "counts go on: {again}");
        report = wait_for(&mut session, "packets after the reset", |report| {
            received(report) > received(&again) + 100
        });
        assert_eq!(count(&report, "ports", 1, "rx_packets"), 0, "{report}");
        assert_eq!(count(&report, "vsis", 0, "rx_packets"), 0, "{report}");
        // The device's counts began again: that is no turn of a counter.
        let dropped = &report["vsis"][1]["device_drops"]["rx_dropped"];
        let sent = count(&report, "ports", 0, "tx_packets");
        assert!(dropped.as_u64().unwrap() <= sent, "{report}");
        session.ask("show port info 1.1", "\"name\":\"1.1\"");
        session.ask("rule list 1.1", "udp4 dst-port 5 action 1");
    }
    let (rest, output) = session.quit("quit");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["/b: out of service (", "/b: in service again"] {
        assert_eq!(said.matches(part).count(), 2, "{part}: {said}");
    }
    let all = rest.last().expect("totals");
    let report: Value = serde_json::from_str(&all[all.find('{').expect("JSON")..]).unwrap();
    let (sent, received) = (count(&report, "ports", 0, "tx_packets"), received(&report));
    assert!(received <= sent, "none counts twice: {report}");
    server.end();
}
