//! The asynchronous event that reports a fault of the RoCEv2 engine to the driver.
//!
//! The code for each situation is not documented for the E810. This is the model's choice, made so
//! that the Linux driver's table gives the completion status that verbs require.

use crate::roce::{AccessFault, RequesterFaultReason, ResponderFault};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::AeSource;

/// The code for memory that may not be touched.
pub(super) const fn access(fault: AccessFault) -> AeCode {
    match fault {
        AccessFault::UnallocatedKey => AeCode::UnallocatedStag,
        AccessFault::InvalidKey => AeCode::InvalidStag,
        AccessFault::BadQueuePair => AeCode::BadQueuePair,
        AccessFault::BadProtectionDomain => AeCode::BadProtectionDomain,
        AccessFault::BadKeyByte => AeCode::BadStagKey,
        AccessFault::BadKeyIndex => AeCode::BadStagIndex,
        AccessFault::Bounds => AeCode::BoundsViolation,
        AccessFault::Rights => AeCode::RightsViolation,
        AccessFault::Wrap => AeCode::TaggedOffsetWrap,
    }
}

/// The code for a requester that stopped; it always points to the send queue.
pub(super) const fn requester(reason: RequesterFaultReason) -> AeCode {
    match reason {
        RequesterFaultReason::RetriesExhausted => AeCode::TooManyRetries,
        RequesterFaultReason::NotReadyRetriesExhausted => AeCode::TooManyReceiverNotReady,
        RequesterFaultReason::RemoteInvalidRequest => AeCode::InvalidInfinibandRequest,
        RequesterFaultReason::RemoteAccess => AeCode::RemoteAccessError,
        RequesterFaultReason::RemoteOperation => AeCode::RemoteOperationError,
        RequesterFaultReason::ResponseLength { .. } => AeCode::RoceResponseLength,
        RequesterFaultReason::ResponseOpcode => AeCode::InvalidWriteOrReadResponse,
    }
}

/// The code for a responder that stopped, and the queue that the event points to.
pub(super) const fn responder(fault: ResponderFault) -> (AeCode, AeSource) {
    use AeSource::{InboundRequest, ReceiveQueue};
    match fault {
        ResponderFault::RemoteAccess(fault) => (access(fault), InboundRequest),
        ResponderFault::ReceiveAccess(fault) => (access(fault), ReceiveQueue),
        ResponderFault::BadReceiveRequest { code } => (AeCode::from_code(code), ReceiveQueue),
        ResponderFault::MessageTooLong { .. } => (AeCode::MessageTooLong, ReceiveQueue),
        ResponderFault::Invalidate(_) => (AeCode::InvalidateWithoutRemoteAccess, ReceiveQueue),
        ResponderFault::BadOpcode | ResponderFault::BadLength { .. } => {
            (AeCode::InvalidInfinibandRequest, InboundRequest)
        }
        ResponderFault::BadWriteLength => (AeCode::InvalidWriteOrReadResponse, InboundRequest),
        ResponderFault::BadReadRequest => (AeCode::InvalidReadRequest, InboundRequest),
        ResponderFault::TooManyReads => (AeCode::InboundReadQueueFull, InboundRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of irdma `defs.h`, IRDMA_AE_*; sources those of IRDMA_AE_SOURCE_*.
    #[test]
    fn every_fault_has_the_event_that_gives_its_status() {
        use AccessFault as A;
        let accesses = [
            (A::UnallocatedKey, 0x0102),
            (A::InvalidKey, 0x0103),
            (A::BadQueuePair, 0x0104),
            (A::BadProtectionDomain, 0x0105),
            (A::BadKeyByte, 0x0106),
            (A::BadKeyIndex, 0x0107),
            (A::Bounds, 0x0108),
            (A::Rights, 0x0109),
            (A::Wrap, 0x010A),
        ];
        for (fault, code) in accesses {
            assert_eq!(access(fault).code(), code, "{fault}");
        }
        use RequesterFaultReason as R;
        let (expected, found) = (8, 4);
        let requesters = [
            (R::RetriesExhausted, 0x050A),
            (R::NotReadyRetriesExhausted, 0x050F),
            (R::RemoteInvalidRequest, 0x0208),
            (R::RemoteAccess, 0x020D),
            (R::RemoteOperation, 0x020E),
            (R::ResponseLength { expected, found }, 0x0316),
            (R::ResponseOpcode, 0x0314),
        ];
        for (reason, code) in requesters {
            assert_eq!(requester(reason).code(), code, "{reason}");
        }
        use ResponderFault as F;
        let capacity_bytes = 4;
        let responders = [
            (F::RemoteAccess(A::Rights), 0x0109, 9),
            (F::ReceiveAccess(A::Bounds), 0x0108, 1),
            (F::BadReceiveRequest { code: 0x020C }, 0x020C, 1),
            (F::MessageTooLong { capacity_bytes }, 0x0303, 1),
            (F::BadOpcode, 0x0208, 9),
            (F::BadLength { found }, 0x0208, 9),
            (F::BadWriteLength, 0x0314, 9),
            (F::BadReadRequest, 0x0313, 9),
            (F::TooManyReads, 0x0207, 9),
            (F::Invalidate(A::Rights), 0x0112, 1),
        ];
        for (fault, code, source) in responders {
            let (event, at) = responder(fault);
            assert_eq!((event.code(), at.code()), (code, source), "{fault}");
        }
    }
}
