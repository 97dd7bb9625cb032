//! Receives that many queue pairs share.

use ringside_model::Fault;
use ringside_pmd::rdma::{
    Completion, Connected, Flags, MemoryRegion, PostError, QueuePair, QueuePairConfig, RdmaError,
    SharedReceiveConfig, SharedReceiveQueue, Status,
};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::Pair;
use std::collections::BTreeSet;

const SLOT: usize = 64;

/// Both ends of a connection: `a`'s and `b`'s.
type Connection = (QueuePair<Connected>, QueuePair<Connected>);

/// A pair whose `b` has a shared receive queue that feeds this many connections.
fn shared(
    connections: usize,
    config: &SharedReceiveConfig,
) -> (Pair, SharedReceiveQueue, Vec<Connection>) {
    let pair = Pair::new();
    let mut queue = pair.b.domain.shared_receive_queue(config).unwrap();
    let mut made: Vec<_> = (0..connections)
        .map(|_| pair.connect(|config| config))
        .collect();
    for (_, b) in &mut made {
        queue.attach(b).unwrap();
    }
    (pair, queue, made)
}

fn post(queue: &mut SharedReceiveQueue, region: &MemoryRegion, slot: usize) {
    let piece = region.slice(slot * SLOT..(slot + 1) * SLOT).unwrap();
    queue.post(slot as u64, &[piece]).unwrap();
}

/// The device of `b` refuses this command until its faults are cleared.
fn refuse(pair: &Pair, opcode: Opcode) {
    let refusal = Fault::ControlCommandFails {
        opcode: opcode.code(),
        major: 0x1234,
        minor: 0x5678,
    };
    pair.world.with(|world| world.inject(1, refusal));
}

/// Receives that came to `b`, until there are so many.
fn received(pair: &mut Pair, queue: &mut SharedReceiveQueue, count: usize) -> Vec<Completion> {
    let mut found = Vec::new();
    let mut batch = [Completion::EMPTY; 8];
    for _ in 0..2_000 {
        let done = queue.poll(&mut pair.b.completions, &mut batch);
        found.extend(done.iter().filter(|one| !one.is_send()).copied());
        if found.len() >= count {
            return found;
        }
        pair.pass();
    }
    panic!("{count} receives were waited for, {} came", found.len());
}

#[test]
fn sixteen_queue_pairs_receive_from_one_pool_and_every_byte_is_right() {
    let config = SharedReceiveConfig {
        receives: 64,
        fragments: 1,
        window: 3,
    };
    let (mut pair, mut queue, mut connections) = shared(16, &config);
    let (from, at) = (pair.a.region(4096), pair.b.region(64 * SLOT));
    for slot in 0..64 {
        post(&mut queue, &at, slot);
    }
    let error = queue.post(64, &[at.slice(0..8).unwrap()]).unwrap_err();
    assert_eq!(error, PostError::QueueFull);
    let (mut sent, mut seen) = (0_u64, 0);
    for round in 0..40 {
        let burst = 1 + round % 24;
        for _ in 0..burst {
            let offset = (sent % 64) as usize * 8;
            assert!(from.write(offset, &sent.to_le_bytes()));
            let (qp, _) = &mut connections[(sent * 7 % 16) as usize];
            let piece = [from.slice(offset..offset + 8).unwrap()];
            qp.send(sent, &piece, Flags::SIGNALLED).unwrap();
            qp.ring();
            sent += 1;
        }
        for done in received(&mut pair, &mut queue, burst) {
            assert_eq!((done.status(), done.byte_length()), (Status::Success, 8));
            let mut bytes = [0; 8];
            assert!(at.read(done.id as usize * SLOT, &mut bytes));
            let number = u64::from_le_bytes(bytes);
            let (_, member) = &connections[(number * 7 % 16) as usize];
            assert_eq!(done.queue_pair(), member.number());
            post(&mut queue, &at, done.id as usize);
            seen += 1;
        }
        assert_eq!(pair.wait_a(burst).len(), burst);
    }
    assert_eq!((seen, queue.left()), (sent, 64));
    drop((connections, queue, from, at));
    pair.finish();
}

