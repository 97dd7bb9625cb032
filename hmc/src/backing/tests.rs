use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::Wanted;
use crate::example::{layout, wanted};

/// Numbers whose page lists fill several segments of their own.
fn with_many_pbles() -> Layout {
    layout(&Wanted {
        pbles: 262_144,
        ..wanted()
    })
}

fn brought(backing: &mut Backing, missing: impl IntoIterator<Item = Missing>) {
    for memory in missing {
        backing.note(memory).expect("was missing");
    }
}

#[test]
fn only_what_the_device_touches_itself_is_backed_at_start() {
    let layout = with_many_pbles();
    let mut backing = Backing::new(&layout, BackingPolicy::Sparse);
    let start: Vec<_> = backing.missing_at_start().collect();
    assert!(
        start.len() < backing.segments(),
        "page lists are not backed yet"
    );
    brought(&mut backing, start);
    for object in ObjectType::ALL
        .into_iter()
        .filter(|&object| !may_be_sparse(object))
    {
        let all = 0..layout.count(object);
        assert_eq!(backing.missing(object, all), Ok(Vec::new()), "{object:?}");
    }
    assert_eq!(backing.missing_at_start().count(), 0);
}

#[test]
fn whole_backing_leaves_nothing_missing() {
    let layout = with_many_pbles();
    let mut backing = Backing::new(&layout, BackingPolicy::Whole);
    let start: Vec<_> = backing.missing_at_start().collect();
    assert_eq!(start.len(), layout.segments() as usize);
    brought(&mut backing, start);
    for object in ObjectType::ALL {
        assert_eq!(
            backing.missing(object, 0..layout.count(object)),
            Ok(Vec::new())
        );
    }
    assert_eq!(
        backing.memory_bytes(),
        u64::from(layout.segments()) * SEGMENT_BYTES
    );
}

#[test]
fn a_page_list_in_use_takes_a_page_table_and_its_pages() {
    let layout = with_many_pbles();
    let mut backing = Backing::new(&layout, BackingPolicy::Sparse);
    let space = layout.pbles();
    let paged = backing.segments() as u16 - 1;
    assert_eq!(backing.kind(paged), Some(SegmentKind::Paged));
    let first = space
        .index(FpmAddress(u64::from(paged) * SEGMENT_BYTES))
        .expect("page lists reach the last segment");

    let pbles = ObjectType::PageBufferList;
    let missing = backing
        .missing(pbles, first + 511..first + 513)
        .expect("in range");
    assert_eq!(
        missing,
        [
            Missing::PageTable { segment: paged },
            Missing::Page {
                segment: paged,
                page: 0
            },
            Missing::Page {
                segment: paged,
                page: 1
            },
        ]
    );
    brought(&mut backing, missing);
    assert_eq!(backing.memory_bytes(), 3 * BACKING_PAGE_BYTES);
    let missing = backing
        .missing(pbles, first..first + 1025)
        .expect("in range");
    assert_eq!(
        missing,
        [Missing::Page {
            segment: paged,
            page: 2
        }]
    );
    assert_eq!(backing.missing(pbles, first..first), Ok(Vec::new()));
}

#[test]
fn a_page_list_takes_no_page_behind_its_end() {
    let layout = with_many_pbles();
    let backing = Backing::new(&layout, BackingPolicy::Sparse);
    let last = backing.segments() as u16 - 1;
    let first = layout
        .pbles()
        .index(FpmAddress(u64::from(last) * SEGMENT_BYTES))
        .expect("page lists reach the last segment");
    // A page holds 512 entries.
    let whole = backing.missing(ObjectType::PageBufferList, first..first + 512);
    let page = Missing::Page {
        segment: last,
        page: 0,
    };
    assert_eq!(whole, Ok(vec![Missing::PageTable { segment: last }, page]));
}

#[test]
fn objects_up_to_the_end_of_a_segment_take_no_segment_behind_it() {
    let layout = with_many_pbles();
    let pbles = ObjectType::PageBufferList;
    let placement = layout.placement(pbles);
    let to_end = SEGMENT_BYTES - placement.base.0 % SEGMENT_BYTES;
    let count = (to_end / placement.size_bytes) as u32;
    let segment = (placement.base.0 / SEGMENT_BYTES) as usize;
    let of = |indexes| segments_of(&layout, pbles, indexes);
    assert_eq!(of(0..count), segment..segment + 1);
    assert_eq!(of(0..count + 1), segment..segment + 2);
    assert_eq!(of(count..count + 1), segment + 1..segment + 2);
    assert!(of(count..count).is_empty());
}

#[test]
fn an_address_is_shown_as_a_number() {
    assert_eq!(format!("{:?}", FpmAddress(0x20_0000)), "0x200000");
}

#[test]
fn entries_name_the_memory_as_the_device_reads_it() {
    let segment = Missing::Segment { segment: 3 };
    let entry = segment.segment_entry(0x2_0060_0000).expect("has an entry");
    assert_eq!(entry.words(), [0x8000_8003, 0x2_0060_0803]);
    let table = Missing::PageTable { segment: 3 };
    assert_eq!(
        table.segment_entry(0x1_2345_6000).map(|e| e.data.0),
        Some(0x1_2345_6801)
    );
    let page = Missing::Page {
        segment: 3,
        page: 5,
    };
    assert_eq!(page.segment_entry(0x1000), None);
    let (offset, descriptor) = page.page_descriptor(0x7000).expect("has a descriptor");
    assert_eq!((offset, descriptor.0), (40, 0x7001));
    assert_eq!(segment.page_descriptor(0), None);
    assert_eq!(
        (segment.bytes(), table.bytes(), page.bytes()),
        (2 << 20, 4096, 4096)
    );
}

