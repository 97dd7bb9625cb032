//! A link that goes down and comes up.

use ringside::driver::lan::PortSettings;
use ringside::driver::recovery::FailureCause;
use ringside::lan::Burst;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn config() -> Config {
    let mut config = Config::default();
    config.model.functions = 5;
    // A recovery does not wait for the link.
    config.link.wait_ms = 100;
    config
}

fn link(device: &Device, is_up: bool) {
    device.model().unwrap().with(move |world| match is_up {
        true => world.clear_fault(0, Fault::LinkDown),
        false => world.inject(0, Fault::LinkDown),
    });
}

/// Waits for the events, and returns all that came.
fn expect(device: &Device, wanted: &[Event]) -> Vec<Event> {
    let (end, mut events) = (Instant::now() + LIMIT, Vec::new());
    while !wanted.iter().all(|event| events.contains(event)) {
        assert!(Instant::now() < end, "{wanted:?} are missing: {events:?}");
        device.poll_events(&mut events).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    events
}

/// Announcements that are sent while the link is down are lost. Stations that know another MAC
/// address for the port learn the present one once the link is up.
#[test]
fn a_link_that_comes_up_is_reported_and_the_addresses_are_announced_again() {
    let mut config = config();
    let far = ringside::open("model:1", &config).unwrap();
    config.network.addresses = vec!["192.0.2.1/24".parse().unwrap()];
    config.network.serve = false;
    let near = ringside::open("model:0", &config).unwrap();
    let mut port = far.driver().open_port(&PortSettings::default()).unwrap();
    let (mut burst, mut events) = (Burst::default(), Vec::new());
    let mut announced = || {
        port.receive[0].receive(&mut burst);
        let is_one = |frame: &[u8]| frame[12..14] == [8, 6] && frame[28..32] == [192, 0, 2, 1];
        burst.drain().filter(|frame| is_one(frame.bytes())).count()
    };

    link(&near, false);
    expect(&near, &[Event::PortDown]);
    near.serve_network().unwrap();
    // Two announcements, two seconds apart: they are lost with the link.
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert_eq!(announced(), 0);
        std::thread::sleep(Duration::from_millis(10));
    }
    near.poll_events(&mut events).unwrap();
    assert!(!events.contains(&Event::PortUp), "{events:?}");

    link(&near, true);
    expect(&near, &[Event::PortUp]);
    let end = Instant::now() + LIMIT;
    while announced() == 0 {
        assert!(Instant::now() < end, "no announcement");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_link_that_goes_down_with_its_device_is_reported_after_the_recovery() {
    let device = ringside::open("model:2", &config()).unwrap();
    device.model().unwrap().with(|world| {
        world.inject(2, Fault::Reset(ResetKind::Function));
        world.inject(2, Fault::LinkDown);
    });
    let wanted = [Event::DeviceRecovered { life: 2 }, Event::PortDown];
    let events = expect(&device, &wanted);
    let downs = events.iter().filter(|event| **event == Event::PortDown);
    assert_eq!(downs.count(), 1, "{events:?}");
}

#[test]
fn a_link_that_goes_down_is_reported_after_a_recovery_by_the_program() {
    let mut config = config();
    config.housekeeping.recover = false;
    let device = ringside::open("model:4", &config).unwrap();
    device.serve_network().unwrap();
    let model = device.model().unwrap();
    model.with(|world| world.inject(4, Fault::LinkDown));
    device.recover().unwrap();
    let wanted = [Event::DeviceRecovered { life: 2 }, Event::PortDown];
    let mut events = expect(&device, &wanted);
    let life = |events: &[Event]| {
        let is_of_life = |event: &&Event| {
            matches!(
                event,
                Event::DeviceFailed { .. } | Event::DeviceRecovered { .. }
            )
        };
        events
            .iter()
            .filter(is_of_life)
            .cloned()
            .collect::<Vec<_>>()
    };
    let failed = Event::DeviceFailed {
        cause: FailureCause::Requested,
    };
    assert_eq!(life(&events), [failed, Event::DeviceRecovered { life: 2 }]);
    // No recovery is reported twice.
    std::thread::sleep(Duration::from_millis(300));
    device.poll_events(&mut events).unwrap();
    assert_eq!(life(&events).len(), 2, "{events:?}");
}

/// The housekeeping thread does not look at the link of a failed device, and the program recovers
/// it.
#[test]
fn a_link_that_comes_up_before_a_recovery_by_the_program_is_reported() {
    let mut config = config();
    config.housekeeping.recover = false;
    let device = ringside::open("model:3", &config).unwrap();
    let change = |change: fn(&mut ringside::model::World)| device.model().unwrap().with(change);
    change(|world| world.inject(3, Fault::LinkDown));
    expect(&device, &[Event::PortDown]);
    change(|world| {
        world.inject(3, Fault::Reset(ResetKind::Function));
        world.clear_fault(3, Fault::LinkDown);
    });
    let end = Instant::now() + LIMIT;
    while device.failure().is_none() {
        assert!(Instant::now() < end, "the failure is not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
    device.recover().unwrap();
    expect(&device, &[Event::PortUp]);
}
