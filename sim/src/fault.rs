//! What goes wrong in a run: kinds with their rates, from which a seed draws events; and the events
//! themselves, each by itself, so that a run can be repeated with fewer of them.

mod event;
mod later;
mod mix;

pub use event::{EventError, FaultEvent, FrameFault};
pub(crate) use mix::Drawn;
pub use mix::{FaultKind, FaultMix, MixError};
