//! Queues driven by hand: descriptors written as drivers write them, and as no driver should.

mod header;
mod held;
mod rig;
mod short;
mod stamps;

use super::*;
use crate::chip::Traffic;
use crate::packet::MacAddress;
use rig::{FUNCTION_MAC, Rig, data, frame_to};
use ringside_bus::Instant;
use ringside_spec::lan::receive::profile;
use ringside_spec::lan::receive::{FlexDescriptor, PacketType, Status0, packet_type};
use ringside_spec::lan::transmit::{
    ContextCommand, DataCommand, Tunneling, inner_ip, kind, layer_4 as layer_4_kind,
    outer_ip as outer_ip_kind, tunnel as tunnel_kind,
};
use switching::TagReceived;

fn status(descriptor: &FlexDescriptor) -> Status0 {
    Status0(descriptor.status_0.get())
}

#[test]
fn a_posted_frame_goes_out_once_and_is_reported() {
    let mut rig = Rig::new();
    let frame = frame_to([2; 6], 100);
    rig.post(&frame, data());
    assert_eq!(rig.sent(), [frame]);
    assert_eq!(rig.sent(), [[0u8; 0]; 0]);
    assert_eq!(rig.transmit_word(0), DataCommand::DONE.0);
    assert_eq!(rig.causes(), [QueueCause::Transmit(rig::TRANSMIT_QUEUE)]);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn a_frame_of_several_buffers_is_one_frame_and_reported_where_asked() {
    let mut rig = Rig::new();
    let frame = frame_to([2; 6], 3000);
    let (first, rest) = frame.split_at(1000);
    let (second, third) = rest.split_at(1);
    let plain = DataCommand::ZERO;
    rig.post_buffers(&[(first, plain), (second, plain), (third, data())]);
    assert_eq!(rig.sent(), [frame]);
    assert_ne!(rig.transmit_word(1), DataCommand::DONE.0);
    assert_eq!(rig.transmit_word(2), DataCommand::DONE.0);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn the_transmit_ring_goes_round_many_times() {
    let mut rig = Rig::new();
    for round in 0..300u16 {
        let mut frame = frame_to([2; 6], 80);
        frame[14..16].copy_from_slice(&round.to_be_bytes());
        rig.post(&frame, data());
        assert_eq!(rig.sent(), [frame], "round {round}");
    }
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().transmit_errors, 0);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn tags_and_checksums_are_put_in_as_the_descriptors_say() {
    let mut rig = Rig::new();
    let mut frame = frame_to([2; 6], 60);
    rig::make_udp(&mut frame, true);
    let command = data()
        .with_insert_l2tag1(true)
        .with_l2tag1(0x6005)
        .with_inner_ip(inner_ip::V4)
        .with_layer_4(layer_4_kind::UDP)
        .with_layer_2_length_2(7)
        .with_ip_length_4(5)
        .with_layer_4_length_4(2);
    rig.post(&frame, command);
    let sent = rig.sent();
    let parsed = headers::parse(&sent[0]).unwrap();
    assert_eq!(parsed.tag, Some((0x8100, 0x6005)));
    assert_eq!(parsed.packet_type, packet_type::IPV4_UDP);
    assert!(parsed.checks.looked_at && !parsed.checks.layer_4_wrong);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn segmentation_needs_a_context_descriptor_that_fits_the_packet() {
    let mut rig = Rig::new();
    let mut frame = frame_to([2; 6], 42 + 3000);
    rig::make_udp(&mut frame, true);
    let command = data()
        .with_inner_ip(inner_ip::V4_CHECKSUM)
        .with_layer_4(layer_4_kind::UDP)
        .with_layer_2_length_2(7)
        .with_ip_length_4(5)
        .with_layer_4_length_4(2);
    let context = ContextCommand::ZERO
        .with_kind(kind::CONTEXT)
        .with_segmentation(true)
        .with_segment_bytes(1000);
    rig.post_context(0, context.with_payload_bytes(3000));
    rig.post(&frame, command);
    let lengths: Vec<_> = rig.sent().iter().map(Vec::len).collect();
    assert_eq!(lengths, [1042; 3]);
    assert_eq!(rig.breaches(), [""; 0]);

    rig.post_context(0, context.with_payload_bytes(2999));
    rig.post(&frame, command);
    assert_eq!(rig.sent(), [[0u8; 0]; 0]);
    assert_eq!(
        rig.breaches(),
        ["transmit descriptors that contradict their packet"]
    );
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().transmit_errors, 1);
}

#[test]
fn what_no_driver_should_do_on_a_transmit_ring_is_named() {
    type Abuse = fn(&mut Rig);
    let cases: [(&str, Abuse); 11] = [
        ("transmit doorbell beyond the ring", |rig| rig.ring(64)),
        ("transmit doorbell in the middle of a packet", |rig| {
            rig.post(&frame_to([2; 6], 100), DataCommand::ZERO);
        }),
        ("transmit descriptor of an unknown type", |rig| {
            rig.post(&frame_to([2; 6], 100), data().with_kind(5));
        }),
        ("transmit buffer in memory that is not mapped", |rig| {
            rig.post_at(0x9000_0000, 100, data());
        }),
        ("transmit descriptor without a buffer", |rig| {
            rig.post_at(rig::BUFFERS, 0, data());
        }),
        ("frame too short or too long to be sent", |rig| {
            rig.post(&[1; 16], data());
        }),
        ("frame gathered from more than 8 buffers", |rig| {
            let plain = DataCommand::ZERO;
            let mut buffers: Vec<(&[u8], DataCommand)> = vec![(&[3; 64], plain); 8];
            buffers.push((&[3; 64], data()));
            rig.post_buffers(&buffers);
        }),
        ("reserved bit set in a transmit descriptor", |rig| {
            rig.post(&frame_to([2; 6], 100), DataCommand(data().0 | 1 << 11));
        }),
        (
            "data descriptors of one packet with different commands",
            |rig| {
                let tagged = data().with_insert_l2tag1(true).with_l2tag1(5);
                rig.post_buffers(&[(&[3; 64], DataCommand::ZERO), (&[3; 64], tagged)]);
            },
        ),
        ("checksum of an outer UDP header that is none", |rig| {
            let gre = Tunneling::ZERO
                .with_outer_ip(outer_ip_kind::V4)
                .with_outer_ip_length_4(5)
                .with_kind(tunnel_kind::GRE)
                .with_outer_checksum(true);
            let context = ContextCommand::ZERO.with_kind(kind::CONTEXT);
            rig.post_context(gre.0.into(), context);
            rig.post(&frame_to([2; 6], 100), data());
        }),
        ("layer 4 checksum without an IP header", |rig| {
            let command = data()
                .with_layer_4(layer_4_kind::TCP)
                .with_layer_4_length_4(5);
            rig.post(&frame_to([2; 6], 100), command);
        }),
    ];
    for (name, abuse) in cases {
        let mut rig = Rig::new();
        abuse(&mut rig);
        let _ = rig.sent();
        assert!(
            rig.breaches().contains(&name),
            "{name}: {:?}",
            rig.breaches()
        );
    }
    let mut rig = Rig::new();
    rig.ring_queue(77, 1);
    assert_eq!(
        rig.breaches(),
        ["doorbell of a transmit queue that does not exist"]
    );
}

#[test]
fn a_packet_that_is_not_complete_waits_for_the_next_doorbell() {
    let mut rig = Rig::new();
    let frame = frame_to([2; 6], 200);
    rig.post(&frame[..100], DataCommand::ZERO);
    assert_eq!(rig.sent(), [[0u8; 0]; 0]);
    assert!(!rig.engine.has_work(), "nothing to do until the doorbell");
    rig.post(&frame[100..], data());
    assert_eq!(rig.sent(), [frame]);
}

#[test]
fn a_queue_added_anew_begins_at_its_first_descriptor() {
    let mut rig = Rig::new();
    rig.post(&frame_to([2; 6], 100), data());
    assert_eq!(rig.sent().len(), 1);
    rig.configure(1);
    assert_eq!(rig.engine.transmit_head(rig::TRANSMIT_QUEUE.into()), 1);
    rig.configure(2);
    assert_eq!(rig.engine.transmit_head(rig::TRANSMIT_QUEUE.into()), 0);
}

#[test]
fn the_doorbell_of_a_queue_that_was_removed_is_not_that_of_the_next() {
    for removed in [false, true] {
        let mut rig = Rig::new();
        rig.post(&frame_to([2; 6], 100), data());
        if removed {
            rig.remove_transmit();
        }
        rig.configure(2);
        assert!(rig.sent().is_empty());
        assert_eq!(rig.breaches(), [""; 0]);
    }
}

#[test]
fn a_queue_that_stays_sends_after_a_change_of_the_tables() {
    let mut rig = Rig::new();
    rig.post(&frame_to([2; 6], 100), data());
    rig.configure(1);
    assert_eq!(rig.sent().len(), 1);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn a_received_frame_lies_in_its_buffer_and_its_descriptor_says_all() {
    let mut rig = Rig::new();
    rig.offer(8);
    let mut frame = frame_to(FUNCTION_MAC, 100);
    rig::make_udp(&mut frame, false);
    assert!(rig.receive(&frame));
    let (descriptor, bytes) = rig.received(0).unwrap();
    assert_eq!(bytes, frame);
    assert_eq!(descriptor.profile, profile::NIC);
    let status = status(&descriptor);
    assert!(status.done() && status.end_of_packet() && status.checksums_checked());
    assert!(!status.layer_4_checksum_error() && !status.ip_checksum_error());
    let kind = PacketType(descriptor.packet_type.get()).packet_type();
    assert_eq!(kind, packet_type::IPV4_UDP);
    assert_eq!(rig.causes(), [QueueCause::Receive(rig::RECEIVE_QUEUE)]);

    *frame.last_mut().unwrap() ^= 1;
    assert!(rig.receive(&frame));
    let (descriptor, _) = rig.received(1).unwrap();
    assert!(self::status(&descriptor).layer_4_checksum_error());
    assert!(!rig.receive(&frame_to([8; 6], 100)), "for another station");
    assert_eq!(rig.received(2), None);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn a_long_frame_takes_as_many_buffers_as_it_needs() {
    let mut rig = Rig::new();
    rig.offer(8);
    let frame = frame_to(FUNCTION_MAC, 2 * rig::BUFFER_BYTES + 1);
    assert!(rig.receive(&frame));
    let mut whole = Vec::new();
    for index in 0..3 {
        let (descriptor, bytes) = rig.received(index).unwrap();
        whole.extend(bytes);
        assert_eq!(status(&descriptor).end_of_packet(), index == 2);
    }
    assert_eq!(whole, frame);
    assert_eq!(rig.received(3), None);
}

#[test]
fn frames_without_room_are_dropped_whole_and_counted() {
    let mut rig = Rig::new();
    rig.offer(8);
    for _ in 0..7 {
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 80)));
    }
    // one descriptor is left, and this takes two
    assert!(rig.receive(&frame_to(FUNCTION_MAC, rig::BUFFER_BYTES + 1)));
    assert_eq!(rig.received(7), None);
    let dropped = |rig: &Rig| rig.counters().of_vsi(rig::VSI).unwrap().dropped;
    assert_eq!(dropped(&rig), 1);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 80)));
    assert!(rig.received(7).is_some());
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 80)));
    assert_eq!(dropped(&rig), 2);
    rig.offer(16);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 80)));
    assert!(rig.received(8).is_some());
    // longer than the queue takes
    assert!(rig.receive(&frame_to(FUNCTION_MAC, rig::MAX_FRAME - 3)));
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().receive_errors, 1);
}

