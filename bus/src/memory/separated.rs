//! Pages of the program that a device only reads.
//!
//! A page that the program has not written yet may be the kernel's page of zeros, a page of a file,
//! or one that it shares with a child of a fork. The first write gives the program a copy. Linux
//! before 6.2 pins the former page for a device that only reads, which then reads bytes of before
//! the write. Source: Linux commit "mm/gup: reliable R/O long-term pinning in COW mappings".
#![allow(unsafe_code)] // advises the kernel about memory that this crate did not map

use super::moved::Area;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::ops::Range;

/// Gives the program its own copy of the pages in a range, as its first write would, where it may
/// write. Their bytes stay. Mappings that are shared, or only read, stay as they are, and so does
/// all on Linux before 5.14, which cannot be asked.
pub(crate) fn separate_pages(range: &Range<usize>) {
    let text = match std::fs::read_to_string("/proc/self/maps") {
        Ok(text) => text,
        Err(error) => {
            // Without the list, pages of shared files are asked for as well: their bytes stay, too.
            tracing::debug!(%error, "the mappings of the process are not known");
            return separate(range);
        }
    };
    for area in text.lines().filter_map(Area::read) {
        let pages = range.start.max(area.pages.start)..range.end.min(area.pages.end);
        if !pages.is_empty() && area.is_copied_on_write() {
            separate(&pages);
        }
    }
}

fn separate(pages: &Range<usize>) {
    let place = std::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: the kernel makes the pages present and writable where the program may write, and
    //         changes neither their bytes nor their protection. It refuses other ranges.
    match unsafe { madvise(place, pages.len(), Advice::LinuxPopulateWrite) } {
        Ok(()) => {}
        Err(Errno::INVAL) => tracing::debug!(?pages, "pages may be shared with a file"),
        Err(error) => tracing::warn!(?pages, %error, "the device may read old bytes of pages"),
    }
}

#[cfg(test)]
mod tests {
    use super::separate_pages;
    use crate::PageSize;
    use rustix::fs::MemfdFlags;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
    use std::os::fd::OwnedFd;

    const PAGE: usize = PageSize::FourKiB.bytes();
    const PAGES: usize = 4;
    const BYTES: usize = PAGES * PAGE;

    /// A file of four pages, of which each byte is 7.
    fn file() -> OwnedFd {
        let file = rustix::fs::memfd_create("separated", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[7; BYTES], 0), Ok(BYTES));
        file
    }

    /// Maps the file.
    fn mapped(file: &OwnedFd, flags: MapFlags) -> usize {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), BYTES, rights, flags, file, 0) };
        base.unwrap().expose_provenance()
    }

    /// Reads each page.
    fn read(base: usize, expected: u8) {
        for page in 0..PAGES {
            let place = std::ptr::with_exposed_provenance::<u8>(base + page * PAGE);
            // SAFETY: a byte of the mapping.
            assert_eq!(unsafe { place.read_volatile() }, expected);
        }
    }

    fn set_rights(base: usize, length: usize, rights: MprotectFlags) {
        // SAFETY: pages of a mapping of this test.
        unsafe { mprotect(std::ptr::with_exposed_provenance_mut(base), length, rights) }.unwrap();
    }

    fn unmap(base: usize, length: usize) {
        // SAFETY: the mapping of this test, which nothing refers to any more.
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(base), length) }.unwrap();
    }

    /// Pages in a range that belong to the program alone.
    fn separated(base: usize) -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_inside, mut pages) = (false, 0);
        for line in text.lines() {
            let first = line.split('-').next().unwrap();
            if let Ok(start) = usize::from_str_radix(first, 16) {
                is_inside = (base..base + BYTES).contains(&start);
            }
            if let Some(size) = line.strip_prefix("Anonymous:").filter(|_| is_inside) {
                let kibibytes: usize = size.trim().trim_end_matches(" kB").parse().unwrap();
                pages += (kibibytes << 10) / PAGE;
            }
        }
        pages
    }

    #[test]
    fn pages_that_the_program_would_copy_when_it_writes_are_its_own() {
        let base = mapped(&file(), MapFlags::PRIVATE);
        read(base, 7);
        assert_eq!(separated(base), 0);
        separate_pages(&(base + PAGE..base + 3 * PAGE));
        assert_eq!(separated(base), 2);
        separate_pages(&(base..base + BYTES));
        assert_eq!(separated(base), PAGES);
        read(base, 7);
        unmap(base, BYTES);
    }

    #[test]
    fn pages_that_were_never_written_are_not_the_page_of_zeros() {
        // Pages without rights around them keep the kernel from joining the mapping with others.
        let length = BYTES + 2 * PAGE;
        let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let all = unsafe { mmap_anonymous(std::ptr::null_mut(), length, none, flags) };
        let all = all.unwrap().expose_provenance();
        let base = all + PAGE;
        set_rights(base, BYTES, MprotectFlags::READ | MprotectFlags::WRITE);
        read(base, 0);
        assert_eq!(separated(base), 0);
        separate_pages(&(base..base + BYTES));
        assert_eq!(separated(base), PAGES);
        read(base, 0);
        unmap(all, length);
    }

    #[test]
    fn pages_that_are_only_read_stay_and_others_of_the_range_do_not() {
        let base = mapped(&file(), MapFlags::PRIVATE);
        set_rights(base + PAGE, PAGE, MprotectFlags::READ);
        separate_pages(&(base..base + BYTES));
        assert_eq!(separated(base), PAGES - 1);
        read(base, 7);
        unmap(base, BYTES);
    }

    #[test]
    fn pages_of_a_shared_file_stay() {
        let file = rustix::fs::memfd_create("separated", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, BYTES as u64).unwrap();
        let base = mapped(&file, MapFlags::SHARED);
        separate_pages(&(base..base + BYTES));
        // A page that was populated would take room in the file.
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0);
        unmap(base, BYTES);
    }
}
