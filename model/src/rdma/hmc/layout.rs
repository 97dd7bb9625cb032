//! Placing the objects in function private memory.

use super::capacity;
use ringside_spec::rdma::fpm::{BASE_UNIT_BYTES, FpmCommit, ObjectGrant, ObjectType, PerObject};
use ringside_spec::rdma::segments::{BACKING_PAGE_BYTES, SEGMENT_BYTES};

/// Kinds whose count the model itself allocates tables for, and so does not exceed.
const BOUNDED: [ObjectType; 4] = [
    ObjectType::QueuePair,
    ObjectType::CompletionQueue,
    ObjectType::MemoryRegion,
    ObjectType::AddressVector,
];

/// Places the requested counts back to back, page buffer lists last, and reports if a count was cut
/// to the maximum. They begin in segment `first`. `None` if they need more segments than there are.
pub(in crate::rdma) fn lay_out(
    wanted: &FpmCommit,
    first: u16,
) -> Option<(FpmCommit, Option<ObjectType>)> {
    let mut cut = None;
    let mut granted = PerObject::all(ObjectGrant {
        count: 0,
        base_by_512: 0,
    });
    let mut next = u64::from(first) * SEGMENT_BYTES;
    let last = ObjectType::PageBufferList;
    let others = ObjectType::ALL.into_iter().filter(|&object| object != last);
    for object in others.chain([last]) {
        let limit = capacity().objects[object];
        let mut count = wanted.0[object].count;
        if BOUNDED.contains(&object) && count > limit.max_count {
            cut = Some(object);
            count = limit.max_count;
        }
        let alignment = if object == last {
            BACKING_PAGE_BYTES
        } else {
            BASE_UNIT_BYTES
        };
        next = next.checked_next_multiple_of(alignment)?;
        granted[object] = ObjectGrant {
            count,
            base_by_512: u32::try_from(next / BASE_UNIT_BYTES).ok()?,
        };
        next = next.checked_add(u64::from(count).checked_mul(limit.size_bytes)?)?;
    }
    let end = u64::from(first) + u64::from(capacity().max_segments);
    (next.div_ceil(SEGMENT_BYTES) <= end).then_some((FpmCommit(granted), cut))
}
