//! Short writes that are delivered without a packet do what their packets do.

use super::rig::{BASE, Qp, Rig};
use crate::rdma::objects::queue_pair::QueuePair;
use ringside_bus::function::DmaAccess;
use ringside_bus::{Direction, Iova, Memory, PageSize, Refusal};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::verbs::send::InlineTail;
use ringside_spec::verbs::{CompletionElement, Fragment, SendHeader, SendOpcode};

const LENGTH: u64 = 4096;

/// The place of memory that the device may only read, from the rig's first byte.
const READ_ONLY: u64 = 1 << 32;

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Everything that a run of messages leaves behind.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    completions: Vec<Vec<CompletionElement>>,
    memory: Vec<Vec<u8>>,
    engines: Vec<String>,
    events: Vec<Option<AeCode>>,
    breaches: Vec<Vec<String>>,
    refused: Vec<String>,
}

/// The last message of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Plain,
    UnknownKey,
    OutOfBounds,
    ReadOnlyTarget,
    PeerStalls,
    PeerRefuses,
    PeerForbidsWrites,
    PeerHasStopped,
    PeerHasAnotherPeer,
}

const LASTS: [Last; 9] = [
    Last::Plain,
    Last::UnknownKey,
    Last::OutOfBounds,
    Last::ReadOnlyTarget,
    Last::PeerStalls,
    Last::PeerRefuses,
    Last::PeerForbidsWrites,
    Last::PeerHasStopped,
    Last::PeerHasAnotherPeer,
];

struct Run {
    rig: Rig,
    qps: Vec<Qp>,
    places: [u64; 2],
    keys: [u32; 2],
}

impl Run {
    fn new(run_bytes: u32) -> (Self, Vec<super::rig::Cq>, u32) {
        let mut rig = Rig::new();
        rig.run_bytes = run_bytes;
        let memory = Memory::allocate(LENGTH as usize, PageSize::FourKiB, None).unwrap();
        let at = Iova(BASE + READ_ONLY);
        assert!(rig.spaces[1].map(at, &memory, 0, LENGTH as usize, DmaAccess::Read));
        let (qps, cqs) = rig.pair();
        let (from, to) = (rig.data(0, LENGTH), rig.data(1, LENGTH));
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + at / 253) as u8).collect();
        rig.fill(0, from, &bytes);
        let keys = [rig.region(0, 1, from, LENGTH), rig.region(1, 2, to, LENGTH)];
        let read_only = rig.region(1, 3, READ_ONLY, LENGTH);
        let run = Self {
            rig,
            qps,
            places: [from, to],
            keys,
        };
        (run, cqs, read_only)
    }

    fn write(&mut self, (from, to): (u64, u64), length: u64, key: u32) {
        let piece = Fragment {
            address: BASE + self.places[0] + from,
            length_bytes: length as u32,
            steering_tag: self.keys[0],
        };
        let qp = &mut self.qps[0];
        self.rig
            .request(0, qp, SendOpcode::Write, (to, key), &[piece]);
    }

    /// A write of 16 bytes that are in the element itself.
    fn write_inline(&mut self, to: u64, bytes: [u64; 2]) {
        let polarity = Rig::polarity(self.qps[0].head);
        let header = SendHeader::ZERO
            .with_opcode(SendOpcode::Write.code().into())
            .with_inline(true)
            .with_inline_length_bytes(16)
            .with_steering_tag(self.keys[1].into())
            .with_signalled(true)
            .with_valid(polarity);
        let tail = InlineTail(0).with_valid(polarity).0;
        let words = [0, bytes[0], to, header.0, bytes[1], 0, 0, tail];
        self.rig.post(0, &mut self.qps[0], &words);
    }

    fn batch(&mut self, state: &mut u64) {
        let usual = [8, 8, 16, 128, 129, 0, 3000][(random(state) % 7) as usize];
        for _ in 0..1 + random(state) % 6 {
            let length = match random(state) % 8 {
                0 => 1 + random(state) % 200,
                _ => usual,
            };
            let from = random(state) % (LENGTH - length);
            let to = BASE + self.places[1] + random(state) % (LENGTH - length - 16);
            // An element of two quanta does not cross the end of a block of eight.
            let fits = !(self.qps[0].head + 1).is_multiple_of(8);
            match random(state) % 6 {
                0 if fits => self.write_inline(to, [random(state), random(state)]),
                _ => self.write((from, to), length, self.keys[1]),
            }
        }
        self.rig.ring(0, &self.qps[0]);
        self.rig.run();
    }

    /// Reads from the memory that may only be read: its grant is at hand then.
    fn read_only(&mut self, key: u32) {
        let piece = Fragment {
            address: BASE + self.places[0],
            length_bytes: 8,
            steering_tag: self.keys[0],
        };
        let remote = (BASE + READ_ONLY, key);
        let qp = &mut self.qps[0];
        self.rig.request(0, qp, SendOpcode::Read, remote, &[piece]);
        self.rig.ring(0, &self.qps[0]);
        self.rig.run();
    }

    fn last(&mut self, last: Last, read_only: u32) {
        let to = BASE + self.places[1];
        if last == Last::ReadOnlyTarget {
            self.read_only(read_only);
        }
        self.write((0, to), 8, self.keys[1]);
        match last {
            Last::Plain | Last::PeerStalls | Last::PeerRefuses => {}
            Last::PeerForbidsWrites => self.peer().context.write_and_read_response_ok = false,
            Last::PeerHasStopped => self.peer().stopped = true,
            Last::PeerHasAnotherPeer => self.peer().context.destination_ip ^= 1,
            Last::UnknownKey => self.write((8, to + 8), 8, 0x7700),
            Last::OutOfBounds => self.write((8, to + LENGTH - 4), 8, self.keys[1]),
            Last::ReadOnlyTarget => self.write((8, BASE + READ_ONLY), 8, read_only),
        }
        self.write((16, to + 16), 8, self.keys[1]);
        self.rig.ring(0, &self.qps[0]);
        if last == Last::PeerStalls {
            self.rig.sides[1].engine.stall();
            self.rig.run();
            self.rig.sides[1].engine.end_stall();
        }
        if last == Last::PeerRefuses {
            self.rig.spaces[1].set_refusals(&[Refusal {
                direction: Some(Direction::Write),
                accesses: Some(1),
                first: Iova(to),
                bytes: 8,
            }]);
        }
        self.rig.run_out();
    }

    /// The queue pair that is written to.
    fn peer(&mut self) -> &mut QueuePair {
        let queue_pairs = &mut self.rig.sides[1].engine.queue_pairs;
        queue_pairs[3].as_deref_mut().unwrap()
    }

    fn engine(&self, side: usize) -> String {
        let engine = &self.rig.sides[side].engine;
        let qp = engine.queue_pairs[3].as_ref().unwrap();
        format!(
            "{:?} {:?} {:?}",
            engine.objects.counters,
            qp.requester
                .as_ref()
                .map(|one| (one.sequence_numbers(), one.statistics(), one.room())),
            qp.responder
                .as_ref()
                .map(|one| (one.expected_psn(), one.statistics())),
        )
    }
}

