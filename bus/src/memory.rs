//! Memory that a device can access: a sealed memfd, mapped shared, on huge pages if available.
#![allow(unsafe_code)] // maps memory and hands out views of it

mod available;
mod copy;
mod error;
mod foreign;
mod hot_piece;
mod in_place;
mod mapping;
mod moved;
mod page_size;
mod positional;
mod separated;
mod sparse;
mod user;
mod vanishing;
mod words;

pub use error::MemoryError;
pub use foreign::{ForeignError, ForeignFile, is_event_descriptor};
pub(crate) use hot_piece::HotPiece;
pub use page_size::PageSize;
pub(crate) use positional::own_space;
pub(crate) use separated::separate_pages;
pub use vanishing::{MAX_FOREIGN_MAPPINGS, survive_vanished_pages};
pub use words::Words;

use crate::process::Hidden;
use copy::{copy_from_shared, copy_to_shared};
use mapping::{Mapping, Origin};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// The device's rights to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAccess {
    /// The device only reads.
    Read,
    /// The device reads and writes.
    ReadWrite,
}

/// A shared mapping. Clones share it; it is unmapped when the last clone and view are dropped.
#[derive(Clone)]
pub struct Memory(Arc<Mapping>);

impl Memory {
    /// Allocates zeroed memory on pages of exactly `page_size`; `length` is rounded up to whole
    /// pages.
    ///
    /// `numa_node` binds it before it is populated. Errors: [`MemoryError::NoHugePages`] if no
    /// pages of that size are free; choose a smaller page size or reserve pages.
    pub fn allocate(
        length: usize,
        page_size: PageSize,
        numa_node: Option<u32>,
    ) -> Result<Self, MemoryError> {
        if length == 0 {
            return Err(MemoryError::BadRequest {
                length,
                alignment: page_size.bytes(),
            });
        }
        let rounded = length.checked_next_multiple_of(page_size.bytes());
        let length = rounded.ok_or(MemoryError::BadRequest {
            length,
            alignment: 1,
        })?;
        if page_size == PageSize::FourKiB {
            refuse_beyond_available(length)?;
        }
        let descriptor = create_descriptor(length, page_size)?;
        let mut memory = Self::map(descriptor, 0, length, page_size, numa_node)?;
        if let Some(Mapping {
            origin: Origin::File { is_allocated, .. },
            ..
        }) = Arc::get_mut(&mut memory.0)
        {
            *is_allocated = true;
        }
        memory.populate()?;
        Ok(memory)
    }

