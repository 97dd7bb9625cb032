//! What crosses cores in this crate. `tests/interleavings.rs` reads the same sources with others in
//! their stead, which try every order that the memory model allows.

pub(crate) use ringside_bus::HotTable;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
