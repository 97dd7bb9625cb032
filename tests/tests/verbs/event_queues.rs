//! Completion event queues: each wakes its own worker, before and after a recovery.

use ringside_lan::Burst;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::rdma::{
    Completion, CompletionQueue, Connected, Flags, Interrupts, MemoryRegion, Notify, QueuePair,
    QueuePairConfig, RdmaError,
};
use ringside_pmd::worker::{Policy, Worker};
use ringside_spec::lan::registers::interrupts::{COMPLETION_EVENT_QUEUE_CONTROL, VECTOR_CONTROL};
use ringside_testkit::{Pair, bring_up_all, config, threaded};
use ringside_tests::receiver::{End, OnInterrupt, Receiver};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Long enough for a descriptor that is readable already.
const SHORT: Duration = Duration::from_millis(200);

const QUEUES: u16 = 3;

/// A connection whose completions on `a` report to one event queue.
struct Lane {
    completions: CompletionQueue,
    interrupts: Interrupts,
    queue_pair: QueuePair<Connected>,
    peer: QueuePair<Connected>,
}

fn lane(pair: &Pair, event_queue: u16) -> Lane {
    let device = &pair.a.device;
    let completions = device.completion_queue_on(64, event_queue).unwrap();
    assert_eq!(completions.event_queue(), event_queue);
    let a = pair.a.queue_pair(QueuePairConfig::reliable(&completions));
    let b = pair.b.queue_pair(pair.b.config());
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    Lane {
        completions,
        interrupts: device.interrupts_of(event_queue).unwrap(),
        queue_pair: a.connect(&to_b).unwrap(),
        peer: b.connect(&to_a).unwrap(),
    }
}

fn several() -> Pair {
    let mut config = config();
    config.rdma.event_queues = QUEUES;
    Pair::with(&config)
}

/// Arms all lanes, writes on each in turn, and checks who is woken.
fn exchange(pair: &Pair, lanes: &mut [Lane], from: &MemoryRegion, to: &MemoryRegion) {
    let device = &pair.a.device;
    let poll = |number: u16| {
        let mut named = Vec::new();
        device
            .poll_completion_events_of(number, &mut named)
            .unwrap();
        named
    };
    for lane in &mut *lanes {
        lane.completions.arm(Notify::Next);
        assert!(!lane.interrupts.wait(Duration::ZERO).unwrap());
    }
    for place in 0..lanes.len() {
        let lane = &mut lanes[place];
        let pieces = [from.slice(0..8).unwrap()];
        let target = to.remote().at(0);
        let flags = Flags::SIGNALLED;
        lane.queue_pair.write(7, &pieces, target, flags).unwrap();
        lane.queue_pair.ring();
        pair.pass();
        for (other, lane) in lanes.iter().enumerate() {
            let limit = if other == place {
                SHORT
            } else {
                Duration::ZERO
            };
            let woken = lane.interrupts.wait(limit).unwrap();
            assert_eq!(woken, other == place, "queue {other}, written on {place}");
        }
        for (number, lane) in (0..).zip(&*lanes) {
            let expected = match usize::from(number) == place {
                true => vec![lane.completions.number()],
                false => Vec::new(),
            };
            assert_eq!(poll(number), expected, "queue {number}, written on {place}");
        }
        let mut batch = [Completion::EMPTY; 4];
        assert_eq!(lanes[place].completions.poll(&mut batch).len(), 1);
    }
}

#[test]
fn a_completion_queue_raises_the_vector_of_its_event_queue_and_no_other() {
    let pair = several();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let mut lanes: Vec<Lane> = (0..QUEUES).map(|number| lane(&pair, number)).collect();
    for _ in 0..3 {
        exchange(&pair, &mut lanes, &from, &to);
    }
    let report = pair.a.device.event_queues().unwrap();
    // The pair's own completion queue reports to queue 0.
    let seen: Vec<_> = report
        .iter()
        .map(|queue| {
            (
                queue.number,
                queue.vector,
                queue.completion_queues,
                queue.events,
            )
        })
        .collect();
    let expected = [(0, Some(1), 2, 3), (1, Some(2), 1, 3), (2, Some(3), 1, 3)];
    assert_eq!(seen, expected);
    // Each has one owner; once dropped, its causes and its vector are off.
    for (number, lane) in (0..).zip(lanes) {
        let taken = pair.a.device.interrupts_of(number).unwrap_err();
        assert_eq!(taken, RdmaError::InterruptTaken);
        drop(lane.interrupts);
        let registers = pair.a.device.registers();
        let number = u32::from(number);
        let cause = COMPLETION_EVENT_QUEUE_CONTROL.at(number);
        assert_eq!(registers.read(cause).unwrap(), 0);
        assert_eq!(registers.read(VECTOR_CONTROL.at(number + 1)).unwrap(), 0);
        drop((lane.queue_pair, lane.peer, lane.completions));
    }
    drop((from, to));
    pair.finish();
}

