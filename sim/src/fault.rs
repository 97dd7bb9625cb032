//! The faults of a run: the kinds with their rates, from which a seed draws events; and the single
//! events, so that a run can be repeated with fewer of them.

mod commands;
mod event;
mod kind;
mod later;
mod mix;

pub use event::{EventError, FaultEvent, FrameFault};
pub use kind::FaultKind;
pub(crate) use mix::Drawn;
pub use mix::{FaultMix, MixError};
