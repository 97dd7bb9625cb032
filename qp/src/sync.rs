//! The state of this crate that crosses cores. `tests/interleavings.rs` reads the same sources with
//! their stead, which try every order that the memory model allows.

pub(crate) use ringside_bus::Records;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