#[test]
fn event_queues_wake_their_owners_again_after_a_recovery() {
    let mut pair = several();
    let old: Vec<Lane> = (0..QUEUES).map(|number| lane(&pair, number)).collect();
    pair.a.device.give_up().unwrap();
    // Who sleeps learns of the failure: each on its own vector.
    for lane in &old {
        assert!(lane.interrupts.wait(SHORT).is_err());
    }
    pair.a.device.recover().unwrap();
    pair.a.domain = pair.a.device.protection_domain().unwrap();
    pair.a.completions = pair.a.device.completion_queue(256).unwrap();
    assert_eq!(
        pair.a.device.event_queues().unwrap().len(),
        usize::from(QUEUES)
    );
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let mut lanes: Vec<Lane> = (0..QUEUES).map(|number| lane(&pair, number)).collect();
    // What is dropped now is of the life before: the new owners keep their vectors.
    drop(old);
    for _ in 0..2 {
        exchange(&pair, &mut lanes, &from, &to);
    }
    drop((lanes, from, to));
    pair.finish();
}

#[test]
fn an_event_queue_that_is_none_is_refused_with_the_ones_that_there_are() {
    let pair = several();
    let refused = [
        pair.a.device.completion_queue_on(64, QUEUES).map(drop),
        pair.a.device.interrupts_of(QUEUES).map(drop),
        pair.a
            .device
            .poll_completion_events_of(QUEUES, &mut Vec::new())
            .map(drop),
    ];
    for result in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("is 3; allowed are 0 to 2"), "{error}");
        assert!(error.contains("rdma.event_queues"), "{error}");
    }
    pair.finish();
}

#[test]
fn packets_raise_no_vector_of_completions_and_an_opened_port_masks_none() {
    let pair = several();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let mut lanes: Vec<Lane> = (0..QUEUES).map(|number| lane(&pair, number)).collect();
    exchange(&pair, &mut lanes, &from, &to);
    let settings = PortSettings::default();
    let mut ports = [&pair.a, &pair.b].map(|end| end.device.open_port(&settings).expect("a port"));
    exchange(&pair, &mut lanes, &from, &to);
    // To everyone, from a station that is none of ours.
    let frame = [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xB5], &[0; 50]].concat();
    let mut burst = Burst::with_limit(1);
    let packet = ports[1].pool.packet_with(&frame).expect("a buffer");
    burst.push(packet).expect("room");
    assert_eq!(ports[1].transmit[0].send(&mut burst), 1);
    let received = (0..100).any(|_| {
        pair.pass();
        ports[0].receive[0].receive(&mut burst) > 0
    });
    assert!(received, "the frame did not arrive");
    for lane in &lanes {
        assert!(!lane.interrupts.wait(Duration::ZERO).unwrap());
    }
    drop((burst, ports));
    exchange(&pair, &mut lanes, &from, &to);
    drop((lanes, from, to));
    pair.finish();
}

