//! `--perftest` on both sides, and others that do not speak it. Debian's own programs are the other
//! side in `tests/guest`.

use crate::processes::{Ended, LIMIT, Model, Process};
use std::io::{Read, Write};
use std::net::TcpListener;

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

#[test]
fn each_program_measures_all_sizes() {
    let mut model = Model::serve();
    for program in [
        "write lat",
        "read lat",
        "send lat",
        "write bw",
        "read bw",
        "send bw",
    ] {
        let flags = format!("--perftest {program} -a -n 10");
        let (server, place) = model.listen(&words(&flags));
        let client = model.connect(&place, &words(&flags)).end(LIMIT);
        client.with(0, "perftest compares no data");
        server.end(LIMIT).with(0, "perftest compares no data");
        let rows = client.text.lines().filter(|line| {
            let mut words = line.split_whitespace();
            words.next().is_some_and(|size| size.parse::<u64>().is_ok())
                && words.next() == Some("10")
        });
        assert_eq!(rows.count(), 23, "{}", client.text);
    }
    model.is_content();
}

#[test]
fn each_queue_pair_carries_as_many_messages() {
    let mut model = Model::serve();
    for flags in [
        "--perftest send bw -q 7 -s 3000 -n 101 -r 16",
        "--perftest write bw -q 64 -s 9 -n 33 -t 4",
    ] {
        let (server, place) = model.listen(&words(flags));
        model
            .connect(&place, &words(flags))
            .end(LIMIT)
            .with(0, "verified");
        server.end(LIMIT).with(0, "verified");
    }
    model.is_content();
}

#[test]
fn different_numbers_of_messages_end_both_sides_with_the_reason() {
    let model = Model::serve();
    let (server, place) = model.listen(&words("--perftest send bw -n 50 -s 64"));
    let client = model.connect(&place, &words("--perftest send bw -n 40 -s 64"));
    server.end(LIMIT).with(
        2,
        "was done after 40 of 50 messages; this side expects ib_send_bw -s 64 -n 50 -q 1",
    );
    assert_eq!(client.end(LIMIT).code, Some(1));
}

#[test]
fn a_peer_that_speaks_something_else_is_told_by_what_it_says() {
    let model = Model::serve();
    for (bytes, part) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "the peer's version is \"HTTP/1.1 400 Bad\"",
        ),
        (
            b"5.31\0\0\0\0\0\0\0\0\0\0\0\0",
            "the peer's version is \"5.31\"",
        ),
        (
            b"6.24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\x409\0",
            "the peer's path MTU is \"[39, 00]\"",
        ),
        (
            b"6.24\0\0\0\0\0\0\0\0\0\0\0\0\xFF\0\x10\0",
            "cycle buffer or cache line",
        ),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = other.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(bytes).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let flags = words("--perftest write bw");
        model.connect(&place, &flags).end(LIMIT).with(1, part);
        answering.join().unwrap();
    }
}

#[test]
fn what_is_measured_has_to_be_said() {
    let model = Model::serve();
    for flags in ["--perftest", "--perftest write"] {
        let ended = model.connect("127.0.0.1:9", &words(flags)).end(LIMIT);
        ended.with(2, "say what the program on the other side measures");
    }
}

/// Two benches with different flags: how each ends.
fn differing(model: &Model, listening: &str, connecting: &str) -> [Ended; 2] {
    let [listening, connecting] =
        [listening, connecting].map(|flags| [vec!["--perftest"], words(flags)].concat());
    let (server, place) = model.listen(&listening);
    let client = model.connect(&place, &connecting).end(LIMIT);
    [server.end(LIMIT), client]
}

