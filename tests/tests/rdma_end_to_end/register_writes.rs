//! The cost of the data path on the bus: register accesses, counted where the driver makes them.

use ringside_bus::{Accesses, CountedFunction};
use ringside_pmd::rdma::{Completion, Flags, Notify};
use ringside_spec::rdma::registers::{
    CQ_ACKNOWLEDGE, DOORBELL_PAGE, DOORBELL_PAGE_ARM, DOORBELL_PAGE_SEND,
};
use ringside_testkit::{Bed, End, Pair, config};
use std::sync::Arc;

const BURST: u64 = 32;

/// A pair whose register accesses are counted.
struct Counted {
    pair: Pair,
    functions: [Arc<CountedFunction>; 2],
}

impl Counted {
    fn new() -> Self {
        let world = Bed::open();
        let functions = [0, 1].map(|index| CountedFunction::new(world.function(index)));
        let end = |index: u16| {
            let function = Arc::clone(&functions[usize::from(index)]);
            End::on(function, index, &config())
        };
        let (a, b) = (end(0), end(1));
        let pair = Pair { world, a, b };
        Self { pair, functions }
    }

    /// The counts of `a` and of `b` since the last time.
    fn take(&self) -> [Accesses; 2] {
        self.functions.each_ref().map(|function| function.take())
    }
}

/// Exactly so many rings of the two doorbells and events acknowledged, and no other access.
fn only(counted: &Accesses, sends: u64, arms: u64, events: u64) {
    let of = |at| counted.written(0, DOORBELL_PAGE + at);
    let found = (of(DOORBELL_PAGE_SEND), of(DOORBELL_PAGE_ARM));
    assert_eq!(found, (sends, arms), "{counted:#x?}");
    assert_eq!(counted.written(0, CQ_ACKNOWLEDGE), events, "{counted:#x?}");
    assert_eq!(counted.all_writes(), sends + arms + events, "{counted:#x?}");
    assert_eq!(counted.all_reads(), 0, "{counted:#x?}");
}

#[test]
fn a_burst_of_posts_is_one_register_write_and_its_completions_are_none() {
    let mut counted = Counted::new();
    let (from, to) = (counted.pair.a.region(4096), counted.pair.b.region(4096));
    let (mut qp, peer) = counted.pair.connect(|config| config.inline_bytes(8));
    let piece = [from.slice(0..8).unwrap()];
    let _ = counted.take();
    for burst in 0..8 {
        for id in 0..BURST {
            let there = to.remote().at(8 * id);
            match id % 3 {
                0 => qp.write(id, &piece, there, Flags::SIGNALLED),
                1 => qp.write_inline(id, &[7; 8], there, None, Flags::SIGNALLED),
                _ => qp.read(id, &piece, there, Flags::SIGNALLED),
            }
            .unwrap();
        }
        qp.ring();
        let done = counted.pair.wait_a(BURST as usize);
        assert!(done.iter().all(Completion::is_success), "burst {burst}");
    }
    let [ours, theirs] = counted.take();
    only(&ours, 8, 0, 0);
    only(&theirs, 0, 0, 0);
    drop((qp, peer, from, to));
    counted.pair.finish();
}

#[test]
fn receives_are_posted_and_completed_without_a_register_write() {
    let mut counted = Counted::new();
    let (from, into) = (counted.pair.a.region(4096), counted.pair.b.region(4096));
    let (mut qp, mut peer) = counted.pair.connect(|config| config);
    let (ours, theirs) = (from.slice(0..8).unwrap(), into.slice(0..64).unwrap());
    let _ = counted.take();
    for _ in 0..4 {
        for id in 0..BURST {
            peer.receive(id, &[theirs]).unwrap();
            qp.send(id, &[ours], Flags::SIGNALLED).unwrap();
        }
        qp.ring();
        let sent = counted.pair.wait_a(BURST as usize);
        let received = counted.pair.wait_b(BURST as usize);
        assert!(sent.iter().chain(&received).all(Completion::is_success));
    }
    let [sender, receiver] = counted.take();
    only(&sender, 4, 0, 0);
    only(&receiver, 0, 0, 0);
    drop((qp, peer, from, into));
    counted.pair.finish();
}

#[test]
fn arming_is_one_register_write_a_batch_when_asked_for_and_taking_its_event_one() {
    let mut counted = Counted::new();
    let (from, to) = (counted.pair.a.region(4096), counted.pair.b.region(4096));
    let (mut qp, peer) = counted.pair.connect(|config| config);
    let piece = [from.slice(0..8).unwrap()];
    let _ = counted.take();
    for round in 0..10 {
        counted.pair.a.completions.arm(Notify::Next);
        for id in 0..BURST {
            qp.write(id, &piece, to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
        }
        qp.ring();
        assert_eq!(counted.pair.wait_a(BURST as usize).len(), BURST as usize);
        let mut queues = Vec::new();
        let device = &counted.pair.a.device;
        device.poll_completion_events(&mut queues).unwrap();
        assert_eq!(queues.len(), 1, "round {round}");
    }
    let [ours, theirs] = counted.take();
    only(&ours, 10, 10, 10);
    only(&theirs, 0, 0, 0);
    drop((qp, peer, from, to));
    counted.pair.finish();
}
