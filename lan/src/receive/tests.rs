use super::*;
use crate::PoolSettings;
use crate::testing::{QueueParts, Wrote, received};
use ringside_bus::Words;
use ringside_spec::lan::receive::WriteBack3;

struct Rig {
    bench: QueueParts,
    queue: ReceiveQueue,
    ring: Words,
    next: usize,
}

const DESCRIPTORS: u16 = 64;

impl Rig {
    fn new() -> Self {
        let bench = QueueParts::new();
        let (queue, ring) = bench.receiver(DESCRIPTORS, bench.pool(256), None);
        Self {
            bench,
            queue,
            ring,
            next: 0,
        }
    }

    fn write(&mut self, wrote: Wrote) {
        wrote.to(&self.ring, self.next);
        self.next = (self.next + 1) % usize::from(DESCRIPTORS);
    }

    fn receive(&mut self) -> Vec<Packet> {
        received(&mut self.queue)
    }

    /// Everything that the pool has handed out is in the ring.
    fn nothing_is_lost(&self) {
        let in_use = self.queue.pool().usage().in_use;
        assert_eq!(in_use, u32::from(self.queue.posted()));
    }
}

#[test]
fn a_ring_is_posted_but_for_one_group_and_the_tail_is_a_multiple_of_eight() {
    let rig = Rig::new();
    assert_eq!(rig.queue.posted(), DESCRIPTORS - 8);
    assert_eq!(rig.bench.rung(), 56);
}

#[test]
fn what_the_descriptor_says_is_in_the_packet() {
    let mut rig = Rig::new();
    let mut wrote = Wrote::bytes(100, true);
    wrote.status = wrote
        .status
        .with_checksums_checked(true)
        .with_layer_4_checksum_error(true)
        .with_hash_valid(true)
        .with_hash(0xDEAD_BEEF)
        .with_l2tag1_present(true)
        .with_l2tag1(0x2064);
    wrote.tags = wrote.tags.with_l2tag2_present(true).with_l2tag2_second(7);
    wrote.flow = wrote.flow.with_flow_id(0x1234);
    rig.write(wrote);
    let packets = rig.receive();
    let [packet] = &packets[..] else {
        panic!("{packets:?}")
    };
    assert_eq!((packet.length(), packet.packet_type()), (100, 24));
    assert_eq!(packet.hash(), Some(0xDEAD_BEEF));
    assert_eq!(
        (packet.vlan(), packet.outer_vlan()),
        (Some(7), Some(0x2064))
    );
    assert_eq!(packet.mark(), Some(0x1234));
    assert!(packet.flags().layer_4_checksum_wrong() && !packet.flags().ip_checksum_wrong());
}

#[test]
fn checksums_of_outer_headers_count_and_those_behind_ipv6_extensions_do_not() {
    let mut rig = Rig::new();
    let checked = WriteBack1::ZERO.with_checksums_checked(true);
    let outer_udp = checked.with_outer_udp_checksum_error(true);
    let both = checked
        .with_ip_checksum_error(true)
        .with_layer_4_checksum_error(true);
    // In a tunnel or not; checked, wrong header of IP, wrong layer 4
    let cases = [
        (false, checked, (true, false, false)),
        (
            false,
            checked.with_outer_ip_checksum_error(true),
            (true, true, false),
        ),
        (false, outer_udp, (true, false, false)),
        (true, outer_udp, (true, false, true)),
        (false, both, (true, true, true)),
        (false, both.with_ipv6_extension(true), (false, false, false)),
        (
            false,
            both.with_checksums_checked(false),
            (false, false, false),
        ),
    ];
    for (tunnel, status, expected) in cases {
        let mut wrote = Wrote::bytes(100, true);
        wrote.status = WriteBack1(wrote.status.0 | status.0);
        wrote.tags = wrote.tags.with_tunnel(tunnel);
        rig.write(wrote);
        let flags = rig.receive()[0].flags();
        let found = (
            flags.checksums_checked(),
            flags.ip_checksum_wrong(),
            flags.layer_4_checksum_wrong(),
        );
        assert_eq!(found, expected, "{tunnel} {status:?}");
    }
}

#[test]
fn one_tag_is_found_in_either_place() {
    let mut rig = Rig::new();
    let mut first = Wrote::bytes(60, true);
    first.status = first.status.with_l2tag1_present(true).with_l2tag1(5);
    let mut second = Wrote::bytes(60, true);
    second.tags = second.tags.with_l2tag2_present(true).with_l2tag2_second(6);
    rig.write(first);
    rig.write(second);
    let tags: Vec<_> = rig.receive().iter().map(Packet::vlan).collect();
    assert_eq!(tags, [Some(5), Some(6)]);
}

