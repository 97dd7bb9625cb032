//! Memory regions: memory that the device may read and write, and peers as far as they are let.
//!
//! A region owns its memory: it cannot be freed while the device may still use it. Deregistering
//! gives the memory back once the device has confirmed; if it doesn't, the memory is kept until the
//! shutdown, and that is said.

use super::ProtectionDomain;
use super::RdmaError;
use super::records::RegionRecord;
use ringside_bus::DmaBuffer;
use ringside_hmc::contiguous_start;
use ringside_qp::Fragment;
use ringside_spec::rdma::commands::{
    AccessRights, DeallocateStag, PageList, PageSize, RegisterMemoryRegion, SteeringTag,
};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{MAX_REGION_BYTES, STAG_INDEX_BITS};
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
    /// All of it.
    pub const ALL: Self = Self(7);

    /// Whether all that `other` allows is allowed here too.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn rights(self) -> AccessRights {
        AccessRights::ZERO
            .with_local_read(true)
            .with_local_write(self.contains(Self::LOCAL_WRITE))
            .with_remote_read(self.contains(Self::REMOTE_READ))
            .with_remote_write(self.contains(Self::REMOTE_WRITE))
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
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{bytes} bytes of memory are kept until the shutdown, because the device did not confirm that it has let go of them: {error}"
)]
pub struct DeregisterError {
    /// Why.
    #[source]
    pub error: RdmaError,
    /// Bytes kept.
    pub bytes: usize,
}

