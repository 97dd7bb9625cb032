//! The program's own memory, given to the device where it is.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::{DmaBuffer, DmaPool};
use crate::function::DmaAccess;
use crate::memory::{Memory, MemoryError, PageSize};
use std::sync::Arc;

impl DmaPool {
    /// Lets the device, also one in another process, reach `length` bytes of the program's memory at
    /// `address`; both may be any.
    ///
    /// The device is given the whole pages that the range touches, and each range its own
    /// addresses, so that ranges may overlap. Dropping the buffer takes the pages back from the
    /// device.
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
        // SAFETY: whole pages that hold a range which the caller says is mapped.
        let memory = unsafe { Memory::lend(first, end - first) }?;
        let mut buffer = self.map_with(memory, access).map_err(|(error, _)| error)?;
        let offset = address - first;
        buffer.offset = offset;
        buffer.length = length;
        buffer.iova = buffer.iova.add(offset as u64);
        Ok(buffer)
    }
}
