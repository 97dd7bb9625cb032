use super::*;
use crate::testing::{QueueParts, complete, sent};
use ringside_bus::Words;
use ringside_spec::lan::transmit::{ContextCommand, kind};
use std::sync::atomic::Ordering;

struct Rig {
    bench: QueueParts,
    queue: TransmitQueue,
    ring: Words,
    pool: PacketPool,
}

impl Rig {
    fn new() -> Self {
        let bench = QueueParts::new();
        let pool = bench.pool(1024);
        let (queue, ring) = bench.transmitter(64, pool.clone(), None);
        Self {
            bench,
            queue,
            ring,
            pool,
        }
    }

    fn send(&mut self, packets: impl IntoIterator<Item = Packet>) -> (usize, Burst) {
        sent(&mut self.queue, packets)
    }

    fn packet(&self, bytes: usize) -> Packet {
        self.pool.packet_with(&vec![1; bytes]).unwrap()
    }

    fn command(&self, index: usize) -> DataCommand {
        DataCommand(self.ring.load(index * 2 + 1))
    }

    fn complete(&self) {
        complete(&self.ring);
    }
}

#[test]
fn the_last_packet_of_a_burst_is_reported_and_all_before_it_come_back() {
    let mut rig = Rig::new();
    let packets: Vec<_> = (0..5).map(|_| rig.packet(60)).collect();
    assert_eq!(rig.send(packets).0, 5);
    assert_eq!(rig.bench.rung(), 5);
    let reported: Vec<bool> = (0..5).map(|at| rig.command(at).report_status()).collect();
    assert_eq!(reported, [false, false, false, false, true]);
    assert_eq!(rig.pool.usage().in_use, 5);
    assert_eq!(rig.queue.reclaim(), 0, "not done yet");
    rig.complete();
    assert_eq!(rig.queue.reclaim(), 5);
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn a_full_ring_leaves_the_rest_with_the_caller() {
    let mut rig = Rig::new();
    let packets: Vec<_> = (0..64).map(|_| rig.packet(60)).collect();
    let (sent, burst) = rig.send(packets);
    assert_eq!(
        (sent, burst.len()),
        (62, 2),
        "room for a context descriptor stays free"
    );
    assert_eq!(rig.queue.counters().ring_full, 1);
    drop(burst);
    rig.complete();
    for _ in 0..10 {
        let packets: Vec<_> = (0..40).map(|_| rig.packet(60)).collect();
        assert_eq!(rig.send(packets).0, 40, "round the ring");
        rig.complete();
    }
    rig.queue.reclaim();
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn packets_that_the_device_cannot_send_are_dropped_and_counted_by_cause() {
    let mut rig = Rig::new();
    let mut nine = rig.packet(30);
    for _ in 0..8 {
        let piece = rig.packet(30);
        nine.chain(piece).unwrap();
    }
    let packets = [
        rig.packet(16),
        rig.packet(9725),
        nine,
        rig.packet(17),
        rig.packet(9720),
    ];
    assert_eq!(rig.send(packets).0, 5);
    let counters = rig.queue.counters();
    assert_eq!(
        (
            counters.too_short,
            counters.too_long,
            counters.too_many_segments,
            counters.packets
        ),
        (1, 1, 1, 2)
    );
    rig.complete();
    rig.queue.reclaim();
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn packets_that_were_dropped_in_the_middle_of_a_burst_are_named() {
    let mut rig = Rig::new();
    let packets = [60, 16, 60, 60, 9725].map(|bytes| rig.packet(bytes));
    let (taken, _) = rig.send(packets);
    assert_eq!((taken, rig.queue.dropped_among(taken)), (5, 0b10010));
    // Of the last call only, and none of those that did not fit.
    let packets = [60, 60].map(|bytes| rig.packet(bytes));
    let (taken, _) = rig.send(packets);
    assert_eq!((taken, rig.queue.dropped_among(taken)), (2, 0));
    let room = usize::from(rig.queue.room());
    let packets: Vec<_> = (0..room + 2)
        .map(|place| rig.packet(if place == 1 { 16 } else { 60 }))
        .collect();
    let (taken, rest) = rig.send(packets);
    assert!(!rest.is_empty());
    assert_eq!(rig.queue.dropped_among(taken), 0b10);
    let (taken, _) = rig.send([]);
    assert_eq!((taken, rig.queue.dropped_among(taken)), (0, 0));
}

#[test]
fn a_shared_chain_goes_out_twice_and_back_once() {
    let mut rig = Rig::new();
    let mut packet = rig.packet(5000);
    let (two, three) = (packet.share(), packet.share());
    assert_eq!(rig.send([packet, two]).0, 2);
    let first = [0, 2, 4].map(|at| rig.ring.load(at));
    let second = [6, 8, 10].map(|at| rig.ring.load(at));
    assert_eq!(first, second, "the same buffers");
    rig.complete();
    rig.queue.reclaim();
    assert_eq!(rig.pool.usage().in_use, 3);
    assert_eq!(three.to_vec(), vec![1; 5000]);
    drop(three);
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn a_shared_chain_of_which_the_ring_has_the_last_handle_goes_back_whole() {
    let mut rig = Rig::new();
    let mut packet = rig.packet(5000);
    let two = packet.share();
    assert_eq!(rig.send([packet, two]).0, 2);
    assert_eq!(rig.pool.usage().in_use, 3);
    rig.complete();
    rig.queue.reclaim();
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn a_packet_of_another_pool_is_copied() {
    let mut rig = Rig::new();
    let other = rig.bench.pool(64);
    let packet = other.packet_with(&[9; 3000]).unwrap();
    assert_eq!(rig.send([packet]).0, 1);
    assert_eq!(other.usage().in_use, 0);
    assert_eq!(rig.pool.usage().in_use, 2);
    assert_eq!(rig.queue.counters().copied, 1);
}

#[test]
fn a_packet_of_another_pool_stays_in_the_burst_while_the_ring_is_full() {
    let mut rig = Rig::new();
    let large = crate::PoolSettings {
        buffers: 32,
        buffer_bytes: 9088,
        headroom_bytes: 128,
    };
    let other = PacketPool::new(&rig.bench.dma, large).unwrap();
    // Of one segment each; their copies take five descriptors, of which the ring has 63.
    let long = vec![9; 9000];
    let packets: Vec<_> = (0..13).map(|_| other.packet_with(&long).unwrap()).collect();
    let (sent, mut burst) = rig.send(packets);
    assert_eq!((sent, burst.len()), (12, 1));
    assert_eq!(rig.pool.usage().in_use, 60, "no buffer was taken for it");
    assert_eq!(rig.queue.drops().packets(), 0);
    assert_eq!(rig.queue.counters().ring_full, 1);
    rig.complete();
    assert_eq!(rig.queue.send(&mut burst), 1);
    assert_eq!(rig.queue.counters().copied, 13);
}

/// Else it would stay at the front of the burst, and nothing behind it would be sent.
#[test]
fn a_packet_of_more_segments_than_the_ring_has_is_dropped() {
    let mut rig = Rig::new();
    let pool = rig.pool.clone();
    let chained = |pieces: usize| {
        let mut packet = pool.packet_with(&[1; 30]).unwrap();
        for _ in 1..pieces {
            packet.chain(pool.packet_with(&[1; 30]).unwrap()).unwrap();
        }
        packet
    };
    let (sent, burst) = rig.send([chained(63), rig.packet(60)]);
    assert_eq!((sent, burst.len()), (2, 0));
    assert_eq!(rig.queue.drops().too_many_segments, 1);
    assert_eq!(rig.queue.counters().packets, 1);
}

#[test]
fn stop_gives_back_what_was_not_reported() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let packets: Vec<_> = (0..7).map(|_| rig.packet(4000)).collect();
        rig.send(packets);
    }
    assert_eq!(rig.pool.usage().in_use, 42);
    rig.queue.stop().unwrap();
    assert_eq!(rig.pool.usage().in_use, 0);
}

#[test]
fn a_failed_device_keeps_what_it_was_given_until_the_reset() {
    let rig = Rig::new();
    let Rig {
        bench,
        mut queue,
        pool,
        ..
    } = rig;
    let mut burst = Burst::default();
    burst.push(pool.packet_with(&[1; 60]).unwrap()).unwrap();
    queue.send(&mut burst);
    bench.service.fail();
    assert!(queue.stop().is_err());
    assert_eq!(queue.state(), QueueState::Lost);
    drop(queue);
    assert_eq!(pool.usage().in_use, 1);
    bench.service.release();
    assert_eq!(pool.usage().in_use, 0);
}

/// The device may read packets of several handles as long: none of their buffers is free, and none
/// is written to.
#[test]
fn a_failed_device_keeps_shared_packets_until_the_reset() {
    let rig = Rig::new();
    let Rig {
        bench,
        mut queue,
        pool,
        ..
    } = rig;
    let mut burst = Burst::default();
    // The handle of the queue is the last one, or another one goes later.
    let mut last = pool.packet_with(&[1; 60]).unwrap();
    drop(last.share());
    let mut chain = pool.packet_with(&[2; 5000]).unwrap();
    let mut other = chain.share();
    for packet in [last, chain] {
        burst.push(packet).unwrap();
    }
    assert_eq!(queue.send(&mut burst), 2);
    bench.service.fail();
    drop(queue);
    assert_eq!((pool.usage().in_use, bench.service.kept_buffers()), (4, 4));
    assert!(other.bytes_mut().is_none(), "the device may read them");
    drop(other);
    assert_eq!((pool.usage().in_use, bench.service.kept_buffers()), (4, 4));
    assert_eq!(bench.service.release(), 4);
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn tags_and_segmentation_are_in_the_descriptors() {
    let mut rig = Rig::new();
    let mut tagged = rig.packet(60);
    tagged.set_vlan(Some(0x6064));
    let mut twice = rig.packet(60);
    twice.set_vlan(Some(5));
    twice.set_outer_vlan(Some(6));
    rig.send([tagged, twice]);
    assert!(rig.command(0).insert_l2tag1());
    assert_eq!(rig.command(0).l2tag1(), 0x6064);
    let context = ContextCommand(rig.ring.load(3));
    assert_eq!(
        (context.kind(), context.insert_l2tag2()),
        (kind::CONTEXT, true)
    );
    assert_eq!(rig.ring.load(2), 6 << 32);
    assert_eq!(rig.command(2).l2tag1(), 5);
}

#[test]
fn a_queue_that_the_device_refuses_is_stopped_and_takes_no_packet() {
    let mut rig = Rig::new();
    rig.queue.stop().unwrap();
    let refuses = &rig.bench.control.refuses_to_start;
    refuses.store(true, Ordering::Relaxed);
    assert!(rig.queue.start().is_err());
    assert_eq!(rig.queue.state(), QueueState::Stopped);
    let packet = rig.packet(60);
    assert_eq!(rig.send([packet]).0, 0);
    rig.bench
        .control
        .refuses_to_start
        .store(false, Ordering::Relaxed);
    rig.queue.start().unwrap();
    let packet = rig.packet(60);
    assert_eq!(rig.send([packet]).0, 1);
}

#[test]
fn a_queue_that_does_not_move_is_noticed_and_one_that_moves_or_idles_is_not() {
    use crate::{Hang, HangWatch};
    use ringside_bus::Instant;
    use std::time::Duration;
    let at = |ms: u64| Instant(ms * 1_000_000);
    let mut rig = Rig::new();
    let mut watch = HangWatch::new(Duration::from_millis(500));
    assert_eq!(watch.look(&mut rig.queue, at(0)), None);
    // An empty queue has not hung, for as long as the driver sends nothing.
    assert_eq!(watch.look(&mut rig.queue, at(10_000)), None);
    let packet = rig.packet(60);
    rig.send([packet]);
    assert_eq!(watch.look(&mut rig.queue, at(10_100)), None);
    assert_eq!(watch.look(&mut rig.queue, at(10_599)), None);
    let hang = Hang {
        descriptors: 1,
        waited: Duration::from_millis(500),
    };
    assert_eq!(watch.look(&mut rig.queue, at(10_600)), Some(hang));
    assert!(hang.to_string().contains("500 ms"), "{hang}");
    // Progress begins the time anew, with as many descriptors as before.
    rig.complete();
    rig.queue.reclaim();
    let packet = rig.packet(60);
    rig.send([packet]);
    assert_eq!(watch.look(&mut rig.queue, at(10_700)), None);
    assert_eq!(watch.look(&mut rig.queue, at(11_199)), None);
    assert!(watch.look(&mut rig.queue, at(11_200)).is_some());
    rig.complete();
    assert_eq!(watch.look(&mut rig.queue, at(20_000)), None);
}

#[test]
fn a_copy_of_a_packet_of_another_pool_keeps_its_requests() {
    let mut rig = Rig::new();
    let other = rig.bench.pool(64);
    let mut frame = vec![0; 60];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    let wanted = crate::TransmitRequest {
        ip_checksum: true,
        ..crate::TransmitRequest::default()
    };
    let sent: Vec<u64> = [rig.pool.clone(), other]
        .into_iter()
        .enumerate()
        .map(|(index, pool)| {
            let mut packet = pool.packet_with(&frame).unwrap();
            packet.offload(wanted).unwrap();
            packet.set_vlan(Some(0x6064));
            assert_eq!(rig.send([packet]).0, 1);
            rig.command(index).0
        })
        .collect();
    assert_eq!(rig.queue.counters().copied, 1);
    assert_eq!(DataCommand(sent[1]).l2tag1(), 0x6064);
    assert_eq!(sent[0], sent[1]);
}

#[test]
fn inserted_tags_count_for_the_longest_frame() {
    let mut rig = Rig::new();
    let mut sends = |bytes, vlan, outer| {
        let mut packet = rig.packet(bytes);
        packet.set_vlan(vlan);
        packet.set_outer_vlan(outer);
        assert_eq!(rig.send([packet]).0, 1);
        rig.queue.counters().too_long
    };
    // 9728 bytes with the frame check sequence.
    assert_eq!(sends(9720, Some(1), None), 0);
    assert_eq!(sends(9721, Some(1), None), 1);
    assert_eq!(sends(9716, Some(1), Some(2)), 1);
    assert_eq!(sends(9717, Some(1), Some(2)), 2);
}

/// Headers of TCP over IPv4, to be cut, with a payload of so many bytes.
fn to_be_cut(rig: &Rig, payload: usize) -> Packet {
    let mut packet = rig.packet(54 + payload);
    let bytes = packet.bytes_mut().unwrap();
    bytes[..54].fill(0);
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[23] = 6;
    bytes[46] = 5 << 4;
    let wanted = crate::TransmitRequest {
        ip_checksum: true,
        layer_4_checksum: true,
        segment_bytes: Some(100),
    };
    packet.offload(wanted).unwrap();
    packet
}

#[test]
fn a_packet_to_be_cut_that_lost_payload_or_headers_is_dropped_as_too_short() {
    let mut rig = Rig::new();
    for kept in [20, 53, 54] {
        let mut packet = to_be_cut(&rig, 1000);
        packet.truncate(kept).unwrap();
        let before = rig.queue.drops().too_short;
        assert_eq!(rig.send([packet]).0, 1);
        assert_eq!(rig.queue.drops().too_short, before + 1, "{kept} bytes");
    }
    let mut summed = to_be_cut(&rig, 1000);
    let wanted = crate::TransmitRequest {
        layer_4_checksum: true,
        ..crate::TransmitRequest::default()
    };
    summed.offload(wanted).unwrap();
    summed.truncate(53).unwrap();
    assert_eq!(rig.send([summed]).0, 1);
    assert_eq!(rig.queue.drops().too_short, 4, "no header to sum");
    let mut split = to_be_cut(&rig, 1);
    split.remove_front(20).unwrap();
    split.chain(rig.packet(100)).unwrap();
    assert_eq!(rig.send([split]).0, 1);
    assert_eq!(rig.queue.drops().too_short, 5, "headers in two segments");
    assert_eq!(rig.queue.counters().packets, 0);
    let mut shorter = to_be_cut(&rig, 1000);
    shorter.truncate(55).unwrap();
    rig.send([shorter]);
    assert_eq!(ContextCommand(rig.ring.load(1)).payload_bytes(), 1);
}

#[test]
fn a_packet_to_be_cut_that_grew_beyond_what_the_device_cuts_is_dropped() {
    let mut rig = Rig::new();
    let large = crate::PoolSettings {
        buffers: 32,
        buffer_bytes: 16256,
        headroom_bytes: 128,
    };
    rig.pool = PacketPool::new(&rig.bench.dma, large).unwrap();
    (rig.queue, rig.ring) = rig.bench.transmitter(64, rig.pool.clone(), None);
    let mut packet = to_be_cut(&rig, 1000);
    // The field of the payload's length has 18 bits.
    for _ in 0..17 {
        packet.chain(rig.packet(16000)).unwrap();
    }
    assert_eq!(rig.send([packet]).0, 1);
    assert_eq!(rig.queue.drops().too_long, 1);
}

/// A packet of TCP whose payload is in buffers of those lengths, to be cut. `beside`: bytes of
/// payload in the buffer of the headers.
fn cut_from(rig: &Rig, beside: usize, buffers: &[usize], cut: u16) -> Packet {
    let mut packet = rig.packet(54 + beside);
    let header = packet.bytes_mut().unwrap();
    header.fill(0);
    header[12..15].copy_from_slice(&[8, 0, 0x45]);
    header[23] = 6;
    header[46] = 5 << 4;
    for bytes in buffers {
        packet.chain(rig.packet(*bytes)).unwrap();
    }
    let total = (packet.length() - 14) as u16;
    packet.bytes_mut().unwrap()[16..18].copy_from_slice(&total.to_be_bytes());
    let wanted = crate::TransmitRequest {
        ip_checksum: true,
        layer_4_checksum: true,
        segment_bytes: Some(cut),
    };
    packet.offload(wanted).unwrap();
    packet
}

/// A frame that the device cuts is gathered from eight buffers at most, that of the headers among
/// them: a cut begins and ends inside buffers.
#[test]
fn segments_gathered_from_too_many_buffers_are_not_sent() {
    let mut rig = Rig::new();
    let cases: [(usize, &[usize], u16, bool); 11] = [
        // Seven of 200 bytes hold 1400, and each frame begins at the begin of a buffer.
        (0, &[200; 14], 1400, true),
        // The second begins in the last byte of one, and touches seven more.
        (0, &[200; 14], 1399, false),
        (0, &[200; 15], 1401, false),
        // Each begins inside one, and touches six more.
        (0, &[200; 14], 1201, true),
        (0, &[300; 12], 1400, true),
        // The last frame is short: what is left are eight bytes in a buffer of their own.
        (0, &[200, 200, 200, 200, 200, 200, 200, 200, 8], 1400, true),
        // Part of the payload is beside the headers: eight buffers, or nine.
        (1, &[200; 8], 1401, true),
        (1, &[200; 8], 1402, false),
        // A frame that begins in the last byte of a buffer: six more, or seven.
        (0, &[100, 1, 1, 1, 1, 1, 1, 1, 1, 100], 99, false),
        (0, &[100, 10, 10, 10, 10, 10, 49, 1, 1, 100], 99, true),
        // Many frames end in one buffer.
        (0, &[1900, 64, 64, 64, 64, 64, 64, 64, 64, 5], 64, true),
    ];
    for (beside, buffers, cut, fits) in cases {
        let before = rig.queue.drops().too_many_segments;
        let packet = cut_from(&rig, beside, buffers, cut);
        assert_eq!(rig.send([packet]).0, 1);
        let refused = rig.queue.drops().too_many_segments - before;
        assert_eq!(
            refused == 0,
            fits,
            "{beside} bytes, then {buffers:?}, cut {cut}"
        );
        rig.complete();
        rig.queue.reclaim();
    }
}

#[test]
fn a_queue_that_was_empty_begins_its_time_anew() {
    use crate::HangWatch;
    use ringside_bus::Instant;
    use std::time::Duration;
    let at = |ms: u64| Instant(ms * 1_000_000);
    let mut rig = Rig::new();
    let mut watch = HangWatch::new(Duration::from_millis(500));
    let packet = rig.packet(60);
    rig.send([packet]);
    assert_eq!(watch.look(&mut rig.queue, at(0)), None);
    // The device reports nothing done: a restart empties the ring.
    rig.queue.restart().unwrap();
    assert_eq!(watch.look(&mut rig.queue, at(400)), None);
    let packet = rig.packet(60);
    rig.send([packet]);
    assert_eq!(watch.look(&mut rig.queue, at(900)), None);
    assert!(watch.look(&mut rig.queue, at(1400)).is_some());
}
