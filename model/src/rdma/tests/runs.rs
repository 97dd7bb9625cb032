//! Long messages: packets that travel in one frame do what they do one by one.

use super::rig::{BASE, Qp, Rig};
use ringside_spec::verbs::{CompletionElement, Fragment, SendOpcode};

const LENGTH: u64 = 256 << 10;

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// The result of a run of messages, for comparison.
#[derive(PartialEq, Eq)]
struct Result {
    completions: Vec<Vec<CompletionElement>>,
    memory: Vec<Vec<u8>>,
    counters: Vec<Vec<u64>>,
    sequence_numbers: Vec<String>,
    events: Vec<Option<ringside_spec::rdma::ae_codes::AeCode>>,
    breaches: Vec<Vec<String>>,
}

/// One side's memory: what it sends, and what it receives into.
struct Memory {
    from: u64,
    to: u64,
    local: u32,
    remote: u32,
}

fn messages(seed: u64, run_bytes: u32, short_receives: bool) -> Result {
    let mut rig = Rig::new();
    rig.run_bytes = run_bytes;
    let (mut qps, mut cqs) = rig.pair();
    let memory: Vec<_> = (0..2)
        .map(|side| {
            let (from, to) = (rig.data(side, LENGTH), rig.data(side, LENGTH));
            let bytes: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + at / 253) as u8).collect();
            rig.fill(side, from, &bytes);
            let local = rig.region(side, 1, from, LENGTH);
            let remote = rig.region(side, 2, to, LENGTH);
            Memory {
                from,
                to,
                local,
                remote,
            }
        })
        .collect();
    let mut state = seed;
    for batch in 0..6 {
        // Of both sides at once the order of arrival would be left open.
        let side = batch % 2;
        for _ in 0..1 + random(&mut state) % 4 {
            message(
                &mut rig,
                &mut qps,
                (side, &memory),
                &mut state,
                short_receives,
            );
        }
        rig.run();
    }
    rig.run_out();
    let mut completions = Vec::new();
    for (side, cq) in cqs.iter_mut().enumerate() {
        let mut found = Vec::new();
        while let Some((element, _)) = rig.poll(side, cq) {
            found.push(element);
        }
        completions.push(found);
    }
    Result {
        completions,
        memory: (0..2)
            .map(|side| rig.bytes(side, memory[side].to, LENGTH as usize))
            .collect(),
        counters: (0..2)
            .map(|side| {
                // How often packets are acknowledged depends on how many come at a time.
                let counters = &rig.sides[side].engine.objects.counters;
                vec![
                    counters.writes_sent,
                    counters.writes_received,
                    counters.sends_sent,
                    counters.sends_received,
                    counters.reads_sent,
                    counters.reads_received,
                ]
            })
            .collect(),
        sequence_numbers: (0..2).map(|side| sequence_numbers(&rig, side)).collect(),
        events: (0..2).map(|side| rig.event_code(side)).collect(),
        breaches: (0..2).map(|side| rig.breaches(side)).collect(),
    }
}

fn sequence_numbers(rig: &Rig, side: usize) -> String {
    let qp = rig.sides[side].engine.queue_pairs[3].as_ref().unwrap();
    let requester = qp.requester.as_ref().unwrap();
    let responder = qp.responder.as_ref().unwrap();
    format!(
        "{:?} {:?} {} {}",
        requester.sequence_numbers(),
        responder.expected_psn(),
        requester.statistics().packets_sent,
        responder.statistics().packets_accepted,
    )
}

