//! The actions of a run: steps that follow from a seed, and faults.

use crate::fault::{FaultEvent, FaultMix};
use crate::random::Random;

/// One kind of step. Its details follow from the step's own number and from the objects that exist
/// at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// RDMA writes: plain, inline, with immediate data, of several fragments.
    Write,
    /// RDMA reads.
    Read,
    /// Sends: plain, inline, with immediate data.
    Send,
    /// A chain of requests of all kinds, with one doorbell.
    Chain,
    /// Receives are posted.
    Receive,
    /// A request that does nothing.
    NoOperation,
    /// Datagrams: to the other side.
    Datagram,
    /// Datagrams: to a multicast group.
    GroupDatagram,
    /// Joins or leaves a multicast group.
    Group,
    /// A memory window is bound, used, closed, and perhaps used once more.
    Window,
    /// A fast region is registered, used, invalidated.
    FastRegister,
    /// A region's key is invalidated by its owner, or by the peer's send.
    Invalidate,
    /// A region is reregistered.
    Reregister,
    /// A connection is made.
    Connect,
    /// A connection is destroyed, with its outstanding requests.
    Destroy,
    /// A queue pair is failed on purpose.
    Fail,
    /// A queue pair is drained.
    Drain,
    /// A drained queue pair resumes sending.
    Resume,
    /// A completion queue is resized.
    Resize,
    /// A completion queue is armed.
    Arm,
    /// Objects are queried.
    Query,
    /// Objects are made and dropped.
    Objects,
    /// A request that the peer's device must refuse.
    WrongRemote,
    /// A request that the local device must refuse.
    WrongLocal,
    /// A message longer than its receive.
    TooLong,
    /// Calls that must be refused at once.
    WrongCall,
    /// Time passes, everything is polled.
    Pass,
    /// One queue is polled, a little.
    Poll,
    /// All memory is compared.
    Compare,
}

/// Each kind with its weight in a thousand.
const WEIGHTS: &[(StepKind, usize)] = &[
    (StepKind::Write, 150),
    (StepKind::Read, 90),
    (StepKind::Send, 140),
    (StepKind::Chain, 50),
    (StepKind::Receive, 120),
    (StepKind::NoOperation, 15),
    (StepKind::Datagram, 40),
    (StepKind::GroupDatagram, 12),
    (StepKind::Group, 10),
    (StepKind::Window, 12),
    (StepKind::FastRegister, 8),
    (StepKind::Invalidate, 8),
    (StepKind::Reregister, 10),
    (StepKind::Connect, 20),
    (StepKind::Destroy, 7),
    (StepKind::Fail, 4),
    (StepKind::Drain, 5),
    (StepKind::Resume, 8),
    (StepKind::Resize, 8),
    (StepKind::Arm, 12),
    (StepKind::Query, 12),
    (StepKind::Objects, 12),
    (StepKind::WrongRemote, 6),
    (StepKind::WrongLocal, 4),
    (StepKind::TooLong, 3),
    (StepKind::WrongCall, 12),
    (StepKind::Pass, 120),
    (StepKind::Poll, 90),
    (StepKind::Compare, 12),
];

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number in the run of the seed; it stays when other steps are left out.
    pub number: u32,
    /// Its action.
    pub kind: StepKind,
}

/// Faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Drawn by the seed.
    Mix(FaultMix),
    /// Exactly these.
    Events(Vec<FaultEvent>),
}

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Steps, in their order.
    pub steps: Vec<Step>,
    /// Faults.
    pub faults: Faults,
    /// Carry every frame as bytes, which the model parses again: see
    /// [`WorldSettings::frames_as_bytes`](ringside_model::WorldSettings::frames_as_bytes).
    pub frames_as_bytes: bool,
}

impl Scenario {
    /// Makes the scenario of a seed with `steps` steps.
    #[must_use]
    pub fn new(seed: u64, steps: u32, mix: FaultMix) -> Self {
        let mut random = Random::split(seed, 0x57E9);
        let total: usize = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut draw = || {
            let mut rest = random.below(total);
            let found = WEIGHTS.iter().find(|(_, weight)| {
                let here = rest < *weight;
                rest = rest.saturating_sub(*weight);
                here
            });
            found.map_or(StepKind::Pass, |(kind, _)| *kind)
        };
        let steps = (0..steps).map(|number| Step {
            number,
            kind: draw(),
        });
        Self {
            seed,
            steps: steps.collect(),
            faults: Faults::Mix(mix),
            frames_as_bytes: false,
        }
    }

    /// Returns the same scenario with only the steps of these numbers.
    #[must_use]
    pub fn keeping(mut self, numbers: &[u32]) -> Self {
        self.steps.retain(|step| numbers.contains(&step.number));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_step_comes_and_the_seed_decides() {
        let kinds = |seed| -> Vec<StepKind> {
            let scenario = Scenario::new(seed, 5_000, FaultMix::BySeed);
            scenario.steps.iter().map(|step| step.kind).collect()
        };
        let all: BTreeSet<StepKind> = kinds(1).into_iter().collect();
        assert_eq!(all.len(), WEIGHTS.len());
        assert_eq!(kinds(1), kinds(1));
        assert_ne!(kinds(1), kinds(2));
    }
}
