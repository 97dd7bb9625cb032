//! Recoveries of a device in sequence: the state before and after each, and after the last.

use crate::causes::renew;
use crate::traffic::{connect, exchange};
use ringside_bus::CountedFunction;
use ringside_model::function::ResetKind;
use ringside_model::{Fault, Stepped, WorldSettings};
use ringside_pmd::rdma::{Completion, Connected, Event, Flags, QueuePair, RdmaError};
use ringside_pmd::recovery::{FailureCause, RecoverError, Supervised, Supervision};
use ringside_spec::lan::registers::reset::{FUNCTION_CONTROL, FunctionControl};
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_SEND};
use ringside_testkit::{Bed, End, Pair, bring_up, config, shut_down};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn numbers_and_keys_are_not_reused_after_a_recovery() {
    let mut pair = Pair::new();
    let seen = |pair: &Pair| {
        let (a, b) = pair.connect(|config| config);
        let region = pair.a.region(4096);
        let endpoint = a.endpoint();
        drop(b);
        (endpoint.queue_pair, endpoint.start_psn, region.remote_key())
    };
    let mut known = vec![seen(&pair)];
    for _ in 0..4 {
        pair.a.device.give_up().expect("in service");
        pair.a.device.recover().expect("back in service");
        renew(&mut pair);
        let now = seen(&pair);
        for before in &known {
            assert_ne!(before.0, now.0, "a queue pair number of another life");
            assert_ne!(before.1, now.1, "a sequence number of another life");
            assert_ne!(before.2, now.2, "a key of another life");
        }
        known.push(now);
    }
    assert_eq!(pair.a.device.life(), 5);
    pair.finish();
}

#[test]
fn a_key_from_before_a_recovery_gives_no_access() {
    let mut pair = Pair::new();
    let old = pair.a.region(4096);
    let remote = old.remote();
    pair.a.device.give_up().expect("in service");
    pair.a.device.recover().expect("back in service");
    renew(&mut pair);
    let now = pair.a.region(4096);
    assert!(now.write(0, &[7; 64]));
    let (_mine, mut theirs) = pair.connect(|config| config);
    let source = pair.b.region(64);
    let bytes = source.slice(0..64).expect("inside");
    theirs
        .write(1, &[bytes], remote.at(0), Flags::SIGNALLED)
        .expect("room");
    theirs.ring();
    let mut batch = [Completion::EMPTY; 4];
    let mut done = Vec::new();
    for _ in 0..10_000 {
        pair.b.device.poll_events(&mut Vec::new()).expect("events");
        done.extend_from_slice(pair.b.completions.poll(&mut batch));
        if !done.is_empty() {
            break;
        }
        pair.pass();
    }
    assert!(!done[0].is_success(), "{done:?}");
    let mut bytes = [0; 64];
    assert!(now.read(0, &mut bytes));
    assert_eq!(bytes, [7; 64]);
}

#[test]
fn a_ring_delayed_past_a_recovery_reaches_no_queue_pair() {
    const SEND: u64 = DOORBELL_PAGE + DOORBELL_PAGE_SEND;
    let world = Bed::open();
    let functions = [0, 1].map(|index| CountedFunction::new(world.function(index)));
    let [a, b] = [0, 1].map(|index: usize| {
        let function = Arc::clone(&functions[index]);
        End::on(function, index as u16, &config())
    });
    let mut pair = Pair { world, a, b };
    let rung = || functions[0].take().written(0, SEND);
    let target = pair.b.region(64);
    let (mut old, peers) = pair.connect(|config| config.inline_bytes(8));
    let post = |qp: &mut QueuePair<Connected>| {
        let there = target.remote().at(0);
        qp.write_inline(1, &[7; 8], there, None, Flags::SIGNALLED)
    };
    post(&mut old).expect("room");
    rung();
    old.ring();
    assert_eq!(rung(), 1);
    post(&mut old).expect("room");
    pair.a.device.give_up().expect("in service");
    pair.a.device.recover().expect("back in service");
    rung();
    old.ring();
    assert_eq!(rung(), 0, "a queue pair of an earlier life rang");
    renew(&mut pair);
    let (mut new, peer_of_new) = pair.connect(|config| config.inline_bytes(8));
    post(&mut new).expect("room");
    rung();
    new.ring();
    old.ring();
    assert_eq!(rung(), 1);
    drop((new, peer_of_new, old, peers, target));
    pair.finish();
}

#[test]
fn memory_from_before_a_recovery_is_registered_again_with_its_content() {
    let mut pair = Pair::new();
    let region = pair.a.region(4096);
    assert!(region.write(0, &[9; 4096]));
    pair.a.device.give_up().expect("in service");
    // Before the reset the device may still use it: the region stays whole.
    let error = region.deregister().expect_err("not reset yet");
    let ringside_pmd::rdma::DeregisterError::InUse { region, error } = error else {
        panic!("{error}");
    };
    assert!(matches!(error, RdmaError::DeviceFailed { .. }), "{error}");
    pair.a.device.recover().expect("back in service");
    let buffers = region.deregister().expect("the device does not know it");
    renew(&mut pair);
    let access = ringside_pmd::rdma::Access::ALL;
    let again = pair
        .a
        .domain
        .register_all(buffers, access)
        .expect("registered again");
    let mut bytes = [0; 4096];
    assert!(again.read(0, &mut bytes));
    assert_eq!(bytes, [9; 4096]);
    drop(again);
    pair.finish();
}

