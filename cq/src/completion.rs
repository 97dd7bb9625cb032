//! What a completion says, in the words of verbs.

use ringside_spec::verbs::completion::{
    CompletionHeader, PACKET_WRITE_LAST_IMMEDIATE, PACKET_WRITE_ONLY_IMMEDIATE,
};
use ringside_spec::verbs::status::FLUSH_MAJOR;
use ringside_spec::verbs::{FlushCode, SendOpcode};

/// How a request ended. Verbs: `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Success,
    /// A message was longer than the receive request, or too long for its operation.
    LocalLength,
    /// The request was malformed for this queue pair.
    LocalOperation,
    /// A local buffer was not registered, too short, or lacked the right.
    LocalProtection,
    /// Not carried out: the queue pair had failed before.
    Flushed,
    /// A memory window could not be bound.
    WindowBind,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer refused key, range or right.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// The peer did not answer, however often it was asked.
    RetryExceeded,
    /// The peer had no receive request posted, however long was waited.
    ReceiverNotReady,
    /// The device gave up the queue pair.
    Fatal,
    /// The device completed a later receive without a word about this one: whether its buffer was
    /// written is unknown. A fault of the device.
    Unreported,
    /// Codes that this version doesn't know. Verbs: `IBV_WC_GENERAL_ERR` with a vendor error.
    Unknown {
        /// major code
        major: u16,
        /// minor code
        minor: u16,
    },
}

impl Status {
    /// The status that a failed completion's codes mean.
    ///
    /// Source: irdma `verbs.c`, irdma_flush_err_to_ib_wc_status; only major code 1 has the
    /// meaning of "flushed" (rdma-core 65 also takes 0xFFFE; the kernel doesn't, nor do we).
    #[must_use]
    pub const fn from_codes(major: u16, minor: u16) -> Self {
        if major != FLUSH_MAJOR {
            return Self::Unknown { major, minor };
        }
        match FlushCode::from_code(minor) {
            FlushCode::General => Self::Flushed,
            FlushCode::LocalProtection => Self::LocalProtection,
            FlushCode::RemoteAccess => Self::RemoteAccess,
            FlushCode::LocalOperation => Self::LocalOperation,
            FlushCode::RemoteOperation => Self::RemoteOperation,
            FlushCode::LocalLength => Self::LocalLength,
            FlushCode::Invalid | FlushCode::Fatal => Self::Fatal,
            FlushCode::RetryExceeded => Self::RetryExceeded,
            FlushCode::WindowBind => Self::WindowBind,
            FlushCode::RemoteInvalidRequest => Self::RemoteInvalidRequest,
            FlushCode::ReceiverNotReady => Self::ReceiverNotReady,
            FlushCode::Unknown(_) => Self::Unknown { major, minor },
        }
    }

    /// True for [`Status::Success`].
    #[inline(always)]
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::LocalLength => "message longer than the receive buffer",
            Self::LocalOperation => "request malformed for its queue pair",
            Self::LocalProtection => "local buffer not registered, too short or without the right",
            Self::Flushed => "flushed: the queue pair had failed before",
            Self::WindowBind => "memory window could not be bound",
            Self::RemoteInvalidRequest => "peer found the request invalid",
            Self::RemoteAccess => "peer refused key, range or right",
            Self::RemoteOperation => "peer could not carry the request out",
            Self::RetryExceeded => "peer did not answer",
            Self::ReceiverNotReady => "peer had no receive request posted",
            Self::Fatal => "the device gave up the queue pair",
            Self::Unreported => "the device skipped this receive request",
            Self::Unknown { major, minor } => {
                return write!(f, "unknown device error {major:#06x}/{minor:#06x}");
            }
        };
        f.write_str(text)
    }
}

