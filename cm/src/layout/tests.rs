use super::{get, is_disjoint, put};
use crate::mad::DATA_BYTES;

#[test]
fn a_field_is_read_where_it_was_written_and_nothing_else_changes() {
    for (first, width) in [(0, 1), (7, 2), (376, 5), (381, 3), (800, 128), (1855, 1)] {
        let mut data = [0xFF; DATA_BYTES];
        put(&mut data, first, width, 0);
        assert_eq!(get(&data, first, width), 0);
        let cleared: u32 = data.iter().map(|byte| byte.count_zeros()).sum();
        assert_eq!(cleared as usize, width, "only its own bits at {first}");
    }
}

#[test]
fn the_most_significant_bit_of_a_byte_is_bit_zero() {
    let mut data = [0; DATA_BYTES];
    put(&mut data, 47 * 8, 5, 20);
    put(&mut data, 47 * 8 + 5, 3, 7);
    assert_eq!(data[47], 0xA7);
}

#[test]
fn layouts_that_overlap_or_leave_the_data_are_found() {
    assert!(is_disjoint(&[(0, 8), (8, 1)]));
    assert!(!is_disjoint(&[(0, 9), (8, 1)]));
    assert!(!is_disjoint(&[(8, 1), (0, 9)]));
    assert!(!is_disjoint(&[(1850, 7)]));
}