#[test]
fn many_recoveries_leave_nothing_behind() {
    let mut pair = Pair::new();
    let mut used = Vec::new();
    for round in 0..10 {
        let sides = connect(&pair);
        pair.world
            .with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));
        for _ in 0..100 {
            pair.pass();
            pair.a.device.poll_events(&mut Vec::new()).ok();
        }
        assert_eq!(pair.a.device.failure(), Some(FailureCause::FunctionReset));
        pair.a.device.recover().expect("back in service");
        drop(sides);
        renew(&mut pair);
        exchange(&mut pair, round);
        used.push(pair.a.device.pool().expect("memory").usage().used_bytes);
    }
    let most = used.iter().max().expect("rounds");
    assert!(*most <= used[0] + 8 * 4096, "{used:?}");
    pair.finish();
}

#[test]
fn a_failed_device_that_is_shut_down_is_left_as_found() {
    for fault in [
        Fault::Reset(ResetKind::Function),
        Fault::Reset(ResetKind::Core),
        Fault::ProtocolEngineStall,
        Fault::FirmwareStall,
    ] {
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let before = world.with(|world| world.snapshot(0)).expect("a function");
        let device = bring_up(&world, 0, &config());
        world.with(|world| world.inject(0, fault));
        for _ in 0..100 {
            device.probe();
            world.clock().pause(Duration::from_micros(100));
        }
        assert!(device.failure().is_some(), "{fault:?}");
        let report = device.shutdown();
        assert!(
            report.failures.is_empty(),
            "{fault:?}: {:#?}",
            report.failures
        );
        assert_eq!(report.leaked_bytes, 0, "{fault:?}");
        let after = world.with(|world| world.snapshot(0)).expect("a function");
        assert_eq!(before, after, "{fault:?}");
        let breaches = world.with(|world| world.breaches(0));
        assert!(breaches.is_empty(), "{fault:?}: {breaches:#?}");
    }
}

#[test]
fn after_recovery_a_shutdown_leaves_the_device_as_found() {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let before = world.with(|world| world.snapshot(0)).expect("a function");
    let mut device = bring_up(&world, 0, &config());
    for _ in 0..3 {
        device.give_up().expect("in service");
        device.recover().expect("back in service");
    }
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let after = world.with(|world| world.snapshot(0)).expect("a function");
    assert_eq!(before, after);
}

#[test]
fn a_device_that_does_not_come_up_again_stays_out_of_service_until_it_does() {
    let mut pair = Pair::new();
    pair.a.device.give_up().expect("in service");
    pair.world
        .with(|world| world.inject(0, Fault::FirmwareNeverReady));
    let error = pair.a.device.recover().expect_err("never ready");
    // It is not reset while it loads from its flash.
    let RecoverError::NotReset { error, .. } = *error else {
        panic!("{error}");
    };
    assert!(error.to_string().contains("GLNVM_ULD"), "{error}");
    let failed = pair
        .a
        .device
        .protection_domain()
        .expect_err("not in service");
    assert!(matches!(failed, RdmaError::DeviceFailed { .. }), "{failed}");
    pair.world.with(|world| world.clear_faults(0));
    pair.a.device.recover().expect("back in service");
    renew(&mut pair);
    exchange(&mut pair, 0x11);
    pair.finish();
}

#[test]
fn tending_recovers_by_itself_and_tells_once() {
    let mut pair = Pair::new();
    let mut supervision = Supervision::new(Duration::from_millis(1), Duration::from_millis(1));
    let mut events = Vec::new();
    for (life, fault) in [
        (2, Fault::Reset(ResetKind::Core)),
        (3, Fault::ProtocolEngineStall),
        (4, Fault::FirmwareStall),
    ] {
        pair.world.with(|world| world.inject(0, fault));
        let mut report = None;
        for _ in 0..1000 {
            let supervised = pair.a.device.supervise(&mut supervision, &mut events);
            if let Supervised::Recovered(found) = supervised.expect("supervised") {
                report = Some(found);
                break;
            }
            pair.pass();
        }
        assert_eq!(report.expect("recovered").life, life);
        let told = events
            .iter()
            .filter(|event| matches!(event, Event::DeviceFailed { .. }));
        assert_eq!(told.count(), 1, "{events:?}");
        events.clear();
        renew(&mut pair);
        exchange(&mut pair, 0x42);
    }
    pair.finish();
}