/// The limit of a queue is for the frame as it was on the wire: with its tag, even if that is
/// removed, and with its frame check sequence. Linux and DPDK give 1522 to an MTU of 1500.
#[test]
fn the_longest_frame_counts_with_tag_and_frame_check_sequence() {
    let mut rig = Rig::new();
    rig.vsi.tag_received = TagReceived::Shown;
    rig.configure(1);
    rig.offer(32);
    let errors = |rig: &Rig| {
        let counted = rig.counters().of_vsi(rig::VSI);
        counted.map_or(0, |one| one.receive_errors)
    };
    for strip_crc in [true, false] {
        rig.disable_receive();
        let context = ReceiveContext {
            base_in_128_bytes: rig::RECEIVE_RING >> 7,
            ring_length: 64,
            data_buffer_in_128_bytes: 16,
            descriptors_of_32_bytes: true,
            strip_crc,
            tag_in_l2tag1: true,
            frame_bytes_max: 1522,
            ..ReceiveContext::zeroed()
        };
        rig.enable_receive(context.dwords(), 32);
        (0..4).for_each(|index| rig.free(index));
        let before = errors(&rig);
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 1518)));
        assert!(rig.receive(&tagged(&frame_to(FUNCTION_MAC, 1514), 5)));
        assert_eq!(errors(&rig), before, "1522 with frame check sequence");
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 1519)));
        assert!(rig.receive(&tagged(&frame_to(FUNCTION_MAC, 1515), 5)));
        assert_eq!(errors(&rig), before + 2, "1523");
    }
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn the_receive_ring_goes_round_many_times() {
    let mut rig = Rig::new();
    let mut tail = 8u32;
    rig.offer(tail);
    for round in 0..300u32 {
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 80 + round as usize % 7)));
        let index = (round % 64) as u16;
        let (_, bytes) = rig.received(index).unwrap();
        assert_eq!(bytes.len(), 80 + round as usize % 7);
        rig.free(index);
        if round % 8 == 7 {
            tail = (tail + 8) % 64;
            rig.offer(tail);
        }
    }
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().dropped, 0);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn tags_of_received_frames_go_where_the_vsi_says() {
    for (mode, kept, shown) in [
        (TagReceived::Shown, false, true),
        (TagReceived::Removed, false, false),
        (TagReceived::Kept, true, false),
    ] {
        let mut rig = Rig::new();
        rig.vsi.tag_received = mode;
        rig.configure(1);
        rig.offer(8);
        let plain = frame_to(FUNCTION_MAC, 100);
        assert!(rig.receive(&tagged(&plain, 0x2005)));
        let (descriptor, bytes) = rig.received(0).unwrap();
        assert_eq!(bytes.len(), if kept { 104 } else { 100 }, "{mode:?}");
        assert_eq!(bytes == plain, !kept);
        assert_eq!(status(&descriptor).l2tag1_present(), shown);
        assert_eq!(descriptor.l2tag1.get(), if shown { 0x2005 } else { 0 });
    }
}

