//! Parts of functions.

use super::masks_of;

/// 32 registers of the device, as `ice_init_prof_masks` divides them.
#[test]
fn each_function_has_an_equal_part_of_the_masks() {
    assert_eq!(masks_of(0, 1), 0..32);
    assert_eq!(masks_of(1, 2), 16..32);
    assert_eq!(masks_of(2, 4), 16..24);
    assert_eq!(masks_of(7, 8), 28..32);
    for function in 0..8 {
        for functions in 0..=8 {
            let own = masks_of(function, functions);
            assert!(
                own.end <= 32 && !own.is_empty(),
                "{function} of {functions}"
            );
        }
    }
}
