use super::*;
use ringside_bus::function::DmaAccess;
use ringside_bus::{Memory, PageSize};
use ringside_spec::rdma::fpm::{ObjectGrant, PerObject};
use ringside_spec::rdma::segments::SEGMENT_BYTES;

fn space() -> DmaSpace {
    let memory = Memory::allocate(4 << 20, PageSize::FourKiB, None).unwrap();
    let mut space = DmaSpace::new();
    space.set_bus_master(true);
    assert!(space.map(Iova(0x1000_0000), &memory, 0, 4 << 20, DmaAccess::ReadWrite));
    space
}

fn committed(count: u32) -> Hmc {
    let wanted = PerObject::from_fn(|object| ObjectGrant {
        count: match object {
            ObjectType::PageBufferList | ObjectType::QueuePair => count,
            _ => 0,
        },
        base_by_512: 0,
    });
    let mut hmc = Hmc::new(0);
    hmc.commit(lay_out(&FpmCommit(wanted), 0).unwrap().0);
    hmc
}

#[test]
fn objects_lie_back_to_back_and_page_lists_last() {
    let wanted = FpmCommit(PerObject::from_fn(|object| ObjectGrant {
        count: capacity().objects[object].max_count,
        base_by_512: 0,
    }));
    let (granted, cut) = lay_out(&wanted, 0).unwrap();
    assert_eq!(cut, None);
    let present = granted.0.iter().filter(|(_, grant)| grant.count > 0);
    let mut places: Vec<_> = present
        .map(|(object, grant)| (grant.base(), object))
        .collect();
    places.sort();
    for pair in places.windows(2) {
        let ((base, object), (next, _)) = (pair[0], pair[1]);
        let limit = capacity().objects[object];
        assert!(base + u64::from(limit.max_count) * limit.size_bytes <= next);
    }
    assert_eq!(places.last().unwrap().1, ObjectType::PageBufferList);
}

#[test]
fn objects_of_a_function_with_a_later_first_segment_lie_from_there_on() {
    let first = 5;
    let wanted = FpmCommit(PerObject::from_fn(|object| ObjectGrant {
        count: capacity().objects[object].max_count,
        base_by_512: 0,
    }));
    let (moved, _) = lay_out(&wanted, first).unwrap();
    let (plain, _) = lay_out(&wanted, 0).unwrap();
    for object in ObjectType::ALL {
        let offset = u64::from(first) * SEGMENT_BYTES;
        assert_eq!(moved.0[object].base(), plain.0[object].base() + offset);
    }
    let mut hmc = Hmc::new(first);
    assert!(!hmc.set_segment(4, SegmentData::ZERO), "another function's");
    assert!(hmc.set_segment(5, SegmentData::ZERO));
    let end = u64::from(first + capacity().max_segments);
    assert!(hmc.set_segment(end - 1, SegmentData::ZERO));
    assert!(!hmc.set_segment(end, SegmentData::ZERO));
}

#[test]
fn more_than_the_segments_hold_is_refused() {
    let mut wanted = FpmCommit(PerObject::all(ObjectGrant {
        count: 1,
        base_by_512: 0,
    }));
    wanted.0[ObjectType::TransmitFifo].count = u32::MAX;
    assert!(lay_out(&wanted, 0).is_none());
}

#[test]
fn direct_and_paged_segments_lead_to_the_same_object() {
    let space = space();
    let mut hmc = committed(16);
    let missing = hmc.locate(ObjectType::QueuePair, 3, &space).unwrap_err();
    assert_eq!(missing, HmcFault::NoSegment { segment: 0 });
    assert!(hmc.set_segment(0, SegmentData::backed(0x1000_0000, true)));
    let direct = hmc.locate(ObjectType::QueuePair, 11, &space).unwrap();
    assert_eq!(direct, Iova(0x1000_0000 + 11 * 512));
    assert!(hmc.set_segment(0, SegmentData::backed(0x1020_0000, false)));
    let missing = hmc.locate(ObjectType::QueuePair, 11, &space).unwrap_err();
    assert_eq!(
        missing,
        HmcFault::NoPage {
            segment: 0,
            page: 1
        }
    );
    let page = PageDescriptor::backed(0x1030_0000);
    space.write_words(Iova(0x1020_0008), &[page.0]).unwrap();
    let paged = hmc.locate(ObjectType::QueuePair, 11, &space).unwrap();
    assert_eq!(paged, Iova(0x1030_0000 + 3 * 512));
}

#[test]
fn a_page_descriptor_is_kept_until_it_is_invalidated() {
    let space = space();
    let mut hmc = committed(16);
    hmc.set_segment(0, SegmentData::backed(0x1020_0000, false));
    let write = |address| {
        let page = PageDescriptor::backed(address);
        space.write_words(Iova(0x1020_0000), &[page.0]).unwrap();
    };
    write(0x1030_0000);
    assert_eq!(
        hmc.locate(ObjectType::QueuePair, 0, &space).unwrap(),
        Iova(0x1030_0000)
    );
    write(0x1031_0000);
    assert_eq!(
        hmc.locate(ObjectType::QueuePair, 0, &space).unwrap(),
        Iova(0x1030_0000)
    );
    hmc.invalidate_page(0, 0);
    assert_eq!(
        hmc.locate(ObjectType::QueuePair, 0, &space).unwrap(),
        Iova(0x1031_0000)
    );
}

#[test]
fn indexes_beyond_the_commit_are_refused() {
    let space = space();
    let mut hmc = committed(16);
    hmc.set_segment(0, SegmentData::backed(0x1000_0000, true));
    assert!(hmc.locate(ObjectType::QueuePair, 15, &space).is_ok());
    assert!(matches!(
        hmc.locate(ObjectType::QueuePair, 16, &space),
        Err(HmcFault::OutOfRange {
            index: 16,
            count: 16,
            ..
        })
    ));
    assert!(!hmc.set_segment(u64::from(capacity().max_segments), SegmentData::ZERO));
    assert_eq!(hmc.object_segments(ObjectType::QueuePair), Some(0..=0));
    assert_eq!(SEGMENT_BYTES, 2 << 20);
}