/// Returns what a run leaves behind, and the packets that went without a frame.
fn run(seed: u64, last: Last, run_bytes: u32) -> (Outcome, u32) {
    let (mut run, mut cqs, read_only) = Run::new(run_bytes);
    let mut state = seed;
    for _ in 0..6 {
        run.batch(&mut state);
    }
    run.last(last, read_only);
    let mut completions = Vec::new();
    for (side, cq) in cqs.iter_mut().enumerate() {
        completions.push(std::iter::from_fn(|| run.rig.poll(side, cq).map(|one| one.0)).collect());
    }
    let outcome = Outcome {
        completions,
        memory: (0..2)
            .map(|side| run.rig.bytes(side, run.places[side], LENGTH as usize))
            .collect(),
        engines: (0..2).map(|side| run.engine(side)).collect(),
        events: (0..2).map(|side| run.rig.event_code(side)).collect(),
        breaches: (0..2).map(|side| run.rig.breaches(side)).collect(),
        refused: run
            .rig
            .spaces
            .iter()
            .map(|space| format!("{:?}", space.take_refused()))
            .collect(),
    };
    (outcome, run.rig.direct)
}

#[test]
fn short_writes_without_packets_do_what_their_packets_do() {
    for seed in 0..5 {
        for last in LASTS {
            let (packets, none) = run(seed, last, 0);
            let (direct, some) = run(seed, last, crate::frame::RUN_BYTES);
            let case = format!("seed {seed}, last {last:?}");
            assert_eq!(packets.engines, direct.engines, "{case}");
            assert_eq!(packets.completions, direct.completions, "{case}");
            assert_eq!(packets.events, direct.events, "{case}");
            assert!(packets == direct, "{case}");
            assert_eq!(none, 0, "{case}");
            assert!(some >= 8, "{case}: {some} packets went directly");
            let fails = !matches!(last, Last::Plain | Last::PeerStalls);
            assert_eq!(packets.events != [None, None], fails, "{case}");
        }
    }
}
