//! A failed device that does not answer may still write: its requests stay outstanding until it is
//! known that it does not.

use crate::causes::renew;
use crate::traffic::{Side, connect, exchange};
use ringside_bus::config_space::COMMAND;
use ringside_bus::{Around, DeviceAddress, Function, FunctionError};
use ringside_model::Fault;
use ringside_pmd::rdma::{Completion, Event, Flags, SharedReceiveConfig, WindowKind};
use ringside_pmd::recovery::{FailureCause, RecoverError, Supervised, Supervision};
use ringside_pmd::{Device, ShutdownReport};
use ringside_testkit::{Bed, End, Pair, config};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The answers to reads of configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// Those of the device.
    Right,
    /// None before the deadline.
    Late,
    /// The same, and registers are not answered either.
    Stopped,
    /// The command register reads all ones, and nothing else.
    CommandOfOnes,
    /// The backend reports that the device is gone.
    Gone,
}

/// A function that answers reads as a test says, and the reads of configuration space since the
/// last look, with those of registers that were not answered.
struct Mute {
    inner: Arc<dyn Function>,
    state: Mutex<(Answers, usize)>,
    /// the bus refuses to reset it
    keeps_running: AtomicBool,
}

impl Mute {
    fn set(&self, answers: Answers) {
        self.state.lock().unwrap().0 = answers;
    }

    fn reads(&self) -> usize {
        std::mem::take(&mut self.state.lock().unwrap().1)
    }
}

impl Around for Mute {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        let answers = {
            let mut state = self.state.lock().unwrap();
            state.1 += 1;
            state.0
        };
        let device = self.inner.address().clone();
        match answers {
            Answers::Late | Answers::Stopped => Err(timed_out(device)),
            Answers::Gone => Err(FunctionError::Gone {
                device,
                reason: "its server has ended".to_owned(),
            }),
            Answers::CommandOfOnes if offset == COMMAND => {
                bytes.fill(0xFF);
                Ok(())
            }
            Answers::Right | Answers::CommandOfOnes => self.inner.config_read(offset, bytes),
        }
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        {
            let mut state = self.state.lock().unwrap();
            if state.0 == Answers::Stopped {
                state.1 += 1;
                return Err(timed_out(self.inner.address().clone()));
            }
        }
        self.inner.read32(bar, offset)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        match self.keeps_running.load(Ordering::Relaxed) {
            true => Err(timed_out(self.inner.address().clone())),
            false => self.inner.reset(),
        }
    }
}

fn timed_out(device: DeviceAddress) -> FunctionError {
    FunctionError::TimedOut {
        device,
        request: "a read".to_owned(),
        waited_ms: 5000,
    }
}

/// Two ends, the first of which fails while requests are outstanding and its configuration space
/// answers as `answers` says.
struct Failed {
    pair: Pair,
    mute: Arc<Mute>,
    sides: [Side; 2],
}

impl Failed {
    fn with(answers: Answers) -> Self {
        let mut failed = Self::not_yet();
        failed.mute.set(answers);
        failed.mute.reads();
        failed.pair.a.device.give_up().expect("in service");
        failed.sides[0].count(&mut failed.pair.a);
        failed
    }

    /// The same before the failure.
    fn not_yet() -> Self {
        let world = Bed::open();
        let mute = Arc::new(Mute {
            inner: world.function(0),
            state: Mutex::new((Answers::Right, 0)),
            keeps_running: AtomicBool::new(false),
        });
        let a = End::on(Arc::clone(&mute) as Arc<dyn Function>, 0, &config());
        let b = End::new(&world, 1, &config());
        let pair = Pair { world, a, b };
        let mut sides = connect(&pair);
        // Receives only: the device completes none of them without the peer.
        let target = sides[0].region.slice(0..64).expect("inside");
        for id in 0..4 {
            sides[0].queue_pair.receive(id, &[target]).expect("room");
            sides[0].posted.insert(id, 0);
        }
        Self { pair, mute, sides }
    }

    /// The requests that have not completed.
    fn outstanding(&mut self) -> usize {
        self.sides[0].count(&mut self.pair.a);
        self.sides[0].outstanding()
    }

