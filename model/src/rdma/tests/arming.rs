//! Requests for completion events, and their doorbells.

use super::data::piece;
use super::rig::{BASE, Cq, Qp, Rig};
use ringside_spec::rdma::registers as reg;
use ringside_spec::verbs::{Fragment, SendOpcode};

/// Two queue pairs, of which the first writes to the other.
struct Writes {
    rig: Rig,
    qps: Vec<Qp>,
    cqs: Vec<Cq>,
    from: Fragment,
    to: (u64, u32),
}

impl Writes {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (qps, cqs) = rig.pair();
        let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
        let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
        let (from, to) = (piece(from, 8, local), (BASE + to, remote));
        Self {
            rig,
            qps,
            cqs,
            from,
            to,
        }
    }

    /// Carries a write out and polls its completion.
    fn write(&mut self) {
        let rig = &mut self.rig;
        rig.request(
            0,
            &mut self.qps[0],
            SendOpcode::Write,
            self.to,
            &[self.from],
        );
        rig.ring(0, &self.qps[0]);
        rig.run();
        rig.poll(0, &mut self.cqs[0]).expect("a completion");
    }

    fn arm_in_memory(&mut self) {
        self.rig.arm_in_memory(0, &self.cqs[0], false);
    }

    fn ring_arm(&mut self) {
        self.rig.write(0, reg::CQ_ARM, 3);
    }

    fn acknowledge(&mut self) {
        self.rig.write(0, reg::CQ_ACKNOWLEDGE, 3);
    }

    /// True if so many events were told.
    fn has_told(&self, events: u64) -> bool {
        self.rig.completion_event(0, events - 1).valid
            && !self.rig.completion_event(0, events).valid
    }
}

#[test]
fn a_completion_that_overtakes_the_arm_doorbell_is_told_of_once() {
    let mut writes = Writes::new();
    writes.arm_in_memory();
    writes.write();
    assert!(writes.has_told(1));
    writes.ring_arm();
    writes.acknowledge();
    writes.write();
    assert!(
        writes.has_told(1),
        "the doorbell of a request that was served arms nothing"
    );
    writes.arm_in_memory();
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(2));
    writes.rig.assert_no_breach();
}

/// The doorbell of a request that was served without it comes after the next request: that request
/// is taken with it, and its own doorbell arms nothing.
#[test]
fn a_late_doorbell_does_not_let_a_request_be_served_twice() {
    let mut writes = Writes::new();
    writes.arm_in_memory();
    writes.write();
    assert!(writes.has_told(1));
    writes.arm_in_memory();
    writes.acknowledge();
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(2));
    writes.acknowledge();
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(2), "it was served");
    writes.arm_in_memory();
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(3));
    writes.rig.assert_no_breach();
}

/// Several requests are taken before their doorbells: each doorbell is one of theirs.
#[test]
fn as_many_doorbells_are_late_as_requests_were_taken_early() {
    let mut writes = Writes::new();
    for told in 1..=2 {
        writes.arm_in_memory();
        writes.write();
        assert!(writes.has_told(told));
        writes.acknowledge();
    }
    writes.ring_arm();
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(2));
    // One doorbell for several requests leaves nothing behind: a request is not lost, even if its
    // number is that of four requests before.
    writes.arm_in_memory();
    writes.write();
    assert!(writes.has_told(3));
    writes.acknowledge();
    writes.arm_in_memory();
    writes.ring_arm();
    for _ in 0..4 {
        writes.arm_in_memory();
    }
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(4));
    writes.acknowledge();
    for _ in 0..4 {
        writes.arm_in_memory();
    }
    writes.ring_arm();
    writes.write();
    assert!(writes.has_told(5));
    writes.rig.assert_no_breach();
}
