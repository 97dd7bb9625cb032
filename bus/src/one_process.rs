//! A function that answers only the process that claimed it.

use crate::around::Around;
use crate::function::{Function, FunctionError};
use crate::process::Birth;
use std::sync::Arc;

/// Wraps a function. In a child of a fork every call that would reach the device is refused with
/// [`FunctionError::OtherProcess`], without a system call or an access.
pub struct OneProcess {
    inner: Arc<dyn Function>,
    birth: Birth,
}

impl OneProcess {
    /// Wraps `inner`, for this process.
    #[must_use]
    pub fn new(inner: Arc<dyn Function>) -> Arc<Self> {
        let birth = Birth::now();
        Arc::new(Self { inner, birth })
    }
}

impl Around for OneProcess {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn reach(&self) -> Result<&Arc<dyn Function>, FunctionError> {
        self.birth.check(self.inner.address())?;
        Ok(&self.inner)
    }
}

#[cfg(test)]
mod tests;
