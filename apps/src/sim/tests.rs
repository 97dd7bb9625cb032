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

/// The scenario that a replay command runs.
fn scenario_of(command: &str) -> Scenario {
    let words = command.replace('\'', "");
    let words = words.split(' ').skip(1);
    let sim = Line::try_parse_from(words).expect("a command line").sim;
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
            let command = replay(&scenario, 30);
            assert_eq!(scenario_of(&command), scenario, "{command}");
        }
    }
}
