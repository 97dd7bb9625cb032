//! Workers that wait: on a model that runs on its own thread, in real time.

use crate::pair::config;
use ringside_config::{Polling, WorkerSection};
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, Interrupts, MemoryRegion, Notify,
    ProtectionDomain, QueuePair, QueuePairConfig,
};
use ringside_pmd::worker::{Policy, Polled, Sleeper, Worker};
use ringside_pmd::{BringUpOptions, Device};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// What the receiving worker owns.
struct Receiver {
    device: Arc<Device>,
    completions: CompletionQueue,
    queue_pair: QueuePair<Connected>,
    region: MemoryRegion,
    interrupts: Interrupts,
    received: Vec<(u64, Instant)>,
    /// what a poll while arming found
    early: usize,
}

impl Receiver {
    fn poll(&mut self) -> Polled {
        let mut batch = [Completion::EMPTY; 8];
        let done = self.completions.poll(&mut batch);
        for one in done {
            self.received.push((one.id, Instant::now()));
            let piece = [self.region.slice(0..64).unwrap()];
            self.queue_pair.receive(one.id + 16, &piece).unwrap();
        }
        if done.is_empty() {
            Polled::Idle
        } else {
            Polled::Worked
        }
    }
}

/// Sleeps on the device's interrupt.
struct OnInterrupt;

impl Sleeper<Receiver> for OnInterrupt {
    fn arm(&mut self, state: &mut Receiver) -> bool {
        state.completions.arm(Notify::Next);
        let worked = state.poll() == Polled::Worked;
        state.early += usize::from(worked);
        !worked
    }

    fn interrupt<'s>(&self, state: &'s Receiver) -> Option<BorrowedFd<'s>> {
        Some(state.interrupts.as_fd())
    }

    fn woken(&mut self, state: &mut Receiver, interrupted: bool) {
        if interrupted {
            state.interrupts.take().unwrap();
        }
        let mut queues = Vec::new();
        state.device.poll_completion_events(&mut queues).unwrap();
    }
}

/// Nanoseconds that the calling thread has run.
fn run_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn end(device: &Device) -> (ProtectionDomain, CompletionQueue, MemoryRegion, QueuePair) {
    let domain = device.protection_domain().unwrap();
    let completions = device.completion_queue(64).unwrap();
    let buffer = device.allocate(4096).unwrap();
    let region = domain.register(buffer, Access::ALL).unwrap();
    let config = QueuePairConfig::reliable(&completions);
    let queue_pair = domain.queue_pair(config).unwrap();
    (domain, completions, region, queue_pair)
}

/// A worker that receives, and the sender's end.
fn scene(polling: Polling, check: impl FnOnce(&Worker<Receiver>, &mut dyn FnMut(u64))) {
    let model = Threaded::start(&WorldSettings::with_functions(2), None).unwrap();
    let [left, right] = [0, 1].map(|index| {
        let function = model.function(index).unwrap();
        Device::bring_up(function, &config(), BringUpOptions::default())
            .unwrap_or_else(|error| panic!("{error}"))
    });
    let (domain, mut completions, from, a) = end(&left);
    let right = Arc::new(right);
    let (_, receives, region, b) = end(&right);
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let mut a = a.connect(&to_b).unwrap();
    let mut b = b.connect(&to_a).unwrap();
    for id in 0..16 {
        b.receive(id, &[region.slice(0..64).unwrap()]).unwrap();
    }
    let section = WorkerSection {
        polling,
        idle_us: 50,
        sleep_ms: 1000,
        ..WorkerSection::default()
    };
    let device = Arc::clone(&right);
    let interrupts = right.interrupts().unwrap();
    let make = move || Receiver {
        device,
        completions: receives,
        queue_pair: b,
        region,
        interrupts,
        received: Vec::new(),
        early: 0,
    };
    let policy = Policy::of(&section, OnInterrupt);
    let worker = Worker::start_with(policy, None, 16, make, Receiver::poll).unwrap();
    let mut send = |id| {
        let piece = [from.slice(0..8).unwrap()];
        a.send(id, &piece, Flags::SIGNALLED).unwrap();
        a.ring();
        let begin = Instant::now();
        let mut batch = [Completion::EMPTY; 4];
        while completions.poll(&mut batch).is_empty() {
            assert!(begin.elapsed() < LIMIT, "send {id} did not complete");
            std::thread::yield_now();
        }
    };
    check(&worker, &mut send);
    drop(worker.stop(LIMIT).unwrap());
    drop((a, from, completions, domain));
    let right = Arc::into_inner(right).expect("nobody else has it");
    for device in [left, right] {
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    }
    for index in 0..2 {
        let breaches = model.with(move |world| world.breaches(index)).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
    model.stop();
}

/// Waits until the worker has received so many.
fn wait_for(worker: &Worker<Receiver>, count: usize) {
    let begin = Instant::now();
    while worker.ask(|state| state.received.len(), LIMIT).unwrap() < count {
        assert!(begin.elapsed() < LIMIT, "{count} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_the_interrupt_and_by_requests_and_uses_no_core_meanwhile() {
    scene(Polling::BusyThenSleep, |worker, send| {
        for id in 0..20 {
            // Idle for longer than it polls: it sleeps.
            std::thread::sleep(Duration::from_millis(5));
            send(id);
        }
        // Its longest sleep is a second: it was the interrupt that woke it.
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let received = worker.ask(|state| state.received.len(), LIMIT).unwrap();
        assert!(begin.elapsed() < Duration::from_millis(900), "{begin:?}");
        assert_eq!(received, 20);
        assert!(
            worker.statistics().sleeps >= 10,
            "{:?}",
            worker.statistics()
        );
        let before = worker.ask(|_| run_time(), LIMIT).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let used = worker.ask(|_| run_time(), LIMIT).unwrap() - before;
        assert!(used < 40_000_000, "{used} ns of a core in 2 s idle");
        send(20);
        wait_for(worker, 21);
    });
}

#[test]
fn workers_that_poll_on_or_yield_do_not_sleep_and_lose_nothing() {
    for polling in [Polling::Busy, Polling::BusyThenYield] {
        scene(polling, |worker, send| {
            for id in 0..20 {
                send(id);
            }
            wait_for(worker, 20);
            assert_eq!(worker.statistics().sleeps, 0);
        });
    }
}

#[test]
fn traffic_without_a_pause_is_received_in_full_by_a_worker_that_may_sleep() {
    scene(Polling::BusyThenSleep, |worker, send| {
        for id in 0..300 {
            send(id);
        }
        wait_for(worker, 300);
        let ids = worker
            .ask(
                |state| state.received.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
                LIMIT,
            )
            .unwrap();
        assert_eq!(ids, (0..300).collect::<Vec<_>>());
    });
}
