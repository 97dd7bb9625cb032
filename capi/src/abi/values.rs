//! Numbers of `infiniband/verbs.h`: states, kinds, masks, flags, codes.

/// `ibv_qp_state`.
pub mod state {
    use std::ffi::c_int;
    pub const RESET: c_int = 0;
    pub const INIT: c_int = 1;
    pub const RTR: c_int = 2;
    pub const RTS: c_int = 3;
    pub const SQD: c_int = 4;
    pub const ERR: c_int = 6;
}

/// `ibv_qp_type`.
pub mod kind {
    use std::ffi::c_int;
    pub const RC: c_int = 2;
    pub const UC: c_int = 3;
    pub const UD: c_int = 4;
    pub const RAW_PACKET: c_int = 8;
    pub const XRC_SEND: c_int = 9;
    pub const XRC_RECEIVE: c_int = 10;
    pub const DRIVER: c_int = 0xFF;
}

/// `ibv_qp_attr_mask`.
pub mod mask {
    use std::ffi::c_int;
    pub const STATE: c_int = 1 << 0;
    pub const CUR_STATE: c_int = 1 << 1;
    pub const EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
    pub const ACCESS_FLAGS: c_int = 1 << 3;
    pub const PKEY_INDEX: c_int = 1 << 4;
    pub const PORT: c_int = 1 << 5;
    pub const QKEY: c_int = 1 << 6;
    pub const AV: c_int = 1 << 7;
    pub const PATH_MTU: c_int = 1 << 8;
    pub const TIMEOUT: c_int = 1 << 9;
    pub const RETRY_CNT: c_int = 1 << 10;
    pub const RNR_RETRY: c_int = 1 << 11;
    pub const RQ_PSN: c_int = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub const ALT_PATH: c_int = 1 << 14;
    pub const MIN_RNR_TIMER: c_int = 1 << 15;
    pub const SQ_PSN: c_int = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const PATH_MIG_STATE: c_int = 1 << 18;
    pub const DEST_QPN: c_int = 1 << 20;
    pub const STANDARD: c_int = (1 << 21) - 1;
}

/// `ibv_send_flags`.
pub mod send_flags {
    use std::ffi::c_uint;
    pub const FENCE: c_uint = 1;
    pub const SIGNALED: c_uint = 2;
    pub const SOLICITED: c_uint = 4;
    pub const INLINE: c_uint = 8;
}

/// `ibv_wr_opcode`.
pub mod request {
    use std::ffi::c_int;
    pub const RDMA_WRITE: c_int = 0;
    pub const RDMA_WRITE_WITH_IMM: c_int = 1;
    pub const SEND: c_int = 2;
    pub const SEND_WITH_IMM: c_int = 3;
    pub const RDMA_READ: c_int = 4;
    pub const LOCAL_INV: c_int = 7;
    pub const BIND_MW: c_int = 8;
    pub const SEND_WITH_INV: c_int = 9;
}

/// `ibv_wc_status`.
pub mod status {
    use std::ffi::c_int;
    pub const SUCCESS: c_int = 0;
    pub const WR_FLUSH_ERR: c_int = 5;
}

/// `ibv_wc_opcode`.
pub mod completed {
    use std::ffi::c_int;
    pub const SEND: c_int = 0;
    pub const RDMA_WRITE: c_int = 1;
    pub const RDMA_READ: c_int = 2;
    pub const BIND_MW: c_int = 5;
    pub const LOCAL_INV: c_int = 6;
    pub const RECV: c_int = 128;
    pub const RECV_RDMA_WITH_IMM: c_int = 129;
}

/// `ibv_wc_flags`.
pub mod wc_flags {
    use std::ffi::c_uint;
    pub const GRH: c_uint = 1;
    pub const WITH_IMM: c_uint = 2;
    pub const WITH_INV: c_uint = 8;
}