#[test]
fn a_clock_that_jumps_fails_nothing_that_answers() {
    let mut pair = Pair::new();
    for seconds in [1, 3600] {
        if let ringside_testkit::Bed::Stepped(world) = &pair.world {
            world.jump(Duration::from_secs(seconds));
        }
        assert_eq!(pair.a.device.probe(), None);
        exchange(&mut pair, 0x21);
    }
    pair.finish();
}

#[test]
fn other_threads_see_the_failure_and_their_requests_end() {
    let mut pair = Pair::new();
    let watch = pair.a.device.watch().expect("in service");
    let [mut a, _b] = connect(&pair);
    a.post(&_b.region.remote(), 8).expect("room");
    assert!(!watch.has_failed());
    pair.a.device.give_up().expect("in service");
    assert!(watch.has_failed());
    let mut completions = std::mem::replace(
        &mut pair.a.completions,
        pair.b.device.completion_queue(16).expect("a queue"),
    );
    let outstanding = a.outstanding();
    let thread = std::thread::spawn(move || {
        let mut batch = [Completion::EMPTY; 64];
        let mut count = 0;
        for _ in 0..1000 {
            count += completions.poll(&mut batch).len();
        }
        (count, completions)
    });
    let (count, completions) = thread.join().expect("polled");
    assert_eq!(count, outstanding);
    drop((completions, a));
    pair.a.device.recover().expect("back in service");
    assert!(watch.has_failed());
    assert!(!pair.a.device.watch().expect("in service").has_failed());
}

#[test]
fn a_thread_waiting_for_the_interrupt_is_resumed_by_the_failure_with_its_cause() {
    let mut pair = Pair::new();
    let interrupts = pair.a.device.interrupts().expect("a vector");
    pair.a.device.give_up().expect("in service");
    let told = interrupts.wait(Duration::from_secs(5)).expect_err("failed");
    assert!(matches!(told, RdmaError::DeviceFailed { .. }), "{told}");
    pair.a.device.recover().expect("back in service");
    let again = pair.a.device.interrupts().expect("a vector of this life");
    drop(interrupts);
    renew(&mut pair);
    let mut armed = pair.a.device.completion_queue(16).expect("a queue");
    armed.arm(ringside_pmd::rdma::Notify::Next);
    let a = pair
        .a
        .queue_pair(ringside_pmd::rdma::QueuePairConfig::reliable(&armed));
    let b = pair.b.queue_pair(pair.b.config());
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let mut a = a.connect(&to_b).expect("a to b");
    let b = b.connect(&to_a).expect("b to a");
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let bytes = from.slice(0..64).expect("inside");
    a.write(1, &[bytes], to.remote().at(0), Flags::SIGNALLED)
        .expect("room");
    a.ring();
    for _ in 0..100 {
        pair.pass();
    }
    assert!(again.wait(Duration::from_secs(5)).expect("in service"));
    drop((a, b, armed, again, from, to));
    pair.finish();
}

/// The reset ends only once the other thread has dropped its interrupt.
#[test]
fn an_interrupt_that_is_dropped_during_a_reset_writes_no_register() {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let mut config = config();
    config.device.reset_deadline_ms = 600_000;
    let mut device = bring_up(&world, 0, &config);
    let interrupts = device.event_interrupts().expect("a vector");
    world.with(|world| world.inject(0, Fault::ResetNeverEnds));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let function = world.function(0).expect("a function");
            let control = || function.read32(0, FUNCTION_CONTROL).expect("a register");
            while !FunctionControl(control()).software_reset() {
                std::thread::yield_now();
            }
            drop(interrupts);
            world.with(|world| world.clear_faults(0));
        });
        device.recover().expect("back in service");
    });
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
    // The vector is free for the next owner.
    drop(device.event_interrupts().expect("a vector"));
    shut_down([device]);
}

#[test]
fn a_failed_device_refuses_at_once_and_blocks_no_caller() {
    let mut pair = Pair::new();
    let (mut a, _b) = pair.connect(|config| config);
    pair.world.with(|world| world.inject(1, Fault::LinkDown));
    // A request that gets no answer: the timer for its repetition runs.
    a.write_inline(
        1,
        &[7; 8],
        pair.b.region(64).remote().at(0),
        None,
        Flags::SIGNALLED,
    )
    .expect("room");
    a.ring();
    pair.pass();
    pair.a.device.give_up().expect("in service");
    let clock = pair.world.clock();
    let began = clock.now();
    let error = pair.a.device.query_port().expect_err("not in service");
    assert!(matches!(error, RdmaError::DeviceFailed { .. }), "{error}");
    assert_eq!(clock.now(), began, "it was waited for");
    // That timer has long expired and is stopped: it does not cut the time into small steps.
    clock.pause(Duration::from_secs(1));
    clock.pause(Duration::from_millis(1));
    assert!(clock.now().since(began) >= Duration::from_millis(1001));
    pair.world.with(|world| world.clear_faults(1));
    drop(a);
    pair.a.device.recover().expect("back in service");
}
