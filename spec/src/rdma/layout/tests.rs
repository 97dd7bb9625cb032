#![allow(unreachable_pub, dead_code)]
use super::{FieldValue, from_bytes, to_bytes};

codes! {
    /// Sample.
    pub enum Colour: u8 {
        /// Sample.
        Red = 1,
    }
}

layout! {
    /// Sample.
    pub struct Sample: [u64; 2] {
        /// Sample.
        split: u32 = 1[63:48] | 0[1:0],
        /// Sample.
        flag: bool = 0[8],
        /// Sample.
        mac: [u8; 6] = 1[47:0],
        /// Sample.
        colour: Colour = 0[11:10],
    }
}

const SAMPLE: Sample = Sample {
    split: 0x3_8001,
    flag: true,
    mac: [1, 2, 3, 4, 5, 6],
    colour: Colour::Red,
};

#[test]
fn a_split_field_puts_its_low_bits_in_its_first_piece() {
    assert_eq!(SAMPLE.encode(), [0x0503, 0x8001_0102_0304_0506]);
}

#[test]
fn decode_returns_what_was_encoded() {
    assert_eq!(Sample::decode(&SAMPLE.encode()), SAMPLE);
    assert_eq!(Sample::decode(&[0, 0]), Sample::ZERO);
}

#[test]
fn reserved_bits_are_those_that_no_field_names() {
    assert_eq!(Sample::reserved_bits(&[u64::MAX, u64::MAX]), [!0xD03, 0]);
    assert_eq!(Sample::reserved_bits(&SAMPLE.encode()), [0, 0]);
}

#[test]
fn a_code_without_a_name_is_kept() {
    assert_eq!(Colour::from_code(3), Colour::Unknown(3));
    assert_eq!((Colour::Unknown(3).code(), Colour::Red.name()), (3, "Red"));
    assert_eq!(Colour::ZERO, Colour::Unknown(0));
}

#[test]
fn bytes_are_little_endian_and_of_the_exact_length() {
    let bytes = to_bytes(&[1, 2]);
    assert_eq!((bytes[0], bytes[8], bytes.len()), (1, 2, 16));
    assert_eq!(from_bytes::<2>(&bytes), Some([1, 2]));
    assert_eq!(from_bytes::<3>(&bytes), None);
    assert_eq!(from_bytes::<2>(&bytes[..15]), None);
}
