//! A queue pair inside an error.

use std::sync::{Mutex, PoisonError};

/// A value that an error gives back. It can only be taken out, so the error is `Sync` although a
/// queue pair is not.
#[derive(Debug)]
pub(super) struct Returned<T>(Box<Mutex<T>>);

impl<T> Returned<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Box::new(Mutex::new(value)))
    }

    pub(super) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
