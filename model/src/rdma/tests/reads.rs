//! The numbers of reads that may be outstanding, changed while a queue pair is drained.

use super::data::piece;
use super::rig::{BASE, Cq, Qp, Rig};
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::qp_context::{RoceQueuePairContext, ird_code};
use ringside_spec::verbs::SendOpcode;

struct Reads {
    rig: Rig,
    qps: Vec<Qp>,
    cqs: Vec<Cq>,
    /// place and tag of the reader's memory and of its peer's
    memory: [(u64, u32); 2],
}

impl Reads {
    fn new() -> Self {
        let mut rig = Rig::new();
        rig.run_bytes = 0;
        let (qps, cqs) = rig.pair();
        let memory = [0, 1].map(|side| {
            let at = rig.data(side, 4096);
            (at, rig.region(side, side as u32 + 1, at, 4096))
        });
        Self {
            rig,
            qps,
            cqs,
            memory,
        }
    }

    /// Drains a side, and lets it go on with other numbers of reads.
    fn change(&mut self, side: usize, outbound: u8, inbound: u32) {
        let at = self.qps[side].context_at;
        let context = RoceQueuePairContext::decode(&self.rig.get(side, at));
        let context = RoceQueuePairContext {
            ord_size: outbound,
            ird_size: ird_code(inbound).unwrap(),
            ..context
        };
        for state in [QueuePairState::Closing, QueuePairState::ReadyToSend] {
            self.rig.put(side, at, &context.encode());
            let command = self.rig.modify(&self.qps[side], state);
            self.rig.done(side, command);
        }
    }

    fn post(&mut self, count: u32) {
        let [(sink, local), (source, remote)] = self.memory;
        for _ in 0..count {
            let (qp, from) = (&mut self.qps[0], (BASE + source, remote));
            let to = [piece(sink, 8, local)];
            self.rig.request(0, qp, SendOpcode::Read, from, &to);
        }
        self.rig.ring(0, &self.qps[0]);
        self.rig.with(0, |engine, context| engine.step(context));
    }

    /// Requests that leave before an answer comes.
    fn sent(&mut self) -> usize {
        let sent = std::iter::from_fn(|| {
            let next = self
                .rig
                .with(0, |engine, context| engine.next_run(0, context));
            next.inspect(|frame| self.rig.deliver(1, frame))
        });
        sent.count()
    }

    fn successes(&mut self) -> usize {
        self.rig.run();
        let polled = std::iter::from_fn(|| self.rig.poll(0, &mut self.cqs[0]));
        polled.inspect(|(done, _)| assert!(!done.error)).count()
    }
}

#[test]
fn a_drained_requester_takes_another_number_of_reads() {
    for outbound in [1, 2, 6] {
        let mut reads = Reads::new();
        reads.change(0, outbound, 8);
        reads.post(8);
        assert_eq!(reads.sent(), usize::from(outbound));
        assert_eq!(reads.successes(), 8);
        reads.rig.assert_no_breach();
    }
}

#[test]
fn a_drained_responder_takes_another_number_of_reads() {
    let mut reads = Reads::new();
    reads.change(1, 4, 16);
    reads.change(0, 16, 8);
    reads.post(16);
    assert_eq!(reads.sent(), 16);
    assert_eq!(reads.successes(), 16, "the peer takes all sixteen");
    reads.rig.assert_no_breach();
}
