//! Against the buffers that DPDK's encoders made, and by hand.

use super::*;

/// Sections of a recorded 0x0C42 buffer.
fn sections(buffer: &str) -> Vec<(u32, Vec<u8>)> {
    let bytes: Vec<u8> = (0..buffer.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&buffer[at..at + 2], 16).unwrap())
        .collect();
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    (0..number(0))
        .map(|index| {
            let (offset, size) = (number(8 + 8 * index), number(10 + 8 * index));
            let kind = number(4 + 8 * index) as u32;
            (kind, bytes[offset..offset + size].to_vec())
        })
        .collect()
}

/// `rss.01_ipv4` of the shared vectors: profile 20, addresses, for the groups of IPv4.
const RSS_IPV4: &str = "0a0036012e000000540064002c000000b8000f002c000000c8000f002c000000d8000f002c000000e8000f002c000000f8000f002c00000008010f002c00000018010f002b000000280106002b0000003001060001001400ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff0100ffff01002012000020100000200e0000200c000001006a00fffff0feffffff0f0100140001006900fffff1feffffff0e0100140001006800fffff8feffffff070100140001006700fffff9feffffff060100140001006600fffffafeffffff050100140001006500fffffbfeffffff040100140001006400fffffcfeffffff03010014000100050001000000010005000100";

fn recorded() -> Profiles {
    let mut profiles = Profiles::default();
    // The groups that the encoder was given.
    for (kind, group) in [(22, 2), (23, 3), (24, 4), (26, 5), (88, 8), (90, 10)] {
        let bytes = [1, 0, kind, 0, group];
        profiles.apply(42, &bytes).unwrap();
    }
    for (kind, bytes) in sections(RSS_IPV4) {
        profiles.apply(kind, &bytes).unwrap();
    }
    profiles
}

#[test]
fn a_profile_of_ipv4_is_found_by_the_types_and_the_vsi_that_it_is_for() {
    let profiles = recorded();
    let (number, words) = profiles.hash.profile(packet_type::IPV4_UDP, 5).unwrap();
    assert_eq!(number, 20);
    assert_eq!(words[20..], [(32, 18), (32, 16), (32, 14), (32, 12)]);
    assert!(words[..20].iter().all(|word| *word == (0xFF, 0x1FF)));
    assert_eq!(profiles.hash.profile(packet_type::IPV6_UDP, 5), None);
    assert_eq!(profiles.hash.profile(packet_type::IPV4_UDP, 6), None);
    assert!(profiles.hash.knows(5) && !profiles.hash.knows(6));
    assert_eq!(profiles.flow_director, Block::default());
}

#[test]
fn a_row_given_back_matches_no_more_and_the_lowest_row_counts() {
    let mut profiles = recorded();
    let udp = packet_type::IPV4_UDP;
    // The row of group 4, again lower down, for another profile.
    let [mut row] = [[
        1, 0, 9, 0, 0xFF, 0xFF, 0xFB, 0xFE, 0xFF, 0xFF, 0xFF, 4, 1, 0, 20,
    ]];
    profiles.apply(44, &row).unwrap();
    row[14] = 21;
    profiles.apply(44, &row).unwrap();
    assert_eq!(profiles.hash.profile(udp, 5), None, "21 has no words");
    profiles.free_hash_row(9);
    assert!(profiles.hash.profile(udp, 5).is_some());
    let rows: Vec<u16> = profiles.hash.rows.keys().copied().collect();
    for row in rows {
        profiles.free_filter_row(row);
        assert!(profiles.hash.rows.contains_key(&row), "the other block");
        profiles.free_hash_row(row);
    }
    assert_eq!(profiles.hash.profile(udp, 5), None);
}

#[test]
fn sections_that_lie_about_their_length_or_place_are_refused() {
    let mut profiles = Profiles::default();
    let cases: [(u32, &[u8]); 8] = [
        (32, &[2, 0, 0, 0, 1]),
        (33, &[2, 0, 0, 0, 1, 0]),
        (34, &[1, 0, 0, 0]),
        (44, &[1]),
        (44, &[1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (45, &[1, 0, 0, 1, 0]),
        (46, &[1, 0, 0, 0]),
        (36, &[0]),
    ];
    for (kind, bytes) in cases {
        assert_eq!(profiles.apply(kind, bytes), Err(ReturnCode::BadBuffer));
    }
    let mut vector = vec![1, 0, 128, 0];
    vector.resize(4 + 4 * VECTOR_WORDS, 0);
    assert_eq!(profiles.apply(36, &vector), Err(ReturnCode::BadBuffer));
    assert_eq!(profiles.apply(1, &[]), Ok(()), "none of these tables");
}

#[test]
fn bits_of_a_row_match_zero_one_both_or_nothing() {
    let fits = |key: u8, inverse: u8, value: u8| {
        let row = Row {
            key: [key, 0xFF, 0xFF, 0xFF, 0xFF],
            inverse: [inverse, 0xFF, 0xFF, 0xFF, 0xFF],
            profile: 0,
        };
        row.fits([value, 7, 8, 9, 10])
    };
    assert!(fits(0xFF, 0xFF, 0x5A));
    assert!(fits(0xA5, 0x5A, 0x5A) && !fits(0xA5, 0x5A, 0x5B));
    assert!(!fits(0xFE, 0xFE, 0) && !fits(0xFE, 0xFE, 1));
}
