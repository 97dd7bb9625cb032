//! Diagnosis for programs and their users: the log, and the reason why there is no device.

use crate::claim::Failure;
use crate::environment::variable;
use crate::standard_error::{StandardError, write_line};
use crate::thread_end::WhileThreadsLast;
use parking_lot::Mutex;
use ringside_bus::PerProcess;
use ringside_config::LogFormat;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The failure that was explained last.
static EXPLAINED: PerProcess<Mutex<String>> = PerProcess::new();

/// The log was started.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The reason of the last call of this thread that found no device.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Version of the library.
const VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(version) => version,
    Err(_) => c"unknown",
};

fn format() -> Result<LogFormat, String> {
    LogFormat::from_variable(variable(LogFormat::VARIABLE).as_deref())
}

/// The filter that a value of `RUST_LOG` is. A part of it that is none is named, and ignored.
fn filter(value: &str) -> EnvFilter {
    let is_directive = |part: &&str| match part.parse::<Directive>() {
        Ok(_) => true,
        Err(error) => {
            say("RUST_LOG", &format!("ignoring {part:?}: {error}"));
            false
        }
    };
    let parts = value.split(',').filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.filter(is_directive).collect();
    EnvFilter::builder()
        .with_default_directive(LevelFilter::ERROR.into())
        .parse_lossy(parts.join(","))
}

/// Starts the log on standard error, if `RUST_LOG` is set.
///
/// Errors: `EINVAL` if `RINGSIDE_LOG_FORMAT` is no form of the log.
pub(crate) fn start_log() -> Result<(), Failure> {
    let format = format().map_err(|error| Failure::of(libc::EINVAL, error))?;
    let Some(wanted) = variable("RUST_LOG") else {
        return Ok(());
    };
    if IS_STARTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter(&wanted.to_string_lossy()));
    let log = log.with_writer(|| StandardError).log_internal_errors(false);
    // The program may have a log of its own from Rust code: then that stays.
    let _ = match format {
        LogFormat::Json => log.json().finish().with(WhileThreadsLast).try_init(),
        LogFormat::Plain => {
            // A file or a pipe gets no colours, nor does a terminal whose user wants none.
            let is_wanted = variable("NO_COLOR").is_none_or(|value| value.is_empty());
            let is_coloured = is_wanted && std::io::stderr().is_terminal();
            let log = log.with_ansi(is_coloured).finish();
            log.with(WhileThreadsLast).try_init()
        }
    };
    Ok(())
}

/// Says something about the device, or about a variable, on standard error, in the form of the log.
pub(crate) fn say(device: &str, text: &str) {
    match format() {
        Ok(LogFormat::Json) => {
            let fields = serde_json::json!({ "message": text, "device": device });
            let line =
                serde_json::json!({ "level": "ERROR", "target": "ringside", "fields": fields });
            write_line(&line.to_string());
        }
        _ => write_line(&format!("ringside: {device}: {text}")),
    }
}

/// Explains a failure on standard error, once, and keeps it for [`ringside_last_error`]. Returns
/// its errno value.
pub(crate) fn explain(name: &str, failure: &Failure) -> c_int {
    let text = CString::new(format!("{name}: {}", failure.text).replace('\0', "?"));
    // A thread that ends may have no storage any more.
    let _ = LAST.try_with(|last| last.replace(text.unwrap_or_default()));
    let mut explained = EXPLAINED.get_or_init(Mutex::default).lock();
    if *explained != failure.text {
        say(name, &failure.text);
        explained.clone_from(&failure.text);
    }
    failure.errno
}

/// Version of the library, such as "0.1.0"; it lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The reason why the last call of this thread that looked for the device, or opened it, found
/// none: one line, empty if no call has failed. It lives until the thread makes another call or
/// ends.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
