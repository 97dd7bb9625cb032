use super::*;
use crate::memory::PageSize;

fn words(count: usize) -> Words {
    let memory = Memory::allocate((count * 8).max(8), PageSize::FourKiB, None).unwrap();
    memory.words(0, count * 8).unwrap()
}

fn post_ring(places: usize) -> PostRing {
    let ring = ZeroedRing::new(words(places * 4), 1..=1 << 16).unwrap();
    PostRing::new(ring, Records::new(places, 7), ()).unwrap()
}

#[test]
fn memory_becomes_a_ring_only_if_it_is_a_power_of_two_of_places_within_limits_and_is_zeroed() {
    for (count, fits) in [
        (0, false),
        (1, false),
        (2, true),
        (3, false),
        (8, true),
        (16, false),
    ] {
        let made = ZeroedRing::<4>::new(words(count * 4), 2..=8);
        assert_eq!(made.is_ok(), fits, "{count} places");
    }
    assert_eq!(
        ZeroedRing::<4>::new(words(9), 1..=8).unwrap_err(),
        NotARing { words: 9 }
    );
    let used = words(16);
    used.fill(u64::MAX);
    let ring = Ring::from(ZeroedRing::<4>::new(used, 1..=8).unwrap());
    let all = ring.run(0).as_flattened();
    assert!(all.iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

#[test]
fn any_index_finds_a_place_of_the_ring_and_a_run_ends_with_it() {
    let ring = Ring::from(ZeroedRing::<4>::new(words(32), 1..=8).unwrap());
    let first = &raw const ring.place(0)[0];
    for index in [0, 1, 7, 8, 9, usize::MAX] {
        let place = &raw const ring.place(index)[0];
        assert_eq!(place as usize - first as usize, index % 8 * 32);
        assert_eq!(ring.run(index).len(), 8 - index % 8);
        assert_eq!(&raw const ring.run(index)[0][0], place);
    }
}

#[test]
fn tables_and_records_find_any_index_inside() {
    let table = Table::new(5, |index| index);
    assert_eq!(
        (table.count(), *table.at(3), *table.at(usize::MAX)),
        (8, 3, 7)
    );
    let one = Table::new(0, |index| index);
    assert_eq!((one.count(), *one.at(12)), (1, 0));
    let records = Records::<2>::new(3, 9);
    assert_eq!(records.count(), 4);
    let shared = records.clone();
    records.at(6)[1].store(1, Ordering::Relaxed);
    drop(records);
    assert_eq!(shared.at(2)[1].load(Ordering::Relaxed), 1);
    assert_eq!(shared.at(2)[0].load(Ordering::Relaxed), 9);
}

#[test]
fn records_do_not_overlap_and_are_used_again_with_their_first_value() {
    let all: Vec<_> = (1..200).map(|count| Records::<2>::new(count, 0)).collect();
    for (number, records) in all.iter().enumerate() {
        for index in 0..records.count() {
            records.at(index)[0].store(number as u64, Ordering::Relaxed);
        }
    }
    for (number, records) in all.iter().enumerate() {
        let mine = (0..records.count()).map(|index| records.at(index)[0].load(Ordering::Relaxed));
        assert!(mine.into_iter().all(|found| found == number as u64));
    }
    drop(all);
    // A table that is larger than a chunk gets a chunk of its own.
    let large = Records::<2>::new(1 << 18, 5);
    assert_eq!(large.at(usize::MAX)[1].load(Ordering::Relaxed), 5);
}

#[test]
fn places_are_taken_in_order_up_to_the_limit_and_never_beyond_the_ring() {
    let mut ring = post_ring(8);
    assert!(ring.take(1).is_none(), "nothing is allowed at first");
    assert!(!ring.renew(3));
    assert!(ring.take(0).is_none(), "no element has no place");
    assert!(ring.take(4).is_none());
    let taken = ring.take(2).unwrap();
    taken.first()[0].store(1, Ordering::Relaxed);
    taken.further(1).unwrap()[0].store(2, Ordering::Relaxed);
    assert!(taken.further(2).is_none());
    assert_eq!(taken.record()[0].load(Ordering::Relaxed), 7);
    assert_eq!(ring.next(), 2);
    assert!(ring.take(2).is_none());
    assert!(ring.take(1).is_some());
    assert!(ring.take(u32::MAX).is_none());
    assert!(!ring.renew(8 + 3), "a place is cut to the ring");
    assert!(ring.take(1).is_none(), "what was taken stays taken");
    assert!(!ring.renew(8 + 2), "in the next pass: up to the end");
    assert!(ring.take(6).is_none());
    assert!(ring.take(5).is_some());
    assert_eq!((ring.next(), ring.count()), (8, 8));
    assert!(ring.take(1).is_none(), "the end of the ring");
    for (position, left) in [(7, 7), (u64::MAX, 7), (8, 0), (8 + 5, 5)] {
        ring.next = ring.end;
        assert!(ring.renew(position), "at the end of a pass");
        assert!(ring.take(left + 1).is_none(), "{left} places at {position}");
        assert_eq!(ring.take(left).is_some(), left > 0);
    }
    let found = [0, 1].map(|index| ring.place(index)[0].load(Ordering::Relaxed));
    assert_eq!(found, [1, 2]);
}

#[test]
fn a_read_ring_wraps_and_reports_it() {
    let words = words(32);
    let ring = ZeroedRing::<4>::new(words.clone(), 1..=8).unwrap();
    let mut ring = ReadRing::from(ring);
    words.as_slice()[4 * 7].store(9, Ordering::Relaxed);
    assert_eq!((ring.places(), ring.index(), ring.run().len()), (8, 0, 8));
    assert!(!ring.pass(3));
    assert_eq!((ring.index(), ring.run().len()), (3, 5));
    assert!(!ring.pass(4));
    assert_eq!(ring.next()[0].load(Ordering::Relaxed), 9);
    assert_eq!(ring.second()[0].load(Ordering::Relaxed), 0);
    assert!(ring.pass(1), "the end");
    assert_eq!((ring.index(), ring.run().len()), (0, 8));
    assert!(ring.pass(9));
    assert_eq!(ring.index(), 1);
    // A count larger than the ring leaves the cursor inside the ring.
    let _ = ring.pass(usize::MAX);
    assert!(ring.index() < 8);
}

#[test]
fn a_ring_needs_a_record_for_each_place() {
    let ring = ZeroedRing::new(words(32), 1..=8).unwrap();
    assert!(PostRing::new(ring, Records::new(4, 0), ()).is_none());
}

#[test]
fn a_shared_word_outlives_the_view_and_is_little_endian() {
    let view = words(8);
    assert!(SharedWord::new(&view, 8).is_none());
    let word = SharedWord::new(&view, 3).unwrap();
    word.store_release(5);
    assert_eq!(view.load(3), 5);
}

#[test]
#[should_panic(expected = "more than the 2147483648 that a table may have")]
fn a_table_of_more_values_than_a_mask_can_reach_is_refused() {
    // The next power of two is beyond the numbers: zero, where additions wrap.
    let _ = Table::new((usize::MAX >> 1) + 2, |_| ());
}

#[test]
#[should_panic(expected = "more than the 2147483648 that a table may have")]
fn records_of_more_bytes_than_there_are_addresses_are_refused() {
    // Their words are 2^62, and their bytes zero, where multiplications wrap.
    let _ = Records::<2>::new(1 << 61, 0);
}

#[test]
#[should_panic(expected = "more words than memory can have")]
fn long_records_of_more_bytes_than_there_are_addresses_are_refused() {
    let _ = Records::<{ 1 << 30 }>::new(1 << 31, 0);
}
