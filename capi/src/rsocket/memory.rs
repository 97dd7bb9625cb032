//! Memory of a connection: mapped for it, registered for the device, and freed after it.

use crate::abi::{access, ibv_mr, ibv_pd};
use crate::channel::last_error;
use crate::memory::{ibv_dereg_mr, ibv_reg_mr};
use std::ffi::c_int;
use std::ptr::NonNull;

/// Pages of its own, registered. The device may write to it: it is only read and written by copies.
pub(super) struct Buffer {
    start: NonNull<u8>,
    length: usize,
    region: *mut ibv_mr,
}

impl Buffer {
    /// Maps and registers `length` bytes, all zero. Errors: an errno value.
    ///
    /// # Safety
    /// `domain` is one of this library, and outlives the buffer.
    pub(super) unsafe fn make(
        domain: *mut ibv_pd,
        length: usize,
        is_remote: bool,
    ) -> Result<Self, c_int> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of no file.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error());
        }
        let remote = if is_remote { access::REMOTE_WRITE } else { 0 };
        // SAFETY: the caller's promise; the mapping stays until the region is deregistered.
        let region = unsafe { ibv_reg_mr(domain, start, length, access::LOCAL_WRITE | remote) };
        let place = NonNull::new(start.cast::<u8>()).filter(|_| !region.is_null());
        let Some(start) = place else {
            let error = last_error();
            // SAFETY: made above, and seen by no device.
            unsafe { libc::munmap(start, length) };
            return Err(error);
        };
        Ok(Self {
            start,
            length,
            region,
        })
    }

    /// The address that requests name.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the region lives as long as the buffer.
        unsafe { (*self.region).lkey }
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region).rkey }
    }

    /// True if the part lies in it.
    fn has(&self, offset: u32, length: usize) -> bool {
        let end = (offset as usize).checked_add(length);
        end.is_some_and(|end| end <= self.length)
    }

    /// Copies bytes into it.
    ///
    /// # Safety
    /// `from` has `length` bytes.
    pub(super) unsafe fn fill(&self, offset: u32, from: *const u8, length: usize) {
        assert!(self.has(offset, length), "a part lies in its buffer");
        // SAFETY: checked above; the caller's promise. The program's memory is not this mapping.
        unsafe {
            let place = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(from, place, length);
        }
    }

    /// Copies bytes out of it.
    ///
    /// # Safety
    /// `into` has room for `length` bytes.
    pub(super) unsafe fn read(&self, offset: u32, into: *mut u8, length: usize) {
        assert!(self.has(offset, length), "a part lies in its buffer");
        // SAFETY: as above. The peer does not write what it has not been granted again; one that
        // does spoils its own data.
        unsafe {
            let place = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(place, into, length);
        }
    }

    /// A word that the device may write at any time.
    pub(super) fn word(&self, offset: u32) -> u64 {
        assert!(self.has(offset, 8) && offset.is_multiple_of(8), "a word");
        // SAFETY: checked above; mappings begin at a page.
        unsafe {
            let place = self.start.as_ptr().add(offset as usize);
            place.cast::<u64>().read_volatile()
        }
    }

    /// Clears a word.
    pub(super) fn clear_word(&self, offset: u32) {
        assert!(self.has(offset, 8) && offset.is_multiple_of(8), "a word");
        // SAFETY: as above.
        unsafe {
            let place = self.start.as_ptr().add(offset as usize);
            place.cast::<u64>().write_volatile(0);
        }
    }
}

impl Drop for Buffer {
    /// Deregisters first: a device that may still write keeps its pages.
    fn drop(&mut self) {
        // SAFETY: made here; its users are gone.
        unsafe {
            if ibv_dereg_mr(self.region) == 0 {
                libc::munmap(self.start.as_ptr().cast(), self.length);
            }
        }
    }
}
