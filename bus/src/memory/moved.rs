//! Files that pages of the program were moved into, in place of the private pages that they were.
#![allow(unsafe_code)] // maps memory in the place of other memory

use rustix::fs::{fstat, major, minor};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that memory was moved into, while some of the memory is lent.
pub(super) struct Moved {
    pub(super) descriptor: Arc<OwnedFd>,
    /// major and minor number of the file system, and the inode
    identity: (u32, u32, u64),
    /// ranges of addresses that are lent
    uses: Vec<Range<usize>>,
    /// Its pages stay in the file: someone may write to them at a moment that the program does not
    /// choose.
    stays: bool,
}

impl Moved {
    /// A file that pages were moved into, none of which is lent yet.
    pub(super) fn new(descriptor: OwnedFd) -> Option<Self> {
        let about = fstat(&descriptor).ok()?;
        Some(Self {
            identity: (major(about.st_dev), minor(about.st_dev), about.st_ino),
            descriptor: Arc::new(descriptor),
            uses: Vec::new(),
            stays: false,
        })
    }

    /// A further range is lent. Returns the file.
    pub(super) fn lend(&mut self, range: Range<usize>) -> Arc<OwnedFd> {
        self.uses.push(range);
        Arc::clone(&self.descriptor)
    }

    /// Its pages stay in the file.
    pub(super) fn stay(&mut self) {
        self.stays = true;
    }
}

/// The files of memory that is lent.
static MOVED: Mutex<Vec<Moved>> = Mutex::new(Vec::new());

/// The files of memory that is lent, locked. A child of a fork must not ask: a thread of its parent
/// may have held the lock.
pub(super) fn moved() -> MutexGuard<'static, Vec<Moved>> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of `/proc/self/maps`.
pub(super) struct Area<'a> {
    pub(super) pages: Range<usize>,
    rights: &'a str,
    pub(super) offset: u64,
    identity: (u32, u32, u64),
    name: &'a str,
}

impl<'a> Area<'a> {
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let device = |text| u32::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (major, minor) = words.next()?.split_once(':')?;
        Some(Self {
            pages: number(start)?..number(end)?,
            rights,
            offset,
            identity: (device(major)?, device(minor)?, words.next()?.parse().ok()?),
            name: words.next().unwrap_or(""),
        })
    }

    /// Memory that nothing but this process has: of `malloc` or `mmap`, not a stack.
    pub(super) fn is_private(&self) -> bool {
        let is_of_program = self.name.is_empty() || self.name == "[heap]";
        self.rights == "rw-p" && self.identity == (0, 0, 0) && is_of_program
    }

    /// Memory of which the program gets copies where it writes.
    pub(super) fn is_copied_on_write(&self) -> bool {
        matches!(self.rights.as_bytes(), [b'r', b'w', _, b'p'])
    }

    /// Pages of a file that memory was moved into.
    pub(super) fn is_of(&self, file: &Moved) -> bool {
        self.rights == "rw-s" && self.identity == file.identity
    }
}

