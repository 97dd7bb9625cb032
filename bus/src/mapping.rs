//! Registers of a device, mapped into this process.
#![allow(unsafe_code)] // maps device memory and accesses it

use crate::process::Hidden;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A mapped part of a base address register. The device changes registers at any time, and reads
/// can have effects: every access is volatile and of the register's own width.
///
/// The mapping keeps the device open and stays valid while it exists: the kernel handles accesses
/// during a reset, and a removed device reads as all ones. One access is forbidden: while the
/// function's memory space is switched off in its command register, the kernel would end the
/// process with a bus error. [`crate::VfioFunction`] prevents it.
pub(crate) struct RegisterMapping {
    base: NonNull<u8>,
    length: usize,
    /// dropped before the registers are unmapped
    hidden: Option<Hidden>,
}

// SAFETY: device memory that this value owns; accesses are single volatile or atomic ones, which
// the bus orders, so they may come from any thread.
unsafe impl Send for RegisterMapping {}
// SAFETY: as above.
unsafe impl Sync for RegisterMapping {}

impl RegisterMapping {
    /// Maps `length` bytes at `offset` of a device's descriptor; both multiples of the page size.
    pub(crate) fn map(device: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let mapped = unsafe {
            rustix::mm::mmap(
                nowhere,
                length,
                protection,
                MapFlags::SHARED,
                device,
                offset,
            )
        }?;
        let base = NonNull::new(mapped.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            length,
            hidden: Some(Hidden::new(base, length)),
        })
    }

    /// Returns the address of `bytes` bytes at `offset`, if they are inside and `offset` is a
    /// multiple of `bytes`.
    fn place(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let fits = end <= self.length && offset.is_multiple_of(bytes);
        // SAFETY: in bounds of the mapping by the check.
        fits.then(|| unsafe { self.base.add(offset) })
    }

    /// The 32-bit register at `offset`; `None` if there is none.
    pub(crate) fn word(&self, offset: usize) -> Option<NonNull<u32>> {
        self.place(offset, 4).map(NonNull::cast)
    }

    /// Replaces the registers permanently by zeroed memory of this process: later reads and writes
    /// go there, and nothing reaches the device.
    ///
    /// The replacement is atomic for all threads: a concurrent access reaches one of the two.
    pub(crate) fn put_memory_in_place(&self) -> Result<(), Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: 1. the range is this value's own mapping and nothing else: `map` got it from the
        //         kernel, and only `drop` gives it back. 2. pointers into it stay valid: the kernel
        //         replaces the pages under its lock, so that an access in between waits for it.
        //         3. no reference to the registers exists: accesses are volatile or atomic.
        unsafe {
            rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), self.length, protection, flags)
        }?;
        Ok(())
    }

    /// Reads 32 bits.
    pub(super) fn read32(&self, offset: usize) -> Option<u32> {
        let place = self.word(offset)?;
        // SAFETY: in bounds and aligned (`place`; mappings begin at a page), mapped while `self`
        // lives.
        Some(u32::from_le(unsafe { place.read_volatile() }))
    }

    /// Reads 64 bits in one access.
    pub(super) fn read64(&self, offset: usize) -> Option<u64> {
        let place = self.place(offset, 8)?.cast::<u64>();
        // SAFETY: as in `read32`.
        Some(u64::from_le(unsafe { place.read_volatile() }))
    }

    /// Writes 32 bits. The device sees all earlier writes to memory before it sees this one.
    pub(super) fn write32(&self, offset: usize, value: u32) -> Option<()> {
        let place = self.word(offset)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        // SAFETY: as in `read32`.
        unsafe { place.write_volatile(value.to_le()) };
        Some(())
    }
}

impl Drop for RegisterMapping {
    fn drop(&mut self) {
        drop(self.hidden.take());
        // SAFETY: `base` and `length` are what mmap returned; every pointer into it is kept
        // together with a clone of the `Arc` whose last one is being dropped.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) } {
            tracing::warn!(%error, length = self.length, "registers stay mapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn accesses_stay_inside_and_aligned() {
        let file = rustix::fs::memfd_create("registers", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        rustix::io::pwrite(&file, &0x1122_3344_5566_7788u64.to_le_bytes(), 4096 + 16).unwrap();
        let mapping = RegisterMapping::map(file.as_fd(), 4096, 4096).unwrap();
        assert_eq!(mapping.read64(16), Some(0x1122_3344_5566_7788));
        assert_eq!(mapping.read32(20), Some(0x1122_3344));
        assert_eq!(mapping.write32(4092, 0xA5A5_0001), Some(()));
        let mut bytes = [0; 4];
        rustix::io::pread(&file, &mut bytes, 8188).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), 0xA5A5_0001);
        for outside in [4096, 4093, 2, usize::MAX - 1] {
            assert_eq!(mapping.read32(outside), None, "{outside}");
            assert_eq!(mapping.write32(outside, 0), None, "{outside}");
        }
        assert_eq!((mapping.read64(4092), mapping.read64(4)), (None, None));
    }
}
