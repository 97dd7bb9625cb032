//! Standard output, whose reader may go and whose device may be full; and spans of time as text.

use crate::patience::{ReaderStuck, is_caught, wait_for_room};
use rustix::fs::{FileType, fstat};
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// The reason why standard output takes no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The reader of a pipe has closed it.
    #[error("the reader of standard output has closed it")]
    ReaderGone,
    /// The reader of a pipe does not read, and a signal has come.
    #[error("interrupted: the reader of standard output does not read")]
    ReaderStuck,
    /// The device is full, or fails.
    #[error("cannot write to standard output: {0}; free some room there, or redirect it elsewhere")]
    Refused(io::Error),
}

/// Standard output. Its errors hold an [`OutputError`].
pub(crate) const fn stdout() -> Stdout {
    Stdout
}

/// See [`stdout`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match waits_for_reader() {
            true => write_to_reader(bytes),
            false => io::stdout().write(bytes),
        }
        .map_err(told)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(told)
    }
}

/// Bytes that a pipe takes at once if it takes any. Source: Linux `limits.h`, PIPE_BUF.
const PIPE_BYTES: usize = 4096;

/// True if a write may wait for another process while signals are caught: then the default buffer
/// is not used, as it is written out at the end without a look at signals.
fn waits_for_reader() -> bool {
    static IS_PIPE: OnceLock<bool> = OnceLock::new();
    let is_pipe = || {
        let kind = fstat(io::stdout()).map(|found| FileType::from_raw_mode(found.st_mode));
        let waits = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
        kind.is_ok_and(|kind| waits.contains(&kind))
    };
    is_caught() && *IS_PIPE.get_or_init(is_pipe)
}

fn write_to_reader(bytes: &[u8]) -> io::Result<usize> {
    wait_for_room(io::stdout())?;
    // What was buffered before signals were caught.
    io::stdout().flush()?;
    let first = bytes.get(..PIPE_BYTES).unwrap_or(bytes);
    Ok(rustix::io::write(io::stdout(), first)?)
}

fn told(error: io::Error) -> io::Error {
    let kind = error.kind();
    let told = match kind {
        // The writer tries again.
        ErrorKind::Interrupted => return error,
        ErrorKind::BrokenPipe => OutputError::ReaderGone,
        _ if error
            .get_ref()
            .is_some_and(|inner| inner.is::<ReaderStuck>()) =>
        {
            OutputError::ReaderStuck
        }
        _ => OutputError::Refused(error),
    };
    io::Error::new(kind, told)
}

/// The failure of standard output in an error, if it is one.
pub(crate) fn output_error<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e OutputError> {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)?;
    inner.downcast_ref::<OutputError>()
}

/// Microseconds with the digits of its nanoseconds and no others, for JSON.
pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// A span as a person reads it.
pub(crate) fn span(duration: Duration) -> String {
    let microseconds = microseconds(duration);
    if microseconds < 1000.0 {
        format!("{microseconds:.1} us")
    } else {
        format!("{:.2} ms", microseconds / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_a_reader_that_has_gone() {
        let gone = told(io::Error::from(ErrorKind::BrokenPipe));
        assert!(matches!(output_error(&gone), Some(OutputError::ReaderGone)));
        let full = told(io::Error::from(ErrorKind::StorageFull));
        assert!(matches!(output_error(&full), Some(OutputError::Refused(_))));
        assert!(
            full.to_string()
                .starts_with("cannot write to standard output: ")
        );
        // A file or socket whose peer was closed is another case.
        assert!(output_error(&io::Error::from(ErrorKind::BrokenPipe)).is_none());
    }
}
