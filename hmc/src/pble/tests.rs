use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use ringside_spec::rdma::segments::{BACKING_PAGE_BYTES, SEGMENT_BYTES};

use crate::address::FpmAddress;

fn allocator(base: u64, entries: u32) -> PbleAllocator {
    PbleAllocator::new(PbleSpace::new(FpmAddress(base), entries))
}

/// The ranges of a list as first index and whole units of entries.
fn extents(list: &PageList) -> Vec<(u32, u32)> {
    let whole = |range: &PbleRange| (range.first_index(), range.entries().next_multiple_of(8));
    list.ranges().map(whole).collect()
}

#[test]
fn index_address_and_location_agree() {
    let space = PbleSpace::new(FpmAddress(22_093_824), 262_144);
    assert_eq!(space.address(0), Some(FpmAddress(22_093_824)));
    let address = space.address(1000).expect("inside");
    assert_eq!(address.0, 22_093_824 + 8000);
    assert_eq!(space.index(address), Some(1000));
    assert_eq!(space.index(FpmAddress(address.0 + 4)), None);
    assert_eq!(space.index(FpmAddress(22_093_816)), None);
    assert_eq!(space.address(262_144), None);
    assert_eq!(space.base(), FpmAddress(22_093_824));
    let end = space.base().0 + 262_144 * 8;
    assert_eq!(space.index(FpmAddress(end - 8)), Some(262_143));
    assert_eq!(space.index(FpmAddress(end)), None);
    assert_eq!(space.location(0).map(|at| at.segment), Some(10));
}

#[test]
fn entries_before_the_first_page_boundary_stay_unused() {
    let mut allocator = allocator(SEGMENT_BYTES + 512, 4096);
    assert_eq!(allocator.usage().total, 4096 - (4096 - 512) / 8);
    let list = allocator.allocate(512).expect("room");
    assert_eq!(list.first_index(), (4096 - 512) / 8);
    let at = allocator
        .space()
        .location(list.first_index())
        .expect("inside");
    assert_eq!(at.page_offset, 0);
    allocator.free(list).expect("was out");
}

#[test]
fn lists_up_to_512_pages_have_one_level_and_longer_ones_two() {
    let mut allocator = allocator(0, 1 << 16);
    let one = allocator.allocate(512).expect("room");
    assert!(matches!(one, PageList::OneLevel(_)));
    let two = allocator.allocate(513).expect("room");
    let PageList::TwoLevels { root, leaves } = &two else {
        panic!("{two:?}")
    };
    assert_eq!(root.entries(), 2);
    assert_eq!(
        leaves.iter().map(PbleRange::entries).collect::<Vec<_>>(),
        [512, 1]
    );
    assert_eq!(two.pages(), 513);
    let ring = allocator.allocate_one_level(1000).expect("room");
    assert_eq!(ring.pages(), 1000);
    for list in [one, two, ring] {
        allocator.free(list).expect("was out");
    }
    assert_eq!(
        allocator.usage(),
        PbleUsage {
            total: 1 << 16,
            free: 1 << 16,
            longest_free: 1 << 16,
            ranges: 0,
        }
    );
}

#[test]
fn a_list_may_take_all_entries_that_there_are() {
    for one_level in [false, true] {
        let mut allocator = allocator(0, 512);
        let list = match one_level {
            true => allocator.allocate_one_level(512),
            false => allocator.allocate(512),
        };
        assert_eq!(list.expect("all of them").pages(), 512);
        assert_eq!(allocator.usage().free, 0);
    }
}

