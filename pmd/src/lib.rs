//! The driver of the Intel E810, in user space: bring-up, RDMA verbs, packet queues, recovery.
//!
//! [`Device::bring_up`] claims a PCI function ([`Function`](ringside_bus::Function)), resets it and
//! brings it into service in [stages](bring_up). A stage that fails undoes all effects so far;
//! [`Device::shutdown`] undoes them at the end. The device in service gives:
//! - [verbs](rdma): protection domains, memory regions, queue pairs, completion queues, events;
//! - a [port](lan): packet queues, link, addresses, VLANs, flow rules;
//! - the firmware's reports, and the detection of a failure, after which the same process
//!   [recovers](recovery) the device.
//!
//! Posting and polling belong to one core for each queue, and take no lock. All other calls are
//! control path: they wait for the device, at most for a deadline of the configuration. A
//! [`worker`] is a thread that owns queues and polls them.
//!
//! Programs depend on the package `ringside-nic`, which opens devices by their address and
//! re-exports this crate as `ringside::driver`.
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