    /// Maps `length` zeroed bytes at `offset` of a new file of `file_length` bytes, all multiples
    /// of 4096: a part of a device's region, laid out as another process will map it.
    pub fn window(file_length: usize, offset: usize, length: usize) -> Result<Self, MemoryError> {
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= file_length);
        let whole = [file_length, offset, length].map(|bytes| bytes.is_multiple_of(4096));
        if length == 0 || !inside || whole.contains(&false) {
            let alignment = 4096;
            return Err(MemoryError::BadRequest { length, alignment });
        }
        let descriptor = create_descriptor(file_length, PageSize::FourKiB)?;
        let memory = Self::map(descriptor, offset, length, PageSize::FourKiB, None)?;
        memory.populate()?;
        Ok(memory)
    }

    /// Maps `length` bytes of a descriptor that another process sent, and makes all pages of them
    /// exist; [`Memory::sparse`] does not.
    ///
    /// The descriptor must be at least that long and must not shrink (a sealed memfd does not).
    pub fn from_descriptor(descriptor: OwnedFd, length: usize) -> Result<Self, MemoryError> {
        let size = rustix::fs::fstat(&descriptor)
            .map_err(|error| system("fstat", length, error))?
            .st_size;
        if length == 0 {
            return Err(MemoryError::Empty);
        }
        if let Ok(length_of_file) = u64::try_from(size)
            && length_of_file < length as u64
        {
            return Err(MemoryError::TooShort {
                needed: length,
                length: length_of_file,
            });
        }
        let memory = Self::map(descriptor, 0, length, PageSize::FourKiB, None)?;
        memory.populate()?;
        Ok(memory)
    }

    /// Maps all of a dma-buf: memory of another device or driver, which its exporter lets processes
    /// map. VFIO with type 1 does not map it for a device, and refuses it.
    ///
    /// # Errors
    /// [`MemoryError::BadRequest`] for an empty descriptor, and [`MemoryError::System`] if the
    /// exporter does not tell its size or does not let it be mapped.
    pub fn from_dma_buf(descriptor: OwnedFd) -> Result<Self, MemoryError> {
        let end = rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::End(0))
            .map_err(|error| system("asking a dma-buf for its size", 0, error))?;
        let length = usize::try_from(end).unwrap_or(0);
        if length == 0 {
            let alignment = 1;
            return Err(MemoryError::BadRequest { length, alignment });
        }
        let mut memory = Self::map(descriptor, 0, length, PageSize::FourKiB, None)?;
        if let Some(Mapping {
            origin: Origin::File { is_dma_buf, .. },
            ..
        }) = Arc::get_mut(&mut memory.0)
        {
            *is_dma_buf = true;
        }
        Ok(memory)
    }

    /// True for memory of [`Memory::from_dma_buf`].
    #[must_use]
    pub fn is_dma_buf(&self) -> bool {
        matches!(
            self.0.origin,
            Origin::File {
                is_dma_buf: true,
                ..
            }
        )
    }

    /// True for memory of [`Memory::allocate`]: rings may be in it, whose words the device reads.
    pub(crate) fn is_allocated(&self) -> bool {
        matches!(
            self.0.origin,
            Origin::File {
                is_allocated: true,
                ..
            }
        )
    }

    /// True for pages of this process alone, which a fork separates from a child's by
    /// copy-on-write. Conservative: memory of the application may also be shared.
    pub(crate) fn may_be_copied_on_write(&self) -> bool {
        !matches!(
            self.0.origin,
            Origin::File { .. } | Origin::Moved { .. } | Origin::Peer { .. }
        )
    }

    fn map(
        descriptor: OwnedFd,
        offset: usize,
        length: usize,
        page_size: PageSize,
        numa_node: Option<u32>,
    ) -> Result<Self, MemoryError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let memory = Self::map_as(descriptor, offset, length, page_size, protection)?;
        if let Some(node) = numa_node {
            memory.bind(node);
        }
        Ok(memory)
    }

    fn map_as(
        descriptor: OwnedFd,
        offset: usize,
        length: usize,
        page_size: PageSize,
        protection: ProtFlags,
    ) -> Result<Self, MemoryError> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                &descriptor,
                offset as u64,
            )
        };
        let base = match mapped.map(|pointer| NonNull::new(pointer.cast::<u8>())) {
            Ok(Some(base)) => base,
            Ok(None) => return Err(system("mmap", length, rustix::io::Errno::NOMEM)),
            // The protection is what the kernel refuses so: mmap(2), EACCES.
            Err(rustix::io::Errno::ACCESS) => return Err(MemoryError::NotWritable),
            Err(error) if page_size == PageSize::FourKiB => {
                return Err(system("mmap", length, error));
            }
            Err(error) => return Err(no_huge_pages(length, page_size, error)),
        };
        Ok(Self(Arc::new(Mapping {
            base,
            length,
            page_size,
            origin: Origin::File {
                descriptor,
                offset: offset as u64,
                hidden: Some(Hidden::new(base, length)),
                vanishing: None,
                is_dma_buf: false,
                is_allocated: false,
            },
        })))
    }

    /// Sets `node` as preferred for pages not yet present. A refusal is reported and affects speed
    /// only.
    fn bind(&self, node: u32) {
        const MPOL_PREFERRED: libc::c_int = 1;
        // A mask without a bit would mean the node of the thread, so it has room for all nodes.
        const NODES: usize = 1024;
        let mut mask = [0_u64; NODES / 64];
        if let Some(word) = mask.get_mut(node as usize / 64) {
            *word = 1 << (node % 64);
        }
        // SAFETY: the range is this mapping; `mask` outlives the call and is `NODES` bits long.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.0.base.as_ptr(),
                self.0.length,
                MPOL_PREFERRED,
                mask.as_ptr(),
                NODES + 1,
                0,
            )
        };
        if result != 0 {
            let error = std::io::Error::last_os_error();
            tracing::warn!(node, %error, "DMA memory could not be bound to its NUMA node");
        }
    }

    /// Makes every page present now, so that no page fault occurs under load.
    ///
    /// A huge page that is not available is an error here, where a plain store would be a bus
    /// error.
    fn populate(&self) -> Result<(), MemoryError> {
        let Mapping {
            base,
            length,
            page_size,
            ..
        } = &*self.0;
        // SAFETY: the range is this mapping, which no other code has accessed yet.
        let populated = unsafe {
            rustix::mm::madvise(
                base.as_ptr().cast(),
                *length,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        };
        match populated {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not support the advice: pages then become present on first
            // access.
            Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(error) if *page_size != PageSize::FourKiB => {
                Err(no_huge_pages(*length, *page_size, error))
            }
            Err(error) => Err(system("populating", *length, error)),
        }
    }

    /// Bytes mapped.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.length
    }

    /// The page size that backs it.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.0.page_size
    }

    /// The file behind the memory, for another process to map. For lent memory it is the file of
    /// the address space ([`Memory::is_positional`]), if the kernel lets the process open that.
    /// Other memory of the application has none.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.origin {
            Origin::File { descriptor, .. } => Some(descriptor.as_fd()),
            Origin::Lent { space, .. } => space.as_ref().map(|space| space.as_fd()),
            Origin::Peer { space, .. } => Some(space.as_fd()),
            Origin::Moved { descriptor, .. } => Some(descriptor.as_fd()),
            Origin::Owned | Origin::Application => None,
        }
    }

    /// Its start in the file of [`Memory::descriptor`], bytes.
    pub(crate) fn offset_in_file(&self) -> u64 {
        match self.0.origin {
            Origin::File { offset, .. } | Origin::Moved { offset, .. } => offset,
            Origin::Lent { address, .. } | Origin::Peer { address, .. } => address,
            Origin::Owned | Origin::Application => 0,
        }
    }

    /// Its address in this process, as a number: for a DMA map by virtual address.
    #[must_use]
    pub fn virtual_address(&self) -> u64 {
        self.0.base.as_ptr() as u64
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// A view of whole words. `None` if `length` (bytes) or the first byte's address is not a
    /// multiple of 8, if the range is outside, or if the memory is in another process.
    #[must_use]
    pub fn words(&self, offset: usize, length: usize) -> Option<Words> {
        match self.is_peer() {
            false => Words::new(self, offset, length),
            true => None,
        }
    }

    /// A view without words.
    pub(crate) fn no_words(&self) -> Words {
        Words::none(self)
    }

    /// Copies out of the memory. If another process or the device writes meanwhile, the bytes are a
    /// mixture of old and new ones, never undefined.
    ///
    /// Returns false, and copies nothing, if the range is outside.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let fits = self.holds(offset, into.len());
        if fits && self.is_peer() {
            return self.read_peer(offset, into);
        }
        if fits {
            // SAFETY: in bounds by the check, mapped while `self` lives.
            unsafe { copy_from_shared(into, self.0.base.add(offset)) };
        }
        fits
    }

    /// Copies into the memory. Returns false, and copies nothing, if the range is outside.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        let fits = self.holds(offset, from.len());
        if fits && self.is_peer() {
            return self.write_peer(offset, from);
        }
        if fits {
            // SAFETY: in bounds by the check, mapped while `self` lives.
            unsafe { copy_to_shared(self.0.base.add(offset), from) };
        }
        fits
    }

    /// Copies between two shared memories, or within one if the ranges do not overlap (if they do,
    /// the bytes are copied upwards one by one). False if either range is outside.
    #[must_use]
    pub fn copy(from: &Self, at: usize, to: &Self, to_at: usize, length: usize) -> bool {
        let fits = from.holds(at, length) && to.holds(to_at, length);
        if fits && [from, to].iter().any(|one| one.is_peer()) {
            return Self::copy_by_pieces(from, at, to, to_at, length);
        }
        if fits {
            // SAFETY: both ranges are in bounds by the check and mapped while both values live.
            unsafe { copy::copy_shared(to.0.base.add(to_at), from.0.base.add(at), length) };
        }
        fits
    }

    /// The most bytes that [`Self::copy_whole`] copies.
    pub(crate) const MAX_WHOLE_COPY: usize = copy::MAX_WHOLE;

    /// Copies a few bytes, all of which are read before the first is written. False, and nothing is
    /// copied, if either range is outside or in another process, or is longer than
    /// [`Self::MAX_WHOLE_COPY`].
    #[inline]
    pub(crate) fn copy_whole(
        from: &Self,
        at: usize,
        to: &Self,
        to_at: usize,
        length: usize,
    ) -> bool {
        let fits = from.holds(at, length) && to.holds(to_at, length);
        if !fits || from.is_peer() || to.is_peer() {
            return false;
        }
        // SAFETY: both ranges are in bounds by the check and mapped while both values live.
        unsafe { copy::copy_whole(to.0.base.add(to_at), from.0.base.add(at), length) }
    }

    /// Fills a range with one byte; false if the range is outside, or in another process.
    #[must_use]
    pub fn fill(&self, offset: usize, length: usize, byte: u8) -> bool {
        let fits = self.holds(offset, length) && !self.is_peer();
        if fits {
            // SAFETY: in bounds by the check, mapped while `self` lives.
            unsafe { copy::fill_shared(self.0.base.add(offset), length, byte) };
        }
        fits
    }

    fn holds(&self, offset: usize, length: usize) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.0.length)
    }

    /// True if `self` and `other` are the same mapping.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Memory({} bytes on {} pages)",
            self.0.length, self.0.page_size
        )
    }
}

