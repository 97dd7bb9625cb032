//! Serves the software model of the E810 to other processes. The crate `ringside-model` does no
//! input or output itself; this crate does it.
//!
//! - [`vfio_user`]: each function on a socket, for our driver in another process and for QEMU;
//! - [`ports`]: wires to outside (datagram sockets, TAP interfaces, UDP) and captures;
//! - [`control`]: a socket that takes commands, such as a fault that begins;
//! - [`report`]: counters and breaches as JSON and as text.
//!
//! `docs/model-server.md` describes the server that `ringside model serve` makes of them.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod control;
mod place;
pub mod ports;
pub mod report;
pub mod vfio_user;

pub use place::{FaultAt, Place};
