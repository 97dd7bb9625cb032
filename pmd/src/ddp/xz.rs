//! How much an .xz file will unpack to, read from its chunk headers before anything is unpacked.
//!
//! The decoder keeps all output in memory, so a small file that unpacks to gigabytes has to be
//! refused beforehand. Source: the .xz file format 1.0.4, sections 2 and 3, and LZMA2's chunk
//! headers as liblzma's `lzma2_decoder.c` reads them.

/// First bytes of an .xz file.
pub(super) const MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
/// Bytes of the stream header.
const STREAM_HEADER: usize = 12;

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
            return Some(total);
        }
        let data = at + (size + 1) * 4;
        let (end, unpacked) = block(file, data)?;
        total = total.checked_add(unpacked)?;
        let padding = (end - data).next_multiple_of(4) - (end - data);
        at = end + padding + check_bytes;
    }
}

/// The end of a block's chunks, and what they unpack to.
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
