//! Descriptors that programs of tokio wait for.
#![allow(unsafe_code)] // tokio asks for a promise about the descriptor

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of the device that a task of tokio waits for: of its interrupts or its events.
///
/// It holds a copy of the descriptor, so the value that it was made of may be used meanwhile and
/// may go first.
#[derive(Debug)]
pub struct Readable {
    descriptor: AsyncFd<OwnedFd>,
    /// it was still readable after the last take
    stayed: AtomicBool,
}

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
        Ok(Self {
            descriptor: registered?,
            stayed: AtomicBool::new(false),
        })
    }

    /// Waits until the descriptor is readable, and calls `take`, which is to make it unreadable.
    /// If it stays readable, as after a failure of the device, the next call does not wait; it lets
    /// other tasks run before. Cancelling it loses nothing.
    ///
    /// # Errors
    /// The runtime shuts down.
    pub async fn take<T>(&self, take: impl FnOnce() -> T) -> io::Result<T> {
        if self.stayed.swap(false, Ordering::Relaxed) {
            let_others_run().await;
        }
        let mut ready = self.descriptor.readable().await?;
        let taken = take();
        match is_readable(&self.descriptor) {
            // tokio is told of a change only, and none may come.
            true => self.stayed.store(true, Ordering::Relaxed),
            // What comes after the look is a change: `clear_ready` does not lose it.
            false => ready.clear_ready(),
        }
        Ok(taken)
    }
}

fn is_readable(descriptor: &AsyncFd<OwnedFd>) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
}

/// Returns to the executor once.
async fn let_others_run() {
    let mut has_run = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
