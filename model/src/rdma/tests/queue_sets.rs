//! Queue sets that do not send.

use super::rig::Rig;
use ringside_spec::rdma::commands::*;

const SILENT: &str = "a queue set that does not send";
const GONE: &str = "a queue set without a leaf";
const NOT_GIVEN: &str = "RDMA queue set that WORK_SCHED_NODE did not give";

/// Takes queue pair 3 of side 0 to RTS with a queue set.
fn connect_through(rig: &mut Rig, queue_set_handle: u16) {
    let cq = rig.cq(0, 3, 64);
    let qp = rig.qp(0, 3, &cq);
    let words = rig.get::<32>(0, qp.context_at);
    let context = ringside_spec::rdma::qp_context::RoceQueuePairContext {
        queue_set_handle,
        ..ringside_spec::rdma::qp_context::RoceQueuePairContext::decode(&words)
    };
    rig.put(0, qp.context_at, &context.encode());
    rig.connect(0, &qp);
}

fn delete_leaf(rig: &mut Rig) {
    let delete = WorkSchedulerNode {
        operation: SchedulerOperation::Delete,
        enable: false,
        ..Rig::scheduler_node(2, 1, true)
    };
    rig.done(0, delete);
}

#[test]
fn a_queue_pair_that_starts_without_a_queue_set_that_sends_is_counted() {
    type Before = fn(&mut Rig);
    let cases: [(u16, Before, bool); 5] = [
        (Rig::QUEUE_SET, |_| {}, false),
        (0, |_| {}, true),
        (Rig::QUEUE_SET + 1, |_| {}, true),
        (Rig::QUEUE_SET, |rig| rig.enable_leaf(0, false), true),
        (Rig::QUEUE_SET, |rig| rig.set_port_queue_sets(0, &[]), true),
    ];
    for (case, (handle, before, silent)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new();
        before(&mut rig);
        connect_through(&mut rig, handle);
        let expected: &[&str] = if silent { &[SILENT] } else { &[] };
        assert_eq!(rig.kinds(0), expected, "case {case}");
        assert!(rig.remarks(0).is_empty(), "case {case}");
    }
}

#[test]
fn a_queue_set_of_before_is_remarked_only_and_one_that_never_was_is_counted() {
    let mut rig = Rig::new();
    let (_qps, _cqs) = rig.pair();
    let resume = |queue_set_handle| ResumeQueuePair {
        queue_set_handle,
        qp_number: 3,
    };
    rig.done(0, SuspendQueuePair { qp_number: 3 });
    delete_leaf(&mut rig);
    // As Linux does it where no leaf comes back.
    rig.done(0, resume(Rig::QUEUE_SET.into()));
    assert_eq!((rig.kinds(0), rig.remarks(0)), (vec![], vec![GONE]));
    rig.done(0, resume(9));
    assert_eq!(rig.kinds(0), [SILENT]);
}

#[test]
fn a_multicast_group_without_a_queue_set_is_counted() {
    let mut rig = Rig::new();
    let at = rig.ring_memory(0, 64);
    let group = |group_index, queue_set_handle| CreateMulticastGroup {
        member_list_address: super::rig::BASE + at,
        group_index,
        queue_set_handle,
        ipv4: true,
        group_ip: 0xE000_0001 + u128::from(group_index),
        ..CreateMulticastGroup::ZERO
    };
    rig.done(0, group(1, Rig::QUEUE_SET));
    rig.assert_no_breach();
    rig.done(0, group(2, 0));
    assert_eq!(rig.kinds(0), [SILENT]);
}

#[test]
fn the_port_takes_the_queue_set_of_a_leaf_before_that_is_enabled() {
    let mut rig = Rig::new();
    rig.set_port_queue_sets(0, &[Rig::QUEUE_SET, 7]);
    assert_eq!(rig.kinds(0), [NOT_GIVEN]);
    let mut rig = Rig::new();
    rig.set_port_queue_sets(0, &[]);
    rig.enable_leaf(0, true);
    let early = "scheduler leaf enabled before the port has its queue set";
    assert_eq!(rig.kinds(0), [early]);
}
