//! Descriptors that programs of tokio wait for.
#![allow(unsafe_code)] // tokio asks for a promise about the descriptor

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of the device that a task of tokio waits for: of its interrupts or its events.
///
/// It holds a copy of the descriptor, so the value that it was made of may be used meanwhile and
/// may go first.
#[derive(Debug)]
pub struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers a copy of a descriptor with the runtime of the calling task.
    ///
    /// # Errors
    /// Those of the operating system: too many descriptors, for instance.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with I/O enabled.
    pub fn new(source: &impl AsFd) -> io::Result<Self> {
        let own = source.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is owned, and the registration is not given out: nothing closes
        //         or replaces it before the registration ends.
        let registered = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits until the descriptor is readable, and calls `take`, which is to make it unreadable.
    /// Cancelling it loses nothing.
    ///
    /// # Errors
    /// The runtime shuts down.
    pub async fn take<T>(&self, take: impl FnOnce() -> T) -> io::Result<T> {
        let mut ready = self.0.readable().await?;
        let taken = take();
        ready.clear_ready();
        Ok(taken)
    }
}
