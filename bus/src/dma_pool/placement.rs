//! The placement of blocks and buffers at unpredictable addresses.
//!
//! An address reveals nothing about earlier allocations or other bring-ups. As long as the address
//! space has room, nothing is mapped next to a block: an access past its end is refused by the
//! IOMMU and does not reach another block.

use crate::ranges::{Draw, Ranges};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// The source of random addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The operating system's random numbers.
    #[default]
    Unpredictable,
    /// A fixed seed: the same requests in the same order get the same addresses. For simulation and
    /// comparison, not for production.
    Seeded(u64),
}

/// Addresses below this are never used: a zero address in a descriptor is then always a mistake,
/// and so is one that lost its upper half.
const FIRST: u64 = 1 << 32;

/// Addresses from here on are never used: the page tables of most IOMMUs end here.
const END: u64 = 1 << 48;

/// Blocks lie in this fraction of the address space, as far as it has room for them: the rest stays
/// contiguous for large objects.
const PART: u64 = 8;

/// An object larger than this fraction of the address space counts as large.
const LARGE: u64 = 256;

/// A large object leaves at most this fraction of the address space free before it.
const PART_OF_LARGE: u64 = 64;

/// Step of random offsets in a block: a page of the device's page lists.
const STEP: u64 = 4096;

/// The address space of one function.
pub(super) struct Places {
    free: Ranges,
    /// bytes of address space
    span: u64,
    random: StdRng,
}

impl Places {
    /// Makes the address space `ranges`, all free, which the IOMMU accepts.
    pub(super) fn new(ranges: impl IntoIterator<Item = Range<u64>>, placement: Placement) -> Self {
        let usable = |range: Range<u64>| range.start.max(FIRST)..range.end.min(END);
        let free = Ranges::new(ranges.into_iter().map(usable));
        let random = match placement {
            Placement::Unpredictable => StdRng::from_os_rng(),
            Placement::Seeded(seed) => StdRng::seed_from_u64(seed),
        };
        Self {
            span: free.free_bytes(),
            free,
            random,
        }
    }

    /// Returns an address for a block of `length` bytes, a multiple of `alignment` (a power of
    /// two), with `gap` free bytes around it if there is such a place; `None` if it fits nowhere.
    pub(super) fn take(&mut self, length: u64, alignment: u64, gap: u64) -> Option<u64> {
        let part = match length > self.span / LARGE {
            true => PART_OF_LARGE,
            false => PART,
        };
        let wanted = Draw {
            length,
            alignment,
            gap,
            places: (self.span / part / alignment).max(1),
        };
        let drawn = self.free.draw(&wanted, &mut self.random);
        drawn.or_else(|| self.free.take(length, alignment))
    }

    /// Frees a range that [`Places::take`] returned.
    pub(super) fn give(&mut self, range: Range<u64>) {
        self.free.give(range);
    }

    /// Returns the offset of the first buffer in a new block, a multiple of `alignment` (a power of
    /// two). `room` is the number of bytes that the block can leave free.
    pub(super) fn first_offset(&mut self, room: u64, alignment: u64) -> u64 {
        let step = alignment.max(STEP);
        self.random.random_range(0..=room / step) * step
    }
}
