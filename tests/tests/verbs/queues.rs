//! Completion queues that are armed, shared, resized and overrun; events polled and by interrupt.

use ringside_pmd::rdma::{
    Completion, CompletionQueue, Connected, Event, Flags, MemoryRegion, Notify, QueuePair,
    QueuePairConfig, RdmaError, Status,
};
use ringside_testkit::Pair;
use std::time::Duration;

/// Long enough for a descriptor that is readable already.
const SHORT: Duration = Duration::from_millis(200);

fn write(qp: &mut QueuePair<Connected>, id: u64, from: &MemoryRegion, to: &MemoryRegion) {
    let pieces = [from.slice(0..8).unwrap()];
    qp.write(id, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
}

fn poll(queue: &mut CompletionQueue) -> Vec<Completion> {
    let mut batch = [Completion::EMPTY; 64];
    queue.poll(&mut batch).to_vec()
}

fn events(pair: &Pair) -> Vec<u32> {
    let mut queues = Vec::new();
    pair.a.device.poll_completion_events(&mut queues).unwrap();
    queues
}

#[test]
fn an_armed_queue_raises_the_interrupt_once_and_names_itself() {
    let mut pair = Pair::new();
    let interrupts = pair.a.device.interrupts().unwrap();
    let taken = pair.a.device.interrupts().unwrap_err();
    assert_eq!(taken, RdmaError::InterruptTaken);
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    for round in 0..5 {
        pair.a.completions.arm(Notify::Next);
        assert!(!interrupts.wait(Duration::ZERO).unwrap(), "round {round}");
        write(&mut qp, round, &from, &to);
        pair.pass();
        assert!(interrupts.wait(SHORT).unwrap(), "round {round}");
        assert_eq!(events(&pair), [pair.a.completions.number()]);
        assert_eq!(poll(&mut pair.a.completions).len(), 1);
        // Not armed: the next one comes quietly.
        write(&mut qp, 100, &from, &to);
        pair.pass();
        assert!(!interrupts.wait(Duration::ZERO).unwrap(), "round {round}");
        assert!(events(&pair).is_empty());
        assert_eq!(poll(&mut pair.a.completions).len(), 1);
    }
    drop(interrupts);
    // Free again.
    drop(pair.a.device.interrupts().unwrap());
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn events_can_be_polled_without_an_interrupt_and_solicited_ones_alone() {
    let mut pair = Pair::new();
    let (from, to) = (pair.b.region(64), pair.a.region(64));
    let (mut qp, mut peer) = pair.connect(|config| config);
    for id in 0..2 {
        qp.receive(id, &[to.slice(0..64).unwrap()]).unwrap();
    }
    pair.a.completions.arm(Notify::Solicited);
    let pieces = [from.slice(0..8).unwrap()];
    peer.send(1, &pieces, Flags::NONE).unwrap();
    peer.ring();
    pair.pass();
    assert!(events(&pair).is_empty());
    peer.send(2, &pieces, Flags::SOLICITED | Flags::SIGNALLED)
        .unwrap();
    peer.ring();
    pair.pass();
    assert_eq!(events(&pair), [pair.a.completions.number()]);
    let done = poll(&mut pair.a.completions);
    assert_eq!((done.len(), done[1].is_solicited()), (2, true));
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_queue_resized_under_traffic_loses_nothing_and_keeps_the_order() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    let (mut next, mut seen) = (0, 0);
    for (round, size) in [1000, 300, 260, 5000, 256].into_iter().enumerate() {
        for _ in 0..100 {
            write(&mut qp, next, &from, &to);
            next += 1;
        }
        pair.pass();
        let mut few = [Completion::EMPTY; 7];
        for _ in 0..round {
            for done in pair.a.completions.poll(&mut few) {
                assert_eq!((done.id, done.status()), (seen, Status::Success));
                seen += 1;
            }
        }
        pair.a.completions.resize(size).unwrap();
        write(&mut qp, next, &from, &to);
        next += 1;
        let left = (next - seen) as usize;
        for done in pair.wait_a(left) {
            assert_eq!((done.id, done.status()), (seen, Status::Success));
            seen += 1;
        }
        let report = pair.a.completions.query().unwrap();
        assert_eq!(report.slots as usize, pair.a.completions.slots());
        assert_eq!(report.users, 2);
    }
    assert_eq!(seen, next);
    // Arming works in the new ring.
    pair.a.completions.arm(Notify::Next);
    write(&mut qp, next, &from, &to);
    pair.pass();
    assert_eq!(events(&pair), [pair.a.completions.number()]);
    assert_eq!(poll(&mut pair.a.completions).len(), 1);
    let error = pair.a.completions.resize(0).unwrap_err();
    assert!(
        matches!(error.error, RdmaError::OutOfRange { .. }),
        "{error}"
    );
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_request_for_an_event_outlives_a_resize_with_its_kind() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    for (id, resizes) in (0..).zip([1, 2, 3, 4, 5, 8]) {
        pair.a.completions.arm(Notify::Next);
        for round in 0..resizes {
            pair.a.completions.resize(300 + round).unwrap();
            // A request for less than what was requested before changes nothing.
            pair.a.completions.arm(Notify::Solicited);
        }
        write(&mut qp, id, &from, &to);
        pair.pass();
        let number = pair.a.completions.number();
        assert_eq!(events(&pair), [number], "after {resizes} resizes");
        assert_eq!(poll(&mut pair.a.completions).len(), 1);
        write(&mut qp, id, &from, &to);
        pair.pass();
        assert!(events(&pair).is_empty(), "one event for all requests");
        assert_eq!(poll(&mut pair.a.completions).len(), 1);
    }
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn requests_outstanding_over_a_resize_and_a_failure_complete_exactly_once() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    for id in 0..50 {
        write(&mut qp, id, &from, &to);
    }
    pair.pass();
    qp.fail().unwrap();
    pair.a.completions.resize(500).unwrap();
    let mut ids: Vec<u64> = pair.wait_a(50).iter().map(|done| done.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<_>>());
    pair.pass();
    assert!(poll(&mut pair.a.completions).is_empty());
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_queue_that_overflows_is_reported_and_each_request_still_completes_exactly_once() {
    let pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let mut small = pair.a.device.completion_queue(1).unwrap();
    let config = QueuePairConfig::reliable(&small);
    let a = pair.a.queue_pair(config);
    let b = pair.b.queue_pair(pair.b.config());
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut qp, peer) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    for id in 0..40 {
        write(&mut qp, id, &from, &to);
    }
    for _ in 0..10 {
        pair.pass();
    }
    let reported = pair.a.events();
    let failed = reported.iter().find_map(|event| match event {
        Event::CompletionQueueFailed {
            completion_queue, ..
        } => Some(*completion_queue),
        _ => None,
    });
    assert_eq!(failed, Some(small.number()), "{reported:?}");
    assert!(qp.has_failed() && small.query().unwrap().failed);
    let mut done = Vec::new();
    for _ in 0..20 {
        done.extend(poll(&mut small));
        pair.pass();
    }
    let ids: Vec<u64> = done.iter().map(|one| one.id).collect();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    let count = |status: Status| done.iter().filter(|one| one.status() == status).count();
    assert!(count(Status::Success) >= 1, "{done:?}");
    assert!(count(Status::Flushed) >= 30, "{done:?}");
    drop((qp, peer, from, to, small));
    // The program's mistake is no breach of the driver.
    assert_eq!(pair.world.with(|world| world.breaches(0)), []);
    let remarks = pair.world.with(|world| world.remarks(0));
    let kinds: Vec<_> = remarks.iter().map(|remark| remark.kind).collect();
    assert_eq!(kinds, ["a completion queue has overflown"]);
    let Pair { a, b, .. } = pair;
    for end in [a, b] {
        drop((end.completions, end.domain));
        let report = end.device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    }
}

#[test]
fn eight_queue_pairs_share_a_queue_and_each_completion_names_its_queue_pair() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let mut pairs: Vec<_> = (0..8).map(|_| pair.connect(|config| config)).collect();
    for (id, (qp, _)) in pairs.iter_mut().enumerate() {
        write(qp, id as u64, &from, &to);
    }
    let done = pair.wait_a(8);
    for one in &done {
        let (qp, _) = &pairs[one.id as usize];
        assert_eq!(one.queue_pair(), qp.number());
    }
    assert_eq!(pair.a.completions.query().unwrap().users, 16);
    drop((pairs, from, to));
    pair.finish();
}

#[test]
fn a_queue_pair_refused_for_one_completion_queue_does_not_use_the_other() {
    let pair = Pair::new();
    let used = || {
        let usage = pair.a.device.object_usage().unwrap();
        usage.completion_queues.used
    };
    let before = used();
    let sends = pair.a.device.completion_queue(64).unwrap();
    let receives = pair.a.device.completion_queue(64).unwrap();
    let gone = receives.target();
    drop(receives);
    let config = QueuePairConfig::reliable(&sends).receives_report_to(gone);
    let refused = pair.a.domain.queue_pair(config).unwrap_err();
    assert!(matches!(refused, RdmaError::Gone { .. }), "{refused}");
    drop(sends);
    assert_eq!(used(), before);
    pair.finish();
}

#[test]
fn a_request_of_the_host_for_the_device_is_an_event_in_each_life_and_ends_with_the_device() {
    let mut pair = Pair::new();
    let request = |pair: &Pair| pair.world.with(|world| world.request_release(0));
    let polled = |pair: &Pair| {
        let mut events = Vec::new();
        let count = pair.a.device.poll_events(&mut events).unwrap();
        assert_eq!(count, events.len());
        events
    };
    for _ in 0..2 {
        assert_eq!(polled(&pair), []);
        assert!(request(&pair), "not connected");
        // The host asks again until it has the device.
        assert!(request(&pair));
        assert_eq!(polled(&pair), [Event::ReleaseRequested]);
        assert_eq!(polled(&pair), []);
        pair.a.device.give_up().unwrap();
        pair.a.device.recover().unwrap();
        pair.a.domain = pair.a.device.protection_domain().unwrap();
        pair.a.completions = pair.a.device.completion_queue(256).unwrap();
        // The failure, reported in the next life.
        assert_eq!(polled(&pair).len(), 1);
    }
    let Pair { world, a, b } = pair;
    drop((a.domain, a.completions));
    let report = a.device.shutdown();
    assert!(report.failures.is_empty(), "{report:?}");
    assert!(!world.with(|world| world.request_release(0)));
    drop(b);
}
