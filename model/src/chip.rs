//! The state that the parts of a function share, and the parts that they borrow from one another.

mod context;
mod filter;
mod profiles;
mod settings;
mod timer;
mod traffic;

pub use context::{Causes, Context, QueueCause};
pub(crate) use filter::{FilteredAddress, ReceiveFilter, Verdict};
pub(crate) use profiles::{Block, Profiles, Word};
pub use settings::{FunctionSettings, TimerAccess};
pub(crate) use timer::{Prepared, Timer};
pub(crate) use traffic::Traffic;
