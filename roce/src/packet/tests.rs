use std::net::{Ipv4Addr, Ipv6Addr};

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;

fn path(v6: bool, vlan: Option<u16>, udp_checksum: UdpChecksum) -> Path {
    let network = if v6 {
        Network::V6(Ipv6 {
            source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe00, 1),
            destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe00, 2),
            traffic_class: 0x6A,
            flow_label: 0x5_4321,
            hop_limit: 63,
        })
    } else {
        Network::V4(Ipv4 {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            type_of_service: 0x6A,
            time_to_live: 63,
            identification: 0xBEEF,
            do_not_fragment: true,
        })
    };
    Path {
        destination: MacAddress([0x52, 0x54, 0, 0, 0, 1]),
        source: MacAddress([0x52, 0x54, 0, 0, 0, 2]),
        vlan,
        network,
        source_port: 0xC123,
        udp_checksum,
    }
}

fn extension(kind: ExtensionKind, rng: &mut SmallRng) -> Extension {
    let remote = RemoteBuffer {
        address: rng.random(),
        key: rng.random(),
        length_bytes: rng.random(),
    };
    let answer = Acknowledgement {
        syndrome: Syndrome::from_byte(rng.random()),
        message_sequence_number: rng.random_range(0..1 << 24),
    };
    let datagram = Datagram {
        queue_key: rng.random(),
        source_qp: QpNumber::new(rng.random()),
    };
    match kind {
        ExtensionKind::None => Extension::None,
        ExtensionKind::Immediate => Extension::Immediate(rng.random()),
        ExtensionKind::Invalidate => Extension::Invalidate(rng.random()),
        ExtensionKind::Remote => Extension::Remote(remote),
        ExtensionKind::RemoteImmediate => Extension::RemoteImmediate(remote, rng.random()),
        ExtensionKind::Acknowledge => Extension::Acknowledge(answer),
        ExtensionKind::AtomicAcknowledge => Extension::AtomicAcknowledge(answer, rng.random()),
        ExtensionKind::Atomic => Extension::Atomic(AtomicRequest {
            address: rng.random(),
            key: rng.random(),
            swap_or_add: rng.random(),
            compare: rng.random(),
        }),
        ExtensionKind::Datagram => Extension::Datagram(datagram),
        ExtensionKind::DatagramImmediate => Extension::DatagramImmediate(datagram, rng.random()),
        ExtensionKind::CongestionNotification => Extension::CongestionNotification(rng.random()),
    }
}

fn headers(opcode: Opcode, rng: &mut SmallRng) -> TransportHeaders {
    TransportHeaders {
        opcode,
        solicited: rng.random(),
        migrated: rng.random(),
        partition_key: rng.random(),
        forward_congestion: rng.random(),
        backward_congestion: rng.random(),
        destination_qp: QpNumber::new(rng.random()),
        acknowledge_request: rng.random(),
        psn: Psn::new(rng.random()),
        extension: extension(opcode.extension_kind(), rng),
    }
}

/// Every opcode on every kind of path, with its frame and payload.
fn samples() -> Vec<(Packet, Vec<u8>, Vec<u8>)> {
    let mut rng = SmallRng::seed_from_u64(0xC0DE);
    let mut samples = Vec::new();
    for opcode in Opcode::KNOWN
        .iter()
        .copied()
        .chain([Opcode(0x15), Opcode(0xFF)])
    {
        for kind in 0..8 {
            let vlan = (kind & 1 != 0).then_some(0xA00C);
            let checksum = if kind & 2 != 0 {
                UdpChecksum::Computed
            } else {
                UdpChecksum::Absent
            };
            let path = path(kind & 4 != 0, vlan, checksum);
            let packet = Packet {
                path,
                transport: headers(opcode, &mut rng),
            };
            let mut payload = vec![0; rng.random_range(0..300)];
            rng.fill_bytes(&mut payload);
            let mut frame = Vec::new();
            emit(&packet, &payload, &mut frame).expect("a packet that fits");
            samples.push((packet, frame, payload));
        }
    }
    samples
}

