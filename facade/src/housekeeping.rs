//! The housekeeping thread of an opened device.
//!
//! It sleeps on the miscellaneous interrupt, or for a short time if the device has none. After each
//! wake-up it takes the device's events, has the queues of failed queue pairs flushed, checks the
//! device's health, recovers a failed device, and starts its IP stack again, also one that has
//! panicked. Pollers learn of a flush through the inboxes of their completion queues, so the data
//! path never waits for this thread.

mod handoff;
mod neighbours;
mod rounds;
mod served;
mod serving;
mod told;

pub(crate) use neighbours::Neighbours;
pub use served::{Driver, Events};
pub(crate) use served::{Observer, Served};

use ringside_bus::process::Birth;
use ringside_config::{Core, HousekeepingSection};
use rounds::Rounds;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait for the end of the thread. It may be in a recovery, each step of which has a
/// deadline.
const END_LIMIT: Duration = Duration::from_secs(120);

/// The interval at which the end of the thread is checked.
const END_STEP: Duration = Duration::from_millis(1);

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Housekeeper {
    served: Arc<Served>,
    thread: Option<JoinHandle<()>>,
    birth: Birth,
}

impl Housekeeper {
    /// Starts the thread.
    pub(crate) fn start(
        served: &Arc<Served>,
        section: &HousekeepingSection,
    ) -> Result<Self, std::io::Error> {
        let mut rounds = Rounds::new(Arc::clone(served), section);
        let core = match section.core {
            Core::Pinned(core) => Some(core as usize),
            Core::Any => None,
        };
        let thread = std::thread::Builder::new()
            .name("ringside-house".to_owned())
            .spawn(move || {
                if let Some(core) = core
                    && let Err(error) = ringside_bus::pinning::pin_to(core)
                {
                    tracing::warn!(%error, "the housekeeping thread is not pinned");
                }
                rounds.run();
            })?;
        Ok(Self {
            served: Arc::clone(served),
            thread: Some(thread),
            birth: Birth::now(),
        })
    }

    /// Ends the thread. False if it did not end in time; it then ends later by itself.
    fn stop(&mut self) -> bool {
        if !self.birth.is_here() {
            // In a child by fork: the thread stayed in the process that started it.
            std::mem::forget(self.thread.take());
            return false;
        }
        self.served.handoff.stop();
        let Some(thread) = self.thread.take() else {
            return true;
        };
        let deadline = Instant::now() + END_LIMIT;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::error!(
                    waited_s = END_LIMIT.as_secs(),
                    "the housekeeping thread does not end; the device is shut down once it does"
                );
                return false;
            }
            std::thread::sleep(END_STEP);
        }
        if thread.join().is_err() {
            tracing::error!("the housekeeping thread had panicked; report this as a bug");
        }
        true
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.stop();
    }
}
