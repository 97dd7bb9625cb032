//! The control queue pair and its completion queue: commands to the RDMA engine.

mod error;
mod queue;
mod rings;
mod waiting;

pub use error::ControlError;
pub use queue::{Completed, ControlQueue, ControlQueueSettings};
