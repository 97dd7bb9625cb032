//! A small device for the tests: its limits and its layout of objects.

use ringside_spec::rdma::fpm::{
    BASE_UNIT_BYTES, FpmCommit, FpmQuery, ObjectGrant, ObjectLimit, ObjectType, PerObject,
};

use crate::{DeviceLimits, Layout, Plan, Wanted};

/// The worked example of e810-rdma reference 2.5.
pub(crate) fn query() -> FpmQuery {
    use ObjectType as Object;
    let objects = PerObject::from_fn(|object| {
        let (max_count, size_bytes) = match object {
            Object::QueuePair => (1024, 512),
            Object::CompletionQueue => (2048, 64),
            Object::HashTableEntry => (8192, 64),
            Object::Arp => (256, 64),
            Object::PortBitVector => (1, 8192),
            Object::MemoryRegion => (16384, 64),
            Object::TransmitFifo => (65536, 32),
            Object::TransmitFifoFreeList => (16384, 4),
            Object::InboundRead => (262_144, 64),
            Object::InboundReadFreeList => (65536, 4),
            Object::Timer => (4096, 64),
            Object::MulticastGroup => (512, 64),
            Object::AddressVector => (1024, 64),
            Object::PageBufferList => (262_144, 8),
            Object::ReadResponse => (32768, 64),
            Object::ReadResponseFreeList => (8192, 4),
            Object::Header => (1024, 128),
            Object::Metadata => (1024, 64),
            Object::OutOfOrder => (0, 1),
            Object::OutOfOrderFreeList => (0, 4),
        };
        ObjectLimit {
            max_count,
            size_bytes,
        }
    });
    FpmQuery {
        first_segment: 0,
        max_segments: 64,
        max_ceqs: 64,
        hash_multiplier: 2,
        timer_bucket: 512,
        transmit_fifo_block: 4,
        inbound_read_block: 4,
        read_response_block: 4,
        out_of_order_block: 0,
        objects,
    }
}

/// Limits after a change to the example.
pub(crate) fn limits(change: impl FnOnce(&mut FpmQuery)) -> DeviceLimits {
    let mut query = query();
    change(&mut query);
    DeviceLimits::from_query(&query).expect("sensible limits")
}

/// Wanted numbers that fit the example.
pub(crate) fn wanted() -> Wanted {
    Wanted {
        queue_pairs: 64,
        completion_queues: 128,
        memory_regions: 1023,
        pbles: 65_536,
        address_handles: 255,
        arp_entries: 62,
        multicast_groups: 63,
    }
}

/// Lays the plan out back to back, page lists last, as the golden vectors' device does.
pub(crate) fn commit(plan: &Plan) -> FpmCommit {
    let mut next = 0;
    let mut grants = PerObject::all(ObjectGrant {
        count: 0,
        base_by_512: 0,
    });
    let last = ObjectType::PageBufferList;
    let others = ObjectType::ALL.into_iter().filter(|&object| object != last);
    for object in others.chain([last]) {
        grants[object] = ObjectGrant {
            count: plan.count(object),
            base_by_512: next,
        };
        next += (plan.object_bytes(object) / BASE_UNIT_BYTES) as u32;
    }
    FpmCommit(grants)
}

/// The layout of a plan for these numbers on the example.
pub(crate) fn layout(wanted: &Wanted) -> Layout {
    let plan = Plan::new(&limits(|_| {}), wanted).expect("fits");
    let answer = commit(&plan);
    Layout::from_commit(plan, &answer).expect("a sound answer")
}
