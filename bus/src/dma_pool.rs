//! The driver's side of DMA: buffers cut from blocks that are mapped for the device as a whole.
//!
//! Mapping is slow and the number of mappings is limited (VFIO allows 65,535), so memory is mapped
//! in blocks of at least 2 MiB and handed out in pieces. A dropped piece returns to the pool. A
//! block returns to the system only in [`DmaPool::close`]: dropping a buffer never unmaps memory
//! that the device may use. Keep a buffer that the device may still write to, or pass it to
//! [`DmaBuffer::leak`].
//!
//! Blocks lie at random addresses ([`Placement`]). A freed buffer is handed out again only when
//! nothing else fits.

mod brought;
mod buffer;
mod lent;
mod placement;
mod record;
mod source;

pub use buffer::DmaBuffer;
pub use lent::LendPermit;
pub use placement::Placement;

use crate::function::{DmaAccess, Function};
use crate::memory::{Memory, MemoryError, PageSize};
use crate::per_process::PerProcess;
use crate::process::Birth;
use crate::ranges::Ranges;
use crate::{FunctionError, Iova};
use placement::Places;
use record::Brought;
use source::Source;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The source of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The largest page to try; smaller ones follow when no huge pages of that size are free.
    pub largest_page: PageSize,
    /// Fail instead of falling back to a smaller page.
    pub exact: bool,
    /// Bind to this NUMA node.
    pub numa_node: Option<u32>,
    /// The source of random addresses.
    pub placement: Placement,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            largest_page: PageSize::TwoMiB,
            exact: false,
            numa_node: None,
            placement: Placement::Unpredictable,
        }
    }
}

/// Page size by which memory of the application is mapped, in bytes.
const PAGE: u64 = 4096;

/// Smallest block: one segment of the host memory cache.
const BLOCK: usize = 2 << 20;

struct Block {
    memory: Memory,
    iova: Iova,
    free: Ranges,
    /// offset after the last piece handed out: the search for the next one starts here
    next: u64,
}

impl Block {
    /// Takes `length` bytes from offset `from` on. `alignment` applies to the device's address, so
    /// it holds only up to the block's own alignment.
    fn take(&mut self, from: u64, length: u64, alignment: u64) -> Option<usize> {
        if !self.iova.0.is_multiple_of(alignment) {
            return None;
        }
        let offset = self.free.take_from(from, length, alignment)?;
        self.next = offset + length;
        usize::try_from(offset).ok()
    }
}

struct State {
    blocks: Vec<Option<Block>>,
    /// the block that the last buffer came from
    current: usize,
    places: Places,
    leaked_bytes: usize,
    /// leaked pieces: block, offset, bytes
    leaked: Vec<(usize, usize, usize)>,
    /// memory of the application, by I/O virtual address
    brought: BTreeMap<u64, Brought>,
    /// addresses of leaked memory of the application
    leaked_brought: Vec<u64>,
    /// the reason why memory is not on the requested pages, reported once
    fallback: Option<String>,
    closed: bool,
}

impl State {
    fn take_addresses(&mut self, length: usize, alignment: usize) -> Result<u64, MemoryError> {
        let taken = self
            .places
            .take(length as u64, alignment as u64, BLOCK as u64);
        taken.ok_or(MemoryError::NoAddressSpace { length })
    }

    /// Finds block and offset for `length` bytes in the mapped blocks: first after the last buffer,
    /// then in freed space, beginning with the blocks after it.
    fn take_from_blocks(&mut self, length: usize, alignment: usize) -> Option<(usize, usize)> {
        let (length, alignment) = (length as u64, alignment as u64);
        let onwards = (self.current..self.blocks.len()).chain(0..self.current);
        let behind = (self.current + 1..self.blocks.len()).chain(0..self.current + 1);
        let unused = onwards.map(|index| (index, true));
        let again = behind.map(|index| (index, false));
        let (index, offset) = unused.chain(again).find_map(|(index, unused)| {
            let block = self.blocks.get_mut(index)?.as_mut()?;
            let from = if unused { block.next } else { 0 };
            Some((index, block.take(from, length, alignment)?))
        })?;
        self.current = index;
        Some((index, offset))
    }
}

/// Memory that a device may still write to: it stays mapped until the process ends.
static KEPT: PerProcess<Mutex<Vec<Memory>>> = PerProcess::new();

fn kept() -> MutexGuard<'static, Vec<Memory>> {
    let kept = KEPT.get_or_init(Mutex::default);
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_forever(memory: Memory) {
    kept().push(memory);
}

/// Bytes that this process keeps because a device may still write to them.
#[must_use]
pub fn kept_forever_bytes() -> usize {
    kept().iter().map(Memory::length).sum()
}

/// DMA memory of one function.
pub struct DmaPool {
    function: Arc<dyn Function>,
    settings: PoolSettings,
    birth: Birth,
    state: Mutex<State>,
}

