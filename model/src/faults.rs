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

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The PF reset bit never clears.
    ResetNeverEnds,
    /// GLNVM_ULD never says that everything is loaded.
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
        /// How late.
        by: Duration,
    },
    /// Answers to this admin command make no sense: the opcode in them is another.
    AdminCommandGarbled {
        /// Opcode, or [`ANY_ADMIN_COMMAND`].
        opcode: u16,
    },
    /// The firmware does nothing any more. A reset of the function sets it going, or the end of
    /// faults; then it goes on where it stood, and answers late.
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
        /// How late.
        by: Duration,
    },
    /// Completions of this CQP command make no sense: they name another command.
    ControlCommandGarbled {
        /// Opcode, or [`ANY_CONTROL_COMMAND`].
        opcode: u8,
    },
    /// Somebody else resets, once: the function, or the whole device of which it is. The driver is
    /// not asked; what it does before it knows is no breach.
    Reset(ResetKind),
    /// The function is gone from the bus: it reads as all ones and does nothing. With the end of the
    /// fault it is back, as after power on.
    FunctionDead,
    /// Interrupts are lost, by seed: the event descriptor of the vector is not signalled.
    InterruptsLost {
        /// Of a million.
        per_million: u32,
        /// For the choice.
        seed: u64,
    },
    /// No more memory can be mapped for the function than this.
    MappedMemoryAtMost {
        /// Bytes, those that are mapped already included.
        bytes: u64,
    },
    /// The host refuses the function's accesses to memory, as an IOMMU would. What the function needed
    /// the memory for fails: a message fails its queue pair, a completion its completion queue; rings
    /// of commands and events are given up, and PFINT_OICR says PCI_EXCEPTION.
    DmaRefused(Refusal),
    /// The host memory cache reports an error, once: PFHMC_ERRORINFO and PFHMC_ERRORDATA say which,
    /// and the cause HMC_ERR is raised. A driver is expected to reset the function.
    HmcError {
        /// Kind of error, 0..=15.
        kind: u8,
        /// Kind of object, 0..=31; see [`ringside_spec::rdma::fpm::ObjectType`].
        object: u8,
        /// More about it, 30 bits.
        data: u32,
    },
    /// The RDMA engine reports a critical error, once: GLPE_CRITERR says which, and the cause
    /// PE_CRITERR is raised. 0x0001024D is a warning; at any other a driver is expected to reset.
    CriticalError {
        /// Value of GLPE_CRITERR.
        code: u32,
    },
    /// The RDMA engine reports an asynchronous event, once, of which nothing else is true: a queue that
    /// it names goes on in the model. A driver is expected to act on the event all the same.
    EngineEvent {
        /// Code, 12 bits; see [`ringside_spec::rdma::ae_codes::AeCode`].
        code: u16,
        /// Where, 0..=15; see [`ringside_spec::rdma::commands::AeSource`].
        source: u8,
        /// Number of the queue.
        queue_number: u32,
    },
    /// The RDMA engine stops: no command is completed, no request carried out, no packet taken. A
    /// reset of the function sets it going, or the end of faults.
    ProtocolEngineStall,
    /// The link stays down.
    LinkDown,
    /// No DDP package is loaded in the device when the driver comes.
    NoPackageLoaded,
    /// Frames are lost on the wire, by seed.
    DropFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice.
        seed: u64,
    },
    /// Frames arrive twice.
    DuplicateFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice.
        seed: u64,
    },
    /// Frames are overtaken by those that are sent after them.
    ReorderFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice.
        seed: u64,
        /// Frames that go first, at least 1; a wire that falls silent lets it go sooner.
        behind: u32,
    },
    /// Frames take longer.
    DelayFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice.
        seed: u64,
        /// How much longer.
        by: Duration,
    },
    /// One bit of a frame changes, unseen by the frame check sequence.
    CorruptFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice of frame and bit.
        seed: u64,
    },
    /// Frames whose sender can do with it are marked "congestion experienced".
    /// Source: RFC 3168, section 5.
    MarkFrames {
        /// Of a million.
        per_million: u32,
        /// For the choice.
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

    /// What it makes of this admin command.
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

    /// What it makes of this CQP command.
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

/// What a fault makes of a command.
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
    /// What several faults make of one command: silence before all else, as a command that is not
    /// answered is neither refused nor garbled; else the first.
    pub(crate) fn of(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|first, next| match next {
            Self::Silent => next,
            Self::Fail(..) | Self::Garble | Self::Delay(_) => first,
        })
    }
}
