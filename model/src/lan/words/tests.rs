use super::*;
use crate::lan::headers::parse;

const MAC: u8 = 1;
const ETHER_TYPE: u8 = 9;
const FIRST_TAG: u8 = 16;
const LAST_TAG: u8 = 17;
const IPV4: u8 = 32;
const IPV6: u8 = 40;
const UDP: u8 = 53;

/// A UDP datagram over IPv4, behind tags.
fn frame(tags: &[[u8; 4]]) -> Vec<u8> {
    let mut frame = vec![2, 1, 1, 1, 1, 1, 2, 9, 9, 9, 9, 9];
    frame.extend(tags.concat());
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x43, 0x21, 0, 8, 0, 0]);
    frame
}

fn words(frame: &[u8], wanted: &[(u8, u16)]) -> Vec<u16> {
    let parsed = parse(frame).unwrap();
    let found = wanted.iter().map(|place| word(frame, &parsed, *place));
    found.collect()
}

#[test]
fn words_are_found_behind_any_number_of_tags() {
    let one = [0x81, 0, 0x20, 5];
    let outer = [0x88, 0xA8, 0, 7];
    for (tags, seen) in [
        (&[][..], [0, 0]),
        (&[one][..], [0x2005, 0x2005]),
        (&[outer, one][..], [7, 0x2005]),
    ] {
        let wanted = [
            (MAC, 0),
            (ETHER_TYPE, 0),
            (IPV4, 12),
            (UDP, 0),
            (UDP, 2),
            (FIRST_TAG, 0),
            (LAST_TAG, 0),
        ];
        let [first, last] = seen;
        let expected = [0x0201, 0x0800, 0x0A00, 0x1234, 0x4321, first, last];
        assert_eq!(words(&frame(tags), &wanted), expected);
    }
}

#[test]
fn words_that_a_packet_does_not_have_are_zero() {
    let frame = frame(&[]);
    let wanted = [
        (IPV6, 0),
        (49, 0),
        (UNUSED_WORD.0, UNUSED_WORD.1),
        (0, 0),
        (UDP, 7),
        (UDP, 0xFFFF),
    ];
    assert_eq!(words(&frame, &wanted), [0; 6]);
    // A fragment has no ports.
    let mut fragment = frame;
    fragment[20] = 0x20;
    assert_eq!(words(&fragment, &[(UDP, 0), (IPV4, 12)]), [0, 0x0A00]);
}
