//! The types of this crate's state that crosses threads. `tests/interleavings.rs` compiles the same
//! sources with loom's types, which try every order of steps.

pub(crate) use crate::signal::Signal;
pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
