//! The life of devices and connections around the data path.

use ringside_model::Stepped;
use ringside_model::WorldSettings;
use ringside_pmd::rdma::{Flags, PostError, RdmaError, Status};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::{End, Pair, bring_up, config};

#[test]
fn a_device_that_comes_up_and_goes_down_is_as_it_was_found() {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let before = world.with(|world| world.snapshot(0)).unwrap();
    let device = bring_up(&world, 0, &config());
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let after = world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(before, after);
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn bring_up_failing_at_any_rdma_stage_leaves_the_device_as_found() {
    let stages = ringside_pmd::bring_up::stage_names();
    let rdma: Vec<_> = stages
        .into_iter()
        .filter(|name| name.starts_with("rdma-"))
        .collect();
    assert!(rdma.len() >= 9, "{rdma:?}");
    let mut config = config();
    config.rdma.event_queues = 4;
    for stage in rdma {
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let before = world.with(|world| world.snapshot(0)).unwrap();
        let options = BringUpOptions {
            fail_at: Some(stage),
            ..BringUpOptions::default()
        };
        let function = world.function(0).unwrap();
        let error = Device::bring_up(function, &config, options).unwrap_err();
        assert_eq!(error.stage, stage, "{error}");
        assert!(error.undo_failures.is_empty(), "{error}");
        let after = world.with(|world| world.snapshot(0)).unwrap();
        assert_eq!(before, after, "{stage}");
        let breaches = world.with(|world| world.breaches(0));
        assert!(breaches.is_empty(), "{stage}: {breaches:#?}");
    }
}

#[test]
fn a_shutdown_under_live_objects_destroys_them_and_their_handles_stay_harmless() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config);
    let Pair { world, a, b } = pair;
    let End {
        device,
        domain,
        completions,
    } = a;
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let fragment = from.slice(0..8).unwrap();
    let refused = qp.write(1, &[fragment], to.remote().at(0), Flags::SIGNALLED);
    assert_eq!(refused, Err(PostError::Destroyed));
    let refused = domain.queue_pair(b.config()).unwrap_err();
    assert!(
        matches!(refused, RdmaError::ForeignQueue | RdmaError::ShutDown),
        "{refused}"
    );
    drop((qp, from, domain, completions));
    drop((peer, to));
    pair = Pair {
        a: End::new(&world, 0, &config()),
        world,
        b,
    };
    pair.finish();
}

#[test]
fn a_hundred_connections_one_after_the_other_leave_nothing_behind() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let before = pair.a.device.pool().unwrap().usage();
    for id in 0..100 {
        let (mut qp, peer) = pair.connect(|config| config);
        qp.write(
            id,
            &[from.slice(0..8).unwrap()],
            to.remote().at(0),
            Flags::SIGNALLED,
        )
        .unwrap();
        qp.ring();
        let done = pair.wait_a(1);
        assert_eq!((done[0].id, done[0].status()), (id, Status::Success));
        drop((qp, peer));
    }
    let usage = pair.a.device.object_usage().unwrap();
    assert_eq!(usage.queue_pairs.used, 0);
    let after = pair.a.device.pool().unwrap().usage();
    // One page of the table of MAC addresses came into use.
    assert!(
        after.used_bytes <= before.used_bytes + 2 * 4096,
        "{before:?} {after:?}"
    );
    drop((from, to));
    pair.finish();
}
