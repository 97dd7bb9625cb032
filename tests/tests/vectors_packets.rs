//! Real soft-RoCE traffic, read and rebuilt to the byte (`vectors/rxe-rocev2.pcap`).

use std::collections::BTreeMap;

use ringside_model::packet::{self, Extension, Opcode, ParseError, Syndrome, UdpChecksum};

const CAPTURE: &[u8] = include_bytes!("../vectors/rxe-rocev2.pcap");

/// The frames of a little-endian pcap file, none cut.
fn frames() -> Vec<&'static [u8]> {
    let word = |at: usize| u32::from_le_bytes(CAPTURE[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(
        (word(0), word(20)),
        (0xA1B2_C3D4, 1),
        "not microsecond pcap of Ethernet"
    );
    let mut frames = Vec::new();
    let mut at = 24;
    while at < CAPTURE.len() {
        let (captured, original) = (word(at + 8) as usize, word(at + 12) as usize);
        assert_eq!(captured, original, "a cut frame");
        frames.push(&CAPTURE[at + 16..at + 16 + captured]);
        at += 16 + captured;
    }
    frames
}

/// CRC-32 one bit at a time over the bytes that the invariant CRC covers (IPv4). Shares nothing
/// with the engine's.
fn bitwise_invariant_crc(datagram: &[u8]) -> u32 {
    let mut covered = vec![0xFF; 8];
    covered.extend_from_slice(datagram);
    for changed_on_the_way in [1, 8, 10, 11, 26, 27, 32] {
        covered[8 + changed_on_the_way] = 0xFF;
    }
    let mut crc = 0xFFFF_FFFFu32;
    for byte in covered {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xEDB8_8320
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

#[test]
fn every_rocev2_frame_is_read_and_rebuilt_to_the_byte() {
    let mut by_opcode = BTreeMap::new();
    for (index, frame) in frames().into_iter().enumerate() {
        let is_roce = frame[12..14] == [8, 0] && frame[23] == 17;
        if !is_roce {
            continue;
        }
        let (headers, payload) =
            packet::parse(frame).unwrap_or_else(|error| panic!("frame {index}: {error}"));
        let mut rebuilt = Vec::new();
        packet::emit(&headers, &frame[payload], &mut rebuilt)
            .unwrap_or_else(|error| panic!("frame {index}: {error}"));
        assert_eq!(rebuilt, frame, "frame {index}: {headers:?}");
        *by_opcode.entry(headers.transport.opcode.0).or_insert(0) += 1;
    }
    let sixteen = [
        0, 1, 2, 4, 6, 7, 8, 0x0C, 0x0D, 0x0E, 0x0F, 0x11, 0x12, 0x14,
    ];
    let mut expected: BTreeMap<u8, i32> = sixteen.map(|opcode| (opcode, 16)).into();
    expected.insert(Opcode::DATAGRAM.0, 10);
    assert_eq!(by_opcode, expected);
}

#[test]
fn the_invariant_crc_of_every_frame_agrees_with_one_computed_bit_by_bit() {
    let mut checked = 0;
    for frame in frames() {
        if packet::parse(frame).is_ok() {
            let (covered, trailer) = frame.split_at(frame.len() - 4);
            assert_eq!(trailer, bitwise_invariant_crc(&covered[14..]).to_le_bytes());
            checked += 1;
        }
    }
    assert_eq!(checked, 234);
}

#[test]
fn frames_that_are_not_rocev2_are_named() {
    let mut by_reason = BTreeMap::new();
    for frame in frames() {
        let reason = match packet::parse(frame) {
            Ok(_) => continue,
            Err(ParseError::NotIp { ether_type: 0x0806 }) => "ARP",
            Err(ParseError::NotUdp { protocol: 1 }) => "ICMP",
            Err(ParseError::NotUdp { protocol: 6 }) => "TCP",
            Err(ParseError::NotUdp { protocol: 0 | 58 }) => "IPv6 neighbour discovery",
            Err(other) => panic!("{other}"),
        };
        *by_reason.entry(reason).or_insert(0) += 1;
    }
    let expected = [
        ("ARP", 2),
        ("ICMP", 2),
        ("IPv6 neighbour discovery", 14),
        ("TCP", 22),
    ];
    assert_eq!(by_reason, BTreeMap::from(expected));
}

#[test]
fn headers_of_the_capture_decode_as_the_sender_encoded_them() {
    let mut acknowledgements = 0;
    for frame in frames() {
        let Ok((headers, payload)) = packet::parse(frame) else {
            continue;
        };
        let transport = headers.transport;
        assert_eq!(headers.path.udp_checksum, UdpChecksum::Absent);
        assert_eq!(transport.partition_key, 0xFFFF);
        match (transport.opcode, transport.extension) {
            (Opcode::ACKNOWLEDGE, Extension::Acknowledge(answer)) => {
                assert!(matches!(
                    answer.syndrome,
                    Syndrome::Acknowledge { credits: 31 }
                ));
                assert!(payload.is_empty());
                acknowledgements += 1;
            }
            (Opcode::WRITE_FIRST, Extension::Remote(remote)) => {
                assert_eq!(payload.len(), 1024);
                assert!(remote.length_bytes > 1024);
            }
            (Opcode::READ_REQUEST, Extension::Remote(_)) => assert!(payload.is_empty()),
            (Opcode::SEND_FIRST | Opcode::SEND_MIDDLE | Opcode::WRITE_MIDDLE, extension) => {
                assert_eq!((payload.len(), extension), (1024, Extension::None));
            }
            (Opcode::DATAGRAM, Extension::Datagram(datagram)) => {
                assert_eq!(
                    (datagram.queue_key, datagram.source_qp.value()),
                    (0x8001_0000, 1)
                );
                assert_eq!(payload.len(), 256);
            }
            _ => {}
        }
    }
    assert_eq!(acknowledgements, 16);
}