/// CRC-32 one bit at a time, over the covered bytes built one field at a time. Shares nothing
/// with the engine's.
fn bitwise_invariant_crc(datagram: &[u8]) -> u32 {
    let v6 = datagram[0] & 0xF0 == 0x60;
    let ip = if v6 { 40 } else { 20 };
    let variable: &[usize] = if v6 { &[1, 2, 3, 7] } else { &[1, 8, 10, 11] };
    let mut crc = 0xFFFF_FFFFu32;
    let covered = datagram.iter().enumerate().map(|(index, byte)| {
        let high_of_class = if v6 && index == 0 { 0x0F } else { 0 };
        let whole = variable.contains(&index) || [ip + 6, ip + 7, ip + 12].contains(&index);
        if whole { 0xFF } else { byte | high_of_class }
    });
    for byte in std::iter::repeat_n(0xFF, 8).chain(covered) {
        for bit in 0..8 {
            let feedback = (crc ^ u32::from(byte >> bit)) & 1;
            crc >>= 1;
            if feedback == 1 {
                crc ^= 0xEDB8_8320;
            }
        }
    }
    !crc
}

#[test]
fn every_opcode_on_every_path_reads_back_as_it_was_written() {
    for (packet, frame, payload) in samples() {
        let (read, range) = parse(&frame).unwrap_or_else(|error| panic!("{packet:?}: {error}"));
        assert_eq!(read, packet);
        assert_eq!(frame[range], payload);
    }
}

#[test]
fn the_invariant_crc_agrees_with_one_computed_bit_by_bit() {
    for (packet, frame, _) in samples() {
        let ip = if packet.path.vlan.is_some() { 18 } else { 14 };
        let (covered, trailer) = frame.split_at(frame.len() - INVARIANT_CRC_LENGTH);
        let expected = bitwise_invariant_crc(&covered[ip..]);
        assert_eq!(trailer, expected.to_le_bytes(), "{packet:?}");
    }
}

#[test]
fn fields_that_routers_change_leave_the_invariant_crc_alone_and_others_do_not() {
    let (packet, frame, _) = samples().swap_remove(0);
    assert!(matches!(packet.path.network, Network::V4(_)));
    let crc = invariant_crc(&frame[14..frame.len() - 4]);
    for offset in 0..frame.len() - 4 - 14 {
        let mut changed = frame[14..frame.len() - 4].to_vec();
        changed[offset] ^= 0x08;
        let free = [1, 8, 10, 11, 26, 27, 32].contains(&offset);
        assert_eq!(invariant_crc(&changed) == crc, free, "byte {offset}");
    }
}

