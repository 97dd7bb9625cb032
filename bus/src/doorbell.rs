//! Doorbells: one 32-bit store that notifies the device of new work.
#![allow(unsafe_code)] // stores to a device page through a raw pointer

use crate::mapping::RegisterMapping;
use crate::memory::Memory;
use crate::process::Birth;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a page of the processor.
const PAGE: u64 = 4096;

/// A register whose 32-bit stores the device notices.
///
/// If the backend can map the page, a ring is a plain store; otherwise it is a message. Cheap to
/// clone. `Send` and `Sync`: hardware accepts doorbells from any core.
///
/// Each doorbell has its own mapping, which its clones share, so that it can be taken out of
/// service while another thread rings it: [`Doorbell::retire`].
#[derive(Clone)]
pub struct Doorbell(Kind);

#[derive(Clone)]
enum Kind {
    Mapped {
        word: NonNull<AtomicU32>,
        /// keeps the page mapped
        mapping: Arc<RegisterMapping>,
    },
    Message(Arc<Message>),
}

struct Message {
    write: Box<dyn Fn(u32) + Send + Sync>,
    /// held for reading by each ring under way
    retired: RwLock<bool>,
    birth: Birth,
}

impl Message {
    /// Not inlined, so that ringing a mapped doorbell stays short.
    #[cold]
    #[inline(never)]
    fn ring(&self, value: u32) {
        // In a child by fork the lock may be held permanently.
        if !self.birth.is_here() {
            return;
        }
        let retired = self.retired.read().unwrap_or_else(PoisonError::into_inner);
        if !*retired {
            (self.write)(value);
        }
    }
}

// SAFETY: `word` points into `mapping`, which is itself `Send + Sync`, and is only used as an
// atomic.
unsafe impl Send for Doorbell {}
// SAFETY: as above; concurrent atomic stores are allowed.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// A doorbell in memory that the device watches; `None` if `offset` is out of range or not a
    /// multiple of 4, or the memory cannot be mapped by pages of 4 KiB.
    #[must_use]
    pub fn mapped(page: &Memory, offset: usize) -> Option<Self> {
        let fits = offset
            .checked_add(4)
            .is_some_and(|end| end <= page.length());
        if !fits {
            return None;
        }
        let place = page.offset_in_file().checked_add(offset as u64)?;
        Self::in_page_of(page.descriptor()?, place).ok()
    }

    /// Maps a doorbell in the page of `device` at `place`, and rings it as the VFIO backend does.
    ///
    /// `device` is a descriptor that can be mapped, `place` a multiple of 4 in it. For measurements
    /// of that path without a card, a memory file is sufficient.
    ///
    /// # Errors
    /// The kernel does not map the page, or `place` is not a multiple of 4 (`INVAL`).
    pub fn in_page_of(device: BorrowedFd<'_>, place: u64) -> Result<Self, Errno> {
        let within = place % PAGE;
        let mapping = Arc::new(RegisterMapping::map(device, place - within, PAGE as usize)?);
        let word = mapping.word(within as usize).ok_or(Errno::INVAL)?.cast();
        Ok(Self(Kind::Mapped { word, mapping }))
    }

    /// A doorbell whose rings are calls of `write`. See
    /// [`message_doorbell`](crate::function::message_doorbell).
    #[must_use]
    pub fn message(write: impl Fn(u32) + Send + Sync + 'static) -> Self {
        Self(Kind::Message(Arc::new(Message {
            write: Box::new(write),
            retired: RwLock::new(false),
            birth: Birth::now(),
        })))
    }

    /// Takes the doorbell and all its clones out of service permanently: later rings are ignored,
    /// at no cost. A mapped device page is replaced by ordinary memory; a concurrent ring reaches
    /// one of the two. A message that is under way is waited for: none is sent afterwards.
    ///
    /// # Errors
    /// The kernel refuses to map a page of memory.
    pub fn retire(&self) -> Result<(), Errno> {
        match &self.0 {
            Kind::Mapped { mapping, .. } => mapping.put_memory_in_place(),
            Kind::Message(message) => {
                let mut retired = message
                    .retired
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                *retired = true;
                Ok(())
            }
        }
    }

    /// Rings the doorbell. The device sees all earlier writes to memory before it sees the ring.
    ///
    /// A message that cannot be sent is dropped: the deadline of the thread that waits for the
    /// device's answer detects a removed device.
    #[inline(always)]
    pub fn ring(&self, value: u32) {
        match &self.0 {
            Kind::Mapped { word, .. } => {
                // SAFETY: in bounds, aligned and mapped, as checked in `in_page_of`. `retire`
                // replaces the page atomically; a page is always mapped there.
                unsafe { word.as_ref() }.store(value, Ordering::Release);
            }
            Kind::Message(message) => message.ring(value),
        }
    }

    /// True if a ring is a plain store, false if it is a message.
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

#[cfg(test)]
mod tests;
