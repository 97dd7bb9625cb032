//! Devices that fail, recover, and are removed.

use crate::recorder::{Log, Recorder, config, open, registry, wait_until};
use ringside::driver::recovery::{FailureCause, Supervised, Supervision};
use ringside::model::Fault;
use ringside::model::faults::ANY_ADMIN_COMMAND;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::registry::{Cause, DeviceHandle, DeviceState, DeviceUse, RegistryError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Makes a fault of the function behind the device.
fn inject(handle: &DeviceHandle, fault: Fault) {
    change(handle, move |world, index| world.inject(index, fault));
}

fn change(
    handle: &DeviceHandle,
    change: impl FnOnce(&mut ringside::model::World, usize) + Send + 'static,
) {
    let DeviceAddress::Model(index) = *handle.address() else {
        panic!("{handle:?}");
    };
    let device = handle.device().unwrap();
    let model = device.model().unwrap();
    model.with(move |world| change(world, usize::from(index)));
}

#[test]
fn failure_and_recovery_are_told_in_order() {
    let (registry, log) = (registry(), Log::default());
    let mut a = Recorder::new("a", &log);
    // A client makes its objects again when it is told.
    a.on_recovered = Box::new(|handle| {
        let device = handle.device()?;
        let domain = device.protection_domain()?;
        domain.register(device.allocate(4096)?, Access::LOCAL_WRITE)?;
        Ok(())
    });
    registry.register("a", a).unwrap();
    let handle = open(&registry, 10);
    let bystander = open(&registry, 11);
    log.take();
    inject(&handle, Fault::Reset(ResetKind::Function));
    assert_eq!(log.wait(2), ["a ! m10 function-reset", "a ^ m10 2"]);
    wait_until("the state", || {
        handle.state() == DeviceState::InService { life: 2 }
    });

    // A recovery that the program asks for is one as well.
    handle.device().unwrap().recover().unwrap();
    assert_eq!(log.wait(2), ["a ! m10 requested", "a ^ m10 3"]);
    // A later failure is reported although no recovery follows.
    inject(&handle, Fault::FunctionDead);
    assert_eq!(log.wait(2), ["a ! m10 gone", "a - m10 Gone"]);
    assert_eq!(bystander.state(), DeviceState::InService { life: 1 });
    registry.close().unwrap();
    assert_eq!(log.take(), ["a - m11 Closed"]);
}

#[test]
fn a_program_without_a_housekeeping_thread_tells_by_its_own_calls() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let mut config = config();
    config.housekeeping.thread = false;
    let handle = registry.open_as("m12", "model:12", &config).unwrap();
    log.take();
    let device = handle.device().unwrap();
    // No probe after the first: it would wait for an answer of a device that was reset.
    let mut supervision = Supervision::new(Duration::from_secs(3600), Duration::ZERO);
    let mut events = Vec::new();
    device.supervise(&mut supervision, &mut events).unwrap();
    inject(&handle, Fault::Reset(ResetKind::Function));
    wait_until("the recovery", || {
        let supervised = device.supervise(&mut supervision, &mut events).unwrap();
        matches!(supervised, Supervised::Recovered(_))
    });
    assert_eq!(log.wait(2), ["a ! m12 function-reset", "a ^ m12 2"]);
    drop(device);
    registry.close().unwrap();
}

#[test]
fn a_client_that_comes_while_a_device_is_out_of_service_initialises_it_after_the_recovery() {
    let (registry, log) = (registry(), Log::default());
    let mut config = config();
    config.housekeeping.recover = false;
    let handle = registry.open_as("m13", "model:13", &config).unwrap();
    inject(&handle, Fault::Reset(ResetKind::Function));
    wait_until("the failure", || {
        matches!(handle.state(), DeviceState::Failed(_))
    });
    registry
        .register("late", Recorder::new("late", &log))
        .unwrap();
    assert_eq!(log.take(), Vec::<String>::new());
    handle.device().unwrap().recover().unwrap();
    assert_eq!(log.wait(1), ["late + m13"]);
    registry.remove("m13").unwrap();
    assert_eq!(log.take(), ["late - m13 Removed"]);
}

