//! The atomics of this crate that are shared between cores. `tests/interleavings.rs` compiles the
//! same sources with loom's atomics instead, which try every order that the memory model allows.

pub(crate) use ringside_bus::Records;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
