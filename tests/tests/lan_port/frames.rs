//! Frames of all lengths, in order and intact.

use crate::rig::{Flow, Rig, ip_frame, plain_frame, settings};
use ringside_lan::{Packet, QueueState};
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind};
use ringside_pmd::lan::{PortError, PortSettings};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn frames_of_all_lengths_arrive_intact_and_in_order() {
    let mut rig = Rig::new();
    let (to, from) = (rig.b.mac(), rig.a.mac());
    let lengths = [
        60, 61, 64, 127, 1514, 1518, 2048, 2049, 4096, 4097, 6144, 8192, 9000, 9724,
    ];
    let frames: Vec<Vec<u8>> = (0..)
        .zip(lengths)
        .map(|(seed, bytes)| plain_frame(to, from, bytes, seed))
        .collect();
    let packets: Vec<Packet> = frames.iter().map(|frame| rig.a.packet(frame)).collect();
    rig.a.send(packets);
    let found = rig.wait_b(frames.len());
    let found: Vec<Vec<u8>> = found
        .into_iter()
        .map(|(_, packet)| packet.to_vec())
        .collect();
    assert_eq!(found, frames);
    rig.finish();
}

#[test]
fn a_short_frame_is_padded_by_the_device() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 20, 3);
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    let found = rig.wait_b(1);
    let bytes = found[0].1.to_vec();
    assert_eq!((bytes.len(), &bytes[..20]), (60, &frame[..]));
    drop(found);
    rig.finish();
}

#[test]
fn both_directions_go_round_the_rings_many_times() {
    let mut rig = Rig::new();
    let (a, b) = (rig.a.mac(), rig.b.mac());
    let (mut from_a, mut from_b) = (0usize, 0usize);
    for round in 0..60u8 {
        let frames = |to, from| {
            (0..31u8).map(move |one| plain_frame(to, from, 60 + usize::from(one) * 7, round))
        };
        let packets: Vec<_> = frames(b, a).map(|frame| rig.a.packet(&frame)).collect();
        rig.a.send(packets);
        let packets: Vec<_> = frames(a, b).map(|frame| rig.b.packet(&frame)).collect();
        rig.b.send(packets);
        rig.pass();
        for (end, count) in [(&mut rig.a, &mut from_b), (&mut rig.b, &mut from_a)] {
            for (_, packet) in end.poll() {
                let one = *count % 31;
                assert_eq!(packet.length(), 60 + one * 7, "order");
                *count += 1;
            }
        }
    }
    for _ in 0..100 {
        rig.pass();
        from_b += rig.a.poll().len();
        from_a += rig.b.poll().len();
    }
    assert_eq!((from_a, from_b), (60 * 31, 60 * 31));
    let counters = rig.a.open.transmit[0].counters();
    assert_eq!((counters.packets, counters.copied), (60 * 31, 0));
    rig.finish();
}

#[test]
fn headers_in_a_segment_of_their_own_and_a_shared_payload_arrive_as_one_frame() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 1200, 9);
    let mut payload = rig.a.packet(&frame);
    let copy = payload.share();
    let mut chained = rig.a.packet(&frame[..14]);
    let rest = rig.a.packet(&frame[14..]);
    chained.chain(rest).expect("one pool");
    rig.a.send([payload, copy, chained]);
    let found = rig.wait_b(3);
    assert!(found.iter().all(|(_, packet)| packet.to_vec() == frame));
    drop(found);
    rig.finish();
}

/// An MTU of 1500 leaves room for two tags and the frame check sequence: 1526 bytes.
#[test]
fn a_frame_longer_than_the_receiver_takes_is_dropped_and_counted() {
    let small = PortSettings {
        mtu: 1500,
        ..settings()
    };
    let mut rig = Rig::with(&settings(), &small);
    let long = plain_frame(rig.b.mac(), rig.a.mac(), 1523, 1);
    let fits = plain_frame(rig.b.mac(), rig.a.mac(), 1522, 2);
    let packets = [rig.a.packet(&long), rig.a.packet(&fits)];
    rig.a.send(packets);
    let found = rig.wait_b(1);
    assert_eq!(found[0].1.to_vec(), fits);
    drop(found);
    let statistics = rig.b.open.port.statistics().expect("statistics");
    let dropped = statistics.iter().find(|one| one.name == "rx_dropped");
    assert_eq!(dropped.map(|one| one.value), Some(1));
    rig.finish();
}