#[test]
fn a_service_tag_stays_in_the_frame_in_single_vlan_mode() {
    for double in [false, true] {
        let mut rig = Rig::new();
        rig.vsi.tag_received = TagReceived::Shown;
        rig.service_tags = double;
        rig.configure(1);
        rig.offer(8);
        let mut frame = tagged(&frame_to(FUNCTION_MAC, 100), 20);
        frame[12..14].copy_from_slice(&[0x88, 0xA8]);
        assert!(rig.receive(&frame));
        let (descriptor, bytes) = rig.received(0).unwrap();
        assert_eq!(bytes == frame, !double);
        assert_eq!(status(&descriptor).l2tag1_present(), double);
    }
}

#[test]
fn the_outer_tag_is_of_the_type_that_the_vsi_names() {
    const TYPES: [u16; 3] = [0x8100, 0x88A8, 0x9100];
    for own in TYPES {
        let mut rig = Rig::new();
        rig.vsi.tag_received = TagReceived::Shown;
        rig.vsi.outer_tag = Some(own);
        rig.service_tags = true;
        rig.configure(1);
        rig.offer(8);
        for (index, other) in (0..).zip(TYPES) {
            let mut frame = tagged(&frame_to(FUNCTION_MAC, 100), 20);
            frame[12..14].copy_from_slice(&other.to_be_bytes());
            assert!(rig.receive(&frame));
            let (descriptor, bytes) = rig.received(index).unwrap();
            assert_eq!(bytes == frame, other != own, "{other:#x} of {own:#x}");
            assert_eq!(status(&descriptor).l2tag1_present(), other == own);
        }
        let command = ContextCommand::ZERO
            .with_kind(kind::CONTEXT)
            .with_insert_l2tag2(true);
        rig.post_context(5 << 32, command);
        let plain = frame_to([2; 6], 100);
        rig.post(&plain, data());
        let tag = [&own.to_be_bytes()[..], &[0, 5]].concat();
        let expected = [&plain[..12], &tag, &plain[12..]].concat();
        assert_eq!(rig.sent(), [expected]);
        assert_eq!(rig.breaches(), [""; 0]);
    }
}

