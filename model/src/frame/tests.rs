//! Payloads wherever they lie.

use super::*;
use crate::packet::{
    Extension, Ipv4, MacAddress, Opcode, Path, Psn, QpNumber, TransportHeaders, UdpChecksum,
};
use ringside_bus::function::DmaAccess;
use ringside_bus::{Memory, PageSize};
use std::net::Ipv4Addr;

pub(crate) fn packet(source: MacAddress, destination: MacAddress) -> Packet {
    Packet {
        path: Path {
            destination,
            source,
            vlan: None,
            network: Network::V4(Ipv4 {
                source: Ipv4Addr::new(10, 0, 0, 1),
                destination: Ipv4Addr::new(10, 0, 0, 2),
                type_of_service: 0,
                time_to_live: 64,
                identification: 0,
                do_not_fragment: true,
            }),
            source_port: 0xC000,
            udp_checksum: UdpChecksum::Absent,
        },
        transport: TransportHeaders {
            opcode: Opcode::SEND_ONLY,
            solicited: false,
            migrated: false,
            partition_key: 0xFFFF,
            forward_congestion: false,
            backward_congestion: false,
            destination_qp: QpNumber::new(5),
            acknowledge_request: true,
            psn: Psn::new(7),
            extension: Extension::None,
        },
    }
}

fn space_with(bytes: &[u8]) -> (DmaSpace, Memory) {
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    assert!(memory.write(0, bytes));
    let mut space = DmaSpace::new();
    space.set_bus_master(true);
    assert!(space.map(Iova(0x1000), &memory, 0, 8192, DmaAccess::ReadWrite));
    (space, memory)
}

fn scattered() -> (Payload, Vec<DmaSpace>, Vec<u8>) {
    let bytes: Vec<u8> = (0..200).collect();
    let (source, _memory) = space_with(&bytes);
    let (target, _memory) = space_with(&[]);
    let mut pieces = Pieces::new();
    for (at, length) in [(100, 50), (0, 10), (10, 5), (190, 10)] {
        assert!(pieces.push(Iova(0x1000 + at), length));
    }
    assert_eq!(pieces.as_slice().len(), 3, "neighbours are joined");
    let expected = [&bytes[100..150], &bytes[0..15], &bytes[190..200]].concat();
    (
        Payload::Memory { source: 0, pieces },
        vec![source, target],
        expected,
    )
}

#[test]
fn scattered_payload_reads_as_one() {
    let (payload, spaces, expected) = scattered();
    let mut bytes = vec![0; payload.length()];
    payload.read(&spaces, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

#[test]
fn any_part_of_a_payload_lands_where_it_is_told() {
    let (payload, spaces, expected) = scattered();
    for offset in 0..expected.len() {
        for length in [0, 1, 7, expected.len() - offset] {
            let length = length.min(expected.len() - offset);
            payload
                .copy_to(&spaces, offset, &spaces[1], Iova(0x2000), length)
                .unwrap();
            let mut bytes = vec![0; length];
            spaces[1].read(Iova(0x2000), &mut bytes).unwrap();
            assert_eq!(bytes, expected[offset..offset + length]);
        }
    }
}

#[test]
fn wrong_ranges_and_lost_memory_are_errors_that_name_the_side() {
    let (payload, mut spaces, expected) = scattered();
    let beyond = payload.copy_to(&spaces, 1, &spaces[1], Iova(0x2000), expected.len());
    assert!(matches!(beyond, Err(PayloadError::OutOfRange { .. })));
    let nowhere = payload.copy_to(&spaces, 0, &spaces[1], Iova(0x9000_0000), 8);
    assert!(matches!(nowhere, Err(PayloadError::Target(_))));
    spaces[0].unmap(Iova(0x1000), 8192);
    let gone = payload.copy_to(&spaces, 0, &spaces[1], Iova(0x2000), 8);
    assert!(matches!(gone, Err(PayloadError::Source(_))));
    assert!(matches!(
        payload.read(&[], &mut [0]),
        Err(PayloadError::Source(_))
    ));
}

#[test]
fn lists_of_pieces_have_a_limit() {
    let mut pieces = Pieces::new();
    for index in 0..MAX_PIECES as u64 {
        assert!(pieces.push(Iova(index * 16), 8));
    }
    assert!(!pieces.push(Iova(0x9000), 8));
    let mut full = Pieces::new();
    assert!(full.push(Iova(0), u32::MAX));
    assert!(!full.push(Iova(0x9000), 1), "lengths have 32 bits");
}

#[test]
fn bytes_and_frame_are_the_same_thing() {
    let (memory_payload, spaces, expected) = scattered();
    let payloads = [
        Payload::empty(),
        Payload::inline(&[1, 2, 3]).unwrap(),
        Payload::Bytes(vec![9; 1000]),
        memory_payload,
    ];
    for payload in payloads {
        let frame = Frame {
            packet: packet(MacAddress([2; 6]), MacAddress([4; 6])),
            payload,
            packets: 1,
        };
        let mut bytes = Vec::new();
        frame.serialise(&spaces, &mut bytes).unwrap();
        assert_eq!(
            frame.length(),
            (bytes.len() + 4).max(64),
            "with frame check sequence"
        );
        let parsed = Frame::parse(&bytes).unwrap();
        assert_eq!(parsed.packet, frame.packet);
        let mut before = vec![0; frame.payload.length()];
        frame.read(&spaces, &mut before).unwrap();
        assert_eq!(parsed.payload.own_bytes(), Some(&before[..]));
    }
    assert_eq!(expected.len(), 75);
    assert!(Payload::inline(&[0; MAX_INLINE_BYTES + 1]).is_none());
}
