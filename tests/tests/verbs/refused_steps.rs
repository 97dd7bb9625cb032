//! Steps that the device refuses. After one to RTR or RTS the queue pair is as it was, with its
//! receives; after one to ERROR the device must not write for it any more.

use ringside_model::Fault;
use ringside_pmd::rdma::{
    Access, ConnectError, Destination, Endpoint, Event, Flags, Initialised, QueuePair,
    QueuePairStage, RdmaError, ReceiveAttributes, Receiving, SendAttributes, Status, WindowKind,
};
use ringside_pmd::recovery::FailureCause;
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{Pair, config};

/// Entries of the table of MAC addresses.
const ADDRESSES: u32 = 16;
/// More peers than entries.
const PEERS: u8 = 40;

fn pair() -> Pair {
    let mut config = config();
    config.rdma.arp_entries = ADDRESSES;
    Pair::with(&config)
}

/// Runs `step` while the device of `pair.a` refuses every step of a queue pair.
pub(crate) fn refused<T>(pair: &Pair, step: impl FnOnce() -> T) -> T {
    refuse(pair, Opcode::ModifyQueuePair);
    let result = step();
    pair.world.with(|world| world.clear_faults(0));
    result
}

/// Lets the device of `pair.a` refuse every command of this kind from now on.
fn refuse(pair: &Pair, opcode: Opcode) {
    pair.world.with(|world| {
        world.inject(
            0,
            Fault::ControlCommandFails {
                opcode: opcode.code(),
                major: 0xFFFF,
                minor: 0x8003,
            },
        );
    });
}

