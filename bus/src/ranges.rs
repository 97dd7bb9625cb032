//! An allocator of address ranges: first fit, next fit, or at random.

use rand::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

/// Places that [`Ranges::draw`] tries before it looks at all free ranges.
const GUESSES: u32 = 16;

/// The requirements of [`Ranges::draw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Bytes to take.
    pub length: u64,
    /// The alignment of the first byte's address: a power of two.
    pub alignment: u64,
    /// Bytes that must be free before and after.
    pub gap: u64,
    /// The most places to choose from; at least 1.
    pub places: u64,
}

impl Draw {
    /// Returns the first place in the free range `start..end`, and the number of places.
    fn places_in(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        debug_assert!(self.alignment.is_power_of_two());
        let first = start.checked_add(self.gap)?;
        let first = first.checked_next_multiple_of(self.alignment)?;
        let last = end.checked_sub(self.gap)?.checked_sub(self.length)?;
        let room = last.checked_sub(first)?;
        Some((first, room / self.alignment + 1))
    }
}

/// Free ranges of an address space; adjacent ranges are merged.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// start -> end, disjoint, never touching
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Makes an allocator with all of `ranges` free.
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
        self.take_from(0, length, alignment)
    }

    /// As [`Ranges::take`], among the free ranges at `from` and above.
    pub fn take_from(&mut self, from: u64, length: u64, alignment: u64) -> Option<u64> {
        debug_assert!(alignment.is_power_of_two());
        let around = self
            .free
            .range(..=from)
            .next_back()
            .map(|(start, _)| *start);
        let mut fits = self.free.range(around.unwrap_or(from)..);
        let (start, at) = fits.find_map(|(&start, &end)| {
            let at = start.max(from).checked_next_multiple_of(alignment)?;
            (at.checked_add(length)? <= end).then_some((start, at))
        })?;
        self.carve(start, at, length);
        Some(at)
    }

    /// Takes `length` bytes at a multiple of `alignment`, with `gap` free bytes on both sides.
    /// `None` if there is no such place.
    ///
    /// Chooses with equal probability among the free ones of the first `places` places from the
    /// lowest free byte on; if those are almost all taken, among the first `places` free ones. The
    /// latter takes time in proportion to the number of free ranges.
    pub fn draw(&mut self, wanted: &Draw, random: &mut impl Rng) -> Option<u64> {
        let (start, at) = self
            .guess(wanted, random)
            .or_else(|| self.choose(wanted, random))?;
        self.carve(start, at, wanted.length);
        Some(at)
    }

    /// A place by chance, which is free, and the start of its free range; `None` after some that
    /// are not.
    fn guess(&self, wanted: &Draw, random: &mut impl Rng) -> Option<(u64, u64)> {
        let (&lowest, _) = self.free.first_key_value()?;
        let first = lowest.checked_add(wanted.gap)?;
        let first = first.checked_next_multiple_of(wanted.alignment)?;
        (0..GUESSES).find_map(|_| {
            let steps = random.random_range(0..wanted.places.max(1));
            let at = first.checked_add(steps.checked_mul(wanted.alignment)?)?;
            let (&start, &end) = self.free.range(..=at).next_back()?;
            let past = at.checked_add(wanted.length)?.checked_add(wanted.gap)?;
            (at - start >= wanted.gap && past <= end).then_some((start, at))
        })
    }

    /// One of the first `places` free places, and the start of its free range.
    fn choose(&self, wanted: &Draw, random: &mut impl Rng) -> Option<(u64, u64)> {
        let found = self
            .free
            .iter()
            .filter_map(|(&start, &end)| wanted.places_in(start, end));
        let count = found.map(|(_, count)| count).fold(0, u64::saturating_add);
        let count = count.min(wanted.places.max(1));
        let mut skip = (count > 0).then(|| random.random_range(0..count))?;
        self.free.iter().find_map(|(&start, &end)| {
            let (first, count) = wanted.places_in(start, end)?;
            if skip >= count {
                skip -= count;
                return None;
            }
            Some((start, first + skip * wanted.alignment))
        })
    }

    /// Takes `length` bytes at `at` out of the free range that begins at `start` and holds them.
    fn carve(&mut self, start: u64, at: u64, length: u64) {
        let Some(end) = self.free.remove(&start) else {
            return;
        };
        if start < at {
            self.free.insert(start, at);
        }
        if at + length < end {
            self.free.insert(at + length, end);
        }
    }

    /// Frees a range. Freeing a free range is a bug of the caller and is asserted.
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
mod tests;
