//! Messages of multicast listener discovery.

use super::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::Icmpv6Repr;

const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const GROUP: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00, 1);
const NEAR: Ipv6Addr = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0x99);

#[test]
fn a_report_goes_to_the_routers_with_an_alert_and_its_checksum_is_sound() {
    for (membership, kind) in [
        (Membership::Joins, 4),
        (Membership::Leaves, 3),
        (Membership::Member, 2),
    ] {
        let frame = report(MAC, Ipv6Addr::UNSPECIFIED, membership, (GROUP, false)).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
        assert_eq!(frame[12..14], [0x86, 0xDD]);
        // Payload of 36 bytes, options of each hop, one hop.
        assert_eq!(frame[18..22], [0, 36, 0, 1]);
        assert_eq!(frame.len(), 54 + 36);
        assert_eq!(frame[54..62], OPTIONS);
        // One record: its type, and its group.
        assert_eq!((frame[69], frame[70]), (1, kind));
        assert_eq!(frame[74..90], GROUP.octets());
        let message = Icmpv6Packet::new_checked(&frame[62..]).unwrap();
        let checks = ChecksumCapabilities::default();
        let (own, to) = (Ipv6Addr::UNSPECIFIED, ROUTERS);
        Icmpv6Repr::parse(&own, &to, &message, &checks).expect("a sound checksum");
        assert!(is_report(&frame));
        assert_eq!(asked(&frame[14..]), None);
    }
}

#[test]
fn a_report_of_version_1_goes_to_its_group_and_a_departure_to_the_routers() {
    let to_group = [0x33, 0x33, 0xFF, 0, 0, 1];
    for (membership, kind, to, mac) in [
        (Membership::Joins, 131, GROUP, to_group),
        (Membership::Member, 131, GROUP, to_group),
        (
            Membership::Leaves,
            132,
            FIRST_VERSION_ROUTERS,
            [0x33, 0x33, 0, 0, 0, 2],
        ),
    ] {
        let frame = report(MAC, NEAR, membership, (GROUP, true)).unwrap();
        assert_eq!(frame[..6], mac);
        assert_eq!(frame[18..22], [0, 32, 0, 1]);
        assert_eq!(
            (frame[22..38].to_vec(), frame[38..54].to_vec()),
            (NEAR.octets().to_vec(), to.octets().to_vec())
        );
        assert_eq!(frame[54..62], OPTIONS);
        assert_eq!((frame[62], &frame[70..]), (kind, &GROUP.octets()[..]));
        let message = Icmpv6Packet::new_unchecked(&frame[62..]);
        assert!(message.verify_checksum(&NEAR, &to));
        assert!(!is_report(&frame), "not one of smoltcp's");
    }
}

/// The packet of a query with this code for the time, and this many bytes of message.
fn query(code: u16, message_bytes: usize) -> Vec<u8> {
    let frame = report(MAC, NEAR, Membership::Member, (GROUP, true)).unwrap();
    let mut packet = frame[14..].to_vec();
    packet.resize(48 + message_bytes, 0);
    packet[4..6].copy_from_slice(&(8 + message_bytes as u16).to_be_bytes());
    packet[48] = 130;
    packet[52..54].copy_from_slice(&code.to_be_bytes());
    sum(&mut packet);
    packet
}

/// Makes the checksum of the message sound.
fn sum(packet: &mut [u8]) {
    let (header, rest) = packet.split_at_mut(40);
    let header = Ipv6Packet::new_unchecked(&*header);
    let mut message = Icmpv6Packet::new_unchecked(&mut rest[8..]);
    message.fill_checksum(&header.src_addr(), &header.dst_addr());
}

#[test]
fn a_query_of_each_version_names_its_group_and_its_time() {
    // Codes from 0x8000 on have an exponent: 0x9ABC is (0x1000 + 0xABC) << 4.
    for (code, bytes, limit_ms, is_of_first_version) in [
        (10_000, 24, 10_000, true),
        (0x9ABC, 24, 0x9ABC, true),
        (10_000, 28, 10_000, false),
        (0x9ABC, 28, 0x1ABC0, false),
        (0xFFFF, 44, 0x1FFF << 10, false),
        (0, 28, 0, false),
    ] {
        let expected = Query {
            group: GROUP.into(),
            limit: Duration::from_millis(limit_ms),
            is_of_first_version,
        };
        assert_eq!(asked(&query(code, bytes)), Some(expected), "{code} {bytes}");
    }
}

#[test]
fn a_query_that_is_cut_damaged_or_from_elsewhere_is_none() {
    for bytes in [20, 25, 26, 27] {
        assert_eq!(asked(&query(1000, bytes)), None, "{bytes} bytes");
    }
    let whole = query(1000, 28);
    for length in 0..whole.len() {
        assert_eq!(asked(&whole[..length]), None, "{length} bytes");
    }
    let changed = |place: usize, value: u8| {
        let mut packet = whole.clone();
        packet[place] = value;
        sum(&mut packet);
        packet
    };
    assert_eq!(asked(&changed(48, 130)), asked(&whole));
    assert_eq!(asked(&changed(48, 131)), None, "a report");
    assert_eq!(asked(&changed(7, 2)), None, "two hops");
    assert_eq!(
        asked(&changed(8, 0x20)),
        None,
        "a source of another network"
    );
    assert_eq!(asked(&changed(42, 6)), None, "no alert");
    assert_eq!(
        asked(&changed(43, 200)),
        None,
        "an option beyond the header"
    );
    let mut damaged = whole.clone();
    damaged[60] ^= 1;
    assert_eq!(asked(&damaged), None, "a wrong checksum");
}

#[test]
fn the_alert_may_stand_behind_other_options() {
    assert!(has_alert(&[5, 2, 0, 0]));
    assert!(has_alert(&[0, 0, 5, 2, 0, 0]));
    assert!(has_alert(&[1, 1, 0, 7, 0, 5, 2, 0, 0]));
    for without in [&[][..], &[0, 0], &[5], &[5, 2, 0], &[1, 4, 5, 2, 0, 0]] {
        assert!(!has_alert(without), "{without:?}");
    }
}

#[test]
fn only_reports_of_version_2_are_named_such() {
    let whole = report(MAC, NEAR, Membership::Joins, (GROUP, false)).unwrap();
    for length in 0..=62 {
        assert!(!is_report(&whole[..length]), "{length} bytes");
    }
    // Another ethertype, another header behind that of IPv6, other options, a query.
    for place in [13, 20, 54, 62] {
        let mut frame = whole.clone();
        frame[place] ^= 1;
        assert!(!is_report(&frame), "byte {place}");
    }
}
