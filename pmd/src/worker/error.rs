//! Errors between a worker and its users.

use super::{Request, Worker};
use crate::Returned;
use ringside_bus::pinning::PinError;
use std::fmt;
use std::time::Duration;

/// A worker did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// A policy that sleeps has no event descriptor that could wake it.
    #[error(
        "no event descriptor to wake the worker with: {reason}; raise the limit of open files, or let it poll"
    )]
    NoAlarm {
        /// The system's own words.
        reason: String,
    },
    /// The inbox would take too much memory.
    #[error("a worker's inbox of {given} requests; at most {most} are possible")]
    InboxTooLarge {
        /// The requests asked for.
        given: usize,
        /// The most.
        most: usize,
    },
    /// Its core cannot be used.
    #[error(transparent)]
    Core(#[from] PinError),
    /// The system gave no thread.
    #[error(
        "no thread for a worker: {reason}; raise the limit of processes (ulimit -u, the cgroup's pids.max) or start fewer workers"
    )]
    NoThread {
        /// The system's message.
        reason: String,
    },
    /// The closure that makes the state panicked.
    #[error("a worker's state could not be made, the closure panicked: {text}")]
    NoState {
        /// The message of the panic.
        text: String,
    },
}

/// A request was not taken. The closure is handed back, boxed; it can be sent again as it is.
pub enum SendError<S> {
    /// The inbox is full: the worker is behind. Try again later, or raise `worker.inbox`.
    Full(Returned<Request<S>>),
    /// The worker has stopped, or a panic ended it; [`Worker::stop`] distinguishes them.
    Stopped(Returned<Request<S>>),
}

impl<S> SendError<S> {
    /// The closure that was not taken.
    #[must_use]
    pub fn into_request(self) -> Request<S> {
        match self {
            Self::Full(request) | Self::Stopped(request) => request.into_inner(),
        }
    }
}

impl<S> fmt::Display for SendError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => {
                "the worker's inbox is full; try again once it has caught up, or raise worker.inbox"
            }
            Self::Stopped(_) => "the worker has stopped; start another",
        })
    }
}

impl<S> fmt::Debug for SendError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Stopped(_) => "Stopped",
        })
    }
}

impl<S> std::error::Error for SendError<S> {}

/// A question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The inbox is full. The question was not run and won't be.
    #[error("the worker's inbox is full; ask again once it has caught up, or raise worker.inbox")]
    Full,
    /// The worker has stopped. The question was not run and won't be.
    #[error("the worker has stopped; start another")]
    Stopped,
    /// The worker did not start the request in time. It was not run and won't be.
    #[error(
        "the worker did not start the request within {} ms and it was withdrawn; its poll or an earlier request takes too long",
        limit.as_millis()
    )]
    NotBegun {
        /// The time waited.
        limit: Duration,
    },
    /// The worker was still busy with the question. It runs to its end, its answer is dropped.
    #[error(
        "the worker ran the request but had no answer within {} ms; its effects remain, only the answer is lost",
        limit.as_millis()
    )]
    NotAnswered {
        /// The time waited.
        limit: Duration,
    },
    /// A poll or a request panicked, perhaps this one, and that ended the worker.
    #[error("the worker panicked: {text}; stop it, which hands back its state")]
    Panicked {
        /// The message of the panic.
        text: String,
    },
}

/// A worker did not stop in order.
#[derive(thiserror::Error)]
pub enum StopError<S: Send + 'static> {
    /// A poll or a request had panicked.
    #[error("the worker panicked: {text}")]
    Panicked {
        /// The message of the panic.
        text: String,
        /// The state as the panic left it.
        state: Returned<S>,
    },
    /// It is still in a poll or a request.
    #[error(
        "the worker's poll or a request did not return within {} ms; it will stop afterwards, wait for it again",
        limit.as_millis()
    )]
    Late {
        /// The time waited.
        limit: Duration,
        /// The worker, to be stopped again.
        worker: Returned<Worker<S>>,
    },
}

impl<S: Send + 'static> fmt::Debug for StopError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { text, .. } => f.debug_struct("Panicked").field("text", text).finish(),
            Self::Late { limit, .. } => f.debug_struct("Late").field("limit", limit).finish(),
        }
    }
}
