//! The sleeps of a stack's thread, in real time: their number is compared, and no time.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ANSWER, is_arp, question};
use ringside_bus::Clock;
use ringside_stack::{Resolver, Sleeps, StackThread};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// An armed thread sleeps 20 ms; one that looks for frames by itself 1 ms at most.
const FEW_SLEEPS: u64 = 250;

fn sleeps(resolver: &Resolver) -> Sleeps {
    resolver.with(|stack| stack.counters().sleeps).unwrap()
}

/// Asks for the stack's address, and waits for the answer.
fn ask(bed: &Bed, peer: &mut Raw) {
    let mac = peer.port.mac();
    peer.send(&question(mac, [192, 0, 2, 7], [192, 0, 2, 1]));
    let begin = Instant::now();
    while !peer.poll().iter().any(|frame| is_arp(frame, ANSWER)) {
        assert!(begin.elapsed() < PATIENCE, "no answer");
        bed.pass();
    }
}

#[test]
fn an_idle_thread_sleeps_until_a_frame_or_a_request() {
    let bed = Bed::new();
    let (device, stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut peer = Raw::new(&bed, 1, &settings());
    let clock: Arc<dyn Clock> = bed.world.clock();
    let thread = StackThread::start(stack, clock).unwrap();
    let resolver = thread.resolver();

    // It arms after some time without frames, which is longer on a busy machine.
    let mut pause = SECOND / 4;
    while sleeps(&resolver).by_frames == 0 {
        assert!(pause < PATIENCE, "{:?}", sleeps(&resolver));
        std::thread::sleep(pause);
        ask(&bed, &mut peer);
        pause *= 2;
    }

    // Requests of others do not make it look for frames by itself.
    let begin = Instant::now();
    loop {
        let before = sleeps(&resolver);
        for _ in 0..10 {
            std::thread::sleep(SECOND / 10);
            sleeps(&resolver);
        }
        let after = sleeps(&resolver);
        let timed_out = after.timed_out - before.timed_out;
        if timed_out < FEW_SLEEPS {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{before:?}, then {after:?}");
    }

    let before = sleeps(&resolver);
    for _ in 0..50 {
        std::thread::sleep(SECOND / 1000);
        sleeps(&resolver);
    }
    let after = sleeps(&resolver);
    assert!(
        after.by_requests >= before.by_requests + 10,
        "{before:?}, then {after:?}"
    );

    drop(thread);
    bed.finish([device, peer.into_device()]);
}
