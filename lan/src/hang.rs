//! Notices a transmit queue that the device no longer works on.

use crate::transmit::TransmitQueue;
use ringside_bus::Instant;
use std::time::Duration;
use thiserror::Error;

/// A transmit queue that does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a transmit queue does not move: {descriptors} descriptors have waited {} ms for the device; \
     check the link and pause frames, else recover the device",
    waited.as_millis()
)]
pub struct Hang {
    /// Descriptors that the device has not reported done.
    pub descriptors: u16,
    /// Time since the device last reported one, or since the first of them was sent.
    pub waited: Duration,
}

/// Watches one transmit queue. Control path: a look every now and then, such as twice a second, by
/// the core that owns the queue.
#[derive(Clone, Copy, Debug)]
pub struct HangWatch {
    limit: Duration,
    /// descriptors that were done at the last check with progress, and its time
    last: Option<(u64, Instant)>,
}

impl HangWatch {
    /// A watch that finds a queue hung when descriptors wait in it and none was done for `limit`.
    /// Linux takes 5 seconds.
    #[must_use]
    pub const fn new(limit: Duration) -> Self {
        Self { limit, last: None }
    }

    /// Checks the queue; returns its state if it hangs.
    ///
    /// Reclaims finished descriptors first, so that an idle core's queue does not count as hanging.
    pub fn look(&mut self, queue: &mut TransmitQueue, now: Instant) -> Option<Hang> {
        queue.reclaim();
        let descriptors = queue.outstanding();
        if descriptors == 0 {
            self.last = None;
            return None;
        }
        match self.last {
            Some((done, since)) if done == queue.done() => {
                let waited = now.since(since);
                (waited >= self.limit).then_some(Hang {
                    descriptors,
                    waited,
                })
            }
            _ => {
                self.last = Some((queue.done(), now));
                None
            }
        }
    }
}
