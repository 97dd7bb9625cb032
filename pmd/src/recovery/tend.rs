//! The loop that an application wants: events in, recovery done.

use super::{FailureCause, RecoverError, RecoveryReport};
use crate::Device;
use crate::rdma::{Event, RdmaError};
use ringside_bus::clock::Instant;
use std::time::Duration;

/// How a device is tended. Default: a probe each second, and recovery tried again after each
/// second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tending {
    /// How often firmware and RDMA engine are asked for a sign of life.
    pub probe_every: Duration,
    /// How long to wait after a recovery that failed.
    pub retry_after: Duration,
    next_probe: Option<Instant>,
    next_try: Option<Instant>,
}

impl Default for Tending {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(1))
    }
}

impl Tending {
    /// Probes and retries at these intervals.
    #[must_use]
    pub const fn new(probe_every: Duration, retry_after: Duration) -> Self {
        Self {
            probe_every,
            retry_after,
            next_probe: None,
            next_try: None,
        }
    }
}

/// What a call of [`Device::tend`] found.
#[derive(Debug)]
pub enum Tended {
    /// The device is in service.
    InService,
    /// It failed, and is in service again: make its objects anew.
    Recovered(Box<RecoveryReport>),
    /// It failed and recovery did not succeed; it is tried again after a while.
    Failing(Box<RecoverError>),
    /// It is out of service, and the time for another try has not come.
    Waiting(FailureCause),
}

impl Device {
    /// Takes events, looks after the device, and recovers it if it failed. To be called from time
    /// to time by one thread, in place of [`Device::poll_events`].
    ///
    /// Control path: as long as a recovery takes. Errors: those of [`Device::poll_events`] other
    /// than that the device failed.
    pub fn tend(
        &mut self,
        tending: &mut Tending,
        events: &mut Vec<Event>,
    ) -> Result<Tended, RdmaError> {
        let now = self.context().clock().now();
        if self.failure().is_none() {
            if tending.next_probe.is_none_or(|next| now >= next) {
                tending.next_probe = Some(now.plus(tending.probe_every));
                self.probe();
            }
            match self.poll_events(events) {
                Ok(_) | Err(RdmaError::DeviceFailed { .. }) => {}
                // Safe mode has no events.
                Err(RdmaError::Unavailable { .. }) => self.down = self.check(),
                Err(error) => return Err(error),
            }
        }
        let Some(cause) = self.failure() else {
            return Ok(Tended::InService);
        };
        // The event may not have been taken yet.
        let _ = self.poll_events(events);
        if tending.next_try.is_some_and(|next| now < next) {
            return Ok(Tended::Waiting(cause));
        }
        match self.recover() {
            Ok(report) => {
                tending.next_try = None;
                Ok(Tended::Recovered(Box::new(report)))
            }
            Err(error) => {
                tending.next_try = Some(self.context().clock().now().plus(tending.retry_after));
                Ok(Tended::Failing(error))
            }
        }
    }
}
