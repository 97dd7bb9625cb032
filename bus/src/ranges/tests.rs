use super::*;

#[test]
fn freed_ranges_merge_with_their_neighbours() {
    let mut ranges = Ranges::new(std::iter::once(0x1000..0x10000));
    let taken: Vec<_> = (0..5)
        .map(|_| ranges.take(0x2000, 0x1000).unwrap())
        .collect();
    assert_eq!(taken, [0x1000, 0x3000, 0x5000, 0x7000, 0x9000]);
    for at in [taken[1], taken[3], taken[0], taken[4], taken[2]] {
        ranges.give(at..at + 0x2000);
    }
    assert_eq!(
        ranges.free.iter().collect::<Vec<_>>(),
        [(&0x1000, &0x10000)]
    );
}

#[test]
fn alignment_skips_and_returns_the_gap() {
    let mut ranges = Ranges::new(std::iter::once(0x1000..0x9000));
    assert_eq!(ranges.take(0x1000, 0x4000), Some(0x4000));
    assert_eq!(ranges.take(0x3000, 0x1000), Some(0x1000));
    assert_eq!(ranges.take(0x5000, 0x1000), None);
    assert_eq!(ranges.free_bytes(), 0x4000);
}

#[test]
fn a_search_from_an_address_finds_a_place_there_or_above() {
    let mut ranges = Ranges::new([0x1000..0x4000, 0x8000..0xA000]);
    assert_eq!(ranges.take_from(0x2800, 0x1000, 0x1000), Some(0x3000));
    assert_eq!(ranges.take_from(0x2800, 0x1000, 0x1000), Some(0x8000));
    assert_eq!(ranges.take_from(0x9800, 0x1000, 0x1000), None);
    assert_eq!(ranges.take_from(0, 0x1000, 0x1000), Some(0x1000));
    assert_eq!(ranges.free_bytes(), 0x2000);
}

#[test]
fn every_place_with_a_gap_is_drawn_and_no_other() {
    use rand::SeedableRng;
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let whole = Ranges::new([0x0800..0x6000, 0x9000..0xA000, 0x10000..0x13000]);
    let mut wanted = Draw {
        length: 0x1000,
        alignment: 0x1000,
        gap: 0x1000,
        places: u64::MAX,
    };
    let drawn = |wanted: &Draw, random: &mut _| {
        let places = (0..200).filter_map(|_| whole.clone().draw(wanted, random));
        places.collect::<std::collections::BTreeSet<_>>()
    };
    let all = [0x2000, 0x3000, 0x4000, 0x11000];
    assert!(drawn(&wanted, &mut random).into_iter().eq(all));
    wanted.places = 2;
    assert!(
        drawn(&wanted, &mut random)
            .into_iter()
            .eq(all[..2].to_vec())
    );
    wanted.length = 0x6000;
    assert!(drawn(&wanted, &mut random).is_empty());
}

#[test]
fn a_drawn_range_is_free_after_it_is_returned() {
    use rand::SeedableRng;
    let mut random = rand::rngs::StdRng::seed_from_u64(2);
    let mut ranges = Ranges::new(std::iter::once(0..0x10_0000));
    let wanted = Draw {
        length: 0x3000,
        alignment: 0x1000,
        gap: 0,
        places: u64::MAX,
    };
    let mut taken = Vec::new();
    while let Some(at) = ranges.draw(&wanted, &mut random) {
        taken.push(at);
    }
    assert!(ranges.free.iter().all(|(start, end)| end - start < 0x3000));
    for at in taken {
        ranges.give(at..at + 0x3000);
    }
    assert_eq!(ranges.free.iter().collect::<Vec<_>>(), [(&0, &0x10_0000)]);
}
