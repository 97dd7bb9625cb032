//! Effects of small bugs that no other test detects. Each test fails with one of the patches in
//! `tests/planted`, which `tests/planted/run` applies.

use ringside_bus::config_space::COMMAND;
use ringside_bus::{Around, Function, FunctionError};
use ringside_model::Fault;
use ringside_model::record::{self, Recorder};
use ringside_pmd::rdma::{
    Access, Completion, Connected, Event, FastRegion, Flags, MemoryRegion, QueuePair,
    QueuePairStage, Status, WindowKind,
};
use ringside_pmd::recovery::FailureCause;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AeSource, Opcode};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::QP_CONTEXT_BYTES;
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_testkit::{Bed, End, Pair, config};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
fn a_device_that_lost_events_has_failed() {
    let mut pair = Pair::new();
    let cause = FailureCause::EventsLost;
    let failed = Event::DeviceFailed { cause };
    raise(&pair, event_entries(&pair) + 1);
    let told = pair.a.events();
    assert!(
        !told.contains(&failed),
        "nothing was lost before the first of these"
    );
    // The event after the lost ones reports it.
    raise(&pair, 1);
    assert_eq!(pair.a.events(), [failed]);
    pair.a.device.recover().expect("back in service");
    raise(&pair, 1);
    assert_eq!(pair.a.events().len(), 1);
    pair.finish_with(&["the asynchronous event queue is full"]);
}

/// Has a completion queue of `a` fail, and takes the events.
pub(crate) fn failed_events(pair: &Pair, queue_number: u32) -> Vec<Event> {
    let fault = Fault::EngineEvent {
        code: AeCode::CompletionQueueError.code(),
        source: AeSource::CompletionQueue.code(),
        queue_number,
    };
    pair.world.with(move |world| world.inject(0, fault));
    pair.pass();
    pair.a.events()
}

#[test]
fn a_queue_pair_that_only_receives_through_a_failed_completion_queue_fails() {
    let pair = Pair::new();
    let receives = pair.a.device.completion_queue(16).unwrap();
    let (a, b) = pair.connect(|config| config);
    let config = pair.a.config().receives_report_to(receives.target());
    let only = pair.a.queue_pair(config);
    let told = failed_events(&pair, receives.number());
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

/// A program may give all its invalidations one number.
#[test]
fn a_fast_region_keeps_its_memory_until_its_own_invalidation_among_those_of_one_number() {
    let mut pair = Pair::new();
    let (a, mut b) = pair.connect(|config| config);
    let mut regions = [(); 2].map(|()| pair.b.domain.fast_region(1).unwrap());
    for region in &mut regions {
        let buffer = pair.b.device.allocate(4096).unwrap();
        region.load(vec![buffer]).unwrap();
        b.register_fast(0, region, Access::ALL, Flags::SIGNALLED)
            .unwrap();
    }
    b.ring();
    assert_eq!(pair.wait_b(2).len(), 2);
    let [first, second] = &mut regions;
    b.invalidate_fast(0, first, Flags::NONE).unwrap();
    b.ring();
    let done = pair.wait_b(1);
    // The device has not seen this one.
    b.invalidate_fast(0, second, Flags::NONE).unwrap();
    assert!(second.take_back(&done[0]).is_none());
    assert!(first.take_back(&done[0]).is_some());
    b.ring();
    let done = pair.wait_b(1);
    assert!(second.take_back(&done[0]).is_some());
    drop((a, b, regions));
    pair.finish();
}

/// A function whose bus mastering cannot be changed while it is stuck.
struct StaysOn {
    inner: Arc<dyn Function>,
    stuck: AtomicBool,
}

impl Around for StaysOn {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        if offset == COMMAND && self.stuck.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.inner.config_write(offset, bytes)
    }
}