#[test]
fn receives_of_a_failed_queue_pair_serve_the_others_and_are_not_reported() {
    let config = SharedReceiveConfig {
        receives: 16,
        fragments: 1,
        window: 8,
    };
    let (mut pair, mut queue, mut connections) = shared(2, &config);
    let (from, at) = (pair.a.region(64), pair.b.region(16 * SLOT));
    for slot in 0..16 {
        post(&mut queue, &at, slot);
    }
    connections[0].1.fail().unwrap();
    let mut batch = [Completion::EMPTY; 3];
    for _ in 0..20 {
        let done = queue.poll(&mut pair.b.completions, &mut batch);
        assert!(done.is_empty(), "{done:?}");
        pair.pass();
    }
    assert_eq!(queue.left(), 16);
    // All sixteen serve the other one.
    let piece = [from.slice(0..8).unwrap()];
    let mut ids = BTreeSet::new();
    for id in 0..16 {
        connections[1].0.send(id, &piece, Flags::SIGNALLED).unwrap();
        connections[1].0.ring();
        for done in received(&mut pair, &mut queue, 1) {
            assert_eq!(done.status(), Status::Success);
            assert!(ids.insert(done.id));
        }
    }
    assert_eq!((ids.len(), queue.left()), (16, 0));
    drop((connections, queue, from, at));
    pair.finish();
}

#[test]
fn a_destroyed_queue_pair_leaves_its_receives_to_the_others() {
    let config = SharedReceiveConfig {
        receives: 8,
        fragments: 1,
        window: 8,
    };
    let (mut pair, mut queue, mut connections) = shared(2, &config);
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    for slot in 0..8 {
        post(&mut queue, &at, slot);
    }
    // The queue pair that was attached last was fed first.
    let (first, second) = (connections.remove(0), connections.remove(0));
    let before = queue.destroy(first.1).unwrap() + queue.destroy(second.1).unwrap();
    assert_eq!(
        (before >= 6, queue.left(), queue.queue_pairs()),
        (true, 8, 0)
    );
    let (mut qp, mut member) = pair.connect(|config| config);
    queue.attach(&mut member).unwrap();
    let piece = [from.slice(0..8).unwrap()];
    for id in 0..8 {
        qp.send(id, &piece, Flags::SIGNALLED).unwrap();
    }
    qp.ring();
    let ids: BTreeSet<u64> = received(&mut pair, &mut queue, 8)
        .iter()
        .map(|done| done.id)
        .collect();
    assert_eq!(ids.len(), 8);
    drop((first.0, second.0, qp, member, queue, from, at));
    pair.finish();
}

#[test]
fn the_limit_is_an_event_and_misuse_is_refused() {
    let (mut pair, mut queue, mut connections) = shared(1, &SharedReceiveConfig::default());
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    for slot in 0..8 {
        post(&mut queue, &at, slot);
    }
    queue.arm_limit(8);
    assert!(!queue.take_limit_event());
    let piece = [from.slice(0..8).unwrap()];
    let (qp, member) = &mut connections[0];
    qp.send(1, &piece, Flags::SIGNALLED).unwrap();
    qp.ring();
    assert_eq!(
        member.receive(1, &[at.slice(0..8).unwrap()]).unwrap_err(),
        PostError::Shared
    );
    let twice = queue.attach(member).unwrap_err();
    assert!(matches!(twice, RdmaError::Member(_)), "{twice}");
    received(&mut pair, &mut queue, 1);
    assert!(queue.take_limit_event() && !queue.take_limit_event());
    let mut own = pair.b.queue_pair(pair.b.config());
    own.receive(1, &[at.slice(0..8).unwrap()]).unwrap();
    let error = queue.attach(&mut own).unwrap_err();
    assert!(error.to_string().contains("receives of its own"), "{error}");
    own.receive(2, &[at.slice(0..8).unwrap()]).unwrap();
    drop((own, connections, queue, from, at));
    pair.finish();
}