#[test]
fn frames_without_free_descriptors_are_counted_by_the_device_and_the_rest_arrives() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 60, 1);
    for _ in 0..5 {
        let packets: Vec<_> = (0..50).map(|_| rig.a.packet(&frame)).collect();
        rig.a.send(packets);
        rig.pass();
    }
    let found = rig.wait_b(64);
    let mut count = found.len();
    drop(found);
    for _ in 0..50 {
        rig.pass();
        count += rig.b.poll().len();
    }
    assert_eq!(count, 120, "128 descriptors but for one group of 8");
    let statistics = rig.b.open.port.statistics().expect("statistics");
    let dropped = statistics.iter().find(|one| one.name == "rx_dropped");
    assert_eq!(dropped.map(|one| one.value), Some(250 - 120));
    rig.finish();
}

#[test]
fn queues_stop_and_start_again() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 200, 5);
    for _ in 0..3 {
        let packets: Vec<_> = (0..5).map(|_| rig.a.packet(&frame)).collect();
        rig.a.send(packets);
        assert_eq!(rig.wait_b(5).len(), 5);
        rig.a.open.transmit[0].stop().expect("stopped");
        rig.b.open.receive[0].stop().expect("stopped");
        assert_eq!(rig.a.open.transmit[0].state(), QueueState::Stopped);
        assert_eq!(rig.b.open.pool.usage().in_use, 0);
        rig.a.open.transmit[0].start().expect("started");
        rig.b.open.receive[0].start().expect("started");
    }
    rig.finish();
}

/// Packets that the program holds are missing when the queue starts again.
#[test]
fn a_queue_that_restarts_without_buffers_drops_frames_until_there_are_some() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 200, 5);
    let queue = &mut rig.b.open.receive[0];
    queue.stop().expect("stopped");
    let pool = queue.pool().clone();
    let hoard: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
    queue.start().expect("started");
    assert_eq!(queue.posted(), 0);
    let packets: Vec<_> = (0..5).map(|_| rig.a.packet(&frame)).collect();
    rig.a.send(packets);
    rig.silent_b();
    drop((hoard, pool));
    assert!(rig.b.poll().is_empty(), "posts buffers");
    let packets: Vec<_> = (0..5).map(|_| rig.a.packet(&frame)).collect();
    rig.a.send(packets);
    assert_eq!(rig.wait_b(5).len(), 5);
    rig.finish();
}

#[test]
fn a_function_has_one_port_at_a_time() {
    let rig = Rig::new();
    let again = rig.a.device.open_port(&settings());
    assert_eq!(again.map(|_| ()).unwrap_err(), PortError::AlreadyOpen);
    let Rig { world, a, b } = rig;
    let crate::rig::End { open, device } = a;
    drop(open);
    let open = device.open_port(&settings()).expect("closed before");
    Rig {
        world,
        a: crate::rig::End { open, device },
        b,
    }
    .finish();
}

/// Sets a flag when it goes.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two threads read the counters while frames arrive: a count never jumps by a counter's range.
#[test]
fn statistics_of_two_threads_never_count_a_turn_of_a_register() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 200, 5);
    let port = rig.b.open.port.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                let list = port.statistics().expect("statistics");
                most = most.max(list.iter().map(|one| one.value).max().unwrap_or(0));
            }
            most
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        // Ends the readers, also if this thread panics.
        let ending = Ending(&done);
        for _ in 0..2000 {
            let packet = rig.a.packet(&frame);
            rig.a.send([packet]);
            rig.pass();
            drop(rig.b.poll());
            rig.a.poll();
        }
        drop(ending);
        for reader in readers {
            let most = reader.join().expect("a reader");
            assert!(most < 1 << 30, "{most} bytes or packets of 2000 frames");
        }
    });
    drop(port);
    rig.finish();
}

