//! The atomics of this crate that are shared between cores. `tests/interleavings.rs` compiles the
//! same sources with loom's instead, which try every order.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
