//! Passes events from the housekeeping thread to the program's threads, and the request to end in
//! the other direction.
//!
//! Two orders matter. The reader of events lowers the signal before it takes, so an event that is put
//! while it takes raises the signal again. The thread lowers its own signal before it looks whether
//! to end, so it does not sleep after such a request.

use crate::sync::{ArrayQueue, AtomicBool, AtomicU64, Ordering, Signal};

/// Events that wait at most.
pub(crate) const EVENTS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Handoff<T> {
    events: ArrayQueue<T>,
    /// events that found no room
    dropped: AtomicU64,
    /// raised while there are events
    told: Signal,
    stopped: AtomicBool,
    /// wakes the thread
    wake: Signal,
}

impl<T> Handoff<T> {
    pub(crate) fn new(capacity: usize, told: Signal, wake: Signal) -> Self {
        Self {
            events: ArrayQueue::new(capacity.max(1)),
            dropped: AtomicU64::new(0),
            told,
            stopped: AtomicBool::new(false),
            wake,
        }
    }

    /// Hands an event to the program; counts it where there is no room.
    pub(crate) fn put(&self, event: T) {
        if self.events.push(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.told.raise();
    }

    /// Takes the events, at most as many as there is room for, and returns how many were dropped
    /// since the last call.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> u64 {
        self.told.clear();
        for _ in 0..self.events.capacity() {
            let Some(event) = self.events.pop() else {
                break;
            };
            into.push(event);
        }
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// The signal that is raised while there are events.
    pub(crate) fn told(&self) -> &Signal {
        &self.told
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.raise();
    }

    /// For the thread, before each sleep: true if it is to end. What comes afterwards raises
    /// [`Handoff::wake`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.wake.clear();
        self.stopped.load(Ordering::Acquire)
    }

    /// The signal that wakes the thread.
    pub(crate) fn wake(&self) -> &Signal {
        &self.wake
    }
}
