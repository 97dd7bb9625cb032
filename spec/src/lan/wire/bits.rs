//! Fields that lie across byte boundaries, counted from bit 0 of the first byte.

/// Puts the low `width` bits of `value` at `offset`; the bits there must be zero.
pub(crate) const fn put<const N: usize>(
    bytes: &mut [u8; N],
    offset: usize,
    width: usize,
    value: u64,
) {
    debug_assert!(
        width == 64 || value >> width == 0,
        "value too wide for its field"
    );
    let mut next = 0;
    while next < width {
        let at = offset + next;
        bytes[at / 8] |= ((value >> next & 1) as u8) << (at % 8);
        next += 1;
    }
}

/// The `width` bits at `offset`.
pub(crate) const fn get<const N: usize>(bytes: &[u8; N], offset: usize, width: usize) -> u64 {
    let mut value = 0;
    let mut next = 0;
    while next < width {
        let at = offset + next;
        value |= ((bytes[at / 8] >> (at % 8) & 1) as u64) << next;
        next += 1;
    }
    value
}

/// The bit at `offset`.
pub(crate) const fn bit<const N: usize>(bytes: &[u8; N], offset: usize) -> bool {
    get(bytes, offset, 1) != 0
}
