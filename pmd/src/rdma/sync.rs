//! The primitives under [`super::event_request`]. `tests/event_requests.rs` reads it with loom's.

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicU8, Ordering};