/// Waits until a receiver has so many messages, without waking its worker.
fn wait_for(count: &std::sync::atomic::AtomicUsize, wanted: usize) {
    let begin = Instant::now();
    while count.load(std::sync::atomic::Ordering::Acquire) < wanted {
        assert!(begin.elapsed() < LIMIT, "{wanted} did not come");
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn two_workers_each_sleep_on_their_own_vector_and_wake_for_their_own_messages() {
    const ROUNDS: usize = 20;
    let model = threaded();
    let mut config = config();
    config.rdma.event_queues = 2;
    let [left, right] = bring_up_all(|index| model.function(index), &config);
    let right = Arc::new(right);
    let mut senders = Vec::new();
    let mut workers = Vec::new();
    for event_queue in 0..2 {
        let here = End::on(&left).unwrap();
        let there = End::reporting_to(&right, event_queue).unwrap();
        let (to_a, to_b) = (here.queue_pair.endpoint(), there.queue_pair.endpoint());
        let a = here.queue_pair.connect(&to_b).unwrap();
        let b = there.queue_pair.connect(&to_a).unwrap();
        let device = Arc::clone(&right);
        let receiver = Receiver::new(device, there.completions, b, there.region).unwrap();
        let count = Arc::clone(&receiver.count);
        let policy = Policy::BusyThenSleep {
            idle: Duration::ZERO,
            longest: LIMIT,
            sleeper: Box::new(OnInterrupt),
        };
        let make = move || receiver;
        let worker = Worker::start_with(policy, None, 16, make, Receiver::poll).unwrap();
        workers.push((worker, count));
        senders.push((a, here.region, here.completions, here.domain));
    }
    // All messages go to one worker, then all to the other.
    for (place, (a, from, completions, _)) in senders.iter_mut().enumerate() {
        let other = &workers[1 - place].0;
        // Before its first sleep it may be busy for a while.
        let begin = Instant::now();
        while other.statistics().sleeps == 0 {
            assert!(begin.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
        for round in 0..ROUNDS {
            let piece = [from.slice(0..8).unwrap()];
            a.send(round as u64, &piece, Flags::SIGNALLED).unwrap();
            a.ring();
            wait_for(&workers[place].1, round + 1);
            let mut batch = [Completion::EMPTY; 4];
            while completions.poll(&mut batch).is_empty() {
                std::thread::yield_now();
            }
        }
    }
    let mut interrupted = Vec::new();
    for (worker, _) in workers {
        let state = worker.stop(LIMIT).unwrap();
        assert_eq!(state.received.len(), ROUNDS);
        interrupted.push(state.interrupted);
    }
    // One for each message at most: none for those to the other worker.
    let own = |count: &usize| (1..=ROUNDS).contains(count);
    assert!(interrupted.iter().all(own), "{interrupted:?}");
    let events: Vec<u64> = right
        .event_queues()
        .unwrap()
        .iter()
        .map(|queue| queue.events)
        .collect();
    let own = |count: &u64| (1..=ROUNDS as u64).contains(count);
    assert!(events.iter().all(own), "{events:?}");
    drop(senders);
    let right = Arc::into_inner(right).expect("no other owner");
    crate::finish(&model, [left, right]);
    model.stop();
}

#[test]
fn asynchronous_events_have_one_owner() {
    let pair = Pair::new();
    let device = &pair.a.device;
    let taken = |refused: Result<Interrupts, RdmaError>| {
        assert_eq!(refused.map(drop), Err(RdmaError::InterruptTaken));
    };
    // The first owner of completions has them too, if no other one has.
    let completions = device.interrupts().unwrap();
    taken(device.event_interrupts());
    drop(completions);
    let events = device.event_interrupts().unwrap();
    taken(device.event_interrupts());
    let completions = device.interrupts().unwrap();
    taken(device.interrupts());
    drop(events);
    // It did not get them later.
    let events = device.event_interrupts().unwrap();
    drop((events, completions));
    pair.finish();
}

/// A completion queue on `a` that asked for an event and got a completion. Fields are dropped in
/// this order.
struct Asked {
    _ends: [QueuePair<Connected>; 2],
    completions: CompletionQueue,
}

impl Asked {
    fn new(pair: &Pair, from: &MemoryRegion, to: &MemoryRegion) -> Self {
        let mut completions = pair.a.device.completion_queue(16).unwrap();
        completions.arm(Notify::Next);
        let a = pair.a.queue_pair(QueuePairConfig::reliable(&completions));
        let b = pair.b.queue_pair(pair.b.config());
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        let (mut a, b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
        let pieces = [from.slice(0..8).unwrap()];
        let target = to.remote().at(0);
        a.write(7, &pieces, target, Flags::SIGNALLED).unwrap();
        a.ring();
        let mut batch = [Completion::EMPTY; 4];
        for _ in 0..1000 {
            pair.pass();
            if !completions.poll(&mut batch).is_empty() {
                let _ends = [a, b];
                return Self { _ends, completions };
            }
        }
        panic!("the write does not complete");
    }
}

/// The device is not told what the program has read of the ring of events.
#[test]
fn events_that_no_program_takes_hide_no_later_event() {
    let mut config = config();
    config.rdma.completion_queues = 16;
    let mut pair = Pair::with(&config);
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let events = |pair: &Pair| {
        let mut named = Vec::new();
        let count = pair.a.device.poll_completion_events(&mut named).unwrap();
        assert_eq!(count, named.len());
        named
    };
    let early = Asked::new(&pair, &from, &to);
    for _ in 0..100 {
        drop(Asked::new(&pair, &from, &to));
        // The queue of the other end is not asked, but it has to be polled.
        pair.b.completions.poll(&mut [Completion::EMPTY; 4]);
    }
    // Of the queues that are there, each event is reported once: those of the others are gone.
    assert_eq!(events(&pair), [early.completions.number()]);
    for _ in 0..100 {
        let late = Asked::new(&pair, &from, &to);
        assert_eq!(events(&pair), [late.completions.number()]);
        drop(late);
        pair.b.completions.poll(&mut [Completion::EMPTY; 4]);
    }
}