#[test]
fn root_entries_are_indexes_of_leaves_and_leaf_entries_are_pages() {
    let mut allocator = allocator(0, 1 << 16);
    let list = allocator.allocate(1025).expect("room");
    let pages: Vec<u64> = (0..1025).map(|page| 0x10_0000 + page * 0x3000).collect();
    let memory: BTreeMap<u32, u64> = list.entries(&pages).expect("as many").collect();
    assert_eq!(memory.len(), 1025 + 3, "no entry is written twice");
    for (number, &page) in pages.iter().enumerate() {
        // Translates as the device does: the root gives a leaf, the leaf the page.
        let root_entry = list.first_index() + (number / 512) as u32;
        let leaf = memory[&root_entry] as u32;
        assert_eq!(memory[&(leaf + (number % 512) as u32)], page);
    }
    assert!(matches!(
        list.entries(&pages[1..]).err(),
        Some(PbleError::WrongNumberOfAddresses {
            addresses: 1024,
            pages: 1025
        })
    ));
    allocator.free(list).expect("was out");

    let flat = allocator.allocate(3).expect("room");
    let written: Vec<_> = flat.entries(&[7, 8, 9]).expect("as many").collect();
    let first = flat.first_index();
    assert_eq!(written, [(first, 7), (first + 1, 8), (first + 2, 9)]);
    allocator.free(flat).expect("was out");
}

#[test]
fn no_range_crosses_a_segment() {
    let base = SEGMENT_BYTES - 2 * BACKING_PAGE_BYTES;
    let mut allocator = allocator(base, 2 * 512 + 2 * ENTRIES_PER_SEGMENT);
    assert_eq!(allocator.usage().longest_free, ENTRIES_PER_SEGMENT);
    let list = allocator.allocate_one_level(1025).expect("room");
    assert_eq!(
        list.first_index(),
        1024,
        "the first segment has only 1024 entries"
    );
    let whole = allocator
        .allocate_one_level(u64::from(ENTRIES_PER_SEGMENT))
        .expect("room");
    assert_eq!(whole.first_index(), 1024 + ENTRIES_PER_SEGMENT);
    assert!(matches!(
        allocator.allocate_one_level(u64::from(ENTRIES_PER_SEGMENT) + 1),
        Err(PbleError::TooLongForOneLevel {
            limit: ENTRIES_PER_SEGMENT,
            ..
        })
    ));
    allocator.free(list).expect("was out");
    allocator.free(whole).expect("was out");
    assert_eq!(
        allocator.usage().longest_free,
        ENTRIES_PER_SEGMENT,
        "not joined across segments"
    );
}

#[test]
fn a_list_that_does_not_fit_leaves_nothing_allocated() {
    let mut allocator = allocator(0, 2048);
    let before = allocator.usage();
    assert_eq!(allocator.allocate(0), Err(PbleError::Empty));
    assert!(matches!(
        allocator.allocate(3000),
        Err(PbleError::TooLarge { needed: 3006, .. })
    ));
    assert!(matches!(
        allocator.allocate(u64::MAX / 2),
        Err(PbleError::TooLarge { .. })
    ));
    assert!(matches!(
        allocator.allocate_one_level(2049),
        Err(PbleError::TooLarge { .. })
    ));
    assert_eq!(allocator.usage(), before);

    // 2044 entries are free, but roots and leaves take whole units.
    let held = allocator.allocate_one_level(8).expect("room");
    assert!(matches!(
        allocator.allocate(2040),
        Err(PbleError::Exhausted { .. })
    ));
    assert_eq!(allocator.usage().ranges, 1);
    allocator.free(held).expect("was out");
    assert_eq!(allocator.usage(), before);
}

#[test]
fn nothing_is_given_out_of_an_empty_space() {
    let mut allocator = allocator(512, 0);
    assert_eq!(allocator.usage().total, 0);
    assert!(matches!(
        allocator.allocate(1),
        Err(PbleError::TooLarge { total: 0, .. })
    ));
}

#[test]
fn a_range_of_another_allocator_is_refused() {
    let mut one = allocator(0, 4096);
    let mut other = allocator(0, 4096);
    let list = other.allocate(16).expect("room");
    assert_eq!(
        one.free(list),
        Err(PbleError::NotAllocated {
            first_index: 0,
            entries: 16
        })
    );
    assert_eq!(one.usage().free, 4096);

    let mine = one.allocate(17).expect("room");
    let theirs = other.allocate(600).expect("room");
    assert!(one.free(theirs).is_err());
    assert_eq!(one.usage().ranges, 1, "what is out stays out");
    one.free(mine).expect("was out");
}

