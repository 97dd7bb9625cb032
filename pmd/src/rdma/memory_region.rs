//! Memory regions: memory that the device may read and write, and peers as far as they are let.
//!
//! A region owns its memory: it cannot be freed while the device may still use it. Deregistering
//! gives the memory back once the device has confirmed; if it doesn't, the memory is kept until the
//! shutdown, and that is said.

mod pages;

use super::ProtectionDomain;
use super::RdmaError;
use super::protection_domain::{Kind, Share};
use super::records::RegionRecord;
use crate::control::ControlError;
pub(super) use pages::Pages;
use ringside_bus::DmaBuffer;
use ringside_qp::Fragment;
use ringside_spec::rdma::commands::{AccessRights, DeallocateStag, SteeringTag};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::STAG_INDEX_BITS;
use std::ops::Range;

/// What a memory region may be used for. Reading by the own device is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// The own device may read: gather data to send.
    pub const LOCAL_READ: Self = Self(0);
    /// The own device may write: receives and read responses.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write. Includes [`Access::LOCAL_WRITE`], as verbs demand.
    pub const REMOTE_WRITE: Self = Self(4 | 1);
    /// Memory windows may be bound to it.
    pub const BIND_WINDOW: Self = Self(8);
    /// All of it.
    pub const ALL: Self = Self(15);

    /// Whether all that `other` allows is allowed here too.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn rights(self) -> AccessRights {
        AccessRights::ZERO
            .with_local_read(true)
            .with_local_write(self.contains(Self::LOCAL_WRITE))
            .with_remote_read(self.contains(Self::REMOTE_READ))
            .with_remote_write(self.contains(Self::REMOTE_WRITE))
            .with_bind_window(self.contains(Self::BIND_WINDOW))
    }

    fn is_remote(self) -> bool {
        self.0 & 6 != 0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Where the addresses of a region begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At the I/O virtual address of its first byte.
    Address,
    /// At 0: peers learn nothing of where it lies. No memory window can be bound to it.
    Zero,
}

/// A place in a peer's memory, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in the peer's region.
    pub address: u64,
    /// Remote key of that region.
    pub key: u32,
}

/// A peer's memory region: what a peer tells us of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoteRegion {
    /// Address of its first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes.
    pub length_bytes: u64,
}

impl RemoteRegion {
    /// The place `offset` bytes into it. The peer's device checks that it is inside.
    #[inline]
    #[must_use]
    pub const fn at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            address: self.address.wrapping_add(offset),
            key: self.key,
        }
    }
}

/// A range outside of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bytes {start}..{end} are not in the region's {length_bytes} bytes, or more than one fragment holds"
)]
pub struct SliceError {
    /// First byte asked for.
    pub start: usize,
    /// End of the bytes asked for.
    pub end: usize,
    /// Bytes of the region.
    pub length_bytes: usize,
}

/// A registration that failed, with the memory that was to be registered.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RegisterError {
    /// Why.
    #[source]
    pub error: RdmaError,
    /// The memory; empty when it is kept because the device may use it.
    pub buffers: Vec<DmaBuffer>,
}

/// Memory that could not be given back.
#[derive(Debug, thiserror::Error)]
pub enum DeregisterError {
    /// The device refused, and the region is as it was: memory windows are bound to it. Invalidate
    /// or drop them first.
    #[error(
        "the region is still in use, invalidate or drop the memory windows on it first: {error}"
    )]
    InUse {
        /// What the device said.
        error: RdmaError,
        /// The region.
        region: Box<MemoryRegion>,
    },
    /// The device did not confirm.
    #[error(
        "{bytes} bytes of memory are kept until the shutdown, because the device did not confirm that it has let go of them: {error}"
    )]
    Kept {
        /// Why.
        error: RdmaError,
        /// Bytes kept.
        bytes: usize,
    },
}

/// A registration that was not changed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReregisterError {
    /// Why.
    #[source]
    pub error: Box<dyn std::error::Error + Send + Sync>,
    /// The region as it was, unless its memory had to be kept.
    pub region: Option<Box<MemoryRegion>>,
}

