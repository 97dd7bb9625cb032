//! `ringside bench` between two processes, with the model in a third: the real command each time.

mod dhcp;
mod over_nic;
mod perftest;
mod processes;

use processes::{LIMIT, Model, Process};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[test]
fn all_sizes_of_each_operation_arrive_whole_on_both_sides() {
    let mut model = Model::serve();
    let (client, server) = model.bench(&["--verify-only", "-a"]);
    for operation in [
        "RDMA_Write",
        "RDMA_Read",
        "Send",
        "RDMA_Write with immediate",
        "Send with immediate",
    ] {
        for size in (1..=23).map(|power| 1 << power) {
            client.with(0, &format!(" {operation:<26} {size:<10} "));
            server.with(0, &format!("{operation} verification {size} B: "));
        }
    }
    let last = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains("messages verified byte by byte"));
        line.unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!(last(&client.text), last(&server.text));
    model.is_content();
}

#[test]
fn all_sizes_are_measured_by_each_operation() {
    let mut model = Model::serve();
    let (client, server) = model.bench(&["-a", "-n", "10"]);
    let rows = client.text.lines().filter(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|size| size.parse::<u64>().is_ok()) && words.next() == Some("10")
    });
    assert_eq!(rows.count(), 6 * 23, "{}", client.text);
    assert_eq!(
        server.text.matches(" messages verified here").count(),
        6 * 23
    );
    model.is_content();
}

#[test]
fn queues_of_one_and_many_queue_pairs_lose_nothing() {
    let mut model = Model::serve();
    for flags in [
        "send bw -s 64 -n 300 -t 1 -r 1",
        "send bw -s 5000 -n 300 -t 64 -r 3",
        "send bw -s 64 -n 2000 -q 7 -t 16 -r 16",
        "write bw -s 100 -n 2000 -q 64 -t 2 -m 256",
        "read bw -s 9000 -n 500 -q 5 -I 101 -m 1024",
        "send lat -s 0 -n 100",
    ] {
        let flags: Vec<_> = flags.split(' ').collect();
        let (_, server) = model.bench(&flags);
        if let ["send", "bw", _, _, _, count, ..] = flags[..] {
            server.with(0, &format!(", {count} answered or received"));
        }
    }
    let flags = ["--verify-only", "-q", "64", "-s", "3000", "-m", "1024"];
    model.bench(&flags);
    model.is_content();
}

#[test]
fn the_connection_manager_connects_one_and_many_queue_pairs() {
    let mut model = Model::serve();
    for flags in ["-R send lat -s 64 -n 50", "-R write bw -s 4096 -n 100 -q 4"] {
        let flags: Vec<&str> = flags.split(' ').collect();
        model.bench(&flags);
    }
    let (server, place) = model.listen(&["-R"]);
    let client = model.connect(&place, &["write", "lat", "-n", "50"]);
    let client = client.end(LIMIT);
    server.end(LIMIT);
    let text = "the listening side insists on the connection manager";
    assert!(client.text.contains(text), "{}", client.text);
    assert_ne!(client.code, Some(0));
    model.is_content();
}

#[test]
fn spinning_and_yielding_sides_get_on() {
    let model = Model::serve();
    for idle in ["spin", "yield"] {
        let (client, _) = model.bench(&["write", "lat", "-n", "50", "--idle", idle]);
        client.with(0, &format!("{}s while idle", idle));
    }
}

/// Long enough that it is under way when something happens to it.
const LONG: [&str; 6] = ["-D", "60", "--idle", "yield", "-s", "64"];

#[test]
fn a_client_that_is_killed_ends_the_server_with_the_reason_and_the_model_serves_on() {
    let mut model = Model::serve();
    for test in [
        ["write", "lat"],
        ["write", "bw"],
        ["send", "bw"],
        ["read", "lat"],
    ] {
        let (server, place) = model.listen(&[]);
        let mut client = model.connect(&place, &[&test[..], &LONG].concat());
        client.line(" #bytes ");
        std::thread::sleep(Duration::from_millis(500));
        client.kill();
        let began = Instant::now();
        let ended = server.end(LIMIT);
        assert_eq!(ended.code, Some(1), "{}", ended.text);
        assert!(
            ended.text.contains("closed the connection") || ended.text.contains("failed:"),
            "{test:?}: {}",
            ended.text
        );
        assert!(began.elapsed() < Duration::from_secs(30), "{test:?}");
    }
    model.bench(&["--verify-only", "-s", "1000"]);
    model.is_content();
}

