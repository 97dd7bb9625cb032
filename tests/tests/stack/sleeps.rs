//! The sleeps of a stack's thread, in real time: their number is compared, and no time.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ANSWER, is_arp, question};
use ringside_bus::Clock;
use ringside_stack::StackThread;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// A thread that a frame wakes sleeps 20 ms; one that looks for frames by itself 1 ms at most.
const FEW_SLEEPS: u64 = 250;
/// One that does not sleep polls more often.
const FEW_POLLS: u64 = 500_000;

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
    let begin = Instant::now();
    loop {
        ask(&bed, &mut peer);
        let before = thread.statistics();
        for _ in 0..10 {
            std::thread::sleep(SECOND / 10);
            assert_eq!(resolver.with(|stack| stack.addresses().len()), Ok(2));
        }
        let after = thread.statistics();
        let (sleeps, polls) = (after.sleeps - before.sleeps, after.polls - before.polls);
        if (1..FEW_SLEEPS).contains(&sleeps) && polls < FEW_POLLS {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{before:?}, then {after:?}");
    }
    drop(thread);
    bed.finish([device, peer.into_device()]);
}
