//! The range of memory behind [`Memory`](super::Memory): its place, its owner and its release.
#![allow(unsafe_code)] // unmaps memory and frees boxes

use super::page_size::PageSize;
use super::vanishing::Vanishing;
use crate::process::{Birth, Hidden};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A range of memory, which is released when this is dropped.
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) length: usize,
    pub(super) page_size: PageSize,
    pub(super) origin: Origin,
}

/// The owner of the memory, which decides its access and its release.
pub(super) enum Origin {
    /// A mapping that this process made of a file.
    File {
        descriptor: OwnedFd,
        /// its start in the file
        offset: u64,
        /// dropped before the memory is unmapped
        hidden: Option<Hidden>,
        /// of another process; dropped before the memory is unmapped
        vanishing: Option<Vanishing>,
        is_dma_buf: bool,
        /// made by this crate for a device, zeroed
        is_allocated: bool,
    },
    /// A boxed slice that the application passed over.
    Owned,
    /// The application, which frees it.
    Application,
    /// The application, which frees it; other processes access it through its address space.
    /// Without `space` the kernel refused its file: no other process can.
    Lent {
        space: Option<Arc<OwnedFd>>,
        address: u64,
    },
    /// The application, which frees it: pages of a file that they were moved into.
    Moved {
        descriptor: Arc<OwnedFd>,
        /// its start in the file
        offset: u64,
        /// its addresses, whole pages
        range: Range<usize>,
        /// of the process whose pages they are
        birth: Birth,
    },
    /// Another process: accessed only by reading and writing its address space; `base` is never
    /// dereferenced.
    Peer { space: Arc<OwnedFd>, address: u64 },
}

impl Mapping {
    /// Its bytes as a slice, from which a box can be made.
    pub(super) fn slice(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.length)
    }

    /// Looks after pages of `page_bytes` of a file of another process, just mapped. False if more
    /// mappings are looked after than can be.
    pub(super) fn look_after(&mut self, page_bytes: usize) -> bool {
        let Origin::File { vanishing, .. } = &mut self.origin else {
            return false;
        };
        *vanishing = Vanishing::new(self.base, self.length, page_bytes);
        vanishing.is_some()
    }
}

// SAFETY: a mapping is plain memory owned by this value; every access goes through atomics or
// copies that tolerate concurrent change, so it may be used from and moved to any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        match &mut self.origin {
            Origin::File {
                hidden, vanishing, ..
            } => drop((hidden.take(), vanishing.take())),
            Origin::Application | Origin::Lent { .. } | Origin::Peer { .. } => return,
            Origin::Moved {
                descriptor,
                range,
                birth,
                ..
            } => {
                // A child leaves its pages as they are: a lock may be held there for ever.
                if birth.is_here() {
                    // SAFETY: who had the memory moved has promised it.
                    unsafe { super::moved::give_back(descriptor, range) };
                }
                return;
            }
            Origin::Owned => {
                // SAFETY: the range came from a box, and every view owned a clone of the `Memory`
                //         whose last clone is being dropped.
                drop(unsafe { Box::from_raw(self.slice()) });
                return;
            }
        }
        // SAFETY: `base` and `length` are what mmap returned, and no view exists any more:
        // every view owns a clone of the `Memory` whose last clone is being dropped.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) } {
            tracing::warn!(%error, length = self.length, "munmap failed; the memory stays mapped");
        }
    }
}
