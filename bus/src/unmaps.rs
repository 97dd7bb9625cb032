//! Ranges of the program's memory that the kernel unmaps, reported through userfaultfd.
//!
//! One descriptor and one thread for the process. The thread only reads reports and writes them to
//! a journal of fixed size; it never allocates or frees. That matters: the kernel holds a thread
//! that unmaps a watched range until its report is read, and freeing memory may unmap some.
//!
//! A thread whose `munmap` has returned finds the range in the journal: the thread of this module
//! marks the journal as changing before it reads the report that lets `munmap` return.

mod error;
mod journal;
mod kernel;

use crate::per_process::PerProcess;
use crate::process::{Birth, tell_in_child_of};
use crate::signals::BlockedSignals;
pub use error::UnmapsError;
use journal::Journal;
pub use journal::News;
use kernel::Descriptor;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

/// The descriptor and the thread of this process.
struct Monitor {
    descriptor: Arc<Descriptor>,
    journal: Arc<Journal>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    birth: Birth,
}

/// The name of the thread.
const THREAD: &str = "ringside-unmaps";

static MONITOR: PerProcess<Mutex<Weak<Monitor>>> = PerProcess::new();

impl Monitor {
    /// The monitor of this process; starts it if there is none.
    fn of_this_process() -> Result<Arc<Self>, UnmapsError> {
        let known = MONITOR.get_or_init(Mutex::default);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitor) = known.upgrade() {
            return Ok(monitor);
        }
        let monitor = Arc::new(Self::start()?);
        *known = Arc::downgrade(&monitor);
        Ok(monitor)
    }

    fn start() -> Result<Self, UnmapsError> {
        let descriptor = Arc::new(Descriptor::open()?);
        tell_in_child_of(&descriptor);
        let journal = Arc::new(Journal::new());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = rustix::event::eventfd(0, flags)
            .map_err(|error| system("an event descriptor", error))?;
        let stop = Arc::new(stop);
        let parts = (
            Arc::clone(&descriptor),
            Arc::clone(&journal),
            Arc::clone(&stop),
        );
        let watch = move || {
            run(&parts.0, &parts.1, &parts.2);
            // A thread that ends unmaps its stack and frees memory. In a watched range that would
            // wait permanently, because no thread reads the report any more.
            parts.0.close();
        };
        let builder = std::thread::Builder::new().name(THREAD.to_owned());
        // A handler of the program may unmap watched memory, too.
        let blocked = BlockedSignals::new();
        let thread = builder.spawn(watch).map_err(|error| UnmapsError::System {
            operation: "a thread that takes reports of unmapped memory",
            error: error.to_string(),
        })?;
        drop(blocked);
        Ok(Self {
            descriptor,
            journal,
            stop,
            thread: Some(thread),
            birth: Birth::now(),
        })
    }
}

impl Drop for Monitor {
    /// The thread closes the descriptor, which ends the watch and lets waiting threads go on.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.birth.is_here() {
            // The thread stayed in the process that made it.
            std::mem::forget(thread);
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!("the thread that takes reports of unmapped memory had panicked");
        }
    }
}

/// The thread's loop. Allocates and frees nothing: see the module.
fn run(descriptor: &Descriptor, journal: &Journal, stop: &OwnedFd) {
    while let Some(file) = descriptor.file() {
        let mut ready = [
            PollFd::from_borrowed_fd(file, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match rustix::event::poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => {
                journal.lose();
                return;
            }
        }
        let [reports, stopped] = ready.map(|one| !one.revents().is_empty());
        if stopped {
            return;
        }
        if reports {
            journal.write(|put| descriptor.read(put));
        }
    }
}

fn system(operation: &'static str, error: Errno) -> UnmapsError {
    UnmapsError::System {
        operation,
        error: error.to_string(),
    }
}

/// One reader of the reports. The watch ends with the last one of the process.
pub struct Unmaps {
    monitor: Arc<Monitor>,
    read: u64,
}

impl Unmaps {
    /// Makes a reader of the ranges that are unmapped from now on.
    ///
    /// # Errors
    /// [`UnmapsError::Denied`] where the process may not use userfaultfd, and
    /// [`UnmapsError::System`].
    pub fn new() -> Result<Self, UnmapsError> {
        let monitor = Monitor::of_this_process()?;
        let read = monitor.journal.written();
        Ok(Self { monitor, read })
    }

    /// See [`Watcher::watch`].
    ///
    /// # Errors
    /// Those of [`Watcher::watch`].
    pub fn watch(&self, range: Range<u64>) -> Result<(), UnmapsError> {
        self.monitor.descriptor.watch(range)
    }

    /// A handle that only watches, for use outside of a lock around this reader.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(&self.monitor))
    }

    /// True if [`Unmaps::take`] would return ranges. Costs one load.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.monitor.journal.has_news(self.read)
    }

    /// Takes the ranges since the last call.
    pub fn take(&mut self) -> News {
        self.monitor.journal.read(&mut self.read)
    }
}

/// Watches ranges for the readers of this process.
pub struct Watcher(Arc<Monitor>);

impl Watcher {
    /// Has the kernel report each page of the range that is unmapped, moved, or dropped with
    /// `madvise`. Each such call of the program takes some microseconds longer from then on. A
    /// range can be watched repeatedly; the watch ends with the mapping.
    ///
    /// # Errors
    /// [`UnmapsError::NotWatched`]: memory that is neither anonymous, shared nor of huge pages, or
    /// that is not mapped.
    pub fn watch(&self, range: Range<u64>) -> Result<(), UnmapsError> {
        self.0.descriptor.watch(range)
    }
}

impl std::fmt::Debug for Unmaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unmaps")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