#[test]
fn a_server_that_is_killed_ends_the_client_with_the_reason() {
    let model = Model::serve();
    for test in [["write", "lat"], ["write", "bw"], ["send", "lat"]] {
        let (mut server, place) = model.listen(&[]);
        let mut client = model.connect(&place, &[&test[..], &LONG].concat());
        client.line(" #bytes ");
        std::thread::sleep(Duration::from_millis(500));
        server.kill();
        let ended = client.end(Duration::from_secs(60));
        assert_eq!(ended.code, Some(1), "{}", ended.text);
        assert!(
            ended.text.contains("closed the connection"),
            "{test:?}: {}",
            ended.text
        );
    }
}

#[test]
fn a_client_that_stops_without_closing_ends_the_server_in_time() {
    let model = Model::serve();
    let (server, place) = model.listen(&[]);
    let mut client = model.connect(&place, &[&["write", "lat"], &LONG[..]].concat());
    client.line(" #bytes ");
    std::thread::sleep(Duration::from_millis(500));
    client.signal("STOP");
    let ended = server.end(Duration::from_secs(60));
    client.kill();
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    assert!(
        ended.text.contains("for 10 s") || ended.text.contains("sent nothing within"),
        "{}",
        ended.text
    );
}

#[test]
fn a_model_that_is_killed_ends_both_sides() {
    let model = Model::serve();
    let (server, place) = model.listen(&[]);
    let mut client = model.connect(&place, &[&["write", "lat"], &LONG[..]].concat());
    client.line(" #bytes ");
    std::thread::sleep(Duration::from_millis(500));
    drop(model);
    end_with_the_reason([server, client]);
}

/// Both sides end soon, and say why.
fn end_with_the_reason(sides: [Process; 2]) {
    for side in sides {
        let ended = side.end(Duration::from_secs(60));
        assert_eq!(ended.code, Some(1), "{}", ended.text);
        assert!(ended.text.contains("ringside: "), "{}", ended.text);
    }
}

#[test]
fn options_that_disagree_end_both_sides_with_both_values() {
    let model = Model::serve();
    for (own, asked, part) in [
        (
            "-s 64",
            "write lat -s 128",
            "-s: the listening side insists on 64, the connecting side asks for 128",
        ),
        (
            "-q 2",
            "write bw -q 3",
            "-q: the listening side insists on 2, the connecting side asks for 3",
        ),
        (
            "read",
            "send lat",
            "the operation: the listening side insists on RDMA_Read, the connecting side asks for Send",
        ),
        (
            "-m 1024",
            "--verify-only",
            "-m: the listening side insists on 1024, the connecting side asks for 4096",
        ),
    ] {
        let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let (server, place) = model.listen(&words(own));
        let client = model.connect(&place, &words(asked)).end(LIMIT);
        client.with(2, part).with(2, "refuses");
        assert_eq!(client.text.matches(part).count(), 1, "{}", client.text);
        server.end(LIMIT).with(2, part);
    }
}

#[test]
fn a_peer_that_speaks_something_else_or_nothing_is_an_error_in_time() {
    let model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let hasty = folder.path().join("hasty.toml");
    std::fs::write(&hasty, "[deadlines]\nconnect_ms = 500\n").unwrap();
    let config = ["--config", hasty.to_str().unwrap()];
    let talk: [(&[u8], &str); 3] = [
        (
            b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n",
            "uses another protocol",
        ),
        (b"", "sent nothing within 500 ms"),
        (b"ringback\0\x07\0\0\0\0\0\0", "uses version 7"),
    ];
    for (bytes, part) in talk {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = other.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(bytes).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let ended = model.connect(&place, &config).end(LIMIT);
        ended.with(1, part);
        answering.join().unwrap();
    }
    let (server, place) = model.listen(&config);
    let mut stream = TcpStream::connect(place).unwrap();
    let request = [&b"ringtest\0\x07"[..], &[0; 54]].concat();
    stream.write_all(&request).unwrap();
    server.end(LIMIT).with(1, "uses version 7");
    let (server, _) = model.listen(&["--wait", "1"]);
    server.end(LIMIT).with(1, "within 1000 ms");
}

