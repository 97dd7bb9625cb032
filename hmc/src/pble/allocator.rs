//! Allocation of entries.

use std::collections::{BTreeMap, BTreeSet};

use ringside_spec::rdma::segments::{PBLE_UNIT, PBLES_PER_LEAF};

use super::{ENTRIES_PER_SEGMENT, PageList, PbleError, PbleRange, PbleSpace};
use crate::address::FpmAddress;

/// The fill level of the allocator, in entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PbleUsage {
    /// Entries that can be allocated.
    pub total: u32,
    /// Entries that are free.
    pub free: u32,
    /// The longest run of free entries.
    pub longest_free: u32,
    /// Lists, roots and leaves that are allocated.
    pub ranges: usize,
}

/// Allocates page buffer list entries in units of 8, from the shortest free run that fits.
///
/// Free runs are kept by address (to join neighbours) and by length (to find the best fit), so both
/// directions take logarithmic time. Runs never span two segments.
#[derive(Debug)]
pub struct PbleAllocator {
    space: PbleSpace,
    total: u32,
    free: u32,
    /// First index to entries of each free run.
    by_address: BTreeMap<u32, u32>,
    /// Entries and first index of each free run.
    by_length: BTreeSet<(u32, u32)>,
    /// First index to entries in use of each allocated range.
    held: BTreeMap<u32, u32>,
}

impl PbleAllocator {
    /// Makes an allocator with all entries free.
    #[must_use]
    pub fn new(space: PbleSpace) -> Self {
        let by_address: BTreeMap<u32, u32> = space.runs().collect();
        let by_length = by_address
            .iter()
            .map(|(&first, &count)| (count, first))
            .collect();
        let total = by_address.values().sum();
        Self {
            space,
            total,
            free: total,
            by_address,
            by_length,
            held: BTreeMap::new(),
        }
    }

    /// The addresses of the entries.
    #[must_use]
    pub fn space(&self) -> PbleSpace {
        self.space
    }

    /// The current fill level.
    #[must_use]
    pub fn usage(&self) -> PbleUsage {
        PbleUsage {
            total: self.total,
            free: self.free,
            longest_free: self.longest_free(),
            ranges: self.held.len(),
        }
    }

    /// Allocates entries for `pages` pages of a memory region: one level up to 512, two levels
    /// above.
    ///
    /// Errors: see [`PbleError`]; nothing stays allocated after an error.
    pub fn allocate(&mut self, pages: u64) -> Result<PageList, PbleError> {
        if pages <= u64::from(PBLES_PER_LEAF) {
            return self.allocate_one_level(pages);
        }
        let leaves = pages.div_ceil(u64::from(PBLES_PER_LEAF));
        let needed = pages + leaves;
        let (Ok(root_entries), true) = (u32::try_from(leaves), needed <= u64::from(self.total))
        else {
            return Err(PbleError::TooLarge {
                pages,
                needed,
                total: self.total,
            });
        };
        let root = self.take(root_entries)?;
        let mut taken = Vec::with_capacity(root_entries as usize);
        let mut rest = pages;
        while rest > 0 {
            let entries = rest.min(u64::from(PBLES_PER_LEAF));
            match self.take(entries as u32) {
                Ok(leaf) => taken.push(leaf),
                Err(error) => {
                    self.free(PageList::TwoLevels {
                        root,
                        leaves: taken,
                    })?;
                    return Err(error);
                }
            }
            rest -= entries;
        }
        Ok(PageList::TwoLevels {
            root,
            leaves: taken,
        })
    }

    /// Allocates entries for `pages` pages in one run, for a queue's ring: rings cannot have two
    /// levels.
    ///
    /// Errors: see [`PbleError`]; nothing stays allocated after an error.
    pub fn allocate_one_level(&mut self, pages: u64) -> Result<PageList, PbleError> {
        if pages == 0 {
            return Err(PbleError::Empty);
        }
        if pages > u64::from(ENTRIES_PER_SEGMENT) {
            return Err(PbleError::TooLongForOneLevel {
                pages,
                limit: ENTRIES_PER_SEGMENT,
            });
        }
        if pages > u64::from(self.total) {
            return Err(PbleError::TooLarge {
                pages,
                needed: pages,
                total: self.total,
            });
        }
        Ok(PageList::OneLevel(self.take(pages as u32)?))
    }

    /// Frees a list. The device must no longer use it.
    ///
    /// Errors: [`PbleError::NotAllocated`] for the first range that is not allocated; the other
    /// ranges of the list are freed nevertheless.
    pub fn free(&mut self, list: PageList) -> Result<(), PbleError> {
        let (root, leaves) = match list {
            PageList::OneLevel(range) => (range, Vec::new()),
            PageList::TwoLevels { root, leaves } => (root, leaves),
        };
        let mut result = self.give_back(&root);
        for leaf in &leaves {
            let given = self.give_back(leaf);
            result = result.and(given);
        }
        result
    }

    fn longest_free(&self) -> u32 {
        self.by_length.last().map_or(0, |&(count, _)| count)
    }

    /// Takes one run of `entries` (at least 1) from the shortest free run that holds it.
    fn take(&mut self, entries: u32) -> Result<PbleRange, PbleError> {
        let whole = rounded(entries);
        let Some(&(count, first)) = self.by_length.range((whole, 0)..).next() else {
            return Err(PbleError::Exhausted {
                entries,
                free: self.free,
                longest: self.longest_free(),
                total: self.total,
            });
        };
        self.remove_run(first, count);
        if count > whole {
            self.insert_run(first + whole, count - whole);
        }
        self.free -= whole;
        self.held.insert(first, entries);
        Ok(PbleRange {
            first_index: first,
            entries,
        })
    }

    fn give_back(&mut self, range: &PbleRange) -> Result<(), PbleError> {
        let &PbleRange {
            first_index,
            entries,
        } = range;
        if self.held.get(&first_index) != Some(&entries) {
            return Err(PbleError::NotAllocated {
                first_index,
                entries,
            });
        }
        self.held.remove(&first_index);
        let mut first = first_index;
        let mut count = rounded(entries);
        self.free += count;
        let before = self
            .by_address
            .range(..first)
            .next_back()
            .map(|(&at, &len)| (at, len));
        if let Some((at, len)) = before
            && at + len == first
            && !self.starts_segment(first)
        {
            self.remove_run(at, len);
            first = at;
            count += len;
        }
        let end = first + count;
        if let Some(&len) = self.by_address.get(&end)
            && !self.starts_segment(end)
        {
            self.remove_run(end, len);
            count += len;
        }
        self.insert_run(first, count);
        Ok(())
    }

    fn starts_segment(&self, index: u32) -> bool {
        self.space
            .address(index)
            .is_some_and(FpmAddress::starts_segment)
    }

    fn insert_run(&mut self, first: u32, count: u32) {
        self.by_address.insert(first, count);
        self.by_length.insert((count, first));
    }

    fn remove_run(&mut self, first: u32, count: u32) {
        self.by_address.remove(&first);
        self.by_length.remove(&(count, first));
    }
}

/// Rounds `entries`, at most a segment's, up to whole units.
fn rounded(entries: u32) -> u32 {
    entries.next_multiple_of(PBLE_UNIT)
}
