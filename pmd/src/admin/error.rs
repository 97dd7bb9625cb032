//! The reason why an admin command failed.

use ringside_bus::{FunctionError, MemoryError};
use ringside_spec::lan::admin::{Opcode, ReturnCode};

/// The reason why an admin command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The firmware did not answer in time. The queue takes no command until it is started again.
    #[error(
        "admin command {:#06x} ({}): no answer within {waited_ms} ms{}; start the queue again, \
         and reset the device if that does not help",
        opcode.code(), opcode.c_name(),
        if *critical { ", and the firmware reports a critical error" } else { "" }
    )]
    TimedOut {
        /// The request.
        opcode: Opcode,
        /// The time waited.
        waited_ms: u64,
        /// The firmware raised the ring's critical error bit.
        critical: bool,
    },
    /// A command before this one was not answered, so this one was not sent.
    #[error(
        "admin command {:#06x} ({}) was not sent: the firmware has stopped answering; start the queue again or reset the device",
        opcode.code(), opcode.c_name()
    )]
    Stopped {
        /// The intended request.
        opcode: Opcode,
    },
    /// The firmware refused the command.
    #[error(
        "admin command {:#06x} ({}): the firmware answered {} ({}); {}",
        opcode.code(), opcode.c_name(), code.c_name(), code.code(), remedy(*code)
    )]
    Refused {
        /// The request.
        opcode: Opcode,
        /// Its answer.
        code: ReturnCode,
    },
    /// The answer makes no sense.
    #[error(
        "admin command {:#06x} ({}): the answer makes no sense: {reason}; update the firmware, or the model that stands in for it",
        opcode.code(), opcode.c_name()
    )]
    Malformed {
        /// The request.
        opcode: Opcode,
        /// The error in the answer.
        reason: String,
    },
    /// More data than a command can carry: a bug of the caller.
    #[error("admin command {:#06x} ({}): {bytes} bytes do not fit the buffer of {limit}; this is a bug of the driver", opcode.code(), opcode.c_name())]
    TooLong {
        /// The intended request.
        opcode: Opcode,
        /// Bytes given.
        bytes: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// The ring did not come up: its registers do not hold the written values.
    #[error("{ring}: {register} reads {value:#x} after {wanted:#x} was written; reset the device")]
    RingDead {
        /// The ring.
        ring: &'static str,
        /// The register.
        register: &'static str,
        /// The written bytes.
        wanted: u32,
        /// The values that it reads.
        value: u32,
    },
    /// Another VSI of the function receives the packets to the address of a single station.
    #[error(
        "VSI {vsi} of this function receives the packets to this address, and a single station's \
         address belongs to one VSI: remove it there first, or choose another"
    )]
    AddressTaken {
        /// The VSI that has it.
        vsi: u16,
    },
    /// There is no memory for the rings.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// An access to the function failed.
    #[error(transparent)]
    Function(#[from] FunctionError),
}

/// The remedy for a code.
fn remedy(code: ReturnCode) -> &'static str {
    match code {
        ReturnCode::NotPermitted => {
            "the function may not do that: check that the driver owns the physical function, and its trust"
        }
        ReturnCode::NoEntry => {
            "the object of the command does not exist: other software changed the firmware's state; bring the device up again"
        }
        ReturnCode::NoMemory | ReturnCode::NoSpace => {
            "the device has none left: lower the configured numbers, or free what other functions hold"
        }
        ReturnCode::Busy => "another function holds the resource: try again later",
        ReturnCode::NotImplemented => {
            "this firmware does not support the command: update the firmware"
        }
        ReturnCode::WrongMode => {
            "not possible in the device's mode (such as link override not allowed)"
        }
        ReturnCode::NoSecurity
        | ReturnCode::BadSignature
        | ReturnCode::SecurityVersion
        | ReturnCode::BadManifest
        | ReturnCode::BadBuffer => {
            "the package is not signed for this device: install the package that fits its firmware"
        }
        _ => "bring the device up again; with --trace the exchange before it is shown",
    }
}

impl AdminError {
    /// An answer that makes no sense.
    pub(crate) fn malformed(opcode: Opcode, reason: impl Into<String>) -> Self {
        Self::Malformed {
            opcode,
            reason: reason.into(),
        }
    }

    /// The return code, if the firmware refused the command.
    #[must_use]
    pub fn code(&self) -> Option<ReturnCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}
