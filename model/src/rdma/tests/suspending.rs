//! Suspended and draining queue pairs whose requests are never answered: the driver waits for the
//! event that ends it all the same.

use super::data::piece;
use super::rig::{BASE, Qp, Rig};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::verbs::SendOpcode;

const SUSPEND: SuspendQueuePair = SuspendQueuePair { qp_number: 3 };

/// A queue pair with a write under way to a peer that is gone.
struct Lost {
    rig: Rig,
    qp: Qp,
}

impl Lost {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (mut qps, _) = rig.pair();
        let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
        let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
        rig.sides[1].engine.reset();
        rig.sides[1].engine.set_receive_enabled(true);
        let mut qp = qps.swap_remove(0);
        let source = piece(from, 8, local);
        rig.request(
            0,
            &mut qp,
            SendOpcode::Write,
            (BASE + to, remote),
            &[source],
        );
        rig.ring(0, &qp);
        rig.run();
        Self { rig, qp }
    }

    fn modify(&mut self, next: QueuePairState) {
        let command = self.rig.modify(&self.qp, next);
        self.rig.done(0, command);
    }

    fn destroy(&mut self) {
        let command = DestroyQueuePair {
            qp_number: self.qp.number,
            qp_type: QueuePairType::RoceReliableConnected,
            ..DestroyQueuePair::ZERO
        };
        self.rig.done(0, command);
    }

    /// Checks that these events, and no others, have come since the last call.
    fn assert_events(&mut self, expected: &[AeCode]) {
        let rig = &mut self.rig;
        let events: Vec<_> = std::iter::from_fn(|| rig.event_code(0)).collect();
        assert_eq!(events, expected);
    }
}

#[test]
fn a_suspend_ends_with_its_event_after_that_of_a_failure() {
    let mut lost = Lost::new();
    lost.rig.done(0, SUSPEND);
    lost.assert_events(&[]);
    lost.rig.run_out();
    lost.assert_events(&[AeCode::TooManyRetries, AeCode::SuspendComplete]);
    lost.modify(QueuePairState::Error);
    lost.destroy();
    lost.assert_events(&[]);
    lost.rig.assert_no_breach();
}

#[test]
fn a_suspend_of_a_queue_pair_that_has_failed_ends_at_once() {
    let mut lost = Lost::new();
    lost.rig.run_out();
    lost.assert_events(&[AeCode::TooManyRetries]);
    lost.rig.done(0, SUSPEND);
    lost.assert_events(&[AeCode::SuspendComplete]);
    lost.rig.assert_no_breach();
}

#[test]
fn a_suspend_of_a_queue_pair_that_is_destroyed_ends_with_its_event() {
    let mut lost = Lost::new();
    lost.rig.done(0, SUSPEND);
    lost.destroy();
    lost.assert_events(&[AeCode::SuspendComplete]);
    lost.rig.assert_no_breach();
}

#[test]
fn a_suspend_outlives_the_return_to_ready_to_send() {
    let mut lost = Lost::new();
    lost.rig.done(0, SUSPEND);
    lost.modify(QueuePairState::ReadyToSend);
    lost.assert_events(&[]);
    lost.rig.run_out();
    lost.assert_events(&[AeCode::TooManyRetries, AeCode::SuspendComplete]);
    lost.rig.assert_no_breach();
}

#[test]
fn draining_ends_with_its_event_after_that_of_a_failure() {
    let mut lost = Lost::new();
    lost.modify(QueuePairState::Closing);
    lost.assert_events(&[]);
    lost.rig.run_out();
    lost.assert_events(&[AeCode::TooManyRetries, AeCode::SuspendComplete]);
    lost.rig.assert_no_breach();
}

#[test]
fn draining_ends_with_its_event_where_the_queue_pair_is_set_to_error() {
    let mut lost = Lost::new();
    lost.modify(QueuePairState::Closing);
    lost.modify(QueuePairState::Error);
    lost.assert_events(&[AeCode::SuspendComplete]);
    lost.rig.assert_no_breach();
}

/// Linux counts each such event for a queue pair that is gone as one of a suspend command.
#[test]
fn draining_of_a_queue_pair_that_is_destroyed_ends_without_an_event() {
    let mut lost = Lost::new();
    lost.modify(QueuePairState::Closing);
    lost.destroy();
    lost.assert_events(&[]);
    lost.rig.assert_no_breach();
}
