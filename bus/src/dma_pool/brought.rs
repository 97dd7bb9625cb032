//! Memory of the application that a pool maps.

use super::record::Brought;
use super::source::Source;
use super::{DmaBuffer, DmaPool, PAGE, keep_forever};
use crate::Iova;
use crate::function::DmaAccess;
use crate::memory::{Memory, MemoryError};
use std::sync::Arc;

impl DmaPool {
    /// Maps memory of the application as one buffer. It is unmapped as soon as the buffer is
    /// dropped. Errors: together with the memory.
    pub fn map(self: &Arc<Self>, memory: Memory) -> Result<DmaBuffer, (MemoryError, Memory)> {
        self.map_with(memory, DmaAccess::ReadWrite)
    }

    pub(super) fn map_with(
        self: &Arc<Self>,
        memory: Memory,
        access: DmaAccess,
    ) -> Result<DmaBuffer, (MemoryError, Memory)> {
        let length = memory.length();
        let within = memory.virtual_address() % PAGE;
        let Some(bytes) = (length as u64)
            .checked_add(within)
            .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
        else {
            return Err((MemoryError::NoAddressSpace { length }, memory));
        };
        if length == 0 {
            return Err((MemoryError::Empty, memory));
        }
        if let Err(error) = self.check_process() {
            return Err((error.into(), memory));
        }
        let mut state = self.state();
        let alignment = memory.page_size().bytes() as u64;
        if state.closed {
            return Err((MemoryError::Closed, memory));
        }
        let Some(at) = state.places.take(bytes, alignment, PAGE) else {
            return Err((MemoryError::NoAddressSpace { length }, memory));
        };
        let iova = Iova(at + within);
        state.brought.insert(iova.0, Brought::BeingMapped(length));
        drop(state);
        let range = 0..length;
        let mapped = self.function.map_dma(iova, &memory, range, access);
        let mut state = self.state();
        if let Err(error) = mapped {
            state.brought.remove(&iova.0);
            state.places.give(at..at + bytes);
            return Err((error.into(), memory));
        }
        let Some(record) = state.brought.get_mut(&iova.0) else {
            // The pool was closed meanwhile.
            drop(state);
            self.undo_late(iova, &memory);
            return Err((MemoryError::Closed, memory));
        };
        *record = Brought::Mapped(memory.clone());
        drop(state);
        Ok(DmaBuffer {
            pool: Arc::clone(self),
            memory,
            source: Source::Application,
            offset: 0,
            length,
            iova,
            leaked: false,
        })
    }

    /// Unmaps memory that was mapped into a pool that had been closed meanwhile. Memory that cannot
    /// be unmapped stays until the process ends.
    fn undo_late(&self, iova: Iova, memory: &Memory) {
        let length = memory.length();
        if let Err(error) = self.function.unmap_dma(iova, length as u64) {
            tracing::error!(%error, %iova, length, "unmapping failed: memory leaked");
            self.state().leaked_bytes += length;
            keep_forever(memory.clone());
        }
    }

    /// Unmaps memory of the application, unless the pool was closed before. Memory that cannot be
    /// unmapped stays in the pool, and its addresses stay in use.
    pub(super) fn unmap(&self, iova: Iova, length: usize) -> bool {
        if self.is_elsewhere() {
            return false;
        }
        let Some(Brought::Mapped(memory)) = self.state().brought.remove(&iova.0) else {
            return true;
        };
        let unmapped = self.function.unmap_dma(iova, length as u64);
        let mut state = self.state();
        if let Err(error) = unmapped {
            tracing::error!(%error, %iova, length, "memory of the application stays mapped");
            state.brought.insert(iova.0, Brought::Mapped(memory));
            return false;
        }
        let start = iova.0 / PAGE * PAGE;
        let end = (iova.0 + length as u64).next_multiple_of(PAGE);
        state.places.give(start..end);
        true
    }
}
