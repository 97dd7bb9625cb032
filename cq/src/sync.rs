//! What crosses cores in this crate. `tests/interleavings.rs` reads the same sources with others in
//! their stead, which try every order.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
