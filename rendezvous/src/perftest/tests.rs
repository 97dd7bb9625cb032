use super::*;
use rand::{Rng, SeedableRng};

fn keys() -> Keys {
    Keys {
        reads: 16,
        queue_pair: 0x123,
        start_psn: 0xAB_CDEF,
        remote_key: 0x8000_0001,
        address: 0x7F12_3456_7000,
        gid: "fe80::b2ee:ff:fe11:2233".parse().unwrap(),
    }
}

/// Written by hand from perftest's format `KEY_PRINT_FMT_GID`.
const TEXT: &str = "0000:0010:000123:abcdef:80000001:00007f1234567000:\
    fe:80:00:00:00:00:00:00:b2:ee:00:ff:fe:11:22:33:00000000:";

#[test]
fn keys_are_written_as_perftest_writes_them() {
    let bytes = keys().encode();
    assert_eq!(TEXT.len(), KEYS_BYTES - 1);
    assert_eq!(&bytes[..KEYS_BYTES - 1], TEXT.as_bytes());
    assert_eq!(bytes[KEYS_BYTES - 1], 0);
}

#[test]
fn keys_survive_the_way() {
    assert_eq!(Keys::decode(&keys().encode()), Ok(keys()));
    let mapped = Keys {
        gid: gid(IpAddr::from([10, 0, 0, 7])),
        ..keys()
    };
    let learnt = Keys::decode(&mapped.encode()).unwrap();
    assert_eq!(learnt.ip_address(), IpAddr::from([10, 0, 0, 7]));
}

#[test]
fn keys_that_make_no_sense_are_refused_with_what_came() {
    let with = |place: usize, change: &str| {
        let mut bytes = keys().encode();
        bytes[place..place + change.len()].copy_from_slice(change.as_bytes());
        bytes
    };
    for bytes in [
        [0; KEYS_BYTES],
        [0xFF; KEYS_BYTES],
        with(0, "zzzz"),
        with(10, "1000000"),
        with(50, "fff"),
        with(50, "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00"),
        with(20, "\0"),
    ] {
        let error = Keys::decode(&bytes).unwrap_err();
        assert!(matches!(error, RecordError::Nonsense { .. }), "{error}");
    }
}

#[test]
fn no_bytes_make_decoding_panic() {
    let mut random = rand::rngs::StdRng::seed_from_u64(3);
    for _ in 0..20_000 {
        let mut bytes = keys().encode();
        for _ in 0..random.random_range(1..8) {
            bytes[random.random_range(0..KEYS_BYTES)] = random.random();
        }
        if let Ok(keys) = Keys::decode(&bytes) {
            assert!(keys.queue_pair < 1 << 24 && keys.start_psn < 1 << 24);
        }
    }
}

#[test]
fn versions_that_speak_otherwise_are_refused() {
    assert_eq!(decode_version(&encode_version()), Ok("6.24".to_owned()));
    let of = |text: &str| {
        let mut bytes = [0; VERSION_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        decode_version(&bytes)
    };
    assert_eq!(of("5.70"), Ok("5.70".to_owned()));
    for text in ["5.69", "", "GET / HTTP/1.1", "nan", "-6.24", "inf", "1e9"] {
        let found = text.to_owned();
        assert_eq!(of(text), Err(RecordError::Version { found }));
    }
}

#[test]
fn path_mtus_are_the_digits_of_verbs() {
    for (bytes, digit) in [
        (256, b'1'),
        (512, b'2'),
        (1024, b'3'),
        (2048, b'4'),
        (4096, b'5'),
    ] {
        assert_eq!(encode_mtu(bytes), [digit, 0]);
        assert_eq!(decode_mtu(&[digit, 0]), Ok(bytes));
    }
    for wrong in [[b'0', 0], [b'6', 0], [b'3', b'3'], [0, 0]] {
        assert!(decode_mtu(&wrong).is_err());
    }
}

#[test]
fn lengths_are_bounded() {
    assert_eq!(decode_length(4096_u32.to_be_bytes()), Ok(4096));
    assert!(decode_length([0; 4]).is_err());
    assert!(decode_length([0xFF; 4]).is_err());
}

#[test]
fn reports_survive_the_way_and_nonsense_does_not() {
    let report = BandwidthReport {
        bytes: 65_536,
        iterations: 5000,
        peak: 11_700.5,
        average: 11_650.25,
        rate: 0.1864,
    };
    assert_eq!(BandwidthReport::decode(report.encode()), Ok(report));
    let mut numbers = report.encode();
    numbers[3] = f64::NAN.to_be_bytes();
    assert!(BandwidthReport::decode(numbers).is_err());
}
