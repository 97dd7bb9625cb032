//! Codes of asynchronous events and of flush completions.

use super::layout::codes;

codes! {
    /// The reason why a work request was flushed: the minor code of a flush completion, whose major
    /// code is [`FLUSH_MAJOR_CODE`].
    /// Source: irdma `user.h`, `enum irdma_flush_opcode`.
    pub enum FlushCode: u16 {
        /// Not a code.
        Invalid = 0,
        /// Flushed because of another work request, or on request.
        General = 1,
        /// Local protection error.
        Protection = 2,
        /// Remote access error.
        RemoteAccess = 3,
        /// Local operation error.
        LocalOperation = 4,
        /// Remote operation error.
        RemoteOperation = 5,
        /// Local length error.
        LocalLength = 6,
        /// The queue pair is broken.
        Fatal = 7,
        /// The peer did not answer.
        RetryExceeded = 8,
        /// Binding a memory window failed.
        WindowBind = 9,
        /// The peer refused the request as invalid.
        RemoteInvalidRequest = 10,
        /// The peer was not ready for too long. Linux 6.12 does not define it; later drivers do.
        ReceiverNotReadyExceeded = 11,
    }
}

/// Major code of a completion that means "flushed".
pub const FLUSH_MAJOR_CODE: u16 = 1;

/// The rule that attributes an event to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribution {
    /// By code to a queue pair; the source gives the side.
    QueuePair,
    /// By code to a queue pair; the source is ignored.
    QueuePairAnySide,
    /// By code to a completion queue.
    CompletionQueue,
    /// Only by source; without one the event is about nothing.
    BySource,
}

/// The status that applications get for a failed queue pair.
/// Source: irdma `hw.c`, `irdma_set_flush_fields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePairEvent {
    /// The queue pair failed.
    Catastrophic,
    /// It failed because of access rights.
    AccessError,
    /// It failed because of an invalid request.
    RequestError,
}

impl FlushCode {
    /// The status that applications get when a queue pair fails with this code.
    #[must_use]
    pub const fn event(self) -> QueuePairEvent {
        match self {
            Self::Protection | Self::RemoteAccess | Self::WindowBind => QueuePairEvent::AccessError,
            Self::RemoteInvalidRequest => QueuePairEvent::RequestError,
            _ => QueuePairEvent::Catastrophic,
        }
    }
}

