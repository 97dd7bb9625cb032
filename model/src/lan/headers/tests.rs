//! Frames written by another hand (etherparse), and damage.

use super::*;
use etherparse::PacketBuilder;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2(HERE, THERE).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
}

fn v6() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let (from, to) = ([0xFD; 16], [0xFC; 16]);
    PacketBuilder::ethernet2(HERE, THERE).ipv6(from, to, 64)
}

macro_rules! written {
    ($builder:expr, $payload:expr) => {{
        let mut bytes = Vec::new();
        $builder.write(&mut bytes, $payload).unwrap();
        bytes
    }};
}

const GOOD: Checks = Checks {
    looked_at: true,
    ip_wrong: false,
    layer_4_wrong: false,
};

#[test]
fn types_and_checksums_of_sound_packets_are_found() {
    let payload = &[7; 101];
    let cases = [
        (
            written!(v4().tcp(1, 2, 3, 4), payload),
            packet_type::IPV4_TCP,
        ),
        (written!(v4().udp(1, 2), payload), packet_type::IPV4_UDP),
        (
            written!(v4().icmpv4_echo_request(1, 2), payload),
            packet_type::IPV4_ICMP,
        ),
        (
            written!(v6().tcp(1, 2, 3, 4), payload),
            packet_type::IPV6_TCP,
        ),
        (written!(v6().udp(1, 2), payload), packet_type::IPV6_UDP),
        (
            written!(v6().icmpv6_echo_request(1, 2), payload),
            packet_type::IPV6_ICMP,
        ),
    ];
    for (mut frame, wanted) in cases {
        let parsed = parse(&frame).unwrap();
        assert_eq!((parsed.packet_type, parsed.checks), (wanted, GOOD));
        // the padding of a short frame is no part of the packet
        frame.extend([0xEE; 9]);
        assert_eq!(parse(&frame), Some(parsed));
    }
}

#[test]
fn every_changed_byte_of_a_packet_is_noticed() {
    for (mut frame, ip_bytes) in [
        (written!(v4().tcp(1, 2, 3, 4), &[7; 10]), 20),
        (written!(v6().udp(1, 2), &[7; 10]), 0),
    ] {
        for at in 14..frame.len() {
            frame[at] ^= 0x10;
            let parsed = parse(&frame).unwrap();
            frame[at] ^= 0x10;
            let checks = parsed.checks;
            // Traffic class, flow label and hop limit are under no checksum, and lengths and
            // protocols make another packet of it.
            let is_covered = at >= 14 + 40 || (ip_bytes == 20 && at > 14);
            let noticed = checks.ip_wrong || checks.layer_4_wrong || !checks.looked_at;
            assert!(noticed || !is_covered, "byte {at}: {parsed:?}");
        }
    }
}

#[test]
fn datagrams_without_checksum_are_good_over_ipv4_and_bad_over_ipv6() {
    let mut frame = written!(v4().udp(1, 2), &[1, 2, 3]);
    frame[14 + 20 + 6..][..2].fill(0);
    assert_eq!(parse(&frame).unwrap().checks, GOOD);
    let mut frame = written!(v6().udp(1, 2), &[1, 2, 3]);
    frame[14 + 40 + 6..][..2].fill(0);
    assert!(parse(&frame).unwrap().checks.layer_4_wrong);
}

#[test]
fn tags_are_seen_and_looked_through() {
    let inside = written!(v4().udp(1, 2), &[1; 30]);
    for tags in [vec![(0x8100u16, 5u16)], vec![(0x88A8, 0x2007), (0x8100, 9)]] {
        let mut frame = inside[..12].to_vec();
        for (kind, value) in &tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(value.to_be_bytes());
        }
        frame.extend(&inside[12..]);
        let parsed = parse(&frame).unwrap();
        assert_eq!(parsed.tag, tags.first().copied());
        assert_eq!(
            (parsed.packet_type, parsed.checks),
            (packet_type::IPV4_UDP, GOOD)
        );
    }
}

#[test]
fn fragments_and_extensions_have_their_types_and_no_ports() {
    let mut frame = written!(v4().udp(1, 2), &[1; 30]);
    frame[20] |= 0x20;
    let parsed = parse(&frame).unwrap();
    assert_eq!(parsed.packet_type, packet_type::IPV4_FRAGMENT);
    assert_eq!(parsed.flow.unwrap().bytes().len(), 8);
    assert!(!parsed.checks.layer_4_wrong);

    let plain = written!(v6().udp(1, 2), &[1; 30]);
    for (next, extension, kind, seen) in [
        (
            0u8,
            [17u8, 0, 5, 2, 0, 0, 0, 0],
            packet_type::IPV6_UDP,
            false,
        ),
        (60, [17, 0, 1, 4, 0, 0, 0, 0], packet_type::IPV6_UDP, true),
        (
            44,
            [17, 0, 0, 1, 0, 0, 0, 9],
            packet_type::IPV6_FRAGMENT,
            false,
        ),
    ] {
        let mut frame = plain[..54].to_vec();
        frame.extend(extension);
        frame.extend(&plain[54..]);
        frame[20] = next;
        let length = (plain.len() - 54 + 8) as u16;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        let parsed = parse(&frame).unwrap();
        assert_eq!((parsed.packet_type, parsed.ipv6_extension), (kind, seen));
        assert_eq!(parsed.checks, GOOD, "extension {next}");
    }
}

#[test]
fn other_protocols_have_their_types_and_are_not_hashed() {
    for (kind, wanted) in [
        (0x0806u16, packet_type::ARP),
        (0x88CC, packet_type::LLDP),
        (0x88F7, packet_type::TIME_SYNC),
        (0x1234, packet_type::LAYER_2),
    ] {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        let parsed = parse(&frame).unwrap();
        assert_eq!((parsed.packet_type, parsed.flow), (wanted, None));
        assert_eq!(parsed.checks, Checks::default());
    }
}

#[test]
fn any_bytes_are_parsed_without_panic() {
    let seed = 0x1A4;
    let mut random = SmallRng::seed_from_u64(seed);
    let sound = [
        written!(v4().tcp(1, 2, 3, 4), &[7; 40]),
        written!(v6().udp(1, 2), &[7; 40]),
    ];
    for round in 0..20_000 {
        let mut frame = sound[round % 2].clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(12..frame.len());
            frame[at] = random.random();
        }
        frame.truncate(random.random_range(0..=frame.len()));
        let parsed = parse(&frame);
        assert!(frame.len() >= 14 || parsed.is_none(), "seed {seed:#x}");
    }
}
