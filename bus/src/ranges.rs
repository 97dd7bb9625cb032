//! A first-fit allocator of address ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free ranges of an address space, merged when neighbours come back.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// start -> end, disjoint, never touching
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// All of `ranges` free.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut made = Self::default();
        for range in ranges {
            made.give(range);
        }
        made
    }

    /// Takes the first free `length` bytes whose start is a multiple of `alignment` (a power of
    /// two); `None` if there are none.
    pub fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        debug_assert!(alignment.is_power_of_two());
        let (start, end, at) = self.free.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at.checked_add(length)? <= end).then_some((start, end, at))
        })?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if at + length < end {
            self.free.insert(at + length, end);
        }
        Some(at)
    }

    /// Gives a range back. Giving what is free already is a bug of the caller and asserted.
    pub fn give(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &before_end)) = self.free.range(..=start).next_back() {
            debug_assert!(before_end <= start, "range given twice");
            if before_end >= start {
                self.free.remove(&before);
                start = before;
                end = end.max(before_end);
            }
        }
        while let Some((&after, &after_end)) = self.free.range(start..).next() {
            debug_assert!(after >= range.end, "range given twice");
            if after > end {
                break;
            }
            self.free.remove(&after);
            end = end.max(after_end);
        }
        self.free.insert(start, end);
    }

    /// Bytes that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_merges_into_what_was() {
        let mut ranges = Ranges::new(std::iter::once(0x1000..0x10000));
        let taken: Vec<_> = (0..5)
            .map(|_| ranges.take(0x2000, 0x1000).unwrap())
            .collect();
        assert_eq!(taken, [0x1000, 0x3000, 0x5000, 0x7000, 0x9000]);
        for at in [taken[1], taken[3], taken[0], taken[4], taken[2]] {
            ranges.give(at..at + 0x2000);
        }
        assert_eq!(
            ranges.free.iter().collect::<Vec<_>>(),
            [(&0x1000, &0x10000)]
        );
    }

    #[test]
    fn alignment_skips_and_returns_the_gap() {
        let mut ranges = Ranges::new(std::iter::once(0x1000..0x9000));
        assert_eq!(ranges.take(0x1000, 0x4000), Some(0x4000));
        assert_eq!(ranges.take(0x3000, 0x1000), Some(0x1000));
        assert_eq!(ranges.take(0x5000, 0x1000), None);
        assert_eq!(ranges.free_bytes(), 0x4000);
    }
}
