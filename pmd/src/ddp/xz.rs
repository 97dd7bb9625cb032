//! The unpacked size of an .xz file, read from its chunk headers before anything is unpacked.
//!
//! The decoder keeps all output in memory, so a small file that unpacks to gigabytes has to be
//! refused beforehand. A block with more than one filter could unpack what it unpacked; firmware
//! has none. The decoder (lzma-rs 0.3) also adds one to the footer's index size unchecked, so that
//! is compared with the index here. Source: the .xz file format 1.0.4, sections 2 to 4, and LZMA2's
//! chunk headers as liblzma's `lzma2_decoder.c` reads them.

/// First bytes of an .xz file.
pub(super) const MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
/// Bytes of the stream header.
const STREAM_HEADER: usize = 12;
/// Most bytes of a number of variable length.
const NUMBER_BYTES: usize = 9;

ringside_spec::words! {
    /// Second byte of a block's header.
    struct BlockFlags: u8 {
        /// filters after the first
        more_filters: [1:0],
    }

    /// Byte of a number of variable length, least significant first.
    struct NumberByte: u8 {
        /// seven bits of the number
        digits: [6:0],
        /// another byte follows
        goes_on: [7],
    }
}

/// Bytes that the first stream unpacks to; `None` if it is malformed or cut short.
pub(super) fn unpacked_bytes(file: &[u8]) -> Option<u64> {
    let flags = *file.get(7)?;
    let check_bytes = match flags {
        0 => 0,
        1 => 4,
        4 => 8,
        10 => 32,
        _ => return None,
    };
    let (mut at, mut total) = (STREAM_HEADER, 0u64);
    loop {
        let size = usize::from(*file.get(at)?);
        // A size of zero is the index: no more blocks.
        if size == 0 {
            return footer_fits(file, at)?.then_some(total);
        }
        if BlockFlags(*file.get(at + 1)?).more_filters() != 0 {
            return None;
        }
        let data = at + (size + 1) * 4;
        let (end, unpacked) = block(file, data)?;
        total = total.checked_add(unpacked)?;
        let padding = (end - data).next_multiple_of(4) - (end - data);
        at = end + padding + check_bytes;
    }
}

/// The end of a block's chunks, and their unpacked size.
fn block(file: &[u8], mut at: usize) -> Option<(usize, u64)> {
    let sixteen = |at: usize| Some(u16::from_be_bytes([*file.get(at)?, *file.get(at + 1)?]));
    let mut total = 0u64;
    loop {
        let control = *file.get(at)?;
        match control {
            0 => return Some((at + 1, total)),
            1 | 2 => {
                let size = usize::from(sixteen(at + 1)?) + 1;
                total += size as u64;
                at += 3 + size;
            }
            0x80.. => {
                let high = u64::from(control % 32) * 65536;
                total += high + u64::from(sixteen(at + 1)?) + 1;
                let packed = usize::from(sixteen(at + 3)?) + 1;
                let properties = usize::from(control >= 0xC0);
                at += 5 + properties + packed;
            }
            _ => return None,
        }
        if at >= file.len() {
            return None;
        }
    }
}

/// True if the footer behind the index at `start` gives its length.
fn footer_fits(file: &[u8], start: usize) -> Option<bool> {
    let (records, mut at) = number(file, start + 1)?;
    // two numbers a record, at least a byte each
    if records > file.len() as u64 {
        return None;
    }
    for _ in 0..2 * records {
        (_, at) = number(file, at)?;
    }
    let end = start + (at - start).next_multiple_of(4) + 4;
    let said = file.get(end + 4..end + 8)?.try_into().ok()?;
    let said = u64::from(u32::from_le_bytes(said));
    Some((said + 1) * 4 == (end - start) as u64)
}

/// A number of variable length at `at`, and where it ends.
fn number(file: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut scale = 1u64;
    for _ in 0..NUMBER_BYTES {
        let byte = NumberByte(*file.get(at)?);
        value += u64::from(byte.digits()) * scale;
        at += 1;
        if !byte.goes_on() {
            return Some((value, at));
        }
        scale *= 1 << 7;
    }
    None
}
