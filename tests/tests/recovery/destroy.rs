//! Destroying ends within its deadline for any behaviour of the device, and a reset returns
//! everything that the device did not confirm.

use crate::causes::renew;
use crate::traffic::exchange;
use ringside_model::Fault;
use ringside_model::faults::ANY_CONTROL_COMMAND;
use ringside_pmd::rdma::{Destination, QueuePairConfig, WindowKind};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{Pair, config};
use std::net::IpAddr;
use std::time::Duration;

/// The longest wait for an answer.
const DEADLINE_MS: u64 = 40;

/// One command that is never answered, after which none is sent; an admin command besides.
const MAX_DURATION: Duration = Duration::from_millis(2 * DEADLINE_MS + 10);

/// Every way in which a device fails to carry out commands.
fn ways() -> Vec<Fault> {
    let opcode = ANY_CONTROL_COMMAND;
    vec![
        Fault::ControlCommandSilent { opcode },
        Fault::ControlCommandFails {
            opcode,
            major: 0x1234,
            minor: 0x5678,
        },
        Fault::ControlCommandGarbled { opcode },
        Fault::ControlCommandDelayed {
            opcode,
            by: Duration::from_secs(60),
        },
        Fault::FunctionDead,
        Fault::ProtocolEngineStall,
    ]
}

/// Makes an object and returns the function that destroys it.
type Make = fn(&mut Pair) -> Box<dyn FnOnce()>;

fn kinds() -> Vec<(&'static str, Make)> {
    vec![
        ("queue pair", |pair| {
            let queue_pair = pair.a.queue_pair(pair.a.config());
            Box::new(move || drop(queue_pair.destroy()))
        }),
        ("connected queue pair", |pair| {
            let (a, b) = pair.connect(|config| config);
            drop(b);
            Box::new(move || drop(a.destroy()))
        }),
        ("member of a multicast group", |pair| {
            let config = QueuePairConfig::datagram(&pair.a.completions);
            let made = pair.a.domain.datagram_queue_pair(config);
            let member = made.expect("a queue pair").ready(0x77).expect("ready");
            member.join(IpAddr::from([224, 1, 2, 3])).expect("joined");
            Box::new(move || drop(member.destroy()))
        }),
        ("interrupt", |pair| {
            let interrupts = pair.a.device.interrupts().expect("a vector");
            Box::new(move || drop(interrupts))
        }),
        ("completion queue", |pair| {
            let queue = pair.a.device.completion_queue(64).expect("a queue");
            Box::new(move || drop(queue))
        }),
        ("memory region", |pair| {
            let region = pair.a.region(8192);
            Box::new(move || drop(region.deregister()))
        }),
        ("memory window", |pair| {
            let window = pair.a.domain.memory_window(WindowKind::Two);
            let window = window.expect("a window");
            Box::new(move || drop(window))
        }),
        ("fast region", |pair| {
            let mut region = pair.a.domain.fast_region(4).expect("a fast region");
            let memory = pair.a.device.allocate(4096).expect("memory");
            region.load(vec![memory]).expect("loaded");
            Box::new(move || drop(region))
        }),
        ("address handle", |pair| {
            let to = pair.b.queue_pair(pair.b.config()).endpoint();
            let handle = pair.a.domain.address_handle(&Destination::from(&to));
            let handle = handle.expect("an address handle");
            Box::new(move || drop(handle))
        }),
    ]
}

#[test]
fn destroying_any_object_ends_within_its_deadline_for_any_device_fault() {
    for fault in ways() {
        for (what, make) in kinds() {
            let mut config = config();
            config.deadlines.control_queue_ms = DEADLINE_MS;
            config.deadlines.admin_queue_ms = DEADLINE_MS;
            let mut pair = Pair::with(&config);
            let destroy = make(&mut pair);
            pair.world.with(|world| world.inject(0, fault));
            let clock = pair.world.clock();
            let began = clock.now();
            destroy();
            let took = clock.now().since(began);
            assert!(took <= MAX_DURATION, "{what}, {fault:?}: {took:?}");
            // With the fault over, a reset returns everything that was kept.
            pair.world.with(|world| world.clear_faults(0));
            if pair.a.device.failure().is_none() {
                pair.a.device.give_up().expect("in service");
            }
            let report = pair.a.device.recover();
            report.unwrap_or_else(|error| panic!("{what}, {fault:?}: {error}"));
            renew(&mut pair);
            assert_eq!(pair.a.device.quarantine().expect("in service"), []);
            exchange(&mut pair, 0x77);
            pair.finish();
        }
    }
}

