//! The tables after the commands that DPDK's encoders gave: `tests/vectors/lan_data.json`, kinds
//! `rss_profile_commands` and `tcam_key`.
//!
//! Not run here: `switch_rule_commands` (recipes of a driver, which the model refuses: see
//! `docs/conformance.md`), `tunnel_commands` (the table of tunnel ports, which the model's parser
//! has none of), `constants` (choices of the harness that made the vectors).

use super::*;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../tests/vectors/lan_data.json");

/// The packet type groups that the harness gave to DPDK: vector `assumptions.package_tables`.
const GROUPS: [(u16, u8); 12] = [
    (22, 2),
    (23, 3),
    (24, 4),
    (26, 5),
    (27, 6),
    (28, 7),
    (88, 8),
    (89, 9),
    (90, 10),
    (92, 11),
    (93, 12),
    (94, 13),
];

/// The VSI of the vectors.
const VSI: u16 = 5;

fn vectors(kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("JSON");
    all.into_iter().filter(|one| one["kind"] == kind).collect()
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().expect("a text").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Carries out the commands of a vector that reach the tables: 0x0C42 writes sections, 0x0209 frees
/// rows of the match memory of the hash (resource 0x61).
fn carry_out(profiles: &mut Profiles, vector: &Value) {
    for command in vector["commands"].as_array().expect("commands") {
        let Some(opcode) = command["opcode"].as_u64() else {
            continue;
        };
        let buffer = bytes_of(&command["buffer"]);
        let half = |at: usize| u16::from_le_bytes([buffer[at], buffer[at + 1]]);
        match opcode {
            0x0C42 => {
                for index in 0..usize::from(half(0)) {
                    let kind = half(4 + 8 * index).into();
                    let (offset, size) = (half(8 + 8 * index), half(10 + 8 * index));
                    let end = usize::from(offset + size);
                    let section = &buffer[usize::from(offset)..end];
                    profiles.apply(kind, section).expect("a section");
                }
            }
            0x0209 if half(0) & 0xFF == 0x61 => {
                (0..usize::from(half(2))).for_each(|at| profiles.free_hash_row(half(4 + 2 * at)));
            }
            _ => {}
        }
    }
}

/// The words that the hash of such packets takes, in order.
fn words(profiles: &Profiles, packet_type: u16) -> Option<Vec<Word>> {
    let (_, words) = profiles.hash.profile(packet_type, VSI)?;
    let unused = (0xFF, 0x1FF);
    let mut used: Vec<_> = words
        .iter()
        .copied()
        .filter(|word| *word != unused)
        .collect();
    used.sort_unstable();
    Some(used)
}

fn addresses(packet_type: u16) -> Vec<Word> {
    match packet_type {
        packet_type::IPV6.. => (8..=38).step_by(2).map(|at| (40, at)).collect(),
        _ => (12..=18).step_by(2).map(|at| (32, at)).collect(),
    }
}

fn with_ports(packet_type: u16, protocol: u8) -> Vec<Word> {
    let mut all = addresses(packet_type);
    all.extend([(protocol, 0), (protocol, 2)]);
    all
}

#[test]
fn hashes_that_dpdk_sets_up_take_the_fields_that_it_means() {
    use packet_type::{
        IPV4, IPV4_ICMP, IPV4_SCTP, IPV4_TCP, IPV4_UDP, IPV6, IPV6_ICMP, IPV6_TCP, IPV6_UDP,
    };
    const TCP: u8 = 49;
    const UDP: u8 = 53;
    let mut profiles = Profiles::default();
    for (kind, group) in GROUPS {
        let [low, high] = kind.to_le_bytes();
        profiles.apply(42, &[1, 0, low, high, group]).unwrap();
    }
    let check = |profiles: &Profiles, packets: u16, expected: Option<Vec<Word>>, name: &str| {
        assert_eq!(
            words(profiles, packets),
            expected,
            "{name}: packets {packets}"
        );
    };
    let mut seen = 0;
    for vector in vectors("rss_profile_commands") {
        let name = vector["name"].as_str().expect("a name");
        carry_out(&mut profiles, &vector);
        let is = |packets, expected| check(&profiles, packets, Some(expected), name);
        match &name[..6] {
            "rss.01" => [IPV4, IPV4_UDP, IPV4_ICMP].map(|packets| is(packets, addresses(packets))),
            "rss.02" => [IPV6, IPV6_UDP, IPV6_ICMP].map(|packets| is(packets, addresses(packets))),
            "rss.03" => [
                is(IPV4_UDP, with_ports(IPV4_UDP, UDP)),
                is(IPV4_TCP, addresses(IPV4_TCP)),
                is(IPV4, addresses(IPV4)),
            ],
            "rss.04" => [
                is(IPV4_TCP, with_ports(IPV4_TCP, TCP)),
                is(IPV4_UDP, with_ports(IPV4_UDP, UDP)),
                is(IPV4_SCTP, addresses(IPV4_SCTP)),
            ],
            "rss.06" => [
                is(IPV6_UDP, with_ports(IPV6_UDP, UDP)),
                is(IPV6_TCP, with_ports(IPV6_TCP, TCP)),
                is(IPV6, addresses(IPV6)),
            ],
            "rss.08" => [
                is(IPV4_TCP, vec![(TCP, 0)]),
                is(IPV4_UDP, with_ports(IPV4_UDP, UDP)),
                is(IPV6_TCP, with_ports(IPV6_TCP, TCP)),
            ],
            "rss.15" => [
                check(&profiles, IPV6, None, name),
                is(IPV6_UDP, with_ports(IPV6_UDP, UDP)),
                is(IPV6_TCP, with_ports(IPV6_TCP, TCP)),
            ],
            "rss.16" => [IPV4, IPV4_UDP, IPV6_UDP].map(|kind| check(&profiles, kind, None, name)),
            _ => continue,
        };
        seen += 1;
    }
    assert_eq!(seen, 8);
    assert!(profiles.hash.rows.is_empty(), "rows are left");
}

#[test]
fn keys_that_dpdk_writes_match_what_they_were_made_of() {
    let mut seen = 0;
    for vector in vectors("tcam_key") {
        let five = |value: &Value| <[u8; 5]>::try_from(bytes_of(value)).expect("five bytes");
        let input = &vector["input"];
        let (value, ignored) = (five(&input["value"]), five(&input["dont_care"]));
        let (never, valid) = (five(&input["never_match"]), five(&input["valid_mask"]));
        if valid != [0xFF; 5] {
            // Bits beyond the mask keep what the memory had, which the vector does not tell.
            continue;
        }
        let bytes = bytes_of(&vector["bytes"]);
        let row = Row {
            key: bytes[..5].try_into().expect("five bytes"),
            inverse: bytes[5..].try_into().expect("five bytes"),
            profile: 0,
        };
        assert_eq!(row.fits(value), never == [0; 5], "{}", vector["name"]);
        for bit in 0..40 {
            let mut other = value;
            other[bit / 8] ^= 1 << (bit % 8);
            let is_ignored = ignored[bit / 8] >> (bit % 8) & 1 == 1;
            let fits = is_ignored && never == [0; 5];
            assert_eq!(row.fits(other), fits, "{} bit {bit}", vector["name"]);
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}
