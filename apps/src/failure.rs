//! The result of a command, and its exit code.

use crate::output::{OutputError, output_error};
use std::io::Write;
use std::process::ExitCode;

/// Exit code after SIGINT, SIGTERM or SIGHUP, as shells have it for the former.
pub(crate) const INTERRUPTED: u8 = 130;

/// Exit code once nothing reads standard output: as shells have it for a program that SIGPIPE
/// ended.
const READER_GONE: u8 = 141;

/// In the text of EFBIG, which many errors hold as text only.
const FILE_TOO_LARGE: &str = "(os error 27)";
const FILE_LIMIT: &str = "; the limit of a file's size, which counts for shared memory too, is too low: \
                          raise it with `ulimit -f unlimited`";

/// In the text of EMFILE.
const TOO_MANY_FILES: &str = "(os error 24)";
const FILES_LIMIT: &str = "; the limit of open files is too low: raise it with `ulimit -n`";

/// In the text of EAGAIN, which other calls return as well: the text has one of the words, too.
const TRY_AGAIN: &str = "(os error 11)";
const OF_PROCESSES: [&str; 2] = ["thread", "starting "];
const PROCESSES_LIMIT: &str =
    "; raise the limit of processes (ulimit -u, the cgroup's pids.max), which counts threads too";

/// In the texts of errors that a machine without enough memory, files or threads gives: EAGAIN,
/// ENOMEM, ENFILE and EMFILE.
const OF_MACHINE: [&str; 4] = [TRY_AGAIN, "(os error 12)", "(os error 23)", TOO_MANY_FILES];

/// A failure and the exit code of its kind.
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

    /// Something that the command line names cannot be used, as [`Failure::usage`]; an operation's
    /// failure if the machine lacks memory, files or threads for it.
    pub(crate) fn named(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let text = format!("{error:#}");
        match OF_MACHINE.iter().any(|lack| text.contains(lack)) {
            true => Self::operation(error),
            false => Self::usage(error),
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

    /// The same failure, as one of the command line, which names what cannot be used. That of a
    /// signal stays one.
    pub(crate) fn into_usage(self) -> Self {
        match self.code {
            1 => Self::usage(self.error),
            _ => self,
        }
    }

    /// The failure of another process of this command, with its exit code.
    pub(crate) fn with_code(code: u8, error: anyhow::Error) -> Self {
        Self { code, error }
    }

    /// A signal ended the measurement early: 130.
    pub(crate) fn interrupted() -> Self {
        Self {
            code: INTERRUPTED,
            error: anyhow::anyhow!("interrupted; the results until then are shown"),
        }
    }

    /// The exit code.
    pub(crate) const fn code(&self) -> u8 {
        self.code
    }

    /// True if the command line, the configuration or the flags of a peer have to change.
    pub(crate) fn is_usage(&self) -> bool {
        self.code == 2
    }

    /// True if a signal ended the measurement.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.code == INTERRUPTED
    }

    /// The error of this kind that it came from.
    pub(crate) fn cause<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.chain().find_map(|cause| cause.downcast_ref())
    }

    /// True if standard output is closed.
    pub(crate) fn is_output(&self) -> bool {
        self.error
            .chain()
            .any(|cause| output_error(cause).is_some())
    }

    /// The same failure, with where it happened.
    pub(crate) fn at(self, place: &'static str) -> Self {
        Self {
            code: self.code,
            error: self.error.context(place),
        }
    }

    /// The same failure, with further information.
    pub(crate) fn and(self, further: &str) -> Self {
        Self {
            code: self.code,
            error: anyhow::anyhow!("{}; {further}", self.text()),
        }
    }

    /// The error and its causes; a cause that is in the text already is not repeated.
    pub(crate) fn text(&self) -> String {
        let causes = self.error.chain();
        let text = causes.fold(String::new(), |text, cause| match cause.to_string() {
            cause if text.is_empty() => cause,
            cause if text.contains(&cause) => text,
            cause => format!("{text}: {cause}"),
        });
        with_remedies(text)
    }

    /// Prints the failure on standard error, with its causes. Prints nothing if the reader of the
    /// output has closed it.
    pub(crate) fn report(&self) -> ExitCode {
        let mut causes = self.error.chain();
        if causes.any(|cause| matches!(output_error(cause), Some(OutputError::ReaderGone))) {
            return ExitCode::from(READER_GONE);
        }
        // Standard error may be closed too: the exit code reports the same.
        let _ = writeln!(std::io::stderr(), "ringside: {}", self.text());
        ExitCode::from(self.code)
    }
}

/// The text of an error, with the remedy if a limit of the process was met.
pub(crate) fn with_remedies(mut text: String) -> String {
    if text.contains(FILE_TOO_LARGE) && !text.contains("ulimit -f") {
        text += FILE_LIMIT;
    }
    if text.contains(TOO_MANY_FILES) && !text.contains("ulimit -n") {
        text += FILES_LIMIT;
    }
    let is_of_processes = OF_PROCESSES.iter().any(|word| text.contains(word));
    if text.contains(TRY_AGAIN) && is_of_processes && !text.contains("ulimit -u") {
        text += PROCESSES_LIMIT;
    }
    text
}

/// Joins the results of two steps that are both done, even if one fails. A closed output is no news
/// beside another failure.
pub(crate) fn both(one: Result<(), Failure>, other: Result<(), Failure>) -> Result<(), Failure> {
    match (one, other) {
        (Err(one), Err(other)) if other.is_output() => Err(one),
        (Err(one), Err(other)) if one.is_output() => Err(other),
        (Err(one), Err(other)) => Err(one.and(&other.text())),
        (one, other) => one.and(other),
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

    #[test]
    fn a_file_beyond_the_limit_names_the_limit() {
        let error = std::io::Error::from_raw_os_error(27);
        let failure = Failure::operation(anyhow::anyhow!("writing x: {error}; free some room"));
        let text = failure.text();
        assert!(
            text.ends_with("raise it with `ulimit -f unlimited`"),
            "{text}"
        );
        assert_eq!(failure.and("more").text().matches("ulimit").count(), 1);
    }

    #[test]
    fn a_failure_of_the_command_line_replaces_no_signal() {
        let failure = Failure::operation(anyhow::anyhow!("no such file"));
        assert!(failure.into_usage().is_usage());
        assert_eq!(Failure::interrupted().into_usage().code(), INTERRUPTED);
    }

    #[test]
    fn a_thread_that_is_refused_names_the_limit_of_processes() {
        let failure = |what: &str| {
            let error = std::io::Error::from_raw_os_error(11);
            Failure::operation(anyhow::Error::new(error).context(what.to_owned()))
        };
        for what in ["starting the model", "no thread for the registry"] {
            let text = failure(what).and("more").text();
            assert_eq!(text.matches("ulimit -u").count(), 1, "{text}");
        }
        let text = failure("resetting the device").text();
        assert!(!text.contains("ulimit"), "{text}");
    }

    #[test]
    fn too_many_open_files_name_the_limit() {
        let error = std::io::Error::from_raw_os_error(24);
        let text = Failure::operation(error).and("more").text();
        assert!(text.contains("raise it with `ulimit -n`"), "{text}");
        assert_eq!(text.matches("ulimit").count(), 1, "{text}");
    }
}