#[test]
fn teardown_clears_every_segment_that_is_there() {
    let layout = with_many_pbles();
    let mut backing = Backing::new(&layout, BackingPolicy::Sparse);
    let start: Vec<_> = backing.missing_at_start().collect();
    brought(&mut backing, start.clone());
    let last = layout.count(ObjectType::PageBufferList) - 1;
    let list = backing
        .missing(ObjectType::PageBufferList, last..last + 1)
        .expect("in range");
    brought(&mut backing, list);
    let entries: Vec<_> = backing.clearing_entries().collect();
    assert_eq!(entries.len(), start.len() + 1);
    assert_eq!(entries[0].words(), [0x8000_8000, 0x802]);
    assert_eq!(
        entries.last().map(|entry| entry.data.0),
        Some(0x800),
        "paged"
    );
    let present: Vec<_> = backing.present().map(|(segment, _)| segment).collect();
    assert!(present.into_iter().all(|segment| backing.forget(segment)));
    assert_eq!(
        (backing.memory_bytes(), backing.clearing_entries().count()),
        (0, 0)
    );
    assert!(!backing.forget(0));
    assert_eq!(
        backing.missing_at_start().count(),
        start.len(),
        "all is missing again"
    );
}

#[test]
fn memory_that_is_not_missing_cannot_be_noted() {
    let layout = with_many_pbles();
    let mut backing = Backing::new(&layout, BackingPolicy::Sparse);
    let paged = backing.segments() as u16 - 1;
    let direct = Missing::Segment { segment: 0 };
    for wrong in [
        Missing::PageTable { segment: 0 },
        Missing::Segment { segment: paged },
        Missing::Page {
            segment: paged,
            page: 0,
        },
        Missing::Page {
            segment: 0,
            page: 0,
        },
        Missing::Segment { segment: 4095 },
    ] {
        assert_eq!(backing.note(wrong), Err(BackingError::NotMissing(wrong)));
    }
    backing.note(direct).expect("missing");
    assert_eq!(backing.note(direct), Err(BackingError::NotMissing(direct)));
    backing
        .note(Missing::PageTable { segment: paged })
        .expect("missing");
    backing
        .note(Missing::Page {
            segment: paged,
            page: 511,
        })
        .expect("missing");
    for page in [511, 512, u16::MAX] {
        let wrong = Missing::Page {
            segment: paged,
            page,
        };
        assert_eq!(backing.note(wrong), Err(BackingError::NotMissing(wrong)));
    }
    assert_eq!(
        backing.memory_bytes(),
        SEGMENT_BYTES + 2 * BACKING_PAGE_BYTES
    );
}

#[test]
fn indexes_out_of_range_are_refused() {
    let layout = layout(&wanted());
    let backing = Backing::new(&layout, BackingPolicy::Sparse);
    let cq = ObjectType::CompletionQueue;
    for (first, end) in [(0, 257), (257, 257), (u32::MAX, u32::MAX), (2, 1)] {
        assert_eq!(
            backing.missing(cq, first..end),
            Err(BackingError::OutOfRange {
                object: cq,
                first,
                end,
                count: 256
            })
        );
    }
    assert_eq!(backing.missing(cq, 256..256), Ok(Vec::new()));
}

/// Every byte of every object asked for lies in memory that was brought, and none was brought
/// twice.
#[test]
fn random_uses_are_backed_completely_and_once() {
    for seed in 0..100 {
        let mut random = SmallRng::seed_from_u64(seed);
        let layout = layout(&Wanted {
            pbles: random.random_range(0..=262_144),
            completion_queues: random.random_range(1..2000),
            queue_pairs: random.random_range(1..1000),
            ..wanted()
        });
        let policy = [BackingPolicy::Sparse, BackingPolicy::Whole][random.random_range(0..2)];
        let mut backing = Backing::new(&layout, policy);
        let mut there = BTreeSet::new();
        let mut bring = |backing: &mut Backing, missing: Vec<Missing>| {
            for memory in missing {
                assert!(there.insert(memory), "seed {seed}: {memory:?} twice");
                backing.note(memory).expect("was missing");
            }
            there.clone()
        };
        let start: Vec<_> = backing.missing_at_start().collect();
        bring(&mut backing, start);
        for _ in 0..30 {
            let object = ObjectType::ALL[random.random_range(0..20)];
            let count = layout.count(object);
            let first = random.random_range(0..=count);
            let end = random.random_range(first..=count.min(first + 3000));
            let missing = backing.missing(object, first..end).expect("in range");
            let there = bring(&mut backing, missing);
            for index in first..end {
                let placement = layout.placement(object);
                let start = placement.address(index).expect("in range");
                for address in [start.0, start.0 + placement.size_bytes - 1] {
                    let at = FpmAddress(address).location();
                    let (segment, page) = (at.segment as u16, at.page as u16);
                    let backed = there.contains(&Missing::Segment { segment })
                        || there.contains(&Missing::PageTable { segment })
                            && there.contains(&Missing::Page { segment, page });
                    assert!(backed, "seed {seed}: {object:?} {index}");
                }
            }
        }
        let sum: u64 = there.iter().map(|memory| memory.bytes()).sum();
        assert_eq!(sum, backing.memory_bytes(), "seed {seed}");
    }
}
