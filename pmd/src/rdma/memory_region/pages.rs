//! The description of a region's memory for the device: consecutive pages, or a list.

use super::{Access, Base};
use crate::rdma::RdmaError;
use ringside_bus::{DmaBuffer, DmaPool};
use ringside_hmc::contiguous_start;
use ringside_spec::rdma::commands::{PageList, PageSize, RegisterMemoryRegion, SteeringTag};
use ringside_spec::rdma::limits::MAX_REGION_BYTES;
use std::sync::Arc;

/// Bytes of the smallest page.
const SMALLEST_PAGE: u64 = 4096;

/// The description of a region's memory for the device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// address of the first byte, as requests name it: its I/O virtual address
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(super) size: PageSize,
    /// first page, when all follow each other
    pub(super) start: u64,
    /// every page, when they don't
    pub(super) list: Vec<u64>,
}

impl Pages {
    /// The pages of buffers of `pool`. Errors: a buffer of another device's memory among others.
    pub(crate) fn of(buffers: &[DmaBuffer], pool: &Arc<DmaPool>) -> Result<Self, RdmaError> {
        if buffers.iter().any(|buffer| !buffer.is_of(pool)) {
            return Err(RdmaError::ForeignMemory);
        }
        let pieces: Vec<(u64, u64)> = buffers
            .iter()
            .map(|buffer| (buffer.iova().0, buffer.length() as u64))
            .collect();
        Self::of_pieces(&pieces)
    }

    /// The pages of pieces of address and length.
    pub(super) fn of_pieces(pieces: &[(u64, u64)]) -> Result<Self, RdmaError> {
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
            return Ok(Self {
                address,
                length,
                size: PageSize::FourKib,
                start: address / SMALLEST_PAGE * SMALLEST_PAGE,
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

    /// True if requests can name the memory like this: the device takes the place in the first page
    /// from the address, and addresses do not wrap.
    pub(super) fn check_base(self, base: Base) -> Result<Self, RdmaError> {
        let Base::Named(address) = base else {
            return Ok(self);
        };
        let page = self.size.bytes().unwrap_or(SMALLEST_PAGE);
        let most = u64::MAX - self.length;
        if address > most {
            return Err(RdmaError::OutOfRange {
                what: "the address by which requests name the memory (its end is beyond 64 bits)",
                given: address,
                least: 0,
                most,
            });
        }
        if address % page != self.address % page {
            return Err(RdmaError::Misnamed {
                address,
                page_bytes: page,
                offset: self.address % page,
            });
        }
        Ok(self)
    }

    /// Every page of 4 KiB of `buffers`, which this describes.
    pub(crate) fn small_pages(&self, buffers: &[DmaBuffer]) -> Vec<u64> {
        buffers
            .iter()
            .flat_map(|buffer| {
                let (at, length) = (buffer.iova().0, buffer.length() as u64);
                (at / SMALLEST_PAGE * SMALLEST_PAGE..at + length).step_by(SMALLEST_PAGE as usize)
            })
            .collect()
    }

    pub(super) fn command(
        &self,
        protection_domain: u32,
        key: SteeringTag,
        access: Access,
        base: Base,
        pages: Option<&ringside_hmc::PageList>,
    ) -> RegisterMemoryRegion {
        let page_bytes = self.size.bytes().unwrap_or(SMALLEST_PAGE);
        RegisterMemoryRegion {
            virtual_address: match base {
                Base::Address => self.address,
                Base::Zero => self.address % page_bytes,
                Base::Named(address) => address,
            },
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
            va_based: base != Base::Zero,
            ..RegisterMemoryRegion::ZERO
        }
    }
}

/// Every seam between two pieces must be at a page.
fn check_seams(pieces: &[(u64, u64)]) -> Result<(), RdmaError> {
    let page = |address: u64| address.is_multiple_of(SMALLEST_PAGE);
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
        .unwrap_or((PageSize::FourKib, SMALLEST_PAGE))
}
