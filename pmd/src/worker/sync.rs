//! What [`super::flags`] stands on. `tests/interleavings.rs` reads it with loom's atomics instead.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
