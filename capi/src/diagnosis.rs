//! Diagnosis for programs and their users: the log, and the reason why there is no device.

use crate::claim::Failure;
use parking_lot::Mutex;
use ringside_config::LogFormat;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io::IsTerminal;

/// The failure that was explained last.
static EXPLAINED: Mutex<String> = Mutex::new(String::new());

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
    LogFormat::from_variable(std::env::var_os(LogFormat::VARIABLE).as_deref())
}

/// Starts the log on standard error, if `RUST_LOG` is set.
///
/// Errors: `EINVAL` if `RINGSIDE_LOG_FORMAT` is no form of the log.
pub(crate) fn start_log() -> Result<(), Failure> {
    use tracing_subscriber::EnvFilter;
    let format = format().map_err(|error| Failure::of(libc::EINVAL, error))?;
    if std::env::var_os("RUST_LOG").is_none() {
        return Ok(());
    }
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env());
    let log = log.with_writer(std::io::stderr);
    // The program may have a log of its own from Rust code: then that stays.
    let _ = match format {
        LogFormat::Json => log.json().try_init(),
        LogFormat::Plain => {
            // A file or a pipe gets no colours, nor does a terminal whose user wants none.
            let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let is_coloured = is_wanted && std::io::stderr().is_terminal();
            log.with_ansi(is_coloured).try_init()
        }
    };
    Ok(())
}

/// Says something about the device on standard error, in the form of the log.
pub(crate) fn say(device: &str, text: &str) {
    match format() {
        Ok(LogFormat::Json) => {
            let fields = serde_json::json!({ "message": text, "device": device });
            let line =
                serde_json::json!({ "level": "ERROR", "target": "ringside", "fields": fields });
            eprintln!("{line}");
        }
        _ => eprintln!("ringside: {device}: {text}"),
    }
}

/// Explains a failure on standard error, once, and keeps it for [`ringside_last_error`]. Returns
/// its errno value.
pub(crate) fn explain(name: &str, failure: &Failure) -> c_int {
    let text = CString::new(format!("{name}: {}", failure.text).replace('\0', "?"));
    LAST.with_borrow_mut(|last| *last = text.unwrap_or_default());
    let mut explained = EXPLAINED.lock();
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
