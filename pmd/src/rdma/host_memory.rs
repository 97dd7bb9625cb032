//! Memory behind the host memory cache: allocated, assigned to the device, and freed.

use super::RdmaError;
use crate::Registers;
use crate::control::ControlQueue;
use ringside_bus::{DmaBuffer, DmaPool, MemoryError};
use ringside_hmc::{
    Backing, BackingError, BackingPolicy, Layout, Missing, PageList, PbleAllocator,
};
use ringside_spec::rdma::commands::{StaticHmcPagesAllocated, UpdateSegments};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::registers::{PAGE_DESCRIPTOR_INVALIDATE, PageDescriptorInvalidate};
use ringside_spec::rdma::segments::{FpmLocation, SegmentEntry};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The backing of one segment.
#[derive(Debug)]
enum SegmentMemory {
    Direct(DmaBuffer),
    Paged {
        table: DmaBuffer,
        pages: BTreeMap<u16, DmaBuffer>,
    },
}

impl SegmentMemory {
    /// Leaks the memory because the device may still use it.
    fn leak(self) {
        match self {
            Self::Direct(buffer) => buffer.leak(),
            Self::Paged { table, pages } => {
                table.leak();
                pages.into_values().for_each(DmaBuffer::leak);
            }
        }
    }
}

/// The host memory cache of a function, with the memory behind it.
#[derive(Debug)]
pub(crate) struct HostMemory {
    registers: Registers,
    pool: Arc<DmaPool>,
    function_index: u8,
    backing: Backing,
    /// page buffer list entries
    pub(crate) page_lists: PbleAllocator,
    segments: BTreeMap<u16, SegmentMemory>,
    /// entries of an update that its command has no room for
    list: DmaBuffer,
}

impl HostMemory {
    /// Books for `layout`; nothing is backed yet.
    pub(crate) fn new(
        registers: Registers,
        pool: Arc<DmaPool>,
        function_index: u8,
        layout: &Layout,
    ) -> Result<Self, MemoryError> {
        let list = pool.allocate(UpdateSegments::LIST_BYTES, UpdateSegments::LIST_BYTES)?;
        Ok(Self {
            registers,
            pool,
            function_index,
            backing: Backing::new(layout, BackingPolicy::Sparse),
            page_lists: PbleAllocator::new(layout.pbles()),
            segments: BTreeMap::new(),
            list,
        })
    }

