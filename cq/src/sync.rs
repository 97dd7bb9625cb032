//! The state of this crate that crosses cores. `tests/interleavings.rs` reads the same sources with
//! their stead, which try every order.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