/// `ibv_create_cq_wc_flags`.
pub mod wc_ex {
    /// byte length, immediate data, queue pairs, and what RoCE leaves 0
    pub const STANDARD: u64 = 0x7F;
}

/// `ibv_cq_init_attr_mask` and `ibv_create_cq_attr_flags`.
pub mod cq_init {
    pub const FLAGS: u32 = 1 << 0;
    pub const DOMAIN: u32 = 1 << 1;
    pub const SINGLE_THREADED: u32 = 1 << 0;
}

/// `ibv_qp_init_attr_mask`.
pub mod qp_init {
    pub const DOMAIN: u32 = 1 << 0;
    pub const CREATE_FLAGS: u32 = 1 << 2;
    pub const SEND_OPS_FLAGS: u32 = 1 << 6;
}

/// `ibv_qp_create_send_ops_flags`.
pub mod send_ops {
    pub const RDMA_WRITE: u64 = 1 << 0;
    pub const RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
    pub const SEND: u64 = 1 << 2;
    pub const SEND_WITH_IMM: u64 = 1 << 3;
    pub const RDMA_READ: u64 = 1 << 4;
    pub const LOCAL_INV: u64 = 1 << 7;
    pub const BIND_MW: u64 = 1 << 8;
    pub const SEND_WITH_INV: u64 = 1 << 9;
}

/// `ibv_parent_domain_init_attr_mask`.
pub mod parent_domain {
    pub const DOMAIN_CONTEXT: u32 = 1 << 1;
}

/// `ibv_access_flags`.
pub mod access {
    use std::ffi::c_int;
    pub const LOCAL_WRITE: c_int = 1;
    pub const REMOTE_WRITE: c_int = 2;
    pub const REMOTE_READ: c_int = 4;
    pub const REMOTE_ATOMIC: c_int = 8;
    pub const MW_BIND: c_int = 16;
    pub const ZERO_BASED: c_int = 32;
    pub const ON_DEMAND: c_int = 64;
    /// hint that the memory consists of huge pages, which the kernel finds itself
    pub const HUGETLB: c_int = 128;
    /// bits that a library may ignore
    pub const OPTIONAL: c_int = 0x3FF0_0000;
    pub const KNOWN: c_int =
        LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND | ZERO_BASED | HUGETLB;
}

/// `ibv_mw_type`.
pub mod window {
    use std::ffi::c_int;
    pub const TYPE_1: c_int = 1;
    pub const TYPE_2: c_int = 2;
}

/// `ibv_mr_init_attr_mask`, of release 65.
pub mod register {
    pub const IOVA: u64 = 1;
    pub const ADDRESS: u64 = 2;
    pub const DESCRIPTOR: u64 = 4;
    pub const DESCRIPTOR_OFFSET: u64 = 8;
    pub const BUFFER: u64 = 32;
}

/// `ibv_rereg_mr_flags` and `ibv_rereg_mr_err_code`.
pub mod reregister {
    use std::ffi::c_int;
    pub const TRANSLATION: c_int = 1;
    pub const DOMAIN: c_int = 2;
    pub const ACCESS: c_int = 4;
    pub const ERROR_INPUT: c_int = -1;
    pub const ERROR_COMMAND: c_int = -4;
}

/// `ibv_event_type`.
pub mod event {
    use std::ffi::c_int;
    pub const CQ_ERR: c_int = 0;
    pub const QP_FATAL: c_int = 1;
    pub const QP_REQ_ERR: c_int = 2;
    pub const QP_ACCESS_ERR: c_int = 3;
    pub const SQ_DRAINED: c_int = 5;
    pub const DEVICE_FATAL: c_int = 8;
    pub const PORT_ACTIVE: c_int = 9;
    pub const PORT_ERR: c_int = 10;
    pub const SRQ_LIMIT_REACHED: c_int = 15;
    pub const QP_LAST_WQE_REACHED: c_int = 16;
    pub const GID_CHANGE: c_int = 18;
}