/// A registered memory region. `Send` and `Sync`; dropping it deregisters.
#[derive(Debug)]
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

    /// The same, with addresses that begin where `base` says.
    pub fn register_based(
        &self,
        buffers: Vec<DmaBuffer>,
        access: Access,
        base: Base,
    ) -> Result<MemoryRegion, RegisterError> {
        let plan = match Pages::of(&buffers) {
            Ok(plan) => plan,
            Err(error) => return Err(RegisterError { error, buffers }),
        };
        let share = self
            .take_share(Kind::RegisteredBytes, plan.length)
            .and_then(|bytes| Ok([self.take_share(Kind::MemoryRegions, 1)?, bytes]));
        let share = match share {
            Ok(share) => share,
            Err(error) => return Err(RegisterError { error, buffers }),
        };
        match self.register_pages(&plan, access, base) {
            Ok((number, key)) => Ok(MemoryRegion {
                share,
                domain: self.clone(),
                number,
                key,
                address: match base {
                    Base::Address => plan.address,
                    Base::Zero => 0,
                },
                length: plan.length as usize,
                access,
                base,
                buffers,
            }),
            Err((error, device_may_use)) => {
                let buffers = if device_may_use {
                    let mut state = self.engine().state();
                    state.quarantine("memory region", 0, buffers, &error);
                    Vec::new()
                } else {
                    buffers
                };
                Err(RegisterError { error, buffers })
            }
        }
    }

    /// Number and key, or the error and whether the device may use the memory nevertheless.
    fn register_pages(
        &self,
        plan: &Pages,
        access: Access,
        base: Base,
    ) -> Result<(u32, SteeringTag), (RdmaError, bool)> {
        let harmless = |error: RdmaError| (error, false);
        let mut guard = self.engine().open_state().map_err(harmless)?;
        let state = &mut *guard;
        let (number, key) = state.take_steering_tag().map_err(harmless)?;
        let mut result = state.back(ObjectType::MemoryRegion, number);
        let mut pages = None;
        if result.is_ok() && !plan.list.is_empty() {
            result = match &mut state.memory {
                Some(memory) => memory
                    .list_pages(&mut state.control, &plan.list)
                    .map(|list| pages = Some(list)),
                None => Err(RdmaError::ShutDown),
            };
        }
        if let Err(error) = result {
            state.give_region_number(number);
            return Err((error, false));
        }
        let command = plan.command(self.number(), key, access, base, pages.as_ref());
        match state.control.execute(command) {
            Ok(_) => {
                let record = RegionRecord {
                    stag_index: key.index(),
                    is_window: false,
                    protection_domain: self.number(),
                    pages,
                };
                state.regions.insert(number, record);
                Ok((number, key))
            }
            Err(error) => {
                let refused = error.is_refusal();
                if refused {
                    state.free_pages(pages);
                    state.give_region_number(number);
                }
                Err((error.into(), !refused))
            }
        }
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

    /// What a peer must know of it.
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
        if !inside || length_bytes > Fragment::MAXIMUM_BYTES as usize {
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

    /// The buffers that hold a range: each with offset and bytes in it.
    fn pieces(&self, offset: usize, length: usize) -> Option<Vec<(&DmaBuffer, usize, usize)>> {
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= self.length)?;
        let mut start = 0;
        let mut pieces = Vec::new();
        for buffer in &self.buffers {
            let stop = start + buffer.length();
            let (from, to) = (offset.max(start), end.min(stop));
            if from < to {
                pieces.push((buffer, from - start, to - from));
            }
            start = stop;
        }
        Some(pieces)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// What of its domain's quotas it takes: one region, and its bytes.
    #[must_use]
    pub fn quota_bytes(&self) -> u64 {
        let [_, bytes] = &self.share;
        bytes.amount()
    }

    /// What it may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Where its addresses begin.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base
    }

    /// Its protection domain.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Registers its memory anew, for another domain or other rights, under new keys; the old keys
    /// are good for nothing then. Requests that use them must have completed.
    ///
    /// Errors: [`ReregisterError`]; the region is as it was, or gone, as it says.
    pub fn reregister(
        mut self,
        domain: &ProtectionDomain,
        access: Access,
    ) -> Result<Self, ReregisterError> {
        let plan = match Pages::of(&self.buffers) {
            Ok(plan) => plan,
            Err(error) => return Err(self.unchanged(error)),
        };
        let share = domain
            .take_share(Kind::RegisteredBytes, plan.length)
            .and_then(|bytes| Ok([domain.take_share(Kind::MemoryRegions, 1)?, bytes]));
        let share = match share {
            Ok(share) => share,
            Err(error) => return Err(self.unchanged(error)),
        };
        let (number, key) = match domain.register_pages(&plan, access, self.base) {
            Ok(made) => made,
            Err((error, false)) => return Err(self.unchanged(error)),
            Err((error, true)) => {
                // Two registrations may be in the device: the memory stays.
                let kept: Vec<DmaBuffer> = std::mem::take(&mut self.buffers);
                let bytes = kept.iter().map(DmaBuffer::length).sum();
                kept.into_iter().for_each(DmaBuffer::leak);
                return Err(ReregisterError {
                    error: DeregisterError::Kept { error, bytes }.into(),
                    region: None,
                });
            }
        };
        let old = self.number;
        let destroyed = self.domain.engine().state().destroy_region(old);
        if let Err(error) = destroyed {
            let undone = domain.engine().state().destroy_region(number);
            if undone.is_ok() {
                return Err(self.unchanged(error));
            }
            tracing::error!(%error, "the old registration of a region stays");
        }
        self.domain = domain.clone();
        self.share = share;
        (self.number, self.key, self.access) = (number, key, access);
        Ok(self)
    }

    fn unchanged(self, error: RdmaError) -> ReregisterError {
        ReregisterError {
            error: error.into(),
            region: Some(Box::new(self)),
        }
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

    /// The memory; or why not, and the bytes kept. After a refusal the region still has it.
    fn release(&mut self) -> Result<Vec<DmaBuffer>, (RdmaError, usize)> {
        let buffers = std::mem::take(&mut self.buffers);
        if buffers.is_empty() {
            return Ok(buffers);
        }
        let result = self.domain.engine().state().destroy_region(self.number);
        match result {
            Ok(()) => Ok(buffers),
            Err(RdmaError::Control(error @ ControlError::Refused { .. })) => {
                self.buffers = buffers;
                Err((error.into(), 0))
            }
            Err(error) => {
                let bytes = buffers.iter().map(DmaBuffer::length).sum();
                let mut state = self.domain.engine().state();
                state.quarantine("memory region", self.number, buffers, &error);
                Err((error, bytes))
            }
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err((error, _)) = self.release() {
            std::mem::take(&mut self.buffers)
                .into_iter()
                .for_each(DmaBuffer::leak);
            tracing::error!(%error, "memory region dropped");
        }
    }
}

impl super::engine::EngineState {
    /// Number and tag for a new region or window; both cannot be guessed.
    pub(crate) fn take_steering_tag(&mut self) -> Result<(u32, SteeringTag), RdmaError> {
        let numbers = self.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
        let number = numbers.regions.take(&mut self.random)?;
        let bits = numbers.region_index_bits;
        let random = u64::from(self.random_24_bits());
        let index = (random << bits | u64::from(number)) & ((1 << STAG_INDEX_BITS) - 1);
        let key = SteeringTag::ZERO
            .with_index(index as u32)
            .with_key(self.random_24_bits() & 0xFF);
        Ok((number, key))
    }

    /// Takes a region or window out of the device; nothing to do if a shutdown did it already.
    /// After a refusal it is still there.
    pub(crate) fn destroy_region(&mut self, number: u32) -> Result<(), RdmaError> {
        let Some(record) = self.regions.get(&number) else {
            return Ok(());
        };
        let result = self.control.execute(DeallocateStag {
            protection_domain: record.protection_domain,
            stag_index: record.stag_index,
            is_memory_region: !record.is_window,
        });
        if let Err(error @ ControlError::Refused { .. }) = result {
            return Err(error.into());
        }
        let record = self.regions.remove(&number);
        result?;
        self.free_pages(record.and_then(|record| record.pages));
        self.give_region_number(number);
        Ok(())
    }

    pub(crate) fn give_region_number(&mut self, number: u32) {
        if let Some(numbers) = &mut self.numbers {
            numbers.regions.give(number);
        }
    }

    pub(crate) fn free_pages(&mut self, pages: Option<ringside_hmc::PageList>) {
        if let (Some(memory), Some(list)) = (&mut self.memory, pages)
            && let Err(error) = memory.page_lists.free(list)
        {
            tracing::error!(%error, "page list");
        }
    }
}

#[cfg(test)]
mod tests;
