//! The form of the log: lines for readers, or JSON for collectors.

use std::ffi::OsStr;
use std::str::FromStr;

/// The form of the log on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text, one event a line.
    #[default]
    Plain,
    /// One JSON object a line, with `timestamp`, `level`, `target` and `fields`.
    Json,
}

/// A form that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no form of the log: plain or json")]
pub struct LogFormatError {
    /// The value that was given.
    pub value: String,
}

impl LogFormat {
    /// The environment variable that chooses the form.
    pub const VARIABLE: &str = "RINGSIDE_LOG_FORMAT";

    /// Reads a value of [`Self::VARIABLE`]: plain if it is not set or empty.
    ///
    /// # Errors
    /// The value is another word; the text names the variable.
    pub fn from_variable(value: Option<&OsStr>) -> Result<Self, String> {
        let value = value.unwrap_or_default().to_string_lossy();
        match value.as_ref() {
            "" => Ok(Self::default()),
            value => {
                let parsed: Result<Self, LogFormatError> = value.parse();
                parsed.map_err(|error| format!("{}: {error}", Self::VARIABLE))
            }
        }
    }

    /// The word for it, as the variable and `--log-format` take it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = LogFormatError;

    fn from_str(text: &str) -> Result<Self, LogFormatError> {
        match text {
            "plain" => Ok(Self::Plain),
            "json" => Ok(Self::Json),
            other => Err(LogFormatError {
                value: other.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_from_its_word_and_nothing_else() {
        for form in [LogFormat::Plain, LogFormat::Json] {
            assert_eq!(form.word().parse(), Ok(form));
            let read = LogFormat::from_variable(Some(OsStr::new(form.word())));
            assert_eq!(read, Ok(form));
        }
        for unset in [None, Some(OsStr::new(""))] {
            assert_eq!(LogFormat::from_variable(unset), Ok(LogFormat::Plain));
        }
        for wrong in ["JSON", "xml", " plain"] {
            let refused = LogFormat::from_variable(Some(OsStr::new(wrong))).unwrap_err();
            assert!(refused.starts_with("RINGSIDE_LOG_FORMAT: "), "{refused}");
            assert!(refused.contains(wrong), "{refused}");
        }
    }
}