/// The file under a number that is none of the standard descriptors: a program that has closed
/// those, and prints nevertheless, would write into it.
pub(crate) fn beside_standard(made: OwnedFd) -> rustix::io::Result<OwnedFd> {
    const FIRST: i32 = 3;
    match made.as_raw_fd() < FIRST {
        true => rustix::io::fcntl_dupfd_cloexec(&made, FIRST),
        false => Ok(made),
    }
}

fn create_descriptor(length: usize, page_size: PageSize) -> Result<OwnedFd, MemoryError> {
    let huge = match page_size {
        PageSize::FourKiB => MemfdFlags::empty(),
        PageSize::TwoMiB => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        PageSize::OneGiB => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge;
    let refuse = |error| match page_size {
        PageSize::FourKiB => system("memfd_create", length, error),
        _ => no_huge_pages(length, page_size, error),
    };
    let made = rustix::fs::memfd_create("ringside-dma", flags).map_err(refuse)?;
    let descriptor = beside_standard(made).map_err(refuse)?;
    rustix::fs::ftruncate(&descriptor, length as u64).map_err(refuse)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&descriptor, seals)
        .map_err(|error| system("sealing", length, error))?;
    Ok(descriptor)
}

/// Refuses more ordinary pages than are available: populating them would make the kernel kill
/// processes. Huge pages are counted by their own pool.
fn refuse_beyond_available(length: usize) -> Result<(), MemoryError> {
    match available::available_bytes(Path::new("/")) {
        Some(available_bytes) if length > available_bytes => Err(MemoryError::NotEnough {
            length,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

fn system(operation: &'static str, length: usize, error: rustix::io::Errno) -> MemoryError {
    MemoryError::System {
        operation,
        length,
        error: error.to_string(),
    }
}

fn no_huge_pages(length: usize, page_size: PageSize, error: rustix::io::Errno) -> MemoryError {
    MemoryError::NoHugePages {
        length,
        page_size,
        error: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