#[test]
fn buffers_of_a_frame_become_one_packet_also_across_bursts() {
    let mut rig = Rig::new();
    rig.write(Wrote::bytes(2048, false));
    rig.write(Wrote::bytes(2048, false));
    assert!(rig.receive().is_empty());
    rig.write(Wrote::bytes(10, true));
    rig.write(Wrote::bytes(64, true));
    let packets = rig.receive();
    let sizes: Vec<_> = packets
        .iter()
        .map(|one| (one.segment_count(), one.length()))
        .collect();
    assert_eq!(sizes, [(3, 4106), (1, 64)]);
    drop(packets);
    rig.nothing_is_lost();
}

#[test]
fn hostile_descriptors_are_counted_and_cost_no_buffer() {
    let mut rig = Rig::new();
    // longer than its buffer; of another profile; empty; each with a rest that is skipped
    rig.write(Wrote::bytes(2049, true));
    rig.write(Wrote::bytes(0x3FFF, false));
    rig.write(Wrote::bytes(100, true));
    let mut other = Wrote::bytes(100, true);
    other.first = other.first.with_profile(22);
    rig.write(other);
    rig.write(Wrote::bytes(0, true));
    rig.write(Wrote::bytes(0, false));
    rig.write(Wrote::bytes(100, true));
    // a chain of six
    for _ in 0..5 {
        rig.write(Wrote::bytes(2048, false));
    }
    rig.write(Wrote::bytes(1, true));
    rig.write(Wrote::bytes(77, true));
    let packets = rig.receive();
    let lengths: Vec<_> = packets.iter().map(Packet::length).collect();
    assert_eq!(lengths, [77], "only what follows is sound");
    drop(packets);
    let counters = rig.queue.counters();
    assert_eq!(
        (
            counters.bad_length,
            counters.bad_profile,
            counters.chain_too_long
        ),
        (4, 1, 1)
    );
    rig.nothing_is_lost();
}

#[test]
fn the_buffers_before_a_wrong_one_do_not_reach_the_next_packet() {
    let mut rig = Rig::new();
    for bytes in [2049, 0x3FFF] {
        rig.write(Wrote::bytes(2048, false));
        rig.write(Wrote::bytes(bytes, true));
        rig.write(Wrote::bytes(64, true));
        let packets = rig.receive();
        let sizes = packets
            .iter()
            .map(|one| (one.segment_count(), one.length()));
        assert_eq!(sizes.collect::<Vec<_>>(), [(1, 64)]);
    }
    rig.nothing_is_lost();
}

#[test]
fn what_came_of_a_packet_before_a_stop_does_not_reach_those_after_the_start() {
    // A packet whose end has not come, and one whose rest is dropped.
    for bytes in [2048, 2049] {
        let mut rig = Rig::new();
        rig.write(Wrote::bytes(bytes, false));
        assert!(rig.receive().is_empty());
        rig.queue.restart().unwrap();
        rig.next = 0;
        rig.write(Wrote::bytes(64, true));
        let lengths: Vec<_> = rig.receive().iter().map(Packet::length).collect();
        assert_eq!(lengths, [64], "after {bytes} bytes");
        rig.nothing_is_lost();
    }
}

#[test]
fn polls_that_find_nothing_and_those_that_fill_the_burst_are_counted() {
    let mut rig = Rig::new();
    let mut burst = Burst::with_limit(2);
    for _ in 0..5 {
        rig.write(Wrote::bytes(64, true));
    }
    for found in [2, 2, 1, 0] {
        assert_eq!(rig.queue.receive(&mut burst), found);
        burst.clear();
    }
    let counters = rig.queue.counters();
    let polls = (counters.polls, counters.full_polls, counters.empty_polls);
    assert_eq!(polls, (4, 2, 1));
    assert_eq!((counters.packets, counters.bytes), (5, 320));
}

#[test]
fn a_chain_without_end_takes_no_more_than_the_ring() {
    let mut rig = Rig::new();
    for _ in 0..500 {
        rig.write(Wrote::bytes(2048, false));
        assert!(rig.receive().is_empty());
    }
    assert_eq!(rig.queue.counters().chain_too_long, 1);
    rig.nothing_is_lost();
}

