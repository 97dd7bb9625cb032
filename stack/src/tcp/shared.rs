//! State that a stack shares with the handles of its connections and listeners.

use super::error::TcpError;
use ringside_clock::{Clock, Deadline};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of each direction that wait between a handle and its stack, at most.
pub(crate) const PIPE_BYTES: usize = 16 << 10;
/// The longest sleep of a wait before it looks at its clock: the clock may be a virtual one.
const SLICE: Duration = Duration::from_millis(2);
/// The virtual time that passes in a sleep of that length.
const STEP: Duration = Duration::from_micros(20);

/// A value of two threads, and a signal for its changes.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }
    }

    /// The value. The lock is held for copies of at most [`PIPE_BYTES`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the calls that wait for a change.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until `look` returns something; `None` after `limit`. Looks at least once.
    pub(crate) fn wait<R>(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        if let Some(found) = look(&mut self.lock()) {
            return Some(found);
        }
        if limit.is_zero() {
            return None;
        }
        let deadline = Deadline::after(clock, limit);
        loop {
            let is_last = deadline.passed(clock);
            let mut value = self.lock();
            if let Some(found) = look(&mut value) {
                return Some(found);
            }
            if is_last {
                return None;
            }
            let left = deadline.end.since(clock.now()).min(SLICE);
            let waited = self.changed.wait_timeout(value, left);
            let timeout = waited.unwrap_or_else(PoisonError::into_inner).1;
            if timeout.timed_out() {
                clock.pause(STEP);
            }
        }
    }
}

/// The state of a connection, as its handle sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The request was sent, and its answer is waited for.
    Connecting,
    /// Established.
    Open,
    /// Both sides have finished.
    Over,
    /// It ended before that.
    Failed(TcpError),
}

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) phase: Phase,
    /// received bytes that the handle has not read
    pub(crate) inbound: VecDeque<u8>,
    /// bytes that the handle has written and the stack has not taken
    pub(crate) outbound: VecDeque<u8>,
    /// the peer sends nothing after `inbound`
    pub(crate) peer_finished: bool,
    /// the handle writes nothing after `outbound`
    pub(crate) finished: bool,
    /// the peer has confirmed all bytes of a side that has finished
    pub(crate) delivered: bool,
    /// the handle is gone
    pub(crate) abandoned: bool,
}

impl Pipe {
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            peer_finished: false,
            finished: false,
            delivered: false,
            abandoned: false,
        }
    }

    /// True until the request for it is answered.
    pub(crate) fn is_connecting(&self) -> bool {
        self.phase == Phase::Connecting
    }

    /// Ends it, unless it has ended.
    pub(crate) fn fail(&mut self, error: TcpError) {
        if matches!(self.phase, Phase::Connecting | Phase::Open) {
            self.phase = Phase::Failed(error);
        }
    }

    /// The error of a connection that failed.
    pub(crate) fn failure(&self) -> Option<TcpError> {
        match &self.phase {
            Phase::Failed(error) => Some(error.clone()),
            Phase::Connecting | Phase::Open | Phase::Over => None,
        }
    }
}

/// Connections that were established and not taken by the program, and the end of a listener.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    pub(crate) ready: VecDeque<C>,
    pub(crate) end: Option<TcpError>,
    /// the handle is gone
    pub(crate) abandoned: bool,
}

impl<C> Backlog<C> {
    pub(crate) const fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            end: None,
            abandoned: false,
        }
    }
}
