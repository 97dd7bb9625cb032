//! Buffers of the program that the peer writes to directly, and writing to the peer's.

use super::call::Call;
use super::flow::MAX_TRANSFER_BYTES;
use super::gather::Piece;
use super::link::{Link, Mapped};
use super::socket::Socket;
use super::turns::Way;
use super::wire::{Mapping, Target};
use crate::abi::access;
use crate::channel::last_error;
use crate::context_object::ContextObject;
use crate::memory::ibv_reg_mr;
use std::ffi::{c_int, c_void};

impl Socket {
    /// Maps a buffer of the program; the peer writes to it by `offset`, or by its address for -1.
    /// The peer is told before the next transfer. Returns the offset.
    ///
    /// # Safety
    /// The buffer stays until it is unmapped or the socket is closed.
    pub(super) unsafe fn map(
        &self,
        start: *mut c_void,
        length: usize,
        rights: c_int,
        offset: i64,
    ) -> Result<i64, c_int> {
        let bytes = u32::try_from(length).map_err(|_| libc::EINVAL)?;
        if bytes == 0 || rights & !libc::PROT_WRITE != 0 {
            return Err(libc::EINVAL);
        }
        let is_remote = rights & libc::PROT_WRITE != 0;
        // The number of entries that the peer has is known with the connection.
        let mut core = self.connected(self.core(), true)?;
        let link = core.link.as_mut().ok_or(libc::ENOTCONN)?;
        let index = match is_remote {
            true => Some(free_index(link).ok_or(libc::ENOMEM)?),
            false => None,
        };
        let remote = if is_remote { access::REMOTE_WRITE } else { 0 };
        // SAFETY: the socket's id has a protection domain; the caller's promise.
        let region = unsafe {
            let domain = (*self.id).pd;
            ibv_reg_mr(domain, start, length, access::LOCAL_WRITE | remote)
        };
        if region.is_null() {
            return Err(last_error());
        }
        let offset = if offset == -1 { start as i64 } else { offset };
        // SAFETY: just registered.
        let key = unsafe { (*region).rkey };
        let target = Target {
            address: start as u64,
            key,
            length: bytes,
        };
        link.mapped.push(Mapped {
            region,
            mapping: Mapping {
                offset: offset as u64,
                target,
            },
            index,
        });
        link.untold.extend(index);
        Ok(offset)
    }

    /// Takes a buffer back. A peer that still writes to it is refused by the device.
    ///
    /// Errors: `EINVAL` if it is none; `EBUSY` while a device that failed may still write to it.
    pub(super) fn unmap(&self, start: *mut c_void, length: usize) -> Result<(), c_int> {
        if self.core().link.is_none() {
            return Err(libc::EINVAL);
        }
        // Without the socket's lock, as it may take its time.
        // SAFETY: a connected socket's id has a device, and its context outlives it.
        let port = unsafe { &ContextObject::of((*self.id).verbs).port };
        port.await_rest()?;
        let mut core = self.core();
        let link = core.link.as_mut().ok_or(libc::EINVAL)?;
        let place = link.mapped.iter().position(|one| {
            let target = one.mapping.target;
            target.address == start as u64 && target.length as usize == length
        });
        let place = place.ok_or(libc::EINVAL)?;
        if let Some(one) = link.mapped.get_mut(place) {
            one.deregister()?;
        }
        let gone = link.mapped.remove(place);
        link.untold.retain(|index| Some(*index) != gone.index);
        Ok(())
    }

    /// Writes into the peer's buffer at an offset. Returns how many bytes; fewer where the peer's
    /// buffer ends.
    ///
    /// # Safety
    /// The piece is memory of the program.
    pub(super) unsafe fn write_mapped(
        &self,
        (start, length): Piece,
        offset: i64,
        flags: c_int,
    ) -> Result<usize, c_int> {
        let Call {
            turn,
            mut core,
            waits,
        } = self.begin(Way::Out, flags)?;
        let mut done = 0;
        while done < length {
            core = match self.writable(core, waits, |link| link.can_post()) {
                Ok(core) => core,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            };
            let link = core.link.as_mut().ok_or(libc::ENOTCONN)?;
            let at = (offset as u64).wrapping_add(done as u64);
            // As in rdma-core: 0 means that nothing is mapped there (yet).
            let Some(target) = link.mapping_at(at) else {
                return Ok(done);
            };
            let most = u32::try_from(length - done).unwrap_or(u32::MAX);
            let target = Target {
                length: target.length.min(most).min(MAX_TRANSFER_BYTES),
                ..target
            };
            // SAFETY: the caller's promise.
            let result = unsafe { link.write_direct(start.add(done), target) };
            done += result.inspect_err(|error| core.fail(*error))? as usize;
        }
        turn.end(core);
        Ok(done)
    }
}

/// An entry of the peer's list that names no buffer.
fn free_index(link: &Link) -> Option<u16> {
    let is_free = |index: &u16| link.mapped.iter().all(|one| one.index != Some(*index));
    (0..link.peer_mappings()).find(is_free)
}