#[test]
fn a_device_that_is_cut_off_drops_frames_and_sends_none_without_a_breach() {
    let mut rig = Rig::new();
    rig.offer(8);
    rig.space.set_bus_master(false);
    rig.receive(&frame_to(FUNCTION_MAC, 100));
    rig.space.set_bus_master(true);
    assert_eq!(rig.received(0), None);
    rig.post(&frame_to([2; 6], 100), data());
    rig.space.set_bus_master(false);
    assert!(rig.sent().is_empty());
    assert_eq!(rig.breaches(), [""; 0]);
}

/// One frame each way, so that both rings are resolved.
fn used() -> Rig {
    let mut rig = Rig::new();
    rig.offer(8);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
    rig.post(&frame_to([2; 6], 100), data());
    assert_eq!(rig.sent().len(), 1);
    rig
}

#[test]
fn rings_whose_memory_is_gone_are_not_used_again() {
    let mut rig = used();
    rig.post(&frame_to([2; 6], 100), data());
    rig.unmap();
    assert!(rig.sent().is_empty());
    assert_eq!(
        rig.breaches(),
        ["transmit ring in memory that is not mapped"]
    );
    let mut rig = used();
    rig.unmap();
    rig.receive(&frame_to(FUNCTION_MAC, 100));
    assert_eq!(
        rig.breaches(),
        ["receive ring or buffer that is not mapped"]
    );
}

