//! Errors of a configuration, and their positions.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// A position in the text, both counted from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// The position of a byte offset in `text`; an offset past the end is the end.
    #[must_use]
    pub fn of_offset(text: &str, offset_bytes: usize) -> Self {
        let mut position = Self { line: 1, column: 1 };
        for (at, character) in text.char_indices() {
            if at >= offset_bytes {
                break;
            }
            if character == '\n' {
                position = Self {
                    line: position.line + 1,
                    column: 1,
                };
            } else {
                position.column += 1;
            }
        }
        position
    }
}

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its position in the file; `None` for a configuration made in code, and for a value that the
    /// file leaves at its default.
    pub position: Option<Position>,
    /// The key with its section (`rdma.queue_pairs`); `None` for text that is not TOML.
    pub key: Option<String>,
    /// The error: value, permitted values, remedy.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}")?;
        }
        f.write_str(&self.message)
    }
}

/// Reasons why a configuration could not be loaded.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read: check the path and its permissions.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// The file is far larger than a configuration: probably another file was named.
    #[error(
        "the configuration {} has {length_bytes} bytes, the limit is {limit_bytes}: is it the \
         right file?", path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// The longest file that is read.
        limit_bytes: u64,
    },
    /// The text is not a valid configuration: correct each fault.
    #[error("{}", list_of(origin, faults))]
    Invalid {
        /// The file, or `None` for a text or a value given by code.
        origin: Option<PathBuf>,
        /// Every fault found, in the order of the file; never empty.
        faults: Vec<Fault>,
    },
}

impl ConfigError {
    /// The faults of an invalid configuration; empty for the other errors.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Invalid { faults, .. } => faults,
            Self::Unreadable { .. } | Self::TooLong { .. } => &[],
        }
    }
}

fn list_of(origin: &Option<PathBuf>, faults: &[Fault]) -> String {
    let mut text = match origin {
        Some(path) => format!("the configuration {} is not valid", path.display()),
        None => "the configuration is not valid".to_owned(),
    };
    for fault in faults {
        text.push_str("\n  ");
        text.push_str(&fault.to_string());
    }
    text
}
