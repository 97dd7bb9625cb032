//! The action of a worker without work.

use ringside_config::{Polling, WorkerSection};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The way in which a worker waits for work.
pub enum Policy<S> {
    /// It polls on: the shortest latency, a core for itself.
    Busy,
    /// It polls on, and lets other threads run between two polls once it has been idle for so long.
    BusyThenYield {
        /// The idle time before.
        idle: Duration,
    },
    /// The worker sleeps until an interrupt or a request, once it has been idle for a time.
    BusyThenSleep {
        /// The idle time before.
        idle: Duration,
        /// The longest sleep: events without an interrupt are found after it.
        longest: Duration,
        /// Its means of waking.
        sleeper: Box<dyn Sleeper<S>>,
    },
}

impl<S> Policy<S> {
    /// The policy of a configuration.
    #[must_use]
    pub fn of(section: &WorkerSection, sleeper: impl Sleeper<S> + 'static) -> Self {
        let idle = Duration::from_micros(section.idle_us);
        match section.polling {
            Polling::Busy => Self::Busy,
            Polling::BusyThenYield => Self::BusyThenYield { idle },
            Polling::BusyThenSleep => Self::BusyThenSleep {
                idle,
                longest: Duration::from_millis(section.sleep_ms),
                sleeper: Box::new(sleeper),
            },
        }
    }
}

impl<S> std::fmt::Debug for Policy<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Busy => "Busy",
            Self::BusyThenYield { .. } => "BusyThenYield",
            Self::BusyThenSleep { .. } => "BusyThenSleep",
        })
    }
}

/// The means of waking a sleeping worker. All of it runs on the worker's thread.
///
/// With packet queues: [`PacketSleeper`](crate::lan::port::PacketSleeper). With completion queues:
/// `arm` arms them and polls them once more, `interrupt` is that of
/// [`Interrupts`](crate::rdma::Interrupts), `woken` takes the interrupt and the completion events.
/// It may poll first: taking is two register writes, and those are slow where registers are not
/// mapped. The worker polls once more after it either way.
pub trait Sleeper<S>: Send {
    /// Ensures that any later event ends the worker's sleep. False if an event has arrived already:
    /// the worker then polls instead.
    fn arm(&mut self, state: &mut S) -> bool;

    /// The descriptor that becomes readable at an event. Without one, only requests and the longest
    /// sleep end a sleep.
    fn interrupt<'s>(&self, state: &'s S) -> Option<BorrowedFd<'s>>;

    /// Called when the worker is awake again; `interrupted` is true if the descriptor is readable.
    fn woken(&mut self, state: &mut S, interrupted: bool);

    /// Called at the first poll that finds work since the last [`arm`](Self::arm): the worker polls
    /// for a while. Whatever ended the sleep, the events may still be armed.
    fn worked(&mut self, _state: &mut S) {}

    /// The longest sleep in this state, from the policy's. For a state that has something to do by
    /// itself sooner.
    fn longest(&self, _state: &S, policy: Duration) -> Duration {
        policy
    }
}

/// An event source without events: for workers whose policy never sleeps.
#[derive(Clone, Copy, Debug)]
pub struct NoInterrupt;

impl<S> Sleeper<S> for NoInterrupt {
    fn arm(&mut self, _: &mut S) -> bool {
        true
    }

    fn interrupt<'s>(&self, _: &'s S) -> Option<BorrowedFd<'s>> {
        None
    }

    fn woken(&mut self, _: &mut S, _: bool) {}
}
