//! Completions of commands, in the control completion queue (CCQ), and their error codes.

use super::layout::layout;

layout! {
    /// Completion of a command.
    /// Source: irdma `ctrl.c`, `irdma_sc_ccq_get_cqe_info`; `defs.h`, IRDMA_CCQ_*, IRDMA_CQ_*.
    pub struct ControlCompletion: [u64; 4] {
        /// The completion context of the CQP context.
        cqp_context: u64 = 1[63:0],
        /// The command's result: handle, index, page.
        return_value: u32 = 2[31:0],
        /// Minor code; meaningful also without error, see [`FlushResult`].
        minor_code: u16 = 3[15:0],
        /// Major code; meaningful only with `error`.
        major_code: u16 = 3[31:16],
        /// Index of the command in its ring.
        wqe_index: u16 = 3[46:32],
        /// The command failed.
        error: bool = 3[55],
        /// Ring polarity.
        valid: bool = 3[63],
    }
}

impl ControlCompletion {
    /// Returns the reason why the command failed; `None` if it succeeded.
    #[must_use]
    pub const fn failure(&self) -> Option<CommandFailure> {
        if self.error {
            Some(CommandFailure::from_codes(self.major_code, self.minor_code))
        } else {
            None
        }
    }
}

/// The reason why a command failed.
/// Source: irdma `ctrl.c`, `irdma_check_cqp_progress` users; `defs.h`, IRDMA_CQP_COMPL_*; `hw.c`,
/// table of errors that are not critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandFailure {
    /// The object cache failed.
    ObjectCache {
        /// Minor code.
        minor: u16,
    },
    /// The context cache failed.
    ContextCache {
        /// Minor code.
        minor: u16,
    },
    /// The object is in a state in which the command is not allowed; harmless when tearing down.
    InvalidState,
    /// Flush: nothing was pending; harmless.
    FlushNothingPending,
    /// The queue pair was closed badly; harmless.
    BadClose,
    /// The connection is closed already; harmless.
    ConnectionClosed,
    /// The reset was not sent; harmless.
    ResetNotSent,
    /// The engine is broken: only a reset of the function helps.
    Fatal,
    /// Any other pair of codes.
    Other {
        /// Major code.
        major: u16,
        /// Minor code.
        minor: u16,
    },
}

impl CommandFailure {
    const INTERFACE: u16 = 0xFFFF;

    /// The failure that these codes name.
    #[must_use]
    pub const fn from_codes(major: u16, minor: u16) -> Self {
        match (major, minor) {
            (0xF000, minor) => Self::ObjectCache { minor },
            (0xF001, minor) => Self::ContextCache { minor },
            (Self::INTERFACE, 0x8002) => Self::InvalidState,
            (Self::INTERFACE, 0x8006) => Self::FlushNothingPending,
            (Self::INTERFACE, 0x8007) => Self::BadClose,
            (Self::INTERFACE, 0x8009) => Self::ConnectionClosed,
            (Self::INTERFACE, 0x800A) => Self::ResetNotSent,
            (Self::INTERFACE, 0x8029) => Self::Fatal,
            (major, minor) => Self::Other { major, minor },
        }
    }

    /// Major and minor code.
    #[must_use]
    pub const fn codes(self) -> (u16, u16) {
        match self {
            Self::ObjectCache { minor } => (0xF000, minor),
            Self::ContextCache { minor } => (0xF001, minor),
            Self::InvalidState => (Self::INTERFACE, 0x8002),
            Self::FlushNothingPending => (Self::INTERFACE, 0x8006),
            Self::BadClose => (Self::INTERFACE, 0x8007),
            Self::ConnectionClosed => (Self::INTERFACE, 0x8009),
            Self::ResetNotSent => (Self::INTERFACE, 0x800A),
            Self::Fatal => (Self::INTERFACE, 0x8029),
            Self::Other { major, minor } => (major, minor),
        }
    }

    /// True if drivers ignore this failure.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::InvalidState
                | Self::FlushNothingPending
                | Self::BadClose
                | Self::ConnectionClosed
                | Self::ResetNotSent
        )
    }
}

/// The result of a flush, from the minor code of its completion.
/// Source: irdma `utils.c`/`hw.c`, users of IRDMA_CQP_COMPL_*_WQE_FLUSHED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushResult {
    /// Nothing was pending.
    Nothing,
    /// Only the receive queue had work.
    ReceiveQueue,
    /// Only the send queue had work.
    SendQueue,
    /// Both had.
    Both,
    /// A code without a name.
    Unknown(u16),
}

impl FlushResult {
    /// The result that a minor code names.
    #[must_use]
    pub const fn from_minor_code(code: u16) -> Self {
        match code {
            0 => Self::Nothing,
            2 => Self::ReceiveQueue,
            3 => Self::SendQueue,
            4 => Self::Both,
            other => Self::Unknown(other),
        }
    }

    /// The minor code.
    #[must_use]
    pub const fn minor_code(self) -> u16 {
        match self {
            Self::Nothing => 0,
            Self::ReceiveQueue => 2,
            Self::SendQueue => 3,
            Self::Both => 4,
            Self::Unknown(code) => code,
        }
    }
}
