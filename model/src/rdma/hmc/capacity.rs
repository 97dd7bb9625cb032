//! The capacity of the modelled card for each object.
//!
//! The numbers are the model's choice (the card's are not published); the shape satisfies every
//! rule by which Linux picks its counts. Source of the rules: irdma `ctrl.c`, `irdma_cfg_fpm_val`.

use ringside_spec::rdma::fpm::{FpmQuery, ObjectLimit, ObjectType, PerObject};
use std::sync::OnceLock;

/// The answer to QUERY_FPM.
pub(in crate::rdma) fn capacity() -> &'static FpmQuery {
    static CAPACITY: OnceLock<FpmQuery> = OnceLock::new();
    CAPACITY.get_or_init(|| FpmQuery {
        first_segment: 0,
        max_segments: 128,
        max_ceqs: 64,
        hash_multiplier: 2,
        timer_bucket: 512,
        transmit_fifo_block: 4,
        inbound_read_block: 4,
        read_response_block: 4,
        out_of_order_block: 0,
        objects: PerObject::from_fn(limit),
    })
}

fn limit(object: ObjectType) -> ObjectLimit {
    let (max_count, size_bytes) = match object {
        ObjectType::QueuePair => (2048, 512),
        ObjectType::CompletionQueue => (4096, 64),
        ObjectType::HashTableEntry => (16_384, 64),
        ObjectType::Arp => (1024, 64),
        ObjectType::PortBitVector => (1, 8192),
        ObjectType::MemoryRegion => (32_768, 64),
        ObjectType::TransmitFifo => (65_536, 32),
        ObjectType::TransmitFifoFreeList => (16_384, 4),
        // At least 254 for each queue pair plus 512, rounded up to a power of two.
        ObjectType::InboundRead => (524_288, 64),
        ObjectType::InboundReadFreeList => (131_072, 4),
        ObjectType::Timer => (4096, 64),
        ObjectType::MulticastGroup => (512, 64),
        ObjectType::AddressVector => (1024, 64),
        ObjectType::PageBufferList => (1_048_576, 8),
        ObjectType::ReadResponse => (65_536, 64),
        ObjectType::ReadResponseFreeList => (16_384, 4),
        ObjectType::Header => (2048, 128),
        ObjectType::Metadata => (1024, 64),
        ObjectType::OutOfOrder => (0, 64),
        ObjectType::OutOfOrderFreeList => (0, 4),
    };
    ObjectLimit {
        max_count,
        size_bytes,
    }
}
