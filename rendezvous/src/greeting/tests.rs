use super::*;
use rand::{Rng, SeedableRng};

fn greeting(address: IpAddr) -> Greeting {
    Greeting {
        endpoint: Endpoint {
            queue_pair: 17,
            start_psn: 0xABCDEF,
            address,
            mac: [2, 0, 0, 0, 0, 1],
            path_mtu: 1024,
        },
        regions: vec![RemoteRegion {
            address: 0x1_0000_0000,
            key: 0x1234_5678,
            length_bytes: 4096,
        }],
    }
}

#[test]
fn a_greeting_comes_back_as_it_was_in_both_families() {
    for address in ["10.0.0.1", "fe80::1"] {
        let before = greeting(address.parse().unwrap());
        let bytes = before.encode().unwrap();
        assert_eq!(Greeting::read(&mut &bytes[..], 0).unwrap(), before);
    }
}

#[test]
fn a_short_greeting_is_an_error_at_every_length() {
    let bytes = greeting("10.0.0.1".parse().unwrap()).encode().unwrap();
    for length in 0..bytes.len() {
        assert!(
            Greeting::read(&mut &bytes[..length], 0).is_err(),
            "{length} bytes"
        );
    }
}

#[test]
fn garbage_is_refused_without_panic() {
    let seed = 7;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let good = greeting("fe80::1".parse().unwrap()).encode().unwrap();
    for _ in 0..2000 {
        let mut bytes = good.clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        if let Ok(read) = Greeting::read(&mut &bytes[..], 0) {
            assert!(read.endpoint.check().is_ok(), "seed {seed}");
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = greeting("10.0.0.1".parse().unwrap()).encode().unwrap();
    bytes[9] = 9;
    let error = Greeting::read(&mut &bytes[..], 0).unwrap_err();
    assert!(
        matches!(error, GreetingError::Version { found: 9, .. }),
        "{error}"
    );
}

#[test]
fn more_regions_than_allowed_are_not_read() {
    let mut bytes = greeting("10.0.0.1".parse().unwrap()).encode().unwrap();
    bytes[10..12].copy_from_slice(&u16::MAX.to_be_bytes());
    let error = Greeting::read(&mut &bytes[..], 0).unwrap_err();
    assert!(matches!(error, GreetingError::Malformed { .. }), "{error}");
}
