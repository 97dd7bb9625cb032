//! Inline data that is longer than a request of the card.
//!
//! Programs request more: perftest 236 bytes. Inline data promises that the program may reuse its
//! buffer as soon as the post returns. So longer data is copied into registered memory of the
//! library, one slot for each send that may be outstanding, and sent from there.

use crate::abi::ibv_sge;
use crate::device::Port;
use crate::errno;
use ringside_pmd::rdma::{Access, Fragment, MemoryRegion, ProtectionDomain};
use std::ffi::c_int;

/// Most bytes of inline data that a queue pair may be made for.
pub(crate) const MAX_BOUNCE: u32 = 1024;

/// Slots for the inline data of one queue pair.
pub(crate) struct Bounce {
    region: MemoryRegion,
    slot_bytes: usize,
    /// for each slot, the position of the send queue behind the request that used it last
    until: Box<[u64]>,
    next: usize,
}

impl Bounce {
    /// Slots for `sends` requests of up to `bytes` each.
    ///
    /// Errors: an errno value, if the memory cannot be allocated or registered.
    pub(crate) fn make(
        port: &Port,
        domain: &ProtectionDomain,
        sends: u32,
        bytes: u32,
    ) -> Result<Self, c_int> {
        let (slots, slot_bytes) = (sends as usize, bytes as usize);
        let memory = port.device()?.allocate(slots * slot_bytes);
        let memory = memory.map_err(|error| errno::of(&error))?;
        let region = domain.register(memory, Access::LOCAL_READ | Access::LOCAL_WRITE);
        Ok(Self {
            region: region.map_err(|refused| errno::of(&refused.error))?,
            slot_bytes,
            until: vec![0; slots].into_boxed_slice(),
            next: 0,
        })
    }

    /// Checks if so many requests of at most so many bytes find slots.
    ///
    /// Errors: as [`Self::copy`].
    pub(crate) fn check(&self, tail: u64, requests: usize, bytes: usize) -> Result<(), c_int> {
        if bytes > self.slot_bytes {
            return Err(libc::EINVAL);
        }
        let slots = self.until.iter().cycle().skip(self.next);
        let free = slots.take(self.until.len().min(requests));
        match free.filter(|until| **until <= tail).count() == requests {
            true => Ok(()),
            false => Err(libc::ENOMEM),
        }
    }

    /// Copies the data of a request into the next slot. `tail` is the position of the send queue
    /// before which all is complete.
    ///
    /// Errors: `ENOMEM` if the slot's request is not complete, `EINVAL` if the data is too long.
    ///
    /// # Safety
    /// Each entry names memory of the program.
    pub(crate) unsafe fn copy(&self, tail: u64, entries: &[ibv_sge]) -> Result<Fragment, c_int> {
        if self.until.get(self.next).is_none_or(|until| *until > tail) {
            return Err(libc::ENOMEM);
        }
        let begin = self.next * self.slot_bytes;
        let mut length = 0;
        for entry in entries {
            let bytes = entry.length as usize;
            if bytes == 0 {
                // Its address may be null.
                continue;
            }
            if length + bytes > self.slot_bytes {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller's promise.
            let data = unsafe { std::slice::from_raw_parts(entry.addr as *const u8, bytes) };
            if !self.region.write(begin + length, data) {
                return Err(libc::EIO);
            }
            length += bytes;
        }
        let fragment = self.region.slice(begin..begin + length);
        fragment.map_err(|_| libc::EIO)
    }

    /// The request of the last copy was posted, and ends before `head`.
    pub(crate) fn posted(&mut self, head: u64) {
        if let Some(until) = self.until.get_mut(self.next) {
            *until = head;
        }
        self.next = (self.next + 1) % self.until.len().max(1);
    }

    /// The send queue is empty, and counts from 0 again.
    pub(crate) fn begin_again(&mut self) {
        self.until.fill(0);
    }
}
