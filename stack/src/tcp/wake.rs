//! The way to wake a stack that sleeps on a thread of its own.

use std::sync::Arc;

/// Wakes the thread of a stack, if it has one. Does not wait.
#[derive(Clone)]
pub(crate) struct Waker(Option<Arc<dyn Fn() + Send + Sync>>);

impl Waker {
    /// For a stack that the program polls itself.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn of(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wake)))
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = &self.0 {
            wake();
        }
    }
}
