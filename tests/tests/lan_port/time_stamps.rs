//! Time stamps of received packets, and the device's clock.

use crate::rig::{End, Rig, plain_frame, settings};
use ringside_model::{Stepped, TimerAccess, WorldSettings};
use ringside_pmd::lan::{PortError, PortSettings};
use ringside_pmd::recovery::Supervision;
use std::time::Duration;

/// More than a timer of the model falls behind, and more than a frame is on its way.
const SLACK: u64 = 20_000;

fn stamped() -> PortSettings {
    PortSettings {
        time_stamps: true,
        ..settings()
    }
}

/// Sends a frame of `bytes` from `a`, and returns its time stamp at `b`.
fn stamp_of(rig: &mut Rig, bytes: usize) -> Option<u64> {
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), bytes, 1);
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    let found = rig.wait_b(1);
    assert_eq!(found[0].1.to_vec(), frame);
    found[0].1.timestamp()
}

fn device_time(end: &End) -> u64 {
    end.open.port.device_time().expect("a port with a clock")
}

#[test]
fn a_packet_is_stamped_with_the_time_of_the_device_at_its_arrival() {
    let mut rig = Rig::with(&settings(), &stamped());
    for bytes in [60, 1514, 9000] {
        let before = device_time(&rig.b);
        let stamp = stamp_of(&mut rig, bytes).expect("a time stamp");
        let after = device_time(&rig.b);
        assert!(
            before <= stamp && stamp <= after,
            "{before} {stamp} {after}"
        );
        assert!(after - before < 1_000_000, "{before} {after}");
        rig.world.clock().pause(Duration::from_millis(1));
    }
    rig.finish();
}

#[test]
fn the_clock_of_the_device_runs_at_the_pace_of_the_host() {
    let rig = Rig::with(&settings(), &stamped());
    let (host, device) = (rig.world.clock().now(), device_time(&rig.b));
    assert!(
        device < 1_000_000,
        "it counts from the port's opening: {device}"
    );
    for _ in 0..50 {
        rig.world.clock().pause(Duration::from_millis(10));
    }
    let host = rig.world.clock().now().since(host).as_nanos() as u64;
    let device = device_time(&rig.b) - device;
    assert!(host.abs_diff(device) < SLACK, "{host} {device}");
    rig.finish();
}

/// The low half of the time begins again each 4.3 s: stamps are whole on both sides of that, as
/// long as the device is observed.
#[test]
fn stamps_stay_whole_beyond_32_bits_while_the_device_is_observed() {
    let mut rig = Rig::with(&settings(), &stamped());
    let mut supervision = Supervision::default();
    let mut events = Vec::new();
    let mut last = 0;
    for _ in 0..12 {
        for _ in 0..100 {
            rig.world.clock().pause(Duration::from_millis(10));
        }
        let cause = rig.b.device.observe(&mut supervision, &mut events);
        assert_eq!(cause.expect("in service"), None);
        let stamp = stamp_of(&mut rig, 100).expect("a time stamp");
        assert!(stamp > last, "{last} {stamp}");
        last = stamp;
    }
    let now = device_time(&rig.b);
    assert!(last > 2 << 32, "{last}: the low half began again twice");
    assert!(now - last < 1_000_000, "{last} {now}");
    rig.finish();
}

#[test]
fn packets_of_a_port_without_time_stamps_have_none() {
    let mut rig = Rig::with(&stamped(), &settings());
    assert_eq!(stamp_of(&mut rig, 100), None);
    let error = rig.b.open.port.device_time().expect_err("no clock");
    let text = error.to_string();
    assert!(text.contains("open the port with time_stamps"), "{text}");
    rig.finish();
}

/// Two worlds of one function with that access to the timer.
fn world_with(timer: TimerAccess) -> Stepped {
    let mut settings = WorldSettings::with_functions(1);
    settings.functions[0].timer = timer;
    Stepped::new(&settings)
}

fn refusal(timer: TimerAccess) -> String {
    let world = world_with(timer);
    let device = ringside_testkit::bring_up(&world, 0, &crate::rig::config());
    let error = device.open_port(&stamped()).expect_err("no timer");
    assert!(matches!(error, PortError::Invalid { .. }), "{error:?}");
    // The port was not left open, and works without time stamps.
    drop(device.open_port(&settings()).expect("without time stamps"));
    ringside_testkit::shut_down([device]);
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
    error.to_string()
}

#[test]
fn a_device_that_reports_no_timer_refuses_time_stamps_by_name() {
    let text = refusal(TimerAccess::Absent);
    assert!(
        text.contains("reports no timer (capability 0x46)"),
        "{text}"
    );
}

#[test]
fn a_timer_of_another_function_is_used_and_never_written() {
    let text = refusal(TimerAccess::Stopped);
    assert!(text.contains("timer 0, which does not run"), "{text}");
    let world = world_with(TimerAccess::Running);
    let end = End::new(&world, 0, &stamped());
    let host = world.clock().now().0;
    let device = device_time(&end);
    assert!(
        host.abs_diff(device) < SLACK,
        "since power on: {host} {device}"
    );
    end.close();
    let breaches = world.with(|world| world.breaches(0));
    assert!(breaches.is_empty(), "{breaches:#?}");
}

/// The timer goes on when a port is closed: the next one does not set it back.
#[test]
fn a_port_that_is_opened_again_finds_the_timer_running() {
    let mut rig = Rig::with(&settings(), &stamped());
    rig.world.clock().pause(Duration::from_millis(5));
    let before = device_time(&rig.b);
    let Rig { world, a, b } = rig;
    let End { open, device } = b;
    drop(open);
    let open = device.open_port(&stamped()).expect("again");
    rig = Rig {
        world,
        a,
        b: End { open, device },
    };
    rig.world.clock().pause(Duration::from_micros(10));
    let after = device_time(&rig.b);
    assert!(after > before, "{before} {after}");
    let stamp = stamp_of(&mut rig, 200).expect("a time stamp");
    assert!(stamp > before, "{before} {stamp}");
    rig.finish();
}
