//! Waits for other processes that a signal ends: a reader of our output may take nothing.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The time for which a reader may take nothing once a signal has come.
const READER_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks at the flag.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Set by the first signal, once signals are caught.
pub(crate) static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// True if the signals are caught.
pub(crate) fn is_caught() -> bool {
    SEEN.get().is_some()
}

/// True if the measurement has to end. Cheap, but not for every message.
pub(crate) fn seen() -> bool {
    SEEN.get().is_some_and(|seen| seen.load(Ordering::Relaxed))
}

/// A signal has come, and another process takes no bytes.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: the reader does not read")]
pub(crate) struct ReaderStuck;

/// Waits until a file takes bytes, or fails. Errors: [`ReaderStuck`].
pub(crate) fn wait_for_room(file: impl AsFd) -> io::Result<()> {
    let mut since = None;
    loop {
        match poll(&mut [PollFd::new(&file, PollFlags::OUT)], Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if seen() && since.get_or_insert_with(Instant::now).elapsed() >= READER_LIMIT {
            return Err(io::Error::new(ErrorKind::TimedOut, ReaderStuck));
        }
    }
}