#[test]
fn an_initialise_that_a_failure_upset_is_tried_again() {
    let (registry, log) = (registry(), Log::default());
    let mut upset = Recorder::new("upset", &log);
    let mut is_first = true;
    upset.on_initialise = Box::new(move |handle| {
        if !std::mem::take(&mut is_first) {
            return Ok(());
        }
        let device = handle.device()?;
        device.recover()?;
        Err("objects of before the recovery".into())
    });
    registry.register("upset", upset).unwrap();
    open(&registry, 14);
    assert_eq!(log.wait(2), ["upset + m14", "upset + m14"]);
    registry.remove("m14").unwrap();
    assert_eq!(log.take(), ["upset - m14 Removed"]);
}

/// Asks for the device behind the handle, as the kernel does.
fn request_release(handle: &DeviceHandle) {
    change(handle, |world, index| {
        assert!(world.request_release(index), "not connected");
    });
}

#[test]
fn a_device_that_the_host_asks_for_is_removed_in_order_and_can_be_opened_again() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    registry.register("b", Recorder::new("b", &log)).unwrap();
    // A period that the test would notice: the request wakes the thread.
    let mut config = config();
    config.housekeeping.period_ms = 60_000;
    let handle = registry.open_as("m35", "model:35", &config).unwrap();
    let bystander = open(&registry, 36);
    log.take();
    let begun = std::time::Instant::now();
    request_release(&handle);
    assert_eq!(
        log.wait(2),
        ["b - m35 ReleaseRequested", "a - m35 ReleaseRequested"]
    );
    wait_until("the shutdown", || {
        handle.state() == DeviceState::Removed(Cause::ReleaseRequested)
    });
    assert!(begun.elapsed() < Duration::from_secs(50), "{begun:?}");
    assert_eq!(bystander.state(), DeviceState::InService { life: 1 });
    open(&registry, 35);
    assert_eq!(log.wait(2), ["a + m35", "b + m35"]);
    registry.close().unwrap();
}

#[test]
fn a_program_without_a_housekeeping_thread_passes_the_request_of_the_host_on() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let mut config = config();
    config.housekeeping.thread = false;
    for supervises in [true, false] {
        let handle = registry.open_as("m37", "model:37", &config).unwrap();
        log.take();
        request_release(&handle);
        let device = handle.device().unwrap();
        let mut events = Vec::new();
        if supervises {
            let mut supervision = Supervision::new(Duration::ZERO, Duration::ZERO);
            device.supervise(&mut supervision, &mut events).unwrap();
        } else {
            device.poll_events(&mut events).unwrap();
        }
        assert_eq!(events, [Event::ReleaseRequested]);
        drop(device);
        assert_eq!(log.wait(1), ["a - m37 ReleaseRequested"]);
        wait_until("the shutdown", || {
            handle.state() == DeviceState::Removed(Cause::ReleaseRequested)
        });
    }
    registry.close().unwrap();
}

/// Two devices, and a client that moves data between them from a thread of its own.
struct Traffic {
    uses: Arc<Mutex<Vec<DeviceUse>>>,
}

impl Traffic {
    /// A client that holds every device until its `uninitialise`.
    fn client(name: &'static str, log: &Log) -> (Recorder, Self) {
        let uses = Arc::new(Mutex::new(Vec::new()));
        let mut client = Recorder::new(name, log);
        let held = Arc::clone(&uses);
        client.on_initialise = Box::new(move |handle| {
            held.lock().unwrap().push(handle.device()?);
            Ok(())
        });
        let held = Arc::clone(&uses);
        client.on_uninitialise = Box::new(move |handle| {
            let mut held = held.lock().unwrap();
            held.retain(|device: &DeviceUse| device.handle().name() != handle.name());
            Ok(())
        });
        (client, Self { uses })
    }

    /// A connection between the two devices: queue pair, its completions, both regions, and the
    /// rest that has to live.
    fn connect(&self) -> Connection {
        let uses = self.uses.lock().unwrap();
        let made: Vec<_> = uses
            .iter()
            .map(|device| {
                let domain = device.protection_domain().unwrap();
                let completions = device.completion_queue(256).unwrap();
                let pair = domain.queue_pair(QueuePairConfig::reliable(&completions));
                let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                let region = domain.register(device.allocate(4096).unwrap(), rights);
                (completions, pair.unwrap(), region.unwrap())
            })
            .collect();
        let [here, there] = made.try_into().unwrap_or_else(|_| panic!("two devices"));
        let ends = (here.1.endpoint(), there.1.endpoint());
        let connect = |pair: QueuePair, to| pair.connect(to).map_err(|error| error.error).unwrap();
        Connection {
            pair: connect(here.1, &ends.1),
            completions: here.0,
            source: here.2,
            target: there.2,
            _peer: (connect(there.1, &ends.0), there.0),
        }
    }
}