/// What was completed. Verbs: `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// RDMA write
    Write,
    /// RDMA read
    Read,
    /// Send of any kind
    Send,
    /// Memory window bind
    BindWindow,
    /// Fast register
    FastRegister,
    /// Local invalidate
    LocalInvalidate,
    /// NOP
    Nop,
    /// Atomic fetch and add
    FetchAdd,
    /// Atomic compare and swap
    CompareSwap,
    /// A receive request took a message
    Receive,
    /// A receive request was consumed by a peer's RDMA write with immediate
    ReceiveWriteImmediate,
    /// Another code of the send side
    Unknown(u8),
}

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that the request was posted with.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// Bytes of the message; 0 unless successful.
    pub byte_length: u32,
    /// Number of the queue pair.
    pub queue_pair: u32,
    pub(crate) immediate: u32,
    pub(crate) key_or_source: u32,
    pub(crate) operation: u8,
    pub(crate) flags: u8,
}

/// Bits of [`Completion::flags`].
pub(crate) mod flag {
    pub(crate) const SEND: u8 = 1;
    pub(crate) const IMMEDIATE: u8 = 2;
    pub(crate) const INVALIDATED: u8 = 4;
    pub(crate) const SOLICITED: u8 = 8;
}

impl Completion {
    /// A value to fill a batch with before it is polled into.
    pub const EMPTY: Self = Self {
        id: 0,
        status: Status::Success,
        byte_length: 0,
        queue_pair: 0,
        immediate: 0,
        key_or_source: 0,
        operation: 0,
        flags: 0,
    };

    /// What was completed.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        if self.flags & flag::SEND == 0 {
            return match self.operation {
                PACKET_WRITE_LAST_IMMEDIATE | PACKET_WRITE_ONLY_IMMEDIATE
                    if self.flags & flag::IMMEDIATE != 0 =>
                {
                    Operation::ReceiveWriteImmediate
                }
                _ => Operation::Receive,
            };
        }
        match SendOpcode::from_code(self.operation) {
            SendOpcode::Write | SendOpcode::WriteSolicited => Operation::Write,
            SendOpcode::Read | SendOpcode::ReadInvalidate => Operation::Read,
            SendOpcode::Send
            | SendOpcode::SendSolicited
            | SendOpcode::SendInvalidate
            | SendOpcode::SendSolicitedInvalidate => Operation::Send,
            SendOpcode::BindWindow => Operation::BindWindow,
            SendOpcode::FastRegister => Operation::FastRegister,
            SendOpcode::LocalInvalidate => Operation::LocalInvalidate,
            SendOpcode::Nop => Operation::Nop,
            SendOpcode::FetchAdd => Operation::FetchAdd,
            SendOpcode::CompareSwap => Operation::CompareSwap,
            other => Operation::Unknown(other.code()),
        }
    }

    /// True if it is of the send queue, false if of the receive queue.
    #[inline]
    #[must_use]
    pub const fn is_send(&self) -> bool {
        self.flags & flag::SEND != 0
    }

    /// The number that came with the message, in host order.
    #[inline]
    #[must_use]
    pub const fn immediate(&self) -> Option<u32> {
        if self.flags & flag::IMMEDIATE != 0 {
            Some(self.immediate)
        } else {
            None
        }
    }

    /// The local key that the message invalidated. On a datagram queue pair the same bit means
    /// IPv4: ask [`Self::source_queue_pair`] there.
    #[inline]
    #[must_use]
    pub const fn invalidated_key(&self) -> Option<u32> {
        if self.flags & flag::INVALIDATED != 0 {
            Some(self.key_or_source)
        } else {
            None
        }
    }

    /// Queue pair that sent a datagram. Without meaning on connected queue pairs.
    #[must_use]
    pub const fn source_queue_pair(&self) -> u32 {
        self.key_or_source
    }

    /// The sender asked for an event.
    #[must_use]
    pub const fn is_solicited(&self) -> bool {
        self.flags & flag::SOLICITED != 0
    }

    /// The flags of a completion's header, apart from the immediate.
    #[inline(always)]
    pub(crate) const fn flags_of(header: CompletionHeader) -> u8 {
        let send = if header.send_queue() { flag::SEND } else { 0 };
        let key = if header.invalidated_or_ipv4() {
            flag::INVALIDATED
        } else {
            0
        };
        let solicited = if header.solicited() {
            flag::SOLICITED
        } else {
            0
        };
        send | key | solicited
    }
}

#[cfg(test)]
mod tests;
