//! Workers that wait: on a model that runs on its own thread, in real time.

use ringside_config::{Polling, WorkerSection};
use ringside_pmd::rdma::{Completion, Flags};
use ringside_pmd::worker::{Policy, Worker};
use ringside_spec::lan::registers::interrupts::VECTOR_CONTROL;
use ringside_testkit::{bring_up_all, config, threaded};
use ringside_tests::receiver::{End, OnInterrupt, Receiver};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Nanoseconds that the calling thread has run.
fn run_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// A worker that receives, and the sender's end.
fn scene(polling: Polling, check: impl FnOnce(&Worker<Receiver>, &mut dyn FnMut(u64))) {
    scene_with(polling, Duration::from_secs(1), check);
}

/// Makes the scene with a given longest sleep.
fn scene_with(
    polling: Polling,
    longest_sleep: Duration,
    check: impl FnOnce(&Worker<Receiver>, &mut dyn FnMut(u64)),
) {
    let model = threaded();
    let [left, right] = bring_up_all(|index| model.function(index), &config());
    let End {
        domain,
        mut completions,
        region: from,
        queue_pair: a,
    } = End::on(&left).unwrap();
    let right = Arc::new(right);
    let there = End::on(&right).unwrap();
    let (to_a, to_b) = (a.endpoint(), there.queue_pair.endpoint());
    let mut a = a.connect(&to_b).unwrap();
    let b = there.queue_pair.connect(&to_a).unwrap();
    let section = WorkerSection {
        polling,
        idle_us: 50,
        sleep_ms: longest_sleep.as_millis() as u64,
        ..WorkerSection::default()
    };
    let device = Arc::clone(&right);
    let receiver = Receiver::new(device, there.completions, b, there.region).unwrap();
    let make = move || receiver;
    let policy = Policy::of(&section, OnInterrupt);
    let worker = Worker::start_with(policy, None, 16, make, Receiver::poll).unwrap();
    let mut send = |id| {
        let piece = [from.slice(0..8).unwrap()];
        a.send(id, &piece, Flags::SIGNALLED).unwrap();
        a.ring();
        let begin = Instant::now();
        let mut batch = [Completion::EMPTY; 4];
        let mut events = Vec::new();
        while completions.poll(&mut batch).is_empty() {
            // A failed queue pair is reported here, and completes nothing before.
            left.poll_events(&mut events).unwrap();
            assert!(events.is_empty(), "send {id}: {events:?}");
            assert!(begin.elapsed() < LIMIT, "send {id} did not complete");
            std::thread::yield_now();
        }
    };
    check(&worker, &mut send);
    drop(worker.stop(LIMIT).unwrap());
    drop((a, from, completions, domain));
    let right = Arc::into_inner(right).expect("no other owner");
    crate::finish(&model, [left, right]);
    model.stop();
}

/// Waits until the worker has begun another sleep than it has had before.
fn wait_for_sleep(worker: &Worker<Receiver>, before: u64) {
    let begin = Instant::now();
    while worker.statistics().sleeps == before {
        assert!(begin.elapsed() < LIMIT, "it does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As many messages as the worker has received, without a request, which would wake it.
fn counter(worker: &Worker<Receiver>) -> Arc<AtomicUsize> {
    let count = |state: &mut Receiver| Arc::clone(&state.count);
    worker.ask(count, LIMIT).unwrap()
}

/// Waits until so many have come.
fn wait_for_count(count: &AtomicUsize, wanted: u64, limit: Duration) {
    let begin = Instant::now();
    while (count.load(Ordering::Relaxed) as u64) < wanted {
        assert!(begin.elapsed() < limit, "{wanted} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
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
    const LONGEST: Duration = Duration::from_secs(60);
    scene_with(Polling::BusyThenSleep, LONGEST, |worker, send| {
        let (count, mut sleeps) = (counter(worker), 0);
        for id in 0..20 {
            // Idle for longer than it polls: it sleeps.
            wait_for_sleep(worker, sleeps);
            sleeps = worker.statistics().sleeps;
            send(id);
            // Far less than its longest sleep: it was the interrupt that woke it.
            wait_for_count(&count, id + 1, LONGEST / 3);
        }
        let interrupted = worker.ask(|state| state.interrupted, LIMIT).unwrap();
        assert!(interrupted > 0, "{:?}", worker.statistics());
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

#[test]
fn a_worker_whose_interrupt_is_lost_looks_by_itself_once_its_longest_sleep_is_over() {
    scene_with(
        Polling::BusyThenSleep,
        Duration::from_millis(200),
        |worker, send| {
            send(0);
            wait_for(worker, 1);
            // Masks the vector of the events without the driver's knowledge: their interrupts are
            // lost.
            let shut =
                |state: &mut Receiver| state.device.registers().write(VECTOR_CONTROL.at(1), 0);
            worker.ask(shut, LIMIT).unwrap().unwrap();
            let (count, mut least) = (counter(worker), Duration::MAX);
            for id in 1..4 {
                wait_for_sleep(worker, worker.statistics().sleeps);
                let sent = Instant::now();
                send(id);
                wait_for_count(&count, id + 1, LIMIT);
                let found = |state: &mut Receiver| (state.received.clone(), state.interrupted);
                let (received, interrupted) = worker.ask(found, LIMIT).unwrap();
                let taken = received.get(id as usize).map(|(_, at)| *at - sent);
                least = least.min(taken.expect("seen without a request"));
                assert!(interrupted <= 1, "{interrupted} interrupts");
            }
            assert!(least < Duration::from_millis(390), "{least:?}");
        },
    );
}
