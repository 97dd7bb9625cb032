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

    /// The same failure, with what else is known.
    pub(crate) fn and(self, further: &str) -> Self {
        Self {
            code: self.code,
            error: anyhow::anyhow!("{}; {further}", self.text()),
        }
    }

    /// The error and its causes; a cause that is in the text already is not repeated.
    pub(crate) fn text(&self) -> String {
        self.error
            .chain()
            .fold(String::new(), |text, cause| match cause.to_string() {
                cause if text.is_empty() => cause,
                cause if text.contains(&cause) => text,
                cause => format!("{text}: {cause}"),
            })
    }

    /// Says it on standard error, causes included.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("ringside: {}", self.text());
        ExitCode::from(self.code)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::operation(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_text_holds_is_not_repeated() {
        let inner = anyhow::anyhow!("no such file");
        let failure = Failure::operation(inner.context("reading x: no such file").context("start"));
        assert_eq!(failure.text(), "start: reading x: no such file");
    }
}