#[test]
fn a_last_buffer_without_bytes_is_left_out() {
    let mut rig = Rig::new();
    rig.write(Wrote::bytes(2048, false));
    rig.write(Wrote::bytes(0, true));
    let packets = rig.receive();
    assert_eq!(packets.len(), 1);
    assert_eq!((packets[0].segment_count(), packets[0].length()), (1, 2048));
}

/// All 64 bits of each word at random: for any descriptors, nothing panics, no buffer is lost, and
/// no packet is longer than its buffers.
#[test]
fn random_descriptors_lose_no_buffer() {
    use rand::{Rng, SeedableRng};
    for seed in 0..200 {
        let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
        let mut rig = Rig::new();
        for _ in 0..300 {
            for _ in 0..random.random_range(0..12) {
                let sound = Wrote::bytes(random.random_range(0..2100), random.random());
                let wrote = match random.random_range(0..4) {
                    0 => Wrote {
                        first: WriteBack0(random.random()),
                        status: WriteBack1(random.random::<u64>() | 1),
                        tags: WriteBack2(random.random()),
                        flow: WriteBack3(random.random()),
                    },
                    _ => sound,
                };
                rig.write(wrote);
            }
            for packet in rig.receive() {
                assert!(
                    packet.length() <= packet.segment_count() * 2048,
                    "seed {seed}"
                );
                assert_eq!(packet.to_vec().len(), packet.length());
            }
            // The device overtakes the driver's tail only in this test.
            rig.next = usize::from(rig.queue.head);
        }
        drop(rig.queue.partial.take());
        rig.nothing_is_lost();
    }
}

#[test]
fn a_dry_pool_is_counted_and_the_queue_goes_on_when_buffers_come_back() {
    let mut rig = Rig::new();
    let mut held = hoard(rig.queue.pool());
    for _ in 0..56 {
        rig.write(Wrote::bytes(64, true));
    }
    let packets = rig.receive();
    assert_eq!((packets.len(), rig.queue.posted()), (56, 0));
    assert!(rig.queue.counters().no_buffers > 0);
    assert!(
        rig.receive().is_empty(),
        "old descriptors are not taken twice"
    );
    held.clear();
    drop(packets);
    assert!(rig.receive().is_empty());
    assert_eq!(rig.queue.posted(), 56);
    rig.write(Wrote::bytes(64, true));
    assert_eq!(rig.receive().len(), 1);
}

/// All buffers that the pool has.
fn hoard(pool: &PacketPool) -> Vec<Packet> {
    std::iter::from_fn(|| pool.packet()).collect()
}

#[test]
fn arming_posts_buffers_that_have_come_back_although_the_ring_still_has_some() {
    let mut rig = Rig::new();
    let held = hoard(rig.queue.pool());
    for _ in 0..54 {
        rig.write(Wrote::bytes(64, true));
    }
    assert_eq!((rig.receive().len(), rig.queue.posted()), (54, 2));
    drop(held);
    assert_eq!(rig.queue.arm(), Ok(Arming::Armed));
    assert_eq!(rig.queue.posted(), 56);
}

/// A frame of 9728 bytes fills five buffers of 2048 bytes. Of 45 descriptors the device reads 40.
#[test]
fn a_ring_without_room_for_the_longest_frame_is_not_slept_on() {
    for (buffers, buffer_bytes, needed) in
        [(56, 2048, 5), (45, 2048, 5), (56, 4096, 3), (56, 9728, 1)]
    {
        let bench = QueueParts::new();
        let settings = PoolSettings {
            buffers,
            buffer_bytes,
            ..PoolSettings::default()
        };
        let pool = PacketPool::new(&bench.dma, settings).unwrap();
        let (mut queue, ring) = bench.receiver(DESCRIPTORS, pool, None);
        assert_eq!(u32::from(queue.posted()), buffers);
        let usable = bench.rung() as usize;
        let mut packets = Vec::new();
        for at in 0..usable {
            let expected = match usable - at >= needed {
                true => Arming::Armed,
                false => Arming::PollAgain,
            };
            assert_eq!(
                queue.arm(),
                Ok(expected),
                "{at} of {usable}, {buffer_bytes} bytes"
            );
            Wrote::bytes(64, true).to(&ring, at);
            packets.extend(received(&mut queue));
        }
        assert_eq!(packets.len(), usable);
        assert_eq!(queue.arm(), Ok(Arming::PollAgain));
    }
}

