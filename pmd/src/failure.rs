//! Causes of a device's failure.

use serde::Serialize;
use std::fmt;

/// The cause for which a device must be brought up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCause {
    /// Other software reset the function: its control queue pair is destroyed.
    FunctionReset,
    /// A core reset: the LAN engine of the whole card. Source: `GLGEN_RSTAT`, CORERCNT.
    CoreReset,
    /// A global reset: MAC and PHY as well. Source: `GLGEN_RSTAT`, GLOBRCNT.
    GlobalReset,
    /// A reset of the firmware as well. Source: `GLGEN_RSTAT`, EMPRCNT.
    FirmwareReset,
    /// An error of the host memory cache. Source: `PFINT_OICR`, HMC_ERR; `PFHMC_ERRORINFO`.
    HostMemoryCache {
        /// Kind of error, 0..=15.
        error_type: u8,
        /// Kind of object, 0..=31.
        object_type: u8,
        /// `PFHMC_ERRORDATA`.
        data: u32,
    },
    /// The RDMA engine reported a critical error. Source: `PFINT_OICR`, PE_CRITERR; `GLPE_CRITERR`.
    CriticalError {
        /// `GLPE_CRITERR`.
        code: u32,
    },
    /// Memory of the card failed, uncorrectably. Source: `PFINT_OICR`, ECC_ERR.
    MemoryError,
    /// The bus refused the card something, its accesses to memory for instance. Source:
    /// `PFINT_OICR`, PCI_EXCEPTION; ice `ice_main.c`, `ice_misc_intr`, resets the function as well.
    PciException,
    /// The RDMA engine reported that the whole function failed. Source: irdma `defs.h`,
    /// IRDMA_AE_RESERVED and neighbours; see [`ringside_spec::rdma::ae_codes::AeCode`].
    FunctionFailed {
        /// Code of the asynchronous event.
        code: u16,
    },
    /// The asynchronous event queue of the RDMA engine overflowed: failures of queue pairs may have
    /// been lost, whose requests would never complete.
    EventsLost,
    /// The firmware did not answer an admin command within its deadline.
    FirmwareSilent,
    /// The RDMA engine did not answer a command within its deadline, or its answer made no sense.
    ControlQueueSilent,
    /// The RDMA engine neither moved a queue pair to its error state nor destroyed it: only a reset
    /// takes the queue pair's memory from it.
    QueuePairStays {
        /// Number of the queue pair.
        number: u32,
    },
    /// The device does not respond on the bus: registers read all ones, or the backend reports it.
    Gone,
    /// The user requested it.
    Requested,
}

impl FailureCause {
    /// A short name, the same in reports and tests.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FunctionReset => "function-reset",
            Self::CoreReset => "core-reset",
            Self::GlobalReset => "global-reset",
            Self::FirmwareReset => "firmware-reset",
            Self::HostMemoryCache { .. } => "hmc-error",
            Self::CriticalError { .. } => "critical-error",
            Self::MemoryError => "memory-error",
            Self::PciException => "pci-exception",
            Self::FunctionFailed { .. } => "function-failed",
            Self::EventsLost => "events-lost",
            Self::FirmwareSilent => "firmware-silent",
            Self::ControlQueueSilent => "control-queue-silent",
            Self::QueuePairStays { .. } => "queue-pair-stays",
            Self::Gone => "gone",
            Self::Requested => "requested",
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FunctionReset => f.write_str("other software reset the function"),
            Self::CoreReset => f.write_str("a core reset"),
            Self::GlobalReset => f.write_str("a global reset"),
            Self::FirmwareReset => f.write_str("a reset of the firmware"),
            Self::HostMemoryCache {
                error_type,
                object_type,
                data,
            } => write!(
                f,
                "an error of the host memory cache (kind {error_type}, object {object_type}, data {data:#x})"
            ),
            Self::CriticalError { code } => {
                write!(f, "a critical error of the RDMA engine ({code:#010x})")
            }
            Self::MemoryError => f.write_str("an uncorrectable memory error of the card"),
            Self::PciException => f.write_str(
                "the bus refused the card something: its accesses to memory, for instance",
            ),
            Self::FunctionFailed { code } => {
                write!(
                    f,
                    "the RDMA engine gave the function up (event {code:#06x})"
                )
            }
            Self::EventsLost => f.write_str(
                "the asynchronous event queue overflowed: take events more often, or have the housekeeping thread take them",
            ),
            Self::FirmwareSilent => f.write_str("the firmware stopped answering"),
            Self::ControlQueueSilent => f.write_str("the RDMA engine stopped answering commands"),
            Self::QueuePairStays { number } => write!(
                f,
                "the RDMA engine refused to stop queue pair {number} and to destroy it"
            ),
            Self::Gone => f.write_str("the device does not respond on the bus"),
            Self::Requested => f.write_str("it was requested"),
        }
    }
}