/// Copies the pages into the file, and maps it in their place. `None`, and they are as before, if
/// the kernel refuses it.
///
/// # Safety
/// The range is mapped, readable and private, whole pages; nothing writes to it meanwhile. The file
/// has `length` bytes.
pub(super) unsafe fn replace(base: NonNull<u8>, length: usize, file: &OwnedFd) -> Option<()> {
    // SAFETY: readable by the caller's promise, and not written to meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), length) };
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(file.as_fd(), rest, done as u64) {
            Ok(count) if count > 0 => done += count,
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the file has the same bytes as the pages that it replaces, which are private to this
    //         process; a failure leaves them.
    unsafe { rustix::mm::mmap(base.as_ptr().cast(), length, rights, flags, file, 0) }
        .inspect_err(|error| tracing::debug!(%error, length, "memory stays where it is"))
        .ok()?;
    Some(())
}

/// A range is no longer lent: makes its pages private again, but for those of other ranges that
/// are. Pages that the program has unmapped are left alone.
///
/// # Safety
/// Nothing writes to the range meanwhile, but to pages of other ranges that are lent.
pub(super) unsafe fn give_back(descriptor: &Arc<OwnedFd>, range: &Range<usize>) {
    let mut files = moved();
    let is_this = |file: &Moved| Arc::ptr_eq(&file.descriptor, descriptor);
    let Some(place) = files.iter().position(is_this) else {
        return;
    };
    let Some(file) = files.get_mut(place) else {
        return;
    };
    if let Some(this) = file.uses.iter().position(|one| one == range) {
        file.uses.swap_remove(this);
    }
    if !file.stays {
        // SAFETY: the caller's promise.
        let all = unsafe { restore_all(file, range) };
        if all.is_none() {
            tracing::warn!(?range, "memory stays shared with children of a fork");
        }
    }
    if file.uses.is_empty() {
        files.swap_remove(place);
    }
}

/// The pages of a file that a range holds stay in it, also when the range is no longer lent.
pub(super) fn keep(descriptor: &Arc<OwnedFd>) {
    let mut files = moved();
    let mut these = files.iter_mut();
    if let Some(file) = these.find(|file| Arc::ptr_eq(&file.descriptor, descriptor)) {
        file.stay();
    }
}

/// The parts of a range that none of the others holds.
fn without(range: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = vec![range.clone()];
    for other in others {
        let rest = left.iter().flat_map(|part| {
            let before = part.start..part.end.min(other.start);
            let behind = part.start.max(other.end)..part.end;
            [before, behind]
        });
        left = rest.filter(|part| !part.is_empty()).collect();
    }
    left
}

/// # Safety
/// As of [`give_back`].
unsafe fn restore_all(file: &Moved, range: &Range<usize>) -> Option<()> {
    let free = without(range, &file.uses);
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let areas = text.lines().filter_map(Area::read);
    let mut done = Some(());
    for area in areas.filter(|area| area.is_of(file)) {
        for part in &free {
            let pages = part.start.max(area.pages.start)..part.end.min(area.pages.end);
            if pages.is_empty() {
                continue;
            }
            let offset = area.offset + (pages.start - area.pages.start) as u64;
            // SAFETY: the caller's promise, and the area has these pages of the file.
            done = done.and(unsafe { restore(&pages, &file.descriptor, offset) });
        }
    }
    done
}

/// Puts private pages with the same bytes in the place of pages of a file.
///
/// # Safety
/// The pages are those of the file from `offset` on, and nothing writes to them meanwhile.
unsafe fn restore(pages: &Range<usize>, file: &OwnedFd, offset: u64) -> Option<()> {
    let length = pages.len();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let copy = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, rights, MapFlags::PRIVATE)
    };
    let copy = copy.ok()?;
    // SAFETY: the new mapping, which nothing else refers to; zeroed bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts_mut(copy.cast::<u8>(), length) };
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file.as_fd(), rest, offset + done as u64) {
            Ok(count) if count > 0 => done += count,
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    let target = std::ptr::with_exposed_provenance_mut(pages.start);
    let flags = MremapFlags::MAYMOVE;
    // SAFETY: the copy is moved whole, over pages with the same bytes, by the caller's promise.
    let moved = (done == length)
        .then(|| unsafe { rustix::mm::mremap_fixed(copy, length, length, flags, target) });
    match moved {
        Some(Ok(_)) => Some(()),
        _ => {
            // SAFETY: the new mapping, which nothing refers to any more.
            let _ = unsafe { rustix::mm::munmap(copy, length) };
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_range_without_others() {
        let left = |others: &[std::ops::Range<usize>]| -> Vec<(usize, usize)> {
            let parts = without(&(2..9), others);
            parts
                .into_iter()
                .map(|part| (part.start, part.end))
                .collect()
        };
        assert_eq!(left(&[]), [(2, 9)]);
        assert_eq!(left(&[4..5, 7..12]), [(2, 4), (5, 7)]);
        assert_eq!(left(&[0..3, 2..9]), []);
        assert_eq!(left(&[9..12, 0..2]), [(2, 9)]);
    }
}
