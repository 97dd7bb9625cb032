//! What a command ends with.

use std::process::ExitCode;

/// A failure and the exit code that tells its kind.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// The operation failed: 1.
    pub(crate) fn operation(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: 1,
            error: error.into(),
        }
    }

    /// Command line or configuration: 2.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: 2,
            error: error.into(),
        }
    }

    /// The device could not be claimed or brought up: 3.
    pub(crate) fn claim(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: 3,
            error: error.into(),
        }
    }

    /// Wrong data or a broken interface: 4.
    pub(crate) fn wrong(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: 4,
            error: error.into(),
        }
    }

    /// The same failure, with where it happened.
    pub(crate) fn at(self, place: &'static str) -> Self {
        Self {
            code: self.code,
            error: self.error.context(place),
        }
    }

    /// Says it on standard error, causes included.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("ringside: {:#}", self.error);
        ExitCode::from(self.code)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::operation(error)
    }
}
