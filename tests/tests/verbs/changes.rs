//! Changes to queue pairs that send already, and sending that is stopped and resumed in place.

use crate::refused_steps::refused;
use ringside_pmd::rdma::{
    Access, ConnectionChange, Event, Flags, QueuePairStage, RdmaError, Status,
};
use ringside_testkit::Pair;
use std::time::Duration;

#[test]
fn fewer_retries_and_a_shorter_wait_take_effect_on_a_connection_in_use() {
    for stopped in [false, true] {
        let mut pair = Pair::new();
        let (from, to) = (pair.a.region(64), pair.b.region(64));
        let (mut qp, peer) = pair.connect(|config| config.retries(7));
        let piece = [from.slice(0..8).unwrap()];
        qp.write(1, &piece, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        qp.ring();
        assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
        let wanted = ConnectionChange {
            retries: Some(1),
            acknowledge_timeout: Some(12),
            receiver_not_ready_retries: Some(3),
            ..ConnectionChange::default()
        };
        let switch = qp.send_switch();
        if stopped {
            switch.stop().unwrap();
            switch.stop().expect("it has stopped");
        }
        qp.change(&wanted).unwrap();
        if stopped {
            assert_eq!(qp.query().unwrap().retries, 7, "it has not resumed yet");
            switch.resume().unwrap();
        }
        let report = qp.query().unwrap();
        assert_eq!(report.stage, QueuePairStage::ReadyToSend);
        let retries = (report.retries, report.receiver_not_ready_retries);
        assert_eq!((retries, report.retransmission_timeout), ((1, 3), 2));
        // 27 ms, twice; with the old values it would take half a second.
        drop(peer);
        let clock = pair.world.clock();
        let begun = clock.now();
        qp.write(2, &piece, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        qp.ring();
        let failed = |event: &Event| matches!(event, Event::QueuePairFailed { .. });
        while !pair.a.events().iter().any(failed) {
            pair.pass();
            let waited = clock.now().since(begun);
            assert!(waited < Duration::from_millis(100), "{waited:?}");
        }
        assert_eq!(pair.wait_a(1)[0].status(), Status::RetryExceeded);
        drop((qp, from, to));
        pair.finish();
    }
}

#[test]
fn a_change_that_is_refused_leaves_the_old_values() {
    let pair = Pair::new();
    let (mut qp, peer) = pair.connect(|config| config.retries(5));
    let wanted = ConnectionChange {
        remote_access: Some(Access::LOCAL_READ),
        retries: Some(8),
        ..ConnectionChange::default()
    };
    let error = qp.change(&wanted).unwrap_err();
    assert!(matches!(error, RdmaError::OutOfRange { .. }), "{error}");
    let wanted = ConnectionChange {
        retries: Some(2),
        ..wanted
    };
    refused(&pair, || qp.change(&wanted)).expect_err("the device refuses");
    // What the device reads with the next commands is what it had.
    let switch = qp.send_switch();
    switch.stop().unwrap();
    switch.resume().unwrap();
    let report = qp.query().unwrap();
    assert_eq!(report.retries, 5);
    assert!(report.reads_allowed);
    drop((qp, peer));
    pair.finish();
}

#[test]
fn a_switch_of_a_queue_pair_that_was_reset_or_has_failed_is_refused() {
    let pair = Pair::new();
    let (qp, mut peer) = pair.connect(|config| config);
    let (one, other) = (qp.send_switch(), peer.send_switch());
    let again = qp.reset().unwrap();
    for error in [one.stop().unwrap_err(), one.resume().unwrap_err()] {
        assert!(matches!(error, RdmaError::Gone { .. }), "{error}");
    }
    peer.fail().unwrap();
    let error = other.stop().unwrap_err();
    assert!(matches!(error, RdmaError::Failed { .. }), "{error}");
    drop((again, peer));
    pair.finish();
}

/// The device reports the failure before the reset; the program takes reports after it.
#[test]
fn a_failure_before_a_reset_does_not_fail_the_queue_pair_after_it() {
    let pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    let piece = [from.slice(0..8).unwrap()];
    let target = to.remote().at(0);
    drop(to);
    qp.write(1, &piece, target, Flags::SIGNALLED).unwrap();
    qp.ring();
    for _ in 0..100 {
        pair.pass();
    }
    let number = qp.number();
    let again = qp.reset().unwrap();
    assert_eq!(again.number(), number);
    let names_it = |event: &Event| matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == number);
    let events = pair.a.events();
    assert!(!events.iter().any(names_it), "{events:?}");
    assert_eq!(again.query().unwrap().stage, QueuePairStage::Initialised);
    drop((again, peer, from));
    pair.finish();
}

#[test]
fn a_datagram_queue_pair_stops_and_takes_another_key() {
    let pair = Pair::new();
    let made = pair.a.domain.datagram_queue_pair(pair.a.config()).unwrap();
    let mut ready = made.ready(7).unwrap();
    ready.set_queue_key(8).unwrap();
    assert_eq!(
        (ready.queue_key(), ready.query().unwrap().queue_key),
        (8, 8)
    );
    let switch = ready.send_switch();
    switch.stop().unwrap();
    assert_eq!(ready.query().unwrap().stage, QueuePairStage::Drained);
    ready.set_queue_key(9).unwrap();
    switch.resume().unwrap();
    assert_eq!(ready.query().unwrap().queue_key, 9);
    drop(ready);
    pair.finish();
}