struct Connection {
    pair: QueuePair<Connected>,
    completions: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    _peer: (QueuePair<Connected>, CompletionQueue),
}

impl Connection {
    /// One write that succeeds.
    fn write_once(&mut self) {
        let place = self.source.slice(0..256).unwrap();
        let target = self.target.remote().at(0);
        let posted = self.pair.write(7, &[place], target, Flags::SIGNALLED);
        posted.unwrap();
        self.pair.ring();
        let mut batch = [Completion::EMPTY; 1];
        wait_until("the write", || {
            let done = self.completions.poll(&mut batch).first();
            done.is_some_and(|done| {
                assert!(done.is_success(), "{}", done.status());
                done.id == 7
            })
        });
    }

    /// Writes until a post is refused and all posted requests have completed. Returns the numbers
    /// of requests that were posted, succeeded, and failed. Posts one more when `more` is set, and
    /// clears it. `progress`: the successes so far.
    fn run(&mut self, more: &AtomicBool, progress: &AtomicU64) -> (u64, u64, u64) {
        let (mut posted, mut good, mut bad) = (0_u64, 0, 0);
        let mut batch = [Completion::EMPTY; 32];
        let end = std::time::Instant::now() + crate::recorder::LIMIT;
        let mut is_refused = false;
        while !is_refused || good + bad < posted {
            assert!(
                std::time::Instant::now() < end,
                "{posted} posted, {good} and {bad} ended"
            );
            let wanted = more.load(Ordering::Acquire);
            let most = if wanted { 33 } else { 32 };
            while !is_refused && posted - good - bad < most {
                let place = self.source.slice(0..256).unwrap();
                let target = self.target.remote().at(0);
                match self.pair.write(posted, &[place], target, Flags::SIGNALLED) {
                    Ok(()) => posted += 1,
                    Err(_) => is_refused = true,
                }
            }
            self.pair.ring();
            if wanted {
                more.store(false, Ordering::Release);
            }
            for done in self.completions.poll(&mut batch) {
                match done.is_success() {
                    true => good += 1,
                    false => bad += 1,
                }
            }
            progress.store(good, Ordering::Relaxed);
        }
        (posted, good, bad)
    }
}