#[test]
fn contiguous_pages_need_no_list() {
    assert_eq!(
        contiguous_start(&[0x5000, 0x6000, 0x7000], 0x1000),
        Some(0x5000)
    );
    assert_eq!(contiguous_start(&[0x5000], 0x1000), Some(0x5000));
    assert_eq!(contiguous_start(&[0x5000, 0x7000], 0x1000), None);
    assert_eq!(contiguous_start(&[0x5000, 0x4000], 0x1000), None);
    assert_eq!(
        contiguous_start(&[0x20_0000, 0x40_0000], 0x20_0000),
        Some(0x20_0000)
    );
    assert_eq!(contiguous_start(&[], 0x1000), None);
    assert_eq!(contiguous_start(&[u64::MAX - 0xFFF, 0], 0x1000), None);
    assert_eq!(
        contiguous_start(&[u64::MAX - 0xFFF], 0x1000),
        Some(u64::MAX - 0xFFF)
    );
    assert_eq!(contiguous_start(&[u64::MAX - 0xFFE], 0x1000), None);
}

/// Random allocations and frees: each entry has at most one owner, the counts add up, and after all
/// are freed the allocator equals a new one.
fn live(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let base = random.random_range(0..3 * SEGMENT_BYTES / 512) * 512;
    let entries = random.random_range(0..3 * ENTRIES_PER_SEGMENT);
    let mut allocator = allocator(base, entries);
    let fresh = allocator.usage();
    let mut lists: Vec<PageList> = Vec::new();
    for step in 0..400 {
        let context = format!("seed {seed} step {step}");
        if random.random_bool(0.6) || lists.is_empty() {
            let pages = match random.random_range(0..4) {
                0 => random.random_range(1..=8),
                1 => random.random_range(1..=600),
                2 => random.random_range(1..=20_000),
                _ => random.random_range(1..=300_000),
            };
            let flat = random.random_bool(0.3);
            let before = allocator.usage();
            let made = if flat {
                allocator.allocate_one_level(pages)
            } else {
                allocator.allocate(pages)
            };
            match made {
                Ok(list) => {
                    assert_eq!(list.pages(), pages, "{context}");
                    lists.push(list);
                }
                Err(_) => assert_eq!(allocator.usage(), before, "{context}"),
            }
        } else {
            let list = lists.swap_remove(random.random_range(0..lists.len()));
            allocator.free(list).expect(&context);
        }
        check(&allocator, &lists, &context);
    }
    for list in lists {
        allocator.free(list).expect("was out");
    }
    assert_eq!(allocator.usage(), fresh, "seed {seed}: something leaked");
}

fn check(allocator: &PbleAllocator, lists: &[PageList], context: &str) {
    let mut held: Vec<(u32, u32)> = lists.iter().flat_map(extents).collect();
    held.sort_unstable();
    let mut end = 0;
    let mut used = 0;
    for (first, count) in &held {
        assert!(*first >= end, "{context}: two holders of entry {first}");
        end = first + count;
        used += count;
        let first_at = allocator.space().location(*first).expect(context);
        let last_at = allocator.space().location(end - 1).expect(context);
        assert_eq!(
            first_at.segment, last_at.segment,
            "{context}: crosses a segment"
        );
        assert_eq!(first_at.page_offset % 64, 0, "{context}: not on a unit");
    }
    let usage = allocator.usage();
    assert_eq!(usage.free + used, usage.total, "{context}");
    assert_eq!(usage.ranges, held.len(), "{context}");
}

#[test]
fn random_allocations_neither_share_nor_leak_entries() {
    for seed in 0..60 {
        live(seed);
    }
}
