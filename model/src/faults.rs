//! Faults as values, handed to the model.

mod words;

pub use words::{FAULTS, FaultWordsError};

use std::time::Duration;

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
        /// Opcode.
        opcode: u16,
        /// Return code.
        code: u16,
    },
    /// This admin command is never answered.
    AdminCommandSilent {
        /// Opcode.
        opcode: u16,
    },
    /// CQP creation is answered with the error bit.
    ControlQueueCreationFails,
    /// CQP creation is never answered.
    ControlQueueCreationSilent,
    /// Every completion of this CQP command carries this error.
    ControlCommandFails {
        /// Opcode.
        opcode: u8,
        /// Major code.
        major: u16,
        /// Minor code.
        minor: u16,
    },
    /// This CQP command is never completed.
    ControlCommandSilent {
        /// Opcode.
        opcode: u8,
    },
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
}
