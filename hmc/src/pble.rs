//! Page buffer lists: which entries hold the page addresses of a memory region or a ring.
//!
//! A page buffer list entry (PBLE) is 8 bytes in FPM space that the CPU writes: the I/O virtual
//! address of one page. A list has one level (its entries are the pages) or two (a root whose
//! entries are the *indexes* of leaves, each leaf holding up to 512 pages). This module allocates
//! entries to lists; it touches no memory. [`PageList::entries`] gives the values to write and
//! [`PbleSpace::address`] their addresses.
//!
//! Source: irdma `pble.c`, `irdma_get_pble`, `irdma_free_pble`; e810-rdma reference 2.7.

mod allocator;
mod list;
mod space;

pub use allocator::{PbleAllocator, PbleUsage};
pub use list::{PageList, contiguous_start};
pub use space::PbleSpace;

use ringside_spec::rdma::segments::{PBLE_BYTES, SEGMENT_BYTES};
use thiserror::Error;

/// Entries that one 2 MiB segment holds; no list crosses from one segment into the next.
pub const ENTRIES_PER_SEGMENT: u32 = (SEGMENT_BYTES / PBLE_BYTES) as u32;

/// Entries that are allocated together: a list of one level, a root or a leaf.
///
/// Not `Clone`: the owner of the value owns the entries, and frees them by value.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "entries that are dropped without being freed stay allocated until the allocator is created again"]
pub struct PbleRange {
    first_index: u32,
    entries: u32,
}

impl PbleRange {
    /// Index of the first entry, counted from the PBLE object's base; a multiple of 8.
    #[must_use]
    pub fn first_index(&self) -> u32 {
        self.first_index
    }

    /// Number of entries in use, at least 1.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The indexes in use.
    #[must_use]
    pub fn indexes(&self) -> std::ops::Range<u32> {
        self.first_index..self.first_index + self.entries
    }
}

/// Reasons why no entries are available for a list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PbleError {
    /// A list without pages: a caller's mistake.
    #[error("a page list needs at least one page")]
    Empty,
    /// More pages than any arrangement of this device's entries can hold.
    #[error(
        "{pages} pages need {needed} page buffer list entries, the device has {total}: use larger \
         pages, register less, or raise rdma.pbles in the configuration"
    )]
    TooLarge {
        /// Pages to be listed.
        pages: u64,
        /// Entries needed for them.
        needed: u64,
        /// All entries of the device.
        total: u32,
    },
    /// A list of one level that is longer than a segment: a caller's mistake.
    #[error("a flat list of {pages} pages crosses segments; at most {limit} fit: use two levels")]
    TooLongForOneLevel {
        /// Pages to be listed.
        pages: u64,
        /// The most that one level holds.
        limit: u32,
    },
    /// Other lists hold the entries: free a list and try again, or configure more entries.
    #[error(
        "no room for a page list of {entries} entries ({free} of {total} free, the longest run \
         has {longest}): deregister memory, or raise rdma.pbles in the configuration"
    )]
    Exhausted {
        /// Entries requested in one run.
        entries: u32,
        /// All free entries.
        free: u32,
        /// The longest run of free entries.
        longest: u32,
        /// All entries of the device.
        total: u32,
    },
    /// The range was not allocated by this allocator, or was freed already: a bug of the caller.
    /// Nothing is freed.
    #[error("page buffer list entries {first_index}..+{entries} were not allocated here")]
    NotAllocated {
        /// First entry of the range.
        first_index: u32,
        /// Entries of the range.
        entries: u32,
    },
    /// The number of addresses differs from the number of pages: a caller's mistake.
    #[error("{addresses} page addresses for a list of {pages} pages")]
    WrongNumberOfAddresses {
        /// Addresses given.
        addresses: u64,
        /// Pages of the list.
        pages: u64,
    },
}

#[cfg(test)]
mod tests;
