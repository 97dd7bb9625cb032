//! Memory regions: memory that the device may read and write, and peers within their rights.
//!
//! A region owns its memory: it cannot be freed while the device may still use it. Deregistering
//! gives the memory back once the device has confirmed; if it doesn't, the memory is kept until the
//! shutdown, and that is said.

mod access;
mod error;
mod pages;
mod reregister;
mod tags;

use super::ProtectionDomain;
use super::RdmaError;
use super::lifecycle::{By, Destroyed, Making, NotMade};
use super::objects::Held;
use super::objects::Object;
use super::protection_domain::{Kind, Share};
use super::records::RegionRecord;
use super::session::Session;
pub use access::{Access, Base, RemoteAddress, RemoteRegion, SliceError};
pub use error::{DeregisterError, RegisterError, ReregisterError};
pub(super) use pages::Pages;
use ringside_bus::{DmaBuffer, Words};
use ringside_qp::Fragment;
use ringside_spec::rdma::commands::SteeringTag;
use std::ops::Range;

/// A registered memory region. `Send` and `Sync`; dropping it deregisters.
///
/// The device refuses to deregister a region while a window is bound to it. A region that is
/// dropped then stays registered, and open to peers through the window, until the window is closed
/// or dropped, or the device is shut down. Until then
/// [`Device::quarantine`](crate::Device::quarantine) lists it.
pub struct MemoryRegion {
    share: [Share; 2],
    domain: ProtectionDomain,
    /// number of the table entry
    number: u32,
    key: SteeringTag,
    /// address of the first byte, as requests name it
    address: u64,
    length: usize,
    access: Access,
    base: Base,
    buffers: Vec<DmaBuffer>,
}

impl ProtectionDomain {
    /// Registers memory that is contiguous for the device.
    pub fn register(
        &self,
        buffer: DmaBuffer,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_all(vec![buffer], access)
    }

    /// Registers several buffers as one region, in this order, without gaps.
    ///
    /// Every buffer but the first begins at a page, every one but the last ends at one (4 KiB).
    pub fn register_all(
        &self,
        buffers: Vec<DmaBuffer>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_based(buffers, access, Base::Address)
    }

    /// The same, with addresses that begin at `base`.
    pub fn register_based(
        &self,
        buffers: Vec<DmaBuffer>,
        access: Access,
        base: Base,
    ) -> Result<MemoryRegion, RegisterError> {
        let plan =
            match Pages::of(&buffers, &self.engine().pool).and_then(|plan| plan.check_base(base)) {
                Ok(plan) => plan,
                Err(error) => return Err(RegisterError { error, buffers }),
            };
        let share = match self.share_of_region(&plan) {
            Ok(share) => share,
            Err(error) => return Err(RegisterError { error, buffers }),
        };
        let mut state = match self.engine().open_state() {
            Ok(state) => state,
            Err(error) => return Err(RegisterError { error, buffers }),
        };
        match self.register_pages(&mut state, &plan, access, base, None) {
            Ok((number, key)) => Ok(MemoryRegion {
                share,
                domain: self.clone(),
                number,
                key,
                address: base.first(plan.address),
                length: plan.length as usize,
                access,
                base,
                buffers,
            }),
            Err(NotMade::Refused(error)) => Err(RegisterError { error, buffers }),
            Err(NotMade::Unconfirmed { number, error }) => {
                state.set_memory_apart(RegionRecord::NAME, number, buffers, &error);
                let buffers = Vec::new();
                Err(RegisterError { error, buffers })
            }
        }
    }

    /// Shares of the quotas for a region: one region, and its bytes.
    fn share_of_region(&self, plan: &Pages) -> Result<[Share; 2], RdmaError> {
        let bytes = self.take_share(Kind::RegisteredBytes, plan.length)?;
        Ok([self.take_share(Kind::MemoryRegions, 1)?, bytes])
    }

    /// Number and key of a new registration; those of `again`, which have just been freed, if they
    /// are given.
    fn register_pages(
        &self,
        state: &mut Session<'_>,
        plan: &Pages,
        access: Access,
        base: Base,
        again: Option<(u32, SteeringTag)>,
    ) -> Result<(u32, SteeringTag), NotMade> {
        let mut making = match again {
            Some((number, _)) => Making::<RegionRecord>::begin_again(state, number)?,
            None => Making::<RegionRecord>::begin(state)?,
        };
        let (number, key) = match again {
            Some(same) => same,
            None => (making.number(), making.steering_tag()),
        };
        let list = match plan.list.is_empty() {
            true => None,
            false => Some(making.state().list_pages(&plan.list)?),
        };
        let command = plan.command(self.number(), key, access, base, list.as_ref());
        if let Some(list) = list {
            making.hold(Held::Pages(list));
        }
        let record = RegionRecord {
            stag_index: key.index(),
            is_window: false,
            protection_domain: self.number(),
        };
        making.finish(command, record)?;
        Ok((number, key))
    }
}

impl MemoryRegion {
    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Key for requests of the own device.
    #[must_use]
    pub fn local_key(&self) -> u32 {
        self.key.0
    }

