//! The bytes of a packet as slices: unsafe code, like `raw`.
//!
//! # Why packets may lend their bytes
//! 1. One owner: an index is in exactly one place: a magazine, a ring's slot, or a packet. The safe
//!    code around keeps that true; it moves indices and never copies them.
//! 2. Unshared or read-only: `&mut [u8]` is lent only by a packet that is the only handle to its
//!    buffers, borrowed exclusively; `&[u8]` by shared packets too, and none of them lends `&mut`.
//! 3. In bounds: offset and length stay inside the buffer; checked where they are set, and again
//!    here.
//! 4. Not the device's: a packet's buffer is in no descriptor that the device may write. A device
//!    that is reset or has confirmed that a queue stopped writes no more; one that did neither
//!    keeps the buffers (see `control`). A descriptor of a send only lets the device read.
//!
//! Point 4 is the contract of the device, as for every driver. A device that breaks it writes to
//! memory that the IOMMU lets it reach while the processor reads: the bytes are then garbage, and
//! code that reads a byte twice may see two values. Programs that do not trust the device that far
//! copy with [`crate::Packet::read`], which never makes a slice.
#![allow(unsafe_code)]

use super::{Packet, Segment};
use ringside_bus::Words;

/// First byte of `length` bytes at `offset`; bounds are checked, so a mistake of the safe code is a
/// panic and not a wild access.
#[inline(always)]
fn first(words: &Words, offset: usize, length: usize) -> *mut u8 {
    let all = words.as_slice();
    assert!(
        offset
            .checked_add(length)
            .is_some_and(|end| end <= all.len() * 8),
        "bytes outside the pool"
    );
    let start = all.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: in bounds by the check.
    unsafe { start.add(offset) }
}

/// Bytes of a packet, to read.
///
/// # Safety
/// The caller owns the buffer or shares it read-only, and keeps it as long as `'a`; the device does
/// not write to it: points 1, 2 and 4 of the module.
#[inline(always)]
unsafe fn bytes<'a>(words: &Words, offset: usize, length: usize) -> &'a [u8] {
    let first = first(words, offset, length);
    // SAFETY: in bounds (`first`), initialised (the pool's memory is zeroed when made), mapped
    //         while the pool lives, unchanged while lent: the caller's promise. The words are
    //         atomics, so the pointer may be read through.
    unsafe { std::slice::from_raw_parts(first, length) }
}

/// Bytes of a packet, to write.
///
/// # Safety
/// As [`bytes`], and the caller is the only handle, borrowed exclusively for `'a`.
#[inline(always)]
unsafe fn bytes_mut<'a>(words: &Words, offset: usize, length: usize) -> &'a mut [u8] {
    let first = first(words, offset, length);
    // SAFETY: as above, and no other slice of these bytes exists: the caller's promise. The words
    //         are atomics, so the pointer may be written through.
    unsafe { std::slice::from_raw_parts_mut(first, length) }
}

impl Packet {
    /// Bytes of the first segment: all of them where there is no other.
    ///
    /// Trusts the device not to write to a packet that it has delivered, as the documentation of
    /// the crate says; [`Packet::read`] copies without that trust.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let at = self.pool().place(self.buffer) + usize::from(self.offset);
        // SAFETY: the packet owns the buffer, or shares it, and then no handle lends `&mut`
        //         (`bytes_mut` refuses); borrowed as long as the packet.
        unsafe { bytes(self.pool().words(), at, usize::from(self.first_bytes())) }
    }

    /// The same, to be changed; `None` if other handles exist.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_sole() {
            return None;
        }
        let at = self.pool().place(self.buffer) + usize::from(self.offset);
        // SAFETY: the only handle to the buffer, borrowed exclusively.
        Some(unsafe { bytes_mut(self.pool().words(), at, usize::from(self.first_bytes())) })
    }

    /// Bytes of one of its segments.
    #[must_use]
    pub fn segment_bytes(&self, segment: Segment) -> &[u8] {
        // A segment of another packet would be the bytes of that one.
        if !self.segments().any(|own| own == segment) {
            return &[];
        }
        let at = self.pool().place(segment.buffer) + usize::from(segment.offset);
        // SAFETY: one of the packet's own buffers, as was checked; else as for `bytes`.
        unsafe { bytes(self.pool().words(), at, usize::from(segment.length)) }
    }
}
