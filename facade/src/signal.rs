//! A descriptor that is readable while there is something to look at.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// An event descriptor: raised by any thread, cleared by the one that looks.
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Makes it readable. Nothing to do if it is.
    pub(crate) fn raise(&self) {
        // The counter is full after 2^64 - 2 raises, and readable then too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable; false if it was.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable, at most `limit`.
pub(crate) fn wait(descriptors: [Option<BorrowedFd<'_>>; 2], limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let present = descriptors.into_iter().flatten();
    let mut watched: Vec<PollFd<'_>> = present
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    // An interrupted wait is a short one: the caller looks and waits again.
    let _ = poll(&mut watched, Some(&limit));
}
