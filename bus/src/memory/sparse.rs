//! Memory of which only a part is expected to be used.

use super::mapping::Origin;
use super::{Memory, MemoryError, PageSize, create_descriptor, system};
use rustix::fs::FallocateFlags;
use rustix::mm::{MprotectFlags, ProtFlags};
use std::ops::Range;

impl Memory {
    /// Zeroed memory of ordinary pages, each of which exists from its first use on; `length` is
    /// rounded up to whole pages.
    ///
    /// For a device in software. VFIO makes and pins all pages when it maps them. A page that the
    /// machine does not have is a bus error on its first use, not an error here. Not locked, also
    /// in a program that locks its future memory.
    pub fn sparse(length: usize) -> Result<Self, MemoryError> {
        let page = PageSize::FourKiB;
        let rounded = length.checked_next_multiple_of(page.bytes());
        let Some(rounded) = rounded.filter(|rounded| *rounded > 0) else {
            let alignment = page.bytes();
            return Err(MemoryError::BadRequest { length, alignment });
        };
        // A program that locks its future memory (`mlockall`) has all pages of a mapping made at
        // once that it may use: this one becomes usable once it is not locked any more.
        let none = ProtFlags::empty();
        let memory = Self::map_as(create_descriptor(rounded, page)?, 0, rounded, page, none)?;
        let (base, usable) = (memory.0.base.as_ptr().cast(), MprotectFlags::READ);
        // SAFETY: the range is that of the new mapping, which nothing uses yet.
        unsafe {
            let _ = rustix::mm::munlock(base, rounded);
            rustix::mm::mprotect(base, rounded, usable | MprotectFlags::WRITE)
                .map_err(|error| system("mprotect", rounded, error))?;
        }
        Ok(memory)
    }

    /// Returns the whole pages of a range to the kernel. They read as zero afterwards. False if the
    /// memory has no file of its own, or the kernel refuses.
    pub fn discard(&self, range: Range<usize>) -> bool {
        let Origin::File {
            descriptor, offset, ..
        } = &self.0.origin
        else {
            return false;
        };
        let page = self.0.page_size.bytes();
        let end = range.end.min(self.0.length) / page * page;
        let begin = range.start.checked_next_multiple_of(page);
        let Some(begin) = begin.filter(|begin| *begin < end) else {
            return true;
        };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (first, bytes) = (offset + begin as u64, (end - begin) as u64);
        rustix::fs::fallocate(descriptor, flags, first, bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a file that exist.
    fn present(memory: &Memory) -> u64 {
        let (descriptor, _) = memory.descriptor_and_offset();
        rustix::fs::fstat(descriptor).unwrap().st_blocks as u64 * 512 / 4096
    }

    impl Memory {
        fn descriptor_and_offset(&self) -> (&std::os::fd::OwnedFd, u64) {
            match &self.0.origin {
                Origin::File {
                    descriptor, offset, ..
                } => (descriptor, *offset),
                _ => panic!("memory of a file"),
            }
        }
    }

    #[test]
    fn memory_of_a_program_that_locks_everything_is_made_at_its_first_use() {
        assert!(crate::process::tests::in_a_child(|| {
            // SAFETY: plain system call; it changes this process only, a child of the test.
            let locks = unsafe { libc::mlockall(libc::MCL_FUTURE) } == 0;
            if !locks {
                eprintln!("not run: this user may not lock memory");
                return true;
            }
            let memory = Memory::sparse(1 << 30).unwrap();
            assert!(memory.write(4096, &[1]));
            present(&memory) == 1
        }));
    }

    #[test]
    fn pages_exist_from_their_first_use_until_they_are_discarded() {
        let memory = Memory::sparse((1 << 34) + 1).unwrap();
        assert_eq!(memory.length(), (1 << 34) + 4096);
        assert_eq!(present(&memory), 0);
        for page in [0, 7, 8, 9] {
            assert!(memory.write(page * 4096, &[5; 4096]));
        }
        assert_eq!(present(&memory), 4);
        // Parts of pages stay.
        assert!(memory.discard(7 * 4096 + 1..10 * 4096 - 1));
        assert_eq!(present(&memory), 3);
        let mut byte = [1];
        assert!(memory.read(8 * 4096, &mut byte) && byte == [0]);
        assert!(memory.read(7 * 4096, &mut byte) && byte == [5]);
        assert!(memory.read(10 * 4096 - 1, &mut byte) && byte == [5]);
        assert!(
            memory.discard(usize::MAX - 1..usize::MAX) && memory.discard(usize::MAX..usize::MAX)
        );
        assert!(memory.discard(0..usize::MAX));
        assert_eq!(present(&memory), 0);
    }

    #[test]
    fn memory_of_the_application_has_no_file_and_no_bytes_are_refused() {
        assert!(!Memory::from(vec![1; 8192]).discard(0..8192));
        assert!(Memory::sparse(0).is_err() && Memory::sparse(usize::MAX).is_err());
    }
}