    /// Key for requests of peers.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        self.key.0
    }

    /// Address of the first byte, as requests name it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The facts that a peer needs about it.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.address,
            key: self.key.0,
            length_bytes: self.length as u64,
        }
    }

    /// A piece of it for a request: a range of bytes.
    ///
    /// Errors: [`SliceError`] if it is not inside, or too long for one fragment (2^31 - 1 bytes).
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Result<Fragment, SliceError> {
        let length_bytes = range.end.wrapping_sub(range.start);
        let inside = range.start <= range.end && range.end <= self.length;
        if !inside || length_bytes > Fragment::MAX_BYTES as usize {
            return Err(SliceError {
                start: range.start,
                end: range.end,
                length_bytes: self.length,
            });
        }
        Ok(Fragment {
            address: self.address.wrapping_add(range.start as u64),
            length_bytes: length_bytes as u32,
            steering_tag: self.key.0,
        })
    }

    /// The memory.
    #[must_use]
    pub fn buffers(&self) -> &[DmaBuffer] {
        &self.buffers
    }

    /// Copies out; false if the range is outside. The device may write meanwhile.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let Some(pieces) = self.pieces(offset, into.len()) else {
            return false;
        };
        let mut rest = into;
        for (buffer, at, count) in pieces {
            let (now, later) = rest.split_at_mut(count);
            if !buffer.read(at, now) {
                return false;
            }
            rest = later;
        }
        true
    }

    /// Copies in; false if the range is outside. The device may read meanwhile.
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(pieces) = self.pieces(offset, from.len()) else {
            return false;
        };
        let mut rest = from;
        for (buffer, at, count) in pieces {
            let (now, later) = rest.split_at(count);
            if !buffer.write(at, now) {
                return false;
            }
            rest = later;
        }
        true
    }

    /// The 64-bit words of a range, in place and without a copy: atomics, which the device and its
    /// peers write as well. A word that a peer writes last, such as a counter, tells when the bytes
    /// before it are there: read it with [`Words::load_acquire`].
    ///
    /// Do not use them after the region is deregistered: another region may have the memory by
    /// then.
    ///
    /// `None` if the range is empty, outside or in more than one buffer, or if its address in this
    /// process or its length is no multiple of 8.
    #[must_use]
    pub fn words(&self, range: Range<usize>) -> Option<Words> {
        let length = range.end.checked_sub(range.start)?;
        let (buffer, at, count) = self.pieces(range.start, length)?.next()?;
        (count == length).then(|| buffer.words_at(at, length))?
    }

    /// The buffers that hold a range: each with offset and bytes in it.
    fn pieces(
        &self,
        offset: usize,
        length: usize,
    ) -> Option<impl Iterator<Item = (&DmaBuffer, usize, usize)>> {
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= self.length)?;
        let mut stop = 0;
        Some(self.buffers.iter().filter_map(move |buffer| {
            let start = stop;
            stop += buffer.length();
            let (from, to) = (offset.max(start), end.min(stop));
            (from < to).then(|| (buffer, from - start, to - from))
        }))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Its share of the domain's quotas: one region, and its bytes.
    #[must_use]
    pub fn quota_bytes(&self) -> u64 {
        let [_, bytes] = &self.share;
        bytes.amount()
    }

    /// Its permitted uses.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The start of its addresses.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base
    }

    /// Its protection domain.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Deregisters, and gives the memory back.
    ///
    /// Errors: [`DeregisterError`]: the region is still in use, or the memory is kept until the
    /// shutdown.
    pub fn deregister(mut self) -> Result<Vec<DmaBuffer>, DeregisterError> {
        match self.release() {
            Ok(buffers) => Ok(buffers),
            Err((error, bytes)) if self.buffers.is_empty() => {
                Err(DeregisterError::Kept { error, bytes })
            }
            Err((error, _)) => Err(DeregisterError::InUse {
                error,
                region: Box::new(self),
            }),
        }
    }

    /// Returns the memory, or the error and the number of kept bytes. After a refusal the region
    /// still has the memory, also while a device that failed was not reset.
    fn release(&mut self) -> Result<Vec<DmaBuffer>, (RdmaError, usize)> {
        let engine = self.domain.engine();
        // In a child by fork: the region is its parent's.
        if let Err(error) = engine.check_process() {
            return Err((error.into(), 0));
        }
        let buffers = std::mem::take(&mut self.buffers);
        if buffers.is_empty() {
            return Ok(buffers);
        }
        let mut state = engine.state();
        match state.destroy::<RegionRecord>(self.number, By::Owner) {
            Destroyed::Gone(_) => Ok(buffers),
            Destroyed::Refused(error) => {
                self.buffers = buffers;
                Err((error, 0))
            }
            Destroyed::DeviceFailed { cause, .. } => {
                self.buffers = buffers;
                Err((RdmaError::DeviceFailed { cause }, 0))
            }
            Destroyed::Unconfirmed(error) => {
                let bytes = buffers.iter().map(DmaBuffer::length).sum();
                state.set_memory_apart(RegionRecord::NAME, self.number, buffers, &error);
                state.look_after();
                Err((error, bytes))
            }
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.domain.engine().is_elsewhere() {
            return;
        }
        if let Err((error, _)) = self.release() {
            let buffers = std::mem::take(&mut self.buffers);
            if buffers.is_empty() {
                return;
            }
            let mut state = self.domain.engine().state();
            if error.is_refusal_by_device() {
                return state.keep_refused(self.number, buffers, &error);
            }
            state.set_apart::<RegionRecord>(self.number, &error);
            state.set_memory_apart(RegionRecord::NAME, self.number, buffers, &error);
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("key", &self.key.0)
            .field("address", &self.address)
            .field("length", &self.length)
            .field("access", &self.access)
            .field("protection_domain", &self.domain.number())
            .field("buffers", &self.buffers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
