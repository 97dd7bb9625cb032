//! The driver: bring-up in stages, admin queue, control queue pair, verbs, LAN half.
//!
//! [`Device::bring_up`] takes a PCI function from "found on the bus" to "serves verbs"; what it did
//! is undone in reverse by [`Device::shutdown`], and by itself when a stage fails.
#![forbid(unsafe_code)]

pub mod admin;
pub mod bring_up;
pub mod control;
pub mod ddp;
mod device;
mod event_descriptor;
mod failure;
mod health;
pub mod lan;
pub mod rdma;
pub mod recovery;
mod registers;
mod release;
mod returned;
pub mod trace;
pub mod worker;

pub use bring_up::{BringUpError, BringUpOptions, StageError};
pub use device::{Device, ShutdownReport};
pub use registers::{Polled, Registers};
pub use returned::Returned;
pub use ringside_bus::process::Birth;