/// A device that may still write completes nothing by software before its reset.
#[test]
fn requests_of_a_failed_device_that_stays_bus_master_end_with_its_reset_only() {
    let world = Bed::open();
    let function = Arc::new(StaysOn {
        inner: world.function(0),
        stuck: AtomicBool::new(false),
    });
    let a = End::on(Arc::clone(&function) as _, 0, &config());
    let b = End::new(&world, 1, &config());
    let mut pair = Pair { world, a, b };
    let (mut qp, peer) = pair.connect(|config| config.receiver_not_ready_retries(7));
    let region = pair.a.region(64);
    // The peer has no receive for it.
    qp.send(1, &[region.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    pair.pass();
    function.stuck.store(true, Ordering::Relaxed);
    let fault = Fault::CriticalError { code: 0x1234 };
    pair.world.with(|world| world.inject(0, fault));
    pair.pass();
    let told = pair.a.events();
    assert!(matches!(told[..], [Event::DeviceFailed { .. }]), "{told:?}");
    let mut batch = [Completion::EMPTY; 4];
    for _ in 0..10 {
        let done = pair.a.completions.poll(&mut batch);
        assert!(done.is_empty(), "{done:?} while the device may write");
        pair.pass();
    }
    function.stuck.store(false, Ordering::Relaxed);
    pair.a.device.recover().expect("recovered");
    let done = pair.a.completions.poll(&mut batch);
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!((done[0].id, done[0].status()), (1, Status::Flushed));
    drop((qp, peer, region));
    pair.finish();
}

/// Makes and destroys queue pairs without polling their completion queue, until no more can be
/// made; returns their number.
fn fill_the_inbox(pair: &Pair, most: usize) -> usize {
    let made = (0..most).map_while(|_| pair.a.domain.queue_pair(pair.a.config()).ok());
    made.map(drop).count()
}

/// The last one ends when nothing more can be made on its completion queue.
#[test]
fn a_queue_pair_that_ends_on_a_full_completion_queue_keeps_no_number() {
    const QUEUE_PAIRS: u32 = 8;
    let mut few = config();
    few.rdma.queue_pairs = QUEUE_PAIRS;
    let mut room = None;
    for refused in [false, true] {
        let mut pair = Pair::with(&few);
        let first = pair.a.queue_pair(pair.a.config());
        if refused {
            let most = room.expect("counted before") - 1;
            assert_eq!(fill_the_inbox(&pair, most), most);
            let fault = Fault::ControlCommandFails {
                opcode: Opcode::CreateQueuePair.code(),
                major: 0xFFFF,
                minor: 0x8003,
            };
            pair.world.with(|world| world.inject(0, fault));
            pair.a.domain.queue_pair(pair.a.config()).unwrap_err();
            pair.world.with(|world| world.clear_faults(0));
        } else {
            let made = fill_the_inbox(&pair, 10_000);
            assert!((1..10_000).contains(&made), "{made}");
            room = Some(made);
        }
        assert!(
            pair.a
                .completions
                .poll(&mut [Completion::EMPTY; 4])
                .is_empty()
        );
        let made = (0..=QUEUE_PAIRS).map_while(|_| pair.a.domain.queue_pair(pair.a.config()).ok());
        let others: Vec<_> = made.collect();
        assert_eq!(others.len() as u32, QUEUE_PAIRS - 1, "refused: {refused}");
        drop((first, others));
        pair.finish();
    }
}

#[test]
fn the_device_gets_the_index_of_the_failed_receive() {
    let mut pair = Pair::new();
    let (from, into) = (pair.a.region(4096), pair.b.region(4096));
    let (mut a, mut b) = pair.connect(|config| config);
    for id in 0..3 {
        b.receive(id, &[into.slice(0..16).unwrap()]).unwrap();
    }
    a.send(1, &[from.slice(0..16).unwrap()], Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert_eq!(pair.wait_b(1)[0].id, 0);
    let recorder = Recorder::in_memory(1 << 12);
    pair.world.with(|world| world.record(&recorder));
    a.send(2, &[from.slice(0..64).unwrap()], Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let mut failed = false;
    for _ in 0..10_000 {
        pair.a.events();
        failed |= !pair.b.events().is_empty();
        if failed {
            break;
        }
        pair.pass();
    }
    assert!(failed, "no event");
    let received = pair.wait_b(2);
    assert_eq!(
        (received[0].id, received[0].status()),
        (1, Status::LocalLength)
    );
    let contexts = recorder.take().into_iter().filter_map(|entry| {
        let record::Event::Control(command) = entry.event else {
            return None;
        };
        let is_context = |buffer: &&record::Buffer| buffer.name == "queue pair context";
        let context = command.buffers.iter().find(is_context)?;
        let mut words = [0; QP_CONTEXT_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(context.before.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let context = RoceQueuePairContext::decode(&words);
        (entry.function == 1).then_some((context.error_rq_index_valid, context.error_rq_index))
    });
    let told: Vec<_> = contexts.collect();
    assert_eq!(told, [(true, 1)]);
    drop((a, b, from, into));
    pair.finish();
}

/// One byte of a buffer of a fast region, if all are alike.
fn filled_with(buffer: &ringside_bus::DmaBuffer) -> Option<u8> {
    let mut bytes = vec![0; buffer.length()];
    assert!(buffer.read(0, &mut bytes));
    bytes.iter().all(|byte| *byte == bytes[0]).then(|| bytes[0])
}

/// Lets time pass, with events taken at both ends.
fn settle(pair: &Pair) {
    for _ in 0..200 {
        pair.a.events();
        pair.b.events();
        pair.pass();
    }
}

/// A fast registration of memory full of 0x11, request 2, that waits behind request 1: the peer has
/// no receive for it yet.
fn held_registration(
    pair: &Pair,
    from: &MemoryRegion,
) -> (QueuePair<Connected>, QueuePair<Connected>, FastRegion) {
    let (mut a, b) = pair.connect(|config| config.receiver_not_ready_retries(7));
    let mut fast = pair.a.domain.fast_region(1).unwrap();
    let buffer = pair.a.device.allocate(4096).unwrap();
    assert!(buffer.fill(0, 4096, 0x11));
    fast.load(vec![buffer]).unwrap();
    a.send(1, &[from.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    a.register_fast(2, &mut fast, Access::ALL, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    settle(pair);
    (a, b, fast)
}

#[test]
fn a_fast_registration_waits_for_the_requests_before_it() {
    let mut pair = Pair::new();
    let (other_a, mut other_b) = pair.connect(|config| config);
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (a, mut b, fast) = held_registration(&pair, &from);
    other_b
        .write(
            3,
            &[to.slice(0..8).unwrap()],
            fast.remote().at(0),
            Flags::SIGNALLED,
        )
        .unwrap();
    other_b.ring();
    settle(&pair);
    let written = pair.wait_b(1);
    assert_eq!(
        written[0].status(),
        Status::RemoteAccess,
        "registered early"
    );
    assert_eq!(filled_with(&fast.buffers()[0]), Some(0x11));
    b.receive(4, &[to.slice(0..8).unwrap()]).unwrap();
    let done = pair.wait_a(2);
    let done: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    assert_eq!(done, [(1, Status::Success), (2, Status::Success)]);
    drop((a, b, other_a, other_b, fast, from, to));
    pair.finish();
}

/// The registration is held back while the region is reset.
#[test]
fn memory_of_a_fast_region_that_was_reset_is_not_opened_by_an_earlier_registration() {
    let mut pair = Pair::new();
    let (other_a, mut other_b) = pair.connect(|config| config);
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (a, mut b, mut fast) = held_registration(&pair, &from);
    let open = fast.remote();
    let buffers = fast.reset().unwrap();
    b.receive(4, &[to.slice(0..8).unwrap()]).unwrap();
    settle(&pair);
    let done = pair.wait_a(2);
    other_b
        .write(3, &[to.slice(0..8).unwrap()], open.at(0), Flags::SIGNALLED)
        .unwrap();
    other_b.ring();
    settle(&pair);
    let written = pair.wait_b(2);
    let written = written.iter().find(|done| done.id == 3).expect("the write");
    assert_eq!(written.status(), Status::RemoteAccess, "opened late");
    assert_eq!(filled_with(&buffers[0]), Some(0x11));
    let done: Vec<_> = done.iter().map(|done| (done.id, done.status())).collect();
    assert_eq!(done, [(1, Status::Success), (2, Status::LocalProtection)]);
    // The region is as new.
    fast.load(buffers).unwrap();
    let (mut next, _peer) = pair.connect(|config| config);
    next.register_fast(5, &mut fast, Access::ALL, Flags::SIGNALLED)
        .unwrap();
    next.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    drop((a, b, other_a, other_b, next, _peer, fast, from, to));
    pair.finish();
}

#[test]
fn a_fast_region_is_invalidated_after_the_requests_that_use_it() {
    let mut pair = Pair::new();
    let (mut a, mut b) = pair.connect(|config| config.receiver_not_ready_retries(7));
    let to = pair.b.region(64);
    let mut fast = pair.a.domain.fast_region(1).unwrap();
    fast.load(vec![pair.a.device.allocate(4096).unwrap()])
        .unwrap();
    a.register_fast(1, &mut fast, Access::ALL, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    // The peer has no receive for it yet: its bytes are read again.
    a.send(2, &[fast.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    a.invalidate_fast(3, &mut fast, Flags::NONE).unwrap();
    a.ring();
    settle(&pair);
    b.receive(4, &[to.slice(0..8).unwrap()]).unwrap();
    let mut batch = [Completion::EMPTY; 4];
    let mut done = Vec::new();
    for _ in 0..10_000 {
        pair.a.events();
        let taken = pair.a.completions.poll(&mut batch);
        done.extend(taken.iter().map(|done| (done.id, done.status())));
        if done.len() == 2 {
            break;
        }
        pair.pass();
    }
    assert_eq!(done, [(2, Status::Success), (3, Status::Success)]);
    drop((a, b, fast, to));
    pair.finish();
}

/// A region whose destruction the device does not confirm: for any result that the driver reports,
/// a peer that still has its key writes to no memory of other owners.
#[test]
fn a_peer_reaches_no_memory_that_others_own_after_an_unconfirmed_destruction() {
    const LENGTH: usize = 1 << 20;
    let mut config = config();
    config.deadlines.control_queue_ms = 40;
    let pair = Pair::with(&config);
    let (mine, mut theirs) = pair.connect(|config| config);
    let region = pair.a.region(LENGTH);
    let old = region.remote();
    let fault = Fault::ControlCommandSilent {
        opcode: Opcode::DeallocateStag.code(),
    };
    pair.world.with(|world| world.inject(0, fault));
    let domain = pair.a.domain.clone();
    let said = match region.reregister(&domain, Access::ALL) {
        Ok(region) => region
            .deregister()
            .map(drop)
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    // Everything that is free now belongs to others.
    let others: Vec<_> = (0..8)
        .map(|_| pair.a.device.allocate(LENGTH).unwrap())
        .collect();
    for other in &others {
        assert!(other.fill(0, LENGTH, 0x11));
    }
    let from: MemoryRegion = pair.b.region(4096);
    assert!(from.buffers()[0].fill(0, 4096, 0x77));
    let bytes = from.slice(0..4096).unwrap();
    theirs
        .write(1, &[bytes], old.at(0), Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    for _ in 0..1000 {
        pair.b.events();
        pair.pass();
    }
    for other in &others {
        let found = filled_with(other);
        assert_eq!(
            found,
            Some(0x11),
            "a peer wrote to it; the driver had reported: {said:?}"
        );
    }
    assert!(said.is_err(), "{said:?}");
    drop(mine);
    pair.world.with(|world| world.clear_faults(0));
}
