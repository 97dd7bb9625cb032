use super::rig::{BASE, Cq, DOMAIN, Qp, Rig};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::verbs::{Fragment, QueueSide, SendOpcode};

struct Scene {
    rig: Rig,
    qps: Vec<Qp>,
    cqs: Vec<Cq>,
    from: u64,
    to: u64,
    local: u32,
    remote: u32,
}

impl Scene {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (qps, cqs) = rig.pair();
        let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
        let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
        Self {
            rig,
            qps,
            cqs,
            from,
            to,
            local,
            remote,
        }
    }

    fn write(&mut self, address: u64, tag: u32, source: Fragment) -> u32 {
        self.rig.request(
            0,
            &mut self.qps[0],
            SendOpcode::Write,
            (address, tag),
            &[source],
        )
    }

    fn source(&self, length_bytes: u32) -> Fragment {
        Fragment {
            address: BASE + self.from,
            length_bytes,
            steering_tag: self.local,
        }
    }

    fn go(&mut self) {
        self.rig.ring(0, &self.qps[0]);
        self.rig.run();
    }

    /// Modifies to ERROR and flushes, as a driver does after an event.
    fn flush(&mut self, side: usize, sq_minor_code: u16) -> FlushResult {
        let command = self.rig.modify(&self.qps[side], QueuePairState::Error);
        self.rig.done(side, command);
        let completion = self.rig.done(
            side,
            FlushWorkQueues {
                sq_minor_code,
                sq_major_code: 1,
                rq_minor_code: 1,
                rq_major_code: 1,
                qp_number: 3,
                use_given_codes: true,
                flush_sq: true,
                flush_rq: true,
                ..FlushWorkQueues::ZERO
            },
        );
        FlushResult::from_minor_code(completion.minor_code)
    }
}

#[test]
fn a_bad_remote_key_gives_one_event_on_each_side_and_one_flush_completion() {
    let mut scene = Scene::new();
    let (to, remote, source) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.write(to, remote, source);
    let bad = scene.write(to, remote ^ 1, source);
    scene.write(to, remote, source);
    scene.go();
    let (good, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("the first one");
    assert!(!good.error);
    assert!(
        scene.rig.poll(0, &mut scene.cqs[0]).is_none(),
        "no completion before the flush"
    );
    let event = scene.rig.event(0).expect("an event");
    assert_eq!(event.ae_code, AeCode::RemoteAccessError);
    assert_eq!((event.source, event.queue_number), (AeSource::SendQueue, 3));
    assert_eq!(u32::from(event.wqe_index), bad);
    assert_eq!(event.completion_context, 0xA003);
    let event = scene.rig.event(1).expect("an event");
    assert_eq!(
        (event.ae_code, event.source),
        (AeCode::BadStagKey, AeSource::InboundRequest)
    );
    assert_eq!((scene.rig.event(0), scene.rig.event(1)), (None, None));
    assert_eq!(scene.flush(0, 3), FlushResult::SendQueue);
    let (flushed, _) = scene
        .rig
        .poll(0, &mut scene.cqs[0])
        .expect("a flush completion");
    assert!(flushed.error);
    assert_eq!(
        (flushed.major, flushed.minor, flushed.side),
        (1, 3, QueueSide::Send)
    );
    assert_eq!(u32::from(flushed.element_index), bad);
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none());
    assert_eq!(scene.flush(0, 1), FlushResult::Nothing);
    scene.rig.assert_no_breach();
}

#[test]
fn posts_after_an_error_are_flushed_when_asked_again() {
    let mut scene = Scene::new();
    assert_eq!(scene.flush(0, 1), FlushResult::Nothing);
    let (to, remote, source) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.write(to, remote, source);
    let piece = scene.source(8);
    scene.rig.post_receive(0, &mut scene.qps[0], piece);
    scene.go();
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none());
    assert_eq!(scene.flush(0, 1), FlushResult::Both);
    let sides = [0; 2].map(|_| {
        scene
            .rig
            .poll(0, &mut scene.cqs[0])
            .expect("flushed")
            .0
            .side
    });
    assert_eq!(sides, [QueueSide::Send, QueueSide::Receive]);
    scene.rig.assert_no_breach();
}