#[test]
fn a_queue_pair_dropped_without_its_shared_queue_keeps_its_rings_until_that_looks() {
    for ends in ["poll", "attach", "drop"] {
        dropped_alone(ends);
    }
}

/// The receives and the number of a queue pair that is dropped alone are free once a poll of the
/// shared queue finds nothing, another one is attached to it, or it is dropped itself.
fn dropped_alone(ends: &str) {
    let config = SharedReceiveConfig {
        receives: 8,
        ..SharedReceiveConfig::default()
    };
    let (mut pair, mut queue, mut connections) = shared(2, &config);
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    let (first, second) = (connections.remove(0), connections.remove(0));
    let number = first.1.number();
    let used = |pair: &Pair| pair.b.device.object_usage().unwrap().queue_pairs.used;
    let before = used(&pair);
    post(&mut queue, &at, 0);
    match ends {
        "attach" => first.1.destroy().expect("its queue takes the rest over"),
        _ => drop(first.1),
    }
    // Its number and memory are not reused while the queue may post there.
    let mut others: Vec<_> = (0..8).map(|_| pair.b.queue_pair(pair.b.config())).collect();
    assert!(others.iter().all(|other| other.number() != number));
    for slot in 1..8 {
        post(&mut queue, &at, slot);
    }
    assert_eq!((queue.left(), queue.queue_pairs()), (8, 2));
    let mut batch = [Completion::EMPTY; 8];
    let shared_left = match ends {
        "poll" => {
            assert!(queue.poll(&mut pair.b.completions, &mut batch).is_empty());
            assert_eq!((queue.left(), queue.queue_pairs()), (8, 1));
            Some(queue)
        }
        "attach" => {
            queue.attach(&mut others[0]).unwrap();
            assert_eq!((queue.left(), queue.queue_pairs()), (8, 2));
            Some(queue)
        }
        _ => {
            drop(queue);
            None
        }
    };
    assert_eq!(used(&pair), before + 8 - 1, "{ends}: its number is free");
    let (mut qp, member) = second;
    if let Some(mut queue) = shared_left {
        // Each receive serves a message to the other one, but for those of one that was attached.
        let messages = if ends == "poll" { 8 } else { 4 };
        let piece = [from.slice(0..8).unwrap()];
        for id in 0..messages {
            qp.send(id, &piece, Flags::SIGNALLED).unwrap();
        }
        qp.ring();
        let ids = received(&mut pair, &mut queue, messages as usize);
        let ids: BTreeSet<u64> = ids.iter().map(|done| done.id).collect();
        assert_eq!(ids.len(), messages as usize, "{ends}: each once");
        drop((others, member, queue));
    } else {
        assert!(member.destroy().is_ok(), "it is no longer fed");
        drop(others);
    }
    drop((first.0, qp, from, at));
    pair.finish();
}

#[test]
fn a_reset_that_loses_its_queue_pair_leaves_the_receives_and_no_write_to_the_freed_ring() {
    let (pair, mut queue, mut connections) = shared(1, &SharedReceiveConfig::default());
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    for slot in 0..8 {
        post(&mut queue, &at, slot);
    }
    let (peer, member) = connections.remove(0);
    refuse(&pair, Opcode::CreateQueuePair);
    let refused = queue.reset(member).unwrap_err();
    assert!(refused.into_queue_pair().is_none());
    pair.world.with(|world| world.clear_faults(1));
    assert_eq!((queue.left(), queue.queue_pairs()), (8, 0));
    // All memory that was freed belongs to others now.
    let others: Vec<_> = (0..256)
        .map(|_| pair.b.device.allocate(4096).unwrap())
        .collect();
    for other in &others {
        assert!(other.fill(0, 4096, 0x11));
    }
    for slot in 0..8 {
        post(&mut queue, &at, slot);
    }
    let mut bytes = [0; 4096];
    for other in &others {
        assert!(other.read(0, &mut bytes));
        assert!(bytes.iter().all(|byte| *byte == 0x11), "{other:?}");
    }
    assert_eq!(queue.left(), 16);
    drop((peer, others, queue, from, at));
    pair.finish();
}

