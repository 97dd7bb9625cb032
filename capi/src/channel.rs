//! Queues of events behind real descriptors: completion channels and asynchronous events.

use crate::device::lock;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

/// Events and a descriptor that is readable while there are some.
///
/// The descriptor counts the events (an eventfd in semaphore mode): programs poll it, and set it
/// non-blocking themselves.
pub(crate) struct EventQueue<T> {
    descriptor: OwnedFd,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue, or an errno value.
    pub(crate) fn new() -> Result<Self, c_int> {
        // SAFETY: no pointer is passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(last_error());
        }
        Ok(Self {
            // SAFETY: the call above made it for this owner alone.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            events: Mutex::default(),
        })
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.descriptor.as_raw_fd()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut events = lock(&self.events);
        events.push_back(event);
        let one = 1_u64;
        // SAFETY: eight bytes are read from a live value. The counter cannot overflow: it is at
        // most the length of the list.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), 8) };
    }

    /// Takes an event: waits for one unless the program made the descriptor non-blocking.
    ///
    /// Errors: an errno value, `EAGAIN` and `EINTR` among them.
    pub(crate) fn take(&self) -> Result<T, c_int> {
        loop {
            let mut count = 0_u64;
            // SAFETY: eight bytes are written to a live value.
            let read = unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), 8) };
            if read != 8 {
                return Err(last_error());
            }
            // Events that were withdrawn took their counts along, but a reader may have been
            // faster: then the next one is waited for.
            if let Some(event) = lock(&self.events).pop_front() {
                return Ok(event);
            }
        }
    }

    /// Takes events back that were not read, and returns them.
    pub(crate) fn withdraw(&self, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut events = lock(&self.events);
        let all = std::mem::take(&mut *events);
        let mut gone = Vec::new();
        for event in all {
            if is_gone(&event) {
                gone.push(event);
            } else {
                events.push_back(event);
            }
        }
        for _ in &gone {
            let mut ready = libc::pollfd {
                fd: self.descriptor(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut count = 0_u64;
            // SAFETY: one live poll entry; the read writes eight bytes to a live value and finds a
            // count, unless a reader that waits for this lock has taken it.
            unsafe {
                if libc::poll(&raw mut ready, 1, 0) > 0 {
                    libc::read(self.descriptor(), (&raw mut count).cast(), 8);
                }
            }
        }
        gone
    }
}

/// `errno` of the last call.
pub(crate) fn last_error() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::EventQueue;

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        let mut ready = libc::pollfd {
            fd: queue.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live poll entry.
        unsafe { libc::poll(&raw mut ready, 1, 0) > 0 }
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_are_events() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert_eq!(queue.take(), Ok(1));
        assert!(is_readable(&queue));
        queue.withdraw(|event| *event == 3);
        assert_eq!(queue.take(), Ok(2));
        assert!(
            !is_readable(&queue),
            "a withdrawn event leaves nothing to read"
        );
    }

    #[test]
    fn a_program_that_wants_no_waiting_gets_eagain() {
        let queue = EventQueue::<u32>::new().unwrap();
        // SAFETY: flags of a descriptor that the queue owns.
        unsafe { libc::fcntl(queue.descriptor(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(queue.take(), Err(libc::EAGAIN));
        queue.push(7);
        assert_eq!(queue.take(), Ok(7));
    }
}