codes! {
    /// Code of an asynchronous event, 12 bits.
    /// Source: irdma `defs.h`, IRDMA_AE_*.
    pub enum AeCode: u16 {
        /// Unallocated steering tag.
        UnallocatedStag = 0x0102,
        /// Invalid steering tag.
        InvalidStag = 0x0103,
        /// Steering tag of another queue pair.
        BadQueuePair = 0x0104,
        /// Steering tag of another protection domain.
        BadProtectionDomain = 0x0105,
        /// Bad key of the steering tag.
        BadStagKey = 0x0106,
        /// Bad index of the steering tag.
        BadStagIndex = 0x0107,
        /// Bounds violation.
        BoundsViolation = 0x0108,
        /// Rights violation.
        RightsViolation = 0x0109,
        /// Tagged offset wrap.
        TaggedOffsetWrap = 0x010A,
        /// Fast register of a valid steering tag.
        FastRegisterValidStag = 0x010C,
        /// Fast register of a memory window.
        FastRegisterWindowStag = 0x010D,
        /// Fast register with invalid rights.
        FastRegisterInvalidRights = 0x010E,
        /// Fast register with invalid length.
        FastRegisterInvalidLength = 0x0110,
        /// Invalidate of a shared memory region.
        InvalidateShared = 0x0111,
        /// Remote invalidate without remote access.
        InvalidateWithoutRemoteAccess = 0x0112,
        /// Invalidate of a memory region with bound windows.
        InvalidateWithBoundWindows = 0x0113,
        /// Bind of a memory window that is valid.
        BindAlreadyValid = 0x0114,
        /// Bind of a memory region.
        BindOfMemoryRegion = 0x0115,
        /// Bind to a zero-based memory region.
        BindToZeroBased = 0x0116,
        /// Bind to a memory window.
        BindToWindow = 0x0117,
        /// Bind with invalid rights.
        BindInvalidRights = 0x0118,
        /// Bind with invalid bounds.
        BindInvalidBounds = 0x0119,
        /// Bind to an invalid parent.
        BindInvalidParent = 0x011A,
        /// Bind is disabled.
        BindDisabled = 0x011B,
        /// Privileged operation denied.
        PrivilegedOperationDenied = 0x011C,
        /// Invalidate of a memory window of type 1.
        InvalidateTypeOneWindow = 0x011D,
        /// Zero-based bind of a memory window of type 1.
        ZeroBasedTypeOneBind = 0x011E,
        /// Fast register with a bad page size.
        FastRegisterBadPageSize = 0x011F,
        /// Bind of the wrong type of memory window.
        BindWrongType = 0x0120,
        /// Fast register with a page list that does not fit.
        FastRegisterPageListMismatch = 0x0121,
        /// Datagram too long.
        DatagramTooLong = 0x0132,
        /// Datagram through an address handle of another protection domain.
        DatagramBadProtectionDomain = 0x0133,
        /// Datagram too short.
        DatagramTooShort = 0x0134,
        /// Bad layer 4 length.
        BadLayerFourLength = 0x0135,
        /// Bad close.
        BadClose = 0x0201,
        /// Connection closed badly.
        BadConnectionClose = 0x0202,
        /// Operation on a completion queue failed.
        CompletionQueueError = 0x0203,
        /// Read with ORD 0.
        ReadWithOrdZero = 0x0205,
        /// Steering tag 0 is not allowed.
        StagZeroNotAllowed = 0x0206,
        /// Inbound read, but no room for it (Q1).
        InboundReadQueueFull = 0x0207,
        /// Invalid request.
        InvalidInfinibandRequest = 0x0208,
        /// Unexpected opcode of a work queue element.
        UnexpectedWqeOpcode = 0x020A,
        /// Invalid parameter of a work queue element.
        InvalidWqeParameter = 0x020B,
        /// Invalid fragment of a work queue element.
        InvalidWqeFragment = 0x020C,
        /// Remote access error.
        RemoteAccessError = 0x020D,
        /// Remote operation error.
        RemoteOperationError = 0x020E,
        /// Last streaming mode message too long.
        LastStreamingMessageTooLong = 0x0220,
        /// Invalid request.
        InvalidRequest = 0x0223,
        /// Gap in message sequence numbers.
        GapInMessageNumbers = 0x0301,
        /// Message too long for the receive buffer.
        MessageTooLong = 0x0303,
        /// Bad DDP version.
        BadDdpVersion = 0x0304,
        /// Bad message offset.
        BadMessageOffset = 0x0305,
        /// No receive buffer for a message.
        NoBufferForMessage = 0x0306,
        /// Bad DDP queue number.
        BadDdpQueueNumber = 0x0307,
        /// No last bit.
        NoLastBit = 0x0308,
        /// Bad RDMAP version.
        BadRdmapVersion = 0x0311,
        /// Unexpected RDMAP opcode.
        UnexpectedRdmapOpcode = 0x0312,
        /// Invalid read request.
        InvalidReadRequest = 0x0313,
        /// Invalid write or read response.
        InvalidWriteOrReadResponse = 0x0314,
        /// Read response of the wrong length.
        RoceResponseLength = 0x0316,
        /// Empty multicast group.
        EmptyMulticastGroup = 0x0380,
        /// Bad multicast address.
        BadMulticastAddress = 0x0381,
        /// Bad queue pair in a multicast group.
        BadMulticastQueuePair = 0x0382,
        /// Queue pair of another protocol in a multicast group.
        MulticastProtocolMismatch = 0x0383,
        /// Invalid ARP entry.
        InvalidArpEntry = 0x0401,
        /// Invalid TCP option.
        InvalidTcpOption = 0x0402,
        /// Stale ARP entry.
        StaleArpEntry = 0x0403,
        /// Invalid address handle.
        InvalidAddressHandle = 0x0406,
        /// Close complete.
        CloseComplete = 0x0501,
        /// Connection reset.
        ConnectionReset = 0x0502,
        /// FIN received.
        FinReceived = 0x0503,
        /// Marker and length do not match.
        MarkerMismatch = 0x0504,
        /// Bad CRC of a packet.
        BadCrc = 0x0505,
        /// Segment too small.
        SegmentTooSmall = 0x0507,
        /// SYN received.
        SynReceived = 0x0508,
        /// TERMINATE received.
        TerminateReceived = 0x0509,
        /// Too many retries.
        TooManyRetries = 0x050A,
        /// Too many keepalives.
        TooManyKeepalives = 0x050B,
        /// Doubtful reachability.
        DoubtfulReachability = 0x050C,
        /// Connection established.
        ConnectionEstablished = 0x050E,
        /// Too many answers that the receiver is not ready.
        TooManyReceiverNotReady = 0x050F,
        /// Resource exhaustion.
        ResourceExhaustion = 0x0520,
        /// Reset sent.
        ResetSent = 0x0601,
        /// TERMINATE sent.
        TerminateSent = 0x0602,
        /// Reset not sent.
        ResetNotSent = 0x0603,
        /// Queue pair broken.
        QueuePairCatastrophic = 0x0700,
        /// Function broken.
        FunctionCatastrophic = 0x0701,
        /// Completion queue broken.
        CompletionQueueCatastrophic = 0x0702,
        /// Suspend complete.
        SuspendComplete = 0x0900,
    }
}

