//! The state that a worker shares with its users: the inbox, the flags, the counters, the end.

use super::flags::{Before, Flags};
use super::request::{Request, boxed};
use super::{AskError, SendError, WorkerError};
use crate::Returned;
use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The most requests that an inbox keeps waiting: those of `worker.inbox`.
const MAX_REQUESTS: usize = 65_536;

/// Progress of a question: in the inbox.
const WAITING: u8 = 0;
/// The worker runs it, or has.
const BEGUN: u8 = 1;
/// The requester has given up; the request does not run.
const WITHDRAWN: u8 = 2;

/// The counts of a worker since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls of the poll closure.
    pub polls: u64,
    /// Calls that returned [`Polled::Worked`](super::Polled::Worked).
    pub polls_with_work: u64,
    /// Requests that were run.
    pub requests: u64,
    /// Times that it slept.
    pub sleeps: u64,
}

/// Alone on its cache lines (two: processors fetch them in pairs), so that the worker's stores and
/// the senders' don't disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// Written by the worker only, read by anyone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) polls: AtomicU64,
    pub(super) polls_with_work: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) sleeps: AtomicU64,
}

/// The result of a worker.
pub(super) struct Ended<S> {
    pub(super) state: S,
    /// The message of the panic, if one ended it.
    pub(super) panic: Option<String>,
}

/// The end, once there is one.
pub(super) struct End<S> {
    ended: bool,
    panic: Option<String>,
    /// The result of the worker, until it is taken.
    outcome: Option<Ended<S>>,
}

pub(super) struct Shared<S> {
    /// The word that the worker reads in each round.
    pub(super) flags: Apart<Flags>,
    pub(super) counters: Apart<Counters>,
    pub(super) inbox: ArrayQueue<Request<S>>,
    /// ends the sleep of a worker
    pub(super) alarm: Option<OwnedFd>,
    end: Mutex<End<S>>,
    has_ended: Condvar,
}

impl<S> Shared<S> {
    pub(super) fn new(capacity: usize, sleeps: bool) -> Result<Self, WorkerError> {
        if capacity > MAX_REQUESTS {
            return Err(WorkerError::InboxTooLarge {
                given: capacity,
                most: MAX_REQUESTS,
            });
        }
        let alarm = match sleeps {
            true => Some(
                eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
                    WorkerError::NoAlarm {
                        reason: error.to_string(),
                    }
                })?,
            ),
            false => None,
        };
        Ok(Self {
            alarm,
            flags: Apart::default(),
            counters: Apart::default(),
            inbox: ArrayQueue::new(capacity.max(1)),
            end: Mutex::new(End {
                ended: false,
                panic: None,
                outcome: None,
            }),
            has_ended: Condvar::new(),
        })
    }

    /// Wakes the worker if it slept when a flag was set.
    fn wake(&self, before: Before) {
        if before.asleep
            && let Some(alarm) = &self.alarm
        {
            // It can only fail because it is readable already.
            let _ = rustix::io::write(alarm, &1_u64.to_ne_bytes());
        }
    }

    /// Publishes the end. No request is run after this.
    pub(super) fn finish(&self, ended: Ended<S>) {
        self.flags.0.close();
        {
            let mut end = self.end();
            end.ended = true;
            end.panic.clone_from(&ended.panic);
            end.outcome = Some(ended);
        }
        self.has_ended.notify_all();
        self.drop_requests();
    }

    /// Drops the requests in the inbox, so that their senders are notified that no answer will
    /// come.
    fn drop_requests(&self) {
        while let Some(request) = self.inbox.pop() {
            drop(request);
        }
    }

    fn end(&self) -> MutexGuard<'_, End<S>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the worker's end; the guard shows if it has ended.
    fn wait_for_end(&self, limit: Duration) -> MutexGuard<'_, End<S>> {
        self.has_ended
            .wait_timeout_while(self.end(), limit, |end| !end.ended)
            .map_or_else(|poisoned| poisoned.into_inner().0, |(end, _)| end)
    }
}

