//! Each cause is produced, and only its count moves.

use super::*;
use crate::testing::{QueueParts, Wrote, complete, received, sent};
use crate::{Packet, PacketPool};

/// A change of the counts, by name.
fn changed(before: Drops, after: Drops) -> Vec<(&'static str, u64)> {
    let counts = after.counts().into_iter().zip(before.counts());
    let pairs = Drops::NAMES.into_iter().zip(counts);
    pairs
        .filter(|(_, (after, before))| after != before)
        .map(|(name, (after, before))| (name, after - before))
        .collect()
}

#[test]
fn a_received_packet_that_is_dropped_counts_under_its_cause_alone() {
    let other_profile = {
        let mut wrote = Wrote::bytes(100, true);
        wrote.first = wrote.first.with_profile(22);
        wrote
    };
    let mut six = vec![Wrote::bytes(2048, false); 5];
    six.push(Wrote::bytes(1, true));
    let cases = [
        (vec![Wrote::bytes(60, true)], None),
        (vec![Wrote::bytes(2049, true)], Some("bad_length")),
        (vec![Wrote::bytes(0, true)], Some("bad_length")),
        (vec![other_profile], Some("bad_profile")),
        (six, Some("chain_too_long")),
    ];
    let bench = QueueParts::new();
    let (mut queue, ring) = bench.receiver(64, bench.pool(256), None);
    let mut next = 0;
    for (written, cause) in cases {
        let before = queue.drops();
        for wrote in written {
            wrote.to(&ring, next);
            next += 1;
        }
        let delivered = received(&mut queue).len();
        let expected: Vec<_> = cause.map(|cause| (cause, 1)).into_iter().collect();
        assert_eq!(changed(before, queue.drops()), expected);
        assert_eq!(delivered, usize::from(cause.is_none()));
    }
}

#[test]
fn packets_that_no_one_received_before_the_stop_are_counted_once() {
    let bench = QueueParts::new();
    let (mut queue, ring) = bench.receiver(64, bench.pool(256), None);
    for (at, last) in [true, false, true, false].into_iter().enumerate() {
        Wrote::bytes(2048, last).to(&ring, at);
    }
    for _ in 0..2 {
        queue.stop().unwrap();
        assert_eq!(changed(Drops::default(), queue.drops()), [("unread", 2)]);
    }
    queue.restart().unwrap();
    Wrote::bytes(60, true).to(&ring, 0);
    assert_eq!(received(&mut queue).len(), 1);
    queue.stop().unwrap();
    assert_eq!(queue.drops().packets(), 2, "that one was received");
}

/// A frame from `count` buffers.
fn chained(pool: &PacketPool, count: usize) -> Packet {
    let piece = || pool.packet_with(&[1; 30]).unwrap();
    let mut whole = piece();
    for _ in 1..count {
        whole.chain(piece()).unwrap();
    }
    whole
}

#[test]
fn a_packet_that_is_not_sent_counts_under_its_cause_alone() {
    let bench = QueueParts::new();
    let (own, other) = (bench.pool(256), bench.pool(64));
    let (mut queue, ring) = bench.transmitter(64, own.clone(), None);
    let mut hoard = Vec::new();
    for cause in [
        "",
        "too_short",
        "too_long",
        "too_many_segments",
        "outer_tag_alone",
        "no_buffers",
    ] {
        let packet = match cause {
            "" => own.packet_with(&[1; 60]),
            "too_short" => own.packet_with(&[1; 16]),
            "too_long" => own.packet_with(&[1; 9725]),
            "too_many_segments" => Some(chained(&own, 9)),
            "outer_tag_alone" => own.packet_with(&[1; 60]).map(|mut packet| {
                packet.set_outer_vlan(Some(6));
                packet
            }),
            _ => {
                hoard.extend(std::iter::from_fn(|| own.packet()));
                other.packet_with(&[1; 60])
            }
        };
        let before = (queue.drops(), queue.counters().packets);
        assert_eq!(sent(&mut queue, packet).0, 1);
        let expected: Vec<_> = (!cause.is_empty())
            .then_some((cause, 1))
            .into_iter()
            .collect();
        assert_eq!(changed(before.0, queue.drops()), expected);
        let counted = queue.counters().packets - before.1;
        assert_eq!(counted, u64::from(cause.is_empty()));
        complete(&ring);
        queue.reclaim();
    }
}

#[test]
fn packets_in_the_ring_of_a_queue_that_stops_are_counted_unless_they_were_sent() {
    let bench = QueueParts::new();
    let pool = bench.pool(256);
    let (mut queue, ring) = bench.transmitter(64, pool.clone(), None);
    let small = || pool.packet_with(&[1; 60]).unwrap();
    sent(&mut queue, [small(), small()]);
    complete(&ring);
    sent(&mut queue, [small(), chained(&pool, 3), small()]);
    queue.stop().unwrap();
    assert_eq!(changed(Drops::default(), queue.drops()), [("unsent", 3)]);
    queue.restart().unwrap();
    sent(&mut queue, [small(), small()]);
    complete(&ring);
    queue.stop().unwrap();
    assert_eq!(queue.drops().packets(), 3, "sent, not reclaimed yet");
    queue.restart().unwrap();
    let mut tagged = small();
    tagged.set_vlan(Some(5));
    tagged.set_outer_vlan(Some(6));
    sent(&mut queue, [tagged]);
    queue.stop().unwrap();
    let unsent = queue.drops().unsent;
    assert_eq!(unsent, 4, "a context descriptor is no packet");
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn a_full_ring_drops_nothing() {
    let bench = QueueParts::new();
    let pool = bench.pool(256);
    let (mut queue, _) = bench.transmitter(64, pool.clone(), None);
    let packets: Vec<_> = (0..64)
        .map(|_| pool.packet_with(&[1; 60]).unwrap())
        .collect();
    let (_, rest) = sent(&mut queue, packets);
    assert_eq!((rest.len(), queue.counters().ring_full), (2, 1));
    assert_eq!(queue.drops(), Drops::default(), "the caller has them still");
}
