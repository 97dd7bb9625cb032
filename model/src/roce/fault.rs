//! What stops a half of a connection, and the asynchronous event that tells the driver.
//!
//! Which code stands for which
//! situation is documented nowhere for the E810; this is the model's choice, made so that the
//! Linux driver's table gives the completion status that verbs ask for.

use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::AeSource;

use crate::packet::NegativeCode;

/// Which queue an asynchronous event points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// The receive queue; IRDMA_AE_SOURCE_RQ, 1.
    ReceiveQueue,
    /// The send queue; IRDMA_AE_SOURCE_SQ, 5.
    SendQueue,
    /// A request from the peer that uses no receive request; IRDMA_AE_SOURCE_IN_RR_WR, 9.
    Inbound,
}

impl EventSource {
    /// The value of the entry's source field.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::ReceiveQueue => AeSource::ReceiveQueue.code(),
            Self::SendQueue => AeSource::SendQueue.code(),
            Self::Inbound => AeSource::InboundRequest.code(),
        }
    }
}

/// Why memory may not be touched.
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

impl AccessFault {
    /// The asynchronous event code, 0x0102..=0x010A.
    #[must_use]
    pub const fn event_code(self) -> u16 {
        match self {
            Self::UnallocatedKey => AeCode::UnallocatedStag.code(),
            Self::InvalidKey => AeCode::InvalidStag.code(),
            Self::BadQueuePair => AeCode::BadQueuePair.code(),
            Self::BadProtectionDomain => AeCode::BadProtectionDomain.code(),
            Self::BadKeyByte => AeCode::BadStagKey.code(),
            Self::BadKeyIndex => AeCode::BadStagIndex.code(),
            Self::Bounds => AeCode::BoundsViolation.code(),
            Self::Rights => AeCode::RightsViolation.code(),
            Self::Wrap => AeCode::TaggedOffsetWrap.code(),
        }
    }
}

/// What stopped a requester, and at which work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {token}: {reason}")]
pub struct RequesterFault {
    /// the oldest work request that did not complete
    pub token: u32,
    /// why
    pub reason: RequesterFaultReason,
}

/// What stopped a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequesterFaultReason {
    /// No answer however often it was sent.
    #[error("no answer after all retries")]
    RetriesExhausted,
    /// The peer never posted a receive request.
    #[error("the peer had no receive request after all retries")]
    NotReadyRetriesExhausted,
    /// NAK 1.
    #[error("the peer says that the request is invalid")]
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
        /// bytes that belong there
        expected: u32,
        /// bytes that came
        found: u32,
    },
    /// A read response that ends early or does not end.
    #[error("a read response with the wrong opcode for its place")]
    ResponseOpcode,
}

impl RequesterFault {
    /// The asynchronous event code.
    #[must_use]
    pub const fn event_code(self) -> u16 {
        match self.reason {
            RequesterFaultReason::RetriesExhausted => AeCode::TooManyRetries.code(),
            RequesterFaultReason::NotReadyRetriesExhausted => {
                AeCode::TooManyReceiverNotReady.code()
            }
            RequesterFaultReason::RemoteInvalidRequest => AeCode::InvalidInfinibandRequest.code(),
            RequesterFaultReason::RemoteAccess => AeCode::RemoteAccessError.code(),
            RequesterFaultReason::RemoteOperation => AeCode::RemoteOperationError.code(),
            RequesterFaultReason::ResponseLength { .. } => AeCode::RoceResponseLength.code(),
            RequesterFaultReason::ResponseOpcode => AeCode::InvalidWriteOrReadResponse.code(),
        }
    }

    /// The queue that it points to.
    #[must_use]
    pub const fn source(self) -> EventSource {
        EventSource::SendQueue
    }
}

/// What stopped a responder. The peer gets [`ResponderFault::negative_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ResponderFault {
    /// An RDMA request for memory that it may not touch.
    #[error("remote access refused: {0}")]
    RemoteAccess(AccessFault),
    /// The bytes of a receive request may not be written.
    #[error("receive request refused: {0}")]
    ReceiveAccess(AccessFault),
    /// The receive request itself is malformed.
    #[error("malformed receive request, event {event_code:#06x}")]
    BadReceiveRequest {
        /// what to report
        event_code: u16,
    },
    /// A send longer than the receive request.
    #[error("message of more than {capacity_bytes} bytes for a receive request of that size")]
    MessageTooLong {
        /// what the receive request holds
        capacity_bytes: u32,
    },
    /// A packet that has no place in the message that it is in, or an operation that the card
    /// does not know.
    #[error("opcode out of order or not supported")]
    BadOpcode,
    /// A payload length that its place in the message does not allow.
    #[error("payload of {found} bytes, out of place in its message")]
    BadLength {
        /// bytes of the packet
        found: u32,
    },
    /// A write whose packets hold more or less than its first one said, or that is too long.
    #[error("an RDMA write's packets contradict its length")]
    BadWriteLength,
    /// A read request with payload or of impossible length.
    #[error("malformed RDMA read request")]
    BadReadRequest,
    /// More reads than may be outstanding.
    #[error("more RDMA reads outstanding than the connection allows")]
    TooManyReads,
    /// A send asked to invalidate a key that it may not.
    #[error("remote invalidation refused: {0}")]
    Invalidate(AccessFault),
}

impl ResponderFault {
    /// The asynchronous event code.
    #[must_use]
    pub const fn event_code(self) -> u16 {
        match self {
            Self::RemoteAccess(access) | Self::ReceiveAccess(access) => access.event_code(),
            Self::BadReceiveRequest { event_code } => event_code,
            Self::MessageTooLong { .. } => AeCode::MessageTooLong.code(),
            Self::BadOpcode | Self::BadLength { .. } => AeCode::InvalidInfinibandRequest.code(),
            Self::BadWriteLength => AeCode::InvalidWriteOrReadResponse.code(),
            Self::BadReadRequest => AeCode::InvalidReadRequest.code(),
            Self::TooManyReads => AeCode::InboundReadQueueFull.code(),
            Self::Invalidate(_) => AeCode::InvalidateWithoutRemoteAccess.code(),
        }
    }

    /// The queue that it points to.
    #[must_use]
    pub const fn source(self) -> EventSource {
        match self {
            Self::ReceiveAccess(_)
            | Self::BadReceiveRequest { .. }
            | Self::MessageTooLong { .. }
            | Self::Invalidate(_) => EventSource::ReceiveQueue,
            Self::RemoteAccess(_)
            | Self::BadOpcode
            | Self::BadLength { .. }
            | Self::BadWriteLength
            | Self::BadReadRequest
            | Self::TooManyReads => EventSource::Inbound,
        }
    }

    /// What the peer is told.
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