#[test]
fn a_queue_pair_that_the_device_does_not_stop_is_destroyed_before_its_requests_complete() {
    let mut pair = pair();
    let error = pair.fail_hindered(|pair| refuse(pair, Opcode::ModifyQueuePair));
    pair.world.with(|world| world.clear_faults(0));
    assert!(matches!(error, RdmaError::Control(_)), "{error}");
    // The device serves others.
    let (from, to) = (pair.b.region(64), pair.a.region(64));
    let (mut qp, mut peer) = pair.connect(|config| config);
    qp.receive(3, &[to.slice(0..64).unwrap()]).unwrap();
    peer.send(4, &[from.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    peer.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_queue_pair_that_the_device_has_destroyed_gets_no_further_commands() {
    let pair = pair();
    let (mut qp, peer) = pair.connect(|config| config);
    let initialised = pair.a.queue_pair(pair.a.config());
    let datagrams = pair.a.domain.datagram_queue_pair(pair.a.config()).unwrap();
    let mut pairs = (initialised, datagrams);
    refused(&pair, || {
        qp.fail().expect_err("the device does not move it");
        pairs.0.fail().expect_err("nor this one");
        pairs.1.fail().expect_err("nor that one");
    });
    let report = qp.query().expect("no command");
    assert_eq!(report.stage, QueuePairStage::Failed);
    assert_eq!(report.protection_domain, pair.a.domain.number());
    assert_eq!(report.peer.map(|one| one.queue_pair), Some(peer.number()));
    let (initialised, datagrams) = pairs;
    let unconnected = initialised.connect(&peer.endpoint()).expect_err("failed");
    let group = "239.1.2.3".parse().unwrap();
    let joined = datagrams.join(group).expect_err("failed");
    let unready = datagrams.ready(7).expect_err("failed");
    for error in [&unconnected.error, &joined, &unready.error] {
        assert!(matches!(error, RdmaError::Failed { .. }), "{error}");
    }
    drop((qp, peer, unconnected, unready));
    pair.finish();
}

#[test]
fn a_device_that_neither_stops_nor_destroys_a_queue_pair_is_taken_out_of_service() {
    let mut pair = pair();
    pair.fail_hindered(|pair| {
        refuse(pair, Opcode::ModifyQueuePair);
        refuse(pair, Opcode::DestroyQueuePair);
    });
    assert_stays(&pair);
}

#[test]
fn a_device_that_keeps_a_queue_pair_whose_owner_destroys_it_is_taken_out_of_service() {
    let pair = pair();
    let (mut qp, peer) = pair.connect(|config| config);
    let to = pair.a.region(64);
    qp.receive(3, &[to.slice(0..64).unwrap()]).unwrap();
    refuse(&pair, Opcode::ModifyQueuePair);
    refuse(&pair, Opcode::DestroyQueuePair);
    drop(qp);
    assert_stays(&pair);
    drop((peer, to));
}

/// Its owner may use the memory of its receives again as soon as the call returns.
#[test]
fn a_device_that_does_not_answer_is_out_of_service_when_a_destroy_returns() {
    let pair = pair();
    let (qp, peer) = pair.connect(|config| config);
    silence(&pair, Opcode::ModifyQueuePair);
    qp.destroy().expect_err("the device is silent");
    assert!(pair.a.device.is_contained());
    drop(peer);
}

#[test]
fn a_window_that_the_device_keeps_is_returned_to_its_owner() {
    let pair = pair();
    let window = pair.a.domain.memory_window(WindowKind::Two).unwrap();
    refuse(&pair, Opcode::DeallocateStag);
    let kept = window.destroy().expect_err("the device refuses");
    assert!(matches!(kept.error, RdmaError::Control(_)), "{kept}");
    pair.world.with(|world| world.clear_faults(0));
    kept.window
        .expect("it is there")
        .destroy()
        .expect("destroyed");
    pair.finish();
}

#[test]
fn a_device_that_does_not_answer_is_out_of_service_when_the_end_of_a_window_returns() {
    let pair = pair();
    let window = pair.a.domain.memory_window(WindowKind::Two).unwrap();
    silence(&pair, Opcode::DeallocateStag);
    let kept = window.destroy().expect_err("the device is silent");
    assert!(kept.window.is_none());
    assert!(pair.a.device.is_contained());
}

#[test]
fn a_device_that_does_not_answer_is_out_of_service_when_a_reregistration_returns() {
    let pair = pair();
    let region = pair.a.region(4096);
    silence(&pair, Opcode::DeallocateStag);
    let refused = region.reregister(&pair.a.domain, Access::ALL);
    assert!(refused.expect_err("the device is silent").region.is_none());
    assert!(pair.a.device.is_contained());
}

fn silence(pair: &Pair, opcode: Opcode) {
    let opcode = opcode.code();
    let fault = Fault::ControlCommandSilent { opcode };
    pair.world.with(|world| world.inject(0, fault));
}

fn assert_stays(pair: &Pair) {
    let events = pair.a.events();
    let failed = events.iter().any(|event| {
        let stays = |cause: &_| matches!(cause, FailureCause::QueuePairStays { .. });
        matches!(event, Event::DeviceFailed { cause } if stays(cause))
    });
    assert!(failed, "{events:?}");
}

fn receive_from(
    qp: QueuePair<Initialised>,
    peer: &Endpoint,
) -> Result<QueuePair<Receiving>, ConnectError> {
    qp.receive_from(&ReceiveAttributes {
        path: Destination::from(peer),
        queue_pair: peer.queue_pair,
        psn: peer.start_psn,
        path_mtu: 1024,
        inbound_reads: 4,
    })
}

#[test]
fn a_queue_pair_whose_connection_the_device_refuses_connects_later_with_its_receives() {
    let mut pair = pair();
    let (from, to) = (pair.b.region(64), pair.a.region(64));
    let mut qp = pair.a.queue_pair(pair.a.config());
    let peer = pair.b.queue_pair(pair.b.config());
    qp.receive(7, &[to.slice(0..64).unwrap()]).unwrap();
    let (mine, its) = (qp.endpoint(), peer.endpoint());
    // Each refusal frees the entry of its peer in the table of MAC addresses.
    for number in 0..PEERS {
        let mut other = its;
        other.mac[5] = number;
        let error = refused(&pair, || qp.connect(&other)).expect_err("the device refuses");
        qp = error.into_queue_pair().expect("as it was");
        assert_eq!(qp.query().unwrap().stage, QueuePairStage::Initialised);
    }
    let qp = qp.connect(&its).expect("a connection");
    let mut peer = peer.connect(&mine).expect("a connection");
    let piece = [from.slice(0..8).unwrap()];
    peer.send(1, &piece, Flags::SIGNALLED).unwrap();
    peer.ring();
    let received = pair.wait_a(1);
    assert_eq!((received[0].id, received[0].status()), (7, Status::Success));
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn each_step_that_the_device_refuses_can_be_taken_again() {
    let pair = pair();
    let qp = pair.a.queue_pair(pair.a.config());
    let peer = pair.b.queue_pair(pair.b.config());
    let wanted = SendAttributes {
        psn: 5,
        retries: 2,
        acknowledge_timeout: 14,
        receiver_not_ready_retries: 7,
        outbound_reads: 1,
    };
    let its = peer.endpoint();
    let error = refused(&pair, || receive_from(qp, &its)).expect_err("RTR is refused");
    let qp = error.into_queue_pair().expect("as it was");
    let qp = receive_from(qp, &its).expect("RTR");
    let error = refused(&pair, || qp.send_from(&wanted)).expect_err("RTS is refused");
    let qp = error.into_queue_pair().expect("as it was");
    assert_eq!(qp.query().unwrap().stage, QueuePairStage::ReadyToReceive);
    let out_of_range = SendAttributes {
        retries: 8,
        ..wanted
    };
    let error = qp.send_from(&out_of_range).expect_err("8 retries");
    let qp = error.into_queue_pair().expect("as it was");
    let qp = qp.send_from(&wanted).expect("RTS");
    assert_eq!(qp.query().unwrap().stage, QueuePairStage::ReadyToSend);

    let datagrams = pair.a.domain.datagram_queue_pair(pair.a.config()).unwrap();
    let error = refused(&pair, || datagrams.ready(7)).expect_err("it is refused");
    let datagrams = error.into_queue_pair().expect("as it was");
    assert_eq!(
        datagrams.query().unwrap().stage,
        QueuePairStage::Initialised
    );
    let datagrams = datagrams.ready(7).expect("ready");
    assert_eq!(
        datagrams.query().unwrap().stage,
        QueuePairStage::ReadyToSend
    );
    drop((qp, peer, datagrams));
    pair.finish();
}

#[test]
fn a_full_table_of_addresses_leaves_the_queue_pair_as_it_was() {
    let pair = pair();
    let qp = pair.a.queue_pair(pair.a.config());
    let peer = pair.b.queue_pair(pair.b.config());
    let mut held = Vec::new();
    for number in 0..PEERS {
        let mut other = peer.endpoint();
        other.mac[5] = number;
        match pair.a.queue_pair(pair.a.config()).connect(&other) {
            Ok(connected) => held.push(connected),
            Err(error) => {
                assert!(error.to_string().contains("ARP"), "{error}");
                error.into_queue_pair().expect("no command was sent");
                break;
            }
        }
    }
    assert!(held.len() < PEERS.into());
    let mut full = peer.endpoint();
    full.mac[5] = 0xFE;
    let error = qp.connect(&full).expect_err("the table is full");
    let qp = error.into_queue_pair().expect("as it was");
    drop(held);
    qp.connect(&peer.endpoint()).expect("there is room again");
    drop(peer);
    pair.finish();
}
