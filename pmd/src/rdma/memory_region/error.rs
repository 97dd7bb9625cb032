//! Errors of making, changing and deregistering regions.

use super::MemoryRegion;
use crate::control::ControlError;
use crate::rdma::RdmaError;
use ringside_bus::DmaBuffer;

/// A registration that failed, with the memory that was to be registered.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct RegisterError {
    /// The error.
    #[source]
    pub error: RdmaError,
    /// The memory; empty when it is kept because the device may use it.
    pub buffers: Vec<DmaBuffer>,
}

pub(super) fn in_use(error: &RdmaError) -> String {
    match error.is_refusal_by_device() {
        true => format!(
            "the region is still in use: invalidate or drop the memory windows on it first ({})",
            brief(error)
        ),
        false => format!("the region was not deregistered and keeps its memory: {error}"),
    }
}

/// Memory that could not be returned.
#[derive(Debug, thiserror::Error)]
pub enum DeregisterError {
    /// The region is as it was. The device refused because memory windows are bound to it:
    /// invalidate or drop them first. Or the device failed: deregister again after a recovery or
    /// the shutdown.
    #[error("{}", in_use(error))]
    InUse {
        /// The device's answer, or its failure.
        error: RdmaError,
        /// The region.
        region: Box<MemoryRegion>,
    },
    /// The device did not confirm.
    #[error(
        "{bytes} bytes of memory are kept until the shutdown, because the device did not confirm that it no longer uses them: {error}"
    )]
    Kept {
        /// The error.
        error: RdmaError,
        /// Bytes kept.
        bytes: usize,
    },
}

/// A registration that was not changed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReregisterError {
    /// The error.
    #[source]
    pub error: Box<dyn std::error::Error + Send + Sync>,
    /// The region as it was; none if its memory had to be kept, or if only a part of the change was
    /// made.
    pub region: Option<Box<MemoryRegion>>,
}

impl std::fmt::Debug for RegisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisterError")
            .field("error", &self.error)
            .field("buffers", &self.buffers.len())
            .finish()
    }
}

/// A refusal without the remedy for refusals of any kind.
fn brief(error: &RdmaError) -> String {
    match error {
        RdmaError::Control(ControlError::Refused { opcode, failure }) => {
            let (major, minor) = failure.codes();
            format!("the device refused {opcode:?}: major {major:#06x}, minor {minor:#06x}")
        }
        other => other.to_string(),
    }
}