#[test]
fn every_check_of_local_memory_has_its_event() {
    type Case = (&'static str, AeCode, fn(&Scene) -> Fragment);
    let cases: [Case; 5] = [
        ("key", AeCode::BadStagKey, |scene| Fragment {
            steering_tag: scene.local ^ 1,
            ..scene.source(8)
        }),
        ("index", AeCode::BadStagIndex, |scene| Fragment {
            steering_tag: scene.local ^ 1 << 31,
            ..scene.source(8)
        }),
        ("unallocated", AeCode::UnallocatedStag, |scene| Fragment {
            steering_tag: 0x500,
            ..scene.source(8)
        }),
        ("tag 0", AeCode::StagZeroNotAllowed, |scene| Fragment {
            steering_tag: 0,
            ..scene.source(8)
        }),
        ("bounds", AeCode::BoundsViolation, |scene| Fragment {
            address: BASE + scene.from + 4090,
            ..scene.source(8)
        }),
    ];
    for (name, code, source) in cases {
        let mut scene = Scene::new();
        let good = scene.source(8);
        let (to, remote) = (BASE + scene.to, scene.remote);
        scene.write(to, remote, good);
        let bad = source(&scene);
        let index = scene.write(to, remote, bad);
        scene.go();
        assert!(
            scene.rig.poll(0, &mut scene.cqs[0]).is_some(),
            "{name}: the one before completes"
        );
        let event = scene.rig.event(0).expect(name);
        assert_eq!(
            (event.ae_code, event.source),
            (code, AeSource::SendQueue),
            "{name}"
        );
        assert_eq!(u32::from(event.wqe_index), index, "{name}");
        scene.rig.assert_no_breach();
    }
}

#[test]
fn memory_that_is_lost_before_a_request_is_sent_is_reported_at_that_request() {
    let mut scene = Scene::new();
    scene.rig.run_bytes = 0;
    let other = scene.rig.data(0, 4096);
    let other_tag = scene.rig.region(0, 3, other, 4096);
    let (to, remote, good) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.write(to, remote, good);
    let lost = Fragment {
        address: BASE + other,
        length_bytes: 8,
        steering_tag: other_tag,
    };
    let index = scene.write(to, remote, lost);
    let last = scene.write(to, remote, good);
    scene.rig.ring(0, &scene.qps[0]);
    // The device has taken all three requests, and the first one is on its way.
    scene.rig.with(0, |engine, context| engine.step(context));
    let first = scene
        .rig
        .with(0, |engine, context| engine.next_run(0, context));
    let release = DeallocateStag {
        protection_domain: DOMAIN,
        stag_index: other_tag >> 8,
        is_memory_region: true,
    };
    scene.rig.done(0, release);
    let next = scene
        .rig
        .with(0, |engine, context| engine.next_run(0, context));
    assert!(next.is_none(), "nothing leaves behind lost memory");
    assert_eq!(scene.rig.event(0), None, "the first request is under way");
    scene.rig.deliver(1, &first.expect("the first request"));
    scene.rig.run();
    let (before, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("the first one");
    assert!(!before.error);
    let event = scene.rig.event(0).expect("an event");
    assert_eq!(event.source, AeSource::SendQueue);
    assert_eq!(u32::from(event.wqe_index), index);
    assert_eq!(scene.flush(0, 1), FlushResult::SendQueue);
    let (flushed, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("a flush");
    assert!(flushed.error);
    assert_eq!(u32::from(flushed.element_index), index);
    assert_ne!(index, last);
    scene.rig.assert_no_breach();
}

#[test]
fn a_read_whose_bytes_find_no_place_is_flushed_and_does_not_complete() {
    for length in [8, 2500] {
        let mut scene = Scene::new();
        let (to, remote, good) = (BASE + scene.to, scene.remote, scene.source(length));
        scene.write(to, remote, good);
        let bad = Fragment {
            steering_tag: scene.local ^ 1,
            ..good
        };
        let (pair, target) = (&mut scene.qps[0], (to, remote));
        let index = scene.rig.request(0, pair, SendOpcode::Read, target, &[bad]);
        scene.go();
        let (before, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("the write");
        assert!(!before.error);
        assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none(), "{length}");
        let event = scene.rig.event(0).expect("an event");
        let expected = (AeCode::BadStagKey, AeSource::SendQueue);
        assert_eq!((event.ae_code, event.source), expected);
        assert_eq!(u32::from(event.wqe_index), index);
        assert_eq!(scene.flush(0, 2), FlushResult::SendQueue);
        let (flushed, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("flushed");
        assert!(flushed.error);
        assert_eq!(u32::from(flushed.element_index), index);
        scene.rig.assert_no_breach();
    }
}

#[test]
fn a_region_of_another_domain_or_without_rights_is_refused_to_the_peer() {
    let cases = [
        (DOMAIN + 1, AccessRights(0x1F), AeCode::BadProtectionDomain),
        (DOMAIN, AccessRights(0x07), AeCode::RightsViolation),
    ];
    for (protection_domain, access_rights, code) in cases {
        let mut scene = Scene::new();
        let region = RegisterMemoryRegion {
            protection_domain,
            access_rights,
            ..scene.rig.contiguous(5, scene.to, 4096)
        };
        scene.rig.done(1, region);
        let tag = SteeringTag::ZERO.with_index(5).with_key(7).0;
        let (to, source) = (BASE + scene.to, scene.source(8));
        scene.write(to, tag, source);
        scene.go();
        assert_eq!(scene.rig.event_code(1), Some(code));
        assert_eq!(scene.rig.event_code(0), Some(AeCode::RemoteAccessError));
        scene.rig.assert_no_breach();
    }
}

#[test]
fn a_peer_that_never_answers_ends_in_too_many_retries() {
    let mut scene = Scene::new();
    scene.rig.sides[1].engine.reset();
    let (to, remote, source) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.write(to, remote, source);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.sides[1].engine.set_receive_enabled(true);
    scene.rig.run_out();
    assert_eq!(scene.rig.event_code(0), Some(AeCode::TooManyRetries));
    assert_eq!(scene.rig.event(0), None);
}

#[test]
fn a_peer_without_receive_requests_ends_in_its_own_event_or_waits() {
    let mut scene = Scene::new();
    let source = scene.source(8);
    scene
        .rig
        .request(0, &mut scene.qps[0], SendOpcode::Send, (0, 0), &[source]);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.run();
    let target = Fragment {
        address: BASE + scene.to,
        length_bytes: 8,
        steering_tag: scene.remote,
    };
    scene.rig.post_receive(1, &mut scene.qps[1], target);
    scene.rig.run_out();
    assert!(
        scene.rig.poll(1, &mut scene.cqs[1]).is_some(),
        "posted late, taken at a retry"
    );
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_some());
    scene
        .rig
        .request(0, &mut scene.qps[0], SendOpcode::Send, (0, 0), &[source]);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.run_out();
    assert_eq!(
        scene.rig.event_code(0),
        Some(AeCode::TooManyReceiverNotReady)
    );
    scene.rig.assert_no_breach();
}

#[test]
fn a_message_too_long_for_its_receive_request_names_that_request() {
    let mut scene = Scene::new();
    let target = Fragment {
        address: BASE + scene.to,
        length_bytes: 4,
        steering_tag: scene.remote,
    };
    scene.rig.post_receive(1, &mut scene.qps[1], target);
    let source = scene.source(8);
    scene
        .rig
        .request(0, &mut scene.qps[0], SendOpcode::Send, (0, 0), &[source]);
    scene.go();
    let event = scene.rig.event(1).expect("an event");
    assert_eq!(
        (event.ae_code, event.source),
        (AeCode::MessageTooLong, AeSource::ReceiveQueue)
    );
    assert_eq!(event.wqe_index, 0);
    assert_eq!(
        scene.rig.event_code(0),
        Some(AeCode::InvalidInfinibandRequest)
    );
    assert_eq!(scene.flush(1, 1), FlushResult::ReceiveQueue);
    scene.rig.assert_no_breach();
}

#[test]
fn an_overflown_completion_queue_raises_its_event() {
    let mut rig = Rig::new();
    let mut cqs: Vec<_> = (0..2).map(|side| rig.cq(side, 3, 4)).collect();
    let mut qps: Vec<_> = (0..2).map(|side| rig.qp(side, 3, &cqs[side])).collect();
    for (side, qp) in qps.iter().enumerate() {
        rig.connect(side, qp);
    }
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let source = Fragment {
        address: BASE + from,
        length_bytes: 8,
        steering_tag: local,
    };
    for _ in 0..4 {
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &[source],
        );
    }
    rig.ring(0, &qps[0]);
    rig.run();
    let event = rig.event(0).expect("an event");
    assert_eq!(
        (event.ae_code, event.source),
        (AeCode::CompletionQueueError, AeSource::CompletionQueue)
    );
    assert_eq!(event.queue_number, 3);
    rig.assert_no_breach();
    assert_eq!(rig.remarks(0), ["a completion queue has overflown"]);
    assert!(rig.poll(0, &mut cqs[0]).is_some());
}

#[test]
fn a_stalled_engine_answers_nothing_and_goes_on_where_it_stood() {
    let mut scene = Scene::new();
    let (to, remote, source) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.rig.sides[1].engine.stall();
    scene.write(to, remote, source);
    scene.go();
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none());
    scene.rig.sides[0].engine.stall();
    scene.write(to, remote, source);
    scene.rig.ring(0, &scene.qps[0]);
    let before = scene.rig.sides[0].engine.snapshot();
    let handle = CreateAddressHandle {
        ah_number: 5,
        ..CreateAddressHandle::ZERO
    };
    let tail = scene.rig.submit(0, handle);
    assert_eq!(scene.rig.sides[0].engine.snapshot(), before);
    assert_eq!(scene.rig.sides[0].engine.next_timer(), None);
    scene.rig.run();
    for side in 0..2 {
        scene.rig.sides[side].engine.end_stall();
    }
    scene.rig.run_out();
    assert_eq!(scene.rig.sides[0].engine.snapshot().address_handles, [5]);
    assert_ne!(
        scene.rig.read(0, ringside_spec::rdma::registers::CQP_TAIL),
        tail.0
    );
    for _ in 0..2 {
        assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_some());
    }
    scene.rig.assert_no_breach();
}