#[test]
fn statistics_have_the_names_of_ethtool_and_count_sent_packets() {
    let mut rig = Rig::new();
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 500, 5);
    let packets: Vec<_> = (0..7).map(|_| rig.a.packet(&frame)).collect();
    rig.a.send(packets);
    assert_eq!(rig.wait_b(7).len(), 7);
    let value = |end: &crate::rig::End, name: &str| {
        let all = end.open.port.statistics().expect("statistics");
        let found = all.iter().find(|one| one.name == name).map(|one| one.value);
        found.expect(name)
    };
    assert_eq!(value(&rig.a, "tx_unicast"), 7);
    assert_eq!(value(&rig.a, "tx_bytes"), 7 * 500);
    assert_eq!(value(&rig.b, "rx_unicast"), 7);
    assert_eq!(value(&rig.b, "rx_bytes"), 7 * 504);
    assert_eq!(value(&rig.b, "rx_size_511.nic"), 7);
    rig.finish();
}

/// A port of several receive queues whose rings are larger than its pool.
fn with_small_pool(receive_queues: usize, ring: u16, buffers: u32) -> Rig {
    let mut small = settings();
    small.receive_queues = receive_queues;
    small.receive_descriptors = ring;
    small.pool.buffers = buffers;
    Rig::with(&settings(), &small)
}

fn posted(rig: &Rig) -> Vec<u16> {
    rig.b.open.receive.iter().map(|one| one.posted()).collect()
}

#[test]
fn a_small_pool_is_divided_among_the_receive_queues() {
    let rig = with_small_pool(4, 128, 256);
    assert_eq!(posted(&rig), [48; 4]);
    rig.finish();
}

/// All packets go to the last queue, and all queues are polled.
#[test]
fn idle_queues_of_a_small_pool_leave_a_busy_one_its_share() {
    for (queues, ring, buffers) in [(4, 128, 256), (8, 1024, 4096), (2, 1024, 128)] {
        let mut rig = with_small_pool(queues, ring, buffers);
        let share = posted(&rig)[0];
        let rule = FlowRule {
            packets: FlowMatch {
                destination_port: Some(9),
                ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
            },
            target: FlowTarget::Queue(queues as u16 - 1),
            mark: None,
            count: false,
        };
        rig.b.open.port.add_rule(&rule).expect("room");
        let flow = Flow {
            v6: false,
            protocol: 17,
            ports: (1, 9),
        };
        let frame = ip_frame(rig.b.mac(), rig.a.mac(), flow, b"payload");
        for _ in 0..buffers / 2 {
            let packets: Vec<_> = (0..4).map(|_| rig.a.packet(&frame)).collect();
            rig.a.send(packets);
            let found = rig.wait_b(4);
            assert!(found.iter().all(|(queue, _)| *queue == queues - 1));
            rig.a.poll();
        }
        let posted = posted(&rig);
        assert!(posted.iter().all(|one| *one <= share), "{posted:?}");
        rig.finish();
    }
}

/// A program may speak first: it has buffers although nothing has arrived.
#[test]
fn a_small_pool_keeps_buffers_to_send_from() {
    for (ring, buffers) in [(128, 64), (64, 64), (1024, 1000), (1024, 1024)] {
        let mut rig = with_small_pool(1, ring, buffers);
        for _ in 0..100 {
            rig.b.poll();
        }
        let all = std::iter::from_fn(|| rig.b.open.pool.packet());
        let free = all.collect::<Vec<_>>().len() as u32;
        assert_eq!(free, (buffers / 4).min(128), "{buffers} buffers");
        rig.finish();
    }
}
