//! The one place of this crate with unsafe code: packets reach their pool by a plain pointer, and
//! their bytes as slices.
//!
//! # Why packets may hold a plain pointer
//! A reference-counted one would cost an atomic read-modify-write for each packet. Instead the pool's
//! caches count what was taken and given, and [`PoolReference::free`] is called only by the last
//! handle of the pool, when nothing is in use: then no packet exists, and none can be made. A packet
//! that is being given back touches the pool for the last time when it stores the counter that
//! says so, with release order; the owner reads the counters with acquire order. A pool that is
//! dropped while packets are held is never freed.
//!
//! # Why packets may lend their bytes
//! 1. One owner: an index is in exactly one place: a magazine, a ring's slot, or a packet. The safe
//!    code around keeps that true; it moves indices and never copies them.
//! 2. Unshared or read-only: `&mut [u8]` is lent only by a packet that is the only handle to its
//!    buffers, borrowed exclusively; `&[u8]` by shared packets too, and none of them lends `&mut`.
//! 3. In bounds: offset and length stay inside the buffer; checked where they are set, and again
//!    here.
//! 4. Not the device's: a packet's buffer is in no descriptor that the device may write. A device
//!    that is reset or has confirmed that a queue stopped writes no more; one that did neither keeps
//!    the buffers (see `control`). A descriptor of a send only lets the device read.
//!
//! Point 4 is the contract of the device, as for every driver. A device that breaks it writes to
//! memory that the IOMMU lets it reach while the processor reads: the bytes are then garbage, and
//! code that reads a byte twice may see two values. Those who do not trust the device that far copy
//! with [`crate::Packet::read`], which never makes a slice.
#![allow(unsafe_code)]

use crate::packet::{Packet, Segment};
use crate::pool::Shared;
use ringside_bus::Words;
use std::ptr::NonNull;

/// A pool, as its packets know it. Copying it does not keep the pool alive.
#[derive(Clone, Copy)]
pub(crate) struct PoolReference(NonNull<Shared>);

// SAFETY: it gives out `&Shared` only, and `Shared` is `Sync`: atomics, and memory behind atomics.
unsafe impl Send for PoolReference {}
// SAFETY: as above.
unsafe impl Sync for PoolReference {}

const fn is_sync<T: Sync + Send>() {}
const _: () = is_sync::<Shared>();

impl PoolReference {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(NonNull::from(Box::leak(Box::new(shared))))
    }

    /// The pool.
    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: alive: `free` has not been called while a packet, a queue or the pool's own handle
        //         exists, and only those hold references. Never borrowed exclusively before that.
        unsafe { self.0.as_ref() }
    }

    /// Frees the pool. Only its last owner calls this, with nothing in use.
    pub(crate) fn free(self) {
        debug_assert_eq!(self.shared().in_use(), 0);
        // SAFETY: made by `Box::leak` in `new`; freed once, because only the owner's `Drop` calls
        //         this; no packet exists: see the module.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

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
pub(crate) unsafe fn bytes<'a>(words: &Words, offset: usize, length: usize) -> &'a [u8] {
    let first = first(words, offset, length);
    // SAFETY: in bounds (`first`), initialised (the pool's memory is zeroed when made), mapped while
    //         the pool lives, unchanged while lent: the caller's promise. The words are atomics, so
    //         the pointer may be read through.
    unsafe { std::slice::from_raw_parts(first, length) }
}

/// Bytes of a packet, to write.
///
/// # Safety
/// As [`bytes`], and the caller is the only handle, borrowed exclusively for `'a`.
#[inline(always)]
pub(crate) unsafe fn bytes_mut<'a>(words: &Words, offset: usize, length: usize) -> &'a mut [u8] {
    let first = first(words, offset, length);
    // SAFETY: as above, and no other slice of these bytes exists: the caller's promise. The words
    //         are atomics, so the pointer may be written through.
    unsafe { std::slice::from_raw_parts_mut(first, length) }
}

impl PartialEq for PoolReference {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0.as_ptr(), other.0.as_ptr())
    }
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
        unsafe { bytes(self.pool().words(), at, usize::from(self.length)) }
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
        Some(unsafe { bytes_mut(self.pool().words(), at, usize::from(self.length)) })
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
