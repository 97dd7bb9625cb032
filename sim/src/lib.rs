//! A simulation of driver, model and wire in one thread and in virtual time, from one seed: a
//! random workload of all verbs under faults, and an oracle that checks the results.
//!
//! ```
//! use ringside_sim::{FaultMix, Scenario, Trace, Untouched, run};
//! let scenario = Scenario::new(7, 100, FaultMix::BySeed);
//! let outcome = run(&scenario, Trace::Off, &mut Untouched);
//! assert_eq!(outcome.finding, None);
//! ```
#![forbid(unsafe_code)]

pub mod fault;
pub mod oracle;
pub mod scenario;
pub mod seam;

mod memory;
mod random;
mod rig;
mod rule;
mod run;
mod shrink;
mod wire;

pub use fault::{FaultEvent, FaultKind, FaultMix};
pub use oracle::Seen;
pub use rule::{Finding, Rule};
pub use run::{Counts, Outcome, Trace, run};
pub use scenario::{Faults, Scenario, Step, StepKind};
pub use seam::{Interference, Untouched};
pub use shrink::{Shrunk, shrink};
