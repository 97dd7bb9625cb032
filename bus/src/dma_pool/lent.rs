//! The program's own memory, mapped for the device at its present address.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::record::Brought;
use super::{DmaBuffer, DmaPool};
use crate::function::DmaAccess;
use crate::memory::{Memory, MemoryError, PageSize};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

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
        unsafe { self.lend_as(address, length, access, None) }
    }

    /// As [`DmaPool::lend`], so that a device in another process maps the memory, if it can be:
    /// whole pages that are private to this process are moved into a file before, at their
    /// addresses. They are private again when the buffer is dropped. A range that shares its pages
    /// with other data stays, and so does one of which the device can access a part already.
    ///
    /// # Safety
    /// 1. As of [`DmaPool::lend`].
    /// 2. No other thread writes to whole pages of the range during the call, and while the buffer
    ///    is dropped: it would write to the former ones.
    /// 3. No device reaches the pages by their physical addresses.
    pub unsafe fn lend_in_file(
        self: &Arc<Self>,
        address: usize,
        length: usize,
        access: DmaAccess,
    ) -> Result<DmaBuffer, MemoryError> {
        self.check_process()?;
        let moved = match self.reaches(address, length) {
            true => None,
            // SAFETY: the caller's promise; no device writes to the pages, and this is no child.
            false => unsafe { Memory::move_into_file(address, length) },
        };
        // SAFETY: the caller's promise.
        unsafe { self.lend_as(address, length, access, moved) }
    }

    /// True if the device accesses a part of a range by way of this process' address space.
    fn reaches(&self, address: usize, length: usize) -> bool {
        let end = address.saturating_add(length) as u64;
        let is_reached = |brought: &Brought| match brought {
            Brought::Mapped(memory) if memory.is_positional() => {
                let first = memory.virtual_address();
                first < end && (address as u64) < first + memory.length() as u64
            }
            Brought::Mapped(_) | Brought::BeingMapped(_) => false,
        };
        self.state().brought.values().any(is_reached)
    }

    /// Maps the whole pages of a range: `memory`, or as they are.
    ///
    /// # Safety
    /// As of [`DmaPool::lend`].
    unsafe fn lend_as(
        self: &Arc<Self>,
        address: usize,
        length: usize,
        access: DmaAccess,
        memory: Option<Memory>,
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
        let memory = match memory {
            Some(memory) => memory,
            // SAFETY: whole pages that hold a range which the caller says is mapped.
            None => unsafe { Memory::lend(first, end - first) }?,
        };
        let mut buffer = self.map_with(memory, access).map_err(|(error, _)| error)?;
        let offset = address - first;
        buffer.offset = offset;
        buffer.length = length;
        buffer.iova = buffer.iova.add(offset as u64);
        Ok(buffer)
    }
}

/// The right to lend the program's memory to a device: any range, or those of one area.
///
/// Making a permit for any range needs `unsafe`, with a contract for all uses. Lending with a
/// permit is safe. It is for a cache of registrations, which decides by itself how long a range
/// stays lent.
#[derive(Clone, Debug)]
pub struct LendPermit {
    /// addresses that may be lent; `None` for all
    within: Option<Range<usize>>,
}

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
        Self { within: None }
    }

    /// Makes a permit for the whole pages of memory that stays until the process ends, such as an
    /// area of which a program makes all its buffers (`Box::leak`). The program and the device both
    /// access it as atomics. The rest of its first and last page is not lent: a cache registers
    /// whole pages.
    #[must_use]
    pub fn for_static(memory: &'static [AtomicU8]) -> Self {
        let page = PageSize::FourKiB.bytes();
        let first = memory.as_ptr().expose_provenance();
        let end = first + memory.len();
        Self {
            within: Some(first.next_multiple_of(page)..end - end % page),
        }
    }

    fn check(&self, address: usize, length: usize) -> Result<(), MemoryError> {
        let Some(within) = &self.within else {
            return Ok(());
        };
        let is_inside = within.start <= address
            && address
                .checked_add(length)
                .is_some_and(|end| end <= within.end);
        match is_inside {
            true => Ok(()),
            false => Err(MemoryError::NotPermitted {
                address,
                length,
                within: within.clone(),
            }),
        }
    }
}

impl DmaPool {
    /// Lends memory as [`DmaPool::lend`] does, under a permit.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn lend_permitted(
        self: &Arc<Self>,
        permit: &LendPermit,
        address: usize,
        length: usize,
        access: DmaAccess,
    ) -> Result<DmaBuffer, MemoryError> {
        permit.check(address, length)?;
        // SAFETY: the maker of the permit has promised that the range stays mapped while it is
        // lent, or it lies in memory that always does.
        unsafe { self.lend(address, length, access) }
    }
}