impl AeCode {
    /// The rule that attributes an event with this code to its queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_get_next_aeqe`.
    #[must_use]
    pub const fn attribution(self) -> Attribution {
        match self {
            Self::PrivilegedOperationDenied
            | Self::InvalidateTypeOneWindow
            | Self::ZeroBasedTypeOneBind
            | Self::FastRegisterBadPageSize
            | Self::FastRegisterPageListMismatch
            | Self::DatagramTooLong
            | Self::DatagramBadProtectionDomain
            | Self::DatagramTooShort
            | Self::BadLayerFourLength
            | Self::BadClose
            | Self::ReadWithOrdZero
            | Self::StagZeroNotAllowed
            | Self::InboundReadQueueFull
            | Self::InvalidInfinibandRequest
            | Self::UnexpectedWqeOpcode
            | Self::RemoteAccessError
            | Self::RemoteOperationError
            | Self::BadDdpVersion
            | Self::BadMessageOffset
            | Self::BadDdpQueueNumber
            | Self::NoLastBit
            | Self::BadRdmapVersion
            | Self::UnexpectedRdmapOpcode
            | Self::InvalidReadRequest
            | Self::InvalidWriteOrReadResponse
            | Self::RoceResponseLength
            | Self::InvalidArpEntry
            | Self::InvalidTcpOption
            | Self::StaleArpEntry
            | Self::InvalidAddressHandle
            | Self::BadCrc
            | Self::SegmentTooSmall
            | Self::TooManyRetries
            | Self::DoubtfulReachability
            | Self::ConnectionEstablished
            | Self::ResetSent
            | Self::TerminateSent
            | Self::ResetNotSent
            | Self::QueuePairCatastrophic
            | Self::SuspendComplete => Attribution::QueuePair,
            Self::BadConnectionClose
            | Self::EmptyMulticastGroup
            | Self::BadMulticastAddress
            | Self::BadMulticastQueuePair
            | Self::MulticastProtocolMismatch
            | Self::CloseComplete
            | Self::ConnectionReset
            | Self::FinReceived
            | Self::SynReceived
            | Self::TerminateReceived => Attribution::QueuePairAnySide,
            Self::CompletionQueueCatastrophic => Attribution::CompletionQueue,
            _ => Attribution::BySource,
        }
    }

    /// The code with which the failing queue of the queue pair is to be flushed.
    /// Source: irdma `hw.c`, `irdma_set_flush_fields`.
    #[must_use]
    pub const fn flush_code(self) -> FlushCode {
        match self {
            Self::UnallocatedStag
            | Self::InvalidStag
            | Self::BadQueuePair
            | Self::BadProtectionDomain
            | Self::BadStagKey
            | Self::BadStagIndex
            | Self::BoundsViolation
            | Self::RightsViolation
            | Self::TaggedOffsetWrap
            | Self::PrivilegedOperationDenied => FlushCode::Protection,
            Self::InvalidateWithoutRemoteAccess | Self::RemoteAccessError => {
                FlushCode::RemoteAccess
            }
            Self::DatagramBadProtectionDomain | Self::UnexpectedWqeOpcode => {
                FlushCode::LocalOperation
            }
            Self::RemoteOperationError
            | Self::RoceResponseLength
            | Self::BadCrc
            | Self::SegmentTooSmall => FlushCode::RemoteOperation,
            Self::DatagramTooLong
            | Self::DatagramTooShort
            | Self::BadLayerFourLength
            | Self::MessageTooLong
            | Self::BadMessageOffset => FlushCode::LocalLength,
            Self::QueuePairCatastrophic => FlushCode::Fatal,
            Self::TooManyRetries => FlushCode::RetryExceeded,
            Self::BindAlreadyValid
            | Self::BindInvalidRights
            | Self::BindInvalidBounds
            | Self::BindDisabled => FlushCode::WindowBind,
            Self::InvalidInfinibandRequest => FlushCode::RemoteInvalidRequest,
            _ => FlushCode::General,
        }
    }
}