    /// Sends a message to the device that failed, and waits until it has arrived.
    fn send(&mut self, id: u64) {
        self.begin_send(id);
        let [_, peer] = &mut self.sides;
        for _ in 0..1000 {
            self.pair.world.clock().pause(Duration::from_micros(100));
            if peer.count(&mut self.pair.b) == 1 {
                assert_eq!(peer.succeeded, 1);
                return;
            }
        }
        panic!("request {id:#x} of the peer does not end");
    }

    fn begin_send(&mut self, id: u64) {
        let [_, peer] = &mut self.sides;
        assert!(peer.region.write(0, &[7; 64]));
        let bytes = peer.region.slice(0..64).expect("inside");
        let posted = peer.queue_pair.send(id, &[bytes], Flags::SIGNALLED);
        posted.expect("room");
        peer.posted.insert(id, 0);
        peer.queue_pair.ring();
    }

    /// The bytes that the receives are for.
    fn received(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        assert!(self.sides[0].region.read(0, &mut bytes));
        bytes
    }

    /// Lets the time to the next attempt pass.
    fn pass(&self) {
        let clock = self.pair.world.clock();
        let end = clock.now().plus(Duration::from_secs(1));
        while clock.now() < end {
            clock.pause(end.since(clock.now()));
        }
    }

    /// Shuts the device down. Returns its report, and the completions that its queue has then.
    fn shut_down(self) -> (ShutdownReport, usize) {
        let End {
            device,
            mut completions,
            domain,
        } = self.pair.a;
        let report = device.shutdown();
        let count = completions.poll(&mut [Completion::EMPTY; 8]).len();
        drop((self.sides, completions, domain));
        (report, count)
    }

    /// Back in service, with nothing left.
    fn finish(self) {
        let Self {
            mut pair,
            mute,
            sides,
        } = self;
        mute.set(Answers::Right);
        pair.a.device.recover().expect("back in service");
        assert!(!pair.a.device.is_contained());
        drop(sides);
        renew(&mut pair);
        exchange(&mut pair, 0x33);
        pair.finish();
    }
}

#[test]
fn a_device_that_answers_or_is_gone_returns_all_requests_at_once() {
    for answers in [Answers::Right, Answers::Gone] {
        let mut failed = Failed::with(answers);
        assert_eq!(failed.outstanding(), 0, "{answers:?}");
        assert!(failed.pair.a.device.is_contained());
        failed.finish();
    }
}

#[test]
fn requests_stay_outstanding_while_a_failed_device_may_write() {
    for answers in [Answers::Late, Answers::CommandOfOnes] {
        for ends in [Answers::Right, Answers::Gone] {
            let mut failed = Failed::with(answers);
            for _ in 0..3 {
                let _ = failed.pair.a.device.poll_events(&mut Vec::new());
                assert_eq!(failed.outstanding(), 4, "{answers:?}");
                assert!(!failed.pair.a.device.is_contained());
                failed.pass();
            }
            // It still writes, and says so.
            assert!(failed.pair.a.device.check().is_some());
            failed.send(1 << 40);
            assert_eq!(failed.outstanding(), 3, "{answers:?}");
            assert_eq!(failed.received(), [7; 64]);
            failed.pass();
            failed.mute.set(ends);
            let _ = failed.pair.a.device.poll_events(&mut Vec::new());
            assert_eq!(failed.outstanding(), 0, "{answers:?}, then {ends:?}");
            assert!(failed.pair.a.device.is_contained());
            if ends == Answers::Right {
                assert!(failed.sides[0].region.write(0, &[1; 64]));
                failed.begin_send(2 << 40);
                failed.pass();
                assert_eq!(failed.received(), [1; 64], "a completion gives memory back");
            }
            failed.finish();
        }
    }
}

