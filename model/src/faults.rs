//! Faults as values, handed to the model.

mod words;

pub use words::{FAULTS, FaultWordsError};

use crate::reset_kind::ResetKind;
use ringside_bus::Refusal;
use std::time::Duration;

/// Stands for every opcode of the control queue pair in a fault.
pub const ANY_CONTROL_COMMAND: u8 = 0xFF;

/// Stands for every opcode of the admin queue in a fault.
pub const ANY_ADMIN_COMMAND: u16 = 0xFFFF;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The PF reset bit never clears.
    ResetNeverEnds,
    /// GLNVM_ULD never reports that everything is loaded.
    FirmwareNeverReady,
    /// A protocol-engine processor reports this instead of 0x80.
    ProtocolEngineStatus(u32),
    /// Every answer to this admin command carries this return code.
    AdminCommandFails {
        /// Opcode, or [`ANY_ADMIN_COMMAND`].
        opcode: u16,
        /// Return code.
        code: u16,
    },
    /// This admin command is never answered.
    AdminCommandSilent {
        /// Opcode, or [`ANY_ADMIN_COMMAND`].
        opcode: u16,
    },
    /// This admin command is answered late.
    AdminCommandDelayed {
        /// Opcode, or [`ANY_ADMIN_COMMAND`].
        opcode: u16,
        /// The delay.
        by: Duration,
    },
    /// Answers to this admin command are wrong: they carry another opcode.
    AdminCommandGarbled {
        /// Opcode, or [`ANY_ADMIN_COMMAND`].
        opcode: u16,
    },
    /// The firmware stops. It continues after a reset of the function or after the end of the
    /// fault; then its answers are late.
    FirmwareStall,
    /// CQP creation is answered with the error bit.
    ControlQueueCreationFails,
    /// CQP creation is never answered.
    ControlQueueCreationSilent,
    /// Every completion of this CQP command carries this error.
    ControlCommandFails {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
        /// Major code.
        major: u16,
        /// Minor code.
        minor: u16,
    },
    /// This CQP command is never completed.
    ControlCommandSilent {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
    },
    /// This CQP command is carried out and completed late; commands behind it wait.
    ControlCommandDelayed {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
        /// The delay.
        by: Duration,
    },
    /// Completions of this CQP command come late: the latency of a card. The commands behind it are
    /// carried out and completed meanwhile, so completions may change their order.
    ControlCompletionLate {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
        /// The delay.
        by: Duration,
    },
    /// Completions of this CQP command are wrong: they name another command.
    ControlCommandGarbled {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
    },
    /// Another driver resets the function or the whole device, once. Accesses of this driver before
    /// it notices are no breach.
    Reset(ResetKind),
    /// The function does not respond on the bus: it reads as all ones and does nothing. After the
    /// end of the fault it is as after power on.
    FunctionDead,
    /// Interrupts are lost, by seed: the event descriptor of the vector is not signalled.
    InterruptsLost {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
    },
    /// No more memory can be mapped for the function than this.
    MappedMemoryAtMost {
        /// Bytes, those that are mapped already included.
        bytes: u64,
    },
    /// The host refuses the function's accesses to memory, as an IOMMU would. The operation fails:
    /// a message fails its queue pair, a completion its completion queue. Rings of commands and
    /// events stop, and PFINT_OICR reports PCI_EXCEPTION.
    DmaRefused(Refusal),
    /// The host memory cache reports an error, once: PFHMC_ERRORINFO and PFHMC_ERRORDATA describe
    /// it, and the cause HMC_ERR is raised. A driver is expected to reset the function.
    HmcError {
        /// Kind of error, 0..=15.
        kind: u8,
        /// Kind of object, 0..=31; see [`ringside_spec::rdma::fpm::ObjectType`].
        object: u8,
        /// More about it, 30 bits.
        data: u32,
    },
    /// The RDMA engine reports a critical error, once: GLPE_CRITERR has its code, and the cause
    /// PE_CRITERR is raised. 0x0001024D is a warning; at any other a driver is expected to reset.
    CriticalError {
        /// Value of GLPE_CRITERR.
        code: u32,
    },
    /// The RDMA engine reports an asynchronous event, once, without its cause: the named queue
    /// continues in the model. A driver is expected to act on the event.
    EngineEvent {
        /// Code, 12 bits; see [`ringside_spec::rdma::ae_codes::AeCode`].
        code: u16,
        /// Source, 0..=15; see [`ringside_spec::rdma::commands::AeSource`].
        source: u8,
        /// Number of the queue.
        queue_number: u32,
    },
    /// The RDMA engine stops: it completes no command, executes no request, takes no packet. It
    /// continues after a reset of the function or after the end of the fault.
    ProtocolEngineStall,
    /// The link stays down.
    LinkDown,
    /// There is no module in the port: the link is down, and the PHY cannot be configured.
    ModuleAbsent,
    /// The firmware's LLDP agent runs and has agreed with the switch on two traffic classes, one of
    /// them with priority flow control.
    LldpAgent,
    /// No DDP package is loaded in the device when the driver comes.
    NoPackageLoaded,
    /// Only the package of the flash is active when the driver comes: the minimum, which a driver
    /// replaces by a download.
    FlashPackageOnly,
    /// Frames are lost on the wire, by seed.
    DropFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
    },
    /// Frames arrive twice.
    DuplicateFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
    },
    /// Frames are overtaken by those that are sent after them.
    ReorderFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
        /// Frames that overtake it, at least 1; fewer on a wire that falls silent.
        behind: u32,
    },
    /// Frames take longer. At most 4,096 frames are held; a frame that finds so many is not
    /// delayed.
    DelayFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
        /// The delay.
        by: Duration,
    },
    /// One bit of a frame changes, and the frame check sequence does not show it.
    CorruptFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice of frame and bit.
        seed: u64,
    },
    /// Frames of senders that support it are marked "congestion experienced".
    /// Source: RFC 3168, section 5.
    MarkFrames {
        /// Share of frames or interrupts, of a million.
        per_million: u32,
        /// Seed of the choice.
        seed: u64,
    },
}

