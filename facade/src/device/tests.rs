//! Failures and recoveries that a device reports to its observer, and its IP stack.

use super::*;
use ringside_lan::Burst;
use ringside_model::Fault;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::recovery::RecoverError as Error;
use std::sync::Mutex;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(20);

fn config() -> Config {
    let mut config = Config::default();
    config.model.functions = 5;
    config
}

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn failed(&self, life: u32, cause: FailureCause) {
        let line = format!("failed {life} {}", cause.name());
        self.0.lock().unwrap().push(line);
    }

    fn recovered(&self, life: u32, _cause: FailureCause) {
        self.0.lock().unwrap().push(format!("in service {life}"));
    }

    fn release_requested(&self) {
        self.0.lock().unwrap().push("asked for".to_owned());
    }

    fn not_recovered(&self, life: u32, _error: &Error) {
        self.0.lock().unwrap().push(format!("not recovered {life}"));
    }
}

#[test]
fn an_observer_that_comes_late_is_told_of_a_recovery_and_a_failure_before_it() {
    let mut config = config();
    config.housekeeping.thread = false;
    let device = crate::open("model:0", &config).unwrap();
    device.recover().unwrap();
    device.driver().give_up().unwrap();
    let seen = Arc::new(Seen::default());
    device.observe_by(seen.clone());
    assert_eq!(
        *seen.0.lock().unwrap(),
        ["in service 2", "failed 2 requested"]
    );
    device.recover().unwrap();
    assert_eq!(seen.0.lock().unwrap()[2..], ["in service 3"]);
}

/// Waits for an event of the housekeeping thread.
fn expect(device: &Device, event: Event) {
    let (end, mut events) = (Instant::now() + LIMIT, Vec::new());
    while !events.contains(&event) {
        assert!(Instant::now() < end, "{event:?} is missing: {events:?}");
        device.poll_events(&mut events).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A call that changes addresses has the stack during control commands: as long as they may take,
/// failures have to be noticed.
#[test]
fn a_link_that_comes_up_while_a_call_has_the_stack_delays_no_event_and_is_announced_afterwards() {
    let mut config = config();
    config.network.serve = false;
    let far = crate::open("model:1", &config).unwrap();
    config.network.addresses = vec!["192.0.2.1/24".parse().unwrap()];
    let near = crate::open("model:2", &config).unwrap();
    let mut port = far.driver().open_port(&PortSettings::default()).unwrap();
    let mut burst = Burst::default();
    let mut announced = || {
        port.receive[0].receive(&mut burst);
        let is_one = |frame: &[u8]| frame[12..14] == [8, 6] && frame[28..32] == [192, 0, 2, 1];
        burst.drain().filter(|frame| is_one(frame.bytes())).count()
    };
    let change = |change: fn(&mut ringside_model::World)| near.model().unwrap().with(change);
    change(|world| world.inject(2, Fault::LinkDown));
    expect(&near, Event::PortDown);
    near.serve_network().unwrap();
    // Both announcements of the start are lost with the link.
    std::thread::sleep(Duration::from_secs(3));

    let call = near.neighbours().unwrap();
    change(|world| world.clear_fault(2, Fault::LinkDown));
    expect(&near, Event::PortUp);
    // Several rounds.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(announced(), 0);
    drop(call);
    let end = Instant::now() + LIMIT;
    while announced() == 0 {
        assert!(Instant::now() < end, "no announcement");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The program calls nothing: it relies on `network.serve`.
#[test]
fn a_stack_that_panics_is_started_again_without_a_call_of_the_program() {
    let with_address = |last| {
        let mut config = config();
        config.network.addresses = vec![format!("10.20.90.{last}/24").parse().unwrap()];
        config
    };
    let near = crate::open("model:3", &with_address(1)).unwrap();
    let far = crate::open("model:4", &with_address(2)).unwrap();
    let neighbours = near.neighbours().unwrap();
    neighbours.running().expect("served").fail();
    drop(neighbours);
    let end = Instant::now() + LIMIT;
    while let Err(error) = far.resolve("10.20.90.1".parse().unwrap()) {
        assert!(Instant::now() < end, "{error}");
    }
}