#[test]
fn rings_in_other_memory_at_the_same_address_are_used() {
    let mut rig = used();
    rig.remap();
    let frame = frame_to(FUNCTION_MAC, 120);
    assert!(rig.receive(&frame));
    assert_eq!(rig.received(1).map(|(_, bytes)| bytes), Some(frame));
    let frame = frame_to([2; 6], 130);
    rig.post(&frame, data());
    assert_eq!(rig.sent(), [frame]);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn hostile_rings_and_buffers_end_in_breaches_only() {
    let mut rig = Rig::new();
    rig.offer(8);
    rig.set_buffer(0, 0x9000_0000);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
    assert_eq!(
        rig.breaches(),
        ["receive ring or buffer that is not mapped"]
    );
    // every context and descriptor that random bits make
    let mut random = 7u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    rig.filter_everything();
    for round in 0..2000 {
        rig.configure(round + 2);
        let dwords = std::array::from_fn(|_| next() as u32);
        rig.enable_receive(dwords, next() as u32);
        rig.offer(next() as u32);
        let _ = rig.receive(&frame_to(FUNCTION_MAC, 60 + next() as usize % 9000));
        for index in 0..64 {
            rig.set_transmit(
                index,
                rig::BUFFERS + next() % 4096,
                (next() & !7) | (next() % 2),
            );
        }
        rig.ring(next() as u32 % 70);
        for _ in 0..8 {
            let _ = rig.sent();
        }
    }
}

#[test]
fn frames_are_spread_by_their_hash_and_the_table() {
    let mut rig = Rig::new();
    rig.vsi.queues = vec![rig::RECEIVE_QUEUE, rig::RECEIVE_QUEUE + 1];
    rig.vsi.classes[0].mask = 1;
    let spreading = Spreading {
        key: (1..=52).collect(),
        table: vec![0; 64],
        scheme: Scheme::Toeplitz,
    };
    rig.vsi.spreading = Some(spreading.clone());
    rig.configure(1);
    rig.offer(8);
    let mut frame = frame_to(FUNCTION_MAC, 100);
    rig::make_udp(&mut frame, false);
    let flow = headers::parse(&frame).unwrap().flow.unwrap();
    let hash = spreading.hash(&flow);
    assert!(rig.receive(&frame));
    let (descriptor, _) = rig.received(0).unwrap();
    assert!(status(&descriptor).hash_valid());
    let written =
        u32::from(descriptor.metadata_1.get()) << 16 | u32::from(descriptor.metadata_0.get());
    assert_eq!(written, hash);
    // to the other queue, which is not enabled
    rig.vsi.spreading.as_mut().unwrap().table[(hash % 64) as usize] = 1;
    rig.configure(1);
    assert!(rig.receive(&frame));
    assert_eq!(rig.received(1), None);
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().dropped, 1);
}

