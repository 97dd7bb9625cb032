//! Finds the shortest run that still shows a finding: fewer faults, then fewer steps. Method: A.
//! Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.

use crate::rule::{Finding, Rule};
use crate::run::{Outcome, Trace, run};
use crate::scenario::{Faults, Scenario, Step};
use crate::seam::Interference;

/// The result of shrinking a scenario.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The scenario.
    pub scenario: Scenario,
    /// The finding that it shows.
    pub finding: Finding,
    /// Runs that the search took.
    pub runs: usize,
}

/// Shortens a scenario, in at most `runs` runs; `None` if it shows no finding.
pub fn shrink(
    scenario: &Scenario,
    most_runs: usize,
    mut interference: impl FnMut() -> Box<dyn Interference>,
) -> Option<Shrunk> {
    let mut search = Search {
        rule: Rule::NoPanic,
        runs: 0,
        most_runs,
        interference: &mut interference,
    };
    let first = search.outcome(scenario);
    let mut finding = first.finding?;
    search.rule = finding.rule;
    let mut best = scenario.clone();
    // Replaces faults drawn by the seed by the list of those that struck, if that shows the same.
    let listed = Scenario {
        faults: Faults::Events(first.events),
        ..scenario.clone()
    };
    if let Some(found) = search.shows(&listed) {
        (best, finding) = (listed, found);
    }
    // Steps after the finding are not needed.
    if let Some(step) = finding.step {
        let mut shorter = best.clone();
        shorter.steps.retain(|one| one.number <= step);
        if let Some(found) = search.shows(&shorter) {
            (best, finding) = (shorter, found);
        }
    }
    if let Faults::Events(events) = best.faults.clone() {
        let with = |events: &[_], best: &Scenario| Scenario {
            faults: Faults::Events(events.to_vec()),
            ..best.clone()
        };
        search.reduce(events, &mut best, &mut finding, with);
    }
    let with = |steps: &[Step], best: &Scenario| Scenario {
        steps: steps.to_vec(),
        ..best.clone()
    };
    search.reduce(best.steps.clone(), &mut best, &mut finding, with);
    Some(Shrunk {
        scenario: best,
        finding,
        runs: search.runs,
    })
}

struct Search<'a> {
    rule: Rule,
    runs: usize,
    most_runs: usize,
    interference: &'a mut dyn FnMut() -> Box<dyn Interference>,
}

impl Search<'_> {
    fn outcome(&mut self, scenario: &Scenario) -> Outcome {
        self.runs += 1;
        run(scenario, Trace::Off, &mut *(self.interference)())
    }

    /// Returns the finding, if it violates the same rule, and the machine lacked nothing.
    fn shows(&mut self, scenario: &Scenario) -> Option<Finding> {
        if self.runs >= self.most_runs {
            return None;
        }
        let finding = self.outcome(scenario).finding?;
        (finding.rule == self.rule && !finding.is_of_machine()).then_some(finding)
    }

    /// Leaves out pieces of a list, smaller ones each time, as long as the finding stays.
    fn reduce<T: Clone>(
        &mut self,
        mut list: Vec<T>,
        best: &mut Scenario,
        finding: &mut Finding,
        with: impl Fn(&[T], &Scenario) -> Scenario,
    ) {
        let mut size = list.len();
        while size > 0 && self.runs < self.most_runs {
            let mut at = 0;
            while at < list.len() && self.runs < self.most_runs {
                let mut fewer = list.clone();
                fewer.drain(at..(at + size).min(list.len()));
                let candidate = with(&fewer, best);
                match self.shows(&candidate) {
                    Some(found) => (list, *best, *finding) = (fewer, candidate, found),
                    None => at += size,
                }
            }
            size /= 2;
        }
    }
}
