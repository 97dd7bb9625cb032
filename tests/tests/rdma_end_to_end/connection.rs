//! The life of devices and connections around the data path.

use ringside_model::Stepped;
use ringside_model::WorldSettings;
use ringside_pmd::rdma::{Flags, PostError, RdmaError, Status};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::{Bed, End, Pair, bring_up, config, world_settings};

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

/// Source: irdma `ws.c`, irdma_remove_leaf. The model takes both orders, as irdma uses the other
/// one after a failure.
#[test]
fn the_leaf_of_the_scheduler_goes_before_its_queue_set() {
    let world = Stepped::new(&WorldSettings::with_functions(1));
    let device = bring_up(&world, 0, &config());
    let undos: Vec<_> = device.undos().map(ToString::to_string).collect();
    let position = |start: &str| {
        let found = undos.iter().enumerate();
        let found: Vec<_> = found.filter(|(_, undo)| undo.starts_with(start)).collect();
        assert_eq!(found.len(), 1, "{start}: {undos:#?}");
        found[0].0
    };
    let [leaf, set, above] = [
        "delete work scheduler node 2",
        "remove RDMA queue set",
        "delete work scheduler node 1",
    ]
    .map(position);
    assert!(leaf < set && set < above, "{undos:#?}");
    assert!(device.shutdown().failures.is_empty());
}

#[test]
fn a_function_whose_segments_begin_behind_those_of_others_works() {
    let mut settings = world_settings(2);
    for (function, first) in settings.functions.iter_mut().zip([100, 3]) {
        function.first_segment = first;
    }
    let world = Bed::Stepped(Stepped::new(&settings));
    let [a, b] = [0, 1].map(|index| End::new(&world, index, &config()));
    let mut pair = Pair { world, a, b };
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, peer) = pair.connect(|config| config);
    assert!(from.write(0, &[0xA5; 4096]));
    let fragment = from.slice(0..4096).unwrap();
    qp.write(1, &[fragment], to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let mut found = [0; 4096];
    assert!(to.read(0, &mut found));
    assert_eq!(found, [0xA5; 4096]);
    drop((qp, peer, from, to));
    pair.finish();
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