/// Reaches a worker from another core: cheap to clone, outlives the worker harmlessly.
pub struct Handle<S: Send + 'static> {
    shared: Arc<Shared<S>>,
}

impl<S: Send + 'static> Handle<S> {
    pub(super) fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared }
    }

    /// Has the worker run `request` on its state, after the requests sent before it, between two
    /// polls. Does not wait.
    ///
    /// A request that was taken is run, unless the worker panics, or is stopped by someone else at
    /// this very time; then it is dropped.
    ///
    /// # Errors
    /// The inbox is full, or the worker has stopped; the closure is handed back, boxed. It may be
    /// sent again any number of times: it is not boxed once more.
    pub fn send(&self, request: impl FnOnce(&mut S) + Send + 'static) -> Result<(), SendError<S>> {
        let request = boxed(request);
        if self.shared.flags.0.is_closed() {
            return Err(SendError::Stopped(Returned::new(request)));
        }
        self.push(request)
            .map_err(|request| SendError::Full(Returned::new(request)))
    }

    /// Runs `question` on the worker's state and waits for the answer, at most `limit`.
    ///
    /// # Errors
    /// Each variant states if the question was run. A worker that calls this on itself waits until
    /// `limit`.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> T + Send + 'static,
        limit: Duration,
    ) -> Result<T, AskError> {
        let begin = Instant::now();
        if self.shared.flags.0.is_closed() {
            return Err(self.why_ended(limit));
        }
        let progress = Arc::new(AtomicU8::new(WAITING));
        let (answer, answers) = mpsc::sync_channel(1);
        let of_worker = Arc::clone(&progress);
        let boxed: Request<S> = Box::new(move |state| {
            if claim(&of_worker, BEGUN) {
                let _ = answer.send(question(state));
            }
        });
        if self.push(boxed).is_err() {
            return Err(AskError::Full);
        }
        match answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(mpsc::RecvTimeoutError::Timeout) if claim(&progress, WITHDRAWN) => {
                Err(AskError::NotBegun { limit })
            }
            // Begun, and the answer may have come just now.
            Err(mpsc::RecvTimeoutError::Timeout) => answers
                .try_recv()
                .map_err(|_| AskError::NotAnswered { limit }),
            // Dropped unanswered: by a panic, which may still be unwinding, or by a stop.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(self.why_ended(limit.saturating_sub(begin.elapsed())))
            }
        }
    }

    /// The worker's counts so far. The numbers are read one by one while it works.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters.0;
        Statistics {
            polls: counters.polls.load(Ordering::Relaxed),
            polls_with_work: counters.polls_with_work.load(Ordering::Relaxed),
            requests: counters.requests.load(Ordering::Relaxed),
            sleeps: counters.sleeps.load(Ordering::Relaxed),
        }
    }

    pub(super) fn tell_to_stop(&self) {
        let before = self.shared.flags.0.mark_stop();
        self.shared.wake(before);
    }

    /// The end of the worker, if it comes within `limit`; once.
    pub(super) fn take_ended(&self, limit: Duration) -> Option<Ended<S>> {
        self.shared.wait_for_end(limit).outcome.take()
    }

    fn push(&self, request: Request<S>) -> Result<(), Request<S>> {
        self.shared.inbox.push(request)?;
        // After the push: a worker that clears the flag before this sees it set again, and one
        // that clears it after this sees the request.
        let before = self.shared.flags.0.mark_mail();
        self.shared.wake(before);
        if before.closed {
            self.shared.drop_requests();
        }
        Ok(())
    }

    /// Returns the reason why there is no answer. Waits until the end is published, at most
    /// `limit`.
    fn why_ended(&self, limit: Duration) -> AskError {
        match &self.shared.wait_for_end(limit).panic {
            Some(text) => AskError::Panicked { text: text.clone() },
            None => AskError::Stopped,
        }
    }
}

/// Moves a question on from [`WAITING`]; `false` if the other side was first.
fn claim(progress: &AtomicU8, next: u8) -> bool {
    progress
        .compare_exchange(WAITING, next, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

impl<S: Send + 'static> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl<S: Send + 'static> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("inbox", &self.shared.inbox.len())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
