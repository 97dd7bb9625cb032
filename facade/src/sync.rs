//! The state of this crate that crosses threads. `tests/interleavings.rs` reads the same sources with
//! their stead, which try every order.

pub(crate) use crate::signal::Signal;
pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