#[test]
fn a_peer_with_other_flags_is_told_with_both_sides_flags() {
    let model = Model::serve();
    for (listening, connecting, part) in [
        (
            "write bw -s 64 -n 20",
            "read bw -s 64 -n 20",
            "the peer measured RDMA_Read, not RDMA_Write; this side expects ib_write_bw -s 64 -n 20 -q 1 without -b, -D, -R",
        ),
        (
            "read bw -s 64 -n 20",
            "write bw -s 64 -n 20",
            "the peer measured RDMA_Write, not RDMA_Read; ",
        ),
        (
            "write bw -s 64 -n 20",
            "write bw -s 64 -n 30",
            "the peer measured 30 messages, not 20: its -n or -q differs, or it has -D; ",
        ),
        (
            "write bw -s 64 -n 20",
            "write bw -s 128 -n 20",
            "the peer measured messages of 128 bytes, not 64; ",
        ),
        (
            "send bw -s 64 -n 20",
            "send bw -s 32 -n 20",
            "a message of 32 bytes arrived, expected 64; ",
        ),
        (
            "send lat -s 64 -n 20",
            "send lat -s 32 -n 20",
            "a message of 32 bytes arrived, expected 64; ",
        ),
        (
            "write bw -s 64 -n 20",
            "write bw -s 64 -n 20 -q 3",
            "it has more queue pairs, or measures something else; ",
        ),
        (
            "write bw -s 64 -n 20",
            "write lat -s 64 -n 20",
            "no RDMA_Write of the peer has arrived although it says that it is done: it begins only now (-b)",
        ),
    ] {
        let [server, client] = differing(&model, listening, connecting);
        server.with(2, part);
        assert_ne!(client.code, Some(0), "{connecting}: {}", client.text);
        assert!(
            client.text.contains("this side expects ib_"),
            "{}",
            client.text
        );
    }
    // With fewer queue pairs it is the client that notices.
    let [_, client] = differing(&model, "write bw -s 64 -n 20", "write bw -s 64 -n 20 -q 2");
    assert_ne!(client.code, Some(0), "{}", client.text);
}

/// Speaks the client's part of a perftest's bandwidth test up to the end, and moves no data.
fn talk_without_traffic(place: &str, records: usize) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(place).unwrap();
    let record = "0000:0010:000123:00abcd:00001234:0000000000005678:\
                  fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:77:00000000:\0";
    let mut version = *b"6.24\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut exchange = |bytes: &mut [u8]| {
        stream.write_all(bytes).unwrap();
        stream.read_exact(bytes).unwrap();
    };
    exchange(&mut version);
    exchange(&mut 4096_u32.to_be_bytes());
    exchange(&mut 64_u32.to_be_bytes());
    exchange(&mut b"5\0".to_owned());
    for _ in 0..records {
        exchange(&mut record.as_bytes().to_owned());
    }
    stream.write_all(record.as_bytes()).unwrap();
    stream
}

#[test]
fn a_peer_whose_messages_never_arrive_is_noticed() {
    let model = Model::serve();
    // As ib_write_bw with -c UC, whose packets a reliable queue pair discards, and with -b, which
    // keeps step before it begins.
    for (flags, part) in [
        (
            "--perftest write bw -s 64 -n 20",
            "(-b), has another transport (-c UC)",
        ),
        (
            "--perftest send bw -s 64 -n 20",
            "was done after 0 of 20 messages; ",
        ),
    ] {
        let (server, place) = model.listen(&words(flags));
        let _peer = talk_without_traffic(&place, if flags.contains("send") { 4 } else { 3 });
        server.end(LIMIT).with(2, part);
    }
}

#[test]
fn a_peer_that_waits_for_ever_is_told_with_the_flags_that_lead_to_it() {
    let model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let hasty = folder.path().join("hasty.toml");
    std::fs::write(&hasty, "[deadlines]\nconnect_ms = 300\n").unwrap();
    let config = ["--config", hasty.to_str().unwrap()];
    // A peer that stops in the middle of the records.
    let (server, place) = model.listen(&[&config[..], &words("--perftest send bw")].concat());
    let _peer = talk_without_traffic(&place, 1);
    let ended = server.end(LIMIT);
    ended.with(1, "sent nothing within 900 ms");
    ended.with(
        1,
        "such as messages of this side (its -b); this side expects ib_send_bw -s 65536",
    );
    // With -R nothing comes over TCP, and nothing listens there.
    let flags = [&config[..], &words("--perftest write bw --wait 1")].concat();
    let (server, _) = model.listen(&flags);
    server.end(LIMIT).with(1, "leave -R out");
    model
        .connect("127.0.0.1:9", &flags)
        .end(LIMIT)
        .with(1, "leave -R out");
}

