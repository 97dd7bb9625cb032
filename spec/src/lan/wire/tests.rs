use super::{RegisterArray, RegisterGrid};

#[test]
fn arrays_find_their_own_offsets_and_no_others() {
    let array = RegisterArray::new("QRX_TAIL", 0x29_0000, 4, 2048);
    assert_eq!(array.at(2047), 0x29_1FFC);
    for index in [0, 1, 2047] {
        assert_eq!(array.index_of(array.at(index)), Some(index));
    }
    assert_eq!(array.index_of(0x28_FFFC), None);
    assert_eq!(array.index_of(0x29_2000), None);
    assert_eq!(array.index_of(0x29_0002), None);
}

#[test]
fn grids_find_row_and_index_whichever_stride_is_larger() {
    let context = RegisterGrid::new("QRX_CONTEXT", 0x28_0000, (0x2000, 8), (4, 2048));
    assert_eq!(context.at(7, 2047), 0x28_FFFC);
    assert_eq!(context.position_of(context.at(3, 17)), Some((3, 17)));
    assert_eq!(context.position_of(0x29_0000), None);
    let pause = RegisterGrid::new("GLPRT_PXONRXC", 0x38_0300, (0x40, 8), (8, 8));
    assert_eq!(pause.at(1, 2), 0x38_0350);
    assert_eq!(pause.position_of(0x38_0350), Some((1, 2)));
    assert_eq!(pause.position_of(0x38_0354), None);
}
