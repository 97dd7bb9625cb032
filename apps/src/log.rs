//! The log on standard error.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_config::LogFormat;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// The form of the log, also for programs and models that this command starts.
pub(crate) fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}

/// Starts the log in the form of the command line, or of the environment. `usual` is its filter
/// without `RUST_LOG`, and with one that cannot be parsed if that may be meant for a program that
/// is started.
pub(crate) fn start(
    wanted: Option<LogFormat>,
    usual: &str,
    is_for_program: bool,
) -> Result<(), Failure> {
    let format = match wanted {
        Some(format) => format,
        None => {
            let variable = std::env::var_os(LogFormat::VARIABLE);
            let read = LogFormat::from_variable(variable.as_deref());
            read.map_err(|error| Failure::usage(anyhow!(error)))?
        }
    };
    let format = *FORMAT.get_or_init(|| format);
    let filter = match std::env::var_os(EnvFilter::DEFAULT_ENV) {
        Some(wanted) => match parsed(&wanted) {
            Err(_) if is_for_program => EnvFilter::new(usual),
            filter => filter?,
        },
        None => EnvFilter::new(usual),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colours())
        // It would report a closed standard error there, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Plain => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// The filter that a user wants.
fn parsed(wanted: &OsStr) -> Result<EnvFilter, Failure> {
    let refused = |reason: String| {
        Failure::usage(anyhow!(
            "{}={}: {reason}; name a level, or levels of parts, such as warn,ringside_pmd=debug",
            EnvFilter::DEFAULT_ENV,
            wanted.to_string_lossy()
        ))
    };
    let text = wanted.to_str();
    let text = text.ok_or_else(|| refused("it is no UTF-8".into()))?;
    let filter = EnvFilter::builder().parse(text);
    filter.map_err(|error| refused(error.to_string()))
}

/// A file or a pipe gets no colours, nor does a terminal whose user wants none (`NO_COLOR`).
fn has_colours() -> bool {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    is_wanted && std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_filter_that_cannot_be_parsed_is_refused_with_its_text() {
        for wrong in ["foo=bar=baz", "ringside=debg"] {
            let failure = parsed(OsStr::new(wrong)).unwrap_err();
            let text = failure.text();
            assert!(text.starts_with(&format!("RUST_LOG={wrong}: ")), "{text}");
            assert!(failure.is_usage(), "{text}");
        }
        assert!(parsed(OsStr::from_bytes(b"\xff")).is_err());
        for right in ["", "warn", "off", "warn,ringside_pmd=debug"] {
            assert!(parsed(OsStr::new(right)).is_ok(), "{right}");
        }
    }
}
