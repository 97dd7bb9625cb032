//! Reasons for a failed completion.

/// Major code of a completion for a flushed request.
///
/// Source: irdma `user.h`, IRDMA_FLUSH_MAJOR_ERR.
pub const FLUSH_MAJOR: u16 = 1;

/// True for the major codes by which the device reports an event beside a datagram send that it has
/// carried out. The send is a success. Only send queues of datagram queue pairs get them.
///
/// Source: rdma-core `providers/irdma/uk.c`, irdma_uk_cq_poll_cmpl, IRDMA_CIE_SIGNATURE.
#[must_use]
pub const fn is_notice(major: u16) -> bool {
    major >> 12 == 0xE
}

/// Minor code of a flushed completion: why the queue pair failed, or that it had failed before.
///
/// Source: irdma `user.h`, enum irdma_flush_opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushCode {
    /// 0 FLUSH_INVALID
    Invalid,
    /// 1 FLUSH_GENERAL_ERR: flushed because of another request
    General,
    /// 2 FLUSH_PROT_ERR: a local buffer was not registered, too small or lacked the right
    LocalProtection,
    /// 3 FLUSH_REM_ACCESS_ERR: the peer refused key, range or right
    RemoteAccess,
    /// 4 FLUSH_LOC_QP_OP_ERR: the request was malformed for this queue pair
    LocalOperation,
    /// 5 FLUSH_REM_OP_ERR: the peer could not carry out the request
    RemoteOperation,
    /// 6 FLUSH_LOC_LEN_ERR: a message longer than the receive buffer
    LocalLength,
    /// 7 FLUSH_FATAL_ERR
    Fatal,
    /// 8 FLUSH_RETRY_EXC_ERR: the peer did not answer
    RetryExceeded,
    /// 9 FLUSH_MW_BIND_ERR
    WindowBind,
    /// 10 FLUSH_REM_INV_REQ_ERR: the peer found the request invalid
    RemoteInvalidRequest,
    /// 11 FLUSH_RNR_RETRY_EXC_ERR: the peer had no receive request posted
    ReceiverNotReady,
    /// any other code
    Unknown(u16),
}

impl FlushCode {
    /// The meaning of a minor code.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Invalid,
            1 => Self::General,
            2 => Self::LocalProtection,
            3 => Self::RemoteAccess,
            4 => Self::LocalOperation,
            5 => Self::RemoteOperation,
            6 => Self::LocalLength,
            7 => Self::Fatal,
            8 => Self::RetryExceeded,
            9 => Self::WindowBind,
            10 => Self::RemoteInvalidRequest,
            11 => Self::ReceiverNotReady,
            other => Self::Unknown(other),
        }
    }

    /// The minor code.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Invalid => 0,
            Self::General => 1,
            Self::LocalProtection => 2,
            Self::RemoteAccess => 3,
            Self::LocalOperation => 4,
            Self::RemoteOperation => 5,
            Self::LocalLength => 6,
            Self::Fatal => 7,
            Self::RetryExceeded => 8,
            Self::WindowBind => 9,
            Self::RemoteInvalidRequest => 10,
            Self::ReceiverNotReady => 11,
            Self::Unknown(code) => code,
        }
    }
}
