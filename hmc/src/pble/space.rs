//! The addresses of page buffer list entries.

use ringside_spec::rdma::segments::{
    BACKING_PAGE_BYTES, FpmLocation, PBLE_BYTES, PBLE_UNIT, SEGMENT_BYTES,
};

use crate::address::FpmAddress;

/// The page buffer list entries of a function: base in FPM space, and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PbleSpace {
    base: FpmAddress,
    entries: u32,
}

impl PbleSpace {
    /// Makes the space of `entries` entries at `base`, a multiple of 512 bytes, as commit answers
    /// are.
    #[must_use]
    pub fn new(base: FpmAddress, entries: u32) -> Self {
        Self { base, entries }
    }

    /// The object's base in FPM space.
    #[must_use]
    pub fn base(&self) -> FpmAddress {
        self.base
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Address of entry `index` in FPM space; `None` if there is no such entry.
    #[must_use]
    pub fn address(&self, index: u32) -> Option<FpmAddress> {
        (index < self.entries).then(|| FpmAddress(self.base.0 + u64::from(index) * PBLE_BYTES))
    }

    /// Segment, page and offset of entry `index`; `None` if there is no such entry.
    #[must_use]
    pub fn location(&self, index: u32) -> Option<FpmLocation> {
        self.address(index).map(FpmAddress::location)
    }

    /// Index of the entry at `address`; `None` between entries and outside.
    #[must_use]
    pub fn index(&self, address: FpmAddress) -> Option<u32> {
        let offset = address.0.checked_sub(self.base.0)?;
        let index = u32::try_from(offset / PBLE_BYTES).ok()?;
        (offset % PBLE_BYTES == 0 && index < self.entries).then_some(index)
    }

    /// Returns the usable runs of entries as first index and count, one for each segment.
    ///
    /// Entries before the first 4 KiB boundary stay unused, so that a page of leaves is a page of
    /// memory. Entries at the end that make no whole unit stay unused too. Source: irdma `pble.c`,
    /// `irdma_hmc_init_pble`.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let end = self.base.0 + u64::from(self.entries) * PBLE_BYTES;
        let mut start = self.base.0.next_multiple_of(BACKING_PAGE_BYTES);
        let base = self.base.0;
        std::iter::from_fn(move || {
            if start >= end {
                return None;
            }
            let stop = end.min((start / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
            let first = u32::try_from((start - base) / PBLE_BYTES).ok()?;
            let count = u32::try_from((stop - start) / PBLE_BYTES).ok()?;
            start = stop;
            Some((first, count - count % PBLE_UNIT))
        })
        .filter(|&(_, count)| count > 0)
    }
}
