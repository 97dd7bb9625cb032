//! Doorbells: one 32-bit store that tells the device to look.
#![allow(unsafe_code)] // stores to a device page through a raw pointer

use crate::function::Function;
use crate::memory::Memory;
use crate::vfio::mapping::RegisterMapping;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a page of the processor.
const PAGE: u64 = 4096;

/// A place where a 32-bit store is noticed by the device.
///
/// Where the backend can map the page this is a plain store; where it cannot, each ring is a
/// message. Cheap to clone. `Send` and `Sync`: hardware takes doorbells from any core.
#[derive(Clone)]
pub struct Doorbell(Kind);

#[derive(Clone)]
enum Kind {
    Mapped {
        word: NonNull<AtomicU32>,
        _owner: Owner,
    },
    Message {
        function: Arc<dyn Function>,
        bar: u8,
        offset: u64,
    },
}

/// What keeps the page mapped.
#[derive(Clone)]
enum Owner {
    Memory { _memory: Memory },
    Registers { _mapping: Arc<RegisterMapping> },
}

// SAFETY: `word` points into `_owner`, which is itself `Send + Sync`, and is only used as an atomic.
unsafe impl Send for Doorbell {}
// SAFETY: as above; concurrent atomic stores are allowed.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// A doorbell in memory that the device watches; `None` if `offset` is out of range or not a
    /// multiple of 4.
    #[must_use]
    pub fn mapped(page: &Memory, offset: usize) -> Option<Self> {
        let fits = offset
            .checked_add(4)
            .is_some_and(|end| end <= page.length());
        if !fits || !offset.is_multiple_of(4) {
            return None;
        }
        // SAFETY: 1. in bounds: checked above. 2. mapped: the clone of `page` kept beside the
        //         pointer owns the mapping. 3. aligned: mappings start at a page.
        let word = unsafe { page.base().add(offset) }.cast::<AtomicU32>();
        Some(Self(Kind::Mapped {
            word,
            _owner: Owner::Memory {
                _memory: page.clone(),
            },
        }))
    }

    /// A doorbell in a device's own registers; `None` if `offset` is out of range or not a multiple
    /// of 4.
    pub(crate) fn register(mapping: &Arc<RegisterMapping>, offset: usize) -> Option<Self> {
        let word = mapping.word(offset)?.cast::<AtomicU32>();
        Some(Self(Kind::Mapped {
            word,
            _owner: Owner::Registers {
                _mapping: Arc::clone(mapping),
            },
        }))
    }

    /// A doorbell in the page of `device` at `place`, mapped and rung as the VFIO backend's are.
    ///
    /// `device` is a descriptor that can be mapped, `place` a multiple of 4 in it. For measurements
    /// of that path where there is no card: a file of memory will do.
    ///
    /// # Errors
    /// The kernel does not map the page, or `place` is no multiple of 4 (`INVAL`).
    pub fn in_page_of(device: BorrowedFd<'_>, place: u64) -> Result<Self, Errno> {
        let within = place % PAGE;
        let mapping = Arc::new(RegisterMapping::map(device, place - within, PAGE as usize)?);
        Self::register(&mapping, within as usize).ok_or(Errno::INVAL)
    }

    /// A doorbell whose every ring is a register write through `function`.
    #[must_use]
    pub fn message(function: Arc<dyn Function>, bar: u8, offset: u64) -> Self {
        Self(Kind::Message {
            function,
            bar,
            offset,
        })
    }

    /// Rings. Everything written to memory before is visible to the device before the ring is.
    ///
    /// A message that cannot be sent is dropped: a device that is gone is noticed by the deadline
    /// of whoever waits for its answer.
    #[inline(always)]
    pub fn ring(&self, value: u32) {
        match &self.0 {
            Kind::Mapped { word, .. } => {
                // SAFETY: in bounds, aligned and mapped, as checked in `mapped`.
                unsafe { word.as_ref() }.store(value, Ordering::Release);
            }
            Kind::Message {
                function,
                bar,
                offset,
            } => {
                let _ = function.write32(*bar, *offset, value);
            }
        }
    }

    /// True where a ring is a plain store, false where it is a message.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Kind::Mapped { .. })
    }
}

impl std::fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_mapped() {
            "Doorbell(mapped)"
        } else {
            "Doorbell(message)"
        })
    }
}