/// The usage of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Number of mappings.
    pub blocks: usize,
    /// Bytes mapped.
    pub mapped_bytes: usize,
    /// Bytes handed out.
    pub used_bytes: usize,
    /// Bytes leaked because the device may still write to them.
    pub leaked_bytes: usize,
    /// The smallest page among the blocks.
    pub page_size: Option<PageSize>,
    /// The reason why memory is not on the requested pages, and the remedy.
    pub fallback: Option<String>,
}

impl DmaPool {
    /// An empty pool in the address ranges that the function's IOMMU accepts.
    pub fn new(
        function: Arc<dyn Function>,
        settings: PoolSettings,
    ) -> Result<Arc<Self>, FunctionError> {
        let limits = function.dma_limits()?;
        let state = State {
            blocks: Vec::new(),
            current: 0,
            places: Places::new(limits.iova_ranges, settings.placement),
            leaked_bytes: 0,
            leaked: Vec::new(),
            brought: BTreeMap::new(),
            leaked_brought: Vec::new(),
            fallback: None,
            closed: false,
        };
        Ok(Arc::new(Self {
            function,
            settings,
            birth: Birth::now(),
            state: Mutex::new(state),
        }))
    }

    /// True in a child process made by `fork`. The lock may be held permanently there, and the
    /// memory belongs to the parent.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        !self.birth.is_here()
    }

    /// Refuses calls in a child process made by `fork`.
    ///
    /// # Errors
    /// [`FunctionError::OtherProcess`]
    pub fn check_process(&self) -> Result<(), FunctionError> {
        self.birth.check(self.function.address())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns zeroed memory that the device can access. `alignment` is in bytes, a power of two,
    /// at most 1 GiB.
    ///
    /// The device sees it as one contiguous range.
    pub fn allocate(
        self: &Arc<Self>,
        length: usize,
        alignment: usize,
    ) -> Result<DmaBuffer, MemoryError> {
        if length == 0 || !alignment.is_power_of_two() || alignment > 1 << 30 {
            return Err(MemoryError::BadRequest { length, alignment });
        }
        self.check_process()?;
        // Whole cache lines, so that no two buffers share one.
        let Some(length) = length.checked_next_multiple_of(64) else {
            return Err(MemoryError::NoAddressSpace { length });
        };
        let alignment = alignment.max(64);
        let mut state = self.state();
        let place = match state.take_from_blocks(length, alignment) {
            Some(place) => place,
            None => {
                self.add_block(&mut state, length, alignment)?;
                state
                    .take_from_blocks(length, alignment)
                    .ok_or(MemoryError::NoAddressSpace { length })?
            }
        };
        let (block, offset) = place;
        let Some(Some(held)) = state.blocks.get(block) else {
            return Err(MemoryError::NoAddressSpace { length });
        };
        let (memory, iova) = (held.memory.clone(), held.iova.add(offset as u64));
        drop(state);
        let zeroed = memory.fill(offset, length, 0);
        debug_assert!(zeroed);
        Ok(DmaBuffer {
            pool: Arc::clone(self),
            memory,
            source: Source::Block(block),
            offset,
            length,
            iova,
            leaked: false,
        })
    }

    fn add_block(
        &self,
        state: &mut State,
        length: usize,
        alignment: usize,
    ) -> Result<(), MemoryError> {
        if state.closed {
            return Err(MemoryError::Closed);
        }
        // Address space is reserved first: a request beyond it must not allocate memory.
        let Some(wanted) = length.checked_next_multiple_of(BLOCK) else {
            return Err(MemoryError::NoAddressSpace { length });
        };
        let at = state.take_addresses(wanted, alignment.max(BLOCK))?;
        let memory = match self.memory(state, wanted) {
            Ok(memory) => memory,
            Err(error) => {
                state.places.give(at..at + wanted as u64);
                return Err(error);
            }
        };
        let bytes = memory.length();
        // A larger page makes a larger block, which needs a larger address range.
        let at = if bytes == wanted && at.is_multiple_of(memory.page_size().bytes() as u64) {
            at
        } else {
            state.places.give(at..at + wanted as u64);
            state.take_addresses(bytes, alignment.max(memory.page_size().bytes()))?
        };
        let iova = Iova(at);
        if let Err(error) = self
            .function
            .map_dma(iova, &memory, 0..bytes, DmaAccess::ReadWrite)
        {
            state.places.give(at..at + bytes as u64);
            return Err(error.into());
        }
        let free = Ranges::new(std::iter::once(0..bytes as u64));
        let room = bytes.saturating_sub(length) as u64;
        let next = state.places.first_offset(room, alignment as u64);
        state.current = state.blocks.len();
        state.blocks.push(Some(Block {
            memory,
            iova,
            free,
            next,
        }));
        Ok(())
    }

    /// Allocates memory on the largest pages available, from the requested size downwards.
    fn memory(&self, state: &mut State, length: usize) -> Result<Memory, MemoryError> {
        let mut refused = None;
        for page_size in [PageSize::OneGiB, PageSize::TwoMiB, PageSize::FourKiB] {
            // A page of 1 GiB for less than half of it would waste memory.
            let worth = page_size != PageSize::OneGiB || length >= PageSize::OneGiB.bytes() / 2;
            if page_size > self.settings.largest_page || !(worth || self.settings.exact) {
                continue;
            }
            match Memory::allocate(length, page_size, self.settings.numa_node) {
                Ok(memory) => {
                    note_fallback(state, refused, page_size);
                    return Ok(memory);
                }
                Err(error) if self.settings.exact || page_size == PageSize::FourKiB => {
                    return Err(error);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(MemoryError::BadRequest {
            length,
            alignment: BLOCK,
        }))
    }

    /// The current usage.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        if self.is_elsewhere() {
            return PoolUsage::default();
        }
        let state = self.state();
        let blocks: Vec<_> = state.blocks.iter().flatten().collect();
        let of_blocks: usize = blocks.iter().map(|block| block.memory.length()).sum();
        let brought: usize = state.brought.values().map(Brought::length).sum();
        let mapped_bytes = of_blocks + brought;
        let free: u64 = blocks.iter().map(|block| block.free.free_bytes()).sum();
        PoolUsage {
            blocks: blocks.len(),
            mapped_bytes,
            used_bytes: mapped_bytes - free as usize,
            leaked_bytes: state.leaked_bytes,
            page_size: blocks.iter().map(|block| block.memory.page_size()).min(),
            fallback: state.fallback.clone(),
        }
    }

    /// Unmaps every block and returns the memory to the system. Memory that another thread is
    /// mapping meanwhile is unmapped by that thread, perhaps after this returns.
    ///
    /// Call it only when the device can no longer write: after bus mastering is off, or after a
    /// reset. Buffers that still exist keep their memory for this process; the device can no longer
    /// reach it. A block that cannot be unmapped is leaked and reported as the error; the others
    /// are returned.
    pub fn close(&self) -> Result<(), FunctionError> {
        self.check_process()?;
        let mut state = self.state();
        state.closed = true;
        // Leaked pieces return with their block: the device no longer writes.
        state.leaked_bytes = 0;
        state.leaked.clear();
        state.leaked_brought.clear();
        let mut result = Ok(());
        for (iova, brought) in std::mem::take(&mut state.brought) {
            // Memory that a thread is mapping just now: it finds no record, and unmaps it itself.
            let Brought::Mapped(memory) = brought else {
                continue;
            };
            let bytes = memory.length();
            // The program's threads may write to it just now.
            memory.keep_in_file();
            if let Err(error) = self.function.unmap_dma(Iova(iova), bytes as u64) {
                tracing::error!(%error, iova, bytes, "unmapping failed: memory leaked");
                state.leaked_bytes += bytes;
                keep_forever(memory);
                result = Err(error);
            }
        }
        for slot in 0..state.blocks.len() {
            let Some(block) = state.blocks.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            let bytes = block.memory.length();
            if let Err(error) = self.function.unmap_dma(block.iova, bytes as u64) {
                tracing::error!(%error, iova = %block.iova, bytes, "unmapping failed: memory leaked");
                state.leaked_bytes += bytes;
                keep_forever(block.memory);
                result = Err(error);
            }
        }
        result
    }

    /// Frees the pieces leaked with [`DmaBuffer::leak`], and returns their bytes. Call it only
    /// after a reset of the device.
    pub fn reclaim_leaked(&self) -> usize {
        if self.is_elsewhere() {
            return 0;
        }
        let (leaked, brought) = {
            let mut state = self.state();
            state.leaked_bytes = 0;
            let leaked = std::mem::take(&mut state.leaked);
            (leaked, std::mem::take(&mut state.leaked_brought))
        };
        let mut bytes = 0;
        for iova in brought {
            let length = self.state().brought.get(&iova).map_or(0, Brought::length);
            self.unmap(Iova(iova), length);
            bytes += length;
        }
        for (block, offset, length) in &leaked {
            self.give_back(*block, *offset, *length);
        }
        bytes + leaked.iter().map(|(_, _, length)| length).sum::<usize>()
    }

    fn give_back(&self, block: usize, offset: usize, length: usize) {
        if self.is_elsewhere() {
            return;
        }
        let mut state = self.state();
        if let Some(Some(block)) = state.blocks.get_mut(block) {
            block.free.give(offset as u64..(offset + length) as u64);
        }
    }
}

fn note_fallback(state: &mut State, refused: Option<MemoryError>, got: PageSize) {
    if let Some(error) = refused
        && state.fallback.is_none()
    {
        let text = format!("DMA memory is on {got} pages: {error}");
        tracing::warn!("{text}");
        state.fallback = Some(text);
    }
}

impl Drop for DmaPool {
    /// A pool that was not closed keeps its memory mapped and leaks it: the pool cannot determine
    /// that the device is quiet.
    fn drop(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for brought in std::mem::take(&mut state.brought).into_values() {
            if let Brought::Mapped(memory) = brought {
                keep_forever(memory);
            }
        }
        for block in state.blocks.drain(..).flatten() {
            let bytes = block.memory.length();
            tracing::warn!(iova = %block.iova, bytes, "DMA pool dropped without close: memory leaked");
            keep_forever(block.memory);
        }
    }
}

impl std::fmt::Debug for DmaPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DmaPool")
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
