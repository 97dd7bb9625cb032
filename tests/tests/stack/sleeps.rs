//! The sleeps of a stack's thread, in real time: their number is compared, and no time.

use crate::bed::{Bed, Raw, config, settings, stack_settings};
use crate::frames::{ANSWER, is_arp, question};
use crate::full;
use ringside_bus::Clock;
use ringside_pmd::Device;
use ringside_stack::{Stack, StackError, StackThread, TcpConnection, TcpError};
use std::net::SocketAddr;
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

/// A connection of a stack on a thread of its own, which waits for a request to wake it.
struct Connected {
    bed: Bed,
    devices: [Device; 2],
    thread: StackThread,
    near: TcpConnection,
    far_stack: Stack,
    far: TcpConnection,
    /// requests of the thread before it was accepted
    before: u64,
}

impl Connected {
    fn new() -> Self {
        let bed = Bed::new();
        let (device, stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
        let (far_device, mut far_stack) = bed.stack(1, &config(&["192.0.2.2/24"]));
        let clock: Arc<dyn Clock> = bed.world.clock();
        let thread = StackThread::start(stack, Arc::clone(&clock)).unwrap();
        let address = SocketAddr::from(([192, 0, 2, 1], 7000));
        let listener = thread.resolver().listen_tcp(address, 1, &clock).unwrap();
        let far = far_stack.connect_tcp(address, &clock).unwrap();
        let before = thread.statistics().requests;
        let begin = Instant::now();
        let near = loop {
            match listener.accept(Duration::ZERO) {
                Ok(near) => break near,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            far_stack.poll(clock.now());
            bed.pass();
        };
        Self {
            bed,
            devices: [device, far_device],
            thread,
            near,
            far_stack,
            far,
            before,
        }
    }

    /// Waits until the thread has served a request since it had served so many.
    fn wait_for_request(&self, before: u64) {
        let begin = Instant::now();
        while self.thread.statistics().requests == before {
            assert!(begin.elapsed() < PATIENCE, "the thread was not woken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_program_that_makes_room_wakes_the_thread() {
    const PIPE_BYTES: usize = 16 << 10;
    let mut all = Connected::new();
    // A place of the backlog.
    all.wait_for_request(all.before);
    let clock = all.bed.world.clock();
    let mut into = vec![0; 2 * PIPE_BYTES];
    let begin = Instant::now();
    while all.near.peek(&mut into, Duration::ZERO) != Ok(PIPE_BYTES) {
        assert!(begin.elapsed() < PATIENCE, "the pipe does not fill");
        let _ = all.far.write(&[1; 4096], Duration::ZERO);
        all.far_stack.poll(clock.now());
        all.bed.pass();
    }
    let before = all.thread.statistics().requests;
    assert_eq!(all.near.read(&mut into, Duration::ZERO), Ok(PIPE_BYTES));
    all.wait_for_request(before);
    drop((all.near, all.far, all.thread, all.far_stack));
    all.bed.finish(all.devices);
}

#[test]
fn a_panic_of_the_thread_ends_its_connections() {
    let mut all = Connected::new();
    let ended = all.thread.resolver().with(|_| panic!("planned"));
    assert_eq!(ended, Err::<(), _>(StackError::Ended));
    let limit = Duration::from_millis(20);
    assert_eq!(all.near.read(&mut [0], limit), Err(TcpError::Ended));
    drop((all.near, all.far, all.far_stack));
    assert!(all.thread.stop().is_none());
    all.bed.finish(all.devices);
}

#[test]
fn a_thread_whose_transmit_ring_is_full_does_not_poll_without_end() {
    let bed = Bed::new();
    let own = config(&["192.0.2.2/24"]);
    let device = bed.device(1, &own);
    let (mut open, transmit, ring) = full::open(&bed, &device);
    let settings_b = stack_settings(&own, open.port.mac());
    let pair = (open.receive.remove(0), transmit);
    let clock: Arc<dyn Clock> = bed.world.clock();
    let stack = Stack::new(open.port.clone(), pair, &settings_b, clock.now()).expect("a stack");
    let thread = StackThread::start(stack, clock).unwrap();
    let mut peer = Raw::new(&bed, 0, &settings());
    // More than the ring holds, and fewer than the receive queue.
    for _ in 0..63 {
        peer.send(&question(peer.port.mac(), [192, 0, 2, 1], [192, 0, 2, 2]));
        bed.pass();
    }
    let received = || {
        let counters = thread.resolver().with(|stack| stack.counters());
        counters.expect("the thread").received
    };
    let begin = Instant::now();
    while {
        let before = received();
        std::thread::sleep(SECOND / 10);
        before < 40 || before != received()
    } {
        assert!(begin.elapsed() < PATIENCE, "the ring does not fill");
    }
    assert!(received() < 63);
    // The receive queue holds frames that the thread cannot take, if it did not before.
    for _ in 0..4 {
        peer.send(&question(peer.port.mac(), [192, 0, 2, 1], [192, 0, 2, 2]));
        bed.pass();
    }
    let before = thread.statistics().sleeps;
    while thread.statistics().sleeps < before + 10 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", thread.statistics());
        std::thread::sleep(Duration::from_millis(1));
    }
    full::send_all(&ring);
    while received() < 67 {
        assert!(begin.elapsed() < PATIENCE, "{} frames", received());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((thread, open));
    bed.finish([peer.into_device(), device]);
}
