//! Errors of a PCI function.

use crate::refusal::DmaFault;
use crate::{DeviceAddress, Iova};

/// Why a function did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The device does not answer any more: unplugged, its server gone, or its thread dead.
    #[error("{device}: the device is gone ({reason}); claim it again once it is back")]
    Gone {
        /// Its address.
        device: DeviceAddress,
        /// The observations.
        reason: String,
    },
    /// The backend did not answer within the deadline.
    #[error(
        "{device}: no answer to {request} within {waited_ms} ms; reset the device and claim it again"
    )]
    TimedOut {
        /// Its address.
        device: DeviceAddress,
        /// The request.
        request: String,
        /// The time waited.
        waited_ms: u64,
    },
    /// An offset or width that the region does not have.
    #[error(
        "{region}: {width} bytes at {offset:#x} are not in its {size:#x} bytes; this is a bug of the caller"
    )]
    OutOfRange {
        /// The region, such as `configuration space` or `BAR 0`.
        region: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        width: u64,
        /// Size of the region.
        size: u64,
    },
    /// The mapping was refused.
    #[error("DMA mapping of {length:#x} bytes at {iova}: {reason}")]
    Mapping {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
        /// Why, and what to do.
        reason: String,
    },
    /// The operating system refused.
    #[error("{operation}: {error}; {remedy}")]
    System {
        /// The attempt.
        operation: String,
        /// The system's own words.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The device touched memory that it had not been given.
    #[error("the device touched memory that it was not given: {0}")]
    Fault(#[from] DmaFault),
    /// This backend cannot do that.
    #[error("{backend} cannot {operation}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The request.
        operation: String,
    },
}
