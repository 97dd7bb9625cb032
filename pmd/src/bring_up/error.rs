//! Reasons for a failed bring-up, and the state of the device afterwards.

use super::{Missing, Undo};
use crate::admin::AdminError;
use crate::failure::FailureCause;
use crate::rdma::{RdmaError, RdmaStageError};
use crate::trace::Trace;
use ringside_bus::config_space::ConfigSpaceError;
use ringside_bus::{DeviceAddress, FunctionError, MemoryError};
use ringside_config::LinkSpeed;

/// The reason why a stage failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StageError {
    /// An access to the function failed.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// Configuration space makes no sense.
    #[error(transparent)]
    ConfigSpace(#[from] ConfigSpaceError),
    /// There is no memory for the device.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A command of the firmware failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// An RDMA stage failed.
    #[error(transparent)]
    Rdma(#[from] RdmaStageError),
    /// The device did not become ready in time.
    #[error("{what}: register {offset:#08x} still reads {value:#x} after {waited_ms} ms; {remedy}")]
    NotReady {
        /// The awaited condition.
        what: &'static str,
        /// The register that reports it, bytes in BAR 0.
        offset: u64,
        /// The last value read.
        value: u32,
        /// The time waited.
        waited_ms: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// The device cannot be used, or not like this.
    #[error("{what}; {remedy}")]
    Unusable {
        /// The device's answer, and its error.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// The device reported something that takes it out of service.
    #[error("the device failed while it was brought up: {cause}; bring it up once more")]
    FailedMeanwhile {
        /// Its report.
        cause: FailureCause,
    },
    /// An earlier stage did not provide a value that this one needs: a bug of this driver.
    #[error(transparent)]
    OutOfOrder(#[from] Missing),
    /// A stage was named that does not exist.
    #[error("there is no stage '{name}'; stages are: {}", names.join(", "))]
    NoSuchStage {
        /// The given name.
        name: String,
        /// The stages that exist.
        names: Vec<&'static str>,
    },
    /// The stage was to fail (`--fail-at`).
    #[error("the stage was asked to fail (--fail-at); nothing is wrong with the device")]
    Injected,
}

impl StageError {
    /// Neither port nor module can do the configured speed.
    pub(crate) fn unsupported_speed(speed: LinkSpeed) -> Self {
        let speed = match speed.megabits_per_second() {
            Some(megabits) => format!("{}G", megabits / 1000),
            None => "auto".to_owned(),
        };
        Self::Unusable {
            what: format!("port and module do not support the link speed {speed}"),
            remedy: "set link.speed to \"auto\", or use another module or cable".to_owned(),
        }
    }
}

impl From<RdmaError> for StageError {
    fn from(error: RdmaError) -> Self {
        Self::Rdma(error.into())
    }
}

/// An undo that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{undo}: {error}")]
pub struct UndoFailure {
    /// The undo.
    pub undo: Undo,
    /// The error.
    pub error: StageError,
}

/// A bring-up that failed. Its `Debug` form leaves the trace out: see [`BringUpError::trace`].
#[derive(Clone, thiserror::Error)]
pub struct BringUpError {
    /// The device.
    pub device: DeviceAddress,
    /// The stage that failed.
    pub stage: &'static str,
    /// The cause.
    #[source]
    pub cause: StageError,
    /// The undos performed, in that order.
    pub undone: Vec<Undo>,
    /// The undos that failed.
    pub undo_failures: Vec<UndoFailure>,
    /// Memory given up because the device may still write to it, bytes.
    pub leaked_bytes: usize,
    /// The results of the stages, the unwinding last.
    pub trace: Trace,
}

impl std::fmt::Debug for BringUpError {
    /// Short, because a `main` that returns the error prints this.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BringUpError")
            .field("message", &self.to_string())
            .field("cause", &self.cause)
            .field("undone", &self.undone.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Display for BringUpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            device,
            stage,
            cause,
            ..
        } = self;
        write!(f, "{device}: bring-up failed at stage {stage}: {cause}")?;
        match self.undo_failures.as_slice() {
            [] => write!(f, "; the device was left as it was found"),
            failures => {
                write!(f, "; the device was not left as it was found:")?;
                for failure in failures {
                    write!(f, " [{failure}]")?;
                }
                write!(f, "; reset it before it is used again")
            }
        }?;
        match self.leaked_bytes {
            0 => Ok(()),
            bytes => write!(
                f,
                "; {bytes} bytes of memory stay pinned, because the device may still write to them, until this process ends"
            ),
        }
    }
}
