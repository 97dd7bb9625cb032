//! The LAN half of the E810: PCI identity, registers, admin queue, package, data path.
//!
//! Registers are offsets in BAR 0 ([`registers`]) with their fields as words. The data structures
//! of the firmware ([`admin`]) and of the data path ([`transmit`], [`receive`]) are bytes,
//! little-endian, without padding, readable from and writable to any slice with zerocopy. Both
//! driver and model use all of it in both directions.
//!
//! Source of the facts: Linux 6.12 `ice` headers (`ice_hw_autogen.h`, `ice_adminq_cmd.h`,
//! `ice_lan_tx_rx.h`, `ice_ddp.h`); the C name is given with each item.

pub mod admin;
pub mod identity;
pub mod limits;
pub mod module;
pub mod package;
pub mod receive;
pub mod registers;
pub mod transmit;
pub(crate) mod wire;

pub use wire::{FieldLayout, Layout, Parameters, RegisterArray, RegisterGrid};
