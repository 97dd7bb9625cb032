//! Errors of a PCI function.

use crate::refusal::DmaFault;
use crate::sysfs::Holder;
use crate::{DeviceAddress, Iova};

/// Reasons why a function did not carry out a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The device no longer responds: it was unplugged, or its server or thread has ended.
    #[error(
        "{device}: the device no longer responds ({reason}); claim it again when it is available"
    )]
    Gone {
        /// Its address.
        device: DeviceAddress,
        /// The observation from which the backend concludes that the device is gone.
        reason: String,
    },
    /// The period of service of the device that the caller belongs to has ended.
    #[error("{device}: its period of service has ended; open ports again once it is recovered")]
    Ended {
        /// Its address.
        device: DeviceAddress,
    },
    /// Another client has the device, perhaps of this process.
    #[error(
        "{device}: the function is in use by {}; a function has one owner at a time: {}, or use \
         another function's socket",
        .owner.as_ref().map_or_else(
            || "another process, which its server does not name".to_owned(),
            |owner| match owner.is_this_process() {
                true => format!("this process itself (pid {})", owner.pid),
                false => owner.to_string(),
            }
        ),
        remedy(.owner.as_slice(), "end that process")
    )]
    InUse {
        /// Its address.
        device: DeviceAddress,
        /// The process that has it, if its server names it.
        owner: Option<Holder>,
    },
    /// No server could be reached at a socket.
    #[error("connecting to {path}: {error}; {remedy}")]
    NoServer {
        /// The socket.
        path: String,
        /// The errno value of the attempt.
        errno: i32,
        /// The operating system's message.
        error: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The backend did not answer within the deadline.
    #[error(
        "{device}: no answer to {request} within {waited_ms} ms; reset the device and claim it \
         again"
    )]
    TimedOut {
        /// Its address.
        device: DeviceAddress,
        /// The request.
        request: String,
        /// The time waited.
        waited_ms: u64,
    },
    /// The region does not have this offset or width.
    #[error(
        "{region}: {width} bytes at {offset:#x} are not in its {size:#x} bytes; this is a bug of \
         the caller"
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
    /// The IOMMU or the backend refused the mapping.
    #[error("DMA mapping of {length:#x} bytes at {iova}: {reason}")]
    Mapping {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
        /// Reason and remedy.
        reason: String,
    },
    /// The operating system refused the operation.
    #[error("{operation}: {error}; {remedy}")]
    System {
        /// The operation.
        operation: String,
        /// The operating system's message.
        error: String,
        /// The remedy.
        remedy: String,
    },
    /// The device was opened by another process: this one is its child by `fork`.
    #[error(
        "{device} was opened in process {made_in} and this is process {this}, a child by fork: a \
         device stays with the process that opened it; open one here, or open it after the fork"
    )]
    OtherProcess {
        /// Its address.
        device: DeviceAddress,
        /// The process that opened it.
        made_in: u32,
        /// This process.
        this: u32,
    },
    /// The device accessed memory that is not mapped for it.
    #[error("the device accessed memory that is not mapped for it: {0}")]
    Fault(#[from] DmaFault),
    /// The backend does not support the operation.
    #[error("{backend} cannot {operation}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The operation.
        operation: String,
    },
}

/// The remedy for a function that these processes have claimed; `otherwise` if this one is not
/// among them.
pub(crate) fn remedy(holders: &[Holder], otherwise: &'static str) -> &'static str {
    match holders.iter().any(Holder::is_this_process) {
        true => "shut the device down here, and drop all of its objects, packets and pools",
        false => otherwise,
    }
}
