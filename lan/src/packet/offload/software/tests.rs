use super::*;
use crate::testing::QueueParts;

/// Ethernet and IPv4 with right checksums.
fn frame(protocol: u8, layer_4: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00]);
    let [a, b] = (20 + layer_4.len() as u16).to_be_bytes();
    bytes.extend([0x45, 0, a, b, 0, 1, 0, 0, 64, protocol, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !add(0, &bytes[14..]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(layer_4);
    bytes
}

/// TCP, UDP or SCTP with the right checksum, and an odd payload.
fn layer_4(protocol: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..1301u32).map(|byte| (byte / 3) as u8).collect();
    let field = match protocol {
        6 => {
            bytes[12] = 5 << 4;
            16
        }
        17 => {
            let [a, b] = (bytes.len() as u16).to_be_bytes();
            bytes[4..6].copy_from_slice(&[a, b]);
            6
        }
        _ => 8,
    };
    if protocol == 132 {
        bytes[field..field + 4].fill(0);
        let check = crc32c::crc32c(&bytes);
        bytes[field..field + 4].copy_from_slice(&check.to_le_bytes());
        return bytes;
    }
    bytes[field..field + 2].fill(0);
    let [a, b] = (bytes.len() as u16).to_be_bytes();
    let pseudo = [10, 0, 0, 1, 10, 0, 0, 2, 0, protocol, a, b];
    let sum = !add(add(0, &pseudo), &bytes);
    bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

const ALL: TransmitRequest = TransmitRequest {
    ip_checksum: true,
    layer_4_checksum: true,
    segment_bytes: None,
};
const CUT: TransmitRequest = TransmitRequest {
    segment_bytes: Some(500),
    ..ALL
};

#[test]
fn a_request_that_is_taken_back_leaves_a_packet_as_it_was() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    for (protocol, former) in [(6, CUT), (6, ALL), (17, CUT), (17, ALL), (132, ALL)] {
        let bytes = frame(protocol, &layer_4(protocol));
        // In one segment and in two, the headers in the first.
        for first in [bytes.len(), 701] {
            let mut packet = pool.packet_with(&bytes[..first]).unwrap();
            if first < bytes.len() {
                packet
                    .chain(pool.packet_with(&bytes[first..]).unwrap())
                    .unwrap();
            }
            packet.offload(former).unwrap();
            assert_ne!(packet.to_vec(), bytes, "the device is to fill it in");
            let mut other = packet.share();
            let none = TransmitRequest::default();
            assert_eq!(other.offload(none), Err(OffloadError::Shared));
            drop(other);
            packet.offload(none).unwrap();
            assert_eq!(packet.to_vec(), bytes, "{protocol} {former:?} {first}");
            assert_eq!(packet.command, 0);
            packet.offload(none).unwrap();
            assert_eq!(packet.to_vec(), bytes);
        }
    }
}

#[test]
fn a_request_for_less_writes_what_the_former_one_took() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let bytes = frame(6, &layer_4(6));
    let mut packet = pool.packet_with(&bytes).unwrap();
    packet.offload(CUT).unwrap();
    packet.offload(ALL).unwrap();
    let mut expected = pool.packet_with(&bytes).unwrap();
    expected.offload(ALL).unwrap();
    assert_eq!(packet.to_vec(), expected.to_vec());
    assert_eq!(packet.command, expected.command);
    let only_ip = TransmitRequest {
        layer_4_checksum: false,
        ..ALL
    };
    packet.offload(only_ip).unwrap();
    let found = packet.to_vec();
    assert_eq!(found[34..], bytes[34..], "the checksum of TCP is right");
    assert_eq!(found[16..18], bytes[16..18], "the length, too");
    // A packet that was changed meanwhile is left as it is.
    packet.offload(CUT).unwrap();
    packet.prepend(&[0; 4]).unwrap();
    let changed = packet.to_vec();
    packet.offload(TransmitRequest::default()).unwrap();
    assert_eq!(packet.to_vec(), changed);
}
