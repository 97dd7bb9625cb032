//! The model inside this process, as [`Function`](ringside_bus::Function)s that a driver can claim.
//!
//! Two ways to run it. [`Threaded`]: on a thread of its own, in real time; doorbells are plain
//! stores to a page that the thread polls. [`Stepped`]: by the caller's own thread, in virtual time
//! that passes only while a caller waits; every doorbell is a message unless the test asks for mapped
//! ones, so a doorbell that a driver forgets is a hang that the test sees. Both speak [`crate::device::Request`].

mod function;
mod stepped;
mod threaded;

pub use stepped::Stepped;
pub use threaded::{Threaded, ThreadedError};