/// The device refuses to destroy it, and may write to its receives.
#[test]
fn receives_of_a_queue_pair_that_the_device_keeps_serve_no_others() {
    let (mut pair, mut queue, mut connections) = shared(1, &SharedReceiveConfig::default());
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    post(&mut queue, &at, 0);
    let (_peer, member) = connections.remove(0);
    refuse(&pair, Opcode::DestroyQueuePair);
    member.destroy().unwrap_err();
    pair.world.with(|world| world.clear_faults(1));
    let (mut qp, mut other) = pair.connect(|config| config);
    queue.attach(&mut other).unwrap();
    assert_eq!((queue.left(), queue.queue_pairs()), (1, 1));
    qp.send(1, &[from.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    for _ in 0..100 {
        pair.pass();
        let mut batch = [Completion::EMPTY; 8];
        assert!(queue.poll(&mut pair.b.completions, &mut batch).is_empty());
    }
    post(&mut queue, &at, 1);
    assert_eq!(received(&mut pair, &mut queue, 1)[0].id, 1);
    drop((qp, other, queue, from, at));
    pair.finish();
}

/// The device may still have the queue pair, and the shared queue outlives the recovery.
#[test]
fn a_queue_pair_whose_destruction_is_not_confirmed_leaves_no_write_to_memory_that_a_reset_freed() {
    let (mut pair, mut queue, mut connections) = shared(1, &SharedReceiveConfig::default());
    let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
    post(&mut queue, &at, 0);
    let (mut peer, member) = connections.remove(0);
    // The next receive takes the place of this one, in the ring of the queue pair.
    peer.send(1, &[from.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    peer.ring();
    assert_eq!(received(&mut pair, &mut queue, 1).len(), 1);
    refuse(&pair, Opcode::DestroyQueuePair);
    member.destroy().unwrap_err();
    pair.world.with(|world| world.clear_faults(1));
    assert_eq!(pair.b.device.quarantine().unwrap().len(), 1);
    let pieces: Vec<_> = (0..8)
        .map(|slot| at.slice(slot * SLOT..(slot + 1) * SLOT).unwrap())
        .collect();
    pair.b.device.give_up().unwrap();
    pair.b.device.recover().unwrap();
    // All memory that was freed belongs to others now.
    let others: Vec<_> = (0..2048)
        .map(|_| pair.b.device.allocate(4096).unwrap())
        .collect();
    for other in &others {
        assert!(other.fill(0, 4096, 0x11));
    }
    for (id, piece) in (0..).zip(pieces) {
        let _ = queue.post(id, &[piece]);
    }
    let mut bytes = [0; 4096];
    for other in &others {
        assert!(other.read(0, &mut bytes));
        assert!(bytes.iter().all(|byte| *byte == 0x11), "{other:?}");
    }
    drop((peer, others, queue, from, at, pair));
}

/// Clients come one after another, after all receives were posted.
#[test]
fn queue_pairs_that_are_attached_late_have_a_receive_while_some_are_unused() {
    let config = SharedReceiveConfig {
        receives: 64,
        ..SharedReceiveConfig::default()
    };
    let (mut pair, mut queue, _) = shared(0, &config);
    let (from, at) = (pair.a.region(64), pair.b.region(64 * SLOT));
    for slot in 0..64 {
        post(&mut queue, &at, slot);
    }
    let piece = [from.slice(0..8).unwrap()];
    let mut connections = Vec::new();
    for client in 0..20 {
        let no_second_try = |config: QueuePairConfig| config.receiver_not_ready_retries(0);
        let (mut near, mut far) = pair.connect(no_second_try);
        queue.attach(&mut far).unwrap();
        near.send(client, &piece, Flags::SIGNALLED).unwrap();
        near.ring();
        let done = pair.wait_a(1);
        assert_eq!(done[0].status(), Status::Success, "client {client}");
        for done in received(&mut pair, &mut queue, 1) {
            post(&mut queue, &at, done.id as usize);
        }
        assert_eq!(queue.left(), 64);
        connections.push((near, far));
    }
    drop((connections, queue, from, at));
    pair.finish();
}

/// Receives that were flushed into a ring which the completion queue has left are outstanding no
/// more, and no completion has told of them.
#[test]
fn receives_flushed_into_a_former_ring_return_when_their_queue_pair_is_destroyed_or_reset() {
    for resets in [false, true] {
        let config = SharedReceiveConfig {
            receives: 16,
            fragments: 1,
            window: 4,
        };
        let (mut pair, mut queue, mut connections) = shared(2, &config);
        let (from, at) = (pair.a.region(64), pair.b.region(8 * SLOT));
        for slot in 0..8 {
            post(&mut queue, &at, slot);
        }
        connections[0].1.fail().unwrap();
        for _ in 0..20 {
            pair.pass();
        }
        pair.b.completions.resize(500).unwrap();
        let (first, failed) = connections.remove(0);
        let failed = match resets {
            true => Some(queue.reset(failed).unwrap()),
            false => {
                assert_eq!(queue.destroy(failed).unwrap(), 4);
                None
            }
        };
        let mut batch = [Completion::EMPTY; 8];
        let found = queue.poll(&mut pair.b.completions, &mut batch);
        assert_eq!((found, queue.left()), (&[][..], 8));
        if let Some(failed) = failed {
            assert_eq!(queue.destroy(failed).unwrap(), 4);
        }
        // All eight serve the other one, each once.
        let piece = [from.slice(0..8).unwrap()];
        let mut ids = BTreeSet::new();
        for id in 0..8 {
            connections[0].0.send(id, &piece, Flags::SIGNALLED).unwrap();
            connections[0].0.ring();
            for done in received(&mut pair, &mut queue, 1) {
                assert_eq!(done.status(), Status::Success);
                assert!(ids.insert(done.id));
            }
        }
        assert_eq!((ids.len(), queue.left()), (8, 0));
        drop((first, connections, queue, from, at));
        pair.finish();
    }
}

/// A queue pair that was reset has its number from before: what is delivered late is not of its new
/// life.
#[test]
fn a_receive_that_failed_before_a_reset_takes_nothing_from_the_queue_pair_after_it() {
    let config = SharedReceiveConfig {
        receives: 8,
        fragments: 1,
        window: 2,
    };
    let (mut pair, mut queue, mut connections) = shared(1, &config);
    let (from, at) = (pair.a.region(4 * SLOT), pair.b.region(8 * SLOT));
    for slot in 0..2 {
        post(&mut queue, &at, slot);
    }
    let (mut qp, member) = connections.remove(0);
    let short = [from.slice(0..8).unwrap()];
    let long = [from.slice(0..4 * SLOT).unwrap()];
    for piece in [short, long] {
        qp.send(1, &piece, Flags::SIGNALLED).unwrap();
    }
    qp.ring();
    // The report of the failure has the receives flushed.
    for _ in 0..20 {
        pair.pass();
        pair.b.events();
    }
    pair.b.completions.resize(500).unwrap();
    let member = queue.reset(member).unwrap();
    let found: Vec<_> = received(&mut pair, &mut queue, 2)
        .iter()
        .map(|done| (done.id, done.status()))
        .collect();
    assert_eq!(found, [(0, Status::Success), (1, Status::LocalLength)]);
    for slot in 0..4 {
        post(&mut queue, &at, slot);
    }
    assert_eq!(queue.left(), 4);
    // As many as its window has places.
    assert_eq!(queue.destroy(member).unwrap(), 2);
    assert_eq!(queue.left(), 4);
    drop((qp, queue, from, at));
    pair.finish();
}
