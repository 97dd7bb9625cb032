//! The program's own memory, moved into a file at its present address, so that another process can
//! map it.
//!
//! Memory that is lent has no file of its own: each access of another process is a system call.
//! Here the pages are copied into a memfd, which is then mapped in their place. The program keeps
//! its addresses and its bytes. When the memory is no longer lent, its pages are private again:
//! pages of a file would be shared with a child of a fork also after the program has freed them.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::mapping::{Mapping, Origin};
use super::moved::{Area, Moved, moved, replace};
use super::{Memory, PageSize, create_descriptor};
use crate::process::Birth;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most files: each keeps a descriptor of the program open.
const MAX_FILES: usize = 256;

/// Bytes of the longest range: all of its pages become present.
const MAX_LENGTH: usize = 1 << 30;

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

#[cfg(test)]
mod tests;
