//! The loop of an application: it takes events and recovers the device.

use super::{FailureCause, RecoverError, RecoveryReport};
use crate::Device;
use crate::rdma::{Event, RdmaError};
use ringside_bus::clock::Instant;
use std::time::Duration;

/// The interval at which counters are read. At 100 Gbit/s one of 32 bits wraps in 28 s if it counts
/// every packet, and one of 40 bits in 88 s if it counts bytes.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// Settings of the supervision of a device. Default: a probe each second, and a recovery attempt
/// each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supervision {
    /// The interval at which firmware and RDMA engine are probed.
    pub probe_every: Duration,
    /// The wait after a failed recovery. A device that fails again within 10 s of a recovery is
    /// recovered at once four times; after that it waits this time, and twice as long each
    /// further time, up to 32 times as long.
    pub retry_after: Duration,
    next_probe: Option<Instant>,
    next_sample: Option<Instant>,
    next_try: Option<Instant>,
}

impl Default for Supervision {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(1))
    }
}

impl Supervision {
    /// Probes and retries at these intervals.
    #[must_use]
    pub const fn new(probe_every: Duration, retry_after: Duration) -> Self {
        Self {
            probe_every,
            retry_after,
            next_probe: None,
            next_sample: None,
            next_try: None,
        }
    }

    /// True if the counters are to be read now. The first interval begins with the first call.
    fn may_sample(&mut self, now: Instant) -> bool {
        let is_due = self.next_sample.is_some_and(|next| now >= next);
        if is_due || self.next_sample.is_none() {
            self.next_sample = Some(now.plus(SAMPLE_EVERY));
        }
        is_due
    }

    /// True if a recovery may be tried now.
    fn may_try(&self, now: Instant) -> bool {
        self.next_try.is_none_or(|next| now >= next)
    }
}

/// The result of a call of [`Device::supervise`].
#[derive(Debug)]
pub enum Supervised {
    /// The device is in service.
    InService,
    /// It failed, and is in service again: make its objects again.
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
    pub fn supervise(
        &mut self,
        supervision: &mut Supervision,
        events: &mut Vec<Event>,
    ) -> Result<Supervised, RdmaError> {
        let Some(cause) = self.observe(supervision, events)? else {
            return Ok(Supervised::InService);
        };
        Ok(self.recover_in_turn(supervision, cause))
    }

    /// Takes events and looks after the device, and returns why it failed, if it did. The first
    /// half of [`Device::supervise`], for a thread that shares the device with others; the second
    /// is [`Device::recover_in_turn`]. Every 10 s it reads the device's counters, so that
    /// [`Device::statistics`] and [`Vsi::statistics`](crate::lan::Vsi::statistics) miss no wrap.
    ///
    /// Control path. Errors: those of [`Device::poll_events`] other than that the device failed.
    pub fn observe(
        &self,
        supervision: &mut Supervision,
        events: &mut Vec<Event>,
    ) -> Result<Option<FailureCause>, RdmaError> {
        let now = self.context().clock().now();
        let mut seen = None;
        if self.failure().is_none() {
            if supervision.next_probe.is_none_or(|next| now >= next) {
                supervision.next_probe = Some(now.plus(supervision.probe_every));
                self.probe();
                self.context().ports.refresh_clock();
            }
            match self.poll_events(events) {
                Ok(_) | Err(RdmaError::DeviceFailed { .. }) => {}
                // Safe mode has no events.
                Err(RdmaError::Unavailable { .. }) => seen = self.check(),
                Err(error) => return Err(error),
            }
            // Of a device that has failed, each reading may take as long as its deadline.
            if seen.is_none() && self.failure().is_none() && supervision.may_sample(now) {
                self.sample_counters();
            }
        }
        let cause = self.failure().or(seen);
        if cause.is_some() {
            // The event may not have been taken yet.
            let _ = self.poll_events(events);
        }
        Ok(cause)
    }

    /// Reads the counters of the RDMA engine and the port, before they wrap.
    fn sample_counters(&self) {
        if !self.context().ports.sample_counters() {
            return;
        }
        match self.statistics() {
            Ok(_) | Err(RdmaError::Unavailable { .. }) => {}
            Err(error) => tracing::debug!(%error, "the counters were not read"),
        }
    }

    /// Recovers the device from a failure that [`Device::observe`] returned, unless the last
    /// attempt is too recent, or the device failed again soon after several recoveries: see
    /// [`Supervision::retry_after`].
    ///
    /// Control path: as long as a recovery takes.
    pub fn recover_in_turn(
        &mut self,
        supervision: &mut Supervision,
        cause: FailureCause,
    ) -> Supervised {
        let now = self.context().clock().now();
        if self.failure().is_none() {
            self.down = Some(cause);
        }
        self.context_mut().flush_owed();
        if !self.series.is_due(now, supervision.retry_after) || !supervision.may_try(now) {
            return Supervised::Waiting(cause);
        }
        match self.recover() {
            Ok(report) => {
                supervision.next_try = None;
                Supervised::Recovered(Box::new(report))
            }
            Err(error) => {
                let now = self.context().clock().now();
                supervision.next_try = Some(now.plus(supervision.retry_after));
                Supervised::Failing(error)
            }
        }
    }
}
