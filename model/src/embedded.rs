//! The model inside this process, as [`Function`](ringside_bus::Function)s that a driver can claim.
//!
//! It runs in one of two ways. [`Threaded`]: on a thread of its own, in real time; doorbells are
//! plain stores to a page that the thread polls. [`Stepped`]: on the caller's thread, in virtual
//! time that passes only while a caller waits. There every doorbell is a message unless the test
//! maps the doorbells, so a missing doorbell is a hang that the test detects. Both use
//! [`crate::device::Request`].

mod function;
mod stepped;
mod threaded;

pub use stepped::{Stepped, TimeOver};
pub use threaded::{Threaded, ThreadedError};
