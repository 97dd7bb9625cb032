use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The values, oldest first.
fn order(index: &Index<u32>) -> Vec<u32> {
    let mut at = index.oldest;
    let mut values = Vec::new();
    while let Some(slot) = index.slots.get(at as usize) {
        values.extend(slot.value);
        at = slot.newer;
    }
    values
}

fn index(ranges: &[Range<u64>]) -> Index<u32> {
    let mut index = Index::new();
    for (value, range) in ranges.iter().enumerate() {
        index.insert(range.clone(), value as u32);
    }
    index
}

#[test]
fn a_range_is_found_only_if_one_entry_holds_all_of_it() {
    let mut index = index(&[10..20, 20..30, 40..50]);
    for (wanted, found) in [
        (10..20, Some(0)),
        (12..13, Some(0)),
        (20..30, Some(1)),
        (29..30, Some(1)),
        (15..25, None),
        (9..11, None),
        (30..31, None),
        (49..51, None),
        (0..5, None),
        (60..61, None),
    ] {
        assert_eq!(index.find(&wanted).copied(), found, "{wanted:?}");
    }
}

#[test]
fn a_new_range_is_united_with_what_it_overlaps_and_not_with_neighbours() {
    let index = index(&[10..20, 20..30, 40..50]);
    assert_eq!(index.united(&(15..25)), 10..30);
    assert_eq!(index.united(&(0..10)), 0..10);
    assert_eq!(index.united(&(30..40)), 30..40);
    assert_eq!(index.united(&(0..100)), 0..100);
    assert_eq!(index.united(&(29..41)), 20..50);
    assert_eq!(index.united(&(12..13)), 10..20);
}

#[test]
fn the_entry_not_used_for_longest_goes_first_and_busy_ones_stay() {
    let mut index = index(&[10..20, 20..30, 40..50]);
    assert_eq!(order(&index), [0, 1, 2]);
    index.find(&(10..11));
    assert_eq!(order(&index), [1, 2, 0]);
    let (range, value) = index.remove_oldest(|value| *value != 1).unwrap();
    assert_eq!((range, value), (40..50, 2));
    assert_eq!(order(&index), [1, 0]);
    assert_eq!(index.bytes(), 20);
    assert!(index.remove_oldest(|_| false).is_none());
}

#[test]
fn random_changes_agree_with_a_plain_list() {
    let seed = 0x5EED;
    let mut random = StdRng::seed_from_u64(seed);
    let mut index = Index::new();
    // oldest first
    let mut plain: Vec<(Range<u64>, u32)> = Vec::new();
    for value in 0..20_000 {
        let start = random.random_range(0..200);
        let range = start..start + random.random_range(1..20);
        let touches = |one: &Range<u64>| one.start < range.end && range.start < one.end;
        match random.random_range(0..4) {
            0 => {
                let found = index.find(&range).copied();
                let place = plain
                    .iter()
                    .position(|(one, _)| one.start <= range.start && range.end <= one.end);
                assert_eq!(found, place.map(|at| plain[at].1), "seed {seed}");
                if let Some(at) = place {
                    let used = plain.remove(at);
                    plain.push(used);
                }
            }
            1 => {
                let mut removed = index.remove_overlapping(&range);
                removed.sort_by_key(|(range, _)| range.start);
                let mut gone: Vec<_> = plain.extract_if(.., |(one, _)| touches(one)).collect();
                gone.sort_by_key(|(range, _)| range.start);
                assert_eq!(removed, gone, "seed {seed}");
            }
            2 if random.random_bool(0.3) => {
                let removed = index.remove_oldest(|value| value % 3 != 0);
                let place = plain.iter().position(|(_, value)| value % 3 != 0);
                assert_eq!(removed, place.map(|at| plain.remove(at)), "seed {seed}");
            }
            _ => {
                if !plain.iter().any(|(one, _)| touches(one)) {
                    index.insert(range.clone(), value);
                    plain.push((range, value));
                }
            }
        }
        let bytes: u64 = plain.iter().map(|(range, _)| range.end - range.start).sum();
        assert_eq!((index.len(), index.bytes()), (plain.len(), bytes));
    }
    let values: Vec<u32> = plain.iter().map(|(_, value)| *value).collect();
    assert_eq!(order(&index), values, "seed {seed}");
}
