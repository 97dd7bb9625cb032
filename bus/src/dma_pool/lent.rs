//! The program's own memory, mapped for the device at its present address.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::{DmaBuffer, DmaPool};
use crate::function::DmaAccess;
use crate::memory::{Memory, MemoryError, PageSize};
use std::sync::Arc;

impl DmaPool {
    /// Lets the device, also one in another process, access `length` bytes of the program's memory
    /// at `address`. Neither has to be aligned.
    ///
    /// The device can access all pages that the range touches. Each range has its own device
    /// addresses, so ranges may overlap. Dropping the buffer unmaps the pages.
    ///
    /// # Safety
    /// See [`Memory::lend`]: the range stays mapped until the buffer is dropped and, if it was
    /// given up with [`DmaBuffer::leak`], until the pool is closed.
    pub unsafe fn lend(
        self: &Arc<Self>,
        address: usize,
        length: usize,
        access: DmaAccess,
    ) -> Result<DmaBuffer, MemoryError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.lend_by(address, length, access, |first, length| {
                Memory::lend(first, length)
            })
        }
    }

    /// As [`DmaPool::lend`]; a range of whole pages that are private to this process is moved into
    /// a file before, if [`Memory::move_into_file`] takes it, so that a device in another process
    /// maps it. A range that shares its pages with other data stays: other threads may write to
    /// those.
    ///
    /// # Safety
    /// As of [`DmaPool::lend`] and [`Memory::move_into_file`].
    pub unsafe fn lend_in_file(
        self: &Arc<Self>,
        address: usize,
        length: usize,
        access: DmaAccess,
    ) -> Result<DmaBuffer, MemoryError> {
        let given = (address, length);
        // SAFETY: the caller's promise.
        unsafe {
            self.lend_by(address, length, access, |first, length| {
                let is_whole = given == (first, length);
                let moved = is_whole.then(|| Memory::move_into_file(first, length));
                moved
                    .flatten()
                    .map_or_else(|| Memory::lend(first, length), Ok)
            })
        }
    }

    /// Maps the whole pages of a range, as `lend` gives them.
    ///
    /// # Safety
    /// As of [`DmaPool::lend`].
    unsafe fn lend_by(
        self: &Arc<Self>,
        address: usize,
        length: usize,
        access: DmaAccess,
        lend: impl FnOnce(usize, usize) -> Result<Memory, MemoryError>,
    ) -> Result<DmaBuffer, MemoryError> {
        let page = PageSize::FourKiB.bytes();
        let bad = MemoryError::BadRequest {
            length,
            alignment: 1,
        };
        let first = address - address % page;
        let end = address.checked_add(length);
        let end = end.and_then(|end| end.checked_next_multiple_of(page));
        let Some(end) = end.filter(|_| length > 0) else {
            return Err(bad);
        };
        let memory = lend(first, end - first)?;
        let mut buffer = self.map_with(memory, access).map_err(|(error, _)| error)?;
        let offset = address - first;
        buffer.offset = offset;
        buffer.length = length;
        buffer.iova = buffer.iova.add(offset as u64);
        Ok(buffer)
    }
}

/// The right to lend any range of the program's memory to a device.
///
/// Making the permit needs `unsafe`, with a contract for all uses. Lending with the permit is safe.
/// It is for a cache of registrations, which decides by itself how long a range stays lent.
#[derive(Clone, Debug)]
pub struct LendPermit(());

impl LendPermit {
    /// Makes the permit.
    ///
    /// # Safety
    /// The caller promises, for each range that a holder of this permit or of a clone lends, and
    /// for the rest of its first and last page:
    /// 1. The range is mapped, readable and writable, when the holder lends it, and stays so while
    ///    the holder counts it as in use (for a cache: until the guard is dropped).
    /// 2. The range is not unmapped, moved, protected or given up by `madvise` while it is lent,
    ///    unless the holder is told before, or learns of it from the kernel. Its documentation says
    ///    which.
    /// 3. While it is in use the device may write to it at any time, if it was lent for writing:
    ///    the program accesses it by atomics, by volatile accesses, or after a completion.
    /// 4. No request names the range once it is not in use any more.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl DmaPool {
    /// Lends memory as [`DmaPool::lend`] does, under a permit.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn lend_permitted(
        self: &Arc<Self>,
        _: &LendPermit,
        address: usize,
        length: usize,
        access: DmaAccess,
    ) -> Result<DmaBuffer, MemoryError> {
        // SAFETY: the maker of the permit has promised that the range stays mapped while it is
        // lent.
        unsafe { self.lend(address, length, access) }
    }
}
