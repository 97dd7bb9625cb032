//! The primitives under [`super::flags`]. `tests/interleavings.rs` reads it with loom's atomics.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