/// A scan of ports, a probe of a load balancer, a browser: none of them takes the listener's wait.
#[test]
fn connections_of_other_programs_do_not_end_the_wait_for_a_bench() {
    let model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let hasty = folder.path().join("hasty.toml");
    std::fs::write(&hasty, "[deadlines]\nconnect_ms = 2000\n").unwrap();
    let (mut server, place) = model.listen(&["--config", hasty.to_str().unwrap()]);
    let mut stray = |bytes: &[u8], is_closed: bool, part: &str| {
        let mut stream = TcpStream::connect(&place).unwrap();
        stream.write_all(bytes).unwrap();
        let kept = (!is_closed).then_some(stream);
        let warning = server.line("warning: a connection was no bench: the peer 127.0.0.1:");
        assert!(warning.contains(part), "{warning}");
        drop(kept);
    };
    stray(b"", true, " closed the connection after 0 bytes");
    stray(b"GET / HTTP/1.1\r\n\r\n", true, " begins with byte 0x47");
    // An LDAP bind begins as a digit does.
    stray(b"0\x0c\x02\x01\x01\x60\x07", true, " begins with byte 0x30");
    stray(b"r01\n", true, " begins with byte 0x72");
    stray(b"", false, " sent nothing within 2000 ms");
    let client = model.connect(&place, &["--verify-only", "-s", "1000"]);
    client.end(LIMIT).with(0, "messages verified byte by byte");
    server.end(LIMIT).with(0, "messages verified byte by byte");
    let (mut server, place) = model.listen(&["--perftest", "write", "bw", "-n", "50"]);
    drop(TcpStream::connect(&place).unwrap());
    server.line("warning: a connection was no bench: ");
    let client = model.connect(&place, &["--perftest", "write", "bw", "-n", "50"]);
    client.end(LIMIT).with(0, "");
    server.end(LIMIT).with(0, "");
}

#[test]
fn a_signal_ends_the_wait_for_a_peer_that_is_silent() {
    let model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let patient = folder.path().join("patient.toml");
    std::fs::write(&patient, "[deadlines]\nconnect_ms = 60000\n").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = other.local_addr().unwrap().to_string();
    let mut client = model.connect(&place, &["--config", patient.to_str().unwrap()]);
    client.line("Driven: ");
    client.signal("INT");
    client.end(Duration::from_secs(30)).with(130, "interrupted");
}

#[test]
fn no_peer_is_an_error_in_time_on_either_side() {
    let model = Model::serve();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let ended = model
        .connect(&free.to_string(), &["--wait", "1"])
        .end(LIMIT);
    ended.with(1, "cannot connect to 127.0.0.1:");
    let (server, _) = model.listen(&["--wait", "1"]);
    server.end(LIMIT).with(1, "no peer connected to 127.0.0.1:");
}

#[test]
fn the_model_inside_a_process_is_refused_with_what_to_do() {
    let ended = Process::start(&["bench", "--listen", "127.0.0.1:0"]).end(LIMIT);
    ended.with(2, "ringside model serve");
}

#[test]
fn the_report_of_a_meeting_is_whole() {
    let model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let hgrm = folder.path().join("out.hgrm");
    let (json_text, hgrm_text) = (json.to_str().unwrap(), hgrm.to_str().unwrap());
    let files = [
        "--out_json",
        "--out_json_file",
        json_text,
        "--hgrm",
        hgrm_text,
    ];
    model.bench(&[&["write", "lat", "-n", "30"], &files[..]].concat());
    let text = std::fs::read_to_string(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = &report["tables"][0]["rows"]["latency"][0];
    assert_eq!(row["iterations"], 30, "{text}");
    assert_eq!(row["verified_messages"], 16, "{text}");
    assert_eq!(report["devices"].as_array().unwrap().len(), 2, "{text}");
    let stages = report["bring_up"].as_array().unwrap().iter();
    let stages: f64 = stages
        .map(|one| one["microseconds"].as_f64().unwrap())
        .sum();
    let ready = report["bring_up_to_rts_milliseconds"].as_f64().unwrap();
    assert!(ready > stages / 1e3, "{ready} ms: {text}");
    assert!(std::fs::read_to_string(&hgrm).unwrap().contains("#[Max"));
}
