//! The E810 in software: functions that a switch joins. Each has configuration space, registers,
//! interrupts, firmware, packet queues and an RDMA engine, and works on the host's memory as the
//! card does.
//!
//! A driver in this process claims a function of one of two transports:
//! - [`Stepped`]: virtual time, on the caller's thread. The same calls give the same results.
//!   For tests and the simulation.
//! - [`Threaded`]: real time, on a thread of its own. For benchmarks and programs without a card.
//!
//! The crate `ringside-server` serves functions to other processes and to virtual machines.
//!
//! - [`World`] has the functions and the [switch](wire). It has no thread, clock or socket: a
//!   transport passes [requests](device) and the time.
//! - [`Fault`]: a fault that the device or the wire has from then on, as a value.
//! - [`strict`]: the ledger of breaches, in which the model counts everything that a driver does
//!   and the interface forbids.
//! - [`record`]: a recording of a driver's commands.
//! - [`left_over`]: the state that a driver has left behind.
#![forbid(unsafe_code)]

pub mod device;
pub mod embedded;
pub mod faults;
pub mod function;
pub mod left_over;
pub mod rdma;
pub mod record;
pub mod strict;
pub mod wire;
pub mod world;

mod chip;
mod choice;
mod firmware;
mod frame;
mod lan;
mod reset_kind;

pub use embedded::{Stepped, Threaded, TimeOver};
pub use faults::Fault;
pub use firmware::{FirmwareSnapshot, Rule};
pub use function::{FunctionModel, FunctionSettings, FunctionSnapshot, TimerAccess};
#[doc(hidden)]
pub use lan::alone::{ALONE_NUMBER, AloneHeaders, AloneSettings, LanAlone};
pub use ringside_roce::{self as roce, packet};
pub use world::{World, WorldSettings};
