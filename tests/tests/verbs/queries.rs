//! The reports of objects, ports and counters; queue pairs that stop sending for a while.

use ringside_model::Fault;
use ringside_pmd::rdma::{Event, Flags, PortState, QueuePairStage, Status};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AeSource, Opcode};
use ringside_testkit::Pair;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

#[test]
fn a_queue_pair_reports_its_state_and_its_sequence_numbers_advance() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let fresh = pair.a.queue_pair(pair.a.config());
    let report = fresh.query().unwrap();
    assert_eq!(report.stage, QueuePairStage::Initialised);
    assert_eq!(report.peer, None);
    let (mut qp, peer) = pair.connect(|config| config.path_mtu(1024).retries(3));
    let before = qp.query().unwrap();
    assert_eq!(before.stage, QueuePairStage::ReadyToSend);
    assert_eq!((before.path_mtu, before.retries), (1024, 3));
    assert_eq!(before.peer.unwrap().queue_pair, peer.number());
    assert_eq!(before.next_psn, qp.endpoint().start_psn);
    assert_eq!(before.protection_domain, pair.a.domain.number());
    for id in 0..3 {
        let pieces = [from.slice(0..8).unwrap()];
        qp.write(id, &pieces, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
    }
    qp.ring();
    pair.wait_a(3);
    let after = qp.query().unwrap();
    let moved = |new: u32, old: u32| new.wrapping_sub(old) % (1 << 24);
    assert_eq!(moved(after.next_psn, before.next_psn), 3);
    assert_eq!(after.unacknowledged_psn, after.next_psn);
    let theirs = peer.query().unwrap();
    assert_eq!(theirs.expected_psn, after.next_psn);
    qp.fail().unwrap();
    assert_eq!(qp.query().unwrap().stage, QueuePairStage::Failed);
    drop((fresh, qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_drained_queue_pair_receives_and_resumes_sending_at_its_position() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, mut peer) = pair.connect(|config| config);
    let pieces = [from.slice(0..8).unwrap()];
    for round in 0..3 {
        for id in 0..20 {
            qp.write(id, &pieces, to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
        }
        qp.ring();
        let drained = qp.drain().unwrap();
        assert_eq!(drained.query().unwrap().stage, QueuePairStage::Drained);
        let back = [to.slice(0..8).unwrap()];
        peer.write(round, &back, from.remote().at(32), Flags::SIGNALLED)
            .unwrap();
        peer.ring();
        assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
        qp = drained.resume().unwrap();
        qp.write(20, &pieces, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        qp.ring();
        let ids: Vec<u64> = pair.wait_a(21).iter().map(|done| done.id).collect();
        assert_eq!(ids, (0..21).collect::<Vec<_>>());
        assert_eq!(qp.query().unwrap().stage, QueuePairStage::ReadyToSend);
    }
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_queue_pair_that_does_not_drain_in_time_goes_on_sending() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, mut peer) = pair.connect(|config| config.receiver_not_ready_retries(7));
    let pieces = [from.slice(0..8).unwrap()];
    qp.send(1, &pieces, Flags::SIGNALLED).unwrap();
    qp.ring();
    let error = qp.drain().unwrap_err();
    assert!(error.to_string().contains("5000 ms"), "{error}");
    let mut qp = error.into_queue_pair();
    qp.write(2, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    peer.receive(7, &[to.slice(32..64).unwrap()]).unwrap();
    let ids: Vec<u64> = pair.wait_a(2).iter().map(|done| done.id).collect();
    assert_eq!(ids, [1, 2]);
    // And it can be drained now.
    let drained = qp.drain().unwrap();
    assert_eq!(drained.query().unwrap().stage, QueuePairStage::Drained);
    drop((drained, peer, from, to));
    pair.finish();
}

#[test]
fn a_failed_queue_pair_cannot_be_drained_and_is_handed_back() {
    let pair = Pair::new();
    let (mut qp, peer) = pair.connect(|config| config);
    qp.fail().unwrap();
    let error = qp.drain().unwrap_err();
    assert!(error.to_string().contains("has failed"), "{error}");
    drop((error, peer));
    pair.finish();
}

#[test]
fn a_failure_of_another_queue_pair_does_not_end_a_drain_and_is_reported() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut one, first_peer) = pair.connect(|config| config);
    let (mut two, second_peer) = pair.connect(|config| config);
    let pieces = [from.slice(0..8).unwrap()];
    two.receive(7, &pieces).unwrap();
    // The device refuses to flush the one that fails.
    let number = two.number();
    pair.world.with(move |world| {
        world.inject(
            0,
            Fault::ControlCommandFails {
                opcode: Opcode::FlushWorkQueues.code(),
                major: 0xFFFF,
                minor: 0x8003,
            },
        );
        world.inject(
            0,
            Fault::EngineEvent {
                code: AeCode::RemoteOperationError.code(),
                source: AeSource::SendQueue.code(),
                queue_number: number,
            },
        );
    });
    pair.pass();
    one.write(1, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    one.ring();
    let one = one.drain().unwrap().resume().unwrap();
    let failed = |event: &Event| {
        matches!(event, Event::QueuePairFailed { queue_pair, flushed: None, .. }
            if *queue_pair == number)
    };
    let told = pair.a.events();
    assert!(told.iter().any(failed), "{told:?}");
    let mut done: Vec<(u64, Status)> = pair
        .wait_a(2)
        .iter()
        .map(|done| (done.id, done.status()))
        .collect();
    done.sort_by_key(|(id, _)| *id);
    assert_eq!(done, [(1, Status::Success), (7, Status::Flushed)]);
    pair.world.with(|world| world.clear_faults(0));
    drop((one, two, first_peer, second_peer, from, to));
    pair.finish();
}

#[test]
fn a_region_reports_if_its_keys_are_valid() {
    let mut pair = Pair::new();
    let region = pair.a.region(64);
    let (mut qp, peer) = pair.connect(|config| config);
    assert!(region.is_valid().unwrap());
    qp.invalidate(1, region.local_key(), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    assert!(!region.is_valid().unwrap());
    drop((qp, peer, region));
    pair.finish();
}

#[test]
fn a_port_reports_its_state_and_its_limits() {
    let pair = Pair::new();
    let port = pair.a.device.query_port().unwrap();
    assert_eq!(port.state, PortState::Active);
    assert_eq!((port.active_mtu, port.most_mtu), (4096, 4096));
    assert_eq!(port.addresses, pair.a.device.local_addresses().unwrap());
    assert!(port.megabits_per_second.is_some());
    pair.finish();
}

#[test]
fn counters_have_linux_names_and_count_frames() {
    let mut pair = Pair::new();
    let read = |pair: &Pair| -> BTreeMap<&str, u64> {
        let all = pair.a.device.statistics().unwrap();
        let names: BTreeSet<&str> = all.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), all.len(), "a name is there twice");
        all.iter().map(|one| (one.name, one.value)).collect()
    };
    let before = read(&pair);
    assert_eq!(before.len(), 46 + 36);
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config);
    for id in 0..10 {
        let pieces = [from.slice(0..4096).unwrap()];
        qp.write(id, &pieces, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
    }
    qp.ring();
    pair.wait_a(10);
    let after = read(&pair);
    let grown = |name: &str| after[name] - before[name];
    assert_eq!(grown("iwOutRdmaWrites"), 10);
    assert_eq!(grown("iwInRdmaWrites"), 0);
    assert!(grown("TxUDP") >= 10 && grown("RxUDP") >= 1, "{after:?}");
    assert!(grown("tx_bytes.nic") > 10 * 4096, "{after:?}");
    assert!(grown("tx_unicast.nic") >= 10, "{after:?}");
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn a_peers_violations_are_counted_at_the_peer() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    let mut wrong = to.remote();
    wrong.key ^= 1 << 20;
    let pieces = [from.slice(0..8).unwrap()];
    qp.write(1, &pieces, wrong.at(0), Flags::SIGNALLED).unwrap();
    qp.ring();
    for _ in 0..20 {
        pair.pass();
        let _ = (pair.a.events(), pair.b.events());
    }
    assert_eq!(pair.wait_a(1)[0].status(), Status::RemoteAccess);
    let theirs = peer.query().unwrap().faults;
    assert_eq!((theirs.keys, theirs.total()), (1, 1));
    let ours = qp.query().unwrap().faults;
    assert_eq!((ours.refusals, ours.total()), (1, 1));
    drop((qp, peer, from, to));
    pair.finish();
}
