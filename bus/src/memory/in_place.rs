//! The program's own memory, moved into a file at its present address, so that another process can
//! map it.
//!
//! Memory that is lent has no file of its own: each access of another process is a system call.
//! Here the pages are copied into a memfd, which is then mapped in their place. The program keeps
//! its addresses and its bytes. When the memory is no longer lent, its pages are private again:
//! pages of a file would be shared with a child of a fork also after the program has freed them.
#![allow(unsafe_code)] // names memory that this crate did not map

use super::mapping::{Mapping, Origin};
use super::moved::{Area, Moved, keep, moved, replace};
use super::{Memory, PageSize, create_descriptor};
use crate::process::Birth;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most files: each keeps a descriptor of the program open.
const MAX_FILES: usize = 256;

/// Bytes of the longest range: all of its pages become present.
const MAX_LENGTH: usize = 1 << 30;

impl Memory {
    /// The program's own memory, `length` bytes from `address`, in a file that another process can
    /// map: the whole pages that hold the range. Whole pages that are private to this process are
    /// moved into such a file first; of others, those that are in one already can be lent.
    ///
    /// `None`, and nothing has changed: any other memory, such as a stack or a file, memory that
    /// shares its pages with other data, a range longer than 1 GiB, or more than 256 such files.
    /// [`Memory::lend`] takes any memory.
    ///
    /// While they are lent, pages that were moved are shared with a child of `fork`. They are
    /// private again when the last clone of this value is dropped, but for pages that are lent a
    /// second time, and those of [`Memory::keep_in_file`].
    ///
    /// # Safety
    /// 1. As of [`Memory::lend`].
    /// 2. No thread and no device writes to these pages during the call, and while the last clone
    ///    of this value is dropped: it would write to the former ones.
    /// 3. No device of this process reaches the pages by their physical addresses.
    /// 4. This is no child of a fork.
    pub(crate) unsafe fn move_into_file(address: usize, length: usize) -> Option<Self> {
        let page = PageSize::FourKiB.bytes();
        let start = address - address % page;
        let end = address
            .checked_add(length)?
            .checked_next_multiple_of(page)?;
        let range = start..end;
        if length == 0 || range.len() > MAX_LENGTH {
            return None;
        }
        let mut files = moved();
        let text = std::fs::read_to_string("/proc/self/maps").ok()?;
        let areas = text.lines().filter_map(Area::read);
        let within: Vec<_> = areas
            .filter(|area| area.pages.start < end && start < area.pages.end)
            .collect();
        let first = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(start))?;
        for file in files.iter_mut() {
            let Some(area) = within.iter().find(|area| area.is_of(file)) else {
                continue;
            };
            let holds = area.pages.start <= start && end <= area.pages.end;
            if !holds {
                // The device will write to some of its pages by way of the address space.
                file.stay();
                continue;
            }
            let offset = area.offset + (start - area.pages.start) as u64;
            let descriptor = file.lend(range.clone());
            return Some(Self::in_file(first, range, descriptor, offset));
        }
        let is_whole = start == address && end == address + length;
        // The stack of this thread would change while it is copied.
        let here = stack_pointer();
        let is_movable = |area: &Area<'_>| area.is_private() && !area.pages.contains(&here);
        let covered = within.iter().map(|area| {
            let pages = area.pages.start.max(start)..area.pages.end.min(end);
            pages.len()
        });
        let is_there = covered.sum::<usize>() == range.len();
        let is_free = files.len() < MAX_FILES;
        if !(is_whole && is_there && is_free && within.iter().all(is_movable)) {
            return None;
        }
        let file = create_descriptor(length, PageSize::FourKiB).ok()?;
        let mut file = Moved::new(file)?;
        // SAFETY: the range is readable, as its areas say, and the caller keeps it mapped and
        //         unchanged meanwhile; the file has its length.
        unsafe { replace(first, length, &file.descriptor) }?;
        let descriptor = file.lend(range.clone());
        files.push(file);
        Some(Self::in_file(first, range, descriptor, 0))
    }

    /// Leaves pages that were moved into a file there: for memory that is dropped at a moment that
    /// the program does not choose. Nothing for other memory.
    pub(crate) fn keep_in_file(&self) {
        if let Origin::Moved { descriptor, .. } = &self.0.origin {
            keep(descriptor);
        }
    }

    fn in_file(
        base: NonNull<u8>,
        range: Range<usize>,
        descriptor: Arc<OwnedFd>,
        offset: u64,
    ) -> Self {
        Self(Arc::new(Mapping {
            base,
            length: range.len(),
            page_size: PageSize::FourKiB,
            origin: Origin::Moved {
                descriptor,
                offset,
                range,
                birth: Birth::now(),
            },
        }))
    }
}

/// An address of the stack of this thread. A variable may lie elsewhere: AddressSanitizer moves
/// those whose address is taken.
fn stack_pointer() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let here: usize;
        // SAFETY: copies a register.
        unsafe {
            core::arch::asm!(
                "mov {}, rsp",
                out(reg) here,
                options(nomem, nostack, preserves_flags)
            );
        }
        here
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let here = 0_u8;
        (&raw const here).addr()
    }
}

#[cfg(test)]
mod tests;