/// Posts one message of a random kind and length, which may be more than the receiver takes.
fn message(
    rig: &mut Rig,
    qps: &mut [Qp],
    (side, memory): (usize, &[Memory]),
    state: &mut u64,
    short: bool,
) {
    let length = match random(state) % 4 {
        0 => random(state) % 64,
        1 => random(state) % 5000,
        2 => 1024 * (random(state) % 130),
        _ => random(state) % (LENGTH - 4096),
    };
    let near = &memory[side];
    let far = &memory[1 - side];
    let place = random(state) % 4000;
    // Two fragments, so that packets lie across their border.
    let first = if length > 0 {
        random(state) % length
    } else {
        0
    };
    let (opcode, pieces) = match random(state) % 3 {
        0 => (SendOpcode::Write, true),
        1 => (SendOpcode::Send, true),
        _ => (SendOpcode::Read, false),
    };
    if opcode == SendOpcode::Send {
        let capacity = if short { length / 2 + 1 } else { LENGTH };
        let piece = Fragment {
            address: BASE + far.to,
            length_bytes: capacity as u32,
            steering_tag: far.remote,
        };
        rig.post_receive(1 - side, &mut qps[1 - side], piece);
    }
    let (at, tag) = match pieces {
        true => (near.from, near.local),
        false => (near.to, near.remote),
    };
    let piece = |offset: u64, length: u64| Fragment {
        address: BASE + at + offset,
        length_bytes: length as u32,
        steering_tag: tag,
    };
    let remote = match opcode {
        SendOpcode::Send => (0, 0),
        SendOpcode::Read => (BASE + far.from + place, far.local),
        _ => (BASE + far.to + place, far.remote),
    };
    let pieces = [piece(0, first), piece(first, length - first)];
    rig.request(side, &mut qps[side], opcode, remote, &pieces);
    rig.ring(side, &qps[side]);
}

#[test]
fn packets_in_one_frame_do_what_they_do_one_by_one() {
    for seed in 0..12 {
        let apart = messages(seed, 0, false);
        let together = messages(seed, crate::frame::RUN_BYTES, false);
        assert!(apart.memory == together.memory, "seed {seed}");
        assert_eq!(apart.counters, together.counters, "seed {seed}");
        assert_eq!(
            apart.sequence_numbers, together.sequence_numbers,
            "seed {seed}"
        );
        assert!(apart == together, "seed {seed}");
        assert_eq!(apart.breaches, [[""; 0]; 2], "seed {seed}");
        let done: usize = apart.completions.iter().map(Vec::len).sum();
        assert!(done >= 6, "seed {seed}: {done} completions");
    }
}

#[test]
fn a_message_too_long_for_its_receive_fails_in_one_frame_as_packet_by_packet() {
    let mut failed = 0;
    for seed in 0..10 {
        let apart = messages(seed, 0, true);
        let together = messages(seed, crate::frame::RUN_BYTES, true);
        assert_eq!(apart.events, together.events, "seed {seed}");
        assert!(apart.memory == together.memory, "seed {seed}");
        assert!(apart.completions == together.completions, "seed {seed}");
        failed += usize::from(apart.events != [None, None]);
    }
    assert!(failed > 3, "{failed} runs had a message too long");
}

#[test]
fn a_long_write_takes_a_frame_for_each_64_kib() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, LENGTH), rig.data(1, LENGTH));
    let (local, remote) = (rig.region(0, 1, from, LENGTH), rig.region(1, 2, to, LENGTH));
    let piece = Fragment {
        address: BASE + from,
        length_bytes: LENGTH as u32,
        steering_tag: local,
    };
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &[piece],
    );
    rig.ring(0, &qps[0]);
    let mut frames = Vec::new();
    rig.with(0, |engine, context| {
        engine.step(context);
        while let Some(frame) = engine.next_run(crate::frame::RUN_BYTES, context) {
            frames.push((frame.packets, frame.payload.length()));
            assert!(frames.len() < 10);
        }
    });
    // The path MTU is 1024 bytes; the last packet travels by itself.
    let full = (64, 64 << 10);
    assert_eq!(frames, [full, full, full, (63, 63 << 10), (1, 1 << 10)]);
    // Those frames were lost; they come again.
    rig.run_out();
    assert!(rig.poll(0, &mut cqs[0]).is_some());
    let sent = rig.bytes(0, from, LENGTH as usize);
    assert!(rig.bytes(1, to, LENGTH as usize) == sent);
}