#[test]
fn etherparse_reads_the_same_headers() {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    for (packet, frame, _) in samples() {
        let sliced = SlicedPacket::from_ethernet(&frame).expect("a frame for etherparse");
        let vlan = sliced.vlan().map(|tag| match tag {
            etherparse::VlanSlice::SingleVlan(tag) => {
                u16::from(tag.priority_code_point().value()) << 13
                    | u16::from(tag.drop_eligible_indicator()) << 12
                    | tag.vlan_identifier().value()
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(vlan, packet.path.vlan);
        match (sliced.net.as_ref(), packet.path.network) {
            (Some(NetSlice::Ipv4(slice)), Network::V4(ip)) => {
                let header = slice.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
                assert_eq!(header.source, ip.source.octets());
                assert_eq!(header.destination, ip.destination.octets());
                assert_eq!(header.identification, ip.identification);
                assert_eq!(header.time_to_live, ip.time_to_live);
                assert!(header.dont_fragment && !header.more_fragments);
                let class = header.dscp.value() << 2 | header.ecn.value();
                assert_eq!(class, ip.type_of_service);
            }
            (Some(NetSlice::Ipv6(slice)), Network::V6(ip)) => {
                let header = slice.header().to_header();
                assert_eq!(header.source, ip.source.octets());
                assert_eq!(header.destination, ip.destination.octets());
                assert_eq!(header.traffic_class, ip.traffic_class);
                assert_eq!(header.flow_label.value(), ip.flow_label);
                assert_eq!(header.hop_limit, ip.hop_limit);
            }
            other => panic!("{other:?}"),
        }
        let Some(TransportSlice::Udp(udp)) = sliced.transport else {
            panic!("not UDP")
        };
        assert_eq!(udp.source_port(), packet.path.source_port);
        assert_eq!(udp.destination_port(), 4791);
        assert_eq!(usize::from(udp.length()), udp.slice().len());
        let checksum = match packet.path.network {
            Network::V4(ip) => udp.to_header().calc_checksum_ipv4_raw(
                ip.source.octets(),
                ip.destination.octets(),
                udp.payload(),
            ),
            Network::V6(ip) => udp.to_header().calc_checksum_ipv6_raw(
                ip.source.octets(),
                ip.destination.octets(),
                udp.payload(),
            ),
        };
        match packet.path.udp_checksum {
            UdpChecksum::Absent => assert_eq!(udp.checksum(), 0),
            UdpChecksum::Computed => assert_eq!(Ok(udp.checksum()), checksum),
        }
    }
}

#[test]
fn a_frame_cut_anywhere_is_refused_and_never_panics() {
    for (packet, frame, _) in samples() {
        for length in 0..frame.len() {
            assert!(
                parse(&frame[..length]).is_err(),
                "{packet:?} cut to {length}"
            );
        }
    }
}

#[test]
fn padding_after_the_datagram_is_ignored() {
    for (packet, mut frame, payload) in samples() {
        frame.extend_from_slice(&[0x5A; 7]);
        let (read, range) = parse(&frame).expect("padding is no part of the packet");
        assert_eq!((read, &frame[range]), (packet, payload.as_slice()));
    }
}

#[test]
fn a_flipped_bit_is_refused_or_lies_outside_what_checksums_cover() {
    for (packet, frame, _) in samples().iter().step_by(5) {
        for index in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[index] ^= 0x10;
            if let Ok((read, _)) = parse(&damaged) {
                let same_transport = TransportHeaders {
                    forward_congestion: packet.transport.forward_congestion,
                    backward_congestion: packet.transport.backward_congestion,
                    ..read.transport
                };
                assert_eq!(same_transport, packet.transport, "byte {index}");
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let seed = 0x5EED;
    let mut rng = SmallRng::seed_from_u64(seed);
    let originals = samples();
    for round in 0..60_000usize {
        let mut frame = originals[round % originals.len()].1.clone();
        for _ in 0..rng.random_range(1..6) {
            let index = rng.random_range(0..frame.len());
            frame[index] = rng.random();
        }
        frame.truncate(rng.random_range(0..frame.len() + 1));
        if let Ok((packet, range)) = parse(&frame) {
            let mut rebuilt = Vec::new();
            emit(&packet, &frame[range], &mut rebuilt).expect("what was read can be written");
        }
        rng.fill_bytes(&mut frame);
        assert!(
            parse(&frame).is_err(),
            "seed {seed}: random bytes passed a 32-bit CRC"
        );
        let _ = invariant_crc(&frame);
    }
}

#[test]
fn frames_of_other_protocols_are_told_apart() {
    let base = |kind: usize| samples().swap_remove(kind).1;
    let mut arp = base(0);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(parse(&arp), Err(ParseError::NotIp { ether_type: 0x0806 }));
    let mut options = base(0);
    options[14] = 0x46;
    assert_eq!(
        parse(&options),
        Err(ParseError::Ipv4Options { header_bytes: 24 })
    );
    let mut short = base(0);
    short[14] = 0x44;
    assert_eq!(
        parse(&short),
        Err(ParseError::BadIpHeader { first_byte: 0x44 })
    );
    let mut six_in_four = base(0);
    six_in_four[14] = 0x65;
    assert_eq!(
        parse(&six_in_four),
        Err(ParseError::BadIpHeader { first_byte: 0x65 })
    );
    let mut checksum = base(0);
    checksum[24] ^= 1;
    assert!(matches!(
        parse(&checksum),
        Err(ParseError::BadIpv4Checksum { .. })
    ));
    let mut port = base(0);
    port[36..38].copy_from_slice(&4790u16.to_be_bytes());
    assert_eq!(parse(&port), Err(ParseError::NotRoce { port: 4790 }));
    let mut tcp = base(4);
    tcp[20] = 6;
    assert_eq!(parse(&tcp), Err(ParseError::NotUdp { protocol: 6 }));
    let mut version = base(0);
    version[43] |= 0x01;
    assert_eq!(
        parse(&version),
        Err(ParseError::BadTransportVersion { version: 1 })
    );
    let mut crc = base(0);
    *crc.last_mut().expect("a byte") ^= 1;
    assert!(matches!(
        parse(&crc),
        Err(ParseError::BadInvariantCrc { .. })
    ));
    let mut udp = base(2);
    udp[34] ^= 1;
    assert!(matches!(
        parse(&udp),
        Err(ParseError::BadUdpChecksum { .. })
    ));
}

/// RFC 8200 asks for a checksum, and soft-RoCE sends 0: both are taken, and neither is damage.
#[test]
fn a_udp_checksum_over_ipv6_is_zero_or_right() {
    let mut rng = SmallRng::seed_from_u64(1);
    let transport = headers(Opcode::SEND_ONLY, &mut rng);
    for udp_checksum in [UdpChecksum::Absent, UdpChecksum::Computed] {
        let path = path(true, None, udp_checksum);
        let packet = Packet { path, transport };
        let mut frame = Vec::new();
        emit(&packet, &[7; 12], &mut frame).expect("fits");
        let at = 14 + 40 + 6;
        let zero = frame[at..at + 2] == [0, 0];
        assert_eq!(zero, udp_checksum == UdpChecksum::Absent);
        let (read, payload) = parse(&frame).expect("sound");
        assert_eq!((read, &frame[payload]), (packet, &[7; 12][..]));
        frame[at + 1] ^= 1;
        assert!(
            matches!(parse(&frame), Err(ParseError::BadUdpChecksum { .. })),
            "{udp_checksum:?}"
        );
    }
}

#[test]
fn an_opcode_with_foreign_extension_headers_is_not_written() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut transport = headers(Opcode::WRITE_ONLY, &mut rng);
    transport.extension = Extension::Immediate(1);
    let packet = Packet {
        path: path(false, None, UdpChecksum::Absent),
        transport,
    };
    let mut frame = vec![1, 2, 3];
    assert_eq!(
        emit(&packet, &[], &mut frame),
        Err(EmitError::ExtensionMismatch {
            opcode: Opcode::WRITE_ONLY,
            wanted: ExtensionKind::Remote,
            held: ExtensionKind::Immediate,
        })
    );
    assert_eq!(frame, [1, 2, 3]);
}

#[test]
fn a_payload_beyond_an_ip_datagram_is_not_written() {
    let mut rng = SmallRng::seed_from_u64(1);
    for v6 in [false, true] {
        let transport = headers(Opcode::SEND_MIDDLE, &mut rng);
        let packet = Packet {
            path: path(v6, None, UdpChecksum::Absent),
            transport,
        };
        let mut frame = Vec::new();
        let payload = vec![0; 65_535];
        let error = emit(&packet, &payload, &mut frame);
        assert_eq!(
            error,
            Err(EmitError::PayloadTooLong {
                length_bytes: 65_535
            })
        );
        assert!(frame.is_empty());
    }
}

#[test]
fn psn_distance_is_signed_and_wraps() {
    let (low, high) = (Psn::new(2), Psn::new(0xFF_FFFE));
    assert_eq!(low.distance_from(high), 4);
    assert_eq!(high.distance_from(low), -4);
    assert_eq!(high.plus(4), low);
    assert_eq!(Psn::new(1 << 23).distance_from(Psn::new(0)), -(1 << 23));
    assert_eq!(low.position_near((3 << 24) - 10), Some((3 << 24) + 2));
    assert_eq!(high.position_near(5), None);
}

#[test]
fn syndromes_keep_every_byte() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
    }
    assert_eq!(
        Syndrome::from_byte(0x1F),
        Syndrome::Acknowledge { credits: 31 }
    );
    assert_eq!(
        Syndrome::from_byte(0x2C),
        Syndrome::ReceiverNotReady { timer: 12 }
    );
    assert_eq!(
        Syndrome::from_byte(0x62),
        Syndrome::Negative(NegativeCode::REMOTE_ACCESS)
    );
    assert_eq!(Syndrome::from_byte(0x45), Syndrome::Reserved(0x45));
    assert_eq!(Syndrome::from_byte(0x80), Syndrome::Reserved(0x80));
}

#[test]
fn a_capture_has_the_documented_bytes() {
    let mut writer = pcap::PcapWriter::new(Vec::new()).expect("a Vec takes everything");
    let at = ringside_clock::Instant(3_000_000_007);
    writer
        .write_frame(at, &[0xAA, 0xBB, 0xCC])
        .expect("a Vec takes everything");
    assert_eq!(writer.frames(), 1);
    let bytes = writer.finish().expect("a Vec takes everything");
    let expected = [
        0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0,
        0, // file
        3, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0xAA, 0xBB, 0xCC, // record
    ];
    assert_eq!(bytes, expected);
}
