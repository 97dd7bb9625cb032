//! The turns of the two halves of a queue pair.

use super::data::piece;
use super::rig::{BASE, Qp, Rig};
use ringside_spec::verbs::SendOpcode;

const READ_BYTES: u32 = 1 << 16;

/// The peer always has four reads outstanding: the response of one is never the last one.
#[test]
fn a_request_leaves_although_the_peer_reads_without_a_pause() {
    let mut rig = Rig::new();
    // Packets by themselves: a short write of a run would take the direct way.
    rig.run_bytes = 0;
    let (mut qps, mut cqs) = rig.pair();
    let memory = [0, 1].map(|side| rig.data(side, READ_BYTES.into()));
    let keys = [0, 1].map(|side| {
        let index = side as u32 + 1;
        rig.region(side, index, memory[side], READ_BYTES.into())
    });
    let read = |rig: &mut Rig, qp: &mut Qp| {
        let source = (BASE + memory[1], keys[1]);
        let sink = [piece(memory[0], READ_BYTES, keys[0])];
        rig.request(0, qp, SendOpcode::Read, source, &sink);
        rig.ring(0, qp);
    };
    for _ in 0..4 {
        read(&mut rig, &mut qps[0]);
    }
    rig.turn();
    let own = [piece(memory[1], 8, keys[1])];
    let target = (BASE + memory[0], keys[0]);
    rig.request(1, &mut qps[1], SendOpcode::Write, target, &own);
    rig.ring(1, &qps[1]);
    let mut reads_done = 0;
    let written = (0..100).find_map(|_| {
        rig.turn();
        while rig.poll(0, &mut cqs[0]).is_some() {
            reads_done += 1;
            read(&mut rig, &mut qps[0]);
        }
        rig.poll(1, &mut cqs[1])
    });
    let (element, _) = written.expect("the write leaves");
    assert!(!element.error);
    assert!(reads_done < 20, "after {reads_done} reads");
    rig.assert_no_breach();
}
