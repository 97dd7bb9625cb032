//! `--perftest` on both sides, and others that do not speak it. Debian's own programs are the other side in
//! `tests/guest`.

use crate::processes::{LIMIT, Model};
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
        1,
        "was done after 40 messages of 50; give both sides the same -n",
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
