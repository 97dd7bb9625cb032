//! Register writes in fields.

use super::described::{Described, Value};
use ringside_model::record::RegisterWrite;
use ringside_spec::lan::registers::name_of;
use ringside_spec::lan::registers::queues::RECEIVE_QUEUE_CONTEXT;
use ringside_spec::rdma::registers as rdma;

/// The 32 bits of a receive queue's context that hold the ring's address, and the bits of the next
/// hold the rest of it. Source: ice `ice_common.c`, `ice_rlan_ctx_info`.
const RING_BASE_ROW: u32 = 1;
const RING_BASE_REST_BITS: u32 = 25;

/// Registers of the protocol engine by name.
const ENGINE: &[(u64, &str)] = &[
    (rdma::CQP_CONTEXT_LOW, "PFPE_CCQPLOW"),
    (rdma::CQP_CONTEXT_HIGH, "PFPE_CCQPHIGH"),
    (rdma::CQ_ARM, "PFPE_CQARM"),
    (rdma::CQ_ACKNOWLEDGE, "PFPE_CQACK"),
    (rdma::AEQ_ALLOCATE, "PFPE_AEQALLOC"),
    (rdma::AEQ_CAUSE_CONTROL, "PFINT_AEQCTL"),
    (rdma::PAGE_DESCRIPTOR_INVALIDATE, "PFHMC_PDINV"),
    (rdma::SEGMENT_COMMAND, "PFHMC_SDCMD"),
    (rdma::SEGMENT_DATA_LOW, "PFHMC_SDDATALOW"),
    (rdma::SEGMENT_DATA_HIGH, "PFHMC_SDDATAHIGH"),
];

pub(super) fn describe(write: &RegisterWrite) -> Described {
    let engine = ENGINE.iter().find(|(offset, _)| *offset == write.offset);
    let name = engine
        .map(|(_, name)| *name)
        .or_else(|| name_of(write.offset));
    let name = name.map_or_else(|| format!("{:#x}", write.offset), str::to_owned);
    let context = RECEIVE_QUEUE_CONTEXT.position_of(write.offset);
    let is_address = name.ends_with("BAL")
        || name.ends_with("BAH")
        || name.starts_with("PFPE_CCQP")
        || name.starts_with("PFHMC_SDDATA")
        || context.is_some_and(|(row, _)| row == RING_BASE_ROW);
    let value = if is_address {
        // the high half may well be 0
        Value::Drawn
    } else if context.is_some_and(|(row, _)| row == RING_BASE_ROW + 1) {
        Value::Number((write.value >> RING_BASE_REST_BITS).into())
    } else {
        Value::Number(write.value.into())
    };
    let field = context.map_or("value".into(), |(row, _)| format!("value[{row}]"));
    Described {
        kind: format!("register {name}"),
        variant: String::new(),
        fields: vec![(field, value)],
    }
}
