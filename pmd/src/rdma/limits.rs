//! The limits of verbs, as `ibv_devinfo` lists them.

use super::MAX_COMPLETIONS;
use super::objects::Objects;
use ringside_spec::rdma::limits::{
    MAX_FRAGMENTS, MAX_INBOUND_READS, MAX_INLINE_BYTES, MAX_MESSAGE_BYTES, MAX_REGION_BYTES,
    PAGE_SIZES,
};
use serde::Serialize;

/// Requests of one queue of a queue pair, of any size.
pub(crate) const MAX_REQUESTS: u32 = 4_094;

/// Limits of a device in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaLimits {
    /// Queue pairs (`max_qp`).
    pub queue_pairs: u32,
    /// Completion queues (`max_cq`).
    pub completion_queues: u32,
    /// Memory regions (`max_mr`).
    pub memory_regions: u32,
    /// Protection domains (`max_pd`).
    pub protection_domains: u32,
    /// Requests of a send or receive queue, of any size (`max_qp_wr`).
    pub requests: u32,
    /// Completions of a completion queue (`max_cqe`).
    pub completions: u32,
    /// Fragments of a request (`max_sge`).
    pub fragments: u32,
    /// Fragments of an RDMA read (`max_sge_rd`).
    pub read_fragments: u32,
    /// Inline bytes of a request (`max_inline_data`).
    pub inline_bytes: u32,
    /// Bytes of a message (`max_msg_sz`).
    pub message_bytes: u32,
    /// Bytes of a memory region (`max_mr_size`).
    pub region_bytes: u64,
    /// Page sizes of memory regions, as a set of powers of two (`page_size_cap`).
    pub page_sizes: u64,
    /// RDMA reads of peers under way for one queue pair (`max_qp_rd_atom`).
    pub inbound_reads: u32,
    /// RDMA reads under way from one queue pair (`max_qp_init_rd_atom`).
    pub outbound_reads: u32,
}

impl RdmaLimits {
    pub(crate) fn of(objects: &Objects) -> Self {
        Self {
            queue_pairs: objects.queue_pairs.numbers().quota(),
            completion_queues: objects.completion_queues.numbers().quota(),
            memory_regions: objects.regions.numbers().quota(),
            protection_domains: objects.protection_domains.quota(),
            requests: MAX_REQUESTS,
            completions: MAX_COMPLETIONS,
            fragments: MAX_FRAGMENTS,
            read_fragments: MAX_FRAGMENTS,
            inline_bytes: MAX_INLINE_BYTES,
            message_bytes: MAX_MESSAGE_BYTES,
            region_bytes: MAX_REGION_BYTES,
            page_sizes: PAGE_SIZES,
            inbound_reads: MAX_INBOUND_READS,
            outbound_reads: MAX_INBOUND_READS,
        }
    }
}
