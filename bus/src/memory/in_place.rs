//! The program's own memory, moved into a file at its present address, so that another process can
//! map it.
//!
//! Memory that is lent has no file of its own: each access of another process is a system call.
//! Here the pages are copied into a memfd, which is then mapped in their place. The program keeps
//! its addresses and its bytes. When the memory is no longer lent, its pages are private again:
//! pages of a file would be shared with a child of a fork also after the program has freed them.
#![allow(unsafe_code)] // maps memory in the place of other memory

use super::mapping::{Mapping, Origin};
use super::{Memory, PageSize, create_descriptor};
use crate::process::Birth;
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most files: each keeps a descriptor of the program open.
const MAX_FILES: usize = 256;

/// Bytes of the longest range: all of its pages become present.
const MAX_LENGTH: usize = 1 << 30;

/// A file that memory was moved into; open while some of the memory is lent.
struct Moved {
    descriptor: Weak<OwnedFd>,
    inode: u64,
}

/// The files of memory that is lent.
static MOVED: Mutex<Vec<Moved>> = Mutex::new(Vec::new());

fn moved() -> MutexGuard<'static, Vec<Moved>> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of `/proc/self/maps`.
struct Area<'a> {
    pages: Range<usize>,
    rights: &'a str,
    offset: u64,
    inode: u64,
    name: &'a str,
}

impl<'a> Area<'a> {
    fn read(line: &'a str) -> Option<Self> {
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
    fn is_private(&self) -> bool {
        let is_of_program = self.name.is_empty() || self.name == "[heap]";
        self.rights == "rw-p" && self.inode == 0 && is_of_program
    }

    fn is_of(&self, file: &Moved) -> bool {
        // A memfd has this name, and other file systems may use its inode number too.
        self.rights == "rw-s"
            && self.inode == file.inode
            && self.name.starts_with("/memfd:ringside")
    }
}

impl Memory {
    /// The program's own memory, `length` bytes from `address`, both multiples of 4096, in a file
    /// that another process can map. Pages that are private to this process are moved into such a
    /// file first.
    ///
    /// `None`, and nothing has changed: other memory, such as a stack or a file, a range longer
    /// than 1 GiB, or more than 256 such files. [`Memory::lend`] takes any memory.
    ///
    /// While they are lent, pages that were moved are shared with a child of `fork`.
    ///
    /// # Safety
    /// 1. As of [`Memory::lend`].
    /// 2. No other thread writes to these pages during the call, and while the last clone of the
    ///    last such value is dropped: it would write to the former ones.
    /// 3. No device of this process reaches the pages by their physical addresses.
    pub unsafe fn move_into_file(address: usize, length: usize) -> Option<Self> {
        let end = address.checked_add(length)?;
        let page = PageSize::FourKiB.bytes();
        let is_whole = address.is_multiple_of(page) && length.is_multiple_of(page);
        if !is_whole || length == 0 || length > MAX_LENGTH {
            return None;
        }
        let mut files = moved();
        let text = std::fs::read_to_string("/proc/self/maps").ok()?;
        let areas: Vec<_> = text.lines().filter_map(Area::read).collect();
        let within: Vec<_> = areas
            .iter()
            .filter(|area| area.pages.start < end && address < area.pages.end)
            .collect();
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address))?;
        if let [area] = within.as_slice()
            && let Some(file) = files.iter().find(|file| area.is_of(file))
        {
            let offset = area.offset + address.checked_sub(area.pages.start)? as u64;
            let descriptor = file
                .descriptor
                .upgrade()
                .filter(|_| end <= area.pages.end)?;
            return Some(Self::in_file(base, length, descriptor, offset));
        }
        // The stack of this thread would change while it is copied.
        let here = (&raw const files).addr();
        let is_movable = |area: &&Area<'_>| area.is_private() && !area.pages.contains(&here);
        let covered: usize = within.iter().map(|area| area.pages.len()).sum();
        let (first, last) = (within.first()?, within.last()?);
        let has_no_gap = covered == last.pages.end - first.pages.start;
        let is_inside = first.pages.start <= address && end <= last.pages.end;
        let is_free = files.len() < MAX_FILES;
        if !(within.iter().all(is_movable) && has_no_gap && is_inside && is_free) {
            return None;
        }
        let descriptor = create_descriptor(length, PageSize::FourKiB).ok()?;
        let inode = rustix::fs::fstat(&descriptor).ok()?.st_ino;
        // SAFETY: the range is readable, as its areas say, and the caller keeps it mapped and
        //         unchanged meanwhile; the file has its length.
        unsafe { replace(base, length, &descriptor) }?;
        let descriptor = Arc::new(descriptor);
        files.push(Moved {
            descriptor: Arc::downgrade(&descriptor),
            inode,
        });
        Some(Self::in_file(base, length, descriptor, 0))
    }

    fn in_file(base: NonNull<u8>, length: usize, descriptor: Arc<OwnedFd>, offset: u64) -> Self {
        Self(Arc::new(Mapping {
            base,
            length,
            page_size: PageSize::FourKiB,
            origin: Origin::Moved {
                descriptor,
                offset,
                birth: Birth::now(),
            },
        }))
    }
}

/// Copies the pages into the file, and maps it in their place. `None`, and they are as before, if
/// the kernel refuses it.
///
/// # Safety
/// The range is mapped, readable and private, whole pages; nothing writes to it meanwhile. The file
/// has `length` bytes.
unsafe fn replace(base: NonNull<u8>, length: usize, file: &OwnedFd) -> Option<()> {
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

#[cfg(test)]
mod tests;