#[test]
fn neighbours_of_one_function_hear_each_other() {
    let mut rig = Rig::new();
    rig.vsi.loopback = true;
    rig.configure(1);
    rig.offer(8);
    let frame = frame_to(FUNCTION_MAC, 100);
    rig.post(&frame, data());
    assert_eq!(rig.sent(), [[0u8; 0]; 0], "it stays inside");
    let (descriptor, bytes) = rig.received(0).unwrap();
    assert_eq!(bytes, frame);
    assert!(status(&descriptor).loopback());
}

#[test]
fn counters_agree_with_what_moved() {
    let mut rig = Rig::new();
    rig.offer(16);
    rig.post(&frame_to([2; 6], 100), data());
    rig.post(&frame_to([0xFF; 6], 60), data());
    assert_eq!(rig.sent().len(), 2);
    for length in [60, 61, 1514] {
        assert!(rig.receive(&frame_to(FUNCTION_MAC, length)));
    }
    assert!(rig.receive(&[0; 13]));
    assert!(rig.receive(&vec![0; 9725]));
    let counters = rig.counters();
    assert_eq!((counters.undersize, counters.oversize), (1, 1));
    let mut sent = Traffic::default();
    sent.count(MacAddress([2; 6]), 104);
    sent.count(MacAddress([0xFF; 6]), 64);
    assert_eq!(counters.sent, sent);
    let mut received = Traffic::default();
    for length in [64, 65, 1518] {
        received.count(MacAddress(FUNCTION_MAC), length);
    }
    assert_eq!(counters.received, received);
    assert_eq!(counters.of_vsi(rig::VSI).unwrap().received, received);
}

/// Linux's driver of 7.3 enables the queue of its control VSI with neither buffers nor frames.
#[test]
fn a_queue_without_buffers_is_possible_and_takes_no_frame() {
    let context = |buffers, frame_bytes_max| ReceiveContext {
        base_in_128_bytes: rig::RECEIVE_RING >> 7,
        ring_length: 64,
        data_buffer_in_128_bytes: buffers,
        descriptors_of_32_bytes: true,
        frame_bytes_max,
        ..ReceiveContext::zeroed()
    };
    let mut rig = Rig::new();
    rig.disable_receive();
    rig.enable_receive(context(0, 0).dwords(), 56);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 80)));
    assert_eq!(rig.received(0), None);
    assert_eq!(rig.breaches(), [""; 0]);
    rig.disable_receive();
    let impossible = ["context of a receive queue that is not possible"];
    rig.enable_receive(context(0, 1518).dwords(), 56);
    assert_eq!(rig.breaches(), impossible);
    // No frame is longer than 9728 bytes.
    for (longest, breaches) in [(9728, &[][..]), (9729, &impossible)] {
        let mut rig = Rig::new();
        rig.disable_receive();
        rig.enable_receive(context(16, longest).dwords(), 56);
        assert_eq!(rig.breaches(), breaches, "{longest}");
    }
}