#[test]
fn queues_that_share_a_small_pool_have_their_shares_after_stops_and_starts() {
    let bench = QueueParts::new();
    let pool = bench.pool(200);
    let mut queues = Vec::new();
    for _ in 0..4 {
        let (mut queue, _) = bench.receiver(DESCRIPTORS, pool.clone(), None);
        queue.stop().unwrap();
        queue.start_with(50).unwrap();
        queues.push(queue);
    }
    let posted = |queues: &[ReceiveQueue]| queues.iter().map(ReceiveQueue::posted).collect();
    let all: Vec<u16> = posted(&queues);
    assert_eq!(all, [50; 4]);
    for queue in &mut queues {
        queue.stop().unwrap();
    }
    for queue in &mut queues {
        queue.start().unwrap();
    }
    let all: Vec<u16> = posted(&queues);
    assert_eq!(all, [50; 4]);
    queues[0].restart().unwrap();
    assert_eq!(queues[0].posted(), 50);
}

/// Packets come to one of two queues, and both are polled: the idle one leaves it its share.
#[test]
fn an_idle_queue_takes_no_buffers_beyond_its_share() {
    let bench = QueueParts::new();
    let pool = bench.pool(160);
    let [(mut busy, ring), (mut idle, _)] =
        [(); 2].map(|()| bench.receiver(DESCRIPTORS * 2, pool.clone(), None));
    for (queue, share) in [(&mut busy, 60), (&mut idle, 1)] {
        queue.stop().unwrap();
        queue.start_with(share).unwrap();
    }
    let mut at = 0;
    for round in 0..500 {
        for _ in 0..4 {
            Wrote::bytes(64, true).to(&ring, at);
            at = (at + 1) % usize::from(DESCRIPTORS * 2);
        }
        assert_eq!(received(&mut busy).len(), 4, "round {round}: {busy:?}");
        assert!(received(&mut idle).is_empty());
        let posted = (busy.posted(), idle.posted());
        assert!(posted.0 > 60 - 32 && posted.0 <= 60, "{posted:?}");
        assert_eq!(posted.1, 48, "the least share");
    }
    assert_eq!(busy.counters().no_buffers, 0);
    // A running queue keeps the share that it has started with.
    busy.start_with(48).unwrap();
    assert!(received(&mut busy).is_empty() && busy.posted() > 60 - 32);
    busy.restart().unwrap();
    assert_eq!(busy.posted(), 48);
}

#[test]
fn stop_gives_every_buffer_back_and_start_begins_anew() {
    let mut rig = Rig::new();
    rig.write(Wrote::bytes(2048, false));
    rig.receive();
    rig.queue.stop().unwrap();
    assert_eq!(rig.queue.pool().usage().in_use, 0);
    assert!(rig.receive().is_empty());
    rig.queue.start().unwrap();
    rig.next = 0;
    rig.write(Wrote::bytes(64, true));
    assert_eq!(rig.receive().len(), 1);
}

