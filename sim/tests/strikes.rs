//! Each kind of fault strikes: alone, with its effect checked; and in the mix that seeds draw.

use ringside_sim::{Counts, FaultKind, FaultMix, Scenario, Trace, Untouched, run};

/// Runs of some seeds with one kind of fault; all rules hold.
fn alone(faults: &str, seeds: u64) -> Counts {
    let mix: FaultMix = faults.parse().unwrap();
    let mut all = Counts::default();
    for seed in 1..=seeds {
        let outcome = run(
            &Scenario::new(seed, 60, mix.clone()),
            Trace::Off,
            &mut Untouched,
        );
        assert_eq!(outcome.finding, None, "{faults}, seed {seed}");
        assert!(outcome.events.iter().all(is_expected(faults)), "{faults}");
        all.add(&outcome.counts);
    }
    all
}

fn is_expected(faults: &str) -> impl Fn(&ringside_sim::FaultEvent) -> bool + '_ {
    move |event| FaultKind::of(event).is_some_and(|kind| faults.starts_with(kind.name()))
}

#[test]
fn a_host_that_refuses_accesses_is_noticed_and_everything_comes_back() {
    let counts = alone("dma-refused=2", 12);
    assert!(counts.accesses_refused > 50, "{counts:?}");
}

/// In these runs a refusal that is used up, of some accesses, comes before one of all.
#[test]
fn a_refusal_that_lasts_is_noticed_after_one_that_is_used_up() {
    let mix: FaultMix = "dma-refused=3".parse().unwrap();
    for seed in [6, 249, 255] {
        let scenario = Scenario::new(seed, 100, mix.clone());
        let outcome = run(&scenario, Trace::Off, &mut Untouched);
        assert_eq!(outcome.finding, None, "seed {seed}");
    }
}

#[test]
fn interrupts_are_lost_and_nothing_else() {
    let counts = alone("interrupts-lost=4", 12);
    assert!(counts.interrupts_lost > 3, "{counts:?}");
}

#[test]
fn commands_of_the_admin_queue_fail_stay_away_come_late_and_make_no_sense() {
    for kind in [
        "admin-fails",
        "admin-silent",
        "admin-delayed",
        "admin-garbled",
    ] {
        let counts = alone(&format!("{kind}=2"), 12);
        assert!(counts.admin_troubles > 3, "{kind}: {counts:?}");
    }
}
