use super::report::{replay, steps_text};
use super::*;
use clap::Parser;
use ringside_sim::FaultMix;

#[test]
fn steps_are_written_as_they_are_read() {
    let scenario = Scenario::new(1, 30, FaultMix::BySeed).keeping(&[0, 3, 4, 5, 9]);
    let text = steps_text(&scenario.steps);
    assert_eq!(text, "0,3-5,9");
    assert_eq!(numbers(&text), Ok(vec![0, 3, 4, 5, 9]));
    assert!(numbers("5-3").unwrap_err().contains("'5-3'"));
    assert_eq!(numbers(""), Ok(vec![]));
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    sim: Sim,
}

fn sim_of(command: &str) -> Sim {
    let words = command.replace('\'', "");
    let words = words.split(' ').skip(1);
    Line::try_parse_from(words).expect("a command line").sim
}

/// The scenario that a replay command runs.
fn scenario_of(command: &str) -> Scenario {
    let sim = sim_of(command);
    let wanted = Wanted::of(&sim).unwrap_or_else(|_| panic!("{command}"));
    wanted.scenario(sim.seed, &sim)
}

#[test]
fn the_replay_command_runs_the_same_scenario() {
    let events: Vec<FaultEvent> = Vec::new();
    let all_faults = [
        Faults::Mix(FaultMix::BySeed),
        Faults::Mix("none".parse().expect("a mix")),
        Faults::Mix("all".parse().expect("a mix")),
        Faults::Mix("drop=20000,corrupt".parse().expect("a mix")),
        Faults::Events(events),
    ];
    for faults in all_faults {
        for keep in [None, Some(vec![0, 3, 4, 29])] {
            let mut scenario = Scenario::new(7, 30, FaultMix::BySeed);
            scenario.faults = faults.clone();
            if let Some(keep) = keep {
                scenario = scenario.keeping(&keep);
            }
            for shows_frames in [None, Some(false), Some(true)] {
                let options = Replay {
                    steps: 30,
                    shows_frames,
                };
                let command = replay(&scenario, options);
                assert_eq!(scenario_of(&command), scenario, "{command}");
            }
        }
    }
}

/// Of a run on which nothing looks at frames; with them it takes another course.
#[test]
fn the_replay_command_has_the_trace_with_which_the_finding_shows() {
    for (shows_frames, trace) in [
        (Some(true), Trace::Frames),
        (Some(false), Trace::Steps),
        (None, Trace::Steps),
    ] {
        let options = Replay {
            steps: 30,
            shows_frames,
        };
        let command = replay(&Scenario::new(7, 30, FaultMix::BySeed), options);
        assert_eq!(TraceOf::of(sim_of(&command).trace), trace, "{command}");
    }
}

#[test]
fn events_that_a_run_cannot_have_are_refused() {
    let given = |only: &str| {
        let sim = sim_of(&format!("ringside sim --steps 60 --only '{only}'"));
        Wanted::of(&sim).map(drop)
    };
    for possible in ["link-down/1@step59+3", "clock-jump:7@step0", "drop@99999"] {
        assert!(given(possible).is_ok(), "{possible}");
    }
    for (only, said) in [
        ("link-down/7@step5+3", "there is no function 7"),
        ("drop@1,link-down/0@step60+3", "there is no step 60"),
        ("clock-jump:7@step70", "the steps 0 to 59"),
    ] {
        let refused = given(only).expect_err(only).text();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn the_time_of_a_run_is_its_own_beside_other_jobs_and_before_findings_are_made_short() {
    let sim = sim_of("ringside sim --runs 2 --jobs 2");
    let mut summary = Summary::new(&sim);
    for seed in [1, 2] {
        let scenario = Scenario::new(seed, 1, FaultMix::BySeed);
        let outcome = run(&scenario, Trace::Off, &mut Untouched);
        summary.take(seed, outcome, Duration::from_millis(40));
    }
    summary.simulated = Duration::from_millis(50);
    let view = SummaryView::new(&summary, Vec::new(), (None, Duration::from_secs(10)));
    let shown = view.to_string();
    let times = "in 10.0 s, 40.0 ms a run, 40.0 seeds a second";
    assert!(shown.contains(times), "{shown}");
    let wanted = Wanted::of(&sim).expect("a scenario");
    let began = Instant::now();
    let summary = simulate(&sim, &wanted, began);
    let simulated = summary.simulated;
    assert!(!simulated.is_zero() && simulated <= began.elapsed());
}
