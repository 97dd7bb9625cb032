//! A value inside an error.

use std::sync::{Mutex, PoisonError};

/// A value that an error returns to the caller. It can only be taken out, so the error is `Sync`
/// even if the value is not: many error libraries require that.
pub struct Returned<T>(Box<Mutex<T>>);

impl<T> Returned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(Mutex::new(value)))
    }

    /// Takes the value out.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Returned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Returned")
    }
}
