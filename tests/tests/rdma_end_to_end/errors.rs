//! Errors of users and of peers: a clear message, nothing lost, and the process continues.

use ringside_pmd::lan::PortSettings;
use ringside_pmd::rdma::{
    Access, Completion, Event, Flags, PostError, QueuePairConfig, RdmaError, RemoteAddress, Status,
};
use ringside_testkit::{End, Pair, config};

/// Runs the world, with events polled on both ends, until `a` has `count` completions.
fn wait_with_events(pair: &mut Pair, count: usize) -> (Vec<Completion>, Vec<Event>, Vec<Event>) {
    let (mut done, mut at_a, mut at_b) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..200_000 {
        at_a.extend(pair.a.events());
        at_b.extend(pair.b.events());
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        if done.len() >= count {
            return (done, at_a, at_b);
        }
        pair.pass();
    }
    panic!("{count} completions were waited for, only {done:?} came; events {at_a:?}, {at_b:?}");
}

#[test]
fn a_wrong_remote_key_fails_the_oldest_request_with_the_reason_and_flushes_the_rest() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config);
    let fragment = from.slice(0..64).unwrap();
    let good = to.remote().at(0);
    let wrong = RemoteAddress {
        key: good.key ^ 0x0100_0000,
        ..good
    };
    qp.write(1, &[fragment], good, Flags::SIGNALLED).unwrap();
    qp.write(2, &[fragment], wrong, Flags::SIGNALLED).unwrap();
    qp.write(3, &[fragment], good, Flags::NONE).unwrap();
    qp.write(4, &[fragment], good, Flags::SIGNALLED).unwrap();
    qp.ring();
    let (done, at_a, _) = wait_with_events(&mut pair, 4);
    let ended: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    assert_eq!(
        ended,
        [
            (1, Status::Success),
            (2, Status::RemoteAccess),
            (3, Status::Flushed),
            (4, Status::Flushed),
        ]
    );
    assert!(
        at_a.iter().any(|event| matches!(event,
            Event::QueuePairFailed { queue_pair, .. } if *queue_pair == qp.number())),
        "{at_a:?}"
    );
    let refused = qp
        .write(5, &[fragment], good, Flags::SIGNALLED)
        .unwrap_err();
    assert_eq!(refused, PostError::Failed);
    drop((qp, peer));
    // The same devices serve a new connection.
    let (mut qp, peer) = pair.connect(|config| config);
    qp.write(6, &[fragment], good, Flags::SIGNALLED).unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_send_without_a_receive_ends_as_receiver_not_ready() {
    let mut pair = Pair::new();
    let from = pair.a.region(4096);
    let (mut qp, peer) = pair.connect(|config| config.receiver_not_ready_retries(2));
    qp.send(1, &[from.slice(0..64).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    let (done, ..) = wait_with_events(&mut pair, 1);
    assert_eq!(
        (done[0].id, done[0].status()),
        (1, Status::ReceiverNotReady)
    );
    drop((qp, peer, from));
    pair.finish();
}

#[test]
fn a_message_longer_than_the_receive_fails_on_both_sides() {
    let mut pair = Pair::new();
    let (from, into) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, mut peer) = pair.connect(|config| config);
    peer.receive(7, &[into.slice(0..16).unwrap()]).unwrap();
    qp.send(1, &[from.slice(0..64).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    let (done, ..) = wait_with_events(&mut pair, 1);
    assert_eq!(done[0].id, 1);
    assert!(!done[0].status().is_success(), "{:?}", done[0].status());
    let received = pair.wait_b(1);
    assert_eq!(
        (received[0].id, received[0].status()),
        (7, Status::LocalLength)
    );
    drop((qp, peer, from, into));
    pair.finish();
}

#[test]
fn a_peer_that_does_not_respond_ends_as_retry_exceeded() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config.retries(2));
    peer.destroy().unwrap();
    qp.write(
        1,
        &[from.slice(0..8).unwrap()],
        to.remote().at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    let (done, ..) = wait_with_events(&mut pair, 1);
    assert_eq!((done[0].id, done[0].status()), (1, Status::RetryExceeded));
    drop((qp, from, to));
    pair.finish();
}

/// One write over a connection on a VLAN; its status.
fn write_on_vlan(pair: &mut Pair, tag: Option<u16>) -> Status {
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let config = |end: &End| {
        let config = end.config().retries(1);
        match tag {
            Some(tag) => config.vlan_tag(tag),
            None => config,
        }
    };
    let a = pair.a.queue_pair(config(&pair.a));
    let b = pair.b.queue_pair(config(&pair.b));
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut a, b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    let piece = from.slice(0..64).unwrap();
    a.write(1, &[piece], to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let status = wait_with_events(pair, 1).0[0].status();
    drop((a, b, from, to));
    status
}

/// The switch prunes by VLAN before a packet reaches the LAN or the RDMA engine. Source:
/// `reference/e810-lan.md` on rules of the prune type.
#[test]
fn a_port_that_filters_by_vlan_keeps_rdma_of_other_vlans_out() {
    let mut pair = Pair::new();
    let open = pair.b.device.open_port(&PortSettings::default()).unwrap();
    assert_eq!(write_on_vlan(&mut pair, Some(0x6005)), Status::Success);
    open.port.add_vlan(7).unwrap();
    assert_eq!(
        write_on_vlan(&mut pair, Some(0x6005)),
        Status::RetryExceeded
    );
    assert_eq!(write_on_vlan(&mut pair, None), Status::Success);
    open.port.add_vlan(5).unwrap();
    assert_eq!(write_on_vlan(&mut pair, Some(0x6005)), Status::Success);
    assert!(open.port.remove_vlan(5).unwrap());
    assert_eq!(write_on_vlan(&mut pair, Some(5)), Status::RetryExceeded);
    assert!(open.port.remove_vlan(7).unwrap());
    assert_eq!(write_on_vlan(&mut pair, Some(5)), Status::Success);
    drop(open);
    pair.finish();
}

#[test]
fn a_local_range_outside_of_its_region_is_refused_before_the_device_sees_it() {
    let pair = Pair::new();
    let region = pair.a.region(4096);
    assert!(region.slice(4000..4097).is_err());
    assert!(region.slice(std::ops::Range { start: 8, end: 7 }).is_err());
    assert!(region.slice(4096..4096).is_ok());
    drop(region);
    pair.finish();
}

#[test]
fn a_local_buffer_without_the_right_fails_as_local_protection() {
    let mut pair = Pair::new();
    let to = pair.b.region(4096);
    let buffer = pair.a.device.allocate(4096).unwrap();
    let read_only = pair.a.domain.register(buffer, Access::LOCAL_READ).unwrap();
    let (mut qp, peer) = pair.connect(|config| config);
    qp.read(
        1,
        &[read_only.slice(0..8).unwrap()],
        to.remote().at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    let (done, ..) = wait_with_events(&mut pair, 1);
    assert_eq!((done[0].id, done[0].status()), (1, Status::LocalProtection));
    drop((qp, peer, read_only, to));
    pair.finish();
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let pair = Pair::new();
    let refuse = |config: QueuePairConfig| pair.a.domain.queue_pair(config).unwrap_err();
    assert_eq!(
        refuse(pair.a.config().path_mtu(1500)),
        RdmaError::Mtu { given: 1500 }
    );
    let error = refuse(pair.a.config().receive_fragments(14));
    assert!(
        matches!(error, RdmaError::OutOfRange { most: 13, .. }),
        "{error}"
    );
    let error = refuse(pair.a.config().send_requests(100_000));
    assert!(matches!(error, RdmaError::OutOfRange { .. }), "{error}");
    let error = pair.a.device.completion_queue(0).unwrap_err();
    assert!(
        matches!(error, RdmaError::OutOfRange { least: 1, .. }),
        "{error}"
    );
    let error = pair.a.domain.queue_pair(pair.b.config()).unwrap_err();
    assert_eq!(error, RdmaError::ForeignQueue);
    pair.finish();
}

#[test]
fn when_all_queue_pairs_are_in_use_the_setting_to_raise_is_named() {
    let mut config = config();
    config.rdma.queue_pairs = 2;
    config.rdma.completion_queues = 2;
    let pair = Pair::with(&config);
    let both = [(); 2].map(|()| pair.a.queue_pair(pair.a.config()));
    let error = pair.a.domain.queue_pair(pair.a.config()).unwrap_err();
    assert!(error.to_string().contains("rdma.queue_pairs"), "{error}");
    let _second = pair.a.device.completion_queue(1).unwrap();
    let error = pair.a.device.completion_queue(1).unwrap_err();
    assert!(
        error.to_string().contains("rdma.completion_queues"),
        "{error}"
    );
    drop((both, _second));
    pair.finish();
}

#[test]
fn a_queue_pair_that_is_failed_on_purpose_flushes_its_requests() {
    let mut pair = Pair::new();
    let into = pair.a.region(4096);
    let (mut qp, peer) = pair.connect(|config| config);
    for id in 0..3 {
        qp.receive(id, &[into.slice(0..64).unwrap()]).unwrap();
    }
    qp.fail().unwrap();
    let done = pair.wait_a(3);
    let ended: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    assert_eq!(
        ended,
        [
            (0, Status::Flushed),
            (1, Status::Flushed),
            (2, Status::Flushed)
        ]
    );
    drop((qp, peer, into));
    pair.finish();
}

#[test]
fn sends_without_completion_that_had_succeeded_are_not_flushed() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config);
    let fragment = from.slice(0..64).unwrap();
    qp.receive(9, &[fragment]).unwrap();
    for id in 0..3 {
        let remote = to.remote().at(0);
        qp.write(id, &[fragment], remote, Flags::NONE).unwrap();
    }
    qp.ring();
    // A read behind them ends after all of them.
    qp.read(3, &[fragment], to.remote().at(64), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1).first().map(|done| done.id), Some(3));
    for id in 4..7 {
        let remote = to.remote().at(0);
        qp.write(id, &[fragment], remote, Flags::NONE).unwrap();
    }
    qp.ring();
    for _ in 0..2000 {
        pair.pass();
    }
    qp.fail().unwrap();
    let done = pair.wait_a(1);
    let ended: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    assert_eq!(ended, [(9, Status::Flushed)]);
    for _ in 0..100 {
        pair.pass();
    }
    let mut batch = [Completion::EMPTY; 16];
    assert!(pair.a.completions.poll(&mut batch).is_empty());
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_completion_queue_that_overflows_is_reported() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let small = pair.a.device.completion_queue(1).unwrap();
    let qp = pair.a.queue_pair(QueuePairConfig::reliable(&small));
    let peer = pair.b.queue_pair(pair.b.config());
    let (to_a, to_b) = (qp.endpoint(), peer.endpoint());
    let (mut qp, peer) = (qp.connect(&to_b).unwrap(), peer.connect(&to_a).unwrap());
    for id in 0..64 {
        qp.write(
            id,
            &[from.slice(0..8).unwrap()],
            to.remote().at(0),
            Flags::SIGNALLED,
        )
        .unwrap();
    }
    qp.ring();
    let mut events = Vec::new();
    for _ in 0..1000 {
        pair.pass();
        events.extend(pair.a.events());
    }
    let number = small.number();
    assert!(
        events.iter().any(|event| matches!(event,
            Event::CompletionQueueFailed { completion_queue, .. } if *completion_queue == number)),
        "{events:?}"
    );
    // The breach is the test's own; the other queues continue.
    drop((qp, peer, small));
    let (mut qp, peer) = pair.connect(|config| config);
    qp.write(
        6,
        &[from.slice(0..8).unwrap()],
        to.remote().at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
}

#[test]
fn requests_of_a_queue_pair_end_even_if_the_engine_stops_answering_and_their_memory_is_at_rest() {
    let silent = ringside_model::Fault::ControlCommandSilent {
        opcode: ringside_spec::rdma::commands::Opcode::ModifyQueuePair.code(),
    };
    // The device does not know of the failure.
    let error = Pair::new().fail_hindered(|pair| {
        pair.world.with(|world| world.inject(0, silent));
    });
    assert!(matches!(error, RdmaError::Control(_)), "{error}");
}