/// Otherwise it stays in the device, and its completion queues are destroyed under it.
#[test]
fn a_queue_pair_that_the_device_does_not_move_to_the_error_state_is_destroyed_all_the_same() {
    let pair = Pair::new();
    let (queue_pair, peer) = pair.connect(|config| config);
    let refused = Fault::ControlCommandFails {
        opcode: Opcode::ModifyQueuePair.code(),
        major: 1,
        minor: 1,
    };
    pair.world.with(|world| world.inject(0, refused));
    queue_pair.destroy().expect("the device destroys it");
    pair.world.with(|world| world.clear_faults(0));
    assert_eq!(pair.a.device.quarantine().expect("in service"), []);
    drop(peer);
    pair.finish();
}

/// Its completion queues stay as well: the device would refuse to destroy them, or not notice.
#[test]
fn a_queue_pair_that_the_device_keeps_keeps_its_completion_queues_until_the_reset() {
    let pair = Pair::new();
    let completions = pair.a.device.completion_queue(64).expect("a queue");
    let made = pair
        .a
        .domain
        .queue_pair(QueuePairConfig::reliable(&completions));
    let refused = Fault::ControlCommandFails {
        opcode: Opcode::DestroyQueuePair.code(),
        major: 1,
        minor: 1,
    };
    pair.world.with(|world| world.inject(0, refused));
    made.expect("a queue pair").destroy().expect_err("refused");
    drop(completions);
    pair.world.with(|world| world.clear_faults(0));
    assert_eq!(pair.a.device.quarantine().expect("in service").len(), 1);
    pair.finish();
}

#[test]
fn unconfirmed_objects_are_quarantined_and_freed_by_the_reset() {
    let opcode = ANY_CONTROL_COMMAND;
    let mut pair = Pair::new();
    let region = pair.a.region(1 << 20);
    pair.world
        .with(|world| world.inject(0, Fault::ControlCommandSilent { opcode }));
    region.deregister().expect_err("silence");
    let kept = pair.a.device.quarantine().expect("in service");
    assert_eq!((kept.len(), kept[0].bytes), (1, 1 << 20));
    pair.world.with(|world| world.clear_faults(0));
    let report = pair.a.device.recover().expect("back in service");
    assert!(
        report.reclaimed_bytes >= 1 << 20,
        "{}",
        report.reclaimed_bytes
    );
    renew(&mut pair);
    assert_eq!(pair.a.device.quarantine().expect("in service"), []);
    pair.finish();
}

#[test]
fn a_control_queue_that_falls_silent_fails_the_queue_pairs_by_the_next_events() {
    let mut pair = Pair::new();
    let [mut a, b] = crate::traffic::connect(&pair);
    a.post(&b.region.remote(), 4).expect("room");
    let opcode = ANY_CONTROL_COMMAND;
    pair.world
        .with(|world| world.inject(0, Fault::ControlCommandSilent { opcode }));
    pair.a.device.completion_queue(16).expect_err("silence");
    let mut events = Vec::new();
    pair.a.device.poll_events(&mut events).expect("the event");
    assert_eq!(events.len(), 1, "{events:?}");
    a.count(&mut pair.a);
    assert_eq!(a.outstanding(), 0);
    assert!(a.queue_pair.has_failed());
    pair.world.with(|world| world.clear_faults(0));
    pair.a.device.recover().expect("back in service");
    drop((a, b));
    renew(&mut pair);
    pair.finish();
}
