//! Frames of the network stack that go from function to function do the same on each way: handed on
//! with what the parser found, shown to a capture, and as bytes; with rings and buffers in one
//! mapping and in many.

mod switched;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use switched::{Kind, SwitchedFunctions, Way};

const ROUNDS: usize = 24;

/// Random packets, offers, commands and states; the same for a seed on each way.
fn run(seed: u64, way: Way) -> SwitchedFunctions {
    let mut switched = SwitchedFunctions::new(seed, way);
    let mut random = SmallRng::seed_from_u64(seed);
    for round in 0..ROUNDS {
        let from = random.random_range(0..switched::FUNCTIONS);
        match random.random_range(0..12) {
            0 => switched.set_link(from, false),
            1 => switched.disable_queue(from, random.random_range(0..switched::QUEUES)),
            2 => switched.enable_queue(from, random.random_range(0..switched::QUEUES)),
            3 => switched.program_filter(from, &mut random),
            _ => switched.set_link(from, true),
        }
        for _ in 0..random.random_range(1..20) {
            switched.post(from, Kind::any(&mut random), &mut random);
        }
        switched.ring(from);
        if random.random_range(0..3) > 0 {
            let receiver = random.random_range(0..switched::FUNCTIONS);
            switched.offer(receiver, &mut random);
        }
        switched.settle();
        if round == ROUNDS / 2 {
            switched.break_interface(from, &mut random);
            switched.settle();
        }
    }
    switched
}

#[test]
fn frames_do_the_same_on_every_way() {
    for seed in 0..40 {
        let slow = run(seed, Way::Bytes { split: true });
        let expected = slow.outcome();
        assert_eq!(slow.passed_on(), 0);
        for split in [false, true] {
            let (capture, bytes) = (Way::Capture { split }, Way::Bytes { split });
            for way in [Way::Direct { split }, capture, bytes] {
                let ended = run(seed, way);
                let outcome = ended.outcome();
                let case = format!("seed {seed}, {way:?}");
                assert_eq!(outcome.counters, expected.counters, "{case}");
                assert_eq!(outcome.breaches, expected.breaches, "{case}");
                assert_eq!(outcome.interrupts, expected.interrupts, "{case}");
                assert!(outcome.memory == expected.memory, "{case}");
                let direct = matches!(way, Way::Direct { .. });
                assert_eq!(ended.passed_on() > 20, direct, "{case}");
                let seen = ended.captured();
                assert_eq!(
                    seen == ended.sent(),
                    matches!(way, Way::Capture { .. }),
                    "{case}"
                );
            }
        }
    }
}

/// A run in which nothing happened would agree with any other.
#[test]
fn random_frames_arrive_are_dropped_refused_and_steered() {
    let mut all = switched::Totals::default();
    for seed in 0..40 {
        run(seed, Way::Direct { split: false }).add_to(&mut all);
    }
    assert!(all.received > 1000, "{all:?}");
    assert!(all.dropped > 100, "{all:?}");
    assert!(all.receive_errors > 20, "{all:?}");
    assert!(all.transmit_errors > 20, "{all:?}");
    assert!(all.link_down > 20, "{all:?}");
    assert!(all.steered > 20, "{all:?}");
    assert!(all.breaches > 20, "{all:?}");
    assert!(all.interrupts > 100, "{all:?}");
}
