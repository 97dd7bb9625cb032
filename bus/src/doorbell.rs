//! Doorbells: one 32-bit store that tells the device to look.
#![allow(unsafe_code)] // stores to a device page through a raw pointer

use crate::mapping::RegisterMapping;
use crate::memory::Memory;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a page of the processor.
const PAGE: u64 = 4096;

/// A place where a 32-bit store is noticed by the device.
///
/// If the backend can map the page this is a plain store; if it cannot, each ring is a
/// message. Cheap to clone. `Send` and `Sync`: hardware takes doorbells from any core.
///
/// Each doorbell that is asked for has a mapping of its own, which its clones share, so that it can be
/// taken out of service while another thread rings it: [`Doorbell::retire`].
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
    retired: AtomicBool,
}

impl Message {
    /// Out of line, so that ringing a mapped doorbell stays short where it is rung.
    #[cold]
    #[inline(never)]
    fn ring(&self, value: u32) {
        if !self.retired.load(Ordering::Acquire) {
            (self.write)(value);
        }
    }
}

// SAFETY: `word` points into `mapping`, which is itself `Send + Sync`, and is only used as an atomic.
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

    /// A doorbell in the page of `device` at `place`, mapped and rung as the VFIO backend's are.
    ///
    /// `device` is a descriptor that can be mapped, `place` a multiple of 4 in it. For measurements
    /// of that path where there is no card a file of memory will do.
    ///
    /// # Errors
    /// The kernel does not map the page, or `place` is no multiple of 4 (`INVAL`).
    pub fn in_page_of(device: BorrowedFd<'_>, place: u64) -> Result<Self, Errno> {
        let within = place % PAGE;
        let mapping = Arc::new(RegisterMapping::map(device, place - within, PAGE as usize)?);
        let word = mapping.word(within as usize).ok_or(Errno::INVAL)?.cast();
        Ok(Self(Kind::Mapped { word, mapping }))
    }

    /// A doorbell whose every ring is a call of `write`. See
    /// [`message_doorbell`](crate::function::message_doorbell).
    #[must_use]
    pub fn message(write: impl Fn(u32) + Send + Sync + 'static) -> Self {
        Self(Kind::Message(Arc::new(Message {
            write: Box::new(write),
            retired: AtomicBool::new(false),
        })))
    }

    /// Takes the doorbell and all its clones out of service for good: later rings are
    /// ignored, at no cost. Where it is mapped, ordinary memory takes the place of the device's page;
    /// a ring at that moment goes to the one or to the other.
    ///
    /// # Errors
    /// The kernel refuses to map a page of memory.
    pub fn retire(&self) -> Result<(), Errno> {
        match &self.0 {
            Kind::Mapped { mapping, .. } => mapping.put_memory_in_place(),
            Kind::Message(message) => {
                message.retired.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Rings. Everything written to memory before is visible to the device before the ring is.
    ///
    /// A message that cannot be sent is dropped: a device that is gone is noticed by the deadline
    /// of the thread that waits for its answer.
    #[inline(always)]
    pub fn ring(&self, value: u32) {
        match &self.0 {
            Kind::Mapped { word, .. } => {
                // SAFETY: in bounds, aligned and mapped, as checked in `in_page_of`; what is mapped
                // there changes in `retire`, that something is does not.
                unsafe { word.as_ref() }.store(value, Ordering::Release);
            }
            Kind::Message(message) => message.ring(value),
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

#[cfg(test)]
mod tests;
