//! The RDMA engine refuses a command, or never answers one: in bring-up, and in service.

use ringside_model::{Fault, Stepped, WorldSettings};
use ringside_pmd::rdma::{Access, DeregisterError, Flags, RdmaError, Status};
use ringside_pmd::recovery::FailureCause;
use ringside_pmd::{BringUpOptions, Device};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{Pair, bring_up, config};

/// Every command of a bring-up.
const BRING_UP: [Opcode; 10] = [
    Opcode::QueryFpm,
    Opcode::CommitFpm,
    Opcode::UpdateSegments,
    Opcode::StaticHmcPagesAllocated,
    Opcode::CreateCompletionQueue,
    Opcode::QueryFeatures,
    Opcode::CreateCompletionEventQueue,
    Opcode::CreateAsynchronousEventQueue,
    Opcode::WorkSchedulerNode,
    Opcode::ManageArp,
];

fn refused(opcode: Opcode) -> Fault {
    Fault::ControlCommandFails {
        opcode: opcode.code(),
        major: 0x1234,
        minor: 0x5678,
    }
}

fn silent(opcode: Opcode) -> Fault {
    Fault::ControlCommandSilent {
        opcode: opcode.code(),
    }
}

/// Brings up under a fault; the error's text, once the device is seen to be as it was found.
fn failing_bring_up(fault: Fault) -> String {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let before = world.with(|world| world.snapshot(0)).unwrap();
    world.with(|world| world.inject(0, fault));
    let function = world.function(0).unwrap();
    let result = Device::bring_up(function, &config(), BringUpOptions::default());
    let error = result
        .err()
        .unwrap_or_else(|| panic!("{fault:?} went unnoticed"));
    assert!(error.undo_failures.is_empty(), "{fault:?}: {error}");
    world.with(|world| world.clear_faults(0));
    let after = world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(before, after, "{fault:?}");
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{fault:?}: {breaches:#?}");
    // The device is not spoilt: without the fault it comes up.
    let device = bring_up(&world, 0, &config());
    assert!(device.shutdown().failures.is_empty(), "{fault:?}");
    error.to_string()
}

#[test]
fn a_refused_command_fails_bring_up_with_its_codes_and_leaves_the_device_as_found() {
    for opcode in BRING_UP {
        let text = failing_bring_up(refused(opcode));
        assert!(
            text.contains("0x1234") && text.contains("0x5678"),
            "{opcode:?}: {text}"
        );
        assert!(text.contains(opcode.name()), "{text}");
    }
}

#[test]
fn an_unanswered_command_fails_bring_up_in_time_and_leaves_the_device_as_found() {
    for opcode in BRING_UP {
        let text = failing_bring_up(silent(opcode));
        assert!(text.contains("did not answer"), "{opcode:?}: {text}");
        assert!(text.contains(opcode.name()), "{text}");
    }
}

#[test]
fn a_control_queue_that_is_not_created_fails_bring_up_and_leaves_the_device_as_found() {
    let text = failing_bring_up(Fault::ControlQueueCreationFails);
    assert!(
        text.contains("control queue pair was not created"),
        "{text}"
    );
    let text = failing_bring_up(Fault::ControlQueueCreationSilent);
    assert!(
        text.contains("control queue pair was not created"),
        "{text}"
    );
}

#[test]
fn a_refused_creation_leaves_nothing_behind_and_the_next_one_succeeds() {
    let mut pair = Pair::new();
    let before = pair.a.device.object_usage().unwrap();
    let memory = pair.a.device.pool().unwrap().usage().used_bytes;
    for opcode in [
        Opcode::CreateCompletionQueue,
        Opcode::CreateQueuePair,
        Opcode::RegisterMemoryRegion,
    ] {
        pair.world.with(|world| world.inject(0, refused(opcode)));
        let error = match opcode {
            Opcode::CreateCompletionQueue => pair.a.device.completion_queue(10).unwrap_err(),
            Opcode::CreateQueuePair => pair.a.domain.queue_pair(pair.a.config()).unwrap_err(),
            _ => {
                let buffer = pair.a.device.allocate(64).unwrap();
                let error = pair.a.domain.register(buffer, Access::ALL).unwrap_err();
                assert_eq!(error.buffers.len(), 1);
                error.error
            }
        };
        assert!(matches!(error, RdmaError::Control(_)), "{error}");
        pair.world.with(|world| world.clear_faults(0));
    }
    let after = pair.a.device.object_usage().unwrap();
    assert_eq!(before.queue_pairs, after.queue_pairs);
    assert_eq!(before.completion_queues, after.completion_queues);
    assert_eq!(before.memory_regions, after.memory_regions);
    let grown = pair.a.device.pool().unwrap().usage().used_bytes - memory;
    assert!(
        grown <= 8192,
        "{grown} bytes more than a page and its table"
    );
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config);
    qp.write(
        1,
        &[from.slice(0..8).unwrap()],
        to.remote().at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((qp, peer, from, to));
    pair.finish();
}

#[test]
fn memory_that_the_device_does_not_release_is_kept_and_reported() {
    let pair = Pair::new();
    let region = pair.a.region(8192);
    pair.world
        .with(|world| world.inject(0, silent(Opcode::DeallocateStag)));
    let error = region.deregister().unwrap_err();
    assert!(
        matches!(error, DeregisterError::Kept { bytes: 8192, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("8192 bytes"), "{error}");
    let kept = pair.a.device.quarantine().unwrap();
    assert_eq!((kept.len(), kept[0].bytes), (1, 8192));
    // The caller may use the memory again, so the device is out of service at once.
    let failure = pair.a.domain.failure();
    assert_eq!(failure, Some(FailureCause::ControlQueueSilent));
    let error = pair.a.device.completion_queue(10).unwrap_err();
    assert!(error.to_string().contains("device failed"), "{error}");
    // The shutdown still leaves the device as found: the reset frees everything that commands
    // cannot.
    let Pair { world, a, b } = pair;
    let ringside_testkit::End {
        device,
        domain,
        completions,
    } = a;
    drop((domain, completions));
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    world.with(|world| world.clear_faults(0));
    let fresh = Stepped::new(&WorldSettings::with_functions(1));
    let unused = fresh.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(world.with(|world| world.snapshot(0)).unwrap(), unused);
    drop(b);
}

#[test]
fn an_object_that_the_device_refuses_to_destroy_keeps_its_memory() {
    let pair = Pair::new();
    let qp = pair.a.queue_pair(pair.a.config());
    pair.world
        .with(|world| world.inject(0, refused(Opcode::DestroyQueuePair)));
    let kept = |pair: &Pair| pair.a.device.quarantine().unwrap();
    assert!(kept(&pair).is_empty());
    let error = qp.destroy().unwrap_err();
    assert!(matches!(error, RdmaError::Control(_)), "{error}");
    assert_eq!((kept(&pair).len(), kept(&pair)[0].what), (1, "queue pair"));
    pair.world.with(|world| world.clear_faults(0));
}

/// Calls that lend memory to the device and are not answered: the device may still write to it.
#[test]
fn memory_of_a_call_without_an_answer_is_not_used_again() {
    type Call = fn(&mut Pair) -> String;
    let calls: [(Opcode, usize, Call); 3] = [
        (Opcode::ModifyCompletionQueue, 4096 * 8, |pair| {
            let refused = pair.a.completions.resize(1000);
            refused.expect_err("no answer").to_string()
        }),
        (Opcode::RegisterMemoryRegion, 8192, |pair| {
            let region = pair.a.region(4096);
            silence(pair, Opcode::RegisterMemoryRegion);
            let buffer = pair.a.device.allocate(8192).unwrap();
            let replaced = region.replace(
                &pair.a.domain,
                vec![buffer],
                Access::ALL,
                ringside_pmd::rdma::Base::Address,
            );
            replaced.expect_err("no answer").to_string()
        }),
        (Opcode::UploadContext, 0, |pair| {
            let qp = pair.a.queue_pair(pair.a.config());
            silence(pair, Opcode::UploadContext);
            let leaked = |pair: &Pair| pair.a.device.pool().unwrap().usage().leaked_bytes;
            let before = leaked(pair);
            let error = qp.query().expect_err("no answer");
            assert!(leaked(pair) > before, "the context may still be written");
            error.to_string()
        }),
    ];
    for (opcode, bytes, call) in calls {
        let mut pair = Pair::new();
        if opcode == Opcode::ModifyCompletionQueue {
            silence(&pair, opcode);
        }
        let text = call(&mut pair);
        assert!(text.contains("did not answer"), "{opcode:?}: {text}");
        let kept = pair.a.device.quarantine().unwrap();
        let kept: usize = kept.iter().map(|one| one.bytes).sum();
        assert!(kept >= bytes, "{opcode:?}: {kept} of {bytes} bytes");
        // Some of the calls have taken it out of service.
        let _ = pair.a.device.give_up();
        pair.world.with(|world| world.clear_faults(0));
        pair.a.device.recover().expect("back in service");
        assert!(pair.a.device.quarantine().unwrap().is_empty());
        let usage = pair.a.device.pool().unwrap().usage();
        assert_eq!(usage.leaked_bytes, 0, "{opcode:?}");
    }
}

fn silence(pair: &Pair, opcode: Opcode) {
    pair.world
        .with(move |world| world.inject(0, silent(opcode)));
}
