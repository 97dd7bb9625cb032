//! A piece of a pool's memory. It returns to the pool when it is dropped.

use super::DmaPool;
use super::source::Source;
use crate::Iova;
use crate::memory::{Memory, PageSize, Words};
use std::sync::Arc;

/// A piece of DMA memory, contiguous for the device. It returns to its pool when it is dropped.
pub struct DmaBuffer {
    pub(super) pool: Arc<DmaPool>,
    pub(super) memory: Memory,
    pub(super) source: Source,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) iova: Iova,
    pub(super) leaked: bool,
}

impl DmaBuffer {
    /// The device's address of the buffer.
    #[inline]
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// True if it is of that pool's memory, which one device reaches.
    #[must_use]
    pub fn is_of(&self, pool: &Arc<DmaPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Length in bytes: a multiple of 64, except for memory of the application.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The page size of the memory behind the buffer.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.memory.page_size()
    }

    /// All of the buffer as words; for memory of the application, the aligned words in it.
    #[must_use]
    pub fn words(&self) -> Words {
        let address = self.memory.virtual_address() as usize + self.offset;
        let skipped = (address.next_multiple_of(8) - address).min(self.length);
        let length = (self.length - skipped) / 8 * 8;
        // A piece of fewer than eight bytes has no aligned word to begin at.
        let skipped = if length == 0 { 0 } else { skipped };
        let view = self.memory.words(self.offset + skipped, length);
        view.unwrap_or_else(|| self.memory.no_words())
    }

    /// The words of a part of the buffer, offset and length in bytes; `None` if the part is
    /// outside, or if its address or its length is no multiple of 8.
    #[must_use]
    pub fn words_at(&self, offset: usize, length: usize) -> Option<Words> {
        let end = offset.checked_add(length)?;
        let inside = end <= self.length;
        inside.then(|| self.memory.words(self.offset + offset, length))?
    }

    /// Unmaps memory of the application and returns it. Fails with the buffer if it is a piece of a
    /// pool, or if the device's mapping cannot be removed.
    ///
    /// Only for memory that the device no longer uses: that of a deregistered region.
    pub fn into_memory(mut self) -> Result<Memory, Self> {
        let is_brought = self.source == Source::Application;
        if !is_brought || !self.pool.unmap(self.mapped_at(), self.memory.length()) {
            return Err(self);
        }
        self.leaked = true;
        Ok(self.memory.clone())
    }

    /// The first mapped address of application memory; lent memory is mapped from before the
    /// buffer.
    fn mapped_at(&self) -> Iova {
        Iova(self.iova.0 - self.offset as u64)
    }

    /// Copies out of the buffer. Returns false, and copies nothing, if the range is outside.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        self.holds(offset, into.len()) && self.memory.read(self.offset + offset, into)
    }

    /// Copies into the buffer. Returns false, and copies nothing, if the range is outside.
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        self.holds(offset, from.len()) && self.memory.write(self.offset + offset, from)
    }

    /// Fills a range; false if it is outside.
    #[must_use]
    pub fn fill(&self, offset: usize, length: usize, byte: u8) -> bool {
        self.holds(offset, length) && self.memory.fill(self.offset + offset, length, byte)
    }

    /// True in a child by fork of the process that made it. The buffer is zeroed pages of the child
    /// there, and dropping it does nothing.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.pool.is_elsewhere()
    }

    fn holds(&self, offset: usize, length: usize) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length)
    }

    /// The whole mapping behind the buffer, and the offset of the buffer in it.
    #[must_use]
    pub fn memory(&self) -> (&Memory, usize) {
        (&self.memory, self.offset)
    }

    /// Pages that [`DmaPool::lend_in_file`](super::DmaPool::lend_in_file) moved into a file stay
    /// there when the buffer is dropped: for one that the program's threads use again before that.
    /// Nothing for other memory.
    pub fn keep_in_file(&self) {
        self.memory.keep_in_file();
    }

    /// Keeps the memory mapped permanently, because the device may still write to it. Counted in
    /// [`PoolUsage::leaked_bytes`](super::PoolUsage::leaked_bytes). Its block is still returned in
    /// [`DmaPool::close`], once the device no longer writes.
    pub fn leak(mut self) {
        if self.pool.is_elsewhere() {
            return;
        }
        let mut state = self.pool.state();
        state.leaked_bytes += self.length;
        self.keep_in_file();
        match self.source {
            Source::Block(block) => state.leaked.push((block, self.offset, self.length)),
            Source::Application => state.leaked_brought.push(self.mapped_at().0),
        }
        drop(state);
        self.leaked = true;
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        match self.source {
            Source::Block(block) => self.pool.give_back(block, self.offset, self.length),
            Source::Application => {
                self.pool.unmap(self.mapped_at(), self.memory.length());
            }
        }
    }
}

impl std::fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DmaBuffer({} bytes at {})", self.length, self.iova)
    }
}
