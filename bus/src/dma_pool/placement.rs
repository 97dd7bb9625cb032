//! The placement of blocks and buffers: at unpredictable addresses.
//!
//! An address says nothing of what was allocated before, and one bring-up's addresses say nothing of
//! the next one's. Around each block nothing is mapped, as long as the address space has the room:
//! what overruns a block meets the IOMMU, not its neighbour.

use crate::ranges::{Draw, Ranges};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;

/// The source of random places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The system's randomness.
    #[default]
    Unpredictable,
    /// This seed: the same requests in the same order get the same addresses. For simulation and
    /// comparison, not for service.
    Seeded(u64),
}

/// Addresses below this are never used: a zero address in a descriptor is then always a mistake, and
/// so is one of which the upper half got lost.
const FIRST: u64 = 1 << 32;

/// Nor are these and above: the page tables of most IOMMUs end here.
const END: u64 = 1 << 48;

/// Blocks lie in this part of the address space, as far as it has room for them: the rest stays in
/// one piece for large ones.
const PART: u64 = 8;

/// An object that takes more than one part in so many of the address space is large ...
const LARGE: u64 = 256;

/// ... and leaves at most one part in so many free before it.
const PART_OF_LARGE: u64 = 64;

/// Offsets in a block are drawn in steps of this: a page of the device's page lists.
const STEP: u64 = 4096;

/// The address space of one function.
pub(super) struct Places {
    free: Ranges,
    /// bytes of address space
    span: u64,
    random: StdRng,
}

impl Places {
    /// All that the IOMMU accepts, `ranges`, free.
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

    /// An address for a block of `length` bytes, a multiple of `alignment` (a power of two), with
    /// `gap` bytes around it as long as there is such a place; `None` if it fits nowhere.
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

    /// Gives back what [`Places::take`] gave.
    pub(super) fn give(&mut self, range: Range<u64>) {
        self.free.give(range);
    }

    /// The place of the first buffer in a new block, a multiple of `alignment` (a power of two), if
    /// it
    /// leaves `room` bytes free.
    pub(super) fn first_offset(&mut self, room: u64, alignment: u64) -> u64 {
        let step = alignment.max(STEP);
        self.random.random_range(0..=room / step) * step
    }
}