#[test]
fn a_queue_that_the_device_does_not_give_up_keeps_its_buffers_until_the_reset() {
    let rig = Rig::new();
    let Rig { bench, queue, .. } = rig;
    let pool = queue.pool().clone();
    bench.service.fail();
    drop(queue);
    assert_eq!(
        pool.usage().in_use,
        56,
        "the device may still write to them"
    );
    assert_eq!(bench.service.kept_buffers(), 56);
    assert_eq!(bench.service.release(), 56);
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn a_queue_that_the_device_refuses_is_stopped_and_starts_later() {
    let mut rig = Rig::new();
    rig.queue.stop().unwrap();
    let refuses = &rig.bench.control.refuses_to_start;
    refuses.store(true, Ordering::Relaxed);
    assert!(rig.queue.start().is_err());
    assert_eq!(rig.queue.state(), QueueState::Stopped);
    assert_eq!(rig.queue.pool().usage().in_use, 0);
    refuses.store(false, Ordering::Relaxed);
    rig.queue.start().unwrap();
    rig.nothing_is_lost();
}

#[test]
fn a_lost_queue_does_not_start_over_buffers_that_the_device_may_fill() {
    let mut rig = Rig::new();
    let posted = rig.queue.posted();
    let refuses = &rig.bench.control.refuses_to_stop;
    refuses.store(true, Ordering::Relaxed);
    assert!(rig.queue.stop().is_err());
    assert!(rig.queue.start().is_err(), "the device has not let go");
    assert_eq!(rig.queue.state(), QueueState::Lost);
    assert_eq!(rig.queue.posted(), posted);
    refuses.store(false, Ordering::Relaxed);
    rig.queue.start().unwrap();
    assert_eq!(rig.queue.state(), QueueState::Running);
    rig.nothing_is_lost();
}

#[test]
fn a_pool_that_runs_short_leaves_the_tail_at_a_multiple_of_eight() {
    let bench = QueueParts::new();
    let (queue, _ring) = bench.receiver(DESCRIPTORS, bench.pool(45), None);
    assert_eq!((queue.posted(), bench.rung()), (45, 40));
}

/// The device uses what lies before the tail: descriptors of an earlier run have no address.
#[test]
fn a_queue_that_starts_without_buffers_takes_the_old_tail_back() {
    let mut rig = Rig::new();
    assert_eq!(rig.bench.rung(), 56);
    rig.queue.stop().unwrap();
    let held = hoard(rig.queue.pool());
    assert_eq!(rig.queue.pool().usage().in_use, 256);
    rig.queue.start().unwrap();
    assert_eq!((rig.queue.posted(), rig.bench.rung()), (0, 0));
    drop(held);
    assert!(rig.receive().is_empty());
    assert_eq!((rig.queue.posted(), rig.bench.rung()), (56, 56));
}

#[test]
fn results_of_checksums_that_were_not_checked_and_flow_zero_say_nothing() {
    let mut rig = Rig::new();
    let mut wrote = Wrote::bytes(60, true);
    wrote.status = wrote
        .status
        .with_ip_checksum_error(true)
        .with_layer_4_checksum_error(true);
    wrote.flow = WriteBack3::ZERO;
    rig.write(wrote);
    let packets = rig.receive();
    let flags = packets[0].flags();
    assert!(!flags.checksums_checked());
    assert!(!flags.ip_checksum_wrong() && !flags.layer_4_checksum_wrong());
    assert_eq!(packets[0].mark(), None);
}

/// A thread writes descriptors while the driver polls: each is whole when it is delivered. The done
/// bit, which the device writes last, has to be read first.
#[test]
fn a_descriptor_that_is_written_during_a_poll_is_whole_or_not_there() {
    use std::sync::atomic::AtomicUsize;
    const COUNT: usize = 8_000;
    /// Polls of a thread until it lets the other one run.
    const SPINS: usize = 256;
    for one_by_one in [true, false] {
        let bench = QueueParts::new();
        let path = Some(PacketPath::Scalar);
        let (mut queue, ring) = bench.receiver(DESCRIPTORS, bench.pool(256), path);
        queue.one_by_one = one_by_one;
        let taken = AtomicUsize::new(0);
        let length = |number: usize| 17 + number % 2000;
        let wait = |spins: &mut usize| {
            *spins += 1;
            if spins.is_multiple_of(SPINS) {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    // The driver polls this very descriptor.
                    let mut spins = 0;
                    while number > taken.load(Ordering::Acquire) {
                        wait(&mut spins);
                    }
                    let mut wrote = Wrote::bytes(length(number) as u64, true);
                    wrote.status = wrote.status.with_hash_valid(true);
                    wrote.status = wrote.status.with_hash(number as u64);
                    wrote.flow = wrote.flow.with_flow_id(number as u64 + 1);
                    wrote.to(&ring, number % usize::from(DESCRIPTORS));
                }
            });
            let (mut next, mut spins) = (0, 0);
            while next < COUNT {
                let packets = received(&mut queue);
                if packets.is_empty() {
                    wait(&mut spins);
                }
                let counters = *queue.counters();
                let dropped = (counters.bad_length, counters.bad_profile);
                let seen: Vec<_> = packets
                    .iter()
                    .map(|one| (one.length(), one.hash(), one.mark()))
                    .collect();
                let expected: Vec<_> = (next..next + packets.len())
                    .map(|number| {
                        let (hash, mark) = (number as u32, number as u32 + 1);
                        (length(number), Some(hash), Some(mark))
                    })
                    .collect();
                next += packets.len();
                let sound = dropped == (0, 0) && seen == expected;
                // The device's thread ends in any case.
                taken.store(if sound { next } else { COUNT }, Ordering::Release);
                assert_eq!(dropped, (0, 0), "one by one: {one_by_one}");
                assert_eq!(seen, expected, "one by one: {one_by_one}");
            }
        });
    }
}