impl Fault {
    /// True for faults of the wire, which belong to no function.
    #[must_use]
    pub const fn is_of_the_wire(self) -> bool {
        matches!(
            self,
            Self::DropFrames { .. }
                | Self::DuplicateFrames { .. }
                | Self::ReorderFrames { .. }
                | Self::DelayFrames { .. }
                | Self::CorruptFrames { .. }
                | Self::MarkFrames { .. }
        )
    }

    /// Its effect on this admin command.
    pub(crate) fn on_admin_command(&self, code: u16) -> Option<OnCommand> {
        let meant = |opcode: u16| opcode == code || opcode == ANY_ADMIN_COMMAND;
        Some(match *self {
            Self::AdminCommandFails { opcode, code } if meant(opcode) => OnCommand::Fail(code, 0),
            Self::AdminCommandSilent { opcode } if meant(opcode) => OnCommand::Silent,
            Self::AdminCommandGarbled { opcode } if meant(opcode) => OnCommand::Garble,
            Self::AdminCommandDelayed { opcode, by } if meant(opcode) => OnCommand::Delay(by),
            _ => return None,
        })
    }

    /// The time by which it makes the completion of this CQP command late.
    pub(crate) fn control_completion_late(&self, code: u8) -> Option<Duration> {
        match *self {
            Self::ControlCompletionLate { opcode, by }
                if opcode == code || opcode == ANY_CONTROL_COMMAND =>
            {
                Some(by)
            }
            _ => None,
        }
    }

    /// Its effect on this CQP command.
    pub(crate) fn on_control_command(&self, code: u8) -> Option<OnCommand> {
        let meant = |opcode: u8| opcode == code || opcode == ANY_CONTROL_COMMAND;
        Some(match *self {
            Self::ControlCommandFails {
                opcode,
                major,
                minor,
            } if meant(opcode) => OnCommand::Fail(major, minor),
            Self::ControlCommandSilent { opcode } if meant(opcode) => OnCommand::Silent,
            Self::ControlCommandGarbled { opcode } if meant(opcode) => OnCommand::Garble,
            Self::ControlCommandDelayed { opcode, by } if meant(opcode) => OnCommand::Delay(by),
            _ => return None,
        })
    }
}

/// The effect of a fault on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCommand {
    /// It is answered with these codes.
    Fail(u16, u16),
    /// It is never answered.
    Silent,
    /// Its answer makes no sense.
    Garble,
    /// It is answered later.
    Delay(Duration),
}

impl OnCommand {
    /// The effect of several faults on one command: silence first, as a command that is not
    /// answered is neither refused nor garbled; else the first.
    pub(crate) fn of(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|first, next| match next {
            Self::Silent => next,
            Self::Fail(..) | Self::Garble | Self::Delay(_) => first,
        })
    }
}

#[cfg(test)]
mod tests;
