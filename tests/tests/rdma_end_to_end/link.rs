//! The effects of a link that goes down during a transfer, of congestion, and of a stalled engine.

use ringside_model::{Fault, FunctionSettings, Stepped, World, WorldSettings};
use ringside_pmd::rdma::{Completion, Event, Flags, Status};
use ringside_testkit::{Pair, bring_up, config};
use std::time::Duration;

const LENGTH: usize = 1 << 20;

/// Less than half of the time of seven retries of 67 ms.
const SHORT: Duration = Duration::from_millis(200);

fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|index| (index % 253) as u8).collect()
}

#[test]
fn a_link_that_is_back_in_time_costs_time_and_nothing_else() {
    // A short message may need no frame, once an earlier one has made both addresses known.
    for (function, length) in [(0, LENGTH), (1, LENGTH), (0, 8), (1, 8)] {
        let mut pair = Pair::new();
        let (from, to) = (pair.a.region(LENGTH), pair.b.region(LENGTH));
        assert!(from.write(0, &pattern()));
        let (mut qp, peer) = pair.connect(|config| config.retries(7));
        let (here, there) = (from.slice(0..length).unwrap(), to.remote().at(0));
        for id in 0..2 {
            let first = from.slice(8..16).unwrap();
            qp.write(id, &[first], there, Flags::SIGNALLED).unwrap();
            qp.ring();
            assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
        }
        pair.world
            .with(|world| world.inject(function, Fault::LinkDown));
        for id in 0..4 {
            qp.write(id, &[here], there, Flags::SIGNALLED).unwrap();
        }
        qp.ring();
        pair.world.clock().pause(SHORT);
        let mut batch = [Completion::EMPTY; 16];
        assert!(pair.a.completions.poll(&mut batch).is_empty());
        let mut arrived = vec![0; length];
        assert!(to.read(0, &mut arrived[..8]));
        assert_eq!(arrived[..8], pattern()[8..16], "nothing arrives");
        pair.world.with(|world| world.clear_faults(function));
        for done in pair.wait_a(4) {
            assert_eq!(done.status(), Status::Success);
        }
        assert!(to.read(0, &mut arrived));
        assert!(arrived == pattern()[..length]);
        drop((qp, peer, from, to));
        pair.finish();
    }
}

/// A broadcast of the other end's address from `port`: the switch then knows the address there.
fn speak_for_the_peer(pair: &Pair, port: usize) {
    let peer = FunctionSettings::numbered(1).mac;
    let mut frame = [0; 60];
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&peer);
    // Kind of a packet for experiments.
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    let spoken = |world: &mut World| world.switch().inject_frame(port, &frame);
    pair.world.with(spoken).unwrap();
    pair.pass();
}

#[test]
fn short_messages_follow_the_address_of_their_peer() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    assert!(from.write(0, &pattern()[..4096]));
    let (mut qp, peer) = pair.connect(|config| config.retries(7));
    let there = to.remote().at(0);
    for id in 0..4 {
        let here = from.slice(8 * id..8 * id + 8).unwrap();
        // Nothing gets to an address that the switch knows at the sender's own port.
        let has_moved = id >= 2;
        if has_moved {
            speak_for_the_peer(&pair, 0);
        }
        qp.write(id as u64, &[here], there, Flags::SIGNALLED)
            .unwrap();
        qp.ring();
        if has_moved {
            pair.world.clock().pause(SHORT);
            let mut batch = [Completion::EMPTY; 4];
            assert!(pair.a.completions.poll(&mut batch).is_empty());
            speak_for_the_peer(&pair, 1);
        }
        assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
        let mut arrived = [0; 8];
        assert!(to.read(0, &mut arrived));
        assert_eq!(arrived, pattern()[8 * id..8 * id + 8]);
    }
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_link_that_stays_away_ends_as_retry_exceeded_and_later_connections_work() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (here, there) = (from.slice(0..4096).unwrap(), to.remote().at(0));
    let (mut qp, peer) = pair.connect(|config| config.retries(7));
    pair.world.with(|world| world.inject(1, Fault::LinkDown));
    for id in 0..3 {
        qp.write(id, &[here], there, Flags::SIGNALLED).unwrap();
    }
    qp.ring();
    let (mut done, mut failed) = (Vec::new(), false);
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..100_000 {
        let events = pair.a.events();
        failed |= events.iter().any(|event| {
            matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == qp.number())
        });
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        if done.len() == 3 {
            break;
        }
        pair.pass();
    }
    let ended: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    let flushed = Status::Flushed;
    assert_eq!(
        ended,
        [(0, Status::RetryExceeded), (1, flushed), (2, flushed)]
    );
    assert!(failed, "the event that says so");
    pair.world.with(|world| world.clear_faults(1));
    drop((qp, peer));
    let (mut qp, peer) = pair.connect(|config| config);
    qp.write(9, &[here], there, Flags::SIGNALLED).unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn marked_packets_arrive_and_notifications_affect_no_transfer() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(LENGTH), pair.b.region(LENGTH));
    assert!(from.write(0, &pattern()));
    let mark = Fault::MarkFrames {
        per_million: 300_000,
        seed: 7,
    };
    pair.world.with(|world| world.inject(0, mark));
    // 2: the sender understands marks
    let (mut qp, peer) = pair.connect(|config| config.traffic_class(2));
    let (here, there) = (from.slice(0..LENGTH).unwrap(), to.remote().at(0));
    qp.write(1, &[here], there, Flags::SIGNALLED).unwrap();
    qp.read(2, &[here], there, Flags::SIGNALLED).unwrap();
    qp.ring();
    for done in pair.wait_a(2) {
        assert_eq!(done.status(), Status::Success);
    }
    let mut arrived = vec![0; LENGTH];
    assert!(to.read(0, &mut arrived));
    assert!(arrived == pattern());
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn an_engine_that_stands_still_is_noticed_and_a_reset_brings_it_back() {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let device = bring_up(&world, 0, &config());
    world.with(|world| world.inject(0, Fault::ProtocolEngineStall));
    let error = device.completion_queue(64).unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let device = bring_up(&world, 0, &config());
    let queue = device.completion_queue(64).unwrap();
    drop(queue);
    assert!(device.shutdown().failures.is_empty());
    assert!(world.with(|world| world.breaches(0)).is_empty());
}
