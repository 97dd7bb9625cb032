//! Event queues and shadow areas: the device's reports through memory.

use super::ae_codes::{AeCode, Attribution};
use super::commands::AeSource;
use super::layout::layout;
use crate::words;

layout! {
    /// Entry of a completion event queue (CEQE).
    /// Source: irdma `ctrl.c`, `irdma_sc_process_ceq`; `defs.h`, IRDMA_CEQE_*.
    pub struct CompletionEvent: [u64; 1] {
        /// The completion context given when the completion queue was created; 0 means skip.
        completion_context: u64 = 0[62:0],
        /// Ring polarity, 1 on the first pass.
        valid: bool = 0[63],
    }

    /// Entry of the asynchronous event queue (AEQE).
    /// Source: irdma `ctrl.c`, `irdma_sc_get_next_aeqe`; `defs.h`, IRDMA_AEQE_*.
    pub struct AsynchronousEvent: [u64; 2] {
        /// Completion context of the queue pair or completion queue.
        completion_context: u64 = 0[63:0],
        /// Number of the queue pair or completion queue.
        queue_number: u32 = 1[17:0] | 1[46],
        /// Index of the work queue element, in quanta.
        wqe_index: u16 = 1[32:18],
        /// The queue has overflown: events were lost.
        overflow: bool = 1[33],
        /// The event's code.
        ae_code: AeCode = 1[45:34],
        /// Source of the event.
        source: AeSource = 1[53:50],
        /// State of the queue pair in the device's own terms (iWARP).
        iwarp_state: u8 = 1[56:54],
        /// State of the TCP connection (iWARP).
        tcp_state: u8 = 1[60:57],
        /// The data that the device wrote to the Q2 buffer (iWARP).
        q2_data_written: u8 = 1[62:61],
        /// Ring polarity, 1 on the first pass.
        valid: bool = 1[63],
    }
}

/// The object of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A queue pair; the source gives the side.
    QueuePair(Side),
    /// A completion queue.
    CompletionQueue,
    /// Nothing that the event names.
    Nothing,
}

/// The part of a queue pair in which an event arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The event does not report it.
    Unknown,
    /// Send queue.
    SendQueue,
    /// Receive queue.
    ReceiveQueue,
    /// Inbound RDMA write or read request.
    InboundRequest,
    /// Outbound read response.
    OutboundReadResponse,
}

impl AeSource {
    /// The object of an event from this source.
    #[must_use]
    pub const fn subject(self) -> Subject {
        match self {
            Self::ReceiveQueue | Self::ReceiveQueue3 => Subject::QueuePair(Side::ReceiveQueue),
            Self::SendQueue | Self::SendQueue7 => Subject::QueuePair(Side::SendQueue),
            Self::InboundRequest | Self::InboundRequestB => {
                Subject::QueuePair(Side::InboundRequest)
            }
            Self::OutboundReadResponse | Self::OutboundReadResponseF => {
                Subject::QueuePair(Side::OutboundReadResponse)
            }
            Self::CompletionQueue
            | Self::CompletionQueue6
            | Self::CompletionQueueA
            | Self::CompletionQueueE => Subject::CompletionQueue,
            Self::None | Self::Unknown(_) => Subject::Nothing,
        }
    }
}

impl AsynchronousEvent {
    /// The object of the event, by code or by source.
    #[must_use]
    pub const fn subject(&self) -> Subject {
        match (self.ae_code.attribution(), self.source.subject()) {
            (Attribution::QueuePairAnySide, _) => Subject::QueuePair(Side::Unknown),
            (Attribution::QueuePair, Subject::QueuePair(side)) => Subject::QueuePair(side),
            (Attribution::QueuePair, _) => Subject::QueuePair(Side::Unknown),
            (Attribution::CompletionQueue, _) => Subject::CompletionQueue,
            (Attribution::BySource, subject) => subject,
        }
    }
}

/// Word of a completion queue's shadow area with the head, see [`CqShadowHead`].
pub const CQ_SHADOW_HEAD_WORD: usize = 0;
/// Word of a completion queue's shadow area with the arm request, see [`CqShadowArm`].
pub const CQ_SHADOW_ARM_WORD: usize = 4;
/// Word of a queue pair's shadow area with the device's send tail, see [`QpShadowTail`].
pub const QP_SHADOW_TAIL_WORD: usize = 0;

words! {
    /// Word 0 of a completion queue's shadow area, written by software: the whole index, also
    /// beyond the 20 bits that `defs.h` names (IRDMA_CQ_DBSA_CQEIDX). A queue has up to 2^21 - 1
    /// elements.
    /// Source: irdma `uk.c`, `irdma_uk_cq_poll_cmpl`; `ctrl.c`, `irdma_sc_ccq_get_cqe_info`;
    /// `defs.h`, IRDMA_CQPSQ_CQ_CQSIZE.
    pub struct CqShadowHead: u64 {
        /// index of the next completion that software will read
        head: [20:0],
    }

    /// Word 4 of a completion queue's shadow area, written by software before it rings to arm.
    /// Source: irdma `defs.h`, IRDMA_CQ_DBSA_*.
    pub struct CqShadowArm: u64 {
        /// number of completed resizes
        cq_select: [13:0],
        /// request an event for the next completion
        arm_next: [14],
        /// request an event for the next solicited completion
        arm_next_solicited: [15],
        /// counts arm requests
        arm_sequence: [17:16],
    }

    /// Word 0 of a queue pair's shadow area, written by the device.
    /// Source: irdma `uk.c`, `irdma_uk_qp_post_wr`; `defs.h`, IRDMA_QP_DBSA_HW_SQ_TAIL.
    pub struct QpShadowTail: u64 {
        /// quantum at which the device stopped looking
        send_queue_tail: [14:0],
    }
}

impl CqShadowArm {
    /// The word that arms a control completion queue for its next completion.
    /// Source: irdma `ctrl.c`, `irdma_sc_ccq_arm`.
    #[must_use]
    pub const fn armed_for_any(self) -> Self {
        Self(self.0 & Self::DEFINED)
            .with_arm_next(true)
            .with_arm_sequence((self.arm_sequence() + 1) % 4)
    }

    /// The word that arms a queue: for solicited completions, or for any.
    /// Source: irdma `uk.c`, `irdma_uk_cq_request_notification`.
    #[must_use]
    pub const fn armed(self, solicited_only: bool) -> Self {
        Self(self.0 & Self::DEFINED)
            .with_arm_next_solicited(true)
            .with_arm_next(!solicited_only)
            .with_arm_sequence((self.arm_sequence() + 1) % 4)
    }
}
