//! Serves a model to other processes: each function on a vfio-user socket, external wires, and
//! captures.
//!
//! The crate `ringside-model` does no input or output itself; this crate does it.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod ports;
pub mod vfio_user;
