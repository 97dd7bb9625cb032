//! Faults that stop one half of a connection. The adapter chooses the event that reports one to a
//! driver.

use crate::packet::NegativeCode;

/// The reason why memory may not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessFault {
    /// No region has this key.
    #[error("no region has this key")]
    UnallocatedKey,
    /// The region exists but may not be used now.
    #[error("the region is not valid")]
    InvalidKey,
    /// A memory window of another queue pair.
    #[error("the key belongs to another queue pair")]
    BadQueuePair,
    /// The region is of another protection domain.
    #[error("the key belongs to another protection domain")]
    BadProtectionDomain,
    /// The key's low byte is not the region's.
    #[error("the key's low byte is not the region's")]
    BadKeyByte,
    /// The key's index is outside the table.
    #[error("the key's index is outside the table")]
    BadKeyIndex,
    /// The bytes are not all inside the region.
    #[error("outside the region's bounds")]
    Bounds,
    /// The region does not allow this.
    #[error("the region's rights do not allow this")]
    Rights,
    /// Address and length run past the end of the address space.
    #[error("address and length wrap around")]
    Wrap,
}

/// The fault that stopped a requester, and its work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {token}: {reason}")]
pub struct RequesterFault {
    /// the oldest work request that did not complete
    pub token: u32,
    /// why
    pub reason: RequesterFaultReason,
}

/// The fault that stopped a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequesterFaultReason {
    /// No answer however often it was sent.
    #[error("no answer after all retries")]
    RetriesExhausted,
    /// The peer never posted a receive request.
    #[error("the peer had no receive request after all retries")]
    NotReadyRetriesExhausted,
    /// NAK 1.
    #[error("the peer reports that the request is invalid")]
    RemoteInvalidRequest,
    /// NAK 2.
    #[error("the peer refuses access to its memory")]
    RemoteAccess,
    /// NAK 3, and codes that a reliable connection does not have.
    #[error("the peer could not carry the request out")]
    RemoteOperation,
    /// A read response whose length does not fit the request.
    #[error("a read response of {found} bytes where {expected} belong")]
    ResponseLength {
        /// expected bytes
        expected: u32,
        /// bytes that came
        found: u32,
    },
    /// A read response that ends early or does not end, or that refuses: a refusal is a packet of
    /// its own.
    #[error("a read response with the wrong opcode for its place, or with a negative syndrome")]
    ResponseOpcode,
}

/// The fault that stopped a responder. The peer gets [`ResponderFault::negative_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ResponderFault {
    /// An RDMA request for memory that it may not touch.
    #[error("remote access refused: {0}")]
    RemoteAccess(AccessFault),
    /// The bytes of a receive request may not be written.
    #[error("receive request refused: {0}")]
    ReceiveAccess(AccessFault),
    /// The receive request itself is malformed.
    #[error("malformed receive request, code {code:#06x}")]
    BadReceiveRequest {
        /// the adapter's own code, as [`Receive::Malformed`](crate::Receive::Malformed) gave it
        code: u16,
    },
    /// A send longer than the receive request.
    #[error("message of more than {capacity_bytes} bytes for a receive request of that size")]
    MessageTooLong {
        /// bytes of the receive request
        capacity_bytes: u32,
    },
    /// A packet at a wrong place of its message, or an operation that the card does not support.
    #[error("opcode out of order or not supported")]
    BadOpcode,
    /// A payload length that its place in the message does not allow.
    #[error("payload of {found} bytes, out of place in its message")]
    BadLength {
        /// bytes of the packet
        found: u32,
    },
    /// A write whose packets hold more or less than its first one announced, or that is too long.
    #[error("an RDMA write's packets contradict its length")]
    BadWriteLength,
    /// A read request with payload or of impossible length.
    #[error("malformed RDMA read request")]
    BadReadRequest,
    /// More reads than may be outstanding.
    #[error("more RDMA reads outstanding than the connection allows")]
    TooManyReads,
    /// A send requested to invalidate a key without the right to.
    #[error("remote invalidation refused: {0}")]
    Invalidate(AccessFault),
}

impl ResponderFault {
    /// The answer to the peer.
    #[must_use]
    pub const fn negative_code(self) -> NegativeCode {
        match self {
            Self::RemoteAccess(_) | Self::Invalidate(_) => NegativeCode::REMOTE_ACCESS,
            Self::ReceiveAccess(_) | Self::BadReceiveRequest { .. } => {
                NegativeCode::REMOTE_OPERATION
            }
            Self::MessageTooLong { .. }
            | Self::BadOpcode
            | Self::BadLength { .. }
            | Self::BadWriteLength
            | Self::BadReadRequest
            | Self::TooManyReads => NegativeCode::INVALID_REQUEST,
        }
    }
}
