//! The port answers ARP without a call of the program: from the opening, and after a recovery.

use ringside::NetworkError;
use ringside::driver::lan::{PortError, PortSettings};
use ringside::driver::recovery::{Supervised, Supervision};
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The configuration of a device with this address in 10.20.0.0/16.
fn config(third: u8, last: u8) -> Config {
    let mut config = Config::default();
    config.model.functions = 16;
    config.network.addresses = vec![format!("10.20.{third}.{last}/24").parse().unwrap()];
    // A stack starts only where a test says so.
    config.network.serve = false;
    config
}

fn open(index: u16, config: &Config) -> Device {
    ringside::open(&format!("model:{index}"), config).unwrap()
}

fn ip(third: u8, last: u8) -> IpAddr {
    IpAddr::from([10, 20, third, last])
}

/// Resets a function behind the driver's back, and waits for the event of its recovery.
fn recovered_from_a_reset(device: &Device, index: usize) {
    let model = device.model().unwrap();
    model.with(move |world| world.inject(index, Fault::Reset(ResetKind::Function)));
    let (end, mut events) = (Instant::now() + LIMIT, Vec::new());
    while !events.contains(&Event::DeviceRecovered { life: 2 }) {
        assert!(Instant::now() < end, "no recovery: {events:?}");
        device.poll_events(&mut events).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The peer asks for the first time after the event, so it knows nothing from before the failure.
#[test]
fn a_port_that_was_served_answers_once_a_recovery_is_reported() {
    let near = open(0, &config(0, 1));
    let far = open(1, &config(0, 2));
    near.serve_network().unwrap();
    recovered_from_a_reset(&near, 0);
    let found = far.resolve(ip(0, 1)).expect("an answer without a call");
    assert_eq!(found.mac, near.driver().facts().mac().unwrap());
}

#[test]
fn a_recovery_by_the_program_serves_the_network_again() {
    let mut settings = config(1, 1);
    settings.housekeeping.thread = false;
    let near = open(2, &settings);
    let far = open(3, &config(1, 2));
    near.serve_network().unwrap();
    let (mut supervision, mut events) = (
        Supervision::new(Duration::from_secs(1), Duration::from_secs(1)),
        Vec::new(),
    );
    let model = near.model().unwrap();
    model.with(|world| world.inject(2, Fault::Reset(ResetKind::Function)));
    let end = Instant::now() + LIMIT;
    while !matches!(
        near.supervise(&mut supervision, &mut events).unwrap(),
        Supervised::Recovered(_)
    ) {
        assert!(Instant::now() < end, "no recovery: {events:?}");
    }
    far.resolve(ip(1, 1)).expect("an answer after supervise");

    let third = open(4, &config(1, 3));
    near.recover().unwrap();
    third.resolve(ip(1, 1)).expect("an answer after recover");
}

#[test]
fn a_device_with_addresses_answers_from_its_opening_on_unless_the_configuration_forbids_it() {
    let mut served = config(2, 1);
    served.network.serve = true;
    let _near = open(5, &served);
    let far = open(6, &config(2, 2));
    far.resolve(ip(2, 1)).expect("an answer without a call");

    let mut without_thread = served.clone();
    without_thread.network.addresses = vec!["10.20.2.4/24".parse().unwrap()];
    without_thread.housekeeping.thread = false;
    let silent = [open(7, &config(2, 3)), open(8, &without_thread)];
    let asked = |last| far.resolve(ip(2, last)).expect_err("no answer");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| asked(4));
        asked(3);
        other.join().unwrap();
    });
    drop(silent);
}

#[test]
fn a_program_that_opens_the_port_itself_ends_the_stack_of_the_configuration_only() {
    let mut served = config(3, 1);
    served.network.serve = true;
    let near = open(9, &served);
    let refused = near.driver().open_port(&PortSettings {
        mtu: 1,
        ..PortSettings::default()
    });
    refused.map(|_| ()).expect_err("an MTU of 1");
    let far = open(10, &config(3, 2));
    far.resolve(ip(3, 1)).expect("the stack still runs");

    let port = near.driver().open_port(&PortSettings::default()).unwrap();
    drop(port);
    recovered_from_a_reset(&near, 9);
    // No stack was started again. The driver's own call says so: it ends none.
    let driver = near.driver();
    let device: &ringside::driver::Device = &driver;
    let port = device.open_port(&PortSettings::default()).unwrap();
    drop((port, driver));
    near.serve_network().unwrap();
    let refused = near.driver().open_port(&PortSettings::default());
    let refused = refused
        .map(|_| ())
        .expect_err("the program wants the stack");
    assert!(matches!(refused, PortError::AlreadyOpen), "{refused}");
}

/// A failed device stays in its period of service until it is recovered, but its stack has ended.
#[test]
fn a_stack_that_ended_with_a_failure_is_not_taken_for_a_running_one() {
    let mut settings = config(4, 1);
    settings.housekeeping.thread = false;
    let near = open(11, &settings);
    near.serve_network().unwrap();
    near.driver().give_up().unwrap();
    let refused = near.serve_network().expect_err("no stack runs");
    assert!(matches!(refused, NetworkError::Serve(_)), "{refused}");
    near.recover().unwrap();
    let far = open(12, &config(4, 2));
    far.resolve(ip(4, 1)).expect("an answer after recover");
}

#[test]
fn threads_that_make_short_calls_do_not_keep_a_device_from_its_recovery() {
    let mut settings = config(7, 1);
    settings.housekeeping.thread = false;
    let device = open(15, &settings);
    let stop = AtomicBool::new(false);
    let (ended, began) = (&stop, Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    drop(device.query_port());
                }
            });
        }
        let lives: Vec<_> = (0..4)
            .map(|_| device.recover().map(|report| report.life))
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(lives.iter().all(Result::is_ok), "{lives:?}");
        assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    });
}

#[test]
fn a_recovery_that_the_program_asks_for_is_an_event_after_the_failure() {
    let device = open(14, &config(9, 1));
    let mut events = Vec::new();
    for life in 2..4 {
        assert_eq!(device.recover().unwrap().life, life);
        let recovered = Event::DeviceRecovered { life };
        let end = Instant::now() + LIMIT;
        while !events.contains(&recovered) {
            assert!(Instant::now() < end, "no event: {events:?}");
            device.poll_events(&mut events).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let is_of_life = |event: &Event| {
        let is_failure = matches!(event, Event::DeviceFailed { .. });
        is_failure || matches!(event, Event::DeviceRecovered { .. })
    };
    events.retain(is_of_life);
    let kinds: Vec<_> = events
        .iter()
        .map(|event| matches!(event, Event::DeviceRecovered { .. }))
        .collect();
    assert_eq!(kinds, [false, true, false, true], "{events:?}");
}
