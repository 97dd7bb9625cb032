use super::*;

const OWN: MacAddress = [2, 0, 0, 0, 0, 1];
const PEER: MacAddress = [2, 0, 0, 0, 0, 2];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Bytes of RFC 826's request as tcpdump shows one.
#[test]
fn an_arp_request_is_that_of_the_standard() {
    let frame = question(OWN, ip("192.0.2.1"), ip("192.0.2.2"), None).unwrap();
    let expected = [
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0,
        1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ];
    assert_eq!(frame, expected);
    assert_eq!(
        said(&frame).map(|said| said.how),
        Some(How::Question {
            target: ip("192.0.2.2")
        })
    );
}

#[test]
fn a_solicitation_goes_to_the_group_of_its_target_and_names_its_sender() {
    let (own, target) = (ip("fd00::1"), ip("fd00::aa:bbcc"));
    let frame = question(OWN, own, target, None).unwrap();
    assert_eq!(frame[..6], [0x33, 0x33, 0xFF, 0xAA, 0xBB, 0xCC]);
    let said = said(&frame).unwrap();
    assert_eq!((said.address, said.mac), (own, OWN));
    assert_eq!(said.how, How::Question { target });
}

#[test]
fn an_advertisement_is_an_answer_and_one_from_beyond_a_router_is_none() {
    let (own, peer) = (ip("fd00::2"), ip("fd00::1"));
    let mut frame = answer_of((own, PEER), peer, OWN).unwrap();
    let heard = said(&frame).unwrap();
    assert_eq!(
        (heard.address, heard.mac, heard.how),
        (own, PEER, How::Answer)
    );
    // Hop limit 254.
    frame[14 + 7] -= 1;
    assert_eq!(said(&frame), None);
    frame[14 + 7] += 1;
    // A wrong checksum.
    frame[14 + 40 + 2] ^= 1;
    assert_eq!(said(&frame), None);
}

#[test]
fn an_announcement_is_an_answer_and_a_probe_says_nothing() {
    for address in [ip("192.0.2.2"), ip("fd00::2")] {
        let frame = announcement(PEER, address).unwrap();
        let said = said(&frame).unwrap();
        let expected = (address, PEER, How::Answer);
        assert_eq!((said.address, said.mac, said.how), expected);
        assert_eq!(answer(&frame, OWN, |_| true), None);
    }
    let probe = question(PEER, ip("0.0.0.0"), ip("192.0.2.2"), None).unwrap();
    assert_eq!(said(&probe), None);
}

#[test]
fn arp_of_unknown_operations_and_of_addresses_that_no_host_has_says_nothing() {
    let mut frame = announcement(PEER, ip("192.0.2.2")).unwrap();
    frame[14 + 7] = 3;
    assert_eq!(said(&frame), None, "operation 3 is of RARP");
    for address in ["224.0.0.5", "255.255.255.255", "127.0.0.1"] {
        let frame = question(PEER, ip(address), ip("192.0.2.2"), None).unwrap();
        assert_eq!(said(&frame), None, "{address}");
    }
}

/// Each message of a station whose MAC address is that of a group.
#[test]
fn stations_with_the_address_of_a_group_say_nothing() {
    let group = [3, 0, 0, 0, 0, 2];
    let v4 = (ip("192.0.2.2"), ip("192.0.2.1"));
    let v6 = (ip("fd00::2"), ip("fd00::1"));
    for (own, target) in [v4, v6] {
        let frame = question(PEER, own, target, None).unwrap();
        assert!(said(&frame).is_some());
        let frame = question(group, own, target, None).unwrap();
        assert_eq!(said(&frame), None, "{own}");
    }
}

#[test]
fn a_known_station_alone_is_queried() {
    for (own, target) in [("192.0.2.1", "192.0.2.2"), ("fd00::1", "fd00::2")] {
        let frame = question(OWN, ip(own), ip(target), Some(PEER)).unwrap();
        assert_eq!((&frame[..6], &frame[6..12]), (&PEER[..], &OWN[..]));
    }
}

