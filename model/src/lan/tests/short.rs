//! Receive rings whose descriptors have 16 bytes.

use super::rig::{self, BUFFER_BYTES, FUNCTION_MAC, Rig, frame_to};
use ringside_bus::Iova;
use ringside_spec::lan::receive::{
    FilterStatus, FlexDescriptor, PacketLength, ReceiveContext, SHORT_DESCRIPTOR_BYTES, Status0,
};

const ENTRIES: u16 = 64;
const GUARD: u64 = 0x5A5A_A5A5_5A5A_A5A5;
/// Words behind the ring that stay as they are: as many as the ring has.
const GUARD_WORDS: usize = ENTRIES as usize * SHORT_DESCRIPTOR_BYTES / 8;

fn place(index: u16) -> Iova {
    Iova(rig::RECEIVE_RING + u64::from(index) * SHORT_DESCRIPTOR_BYTES as u64)
}

fn buffer(index: u16) -> Iova {
    Iova(rig::RECEIVE_BUFFERS + u64::from(index) * BUFFER_BYTES as u64)
}

fn free(rig: &Rig, index: u16) {
    let words = [buffer(index).0, 0];
    rig.space.write_words(place(index), &words).unwrap();
}

/// A rig whose receive queue has short descriptors, 56 of them free.
fn short() -> Rig {
    let mut rig = Rig::new();
    rig.disable_receive();
    let guard = [GUARD; GUARD_WORDS];
    rig.space.write_words(place(ENTRIES), &guard).unwrap();
    for index in 0..ENTRIES {
        free(&rig, index);
    }
    let context = ReceiveContext {
        base_in_128_bytes: rig::RECEIVE_RING >> 7,
        ring_length: ENTRIES,
        data_buffer_in_128_bytes: (BUFFER_BYTES / 128) as u8,
        strip_crc: true,
        tag_in_l2tag1: true,
        frame_bytes_max: rig::MAX_FRAME as u16,
        ..ReceiveContext::zeroed()
    };
    rig.enable_receive(context.dwords(), 56);
    rig
}

fn assert_nothing_beyond(rig: &Rig) {
    let guard = rig.space.read_words::<GUARD_WORDS>(place(ENTRIES));
    assert_eq!(guard.unwrap(), [GUARD; GUARD_WORDS]);
    assert_eq!(rig.breaches(), [""; 0]);
}

/// Status and bytes of the buffer whose descriptor was written back.
fn received(rig: &Rig, index: u16) -> Option<(Status0, Vec<u8>)> {
    let mut bytes = [0; 32];
    let (first, _) = bytes.split_at_mut(SHORT_DESCRIPTOR_BYTES);
    rig.space.read(place(index), first).unwrap();
    let descriptor = FlexDescriptor::read(&bytes)?;
    let status = Status0(descriptor.status_0.get());
    let length = PacketLength(descriptor.packet_length.get()).bytes();
    let mut bytes = vec![0; length.into()];
    rig.space.read(buffer(index), &mut bytes).unwrap();
    status.done().then_some((status, bytes))
}

#[test]
fn frames_go_round_a_ring_of_short_descriptors_and_nothing_beyond_it_changes() {
    let mut rig = short();
    for round in 0..200u16 {
        let index = round % ENTRIES;
        let frame = frame_to(FUNCTION_MAC, 60 + usize::from(round));
        assert!(rig.receive(&frame));
        let (status, bytes) = received(&rig, index).unwrap();
        assert!(status.end_of_packet());
        assert_eq!(bytes, frame, "round {round}");
        assert_eq!(received(&rig, (index + 1) % ENTRIES), None);
        free(&rig, index);
        if index % 8 == 7 {
            rig.offer(u32::from((index + 57) % ENTRIES));
        }
    }
    assert_nothing_beyond(&rig);
}

#[test]
fn a_frame_of_several_buffers_takes_as_many_short_descriptors() {
    let mut rig = short();
    let frame = frame_to(FUNCTION_MAC, 2 * BUFFER_BYTES + 100);
    assert!(rig.receive(&frame));
    let parts: Vec<_> = (0..3).map(|index| received(&rig, index).unwrap()).collect();
    let ends: Vec<_> = parts.iter().map(|part| part.0.end_of_packet()).collect();
    assert_eq!(ends, [false, false, true]);
    let bytes: Vec<_> = parts.into_iter().flat_map(|part| part.1).collect();
    assert_eq!(bytes, frame);
    assert_nothing_beyond(&rig);
}

#[test]
fn the_outcome_of_a_filter_takes_one_short_descriptor() {
    let mut rig = short();
    assert!(rig.receive(&frame_to(FUNCTION_MAC, 100)));
    let status = FilterStatus::ZERO.with_done(true);
    let queue = rig.engine.receive.queues.get_mut(rig::RECEIVE_QUEUE);
    assert!(queue.unwrap().report(status, &rig.space));
    assert_eq!(rig.space.read_words(place(1)).unwrap(), [0, status.0]);
    assert_eq!(
        rig.space.read_words(place(2)).unwrap(),
        [buffer(2).0, 0],
        "the next one is as it was"
    );
    assert_nothing_beyond(&rig);
}
