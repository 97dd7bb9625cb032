//! Objects whose making or destruction the device does not confirm, and objects of other devices.

use ringside_bus::{Around, Function, FunctionError};
use ringside_model::Fault;
use ringside_pmd::rdma::{
    Access, BindError, Completion, CompletionQueue, DeregisterError, Destination, FastRegionError,
    Flags, PostError, ProtectionDomain, QueuePairConfig, RdmaError, SharedReceiveConfig, To,
    WindowKind,
};
use ringside_spec::lan::registers::reset::FUNCTION_CONTROL;
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{Bed, ConnectedEnd, End, Pair, bring_up_all, config, connect, threaded};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn silence(pair: &Pair, opcode: Opcode) {
    let opcode = opcode.code();
    let fault = Fault::ControlCommandSilent { opcode };
    pair.world.with(|world| world.inject(0, fault));
}

/// The objects that the driver keeps: kinds, numbers and bytes.
fn kept(pair: &Pair) -> Vec<(&'static str, u32, usize)> {
    let kept = pair.a.device.quarantine().unwrap();
    kept.iter()
        .map(|one| (one.what, one.number, one.bytes))
        .collect()
}

#[test]
fn an_unconfirmed_creation_of_anything_is_kept_apart_under_its_own_number() {
    type Make = fn(&Pair) -> bool;
    let cases: [(Opcode, &str, usize, Make); 7] = [
        (Opcode::AllocateStag, "memory region", 0, |pair| {
            pair.a.domain.memory_window(WindowKind::Two).is_err()
        }),
        (Opcode::AllocateStag, "memory region", 0, |pair| {
            pair.a.domain.fast_region(4).is_err()
        }),
        (
            Opcode::RegisterMemoryRegion,
            "memory region",
            8192,
            |pair| {
                let memory = pair.a.device.allocate(8192).unwrap();
                let refused = pair.a.domain.register(memory, Access::ALL).unwrap_err();
                refused.buffers.is_empty()
            },
        ),
        (Opcode::CreateAddressHandle, "address handle", 0, |pair| {
            let to = pair.b.queue_pair(pair.b.config()).endpoint();
            let destination = Destination::from(&to);
            pair.a.domain.address_handle(&destination).is_err()
        }),
        (
            Opcode::CreateCompletionQueue,
            "completion queue",
            1,
            |pair| pair.a.device.completion_queue(64).is_err(),
        ),
        (Opcode::CreateQueuePair, "queue pair", 1, |pair| {
            pair.a.domain.queue_pair(pair.a.config()).is_err()
        }),
        (Opcode::CreateMulticastGroup, "multicast group", 1, |pair| {
            let config = QueuePairConfig::datagram(&pair.a.completions);
            let made = pair.a.domain.datagram_queue_pair(config).unwrap();
            let member = made.ready(7).unwrap();
            let refused = member.join([224, 1, 2, 3].into()).is_err();
            // Destroying it has no effect: commands are no longer answered.
            std::mem::forget(member);
            refused
        }),
    ];
    for (opcode, what, least, make) in cases {
        let mut config = config();
        config.deadlines.control_queue_ms = 40;
        let pair = Pair::with(&config);
        silence(&pair, opcode);
        assert!(make(&pair), "{opcode:?}");
        let kept = kept(&pair);
        let [(kind, number, bytes)] = kept[..] else {
            panic!("{opcode:?}: {kept:?}");
        };
        assert_eq!(kind, what, "{opcode:?}");
        assert!(number != 0 && bytes >= least, "{opcode:?}: {kept:?}");
        pair.world.with(|world| world.clear_faults(0));
    }
}

