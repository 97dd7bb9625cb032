//! Objects that have failed or are gone, and those that come after them.

use crate::planted::failed_events;
use ringside_model::Fault;
use ringside_pmd::rdma::{
    Completion, Connected, Event, Flags, MemoryRegion, QueuePair, QueuePairStage, RdmaError,
    SharedReceiveConfig, Status,
};
use ringside_pmd::recovery::{Supervised, Supervision};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{Pair, config};
use std::time::Duration;

/// Long enough for a descriptor that is readable already.
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn no_queue_pair_is_made_on_a_completion_queue_that_has_failed() {
    let pair = Pair::new();
    let receives = pair.a.device.completion_queue(16).unwrap();
    let on_it = || pair.a.config().receives_report_to(receives.target());
    let before = pair.a.queue_pair(on_it());
    failed_events(&pair, receives.number());
    let is_told = |error: &RdmaError| {
        matches!(error, RdmaError::CompletionQueueFailed { completion_queue }
            if *completion_queue == receives.number())
    };
    let refused = pair.a.domain.queue_pair(on_it()).unwrap_err();
    assert!(is_told(&refused), "{refused}");
    let refused = before.reset().unwrap_err();
    assert!(is_told(&refused.error), "{refused}");
    // It is as it was.
    let before = refused.into_queue_pair().expect("the queue pair");
    assert_eq!(before.query().unwrap().stage, QueuePairStage::Failed);
    drop((before, receives));
    pair.finish();
}

/// A peer breaks a queue pair; its event is taken after another one has its number.
#[test]
fn an_event_of_a_queue_pair_that_is_gone_does_not_concern_the_next_one() {
    let mut single = config();
    single.rdma.queue_pairs = 1;
    let mut pair = Pair::with(&single);
    let (from, to) = (pair.b.region(64), pair.a.region(64));
    let (a, mut b) = pair.connect(|config| config);
    let number = a.number();
    let mut wrong = to.remote();
    wrong.key ^= 1;
    b.write(
        1,
        &[from.slice(0..8).unwrap()],
        wrong.at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    b.ring();
    pair.pass();
    assert_eq!(pair.b.events().len(), 1);
    assert_eq!(pair.wait_b(1)[0].status(), Status::RemoteAccess);
    a.destroy().unwrap();
    let next = pair.a.queue_pair(pair.a.config());
    assert_eq!(next.number(), number, "there is one number only");
    let told = pair.a.events();
    let failed = |event: &Event| matches!(event, Event::QueuePairFailed { .. });
    assert!(!told.iter().any(failed), "{told:?}");
    assert_eq!(next.query().unwrap().stage, QueuePairStage::Initialised);
    drop((next, b, from, to));
    pair.finish();
}

/// A connection with a send for which its peer has no receive.
fn waiting(pair: &Pair) -> (QueuePair<Connected>, QueuePair<Connected>, MemoryRegion) {
    let from = pair.a.region(64);
    let (mut qp, peer) = pair.connect(|config| config.receiver_not_ready_retries(7));
    qp.send(1, &[from.slice(0..8).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    (qp, peer, from)
}

#[test]
fn a_queue_pair_that_neither_stops_nor_goes_on_fails() {
    // The virtual time of the draining runs out where this thread gets no core meanwhile.
    for _ in 0..200 {
        let mut pair = Pair::new();
        let (qp, peer, from) = waiting(&pair);
        let switch = qp.send_switch();
        let stopped = std::thread::scope(|scope| {
            let stopping = scope.spawn(|| switch.stop());
            let stops = |answer| matches!(answer, Err(RdmaError::Draining { .. }));
            while !stopping.is_finished() && !stops(switch.resume()) {
                std::hint::spin_loop();
            }
            // Commands are executed in order: this one comes after the one that stops it.
            drop(pair.a.region(64));
            let refusal = Fault::ControlCommandFails {
                opcode: Opcode::ModifyQueuePair.code(),
                major: 0xFFFF,
                minor: 0x8003,
            };
            pair.world.with(|world| world.inject(0, refusal));
            stopping.join().expect("no panic")
        });
        pair.world.with(|world| world.clear_faults(0));
        let error = stopped.expect_err("the peer has no receive");
        if matches!(error, RdmaError::NotDrained { .. }) {
            continue; // It had gone on before the fault.
        }
        assert!(matches!(error, RdmaError::Control(_)), "{error}");
        let done = pair.wait_a(1);
        assert_eq!((done[0].id, done[0].status()), (1, Status::Flushed));
        let again = switch.stop().unwrap_err();
        assert!(!matches!(again, RdmaError::Draining { .. }), "{again}");
        drop((qp, peer, from));
        return pair.finish();
    }
    panic!("the fault never came in time");
}

#[test]
fn an_event_that_the_program_causes_wakes_who_waits_for_events() {
    let pair = Pair::new();
    let config = SharedReceiveConfig::default();
    let mut queue = pair.b.domain.shared_receive_queue(&config).unwrap();
    let (a, mut b) = pair.connect(|config| config);
    queue.attach(&mut b).unwrap();
    let interrupts = pair.b.device.interrupts().unwrap();
    assert!(!interrupts.wait(Duration::ZERO).unwrap());
    queue.fail(b.number(), AeCode::ResourceExhaustion).unwrap();
    assert!(interrupts.wait(SHORT).unwrap(), "nothing woke it");
    assert_eq!(pair.b.events().len(), 1);
    drop((interrupts, queue, a, b));
    pair.finish();
}

/// The completion queue has no room for the flush of a queue pair when the device fails, and no
/// recovery succeeds.
#[test]
fn requests_complete_once_there_is_room_though_the_device_stays_down() {
    let mut pair = Pair::new();
    let (qp, peer, from) = waiting(&pair);
    pair.pass();
    // Nothing polls: the attachments of queue pairs fill the inbox.
    let mut made = Vec::new();
    while let Ok(one) = pair.a.domain.queue_pair(pair.a.config()) {
        one.destroy().unwrap_or_default();
        made.push(());
        assert!(made.len() < 10_000);
    }
    pair.world
        .with(|world| world.inject(0, Fault::ResetNeverEnds));
    pair.a.device.give_up().unwrap();
    let mut supervision = Supervision::new(SHORT, Duration::ZERO);
    let mut events = Vec::new();
    let mut look = |pair: &mut Pair| {
        let seen = pair.a.device.supervise(&mut supervision, &mut events);
        assert!(!matches!(seen, Ok(Supervised::Recovered(_))));
    };
    look(&mut pair);
    let mut batch = [Completion::EMPTY; 4];
    let mut done = pair.a.completions.poll(&mut batch).to_vec();
    for _ in 0..3 {
        look(&mut pair);
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
    }
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!((done[0].id, done[0].status()), (1, Status::Flushed));
    drop((qp, peer, from, pair));
}
