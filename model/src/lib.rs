//! The E810 in software: a world of functions joined by a switch, to be claimed by a driver inside
//! this process ([`Stepped`], [`Threaded`]) or served to another by the crate `ringside-server`.
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

pub use embedded::{Stepped, Threaded};
pub use faults::Fault;
pub use firmware::{FirmwareSnapshot, Rule};
pub use function::{FunctionModel, FunctionSettings, FunctionSnapshot, TimerAccess};
#[doc(hidden)]
pub use lan::alone::{ALONE_NUMBER, AloneHeaders, AloneSettings, LanAlone};
pub use ringside_roce::{self as roce, packet};
pub use world::{World, WorldSettings};