#[test]
fn every_call_that_looks_at_a_failed_device_tries_to_silence_it() {
    let cause = FailureCause::Requested;
    let retry = || Supervision::new(Duration::from_secs(1), Duration::from_secs(3600));
    type Call = fn(&mut Device, &mut Supervision);
    let calls: [(&str, Call); 3] = [
        ("check", |device, _| {
            device.check();
        }),
        ("observe", |device, supervision| {
            let _ = device.observe(supervision, &mut Vec::new());
        }),
        ("recover_in_turn", |device, supervision| {
            let cause = FailureCause::Requested;
            let supervised = device.recover_in_turn(supervision, cause);
            assert!(
                matches!(supervised, Supervised::Waiting(_)),
                "{supervised:?}"
            );
        }),
    ];
    for (name, call) in calls {
        let mut failed = Failed::with(Answers::Late);
        let mut supervision = retry();
        // The next attempt of a recovery is due in an hour.
        let supervised = failed
            .pair
            .a
            .device
            .recover_in_turn(&mut supervision, cause);
        let Supervised::Failing(error) = supervised else {
            panic!("{supervised:?}");
        };
        assert!(matches!(*error, RecoverError::NotReset { .. }), "{error}");
        assert_eq!(failed.outstanding(), 4, "{name}");
        failed.pass();
        failed.mute.set(Answers::Right);
        call(&mut failed.pair.a.device, &mut supervision);
        assert_eq!(failed.outstanding(), 0, "{name}");
        failed.finish();
    }
}

/// Each attempt can take as long as the deadline of the backend.
#[test]
fn a_device_that_does_not_answer_is_asked_once_a_second() {
    let failed = Failed::with(Answers::Late);
    assert_eq!(failed.mute.reads(), 1);
    for _ in 0..2 {
        for _ in 0..10 {
            let _ = failed.pair.a.device.poll_events(&mut Vec::new());
        }
        assert_eq!(failed.mute.reads(), 0);
        failed.pass();
        let _ = failed.pair.a.device.poll_events(&mut Vec::new());
        assert_eq!(failed.mute.reads(), 1);
    }
    failed.finish();
}

#[test]
fn a_recovery_returns_the_requests_of_a_device_that_did_not_answer_before() {
    let mut failed = Failed::with(Answers::Late);
    failed.mute.set(Answers::Right);
    failed.pair.a.device.recover().expect("back in service");
    assert_eq!(failed.outstanding(), 0);
    failed.finish();
}

#[test]
fn a_shutdown_returns_no_request_of_a_device_that_may_write() {
    let mut failed = Failed::with(Answers::Late);
    assert_eq!(failed.outstanding(), 4);
    let (report, count) = failed.shut_down();
    assert!(!report.failures.is_empty());
    assert!(report.leaked_bytes > 0);
    assert_eq!(count, 0);
}

/// Each read can take as long as the deadline of the backend.
#[test]
fn a_device_that_stops_is_reported_after_one_read_that_it_does_not_answer() {
    type Call = fn(&Device, &mut Vec<Event>);
    let calls: [Call; 2] = [
        |device, events| {
            let _ = device.poll_events(events);
        },
        |device, events| {
            let mut supervision = Supervision::default();
            let seen = device.observe(&mut supervision, events);
            assert_eq!(seen.expect("events"), Some(FailureCause::Gone));
        },
    ];
    for call in calls {
        let mut failed = Failed::not_yet();
        failed.pass();
        failed.mute.reads();
        failed.mute.set(Answers::Stopped);
        let mut events = Vec::new();
        call(&failed.pair.a.device, &mut events);
        let cause = FailureCause::Gone;
        assert_eq!(events, [Event::DeviceFailed { cause }]);
        assert_eq!(failed.mute.reads(), 1);
        assert_eq!(failed.outstanding(), 4);
        assert!(!failed.pair.a.device.is_contained());
        failed.mute.set(Answers::Right);
        failed.pass();
        failed.pair.a.device.check();
        assert_eq!(failed.outstanding(), 0);
        failed.finish();
    }
}

#[test]
fn a_thread_waits_until_a_failed_device_writes_nothing_more() {
    const LIMIT: Duration = Duration::from_secs(10);
    let failed = Failed::not_yet();
    let containment = failed.pair.a.device.containment().expect("in service");
    assert!(containment.wait(Duration::ZERO), "it is in service");
    failed.finish();

    let failed = Failed::not_yet();
    let device = &failed.pair.a.device;
    let containment = device.containment().expect("in service");
    failed.mute.set(Answers::Late);
    device.give_up().expect("in service");
    let clock = failed.pair.world.clock();
    let begin = clock.now();
    assert!(!containment.wait(LIMIT), "it may write");
    let waited = clock.now().since(begin);
    assert!(waited >= LIMIT && waited < 2 * LIMIT, "{waited:?}");
    // The limit is one for all calls.
    let begin = clock.now();
    assert!(!containment.wait(LIMIT), "it may write");
    assert!(clock.now().since(begin) < LIMIT / 10);
    assert!(!device.is_contained());
    failed.mute.set(Answers::Right);
    // A call after the limit makes an attempt, too. Between two there is a pause.
    clock.pause(Duration::from_secs(1));
    assert!(containment.wait(LIMIT), "its DMA can be stopped");
    assert!(device.is_contained());
    failed.finish();
}

