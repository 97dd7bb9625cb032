//! The log on standard error.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_config::LogFormat;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// The form of the log, also for programs and models that this command starts.
pub(crate) fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}

/// Starts the log in the form of the command line, or of the environment. `usual` is its filter
/// without `RUST_LOG`.
pub(crate) fn start(wanted: Option<LogFormat>, usual: &str) -> Result<(), Failure> {
    let format = match wanted {
        Some(format) => format,
        None => {
            let variable = std::env::var_os(LogFormat::VARIABLE);
            let read = LogFormat::from_variable(variable.as_deref());
            read.map_err(|error| Failure::usage(anyhow!(error)))?
        }
    };
    let format = *FORMAT.get_or_init(|| format);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
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

/// A file or a pipe gets no colours, nor does a terminal whose user wants none (`NO_COLOR`).
fn has_colours() -> bool {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    is_wanted && std::io::stderr().is_terminal()
}
