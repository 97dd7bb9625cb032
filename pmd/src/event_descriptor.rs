//! A descriptor that an interrupt of the device signals, and this process, too.

use ringside_bus::Function;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// An event descriptor: readable from a signal on until it is drained.
#[derive(Debug)]
pub(crate) struct EventDescriptor(OwnedFd);

impl EventDescriptor {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Another descriptor of the same event.
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        fcntl_dupfd_cloexec(&self.0, 0).map(Self)
    }

    /// Waits until it is readable, at most `limit` of real time; returns false at the limit.
    ///
    /// Errors: [`Errno::INTR`], the thread took a signal before; others.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool, Errno> {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut waited, Some(&limit))? > 0)
    }

    /// Takes the signals that came so far.
    pub(crate) fn drain(&self) -> Result<(), Errno> {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Wakes the waiting thread, as the device would.
    pub(crate) fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            tracing::debug!(%error, "the waiting thread was not woken");
        }
    }
}

impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Disconnects a vector from its descriptor, after a reset of the device.
pub(crate) fn disconnect_vector(function: &dyn Function, vector: u16) {
    if let Err(error) = function.set_interrupts(vector, &[None]) {
        tracing::warn!(%error, vector, "an interrupt stays connected");
    }
}
