use super::*;
use crate::cli::{Cli, Command};
use clap::Parser;

fn test() -> Test {
    Test {
        task: Task::Send,
        measure: Some(Measure::Bw),
        mtu: 1024,
        size: 0x0012_3456,
        amount: Amount::Messages(0x0102_0304_0506),
        queue_pairs: 17,
        rounds: 9,
        send_depth: 128,
        receive_depth: 512,
        inline: 101,
        by_manager: true,
    }
}

fn listening(flags: &str) -> Bench {
    let words = ["ringside", "bench", "--listen", "127.0.0.1"];
    let words = words.into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Bench(bench) => *bench,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_test_has_the_bytes_that_the_document_gives_it() {
    let bytes = Request::Test(test()).encode();
    let mut awaited = b"ringtest\x00\x01\x03\x02".to_vec();
    awaited.extend([0, 0, 4, 0]);
    awaited.extend([0, 0, 0, 0, 0, 0x12, 0x34, 0x56]);
    awaited.extend([0, 0, 1, 2, 3, 4, 5, 6]);
    awaited.extend([0; 8]);
    awaited.extend([0, 17, 0, 9]);
    awaited.extend([0, 0, 0, 128, 0, 0, 2, 0, 0, 0, 0, 101]);
    awaited.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes.to_vec(), awaited);
}

#[test]
fn what_is_asked_for_survives_the_way() {
    let by_time = Test {
        task: Task::Write,
        measure: Some(Measure::Lat),
        amount: Amount::Time(Duration::from_millis(1500)),
        ..test()
    };
    let verified = Test {
        task: Task::SendImmediate,
        measure: None,
        amount: Amount::Time(Duration::ZERO),
        size: MAX_MESSAGE,
        ..test()
    };
    for request in [
        Request::Test(test()),
        Request::Test(by_time),
        Request::Test(verified),
        Request::End,
    ] {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
}

#[test]
fn each_field_out_of_range_is_refused_by_name() {
    let good = Request::Test(test()).encode();
    let cases: [(usize, &[u8], &str); 10] = [
        (10, &[6], "operation 6"),
        (11, &[3], "measure 3"),
        (12, &[0, 0, 5, 220], "path MTU 1500"),
        (16, &[0, 0, 0, 0, 0, 0x80, 0, 1], "message bytes 8388609"),
        (24, &[0; 8], "messages 0"),
        (40, &[0, 65], "queue pairs 65"),
        (42, &[1, 0], "rounds of verification 256"),
        (44, &[0; 4], "sends in flight 0"),
        (48, &[0, 0, 8, 1], "receives posted 2049"),
        (52, &[0, 0, 0, 102], "inline bytes 102"),
    ];
    for (place, change, part) in cases {
        let mut bytes = good;
        bytes[place..place + change.len()].copy_from_slice(change);
        let error = Request::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    // The last byte of a write tells that it has arrived.
    let mut bytes = good;
    (bytes[10], bytes[11]) = (1, 1);
    bytes[16..24].fill(0);
    let error = Request::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("write latency test 0"), "{error}");
    let mut bytes = good;
    (bytes[10], bytes[11]) = (4, 1);
    assert!(
        Request::decode(&bytes).is_err(),
        "4 and 5 are verified only"
    );
}

#[test]
fn no_bytes_make_decoding_panic() {
    use rand::{Rng, SeedableRng};
    let seed = 5;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let good = Request::Test(test()).encode();
    for _ in 0..20_000 {
        let mut bytes = good;
        for _ in 0..random.random_range(1..6) {
            bytes[random.random_range(0..TEST_BYTES)] = random.random();
        }
        if let Ok(Request::Test(test)) = Request::decode(&bytes) {
            assert!(
                test.size <= MAX_MESSAGE && test.queue_pairs <= 64,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn something_else_and_another_version_are_told_apart() {
    let error = Request::decode(&[b'G'; TEST_BYTES]).unwrap_err();
    assert!(matches!(error, AgreementError::NotRingside { .. }));
    let mut bytes = Request::End.encode();
    bytes[9] = 2;
    assert_eq!(
        Request::decode(&bytes),
        Err(AgreementError::Version { found: 2 })
    );
    assert!(
        decode_answer(b"ringback\0\x01\0\0\0\0\x02\x01").is_err(),
        "text of 513 bytes"
    );
}

#[test]
fn answers_survive_the_way_and_long_reasons_are_cut() {
    for reason in [None, Some("for a reason"), Some(&*"ä".repeat(400))] {
        let bytes = encode_answer(reason);
        let (head, tail) = bytes.split_first_chunk().unwrap();
        assert_eq!(decode_answer(head), Ok((reason.is_none(), tail.len())));
        assert!(reason.unwrap_or("").starts_with(&text(tail)), "{tail:?}");
    }
}

#[test]
fn each_disagreement_names_both_values() {
    let all = "send bw -s 1193046 -n 1108152157446 -q 17 -t 128 -r 512 -I 101 -m 1024";
    for flags in ["", all] {
        assert_eq!(disagreement(&listening(flags), &test()), None, "{flags}");
    }
    for (flags, own, asked) in [
        ("read", "RDMA_Read", "Send"),
        ("send lat", "Latency", "BW"),
        ("-s 8", "8", "1193046"),
        ("-n 1000", "1000", "1108152157446"),
        ("-D 3", "3", "as long as 1108152157446 messages take"),
        ("-q 4", "4", "17"),
        ("-t 64", "64", "128"),
        ("-r 64", "64", "512"),
        ("-I 0", "0", "101"),
        ("-m 4096", "4096", "1024"),
    ] {
        let reason = disagreement(&listening(flags), &test()).unwrap();
        let both = format!("insists on {own}, the connecting side asks for {asked};");
        assert!(reason.contains(&both), "{reason}");
    }
    let small = Bench {
        largest_mtu: 512,
        ..listening("")
    };
    let reason = disagreement(&small, &test()).unwrap();
    assert!(
        reason.contains("room for 512 bytes, the connecting side asks for 1024;"),
        "{reason}"
    );
}
