//! Multicast groups: reports of the own ones, and packets to groups and to all stations.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ipv4, question, sent};
use ringside_pmd::lan::PortSettings;
use ringside_pmd::rdma::address::link_local;
use ringside_stack::Stack;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol,
    Ipv6Packet, Ipv6Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Types of records: RFC 3810, section 5.2.12.
const IS_MEMBER: u8 = 2;
const LEAVES: u8 = 3;
const JOINS: u8 = 4;

fn promiscuous() -> PortSettings {
    PortSettings {
        promiscuous: true,
        ..settings()
    }
}

/// The records of reports of groups among these frames without a tag: type and group.
fn records(frames: &[Vec<u8>]) -> BTreeSet<(u8, Ipv6Addr)> {
    // Options of each hop in front of ICMPv6 message 143, each record without sources.
    let is_report = |frame: &&Vec<u8>| {
        frame[12..14] == [0x86, 0xDD] && frame[20] == 0 && frame[54] == 58 && frame[62] == 143
    };
    let records = frames.iter().filter(is_report).flat_map(|frame| {
        let count = usize::from(frame[69]);
        frame[70..].chunks_exact(20).take(count)
    });
    let group = |record: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(&record[4..]).unwrap());
    records.map(|record| (record[0], group(record))).collect()
}

/// Records of this type of the groups of these addresses.
fn expected(kind: u8, addresses: &[Ipv6Addr]) -> BTreeSet<(u8, Ipv6Addr)> {
    let group = |address: &Ipv6Addr| {
        let [.., a, b, c] = address.octets();
        let low = u16::from_be_bytes([b, c]);
        Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | u16::from(a), low)
    };
    addresses.iter().map(|one| (kind, group(one))).collect()
}

fn four(octets: [u8; 4]) -> IpAddress {
    IpAddress::from(Ipv4Addr::from(octets))
}

fn six(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

#[test]
fn groups_of_solicitations_are_joined_and_left_in_words_of_the_standard() {
    let bed = Bed::new();
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let (near, mut stack) = bed.stack(0, &config(&["2001:db8::1:7/64", "fd00::9/64@5"]));
    let narrow = link_local(stack.port().mac());
    let untag = |frame: Vec<u8>| match frame[12..16] == [0x81, 0, 0, 5] {
        true => [&frame[..12], &frame[16..]].concat(),
        false => frame,
    };
    let reported = |stack: &mut Stack, far: &mut Raw| {
        let frames = sent(&bed, stack, far, 100);
        records(&frames.into_iter().map(untag).collect::<Vec<_>>())
    };
    let all = [six("2001:db8::1:7"), six("fd00::9"), narrow];
    assert_eq!(reported(&mut stack, &mut far), expected(JOINS, &all));
    stack.remove_address(all[0].into(), None).unwrap();
    assert_eq!(reported(&mut stack, &mut far), expected(LEAVES, &all[..1]));
    // As for a link that came up: its switch has heard nothing.
    stack.announce_again(bed.world.clock().now());
    assert_eq!(reported(&mut stack, &mut far), expected(JOINS, &all[1..]));
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// The queries of routers do not come to the queue of a stack beside others.
#[test]
fn a_stack_beside_other_queues_reports_its_groups_each_minute() {
    let bed = Bed::new();
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let own = config(&["2001:db8::1:7/64"]);
    let (near, mut stack, others) = bed.stack_beside(0, &own, (4, 2));
    let all = [six("2001:db8::1:7"), link_local(stack.port().mac())];
    sent(&bed, &mut stack, &mut far, 100);
    for _ in 0..2 {
        for _ in 0..51 {
            bed.world.clock().pause(Duration::from_secs(1));
            let frames = sent(&bed, &mut stack, &mut far, 1);
            let kinds: BTreeSet<u8> = records(&frames).into_iter().map(|one| one.0).collect();
            assert!(!kinds.contains(&IS_MEMBER), "too early");
        }
        let mut heard = BTreeSet::new();
        for _ in 0..10 {
            bed.world.clock().pause(Duration::from_secs(1));
            heard.extend(records(&sent(&bed, &mut stack, &mut far, 10)));
        }
        assert_eq!(heard, expected(IS_MEMBER, &all));
    }
    drop((stack, others));
    bed.finish([near, far.into_device()]);
}

/// A request for a connection, as bytes with a checksum for these addresses.
fn request(own: IpAddress, to: IpAddress) -> Vec<u8> {
    let segment = TcpRepr {
        src_port: 1000,
        dst_port: 7000,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber(1),
        ack_number: None,
        window_len: 1000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None, None, None],
        timestamp: None,
        payload: &[],
    };
    let mut bytes = vec![0; segment.buffer_len()];
    let mut place = TcpPacket::new_unchecked(&mut bytes[..]);
    segment.emit(&mut place, &own, &to, &ChecksumCapabilities::default());
    bytes
}

/// A datagram, as bytes with a checksum for these addresses.
fn datagram(own: IpAddress, to: IpAddress) -> Vec<u8> {
    let header = UdpRepr {
        src_port: 1000,
        dst_port: 7000,
    };
    let mut bytes = vec![0; 8 + 4];
    let mut place = UdpPacket::new_unchecked(&mut bytes[..]);
    let checks = ChecksumCapabilities::default();
    header.emit(&mut place, &own, &to, 4, |bytes| bytes.fill(7), &checks);
    bytes
}

fn ipv6(
    (to_mac, from_mac): ([u8; 6], [u8; 6]),
    protocol: IpProtocol,
    (own, to): (Ipv6Addr, Ipv6Addr),
    payload: &[u8],
) -> Vec<u8> {
    let header = EthernetRepr {
        src_addr: EthernetAddress(from_mac),
        dst_addr: EthernetAddress(to_mac),
        ethertype: EthernetProtocol::Ipv6,
    };
    let packet = Ipv6Repr {
        src_addr: own,
        dst_addr: to,
        next_header: protocol,
        payload_len: payload.len(),
        hop_limit: 64,
    };
    let mut frame = vec![0; 54];
    header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..14]));
    packet.emit(&mut Ipv6Packet::new_unchecked(&mut frame[14..]));
    frame.extend(payload);
    frame
}