#[test]
fn a_reset_sets_a_stalled_engine_going() {
    let mut rig = Rig::new();
    rig.sides[0].engine.stall();
    let status = rig.handshake(0);
    assert!(!status.done(), "no answer while it stands still");
    rig.sides[0].engine.reset();
    let status = rig.handshake(0);
    assert!(status.done() && !status.error());
    rig.assert_no_breach();
}

/// The driver of the side that refused reads the event, fails the queue pair, flushes and destroys
/// it, all before the engine has its turn on the wire.
/// Delivers a write of side 0 with the key `remote ^ flaw` to side 1, whose queue pair then ends
/// before it sends an answer: it is failed, flushed or destroyed.
fn end_before_the_answer(flaw: u32, last_step: usize) -> Scene {
    let mut scene = Scene::new();
    let (to, remote, source) = (BASE + scene.to, scene.remote, scene.source(8));
    scene.write(to, remote ^ flaw, source);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.with(0, |engine, context| engine.step(context));
    let request = scene
        .rig
        .with(0, |engine, context| engine.next_frame(context));
    let mut request = request.expect("the write");
    if let crate::frame::Payload::Memory { source, .. } = &mut request.payload {
        *source = 0;
    }
    scene.rig.deliver(1, &request);
    match last_step {
        FAIL => {
            let command = scene.rig.modify(&scene.qps[1], QueuePairState::Error);
            scene.rig.done(1, command);
        }
        FLUSH => drop(scene.flush(1, 1)),
        _ => {
            scene.flush(1, 1);
            let destroy = DestroyQueuePair {
                qp_number: 3,
                qp_type: QueuePairType::RoceReliableConnected,
                ..DestroyQueuePair::ZERO
            };
            scene.rig.done(1, destroy);
        }
    }
    scene
}

