//! `ringside forward` and `ringside port` on the model: counts that add up, commands, exit codes.

mod running;
mod session;

use running::{LIMIT, end};
use serde_json::Value;
use session::Session;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

fn start(line: &str) -> Child {
    running::start(line.split_whitespace())
}

fn run(line: &str) -> Output {
    end(start(line))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last report of a run that ended well.
fn total(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let all = text(&output.stdout);
    let last = all.lines().last().expect("a report");
    let report: Value = serde_json::from_str(last).unwrap();
    assert_eq!(report["kind"], "total");
    report
}

fn number(report: &Value, port: usize, name: &str) -> u64 {
    report["ports"][port][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn packets_on_their_way_at_the_end_are_in_the_counts_and_not_in_the_rates() {
    let line = "forward --device model:0 --device model:1 --mode txonly,rxonly --duration 1 --json";
    // A ring that feeds a port is hardly ever empty.
    let found = (0..10).any(|_| {
        let report = total(&run(line));
        let rate = |name: &str| report["ports"][1][name].as_f64().unwrap();
        let rated = (rate("rx_pps") * rate("seconds")).round() as u64;
        number(&report, 1, "rx_packets") > rated
    });
    assert!(found);
}

#[test]
fn time_stamps_of_the_device_are_counted_and_span_the_run() {
    let line = "forward --device model:0 --device model:1 --mode txonly,rxonly --duration 2 --json \
                --device-time";
    let report = total(&run(line));
    let (received, stamps) = (
        number(&report, 1, "rx_packets"),
        &report["ports"][1]["time_stamps"],
    );
    assert!(received > 0, "{report}");
    assert_eq!(stamps["packets"], received, "{report}");
    let [first, last] = ["first_ns", "last_ns"].map(|name| stamps[name].as_u64().unwrap());
    // Both are of one clock, in which a time stamp lies 2.1 s from the last look at most.
    let seconds = report["ports"][1]["seconds"].as_f64().unwrap();
    let span = last.checked_sub(first).expect("in order") as f64 / 1e9;
    assert!(
        span > seconds / 4.0 && span < seconds + 1.0,
        "{span} of {seconds} s"
    );
    assert!(
        report["ports"][0].get("time_stamps").is_none(),
        "nothing arrived"
    );
}

#[test]
fn what_one_port_sends_the_other_counts() {
    let line = "forward --device model:0 --device model:1 --mode txonly,rxonly --txpkts 200 \
                --duration 2 --json";
    let output = run(line);
    let report = total(&output);
    let (sent, received) = (
        number(&report, 0, "tx_packets"),
        number(&report, 1, "rx_packets"),
    );
    assert!(received > 0, "{report}");
    // None is in a ring when the totals are told.
    let lost = report["ports"][1]["device_drops"]["rx_dropped"].as_u64();
    let unread = number(&report, 1, "dropped");
    assert_eq!(sent, received + lost.unwrap() + unread, "{report}");
    assert_eq!(number(&report, 1, "rx_bytes"), received * 200);
    assert_eq!(number(&report, 0, "tx_bytes"), sent * 200);
    for port in [0, 1] {
        assert_eq!(number(&report, port, "malformed"), 0);
    }
    assert_eq!(number(&report, 1, "tx_packets"), 0);
    let intervals = text(&output.stdout).lines().count() - 1;
    assert!(
        (1..=2).contains(&intervals),
        "{intervals} reports in two seconds"
    );
}

#[test]
fn flows_are_spread_over_queues_and_large_packets_take_several_buffers() {
    let line = "forward --device model:0 --device model:1 --mode flowgen,rxonly --queues 2 \
                --mtu 9000 --txpkts 9014 --duration 2 --stats-period 0 --json";
    let report = total(&run(line));
    let received = number(&report, 1, "rx_packets");
    assert!(received > 0, "{report}");
    assert_eq!(number(&report, 1, "rx_bytes"), received * 9014);
}

/// The lines that the user types, and their output.
#[test]
fn commands_are_obeyed_and_wrong_ones_are_named() {
    let mut session = Session::start("forward --device model:0 --device model:1 --interactive");
    session.ask("help", "set fwd MODE");
    session.ask("set fwd turbo", "no mode turbo: one of io, macswap");
    session.ask("show port info 0", "port 0: address 02:");
    session.ask("show port info 2", "no port 2: there are 2");
    session.ask("vlan rm 5 0", "VLAN 5 was not added");
    session.ask("vlan add 5000 0", "choose 1 to 4094");
    session.ask("set promisc 0 maybe", "maybe is neither on nor off");
    session.ask("mac_addr add 0 nonsense", "a MAC address of one card is");
    session.ask("rx_vlan rm 5 0", "VLAN 5 was not added");
    session.ask(
        "rx_vlan add 5 0\nrx_vlan rm 5 0\nrx_vlan rm 5 0",
        "VLAN 5 was not added",
    );
    session.ask(
        "set promisc all off\nset allmulti all on\nset allmulti all up",
        "up is neither",
    );
    session.ask("show port info all", "port 0: address 02:");
    session.ask("", "port 1: address 02:");
    session.ask("set burst 65", "65 is no number of packets: 1 to 64");
    session.ask("set burst 8\nport stop 7", "no port 7: there are 2");
    session.ask("port pause 0", "pause is neither start nor stop");
    session.ask("show fwd stats all", "received 0");
    session.ask("show port stats 2", "no port 2: there are 2");
    let first = session.ask("show port stats 1", "s model:");
    assert!(first.contains("model:1"), "{first}");
    session.ask(
        "set fwd mac retry",
        "'set fwd mac retry' is not set fwd MODE",
    );
    session.ask(
        "set promisc 0",
        "'set promisc 0' is not set promisc PORT on|off",
    );
    session.ask("set verbose 1", "nothing 'verbose' to set");
    session.ask("clear port stats 2", "no port 2: there are 2");
    session.ask("clear port stats 01", "no port 01: there are 2");
    session.ask("start tx_first 0", "0 is no number of bursts: 1 to 4096");
    session.ask("dance", "no command 'dance'");
    session.ask(
        "set fwd txonly\nstart\nshow port info 1",
        "port 1: address 02:",
    );
    let deadline = Instant::now() + LIMIT;
    loop {
        let shown = session.ask("show port stats all", "received");
        let count = |word: &str| -> u64 {
            let (_, rest) = shown.split_once(word).expect("counts");
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        if count("received") > 0 && count("sent") > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{shown}");
    }
    session.ask("stop\nshow port xstats 0", "rx_unicast");
    let (rest, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_totals(&rest);
}

#[test]
fn a_stopped_port_sends_nothing_until_it_is_started_again() {
    let mut session = Session::start(
        "forward --device model:0 --device model:1 --forward-mode txonly,rxonly --rxq 2 --interactive",
    );
    let sent = |session: &mut Session| -> u64 {
        let shown = session.ask("show fwd stats all", "sent");
        // The rest of the report goes by.
        session.ask("show port info 1", "port 1");
        let (_, rest) = shown.split_once("sent ").expect("counts");
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let grows = |session: &mut Session| {
        let (before, deadline) = (sent(session), Instant::now() + LIMIT);
        while sent(session) == before {
            assert!(Instant::now() < deadline, "port 0 sends nothing");
        }
    };
    session.ask("start\nshow port info 0", "port 0");
    grows(&mut session);
    // It answers once the queues have stopped.
    session.ask("port stop 0\nshow port info 0", "port 0");
    let before = sent(&mut session);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(sent(&mut session), before, "a stopped port sends");
    session.ask("port start all\nset burst 4\nshow port info 0", "port 0");
    grows(&mut session);
    let (_, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The first packets of two ports that forward to each other go round without end.
#[test]
fn ports_that_forward_to_each_other_begin_with_a_burst_and_are_cleared_one_by_one() {
    let mut session = Session::start("forward --device model:0 --device model:1 --interactive");
    session.ask("show config fwd", "1 threads, 32 packets a burst");
    session.ask("", "port 0 (model:0): io, to 1; queue 0 on thread 0");
    session.ask("", "port 1 (model:1): io, to 0; queue 0 on thread 0");
    let received = |session: &mut Session, port: u8| -> u64 {
        let shown = session.ask(&format!("show port stats {port}"), "received ");
        let (_, rest) = shown.split_once("received ").expect("counts");
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    session.ask("start\nshow port info 0", "port 0");
    assert_eq!(received(&mut session, 0), 0, "there is no packet yet");
    session.ask("stop\nstart tx_first 2\nshow port info 0", "port 0");
    let deadline = Instant::now() + LIMIT;
    // More than were sent at first.
    while received(&mut session, 0) < 1000 || received(&mut session, 1) < 1000 {
        assert!(Instant::now() < deadline, "packets do not go round");
    }
    // A thread that has read "forward" may move one more burst.
    session.ask(
        "stop\nport stop all\nclear port stats 1\nshow port info 1",
        "port 1",
    );
    assert_eq!(received(&mut session, 1), 0);
    assert!(received(&mut session, 0) >= 1000);
    session.ask("clear fwd stats all\nshow port info 1", "port 1");
    assert_eq!(received(&mut session, 0), 0);
    let (_, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = "forward --device model:0 --device model:1 --tx-first --duration 1 --json";
    let report = total(&run(line));
    assert!(number(&report, 0, "rx_packets") > 0, "{report}");
}

/// The pauses of a session are no time of forwarding.
#[test]
fn seconds_and_rates_are_of_the_time_between_start_and_stop() {
    const PAUSE: Duration = Duration::from_millis(100);
    let mut session = Session::start(
        "forward --device model:0 --device model:1 --mode txonly,rxonly --interactive --json",
    );
    let mut report = |lines: &str| -> Value {
        let shown = session.ask(&format!("{lines}\nshow port stats all"), "\"total\"");
        let report: Value = serde_json::from_str(&shown).unwrap();
        report["ports"][0].clone()
    };
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    std::thread::sleep(PAUSE);
    let before = report("show config fwd");
    assert_eq!(seconds(&before), 0.0, "{before}");
    assert_eq!(before["tx_pps"], 0.0, "{before}");
    let begin = Instant::now();
    assert!(seconds(&report("start")) > 0.0);
    std::thread::sleep(PAUSE);
    let stopped = report("stop");
    assert!(
        seconds(&stopped) <= begin.elapsed().as_secs_f64(),
        "{stopped}"
    );
    assert!(stopped["tx_pps"].as_f64().unwrap() > 0.0, "{stopped}");
    std::thread::sleep(PAUSE);
    assert_eq!(seconds(&report("")), seconds(&stopped));
    assert!(seconds(&report("start")) > seconds(&stopped));
    let (_, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// Each queue of each port sends as many bursts as asked for, once.
#[test]
fn the_first_bursts_are_as_many_as_asked_for() {
    let mut session = Session::start(
        "forward --device model:0 --device model:1 --mode rxonly --queues 2 --interactive",
    );
    session.ask("start tx_first 3\nshow port info 0", "port 0");
    let deadline = Instant::now() + LIMIT;
    let shown = loop {
        let shown = session.ask("show port stats 0", "sent ");
        if !shown.contains("sent 0 packets") && shown.contains("received 192 packets") {
            break shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
    };
    assert!(shown.contains("sent 192 packets"), "{shown}");
    let (_, output) = session.quit("quit");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn testpmds_flags_are_known() {
    let line =
        "forward --forward-mode flowgen --flowgen-flows 4 --rxq 2 --txq 2 --duration 1 --json";
    let report = total(&run(line));
    assert_eq!(report["ports"][0]["mode"], "flowgen");
    assert!(number(&report, 0, "tx_packets") > 0, "{report}");
    for wrong in ["--rxq 2 --txq 3", "--rxq 2 --queues 2", "--txq 65"] {
        let output = run(&format!("forward {wrong} --duration 1"));
        assert_eq!(
            output.status.code(),
            Some(2),
            "{wrong}: {}",
            text(&output.stderr)
        );
    }
}

/// The last lines of a session: the names of the columns, then a row and the totals of each port.
fn assert_totals(lines: &[String]) {
    let names = "ringside>    total port             mode          rx pkt/s  rx Gb/s     tx pkt/s  \
                 tx Gb/s    dropped empty %";
    let from = lines.iter().position(|line| line == names);
    let from = from.unwrap_or_else(|| panic!("no totals: {lines:#?}"));
    let all = lines[from + 1..].iter();
    let mut shown = all.filter(|line| !line.trim_start().starts_with("dropped"));
    for port in ["model:0", "model:1"] {
        let row: Vec<_> = shown.next().expect("a row").split_whitespace().collect();
        assert_eq!(row[1..3], [port, "txonly"], "{lines:#?}");
        let totals = shown.next().expect("totals").trim_start();
        assert!(totals.starts_with("received "), "{lines:#?}");
        assert!(totals.ends_with("; 0 malformed"), "{lines:#?}");
    }
    assert_eq!(shown.next(), None, "{lines:#?}");
}

#[test]
fn ctrl_c_ends_it_with_totals_and_says_if_it_was_early() {
    for (line, code) in [
        ("forward --mode rxonly --json", 0),
        ("forward --mode rxonly --json --duration 100", 130),
    ] {
        let mut child = start(line);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It runs once it reports.
        assert!(lines.next().unwrap().unwrap().contains("\"interval\""));
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(rest.last().unwrap().contains("\"total\""), "{rest:?}");
        let output = end(child);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
}

#[test]
fn an_interactive_session_ends_after_its_duration() {
    // Its input stays open.
    let output = run("forward --interactive --duration 1");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("total"), "{output:?}");
}

#[test]
fn an_interactive_session_with_json_has_no_prompts_between_its_reports() {
    let mut session = Session::start("forward --interactive --json");
    let refused = session.ask("dance", "no command 'dance'");
    let lines = "help\nrule add 0 tcp4 dst-port 80 action 0\nrule list 0\nshow port xstats all\n\
                 show port info 0\nshow config fwd\nshow port stats all\nquit";
    let (mut rest, output) = session.quit(lines);
    // A line was refused, and a script cannot read that.
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 of the lines of standard input"), "{said}");
    rest.insert(0, refused);
    let objects = rest.iter().map(|line| {
        let object = serde_json::from_str::<Value>(line);
        object.unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let objects: Vec<Value> = objects.collect();
    let kinds: Vec<&str> = objects
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    let wanted = ["error", "help", "rule", "rules", "xstats", "info", "config"];
    assert_eq!(kinds, [&wanted[..], &["total", "total"]].concat());
    assert_eq!(objects[3]["rules"][0]["number"], objects[2]["number"]);
    assert!(objects[4]["ports"][0]["counters"]["rx_dropped"].is_u64());
    assert_eq!(objects[5]["ports"][0]["link_up"], true);
    assert_eq!(objects[6]["ports"][0]["threads_of_queues"][0], 0);
}

#[test]
fn a_line_that_is_no_text_is_an_unknown_command() {
    let mut child = start("forward --interactive");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\xFF\xFE\nhelp\nquit\n").unwrap();
    let output = end(child);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no command '\u{FFFD}"), "{said}");
    assert!(said.contains("set fwd MODE"), "{said}");
}

#[test]
fn what_cannot_be_is_refused_before_a_device_is_touched() {
    let wrong = [
        (
            "--mode io,mac,io --device model:0 --device model:1",
            "3 modes for 2 ports",
        ),
        (
            "--device model:0 --device model:1 --device model:0",
            "--device model:0: named twice",
        ),
        ("--rxd 100", "--rxd 100: a ring has 64 to 8160"),
        ("--txd 8192", "--txd 8192: a ring has 64 to 8160"),
        ("--mtu 60", "--mtu 60: choose 68 to 9702"),
        ("--txpkts 2000", "raise --mtu"),
        (
            "--eth-peer 02:00:00:00:00:01 --eth-peer 02:00:00:00:00:02",
            "for 1 ports",
        ),
        ("--stats-period 18446744073709551615", "31536000"),
    ];
    for (flags, why) in wrong {
        let output = run(&format!("forward {flags} --duration 1"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains(why), "{flags}: {said}");
    }
    for line in ["forward", "tap --interface x", "capture --write -"] {
        let output = run(&format!("{line} --duration 18446744073709551615"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("31536000"), "{line}: {said}");
    }
    let output = run("forward --device model:7 --duration 1");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn a_port_is_shown_for_people_and_for_machines() {
    let output = run("port --statistics --queues 4");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "model:0: address 02:",
        "link: up",
        "queues: 4 of up to 64 receive",
        "offloads: rx-checksumming",
        "rx_unicast: 0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let output = run("port --json --queues 4");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["receive_queues"], 4);
    assert_eq!(report["link"]["up"], true);
    assert_eq!(report["hash_table_entries"].as_u64().unwrap() % 4, 0);
}

#[test]
fn the_choice_of_receive_queues_is_shown_as_ethtool_shows_it() {
    let vsi = "--vsi 02:aa:00:00:00:01,3";
    let output = run(&format!("port -x --queues 4 {vsi}"));
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .filter(|line| {
            line.trim_start()
                .starts_with(|first: char| first.is_ascii_digit())
        })
        .map(|line| line.split_whitespace().collect())
        .collect();
    // The port's table, then that of its VSI.
    assert_eq!(rows.len(), (2048 + 64) / 8, "{shown}");
    assert_eq!(rows[1], ["8:", "0", "1", "2", "3", "0", "1", "2", "3"]);
    assert_eq!(rows[255][0], "2040:");
    assert_eq!(
        rows[256 + 2],
        ["16:", "1", "2", "0", "1", "2", "0", "1", "2"]
    );
    for part in [
        "hash key: 6d:5a:56:da:25:5b:",
        "symmetric: each direction of a flow has its own hash",
        "hash fields of tcp4: source address, destination address, source port, destination port",
        "hash fields of frag6: source address, destination address",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let output = run(&format!("port --json --queues 4 {vsi}"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = &report["vsis"][0]["spreading"];
    assert_eq!(own["table"].as_array().unwrap().len(), 2048);
    assert_eq!(own["table"][7], 3);
    assert_eq!(own["key"], report["hash_key"]);
    assert_eq!(own["is_symmetric"], false);
    assert_eq!(own["fields"]["udp6"].as_array().unwrap().len(), 4);
    let theirs = report["vsis"][1]["spreading"]["table"].as_array().unwrap();
    assert_eq!((theirs.len(), &theirs[5]), (64, &2.into()));
    // One queue: no kind is hashed.
    let shown = text(&run("port").stdout);
    assert!(shown.contains("hash fields: none"), "{shown}");
    assert!(!shown.contains("2040:"), "{shown}");
}

#[test]
fn further_vsis_of_a_port_are_shown_with_their_queues() {
    let output = run("port --queues 2 -S --vsi 02:aa:00:00:00:01,4 --vsi 02:aa:00:00:00:02");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "VSI 16: address 02:",
        "receive queues 0 to 1, transmit queue 0, 2048 hash entries",
        "VSI 17: address 02:aa:00:00:00:01, receive queues 3 to 6, transmit queues 2 to 5, 64 hash",
        "VSI 18: address 02:aa:00:00:00:02, receive queue 7, transmit queue 6, 64 hash entries",
        "    rx_unicast: 0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let output = run("port --json --vsi 02:aa:00:00:00:01,4");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["vsis"][1]["number"], 17);
    assert_eq!(report["vsis"][1]["first_receive_queue"], 2);
    for wrong in [
        "02:aa:00:00:00:01,17",
        "02:aa:00:00:00:01,x",
        "01:00:5e:00:00:01",
    ] {
        let output = run(&format!("port --vsi {wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let output = run("port --vsi 02:aa:00:00:00:01 --vsi 02:aa:00:00:00:01");
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("VSI 17 of this function receives"),
        "{error}"
    );
}

/// The server of two functions of the model, and the sockets of both.
fn serve(folder: &std::path::Path) -> (Child, [String; 2]) {
    let sockets = ["a", "b"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let [a, b] = &sockets;
    let server = start(&format!("model serve --socket {a} --socket {b}"));
    let end = Instant::now() + LIMIT;
    while !sockets.iter().all(|one| std::path::Path::new(one).exists()) {
        assert!(Instant::now() < end, "no sockets after {LIMIT:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    (server, sockets)
}

#[test]
fn forwarding_ends_with_totals_when_no_device_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, [a, b]) = serve(folder.path());
    let command = format!(
        "forward --device vfio-user:{a} --device vfio-user:{b} --mode io --stats-period 1 --json"
    );
    let mut gone = start(&command);
    let mut lines = BufReader::new(gone.stdout.take().unwrap()).lines();
    lines.next().expect("a report").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let last = lines.map_while(Result::ok).last().expect("totals");
    let report: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(report["kind"], "total");
    let output = end(gone);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the device is gone"), "{said}");
}