#[test]
fn a_frame_from_the_wire_is_stamped_if_queue_and_timer_do_it() {
    let mut rig = Rig::new();
    rig.now = Instant(5_000_000_123);
    let context = ReceiveContext {
        base_in_128_bytes: rig::RECEIVE_RING >> 7,
        ring_length: 64,
        data_buffer_in_128_bytes: 16,
        descriptors_of_32_bytes: true,
        strip_crc: true,
        frame_bytes_max: 1518,
        ..ReceiveContext::zeroed()
    };
    let dwords = context.dwords();
    let stamp = |rig: &mut Rig, index: u16| {
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
        let (written, _) = rig.received(index).unwrap();
        let high = u32::from(written.metadata_5.get()) << 16;
        let whole = high | u32::from(written.metadata_4.get());
        (written.time_stamp_low, whole)
    };
    rig.disable_receive();
    rig.enable_receive(dwords, 56);
    rig.engine.set_timer(Timer::running());
    assert_eq!(stamp(&mut rig, 0), (0, 0), "the queue does not stamp");
    rig.stamps = true;
    rig.disable_receive();
    rig.enable_receive(dwords, 56);
    rig.free(0);
    let (low, whole) = stamp(&mut rig, 0);
    // The nominal increment falls behind by 15 ns in a second.
    let expected = 5_000_000_123_u64 as u32;
    assert_eq!(low, 1, "valid");
    assert!(expected - whole < 100, "{expected} {whole}");
    rig.engine.set_timer(Timer::default());
    assert_eq!(stamp(&mut rig, 1), (0, 0), "the timer is off");
    assert_eq!(rig.breaches(), [""; 0]);
}

/// A rig whose receive queue has this descriptor profile.
fn with_profile(profile: u8) -> Rig {
    let mut rig = Rig::new();
    rig.disable_receive();
    rig.profile = profile;
    let context = ReceiveContext {
        base_in_128_bytes: rig::RECEIVE_RING >> 7,
        ring_length: 64,
        data_buffer_in_128_bytes: 16,
        descriptors_of_32_bytes: true,
        strip_crc: true,
        frame_bytes_max: 5000,
        ..ReceiveContext::zeroed()
    };
    rig.enable_receive(context.dwords(), 56);
    rig
}

/// Bits by number, as older drivers have them: status from 0, errors from 19, type at 30, length at
/// 38.
#[test]
fn the_legacy_layout_says_status_type_length_and_tag() {
    let mut rig = with_profile(1);
    rig.vsi.tag_received = TagReceived::Shown;
    rig.configure(1);
    let mut frame = frame_to(FUNCTION_MAC, 100);
    rig::make_udp(&mut frame, false);
    *frame.last_mut().unwrap() ^= 1;
    assert!(rig.receive(&tagged(&frame, 0x2005)));
    let [hash, status, second, _] = rig.receive_words(0);
    assert_eq!(hash, 0);
    assert_eq!(status & 0b1111, 0b1011, "done, last, no first tag, checked");
    assert_eq!(status >> 22 & 0b11, 0b10, "layer 4 checksum wrong");
    assert_eq!(status >> 30 & 0xFF, 24, "UDP over IPv4");
    assert_eq!(status >> 38 & 0x3FFF, 100);
    assert_eq!(second, 0x2005 << 48 | 1);
    // Several buffers: only the last has the packet's fields.
    assert!(rig.receive(&frame_to(FUNCTION_MAC, rig::BUFFER_BYTES + 1)));
    let [_, status, ..] = rig.receive_words(1);
    assert_eq!((status & 3, status >> 38 & 0x3FFF), (1, 2048));
    let [_, status, ..] = rig.receive_words(2);
    assert_eq!((status & 3, status >> 38 & 0x3FFF), (3, 1));
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn profiles_of_the_packages_deliver_and_others_are_remarked() {
    for profile in [0, 2, 6, 16, 17, 18, 19, 20, 21, 22, 25] {
        let mut rig = with_profile(profile);
        assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
        let [first, status, ..] = rig.receive_words(0);
        assert_eq!(status & 1, 1, "profile {profile}");
        if profile > 1 {
            assert_eq!(first & 0xFF, u64::from(profile));
        }
        assert_eq!(rig.remarks(), [""; 0]);
    }
    let mut rig = with_profile(30);
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
    assert_eq!(rig.received(0), None);
    assert_eq!(rig.remarks(), ["profile 30, queue 5"]);
    assert_eq!(rig.breaches(), [""; 0]);
}

#[test]
fn the_bit_of_older_cards_in_a_transmit_descriptor_is_ignored() {
    let mut rig = Rig::new();
    let frame = frame_to([8; 6], 100);
    rig.post(&frame, DataCommand(rig::data().0 | 1 << 6));
    assert_eq!(rig.sent(), [frame]);
    assert_eq!(rig.breaches(), [""; 0]);
}