const FAIL: usize = 1;
const FLUSH: usize = 2;
const DESTROY: usize = 3;

#[test]
fn a_refusal_reaches_the_peer_although_its_queue_pair_ends_first() {
    for last_step in [FAIL, FLUSH, DESTROY] {
        let mut scene = end_before_the_answer(1, last_step);
        assert_eq!(scene.rig.event_code(1), Some(AeCode::BadStagKey));
        scene.rig.run_out();
        let told = scene.rig.event_code(0);
        assert_eq!(told, Some(AeCode::RemoteAccessError), "step {last_step}");
        scene.rig.assert_no_breach();
    }
}

#[test]
fn an_acknowledgement_reaches_the_peer_although_its_queue_pair_ends_first() {
    for last_step in [FAIL, FLUSH, DESTROY] {
        let mut scene = end_before_the_answer(0, last_step);
        scene.rig.run_out();
        let (done, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("a completion");
        assert!(!done.error, "step {last_step}");
        assert_eq!(scene.rig.event_code(0), None, "step {last_step}");
        scene.rig.assert_no_breach();
    }
}

/// A program sends its last message and disconnects: the device has worked on the request by the
/// time it takes the command.
#[test]
fn what_was_rung_before_the_command_that_stops_a_queue_pair_reaches_the_peer() {
    // In the frame itself, and from memory that is the program's again afterwards.
    for length in [8, 3000] {
        let mut scene = Scene::new();
        scene.rig.fill(0, scene.from, &vec![7; length]);
        let source = scene.source(length as u32);
        scene.write(BASE + scene.to, scene.remote, source);
        scene.rig.ring(0, &scene.qps[0]);
        assert_eq!(scene.flush(0, 1), FlushResult::SendQueue);
        scene.rig.fill(0, scene.from, &vec![9; length]);
        scene.rig.run_out();
        let landed = scene.rig.bytes(1, scene.to, length);
        assert!(landed.iter().all(|&byte| byte == 7), "{length} bytes");
        // Its sender does not know that it arrived.
        let (flushed, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("a completion");
        assert!(flushed.error);
        assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none());
        scene.rig.assert_no_breach();
    }
}

#[test]
fn what_is_posted_behind_the_command_that_stops_a_queue_pair_stays() {
    let mut scene = Scene::new();
    let command = scene.rig.modify(&scene.qps[0], QueuePairState::Error);
    scene.rig.done(0, command);
    scene.rig.fill(0, scene.from, &[7; 8]);
    let source = scene.source(8);
    scene.write(BASE + scene.to, scene.remote, source);
    scene.go();
    assert_eq!(scene.rig.bytes(1, scene.to, 8), [0; 8]);
}