/// Each station of the network would answer.
#[test]
fn segments_and_datagrams_to_groups_and_to_all_stations_have_no_answer() {
    let bed = Bed::new();
    let own = config(&["192.0.2.1/24", "2001:db8::1/64"]);
    let (near, mut stack) = bed.stack(0, &own);
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let (to, from) = (stack.port().mac(), far.port.mac());
    let peer = [192, 0, 2, 7];
    far.send(&question(from, peer, [192, 0, 2, 1]));
    sent(&bed, &mut stack, &mut far, 100);
    let mut answers = |stack: &mut Stack, frame: &[u8]| {
        far.send(frame);
        sent(&bed, stack, &mut far, 50)
    };
    let all = [0xFF; 6];
    let destinations = [
        ([255, 255, 255, 255], all),
        ([192, 0, 2, 255], all),
        ([192, 0, 2, 255], to),
        ([192, 0, 2, 1], all),
    ];
    for (destination, mac) in destinations {
        let ends = (four(peer), four(destination));
        for (protocol, payload) in [(6, request(ends.0, ends.1)), (17, datagram(ends.0, ends.1))] {
            let frame = ipv4((mac, from), protocol, (peer, destination), &payload);
            let heard = answers(&mut stack, &frame);
            assert!(heard.is_empty(), "{destination:?} {protocol}: {heard:x?}");
        }
    }
    let (peer, nodes) = (six("2001:db8::7"), six("ff02::1"));
    let nodes_mac = [0x33, 0x33, 0, 0, 0, 1];
    let ends = (IpAddress::from(peer), IpAddress::from(nodes));
    for (protocol, payload) in [
        (IpProtocol::Tcp, request(ends.0, ends.1)),
        (IpProtocol::Udp, datagram(ends.0, ends.1)),
        (IpProtocol::Unknown(99), vec![0; 8]),
    ] {
        let frame = ipv6((nodes_mac, from), protocol, (peer, nodes), &payload);
        let heard = answers(&mut stack, &frame);
        assert!(heard.is_empty(), "{protocol}: {heard:x?}");
    }
    // The same to this station alone have one.
    let (peer, own) = ([192, 0, 2, 7], [192, 0, 2, 1]);
    let ends = (four(peer), four(own));
    for (protocol, payload) in [(6, request(ends.0, ends.1)), (17, datagram(ends.0, ends.1))] {
        let frame = ipv4((to, from), protocol, (peer, own), &payload);
        assert_eq!(answers(&mut stack, &frame).len(), 1, "{protocol}");
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}
