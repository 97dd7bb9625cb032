//! The admin queue: commands to the firmware of the physical function, and its events.
//!
//! [`AdminQueue`] owns the two rings and the rules of their use; [`commands`] are the typed
//! commands on top, each of which checks its answer.

mod change_lock;
pub mod commands;
mod error;
mod queue;
mod ring;
mod switch_rules;

pub use error::AdminError;
pub(crate) use queue::pause;
pub use queue::{AdminEvent, AdminQueue, Answer, Data};
pub use ring::RING_ENTRIES;
pub use switch_rules::{Loopback, RulePackets};