#[test]
fn memory_that_an_unconfirmed_reregistration_left_in_the_device_goes_to_no_other_owner() {
    const LENGTH: usize = 1 << 20;
    let mut config = config();
    config.deadlines.control_queue_ms = 40;
    let pair = Pair::with(&config);
    let (mut mine, mut theirs) = pair.connect(|config| config);
    let region = pair.a.region(LENGTH);
    let (old, address) = (region.remote(), region.buffers()[0].iova());
    silence(&pair, Opcode::DeallocateStag);
    let domain = pair.a.domain.clone();
    let refused = region.reregister(&domain, Access::ALL).unwrap_err();
    assert!(refused.region.is_none());
    let cause = refused.error.downcast_ref::<DeregisterError>().unwrap();
    assert!(
        matches!(cause, DeregisterError::Kept { bytes: LENGTH, .. }),
        "{cause}"
    );
    let kept = kept(&pair);
    let bytes: usize = kept.iter().map(|one| one.2).sum();
    assert_eq!(bytes, LENGTH, "{kept:?}");
    // Everything that is free now belongs to others.
    let others: Vec<_> = (0..8)
        .map(|_| pair.a.device.allocate(LENGTH).unwrap())
        .collect();
    for other in &others {
        assert_ne!(other.iova(), address);
        assert!(other.fill(0, LENGTH, 0x11));
    }
    let from = pair.b.region(4096);
    let bytes = from.slice(0..4096).unwrap();
    theirs
        .write(1, &[bytes], old.at(0), Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    // The device is out of service: no memory is written, whatever the old key grants.
    assert!(pair.a.device.is_contained());
    for _ in 0..1000 {
        pair.b.events();
        pair.pass();
    }
    for other in &others {
        let mut bytes = vec![0; LENGTH];
        assert!(other.read(0, &mut bytes));
        assert!(bytes.iter().all(|byte| *byte == 0x11));
    }
    let _ = mine.fail();
    pair.world.with(|world| world.clear_faults(0));
}

/// A function that does something before it is reset.
struct BeforeReset {
    inner: Arc<dyn Function>,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Around for BeforeReset {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        if offset == FUNCTION_CONTROL
            && let Some(hook) = self.hook.lock().unwrap().take()
        {
            hook();
        }
        self.inner.write32(bar, offset, value)
    }
}

#[test]
fn memory_of_a_handle_dropped_between_shutdown_and_reset_is_not_free_before_the_reset() {
    const LENGTH: usize = 1 << 20;
    // The first leaves the objects alone, the second fails while it destroys them.
    for stuck_before in [true, false] {
        let bed = Bed::open();
        let function = Arc::new(BeforeReset {
            inner: bed.function(0),
            hook: Mutex::default(),
        });
        let mut config = config();
        config.deadlines.control_queue_ms = 40;
        let end = End::on(Arc::clone(&function) as _, 0, &config);
        let [held, first] = [(); 2].map(|()| end.region(LENGTH));
        let mut fast = end.domain.fast_region(256).unwrap();
        fast.load(vec![end.device.allocate(LENGTH).unwrap()])
            .unwrap();
        let queue_pair = end.queue_pair(end.config());
        let pool = Arc::clone(end.device.pool().unwrap());
        let fault = Fault::ControlCommandSilent {
            opcode: Opcode::DeallocateStag.code(),
        };
        bed.with(move |world| world.inject(0, fault));
        if stuck_before {
            first.deregister().unwrap_err();
        } else {
            std::mem::forget(first);
        }
        let End {
            device,
            completions,
            ..
        } = end;
        let seen = Arc::new(Mutex::new(None));
        let (tell, during) = (Arc::clone(&seen), Arc::clone(&pool));
        *function.hook.lock().unwrap() = Some(Box::new(move || {
            let before = during.usage().used_bytes;
            drop((held, fast, queue_pair, completions));
            *tell.lock().unwrap() = Some((before, during.usage().used_bytes));
        }));
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
        let (before, after) = seen.lock().unwrap().expect("a reset");
        assert!(
            after >= before,
            "{} bytes were free too early",
            before - after
        );
        bed.with(|world| world.clear_faults(0));
    }
}

#[test]
fn a_device_that_does_not_confirm_the_end_of_a_fast_region_is_out_of_service_then() {
    for is_dropped in [true, false] {
        let mut config = config();
        config.deadlines.control_queue_ms = 40;
        let pair = Pair::with(&config);
        let mut fast = pair.a.domain.fast_region(4).unwrap();
        fast.load(vec![pair.a.device.allocate(4096).unwrap()])
            .unwrap();
        silence(&pair, Opcode::DeallocateStag);
        match is_dropped {
            true => drop(fast),
            false => {
                fast.reset().unwrap_err();
                std::mem::forget(fast);
            }
        }
        assert!(pair.a.device.failure().is_some(), "dropped: {is_dropped}");
        pair.world.with(|world| world.clear_faults(0));
    }
}

/// The device does not confirm that it stops the queue pair, and still writes to the memory of its
/// receives until the reset.
#[test]
fn a_shutdown_flushes_no_request_of_a_queue_pair_that_the_device_keeps_before_the_reset() {
    for silent in [Opcode::ModifyQueuePair, Opcode::DestroyQueuePair] {
        let bed = Bed::open();
        let function = Arc::new(BeforeReset {
            inner: bed.function(0),
            hook: Mutex::default(),
        });
        let mut limited = config();
        limited.deadlines.control_queue_ms = 40;
        let a = End::on(Arc::clone(&function) as _, 0, &limited);
        let b = End::new(&bed, 1, &config());
        let pair = Pair { world: bed, a, b };
        let (mut mine, theirs) = pair.connect(|config| config);
        let region = pair.a.region(4096);
        let target = region.slice(0..64).unwrap();
        for id in 0..4 {
            mine.receive(id, &[target]).unwrap();
        }
        silence(&pair, silent);
        let Pair { world, a, b } = pair;
        let End {
            device,
            completions,
            domain,
        } = a;
        let completions = Arc::new(Mutex::new(completions));
        let given = |queue: &Mutex<CompletionQueue>| {
            let mut batch = [Completion::EMPTY; 8];
            queue.lock().unwrap().poll(&mut batch).len()
        };
        let early = Arc::new(Mutex::new(None));
        let (tell, during) = (Arc::clone(&early), Arc::clone(&completions));
        *function.hook.lock().unwrap() = Some(Box::new(move || {
            *tell.lock().unwrap() = Some(given(&during));
        }));
        let report = device.shutdown();
        assert_eq!(report.leaked_bytes, 0, "{:#?}", report.failures);
        let early = early.lock().unwrap().take();
        assert_eq!(early, Some(0), "{silent:?}: returned before the reset");
        assert_eq!(given(&completions), 4, "{silent:?}");
        world.with(|world| world.clear_faults(0));
        drop((mine, theirs, region, domain, b));
    }
}

#[test]
fn the_target_of_a_destroyed_queue_does_not_name_another_with_its_number() {
    let pair = Pair::new();
    let queue = pair.a.device.completion_queue(16).unwrap();
    let stale = queue.target();
    drop(queue);
    let again = (0..20_000).find_map(|_| {
        let queue = pair.a.device.completion_queue(16).unwrap();
        (queue.number() == stale.number()).then_some(queue)
    });
    let again = again.expect("the number is used again some time");
    for config in [
        QueuePairConfig::reporting_to(stale.clone()),
        QueuePairConfig::reliable(&again).receives_report_to(stale.clone()),
    ] {
        let refused = pair.a.domain.queue_pair(config).unwrap_err();
        assert!(matches!(refused, RdmaError::Gone { .. }), "{refused}");
    }
    let config = QueuePairConfig::reliable(&again);
    drop(pair.a.domain.queue_pair(config).unwrap());
    drop((again, stale));
    pair.finish();
}

/// A domain of `b` with the number of one of `a`, and all that were made to find it.
fn twins(pair: &Pair) -> (ProtectionDomain, ProtectionDomain, Vec<ProtectionDomain>) {
    let mut all: Vec<ProtectionDomain> = Vec::new();
    let mut numbers = BTreeSet::new();
    loop {
        let (mine, other) = (
            pair.a.device.protection_domain().unwrap(),
            pair.b.device.protection_domain().unwrap(),
        );
        numbers.insert(mine.number());
        all.push(mine);
        if numbers.contains(&other.number()) {
            let of_a = all.iter().find(|one| one.number() == other.number());
            return (of_a.unwrap().clone(), other, all);
        }
        all.push(other);
    }
}

#[test]
fn a_domain_of_another_device_is_another_domain_though_its_number_is_the_same() {
    let pair = Pair::new();
    let (of_a, of_b, rest) = twins(&pair);
    assert_eq!(of_a.number(), of_b.number());
    let memory = |pair: &Pair| pair.b.device.allocate(4096).unwrap();
    // Shared receives.
    let mut shared = of_a
        .shared_receive_queue(&SharedReceiveConfig::default())
        .unwrap();
    let mut foreign = of_b.queue_pair(pair.b.config()).unwrap();
    let refused = shared.attach(&mut foreign).unwrap_err();
    assert_eq!(refused, RdmaError::ForeignDomain);
    let beside = pair.a.device.protection_domain().unwrap();
    let mut other = beside.queue_pair(pair.a.config()).unwrap();
    let queue_pair = other.number();
    let refused = shared.attach(&mut other).unwrap_err();
    assert_eq!(refused, RdmaError::OtherDomain { queue_pair });
    // Windows and fast regions.
    let peer = pair.b.queue_pair(pair.b.config());
    let queue_pair = of_a.queue_pair(pair.a.config()).unwrap();
    let mut queue_pair = queue_pair.connect(&peer.endpoint()).unwrap();
    let region = of_b.register(memory(&pair), Access::ALL).unwrap();
    let mut window = of_b.memory_window(WindowKind::One).unwrap();
    let flags = Flags::SIGNALLED;
    let access = Access::REMOTE_READ;
    let refused = queue_pair
        .bind_window(1, &mut window, (&region, 0..8), access, flags)
        .unwrap_err();
    let is_domain = matches!(refused, PostError::Bind(BindError::ForeignDomain { .. }));
    assert!(is_domain, "{refused}");
    let mut fast = of_b.fast_region(4).unwrap();
    fast.load(vec![memory(&pair)]).unwrap();
    let refused = queue_pair
        .register_fast(1, &mut fast, Access::ALL, flags)
        .unwrap_err();
    assert!(
        matches!(
            refused,
            PostError::FastRegion(FastRegionError::ForeignDomain { .. })
        ),
        "{refused}"
    );
    // Address handles.
    let config = QueuePairConfig::datagram(&pair.a.completions);
    let mut datagrams = of_a.datagram_queue_pair(config).unwrap().ready(1).unwrap();
    let destination = Destination::from(&peer.endpoint());
    let handle = of_b.address_handle(&destination).unwrap();
    let to = To {
        handle: &handle,
        queue_pair: 1,
        queue_key: 1,
    };
    let refused = datagrams
        .post_send_inline_to(1, &to, &[1; 8], None, flags)
        .unwrap_err();
    assert!(
        matches!(refused, PostError::ForeignAddressHandle { .. }),
        "{refused}"
    );
    // Reregistration.
    let refused = region.reregister(&of_a, Access::ALL).unwrap_err();
    assert!(refused.region.is_some(), "{refused}");
    drop(refused);
    drop((shared, foreign, queue_pair, peer, window, fast));
    drop((datagrams, handle, of_a, of_b, rest));
    pair.finish();
}

#[test]
fn other_threads_use_the_device_while_a_queue_pair_drains() {
    const LIMIT: Duration = Duration::from_secs(60);
    let model = threaded();
    let [a, b] = bring_up_all(|index| model.function(index), &config());
    let change = |config: QueuePairConfig| config.receiver_not_ready_retries(7);
    let [near, mut far] = connect([&a, &b], 64, change);
    let ConnectedEnd {
        queue_pair: mut one,
        mut completions,
        source,
        target,
    } = near;
    // The peer has no receive for it yet, so that the queue pair does not drain.
    one.send(1, &[source.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    one.ring();
    let begin = Instant::now();
    let sent = || {
        let all = a.statistics().unwrap();
        let sent = all.iter().find(|one| one.name == "tx_bytes.nic");
        sent.unwrap().value
    };
    while sent() == 0 {
        assert!(begin.elapsed() < LIMIT, "nothing was sent");
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let draining = scope.spawn(move || one.drain());
        std::thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        for _ in 0..10 {
            a.object_usage().unwrap();
            a.poll_events(&mut Vec::new()).unwrap();
        }
        let took = begin.elapsed();
        // Calls that wait for it end with it.
        if draining.is_finished() {
            panic!("after {took:?}: {:?}", draining.join().unwrap().map(drop));
        }
        let place = far.target.slice(0..8).unwrap();
        far.queue_pair.receive(2, &[place]).unwrap();
        let drained = draining.join().unwrap().expect("drained");
        let begin = Instant::now();
        while completions.poll(&mut [Completion::EMPTY; 4]).is_empty() {
            assert!(begin.elapsed() < LIMIT);
        }
        drop(drained);
    });
    drop((far, source, target, completions, a, b));
    model.stop();
}

/// The device frees the old tag and refuses a new one.
#[test]
fn a_fast_region_without_a_new_tag_keeps_its_memory_until_a_further_reset() {
    let pair = Pair::new();
    let mut fast = pair.a.domain.fast_region(1).unwrap();
    let buffer = pair.a.device.allocate(4096).unwrap();
    fast.load(vec![buffer]).unwrap();
    let refused = Fault::ControlCommandFails {
        opcode: Opcode::AllocateStag.code(),
        major: 0xFFFF,
        minor: 0x8003,
    };
    pair.world.with(|world| world.inject(0, refused));
    fast.reset().expect_err("the device refuses");
    fast.reset().expect_err("the device refuses again");
    assert_eq!(fast.buffers().len(), 1);
    pair.world.with(|world| world.clear_faults(0));
    let buffers = fast.reset().expect("a tag");
    pair.world.with(|world| world.inject(0, refused));
    fast.reset().expect_err("the device refuses");
    pair.world.with(|world| world.clear_faults(0));
    let error = fast.load(buffers).expect_err("no tag").error;
    assert!(matches!(error, RdmaError::Gone { .. }), "{error}");
    // Another region may have its former number by now.
    drop(fast);
    pair.finish();
}