    /// Bytes of memory behind objects now.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.backing.memory_bytes()
    }

    /// Backs the objects that need memory from the start, and announces it to the device.
    pub(crate) fn bring_static(&mut self, control: &ControlQueue) -> Result<(), RdmaError> {
        let missing: Vec<Missing> = self.backing.missing_at_start().collect();
        self.bring(control, &missing)?;
        control.execute(StaticHmcPagesAllocated {
            hmc_function_index: self.function_index,
        })?;
        Ok(())
    }

    /// Backs objects `indexes` of a kind with memory before they are used.
    pub(crate) fn ensure(
        &mut self,
        control: &ControlQueue,
        object: ObjectType,
        indexes: Range<u32>,
    ) -> Result<(), RdmaError> {
        let missing = self.backing.missing(object, indexes)?;
        self.bring(control, &missing)
    }

    fn bring(&mut self, control: &ControlQueue, missing: &[Missing]) -> Result<(), RdmaError> {
        let buffers = missing
            .iter()
            .map(|piece| {
                let bytes = piece.bytes() as usize;
                self.pool.allocate(bytes, bytes)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut told = Vec::new();
        for (piece, buffer) in missing.iter().zip(buffers) {
            let entry = piece.segment_entry(buffer.iova().0);
            told.extend(entry.map(|entry| (*piece, entry)));
            self.backing.note(*piece)?;
            self.keep(*piece, buffer)?;
        }
        let mut done = 0;
        for chunk in told.chunks(UpdateSegments::MAX_ENTRIES) {
            let entries: Vec<SegmentEntry> = chunk.iter().map(|(_, entry)| *entry).collect();
            if let Err(error) = self.update(control, &entries) {
                for (piece, _) in told.iter().skip(done) {
                    self.give_up(*piece);
                }
                return Err(error);
            }
            done += chunk.len();
        }
        for piece in missing {
            if let Missing::Page { segment, page } = *piece
                && !missing.contains(&Missing::PageTable { segment })
            {
                // The device may have cached that the table had no such page.
                let forget = PageDescriptorInvalidate::of(segment, u32::from(page));
                self.registers.write(PAGE_DESCRIPTOR_INVALIDATE, forget.0)?;
            }
        }
        Ok(())
    }

    /// A segment that the device did not confirm: it counts as absent, and its memory is not used
    /// again.
    fn give_up(&mut self, piece: Missing) {
        let (Missing::Segment { segment }
        | Missing::PageTable { segment }
        | Missing::Page { segment, .. }) = piece;
        self.backing.forget(segment);
        if let Some(memory) = self.segments.remove(&segment) {
            memory.leak();
        }
    }

    /// Keeps a piece; a page is entered into its table.
    fn keep(&mut self, piece: Missing, buffer: DmaBuffer) -> Result<(), RdmaError> {
        match piece {
            Missing::Segment { segment } => {
                self.segments.insert(segment, SegmentMemory::Direct(buffer));
            }
            Missing::PageTable { segment } => {
                let memory = SegmentMemory::Paged {
                    table: buffer,
                    pages: BTreeMap::new(),
                };
                self.segments.insert(segment, memory);
            }
            Missing::Page { segment, page } => {
                let address = buffer.iova().0;
                let (Some(SegmentMemory::Paged { table, pages }), Some((offset, descriptor))) = (
                    self.segments.get_mut(&segment),
                    piece.page_descriptor(address),
                ) else {
                    return Err(BackingError::NotMissing(piece).into());
                };
                table.words().store_release(offset / 8, descriptor.0);
                pages.insert(page, buffer);
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        control: &ControlQueue,
        entries: &[SegmentEntry],
    ) -> Result<(), RdmaError> {
        let list = self.list.iova().0;
        let Some((command, listed)) =
            UpdateSegments::from_entries(self.function_index, entries, list)
        else {
            return Ok(());
        };
        let words = self.list.words();
        for (index, word) in listed.iter().flat_map(|entry| entry.words()).enumerate() {
            words.store(index, word);
        }
        control.execute(command)?;
        Ok(())
    }

    /// Takes all backing away from the device, and frees the memory.
    ///
    /// After an error the memory is kept: the device may still use it.
    pub(crate) fn clear(&mut self, control: &ControlQueue) -> Result<(), RdmaError> {
        let entries: Vec<SegmentEntry> = self.backing.clearing_entries().collect();
        for entries in entries.chunks(UpdateSegments::MAX_ENTRIES) {
            self.update(control, entries)?;
        }
        let cleared: Vec<u16> = self.backing.present().map(|(segment, _)| segment).collect();
        for segment in cleared {
            self.backing.forget(segment);
        }
        self.segments.clear();
        Ok(())
    }

    /// Leaks the memory because the device may still use it.
    pub(crate) fn abandon(mut self) {
        for (_, memory) in std::mem::take(&mut self.segments) {
            memory.leak();
        }
        self.list.leak();
    }

    /// Entries for the pages at `addresses`, written.
    pub(crate) fn list_pages(
        &mut self,
        control: &ControlQueue,
        addresses: &[u64],
    ) -> Result<PageList, RdmaError> {
        let list = self.page_lists.allocate(addresses.len() as u64)?;
        match self.write_pages(control, &list, addresses) {
            Ok(()) => Ok(list),
            Err(error) => {
                self.page_lists.free(list)?;
                Err(error)
            }
        }
    }

    /// Entries for so many pages in one run, not written yet.
    pub(crate) fn reserve_pages(&mut self, pages: u32) -> Result<PageList, RdmaError> {
        Ok(self.page_lists.allocate_one_level(pages.into())?)
    }

    /// Writes the entries of a list.
    pub(crate) fn write_pages(
        &mut self,
        control: &ControlQueue,
        list: &PageList,
        addresses: &[u64],
    ) -> Result<(), RdmaError> {
        for range in list.ranges() {
            self.ensure(control, ObjectType::PageBufferList, range.indexes())?;
        }
        let space = self.page_lists.space();
        for (index, value) in list.entries(addresses)? {
            if let Some(location) = space.location(index) {
                self.store(location, value)?;
            }
        }
        Ok(())
    }

    /// Writes one word of function private memory.
    fn store(&self, at: FpmLocation, value: u64) -> Result<(), RdmaError> {
        let segment = at.segment as u16;
        let page = at.page as u16;
        let missing = BackingError::NotMissing(Missing::Page { segment, page });
        let (buffer, offset) = match self.segments.get(&segment) {
            Some(SegmentMemory::Direct(buffer)) => (Some(buffer), at.segment_offset()),
            Some(SegmentMemory::Paged { pages, .. }) => {
                (pages.get(&page), u64::from(at.page_offset))
            }
            None => (None, 0),
        };
        let buffer = buffer.ok_or(missing)?;
        buffer.words().store_release(offset as usize / 8, value);
        Ok(())
    }
}
