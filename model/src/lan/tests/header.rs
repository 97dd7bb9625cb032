//! Receive queues that put headers into buffers of their own.

use super::rig::{self, BUFFER_BYTES, FUNCTION_MAC, Rig, frame_to, make_udp};
use crate::lan::switching::TagReceived;
use ringside_bus::Iova;
use ringside_spec::lan::receive::{
    HeaderLength, LegacyStatus, ReceiveContext, Status0, profile, split, split_rule,
};

const ALL: u8 = split_rule::LAYER_2 | split_rule::IP | split_rule::TCP_UDP | split_rule::SCTP;
/// Bytes of a header buffer.
const ROOM: usize = 256;

fn header_buffer(index: u16) -> u64 {
    rig::BUFFERS + u64::from(index) * ROOM as u64
}

/// A rig whose receive queue has 16 free descriptors with two buffers each.
fn splitting(rules: u8, room: usize) -> Rig {
    splitting_as(profile::NIC, rules, room)
}

fn splitting_as(layout: u8, rules: u8, room: usize) -> Rig {
    let mut rig = Rig::new();
    rig.profile = layout;
    rig.disable_receive();
    let context = ReceiveContext {
        base_in_128_bytes: rig::RECEIVE_RING >> 7,
        ring_length: 64,
        data_buffer_in_128_bytes: (BUFFER_BYTES / 128) as u8,
        header_buffer_in_64_bytes: (room / 64) as u8,
        split: split::HEADER,
        header_split_0: rules,
        descriptors_of_32_bytes: true,
        strip_crc: true,
        tag_in_l2tag1: true,
        frame_bytes_max: rig::MAX_FRAME as u16,
        ..ReceiveContext::zeroed()
    };
    rig.enable_receive(context.dwords(), 16);
    for index in 0..16 {
        let data = rig::RECEIVE_BUFFERS + u64::from(index) * BUFFER_BYTES as u64;
        let words = [data, header_buffer(index), 0, 0];
        let place = Iova(rig::RECEIVE_RING + u64::from(index) * 32);
        rig.space.write_words(place, &words).unwrap();
    }
    rig
}

/// Header and data of a descriptor that was written back.
fn parts(rig: &Rig, index: u16) -> (Vec<u8>, Vec<u8>, Status0) {
    let (descriptor, data) = rig.received(index).expect("a packet");
    let length = HeaderLength(descriptor.header_length.get());
    let mut header = vec![0; length.bytes().into()];
    assert_eq!(length.split(), !header.is_empty());
    let place = Iova(header_buffer(index));
    rig.space.read(place, &mut header).unwrap();
    (header, data, Status0(descriptor.status_0.get()))
}

fn datagram(length: usize) -> Vec<u8> {
    let mut frame = frame_to(FUNCTION_MAC, length);
    make_udp(&mut frame, false);
    frame
}

#[test]
fn the_innermost_header_that_a_rule_names_ends_the_first_buffer() {
    let frame = datagram(700);
    for (rules, bytes) in [
        (ALL, 42),
        (split_rule::LAYER_2 | split_rule::IP, 34),
        (split_rule::LAYER_2, 14),
        (split_rule::SCTP, 0),
    ] {
        let mut rig = splitting(rules, ROOM);
        assert!(rig.receive(&frame));
        let (header, data, status) = parts(&rig, 0);
        assert_eq!((header.len(), data.len()), (bytes, 700 - bytes), "{rules}");
        assert_eq!([header, data].concat(), frame);
        assert!(status.end_of_packet() && !status.header_overflow());
        assert_eq!(rig.breaches(), [""; 0]);
    }
    // Not of IP: the Ethernet header.
    let mut rig = splitting(ALL, ROOM);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 60)));
    assert_eq!(parts(&rig, 0).0.len(), 14);
}

#[test]
fn data_behind_a_header_fill_several_buffers_or_none() {
    let mut rig = splitting(ALL, ROOM);
    let (long, all_header) = (frame_to(FUNCTION_MAC, 14 + 2 * BUFFER_BYTES), datagram(42));
    assert!(rig.receive(&long) && rig.receive(&all_header));
    let (header, first, status) = parts(&rig, 0);
    let (none, second, last) = parts(&rig, 1);
    assert_eq!((header.len(), none.len()), (14, 0));
    assert_eq!([header, first, second].concat(), long);
    assert!(!status.end_of_packet() && last.end_of_packet());
    let (header, data, status) = parts(&rig, 2);
    assert_eq!((header, data.len()), (all_header, 0));
    assert!(status.end_of_packet());
}

#[test]
fn a_tag_that_is_removed_is_no_part_of_a_header() {
    let mut rig = splitting(ALL, ROOM);
    rig.vsi.tag_received = TagReceived::Shown;
    rig.configure(1);
    let frame = datagram(100);
    assert!(rig.receive(&super::tagged(&frame, 5)));
    let (header, data, status) = parts(&rig, 0);
    assert_eq!((header.len(), [header, data].concat()), (42, frame));
    assert!(status.l2tag1_present());
}

#[test]
fn a_header_beyond_its_buffer_goes_on_in_the_data_and_is_reported() {
    let mut rig = splitting(ALL, 0);
    let frame = datagram(100);
    assert!(rig.receive(&frame));
    let (header, data, status) = parts(&rig, 0);
    assert_eq!((header.len(), data), (0, frame));
    assert!(status.header_overflow());
}

#[test]
fn descriptors_of_older_cards_have_the_length_of_the_header_too() {
    let mut rig = splitting_as(profile::LEGACY_32, ALL, ROOM);
    assert!(rig.receive(&datagram(100)));
    let place = Iova(rig::RECEIVE_RING);
    let [_, status, ..] = rig.space.read_words::<4>(place).unwrap();
    let status = LegacyStatus(status);
    assert_eq!((status.header_bytes(), status.bytes()), (42, 58));
    assert!(status.header_split() && status.end_of_packet());
}
