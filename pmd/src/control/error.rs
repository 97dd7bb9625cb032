//! Errors of a command to the RDMA engine.

use crate::failure::FailureCause;
use ringside_bus::{FunctionError, MemoryError};
use ringside_spec::rdma::commands::Opcode;
use ringside_spec::rdma::control_completion::CommandFailure;

/// A command to the RDMA engine did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The engine answered with an error.
    #[error("the RDMA engine refused {opcode:?}: {} (major {:#06x}, minor {:#06x}); {}",
        meaning(*failure), failure.codes().0, failure.codes().1, remedy(*failure))]
    Refused {
        /// The command.
        opcode: Opcode,
        /// Its answer.
        failure: CommandFailure,
    },
    /// No answer came.
    #[error(
        "the RDMA engine did not answer {opcode:?} within {waited_ms} ms; reset the device (its control queue pair is not used again)"
    )]
    TimedOut {
        /// The command.
        opcode: Opcode,
        /// The time waited.
        waited_ms: u64,
    },
    /// An earlier command got no answer, so later answers could not be assigned to their commands.
    #[error(
        "{opcode:?} was not sent: an earlier command was never answered; reset the device and bring it up again"
    )]
    Stuck {
        /// The command.
        opcode: Opcode,
    },
    /// As many commands as the queue holds are under way, and none was answered.
    #[error(
        "{opcode:?} was not sent: {commands} commands are under way and none of them was answered within {waited_ms} ms; reset the device"
    )]
    Full {
        /// The command.
        opcode: Opcode,
        /// Commands that are under way.
        commands: u32,
        /// The time waited.
        waited_ms: u64,
    },
    /// The device was taken out of service, or was seen to have failed, before it answered.
    #[error(
        "the device failed before it answered {opcode:?}: {cause}; bring it up again with Device::recover"
    )]
    Abandoned {
        /// The command.
        opcode: Opcode,
        /// The cause of the failure.
        cause: FailureCause,
        /// The device got the command, and may have carried it out.
        sent: bool,
    },
    /// The engine's answer does not match the command.
    #[error("the RDMA engine answered {opcode:?} with {what}; reset the device")]
    Garbled {
        /// The command.
        opcode: Opcode,
        /// The error in the answer.
        what: String,
    },
    /// The control queue pair could not be created.
    #[error(
        "the control queue pair was not created: status {status:#010x}, error major {major:#06x}, minor {minor:#06x}; reset the device, and check that its firmware supports RDMA"
    )]
    NotCreated {
        /// PFPE_CCQPSTATUS.
        status: u32,
        /// Field of PFPE_CQPERRCODES.
        major: u16,
        /// Field of PFPE_CQPERRCODES.
        minor: u16,
    },
    /// The engine does not support the requested size.
    #[error(
        "a control queue of {entries} entries does not exist; choose a power of two from 4 to 2048"
    )]
    WrongSize {
        /// The requested value.
        entries: u32,
    },
    /// The device cannot be reached.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// There is no DMA memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

fn meaning(failure: CommandFailure) -> &'static str {
    match failure {
        CommandFailure::ObjectCache { .. } => "its object cache failed",
        CommandFailure::ContextCache { .. } => "its context cache failed",
        CommandFailure::InvalidState => "the object is not in a state that allows it",
        CommandFailure::FlushNothingPending => "nothing was pending",
        CommandFailure::BadClose => "the queue pair was closed badly",
        CommandFailure::ConnectionClosed => "the connection is closed already",
        CommandFailure::ResetNotSent => "the reset was not sent",
        CommandFailure::Fatal => "the engine is broken",
        CommandFailure::Other { .. } => "for a reason without a published name",
    }
}

fn remedy(failure: CommandFailure) -> &'static str {
    match failure {
        CommandFailure::ObjectCache { .. } | CommandFailure::ContextCache { .. } => {
            "host memory cache backing is missing or wrong: reset the device and report this"
        }
        CommandFailure::Fatal => "reset the device",
        CommandFailure::Other { .. } => "report these codes with a trace of the bring-up",
        _ => "destroy the object and create it again",
    }
}

impl ControlError {
    /// True if the engine answered, and did nothing: what it was given is not in use.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Stuck { .. }
                | Self::Full { .. }
                | Self::Abandoned { sent: false, .. }
        )
    }
}
