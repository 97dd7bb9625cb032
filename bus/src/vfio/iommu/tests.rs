use super::*;

/// An answer with the capabilities `list`, as (id, payload).
fn answer(page_sizes: u64, list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; INFO_BYTES];
    for (index, (id, payload)) in list.iter().enumerate() {
        let next = match index + 1 == list.len() {
            true => 0,
            false => bytes.len() + 8 + payload.len(),
        };
        bytes.extend(id.to_ne_bytes());
        bytes.extend(1u16.to_ne_bytes());
        bytes.extend((next as u32).to_ne_bytes());
        bytes.extend(payload);
    }
    let flags = InfoFlags::ZERO
        .with_page_sizes(true)
        .with_capabilities(!list.is_empty());
    let length = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..8].copy_from_slice(&flags.0.to_ne_bytes());
    bytes[8..16].copy_from_slice(&page_sizes.to_ne_bytes());
    bytes[16..20].copy_from_slice(&(INFO_BYTES as u32).to_ne_bytes());
    bytes
}

fn range_list(list: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((list.len() as u32).to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    for (first, last) in list {
        bytes.extend(first.to_ne_bytes());
        bytes.extend(last.to_ne_bytes());
    }
    bytes
}

#[test]
fn ranges_page_size_and_mappings_are_read_and_neighbours_merge() {
    let ranges = [
        (0xFEF0_0000, (1 << 39) - 1),
        (0, 0x7FFF_FFFF),
        (0x8000_0000, 0xFEDF_FFFF),
    ];
    let list = [
        (1, range_list(&ranges)),
        (2, vec![0; 24]),
        (3, 1234u32.to_ne_bytes().to_vec()),
    ];
    let found = limits(&answer(0xFFFF_FFFF_FFFF_F000, &list));
    assert_eq!(found.iova_ranges, [0..0xFEE0_0000, 0xFEF0_0000..1 << 39]);
    assert_eq!((found.mappings, found.page_bytes), (1234, 4096));
}

#[test]
fn a_range_up_to_the_last_address_does_not_wrap() {
    let list = [(1, range_list(&[(0, u64::MAX), (9, 3)]))];
    let found = limits(&answer(0x20_0000, &list));
    assert_eq!(found.iova_ranges, vec![0..u64::MAX]);
    assert_eq!(found.page_bytes, 0x20_0000);
}

#[test]
fn an_answer_without_capabilities_or_cut_short_means_what_every_machine_takes() {
    let whole = answer(4096, &[(1, range_list(&[(0x1000, 0x1FFF)]))]);
    let mut looping = whole.clone();
    looping[INFO_BYTES + 4..INFO_BYTES + 8].copy_from_slice(&(INFO_BYTES as u32).to_ne_bytes());
    assert_eq!(limits(&looping).iova_ranges, vec![0x1000..0x2000]);
    for cut in 0..whole.len() {
        let found = limits(&whole[..cut]);
        assert_eq!(
            found.iova_ranges,
            [0..0xFEE0_0000, 0xFEF0_0000..1 << 39],
            "{cut}"
        );
        assert_eq!((found.mappings, found.page_bytes), (65_535, 4096), "{cut}");
    }
}

fn small() -> DmaLimits {
    DmaLimits {
        iova_ranges: vec![0x1000..0x10_0000, 0x20_0000..0x40_0000],
        mappings: 10,
        page_bytes: 4096,
    }
}

#[test]
fn an_address_outside_the_iommus_ranges_is_refused_with_the_ranges() {
    let (limits, mut mapped) = (small(), Mapped::default());
    assert_eq!(mapped.check(0x1000, 0x1000, &limits), Ok(()));
    mapped.add(0x4000, 0x2000, &limits);
    for (iova, length) in [
        (0x1800, 0x1000),
        (0x1000, 0x800),
        (0x1000, 0),
        (!0xFFF, 0x2000),
    ] {
        let refused = mapped.check(iova, length, &limits);
        assert_eq!(refused, Err(NotMappable::Unaligned { page_bytes: 4096 }));
    }
    for (iova, length) in [(0, 0x1000), (0xF_F000, 0x2000), (0xF_F000, 0x20_0000)] {
        let refused = mapped.check(iova, length, &limits).unwrap_err();
        assert!(
            refused.to_string().contains("0x200000..0x400000"),
            "{refused}"
        );
    }
    for (iova, length) in [(0x3000, 0x2000), (0x5000, 0x1000), (0x3000, 0x8000)] {
        let refused = mapped.check(iova, length, &limits);
        assert_eq!(refused, Err(NotMappable::Overlap(0x4000, 0x6000)));
    }
    assert_eq!(mapped.check(0x6000, 0x1000, &limits), Ok(()));
    assert_eq!(mapped.check(0x3000, 0x1000, &limits), Ok(()));
}

#[test]
fn it_warns_once_before_the_last_mapping_and_refuses_after_it() {
    let (limits, mut mapped) = (small(), Mapped::default());
    let warned: Vec<_> = (1..=10)
        .map(|page| mapped.add(page * 0x1000, 0x1000, &limits))
        .collect();
    assert_eq!(warned.iter().position(|warned| *warned), Some(8));
    assert_eq!(warned.iter().filter(|warned| **warned).count(), 1);
    assert_eq!((mapped.count(), mapped.bytes()), (10, 0xA000));
    let refused = mapped.check(0x2_0000, 0x1000, &limits);
    assert_eq!(refused, Err(NotMappable::TooMany(10)));
    mapped.remove(0x1000);
    assert_eq!(mapped.check(0x1000, 0x1000, &limits), Ok(()));
}

#[test]
fn ranges_of_an_address_space_are_merged_and_mappings_are_not_counted_there() {
    let found = limits_of(&[[0xFEF0_0000, u64::MAX], [0, 0xFEDF_FFFF], [9, 3]], 4096);
    assert_eq!(found.iova_ranges, [0..0xFEE0_0000, 0xFEF0_0000..u64::MAX]);
    assert_eq!((found.mappings, found.page_bytes), (usize::MAX, 4096));
    assert_eq!(limits_of(&[], 0).page_bytes, 4096);
}

#[test]
fn type_1_maps_65535_ranges_and_refuses_the_next_one_by_name() {
    let limits = limits(&[]);
    let mut mapped = Mapped::default();
    let at = |index: u64| 0x1_0000_0000 + index * 4096;
    for index in 0..65_535 {
        assert_eq!(mapped.check(at(index), 4096, &limits), Ok(()), "{index}");
        mapped.add(at(index), 4096, &limits);
    }
    let refused = mapped.check(at(65_535), 4096, &limits).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("65535") && text.contains("dma_entry_limit"),
        "{text}"
    );
    mapped.remove(at(7));
    assert_eq!(mapped.check(at(65_535), 4096, &limits), Ok(()));
}
