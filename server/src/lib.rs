//! Serves a model to other processes: each function on a vfio-user socket, wires that lead out of
//! the process, and captures.
//!
//! The crate `ringside-model` does no input or output itself; this crate does it for the model.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod ports;
pub mod vfio_user;