/// The option with the MAC address counts, not the frame's sender; without the flag "override"
/// it is a hint, also if it was solicited. An answer to a question for one station may leave the
/// option out, as those of BSD do. Source: RFC 4861, sections 4.4 and 7.2.5.
#[test]
fn an_advertisement_names_its_station_and_its_flags_decide() {
    let (IpAddr::V6(own), IpAddr::V6(peer)) = (ip("fd00::2"), ip("fd00::1")) else {
        unreachable!()
    };
    let proxy = [2, 0, 0, 0, 0, 7];
    let cases = [
        (NdiscNeighborFlags::OVERRIDE, How::Answer),
        (NdiscNeighborFlags::SOLICITED, How::Hint),
        (NdiscNeighborFlags::ROUTER, How::Hint),
        (NdiscNeighborFlags::empty(), How::Hint),
    ];
    for (flags, how) in cases {
        let without = flags.contains(NdiscNeighborFlags::SOLICITED);
        let without = without.then_some(How::Confirmation);
        for (lladdr, expected) in [(Some(PEER), Some(how)), (None, without)] {
            let message = NdiscRepr::NeighborAdvert {
                flags,
                target_addr: own,
                lladdr: lladdr.map(|mac| EthernetAddress(mac).into()),
            };
            let frame = discovery(proxy, own, (OWN, peer), message);
            let heard = said(&frame);
            assert_eq!(heard.map(|heard| heard.how), expected, "{flags:?}");
            assert!(heard.is_none_or(|heard| lladdr.is_none() || heard.mac == PEER));
        }
    }
}

/// Of each kind one query by a host, by a station of another network, and by one without
/// address.
#[test]
fn queries_for_an_own_address_are_answered_from_any_station() {
    let (own4, own6) = (ip("192.0.2.1"), ip("fd00::1"));
    let is_ours = |address| address == own4 || address == own6;
    for from in ["192.0.2.2", "198.51.100.9", "0.0.0.0"] {
        let query = question(PEER, ip(from), own4, None).unwrap();
        let reply = answer(&query, OWN, is_ours).expect(from);
        // Reply, our addresses, the sender's.
        let IpAddr::V4(from) = ip(from) else {
            unreachable!()
        };
        let expected = [
            &PEER[..],
            &OWN,
            &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2],
            &OWN,
            &[192, 0, 2, 1],
            &PEER,
            &from.octets(),
        ];
        assert_eq!(reply, expected.concat());
        assert_eq!(answer(&query, PEER, is_ours), None, "the own query");
        let other = question(PEER, from.into(), ip("192.0.2.3"), None).unwrap();
        assert_eq!(answer(&other, OWN, is_ours), None);
    }
    let query = question(PEER, ip("fd00::2"), own6, None).unwrap();
    let reply = answer(&query, OWN, is_ours).unwrap();
    // Type 136 with the flags solicited and override.
    assert_eq!((&reply[..6], reply[54], reply[58]), (&PEER[..], 136, 0x60));
    assert_eq!(said(&reply).unwrap().mac, OWN);
    // An announcement is no query.
    let announcement = question(PEER, own4, own4, None).unwrap();
    assert_eq!(answer(&announcement, OWN, is_ours), None);
}

/// A station looks whether an address is free: all hear that it is not. RFC 4861, section
/// 7.2.4.
#[test]
fn a_station_that_wants_an_own_address_is_told_in_front_of_all_nodes() {
    let IpAddr::V6(own) = ip("fd00::aa:1") else {
        unreachable!()
    };
    let group = solicited_node(own);
    let mac = multicast_mac(group.into()).unwrap();
    let probe = |to, lladdr: Option<MacAddress>| {
        let message = NdiscRepr::NeighborSolicit {
            target_addr: own,
            lladdr: lladdr.map(|mac| EthernetAddress(mac).into()),
        };
        discovery(PEER, Ipv6Addr::UNSPECIFIED, (mac, to), message)
    };
    let is_ours = |address| address == IpAddr::V6(own);
    let reply = answer(&probe(group, None), OWN, is_ours).unwrap();
    assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(reply[38..54], ALL_NODES.octets());
    // Override, not solicited.
    assert_eq!((reply[54], reply[58]), (136, 0x20));
    assert_eq!(said(&reply).unwrap().mac, OWN);
    // Neither to one station nor with a MAC address: RFC 4861, section 7.1.1.
    assert_eq!(answer(&probe(own, None), OWN, is_ours), None);
    assert_eq!(answer(&probe(group, Some(PEER)), OWN, is_ours), None);
    assert_eq!(answer(&probe(group, None), OWN, |_| false), None);
}

#[test]
fn frames_cut_short_say_nothing() {
    for frame in [
        question(OWN, ip("192.0.2.1"), ip("192.0.2.2"), None).unwrap(),
        question(OWN, ip("fd00::1"), ip("fd00::2"), None).unwrap(),
    ] {
        for length in 0..frame.len() {
            assert_eq!(said(&frame[..length]), None, "{length} bytes");
            assert_eq!(answer(&frame[..length], PEER, |_| true), None, "{length}");
        }
    }
}