/// A registered memory region. `Send` and `Sync`; dropping it deregisters.
#[derive(Debug)]
pub struct MemoryRegion {
    domain: ProtectionDomain,
    /// number of the table entry
    number: u32,
    key: SteeringTag,
    /// address of the first byte, as requests name it
    address: u64,
    length: usize,
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
        let plan = match Pages::of(&buffers) {
            Ok(plan) => plan,
            Err(error) => return Err(RegisterError { error, buffers }),
        };
        match self.register_pages(&plan, access) {
            Ok((number, key)) => Ok(MemoryRegion {
                domain: self.clone(),
                number,
                key,
                address: plan.address,
                length: plan.length as usize,
                buffers,
            }),
            Err((error, device_may_use)) => {
                let buffers = if device_may_use {
                    buffers.into_iter().for_each(DmaBuffer::leak);
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
    ) -> Result<(u32, SteeringTag), (RdmaError, bool)> {
        let harmless = |error: RdmaError| (error, false);
        let mut guard = self.engine().open_state().map_err(harmless)?;
        let state = &mut *guard;
        let numbers = state.numbers.as_mut().ok_or((RdmaError::ShutDown, false))?;
        let number = numbers.regions.take(&mut state.random).map_err(harmless)?;
        let bits = numbers.region_index_bits;
        let random = u64::from(state.random_24_bits());
        let index = (random << bits | u64::from(number)) & ((1 << STAG_INDEX_BITS) - 1);
        let key = SteeringTag::ZERO
            .with_index(index as u32)
            .with_key(state.random_24_bits() & 0xFF);
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
        let command = plan.command(self.number(), key, access, pages.as_ref());
        match state.control.execute(command) {
            Ok(_) => {
                let record = RegionRecord {
                    stag_index: index as u32,
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

/// How the memory of a region is described to the device.
#[derive(Debug, PartialEq, Eq)]
struct Pages {
    /// address of the first byte, as requests name it: its I/O virtual address
    address: u64,
    length: u64,
    size: PageSize,
    /// first page, when all follow each other
    start: u64,
    /// every page, when they don't
    list: Vec<u64>,
}

impl Pages {
    fn of(buffers: &[DmaBuffer]) -> Result<Self, RdmaError> {
        let pieces: Vec<(u64, u64)> = buffers
            .iter()
            .map(|buffer| (buffer.iova().0, buffer.length() as u64))
            .collect();
        Self::of_pieces(&pieces)
    }

    /// Of pieces of address and length.
    fn of_pieces(pieces: &[(u64, u64)]) -> Result<Self, RdmaError> {
        let length: u64 = pieces.iter().map(|(_, length)| length).sum();
        let Some(&(address, _)) = pieces.first().filter(|_| length > 0) else {
            return Err(RdmaError::OutOfRange {
                what: "the length of a memory region",
                given: length,
                least: 1,
                most: MAX_REGION_BYTES,
            });
        };
        if length > MAX_REGION_BYTES {
            return Err(RdmaError::OutOfRange {
                what: "the length of a memory region",
                given: length,
                least: 1,
                most: MAX_REGION_BYTES,
            });
        }
        check_seams(pieces)?;
        let follow = pieces
            .windows(2)
            .all(|pair| matches!(pair, &[(at, length), (next, _)] if at + length == next));
        if follow {
            let small = 4096;
            return Ok(Self {
                address,
                length,
                size: PageSize::FourKib,
                start: address / small * small,
                list: Vec::new(),
            });
        }
        let (size, bytes) = page_size(pieces);
        let list: Vec<u64> = pieces
            .iter()
            .flat_map(|&(at, length)| (at / bytes * bytes..at + length).step_by(bytes as usize))
            .collect();
        let start = contiguous_start(&list, bytes).unwrap_or(0);
        Ok(Self {
            address,
            length,
            size,
            start,
            list,
        })
    }

    fn command(
        &self,
        protection_domain: u32,
        key: SteeringTag,
        access: Access,
        pages: Option<&ringside_hmc::PageList>,
    ) -> RegisterMemoryRegion {
        RegisterMemoryRegion {
            virtual_address: self.address,
            length_bytes: self.length,
            protection_domain,
            stag_key: key.key() as u8,
            stag_index: key.index(),
            first_block_address: if pages.is_none() { self.start } else { 0 },
            first_pble_index: pages.map_or(0, ringside_hmc::PageList::first_index),
            is_memory_region: true,
            pble_levels_code: match pages {
                None => PageList::Contiguous,
                Some(ringside_hmc::PageList::OneLevel(_)) => PageList::OneLevel,
                Some(ringside_hmc::PageList::TwoLevels { .. }) => PageList::TwoLevels,
            },
            page_size: self.size,
            access_rights: access.rights(),
            remote_access: access.is_remote(),
            va_based: true,
            ..RegisterMemoryRegion::ZERO
        }
    }
}

/// Every seam between two pieces must be at a page.
fn check_seams(pieces: &[(u64, u64)]) -> Result<(), RdmaError> {
    let page = |address: u64| address.is_multiple_of(4096);
    for (index, &(address, length)) in pieces.iter().enumerate() {
        let problem = if index > 0 && !page(address) {
            "begin at a page"
        } else if index + 1 < pieces.len() && !page(address + length) {
            "end at a page"
        } else {
            continue;
        };
        return Err(RdmaError::Misaligned {
            index,
            address,
            length: length as usize,
            problem,
        });
    }
    Ok(())
}

/// The largest page that every seam agrees with.
fn page_size(pieces: &[(u64, u64)]) -> (PageSize, u64) {
    let sizes = [PageSize::OneGib, PageSize::TwoMib, PageSize::FourKib];
    let fits = |bytes: u64| {
        pieces.iter().enumerate().all(|(index, &(at, length))| {
            (index == 0 || at.is_multiple_of(bytes))
                && (index + 1 == pieces.len() || (at + length).is_multiple_of(bytes))
        })
    };
    sizes
        .into_iter()
        .filter_map(|size| Some((size, size.bytes()?)))
        .find(|&(_, bytes)| fits(bytes))
        .unwrap_or((PageSize::FourKib, 4096))
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

    /// Deregisters, and gives the memory back.
    ///
    /// Errors: [`DeregisterError`]; the memory is kept until the shutdown.
    pub fn deregister(mut self) -> Result<Vec<DmaBuffer>, DeregisterError> {
        self.release()
    }

    fn release(&mut self) -> Result<Vec<DmaBuffer>, DeregisterError> {
        let buffers = std::mem::take(&mut self.buffers);
        if buffers.is_empty() {
            return Ok(buffers);
        }
        let result = self.domain.engine().state().destroy_region(self.number);
        match result {
            Ok(()) => Ok(buffers),
            Err(error) => {
                let bytes = buffers.iter().map(DmaBuffer::length).sum();
                buffers.into_iter().for_each(DmaBuffer::leak);
                Err(DeregisterError { error, bytes })
            }
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::error!(%error, "memory region dropped");
        }
    }
}

impl super::engine::EngineState {
    /// Deregisters a region; nothing to do if a shutdown did it already.
    pub(crate) fn destroy_region(&mut self, number: u32) -> Result<(), RdmaError> {
        let Some(record) = self.regions.remove(&number) else {
            return Ok(());
        };
        self.control.execute(DeallocateStag {
            protection_domain: record.protection_domain,
            stag_index: record.stag_index,
            is_memory_region: true,
        })?;
        self.free_pages(record.pages);
        self.give_region_number(number);
        Ok(())
    }

    fn give_region_number(&mut self, number: u32) {
        if let Some(numbers) = &mut self.numbers {
            numbers.regions.give(number);
        }
    }

    fn free_pages(&mut self, pages: Option<ringside_hmc::PageList>) {
        if let (Some(memory), Some(list)) = (&mut self.memory, pages)
            && let Err(error) = memory.page_lists.free(list)
        {
            tracing::error!(%error, "page list");
        }
    }
}

#[cfg(test)]
mod tests;
