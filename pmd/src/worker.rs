//! A worker: one thread, pinned to one core, that owns its queue pairs and completion queues and
//! polls them. Its [`Policy`] determines its behaviour while idle: by default it polls on.
//!
//! A worker owns a plain value of the user's (the state). No other thread touches it, so the
//! data path needs no lock. Other cores reach it with requests: closures on the state, through a
//! bounded inbox. Requests are the control path: they are boxed, and a few of them run between two
//! polls. A round without requests costs one relaxed load and two relaxed stores beyond the poll
//! itself: no lock, no allocation, no system call.
//!
//! ```
//! # use ringside_pmd::worker::{Polled, Worker};
//! # use std::time::Duration;
//! let worker = Worker::start(None, 16, || 0_u64, |count| {
//!     *count += 1; // here: poll completions, post what follows, ring
//!     Polled::Idle
//! })?;
//! let so_far = worker.ask(|count| *count, Duration::from_secs(5))?;
//! let state = worker.stop(Duration::from_secs(5))?;
//! assert!(state >= so_far);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod flags;
mod inbox;
mod policy;
mod polled;
mod request;
mod round;
mod sync;

pub use error::{AskError, SendError, StopError, WorkerError};
pub use inbox::{Handle, Statistics};
pub use policy::{NoInterrupt, Policy, Sleeper};
pub use polled::Polled;
pub use request::Request;

use crate::Returned;
use inbox::Shared;
use ringside_bus::pinning::pin_to;
use ringside_bus::process::Birth;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for a worker that is dropped instead of stopped.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// A running worker; the one that can stop it. See the [module](self).
///
/// Dropping it stops the worker too, but the state is then dropped unseen; [`Worker::stop`] hands
/// it back.
#[derive(Debug)]
#[must_use = "a worker that is dropped stops"]
pub struct Worker<S: Send + 'static> {
    handle: Handle<S>,
    /// Gone once the worker was stopped.
    thread: Option<JoinHandle<()>>,
    birth: Birth,
}

impl<S: Send + 'static> Worker<S> {
    /// Starts a thread, pins it to `core` (`None`: wherever the system puts it), makes the state
    /// there, so that its memory is near, and polls until the worker is stopped.
    ///
    /// Returns once the state is made, so it takes as long as `make_state` does. `inbox`: requests
    /// kept waiting at most, 1..=65_536; 0 counts as 1.
    ///
    /// # Errors
    /// The inbox is too large, the core cannot be used, there is no thread to be had, or
    /// `make_state` panicked. Nothing is left running.
    pub fn start(
        core: Option<usize>,
        inbox: usize,
        make_state: impl FnOnce() -> S + Send + 'static,
        poll: impl FnMut(&mut S) -> Polled + Send + 'static,
    ) -> Result<Self, WorkerError> {
        Self::start_with(Policy::Busy, core, inbox, make_state, poll)
    }

    /// The same with a policy for idle times.
    ///
    /// # Errors
    /// Those of [`Worker::start`]; a policy that sleeps also needs a file descriptor.
    pub fn start_with(
        policy: Policy<S>,
        core: Option<usize>,
        inbox: usize,
        make_state: impl FnOnce() -> S + Send + 'static,
        poll: impl FnMut(&mut S) -> Polled + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let name = core.map_or_else(|| "worker".into(), |core| format!("worker-{core}"));
        Self::start_named(name, policy, core, inbox, make_state, poll)
    }

    /// The same on a thread of this name, of which the system keeps 15 bytes.
    ///
    /// # Errors
    /// Those of [`Worker::start_with`].
    pub fn start_named(
        name: impl Into<String>,
        policy: Policy<S>,
        core: Option<usize>,
        inbox: usize,
        make_state: impl FnOnce() -> S + Send + 'static,
        poll: impl FnMut(&mut S) -> Polled + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let name = name.into();
        if name.contains('\0') {
            let reason = format!("its name {name:?} has a NUL byte");
            return Err(WorkerError::NoThread { reason });
        }
        let sleeps = matches!(policy, Policy::BusyThenSleep { .. });
        let shared = Arc::new(Shared::new(inbox, sleeps)?);
        let (started, starting) = mpsc::sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let run = move || {
            if let Some(Err(error)) = core.map(pin_to) {
                let _ = started.send(Err(WorkerError::from(error)));
                return;
            }
            match catch_unwind(AssertUnwindSafe(make_state)) {
                Ok(state) => {
                    let _ = started.send(Ok(()));
                    round::run(&of_thread, state, poll, policy);
                }
                Err(payload) => {
                    let text = round::panic_text(&*payload);
                    let _ = started.send(Err(WorkerError::NoState { text }));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(|error| WorkerError::NoThread {
                reason: error.to_string(),
            })?;
        let outcome = starting.recv().unwrap_or_else(|_| {
            Err(WorkerError::NoThread {
                reason: "it ended before it began".into(),
            })
        });
        if let Err(error) = outcome {
            let _ = thread.join();
            return Err(error);
        }
        Ok(Self {
            handle: Handle::new(shared),
            thread: Some(thread),
            birth: Birth::now(),
        })
    }

    /// A handle for another core: it sends requests and questions, and cannot stop the worker.
    pub fn handle(&self) -> Handle<S> {
        self.handle.clone()
    }

    /// See [`Handle::send`].
    ///
    /// # Errors
    /// See [`Handle::send`].
    pub fn send(&self, request: impl FnOnce(&mut S) + Send + 'static) -> Result<(), SendError<S>> {
        self.handle.send(request)
    }

    /// See [`Handle::ask`].
    ///
    /// # Errors
    /// See [`Handle::ask`].
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> T + Send + 'static,
        limit: Duration,
    ) -> Result<T, AskError> {
        self.handle.ask(question, limit)
    }

    /// Its counts so far. The numbers are read one by one while it works.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.handle.statistics()
    }

    /// Stops the worker after the requests that are already in its inbox, and hands back the state.
    ///
    /// # Errors
    /// A poll or a request panicked: the state is returned as the panic left it. Or the poll
    /// closure or a request did not return within `limit`: the worker is returned, with the stop
    /// still requested, and can be stopped again.
    pub fn stop(mut self, limit: Duration) -> Result<S, StopError<S>> {
        self.handle.tell_to_stop();
        let Some(ended) = self.handle.take_ended(limit) else {
            return Err(StopError::Late {
                limit,
                worker: Returned::new(self),
            });
        };
        if let Some(thread) = self.thread.take() {
            // Short: all that is left to it after "ended" is to return.
            let _ = thread.join();
        }
        match ended.panic {
            None => Ok(ended.state),
            Some(text) => Err(StopError::Panicked {
                text,
                state: Returned::new(ended.state),
            }),
        }
    }
}

impl<S: Send + 'static> Drop for Worker<S> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            if !self.birth.is_here() {
                // The thread stayed in the process that started it.
                std::mem::forget(thread);
                return;
            }
            self.handle.tell_to_stop();
            match self.handle.take_ended(DROP_WAIT) {
                Some(_) => drop(thread.join()),
                None => tracing::error!(
                    "a worker was dropped while its poll or a request did not return; its thread and its objects are leaked"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests;
