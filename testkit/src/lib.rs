//! Two devices and a connection between them, for tests.
//!
//! The functions are those of one stepped world in this process. `RINGSIDE_TEST_DEVICES` can name
//! two addresses instead, separated by a comma, of cards or of models in other processes. Failures
//! panic, as tests expect.
#![forbid(unsafe_code)]

mod bed;
mod namespaces;
mod pair;

pub use bed::Bed;
pub use namespaces::in_namespaces;
pub use pair::{End, Pair, bring_up, bring_up_function, config};
