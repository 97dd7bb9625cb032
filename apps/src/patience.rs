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

/// A server that ends for another reason than a signal, and when it heeds signals.
struct Server {
    ends: Arc<AtomicBool>,
    heeds: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The server of this process, if it is one.
static SERVER: OnceLock<Server> = OnceLock::new();

/// Notes the flag by which a server ends, and when it heeds signals.
pub(crate) fn serve(ends: Arc<AtomicBool>, heeds: impl Fn() -> bool + Send + Sync + 'static) {
    let heeds = Box::new(heeds);
    let _ = SERVER.set(Server { ends, heeds });
}

/// True if the measurement has to end. Cheap, but not for every message.
pub(crate) fn seen() -> bool {
    SEEN.get().is_some_and(|seen| seen.load(Ordering::Relaxed))
        && SERVER.get().is_none_or(|server| (server.heeds)())
}

/// True if a reader that takes nothing is given up soon.
fn gives_up() -> bool {
    let ends = |server: &Server| server.ends.load(Ordering::Relaxed);
    seen() || SERVER.get().is_some_and(ends)
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
        if gives_up() && since.get_or_insert_with(Instant::now).elapsed() >= READER_LIMIT {
            return Err(io::Error::new(ErrorKind::TimedOut, ReaderStuck));
        }
    }
}
