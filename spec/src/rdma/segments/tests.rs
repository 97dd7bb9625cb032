use super::*;

#[test]
fn a_direct_and_a_paged_segment_are_written_as_documented() {
    assert_eq!(
        SegmentData::backed(0x1234_5600_0000, true).0,
        0x1234_5600_0803
    );
    assert_eq!(
        SegmentData::backed(0x1234_5600_0000, false).0,
        0x1234_5600_0801
    );
    assert_eq!(SegmentData::cleared(true).0, 0x802);
    assert_eq!(SegmentData::cleared(false).0, 0x800);
    assert_eq!(
        SegmentData::backed(0x1234_5600_0000, true).address(),
        0x1234_5600_0000
    );
}

#[test]
fn an_fpm_address_is_segment_page_and_byte() {
    let location = FpmLocation::of(3 * SEGMENT_BYTES + 5 * 4096 + 7);
    assert_eq!(
        location,
        FpmLocation {
            segment: 3,
            page: 5,
            page_offset: 7
        }
    );
    assert_eq!(location.segment_offset(), 5 * 4096 + 7);
}
