//! The result of a recovery.

use super::FailureCause;
use crate::bring_up::{BringUpError, StageError};
use crate::trace::Trace;
use ringside_bus::FunctionError;
use std::time::Duration;

/// A part of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryStage {
    /// `contain`, `reset`, `release` or `bring-up`.
    pub stage: &'static str,
    /// The duration.
    pub took: Duration,
}

/// A recovery that succeeded. Its `Debug` form leaves the trace out: see [`RecoveryReport::trace`].
#[derive(Clone)]
pub struct RecoveryReport {
    /// The cause of the recovery.
    pub cause: FailureCause,
    /// The number of this period of service, from 2.
    pub life: u32,
    /// The total time of all stages.
    pub took: Duration,
    /// The stages, in order. Outstanding requests completed in the first, or when the failure was
    /// noticed; those of a device that did not answer until its reset, in the third.
    pub stages: Vec<RecoveryStage>,
    /// Queue pairs that existed when the device failed.
    pub queue_pairs: usize,
    /// Bytes that had been kept from reuse (quarantined, or given up) and are free again.
    pub reclaimed_bytes: usize,
    /// The result of the bring-up.
    pub trace: Trace,
}

impl std::fmt::Debug for RecoveryReport {
    /// Fits a screen.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoveryReport")
            .field("cause", &self.cause)
            .field("life", &self.life)
            .field("took", &self.took)
            .field("stages", &self.stages)
            .field("queue_pairs", &self.queue_pairs)
            .field("reclaimed_bytes", &self.reclaimed_bytes)
            .finish_non_exhaustive()
    }
}

/// A recovery that failed. The device is out of service; outstanding requests have completed if it
/// writes no more ([`Device::is_contained`](crate::Device::is_contained)).
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecoverError {
    /// The device took no reset. Memory that it may still use stays as it is.
    #[error(
        "the device failed ({cause}) and takes no reset: {error}; call recover again later, or shut it down and claim it again"
    )]
    NotReset {
        /// The cause of the failure.
        cause: FailureCause,
        /// The reason why it was not reset.
        error: StageError,
    },
    /// Other threads use the device, which a recovery needs for itself.
    #[error(
        "the device failed ({cause}) and was in use by other threads for {waited_ms} ms: drop what Device::driver returned, then call recover again"
    )]
    InUse {
        /// The cause of the failure.
        cause: FailureCause,
        /// The time waited, ms.
        waited_ms: u64,
    },
    /// The device belongs to another process.
    #[error(transparent)]
    OtherProcess(FunctionError),
    /// It was reset, and does not come up.
    #[error(
        "the device failed ({cause}), was reset, and does not come up: {error}; call recover again later"
    )]
    NotBroughtUp {
        /// The cause of the failure.
        cause: FailureCause,
        /// The reason why it does not come up.
        error: Box<BringUpError>,
    },
}

impl RecoverError {
    /// The cause of the device's failure.
    #[must_use]
    pub const fn cause(&self) -> FailureCause {
        match self {
            Self::NotReset { cause, .. }
            | Self::InUse { cause, .. }
            | Self::NotBroughtUp { cause, .. } => *cause,
            Self::OtherProcess(_) => FailureCause::Requested,
        }
    }
}