#[test]
fn a_window_stays_while_a_failed_device_may_write() {
    let failed = Failed::not_yet();
    let window = failed.pair.a.domain.memory_window(WindowKind::One);
    let window = window.expect("a window");
    failed.mute.set(Answers::Late);
    failed.pair.a.device.give_up().expect("in service");
    let kept = window.destroy().expect_err("peers may write through it");
    let window = kept.window.expect("it can be destroyed later");
    failed.mute.set(Answers::Right);
    failed.pass();
    failed.pair.a.device.check();
    window.destroy().expect("nothing is written any more");
    failed.finish();
}

/// A shared queue whose only queue pair is destroyed when the device has failed: neither the
/// receives in its queue nor those that waited come back before their time, and each comes once.
#[test]
fn receives_of_a_shared_queue_stay_while_a_failed_device_may_write() {
    let mut failed = Failed::not_yet();
    let config = SharedReceiveConfig {
        receives: 16,
        fragments: 1,
        window: 8,
    };
    let mut shared = failed.pair.a.domain.shared_receive_queue(&config);
    let shared = shared.as_mut().expect("shared");
    let (mut member, mut peer) = failed.pair.connect(|config| config);
    shared.attach(&mut member).expect("a member");
    let region = failed.pair.a.region(64);
    let place = region.slice(0..64).expect("inside");
    for id in 100..116 {
        shared.post(id, &[place]).expect("room");
    }
    failed.mute.set(Answers::Late);
    failed.pair.a.device.give_up().expect("in service");
    assert_eq!(shared.destroy(member).expect("no command"), 0);
    let mut poll = |failed: &mut Failed| {
        let mut batch = [Completion::EMPTY; 32];
        let done = shared.poll(&mut failed.pair.a.completions, &mut batch);
        let ids = done.iter().map(|done| done.id).filter(|id| *id >= 100);
        (ids.collect::<Vec<u64>>(), shared.left())
    };
    // Those that were in no queue pair's queue.
    let (early, left) = poll(&mut failed);
    assert_eq!((early.len(), left), (8, 8), "{early:?}");
    let source = failed.pair.b.region(64);
    assert!(source.write(0, &[7; 64]));
    let bytes = source.slice(0..64).expect("inside");
    peer.send(1 << 40, &[bytes], Flags::SIGNALLED)
        .expect("room");
    peer.ring();
    failed.pass();
    let mut found = [0; 64];
    assert!(region.read(0, &mut found));
    assert_eq!(found, [7; 64], "the device still writes");
    assert_eq!(poll(&mut failed), (vec![], 8));
    failed.mute.set(Answers::Right);
    failed.pair.a.device.check();
    assert!(failed.pair.a.device.is_contained());
    let mut all = early;
    for _ in 0..3 {
        all.extend(poll(&mut failed).0);
    }
    all.sort_unstable();
    assert_eq!(all, (100..116).collect::<Vec<u64>>());
    let (report, count) = failed.shut_down();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!((report.leaked_bytes, count), (0, 0));
}

/// The DMA was stopped, before the shutdown or by it. No reset ends: neither that of the function
/// nor that of the bus.
#[test]
fn requests_of_a_failed_device_complete_at_the_shutdown_though_its_resets_fail() {
    for answers in [Answers::Right, Answers::Late] {
        let failed = Failed::not_yet();
        let Failed { pair, mute, .. } = &failed;
        mute.set(answers);
        pair.a.device.give_up().expect("in service");
        mute.set(Answers::Right);
        pair.world
            .with(|world| world.inject(0, Fault::ResetNeverEnds));
        mute.keeps_running.store(true, Ordering::Relaxed);
        let (report, count) = failed.shut_down();
        assert!(!report.failures.is_empty());
        assert_eq!(report.leaked_bytes, 0, "{:#?}", report.failures);
        assert_eq!(count, 4, "{answers:?}");
    }
}
