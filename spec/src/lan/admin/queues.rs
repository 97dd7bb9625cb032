//! Transmit queues and RDMA queue sets under the scheduler's tree.

use super::scheduler::Element;
use crate::lan::transmit::TransmitContext;
use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters of [`AddTransmitQueues`](super::Opcode::AddTransmitQueues); the buffer holds
    /// groups: [`TransmitQueueGroup`] and its [`TransmitQueue`]s.
    pub struct AddTransmitQueues "ice_aqc_add_txqs" {
        /// groups in the buffer
        group_count "num_qgrps": u8,
        /// zero
        reserved "reserved": [u8; 3],
        /// zero
        reserved_1 "reserved1": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`DisableTransmitQueues`](super::Opcode::DisableTransmitQueues);
    /// the buffer holds groups: [`DisableGroup`], its queues of 16 bits ([`DisabledQueue`]), and
    /// two bytes of padding after an even number of queues.
    pub struct DisableTransmitQueues "ice_aqc_dis_txqs" {
        /// see [`DisableFlags`]
        flags "cmd_type": u8,
        /// groups in the buffer; 0 and no buffer for a reset of a virtual function
        group_count "num_entries": u8,
        /// see [`DisableScope`]
        scope "vmvf_and_timeout": U16,
        /// answer: congestion domains that are blocked
        blocked_domains "blocked_cgds": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`MoveTransmitQueues`](super::Opcode::MoveTransmitQueues); the
    /// buffer holds [`MoveQueues`] and its [`MovedQueue`]s.
    pub struct MoveTransmitQueues "ice_aqc_cfg_txqs" {
        /// see [`MoveFlags`]
        flags "cmd_type": u8,
        /// queues in the buffer
        count "num_qs": u8,
        /// see [`PortChange`]
        port_change "port_num_chng": u8,
        /// see [`MoveTimeout`]
        timeout "time_out": u8,
        /// answer: congestion domains that are blocked
        blocked_domains "blocked_cgds": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`AddRdmaQueueSets`](super::Opcode::AddRdmaQueueSets); the buffer holds
    /// groups: [`RdmaQueueSetGroup`] and its [`RdmaQueueSet`]s.
    pub struct AddRdmaQueueSets "ice_aqc_add_rdma_qset" {
        /// groups in the buffer
        group_count "num_qset_grps": u8,
        /// zero
        reserved "reserved": [u8; 7],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// Head of a group of transmit queues; `count` [`TransmitQueue`] follow.
    pub struct TransmitQueueGroup "ice_aqc_add_tx_qgrp": 8 {
        /// node that the queues go under
        parent "parent_teid": U32,
        /// queues that follow
        count "num_txqs": u8,
        /// zero
        reserved "rsvd": [u8; 3],
    }
    /// A transmit queue.
    pub struct TransmitQueue "ice_aqc_add_txqs_perq": 48 {
        /// number of the queue in the function
        queue "txq_id": U16,
        /// zero
        reserved "rsvd": [u8; 2],
        /// answer: its node
        node "q_teid": U32,
        /// see [`TransmitContext`]
        context "txq_ctx": [u8; TransmitContext::SIZE],
        /// zero
        reserved_2 "rsvd2": [u8; 2],
        /// its place in the tree
        element "info": Element,
    }
    /// Head of a group of queues to disable; see [`DisableTransmitQueues`].
    pub struct DisableGroup "ice_aqc_dis_txq_item": 6 {
        /// node that the queues are under
        parent "parent_teid": U32,
        /// queues that follow
        count "num_qs": u8,
        /// zero
        reserved "rsvd": u8,
    }
    /// Head of a move; `count` of the command [`MovedQueue`] follow.
    pub struct MoveQueues "ice_aqc_cfg_txqs_buf": 8 {
        /// node that the queues leave
        source_parent "src_parent_teid": U32,
        /// node that they get
        destination_parent "dst_parent_teid": U32,
    }
    /// A queue that moves.
    pub struct MovedQueue "ice_aqc_cfg_txq_perq": 8 {
        /// queue
        queue "q_handle": U16,
        /// traffic class
        class "tc": u8,
        /// zero
        reserved "rsvd": u8,
        /// its node
        node "q_teid": U32,
    }
    /// Head of a group of RDMA queue sets; `count` [`RdmaQueueSet`] follow.
    pub struct RdmaQueueSetGroup "ice_aqc_add_rdma_qset_data": 8 {
        /// node that the sets go under
        parent "parent_teid": U32,
        /// sets that follow
        count "num_qsets": U16,
        /// zero
        reserved "rsvd": [u8; 2],
    }
    /// An RDMA queue set.
    pub struct RdmaQueueSet "ice_aqc_add_tx_rdma_qset_entry": 24 {
        /// number of the set, from the RDMA driver
        queue_set "tx_qset_id": U16,
        /// zero
        reserved "rsvd": [u8; 2],
        /// answer: its node
        node "qset_teid": U32,
        /// its place in the tree
        element "info": Element,
    }
}

/// Values of [`DisableFlags::reset`]. Source: ice `ICE_AQC_Q_DIS_CMD_*`.
pub mod disable_reset {
    /// no reset
    pub const NONE: u8 = 0;
    /// of a virtual machine
    pub const VIRTUAL_MACHINE: u8 = 1;
    /// of a virtual function
    pub const VIRTUAL_FUNCTION: u8 = 2;
    /// of the physical function
    pub const PHYSICAL_FUNCTION: u8 = 3;
}

/// Value of [`DisableScope::timeout_100us`] that drivers give.
pub const DISABLE_TIMEOUT_100US: u16 = 5;

crate::words! {
    /// Source: ice `ICE_AQC_Q_DIS_CMD_*`.
    pub struct DisableFlags: u8 {
        /// see [`disable_reset`]
        reset: [1:0],
        /// not the first call
        subsequent: [2],
        /// wait until the pipe is empty
        flush: [3],
    }
    /// Source: ice `ICE_AQC_Q_DIS_VMVF_NUM_*`, `_TIMEOUT_*`.
    pub struct DisableScope: u16 {
        /// virtual function or machine that is reset
        virtual_function: [9:0],
        /// longest wait in 100 us
        timeout_100us: [15:10],
    }
    /// Source: ice `ICE_AQC_Q_DIS_BUF_ELEM_TYPE_*`.
    pub struct DisabledQueue: u16 {
        /// number of the queue or set
        number: [14:0],
        /// it is an RDMA queue set
        rdma_queue_set: [15],
    }
    /// Source: ice `ICE_AQC_Q_CFG_*`.
    pub struct MoveFlags: u8 {
        /// 1 moves the node, 2 changes the class, 3 both
        operation: [1:0],
        /// not the first call
        subsequent: [2],
        /// wait until the pipe is empty
        flush: [3],
    }
    /// Source: ice `ICE_AQC_Q_CFG_SRC_PRT_*`, `_DST_PRT_*`.
    pub struct PortChange: u8 {
        /// port that is left
        source: [2:0],
        /// port that comes
        destination: [5:3],
    }
    /// Source: ice `ICE_AQC_Q_CFG_TIMEOUT_*`.
    pub struct MoveTimeout: u8 {
        /// longest wait
        timeout: [6:2],
    }
}

impl DisableGroup {
    /// Bytes of a group with `count` queues, the padding included.
    #[must_use]
    pub const fn size_with(count: usize) -> usize {
        let unpadded = Self::SIZE + count * 2;
        unpadded + if count.is_multiple_of(2) { 2 } else { 0 }
    }
}