#[test]
fn a_device_that_goes_under_traffic_is_removed_and_comes_back_under_its_name() {
    let (registry, log) = (registry(), Log::default());
    let (client, traffic) = Traffic::client("storage", &log);
    registry
        .register("base", Recorder::new("base", &log))
        .unwrap();
    registry.register("storage", client).unwrap();
    let gone = open(&registry, 15);
    let stays = open(&registry, 16);
    log.take();
    let mut connection = traffic.connect();
    let more = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(AtomicU64::new(0));
    let (asked, shown) = (Arc::clone(&more), Arc::clone(&progress));
    let worker = std::thread::spawn(move || connection.run(&asked, &shown));
    wait_until("traffic", || progress.load(Ordering::Relaxed) > 1000);
    // A request is certainly outstanding when the device is removed.
    inject(&gone, Fault::ProtocolEngineStall);
    more.store(true, Ordering::Release);
    wait_until("one more request", || !more.load(Ordering::Acquire));
    inject(&gone, Fault::FunctionDead);

    // Nothing is called by the program from here on.
    let told = log.wait(4);
    let mut failures = told[..2].to_vec();
    failures.sort();
    assert_eq!(failures, ["base ! m15 gone", "storage ! m15 gone"]);
    assert_eq!(told[2..], ["storage - m15 Gone", "base - m15 Gone"]);
    wait_until("the shutdown", || {
        gone.state() == DeviceState::Removed(Cause::Gone)
    });
    let (posted, good, bad) = worker.join().unwrap();
    assert!(good > 0 && bad > 0, "{posted}: {good} and {bad}");
    assert!(registry.get("m15").is_none());
    let refused = gone.device().unwrap_err();
    assert!(
        matches!(
            refused,
            RegistryError::Removed {
                cause: Cause::Gone,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(stays.state(), DeviceState::InService { life: 1 });

    // The device is plugged in again.
    change(&stays, |world, _| world.clear_faults(15));
    let back = open(&registry, 15);
    assert_eq!((back.name(), back.index()), (gone.name(), gone.index()));
    assert_eq!(back.ports()[0].index(), gone.ports()[0].index());
    assert_eq!(log.take(), ["base + m15", "storage + m15"]);
    let mut connection = traffic.connect();
    connection.write_once();
    registry.close().unwrap();
}

#[test]
fn a_device_that_is_back_in_time_is_recovered_and_stays() {
    let registry = crate::recorder::registry_gone_for(Duration::from_secs(20));
    let log = Log::default();
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let handle = open(&registry, 17);
    log.take();
    inject(&handle, Fault::FunctionDead);
    assert_eq!(log.wait(1), ["a ! m17 gone"]);
    // Some recoveries fail.
    std::thread::sleep(Duration::from_millis(300));
    change(&handle, |world, index| world.clear_faults(index));
    assert_eq!(log.wait(1), ["a ^ m17 2"]);
    assert_eq!(
        registry.get("m17").unwrap().state(),
        DeviceState::InService { life: 2 }
    );
}

#[test]
fn a_device_that_goes_during_a_recovery_is_removed() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let mut config = config();
    config.housekeeping.recover = false;
    let handle = registry.open_as("m18", "model:18", &config).unwrap();
    log.take();
    inject(&handle, Fault::Reset(ResetKind::Function));
    assert_eq!(log.wait(1), ["a ! m18 function-reset"]);
    inject(&handle, Fault::FunctionDead);
    handle.device().unwrap().recover().unwrap_err();
    assert_eq!(log.wait(1), ["a - m18 Gone"]);
    wait_until("the shutdown", || {
        handle.state() == DeviceState::Removed(Cause::Gone)
    });
}

/// The device answers again before its time limit, and its recovery takes longer than the limit.
#[test]
fn a_device_that_is_back_is_not_removed_during_its_recovery() {
    const LIMIT: Duration = Duration::from_secs(5);
    let registry = crate::recorder::registry_gone_for(LIMIT);
    let log = Log::default();
    let mut client = Recorder::new("a", &log);
    // At once: the time limit began with the failure.
    client.on_failed = Box::new(|handle| {
        change(handle, |world, index| {
            let slow = Fault::AdminCommandDelayed {
                opcode: ANY_ADMIN_COMMAND,
                by: LIMIT / 10,
            };
            world.inject(index, slow);
            world.clear_fault(index, Fault::FunctionDead);
        });
        Ok(())
    });
    registry.register("a", client).unwrap();
    let mut config = config();
    config.housekeeping.retry_ms = 10;
    let handle = registry.open_as("m19", "model:19", &config).unwrap();
    log.take();
    let began = std::time::Instant::now();
    inject(&handle, Fault::FunctionDead);
    assert_eq!(log.wait(2), ["a ! m19 gone", "a ^ m19 2"]);
    let took = began.elapsed();
    assert!(took > LIMIT.mul_f64(1.2), "{took:?} shows nothing");
    change(&handle, |world, index| world.clear_faults(index));
    assert!(handle.device().unwrap().protection_domain().is_ok());
}

/// Its recoveries fail for longer than the limit of an absence, and it answers all the time.
#[test]
fn a_device_that_is_there_and_does_not_recover_is_not_removed() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let mut config = config();
    config.housekeeping.recover = false;
    config.device.reset_deadline_ms = 100;
    let handle = registry.open_as("m34", "model:34", &config).unwrap();
    log.take();
    inject(&handle, Fault::ResetNeverEnds);
    inject(&handle, Fault::Reset(ResetKind::Function));
    assert_eq!(log.wait(1), ["a ! m34 function-reset"]);
    let device = handle.device().unwrap();
    for _ in 0..2 {
        let error = device.recover().unwrap_err().to_string();
        assert!(error.contains("does not end"), "{error}");
        // Longer than a device may be gone.
        std::thread::sleep(Duration::from_millis(500));
    }
    let expected = DeviceState::Failed(FailureCause::FunctionReset);
    assert_eq!(handle.state(), expected);
    change(&handle, |world, index| world.clear_faults(index));
    device.recover().unwrap();
    assert_eq!(log.wait(1), ["a ^ m34 2"]);
}
