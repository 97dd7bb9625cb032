//! A descriptor that is readable while a signal is raised.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// An event descriptor: any thread raises it, the waiting thread clears it.
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Raises the signal: makes the descriptor readable. Does nothing if it is raised.
    pub(crate) fn raise(&self) {
        // The counter is full after 2^64 - 2 raises, and readable then too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the signal. Returns false if it was clear.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable, at most `limit`.
pub(crate) fn wait<const N: usize>(descriptors: [Option<BorrowedFd<'_>>; N], limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let present = descriptors.into_iter().flatten();
    let mut watched: Vec<PollFd<'_>> = present
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    // An interrupted wait counts as a short one: the caller checks and waits again.
    let _ = poll(&mut watched, Some(&limit));
}
