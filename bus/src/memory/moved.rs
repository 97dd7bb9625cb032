//! Files that pages of the program were moved into, in place of the private pages that they were.
#![allow(unsafe_code)] // maps memory in the place of other memory

use rustix::mm::{MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A file that memory was moved into; open while some of the memory is lent.
pub(super) struct Moved {
    pub(super) descriptor: Weak<OwnedFd>,
    pub(super) inode: u64,
}

/// The files of memory that is lent.
static MOVED: Mutex<Vec<Moved>> = Mutex::new(Vec::new());

/// The files of memory that is lent, locked.
pub(super) fn moved() -> MutexGuard<'static, Vec<Moved>> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of `/proc/self/maps`.
pub(super) struct Area<'a> {
    pub(super) pages: Range<usize>,
    rights: &'a str,
    pub(super) offset: u64,
    inode: u64,
    name: &'a str,
}

impl<'a> Area<'a> {
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let _device = words.next()?;
        Some(Self {
            pages: number(start)?..number(end)?,
            rights,
            offset,
            inode: words.next()?.parse().ok()?,
            name: words.next().unwrap_or(""),
        })
    }

    /// Memory that nothing but this process has: of `malloc` or `mmap`, not a stack.
    pub(super) fn is_private(&self) -> bool {
        let is_of_program = self.name.is_empty() || self.name == "[heap]";
        self.rights == "rw-p" && self.inode == 0 && is_of_program
    }

    pub(super) fn is_of(&self, file: &Moved) -> bool {
        // A memfd has this name, and other file systems may use its inode number too.
        self.rights == "rw-s"
            && self.inode == file.inode
            && self.name.starts_with("/memfd:ringside")
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

/// Makes the pages of a file private again, if no other memory is lent from it. Pages that the
/// program has unmapped are left alone.
pub(super) fn give_back(descriptor: &Arc<OwnedFd>) {
    let mut files = moved();
    let is_this = |file: &Moved| std::ptr::eq(file.descriptor.as_ptr(), Arc::as_ptr(descriptor));
    // The lock keeps others from taking it up again.
    if Arc::strong_count(descriptor) > 1 {
        return;
    }
    let Some(place) = files.iter().position(is_this) else {
        return;
    };
    let file = files.swap_remove(place);
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for area in text.lines().filter_map(Area::read) {
        if area.is_of(&file) && restore(&area, descriptor).is_none() {
            tracing::warn!(area = ?area.pages, "memory stays shared with children of a fork");
        }
    }
}

/// Puts private pages with the same bytes in the place of pages of a file.
fn restore(area: &Area<'_>, file: &OwnedFd) -> Option<()> {
    let length = area.pages.len();
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
        match rustix::io::pread(file.as_fd(), rest, area.offset + done as u64) {
            Ok(count) if count > 0 => done += count,
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    let target = std::ptr::with_exposed_provenance_mut(area.pages.start);
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: the copy is moved whole; it has the bytes of the pages that it replaces, which are of
    //         a file of this module. Both have the same length.
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
