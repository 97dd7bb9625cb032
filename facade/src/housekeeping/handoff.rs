//! Passes events from the housekeeping thread to the program's threads, and the request to end in
//! the other direction.
//!
//! The order of three pairs of steps matters. The reader of events clears the signal before it
//! takes events, so an event that is added meanwhile raises the signal again. After the last event
//! the signal stays raised: the reader checks for the end after it has cleared the signal, and
//! raises it again. The thread clears its own signal before it checks for a request to end, so it
//! does not sleep after one.

use crate::sync::{ArrayQueue, AtomicBool, AtomicU64, Ordering, Signal};

/// The most events that wait for the program.
pub(crate) const EVENTS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Handoff<T> {
    events: ArrayQueue<T>,
    /// events dropped because the queue was full
    dropped: AtomicU64,
    /// raised while there are events, and from the end on
    told: Signal,
    /// no further event comes
    over: AtomicBool,
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
            over: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            wake,
        }
    }

    /// Queues an event for the program. Counts it as dropped if the queue is full.
    pub(crate) fn put(&self, event: T) {
        if self.events.push(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.told.raise();
    }

    /// Takes the waiting events, at most as many as the queue holds. Returns the number of events
    /// dropped since the last call.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> u64 {
        self.told.clear();
        for _ in 0..self.events.capacity() {
            let Some(event) = self.events.pop() else {
                break;
            };
            into.push(event);
        }
        if self.is_over() {
            self.told.raise();
        }
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Tells the program that no further event comes. The signal stays raised.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.told.raise();
    }

    /// True once no further event comes. Those that wait can still be taken.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The signal that is raised while there are events, and from the end on.
    pub(crate) fn told(&self) -> &Signal {
        &self.told
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake.raise();
    }

    /// Called by the thread before each sleep: true if the thread has to end. A later request
    /// raises [`Handoff::wake`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.wake.clear();
        self.stopped.load(Ordering::Acquire)
    }

    /// The signal that wakes the thread.
    pub(crate) fn wake(&self) -> &Signal {
        &self.wake
    }
}