/// The exchange has no MAC addresses. Each side asks for the other's by ARP or neighbour discovery,
/// and answers: no GID here is one that a MAC address follows from.
#[test]
fn both_sides_find_each_other_over_the_network() {
    let mut model = Model::serve();
    let folder = tempfile::tempdir().unwrap();
    let config = |name: &str, address: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("[network]\naddresses = [{address:?}]\n")).unwrap();
        path.display().to_string()
    };
    let of_ipv6 = [
        config("a.toml", "fd00::1/64"),
        config("b.toml", "fd00::2/64"),
    ];
    let flags = words("--perftest write bw -s 64 -n 20");
    let [listening, connecting] = of_ipv6.each_ref().map(|path| vec!["--config", path]);
    // The second GID is the one of IPv4 without a configuration, and the configured one: the server
    // follows.
    for configs in [[vec![], vec![]], [listening, connecting]] {
        let [listening, connecting] = configs;
        let (server, place) = model.listen(&[&listening[..], &flags].concat());
        let client = [&connecting[..], &flags, &["-x", "1"]].concat();
        let client = model.connect(&place, &client).end(LIMIT);
        client.with(0, "perftest compares no data");
        server.end(LIMIT).with(0, "perftest compares no data");
    }
    // Before a peer comes.
    let device = model.device("a");
    for place in ["--listen", "--connect"] {
        let words = [
            "bench",
            place,
            "127.0.0.1:0",
            "--device",
            &device,
            "-x",
            "7",
        ];
        let refused = Process::start(&[&words[..], &flags].concat()).end(LIMIT);
        refused.with(2, "-x 7: the device has the GIDs 0, 1");
    }
    model.is_content();
}

/// The keys that a client of perftest's exchange sends, its GID among them. It does not get any.
pub(crate) fn keys_of_client(model: &Model, config: &[&str]) -> String {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = other.local_addr().unwrap().to_string();
    let listening = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut theirs = [0; 16 + 4 + 4 + 2 + 108];
        for (from, to) in [(0, 16), (16, 20), (20, 24), (24, 26)] {
            let record = &mut theirs[from..to];
            stream.read_exact(record).unwrap();
            stream.write_all(record).unwrap();
        }
        stream.read_exact(&mut theirs[26..]).unwrap();
        let text = String::from_utf8_lossy(&theirs[26..]);
        text.trim_end_matches('\0').to_owned()
    });
    let client = model.connect(&place, &[config, &words("--perftest write bw")].concat());
    let keys = listening.join().unwrap();
    assert_ne!(client.end(LIMIT).code, Some(0));
    keys
}

/// perftest itself does: a peer without -x that has an IPv4 address sends from it.
#[test]
fn without_a_named_gid_a_configured_address_of_ipv4_is_sent_from() {
    let model = Model::serve();
    let own = model.folder().join("own.toml");
    let text = "[network]\naddresses = [\"fd00::1/64\", \"192.0.2.1/24\"]\n";
    std::fs::write(&own, text).unwrap();
    let config = ["--config", own.to_str().unwrap()];
    let keys = keys_of_client(&model, &config);
    assert!(keys.contains(":ff:ff:c0:00:02:01:"), "{keys}");
    let keys = keys_of_client(&model, &[]);
    assert!(keys.contains(":fe:80:00:"), "{keys}");
    // As `ringside info` counts: the address of IPv4 is the second one.
    for (index, part) in [("0", ":fe:80:00:"), ("1", ":ff:ff:0a:")] {
        let keys = keys_of_client(&model, &["-x", index]);
        assert!(keys.contains(part), "-x {index}: {keys}");
    }
}

#[test]
fn a_timeout_of_acknowledgements_may_be_named() {
    let model = Model::serve();
    let flags = "--perftest write lat -n 20 -u 16";
    let (server, place) = model.listen(&words(flags));
    model
        .connect(&place, &words(flags))
        .end(LIMIT)
        .with(0, "verified");
    server.end(LIMIT).with(0, "verified");
    let refused = model
        .connect("127.0.0.1:9", &words("write lat -u 13"))
        .end(LIMIT);
    refused.with(2, "-u 13: choose 14 to 18 (4.096 us x 2^N)");
}
