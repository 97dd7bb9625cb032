//! What small bugs change that nothing else shows. Each test fails with one of the patches in
//! `tests/planted`, which `tests/planted/run` applies.

use ringside_model::Fault;
use ringside_pmd::rdma::{Access, Event, Flags, QueuePairStage, Status, WindowKind};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::AeSource;
use ringside_spec::rdma::fpm::ObjectType;
use ringside_testkit::{Pair, config};

/// The device of `a` reports an event that is about nothing, `count` times.
fn raise(pair: &Pair, count: usize) {
    let fault = Fault::EngineEvent {
        code: AeCode::ResourceExhaustion.code(),
        source: AeSource::None.code(),
        queue_number: 0,
    };
    pair.world.with(move |world| {
        for _ in 0..count {
            world.inject(0, fault);
        }
    });
    pair.pass();
}

/// Entries of the queue of asynchronous events: one for each queue pair and completion queue.
fn event_entries(pair: &Pair) -> usize {
    let layout = pair
        .a
        .device
        .facts()
        .rdma
        .layout
        .as_ref()
        .expect("a device with RDMA");
    let of = |object| layout.placement(object).count as usize;
    of(ObjectType::QueuePair) + of(ObjectType::CompletionQueue)
}

#[test]
fn every_event_that_was_taken_gives_its_place_back() {
    let pair = Pair::new();
    // Three turns of the ring.
    let quarter = event_entries(&pair) / 4;
    for round in 0..12 {
        raise(&pair, quarter);
        assert_eq!(pair.a.events().len(), quarter, "round {round}");
    }
    pair.finish();
}

#[test]
fn events_that_were_lost_are_told() {
    let pair = Pair::new();
    raise(&pair, event_entries(&pair) + 1);
    let told = pair.a.events();
    assert!(
        !told.contains(&Event::Overflow),
        "nothing was lost before the first of these"
    );
    // The event after the lost ones says so.
    raise(&pair, 1);
    assert!(pair.a.events().contains(&Event::Overflow));
    raise(&pair, 1);
    assert!(!pair.a.events().contains(&Event::Overflow), "once");
    pair.finish_with(&["the asynchronous event queue is full"]);
}

#[test]
fn a_queue_pair_that_only_receives_through_a_failed_completion_queue_fails() {
    let pair = Pair::new();
    let receives = pair.a.device.completion_queue(16).unwrap();
    let (a, b) = pair.connect(|config| config);
    let config = pair.a.config().receives_report_to(receives.target());
    let only = pair.a.queue_pair(config);
    let fault = Fault::EngineEvent {
        code: AeCode::CompletionQueueError.code(),
        source: AeSource::CompletionQueue.code(),
        queue_number: receives.number(),
    };
    pair.world.with(move |world| world.inject(0, fault));
    pair.pass();
    let told = pair.a.events();
    let failed = |event: &Event| matches!(event, Event::CompletionQueueFailed { .. });
    assert!(told.iter().any(failed), "{told:?}");
    assert_eq!(only.query().unwrap().stage, QueuePairStage::Failed);
    assert_eq!(a.query().unwrap().stage, QueuePairStage::ReadyToSend);
    drop((only, a, b, receives));
    pair.finish();
}

#[test]
fn an_address_that_no_queue_pair_uses_makes_room_for_another() {
    let mut few = config();
    few.rdma.arp_entries = 4;
    let pair = Pair::with(&few);
    let peer = pair.b.queue_pair(pair.b.config());
    for last in 1..=12 {
        let mut endpoint = peer.endpoint();
        endpoint.mac = [2, 0, 0, 0, 7, last];
        let connected = pair.a.queue_pair(pair.a.config()).connect(&endpoint);
        let connected = connected.unwrap_or_else(|failed| panic!("{last}: {}", failed.error));
        connected.destroy().unwrap();
    }
    drop(peer);
    pair.finish();
}

#[test]
fn a_window_has_another_key_each_time() {
    let mut pair = Pair::new();
    let (a, mut b) = pair.connect(|config| config);
    let at = pair.b.region(4096);
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    let mut keys = Vec::new();
    for id in 0..3 {
        let bound = b
            .bind_window(
                id,
                &mut window,
                (&at, 0..64),
                Access::REMOTE_WRITE,
                Flags::SIGNALLED,
            )
            .unwrap();
        assert!(!keys.contains(&bound.key), "{:#x} again", bound.key);
        keys.push(bound.key);
        b.invalidate(id, bound.key, Flags::SIGNALLED).unwrap();
        b.ring();
        let done = pair.wait_b(2);
        assert!(done.iter().all(|done| done.status() == Status::Success));
    }
    drop((a, b, window, at));
    pair.finish();
}

#[test]
fn a_fast_region_takes_its_memory_back_by_its_own_invalidation_only() {
    let mut pair = Pair::new();
    let (a, mut b) = pair.connect(|config| config);
    let mut regions = [(); 2].map(|()| pair.b.domain.fast_region(1).unwrap());
    for (id, region) in regions.iter_mut().enumerate() {
        let buffer = pair.b.device.allocate(4096).unwrap();
        region.load(vec![buffer]).unwrap();
        b.register_fast(id as u64, region, Access::ALL, Flags::SIGNALLED)
            .unwrap();
    }
    b.ring();
    assert_eq!(pair.wait_b(2).len(), 2);
    for (id, region) in regions.iter_mut().enumerate() {
        b.invalidate_fast(7 + id as u64, region, Flags::NONE)
            .unwrap();
    }
    b.ring();
    let done = pair.wait_b(2);
    let [first, second] = &mut regions;
    assert!(second.take_back(&done[0]).is_none() && first.take_back(&done[1]).is_none());
    assert_eq!(
        second.take_back(&done[1]).map(|buffers| buffers.len()),
        Some(1)
    );
    assert_eq!(
        first.take_back(&done[0]).map(|buffers| buffers.len()),
        Some(1)
    );
    drop((a, b, regions));
    pair.finish();
}
