use super::*;
use ringside_spec::lan::registers::reset::RESET_TRIGGER;

const SHORTEST: Duration = Duration::from_micros(50);

#[test]
fn a_fault_of_the_wire_ends_where_it_was_injected() {
    let mut world = World::new(&WorldSettings::default());
    let lost = Fault::DropFrames {
        per_million: 1_000_000,
        seed: 1,
    };
    world.inject(7, lost);
    assert_eq!(world.switch().faults(), [lost]);
    world.clear_fault(7, lost);
    assert!(world.switch().faults().is_empty());
}

#[test]
fn a_nap_is_a_hundredth_of_the_idle_time_and_a_millisecond_at_most() {
    let world = World::new(&WorldSettings::with_functions(1));
    for (idle_ms, nap_us) in [
        (0, 50),
        (4, 50),
        (5, 50),
        (20, 200),
        (100, 1000),
        (60_000, 1000),
    ] {
        let idle = Duration::from_millis(idle_ms);
        let nap = world.nap(Instant(0), idle, SHORTEST);
        assert_eq!(nap, Duration::from_micros(nap_us), "after {idle_ms} ms");
    }
}

#[test]
fn a_nap_ends_before_a_timer_and_is_not_shorter_than_the_shortest() {
    let mut world = World::new(&WorldSettings::with_functions(1));
    world.step(Instant(1_000_000_000));
    let reset = Request::RegisterWrite {
        bar: 0,
        offset: RESET_TRIGGER,
        width: 4,
        value: 1,
    };
    assert!(matches!(world.handle(0, reset), Reply::Done));
    let timer = world.next_timer().expect("the end of the reset");
    let idle = Duration::from_secs(60);
    for (before_us, nap_us) in [(5000, 1000), (300, 300), (20, 50), (0, 50)] {
        let now = Instant(timer.0 - before_us * 1000);
        let nap = world.nap(now, idle, SHORTEST);
        assert_eq!(nap, Duration::from_micros(nap_us), "{before_us} us before");
    }
}
