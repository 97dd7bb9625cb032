//! Serves a model to other processes: each function on a vfio-user socket, external wires,
//! captures, and a control socket for commands and reports.
//!
//! The crate `ringside-model` does no input or output itself; this crate does it.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod control;
mod place;
pub mod ports;
pub mod report;
pub mod vfio_user;

pub use place::{FaultAt, Place};
