//! Files from another process that this process maps.

use super::mapping::Origin;
use super::{MAX_FOREIGN_MAPPINGS, Memory, MemoryError, PageSize};
use rustix::fs::{FileType, SealFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// File system type of huge page files. Source: `linux/magic.h`, HUGETLBFS_MAGIC.
const HUGE_PAGE_FILES: i128 = 0x9584_58F6;

/// Reasons why another process's descriptor cannot serve as memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignError {
    /// The descriptor is not a file of bytes but a socket, a pipe, an event descriptor or a device.
    #[error("the descriptor is not a memory file; send a memfd")]
    NotAFile,
    /// The file can shrink while it is mapped, and the next access would then kill this process.
    #[error("the file can shrink; send a memfd sealed with F_SEAL_SHRINK")]
    CanShrink,
    /// The file is shorter than the range to be mapped.
    #[error("{needed:#x} bytes are to be mapped of a file of {length:#x}")]
    TooShort {
        /// Bytes that the file needs.
        needed: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// This process has mapped as many files of others as it can look after.
    #[error("{MAX_FOREIGN_MAPPINGS} files of other processes are mapped: unmap some")]
    TooMany,
    /// The operating system refused the operation.
    #[error("{operation}: {error}")]
    System {
        /// The operation.
        operation: &'static str,
        /// The operating system's message.
        error: Errno,
    },
    /// The file could not be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A file of another process, checked to be safe to map in this process.
#[derive(Debug)]
pub struct ForeignFile {
    descriptor: OwnedFd,
    /// Device and inode: equal for descriptors of the same file.
    pub identity: (u64, u64),
    /// Bytes.
    pub length: u64,
    allocated: bool,
    page_bytes: u64,
}

impl ForeignFile {
    /// Inspects a descriptor. A memfd that can still be sealed is sealed against shrinking here.
    ///
    /// `may_shrink` accepts files that cannot be sealed, for example files on a disk: their owner
    /// can then kill this process by truncating them.
    pub fn inspect(descriptor: OwnedFd, may_shrink: bool) -> Result<Self, ForeignError> {
        let system = |operation| move |error| ForeignError::System { operation, error };
        let stat = rustix::fs::fstat(&descriptor).map_err(system("fstat"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ForeignError::NotAFile);
        }
        if !may_shrink && !sealed(&descriptor) {
            return Err(ForeignError::CanShrink);
        }
        let file_system = rustix::fs::fstatfs(&descriptor).map_err(system("fstatfs"))?;
        let huge = i128::from(file_system.f_type) == HUGE_PAGE_FILES;
        let page_bytes = u64::try_from(file_system.f_bsize).ok().filter(|_| huge);
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let allocated_bytes = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        Ok(Self {
            descriptor,
            identity: (stat.st_dev, stat.st_ino),
            length,
            allocated: !huge && allocated_bytes >= length,
            page_bytes: page_bytes
                .filter(|bytes| bytes.is_power_of_two())
                .unwrap_or(4096),
        })
    }

    /// Maps the whole file. Pages that its owner has not touched are allocated on first access.
    pub fn map(self) -> Result<Memory, ForeignError> {
        let length = self.length;
        self.map_part(0, length)
    }

    /// Maps `length` bytes from `offset`, both multiples of the page size.
    pub fn map_part(self, offset: u64, length: u64) -> Result<Memory, ForeignError> {
        let end = offset.saturating_add(length);
        if length == 0 || end > self.length {
            let length = self.length;
            return Err(ForeignError::TooShort {
                needed: end,
                length,
            });
        }
        let rounded = length.next_multiple_of(self.page_bytes);
        let (Ok(at), Ok(bytes)) = (usize::try_from(offset), usize::try_from(rounded)) else {
            let (operation, error) = ("mmap", Errno::OVERFLOW);
            return Err(ForeignError::System { operation, error });
        };
        let mut memory = Memory::map(self.descriptor, at, bytes, PageSize::FourKiB, None)?;
        let page_bytes = self.page_bytes as usize;
        if !Arc::get_mut(&mut memory.0).is_some_and(|mapping| mapping.look_after(page_bytes)) {
            return Err(ForeignError::TooMany);
        }
        if self.allocated {
            // The file's pages are present; this only fills this process's page table.
            memory.populate()?;
        }
        Ok(memory)
    }
}

impl Memory {
    /// True if its file is sealed against shrinking, as all files are that this library makes:
    /// another process can map it without a risk.
    pub(crate) fn cannot_shrink(&self) -> bool {
        let seals = match &self.0.origin {
            Origin::File { descriptor, .. } => rustix::fs::fcntl_get_seals(descriptor),
            Origin::Moved { descriptor, .. } => rustix::fs::fcntl_get_seals(descriptor),
            Origin::Owned | Origin::Application | Origin::Lent { .. } | Origin::Peer { .. } => {
                return false;
            }
        };
        seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
    }
}

fn sealed(descriptor: &OwnedFd) -> bool {
    let shrink = |seals: SealFlags| seals.contains(SealFlags::SHRINK);
    match rustix::fs::fcntl_get_seals(descriptor) {
        Ok(seals) if shrink(seals) => true,
        Ok(_) => rustix::fs::fcntl_add_seals(descriptor, SealFlags::SHRINK).is_ok(),
        Err(_) => false,
    }
}

/// True if a descriptor is an eventfd, to which an interrupt can be written.
#[must_use]
pub fn is_event_descriptor(descriptor: BorrowedFd<'_>) -> bool {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::new());
    target.is_ok_and(|target| target.to_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    fn memfd(flags: MemfdFlags, length: u64) -> OwnedFd {
        let descriptor = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&descriptor, length).unwrap();
        descriptor
    }

    #[test]
    fn a_memfd_is_sealed_and_mapped_and_shares_its_bytes() {
        let descriptor = memfd(MemfdFlags::ALLOW_SEALING, 16384);
        let other = descriptor.try_clone().unwrap();
        let file = ForeignFile::inspect(descriptor, false).unwrap();
        assert_eq!(file.length, 16384);
        assert!(rustix::fs::ftruncate(&other, 4096).is_err(), "sealed");
        let memory = file.map_part(4096, 8192).unwrap();
        assert!(memory.write(0, b"here"));
        let mut bytes = [0; 4];
        rustix::io::pread(&other, &mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"here");
    }

    #[test]
    fn files_that_can_shrink_or_are_not_memory_are_refused() {
        let unsealable = memfd(MemfdFlags::empty(), 4096);
        let refused = ForeignFile::inspect(unsealable, false).unwrap_err();
        assert_eq!(refused, ForeignError::CanShrink);
        let trusted = memfd(MemfdFlags::empty(), 4096);
        assert!(ForeignFile::inspect(trusted, true).is_ok());
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        assert!(is_event_descriptor(event.as_fd()));
        let refused = ForeignFile::inspect(event, true).unwrap_err();
        assert_eq!(refused, ForeignError::NotAFile);
    }

    #[test]
    fn no_part_beyond_the_end_is_mapped() {
        for (offset, length) in [(0, 0), (4096, 8192), (u64::MAX, 4096), (8192, 1)] {
            let descriptor = memfd(MemfdFlags::ALLOW_SEALING, 8192);
            let file = ForeignFile::inspect(descriptor, false).unwrap();
            let refused = file.map_part(offset, length).unwrap_err();
            assert!(
                matches!(refused, ForeignError::TooShort { .. }),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_memory_file_is_no_event_descriptor() {
        let descriptor = memfd(MemfdFlags::empty(), 4096);
        assert!(!is_event_descriptor(descriptor.as_fd()));
    }
}
