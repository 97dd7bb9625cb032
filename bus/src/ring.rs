//! Rings and tables whose size is checked when they are made, so that an access needs no check.
//!
//! The number of places of a ring is a power of two. An index is masked to the ring, or comes from
//! a cursor that never leaves the ring. [`ZeroedRing`] proves that memory has the right size and is
//! zero; a ring can only be made from it. Each unsafe block below names the construction that it
//! relies on.
#![allow(unsafe_code)] // reads and writes places without a bounds check

use crate::memory::{Memory, Words};
use crate::prefetch::prefetch_line;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory cannot hold a ring: its size is not a power of two of places, or outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words} words cannot hold a ring: give a power of two of places within its limits")]
pub struct NotARing {
    /// Words given.
    pub words: usize,
}

/// Places of `N` words each, all zero, which no device writes yet. Their number is a power of two.
///
/// Rings start from this: a device that does not know the memory yet finds no valid bit in it.
#[derive(Debug)]
pub struct ZeroedRing<const N: usize>(Words);

impl<const N: usize> ZeroedRing<N> {
    /// Fills `words` with zeros. Fails if they are not a power of two of places, or if the count of
    /// places is not in `places`.
    pub fn new(words: Words, places: RangeInclusive<usize>) -> Result<Self, NotARing> {
        let count = words.count() / N;
        let whole = words.count().is_multiple_of(N) && count.is_power_of_two();
        if !whole || !places.contains(&count) {
            let words = words.count();
            return Err(NotARing { words });
        }
        words.fill(0);
        Ok(Self(words))
    }

    /// Returns the number of places of the ring.
    #[must_use]
    pub fn places(&self) -> usize {
        self.0.count() / N
    }
}

/// A ring in memory that the device accesses too: a power of two of places of `N` words.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    first: NonNull<[AtomicU64; N]>,
    /// Places, less one.
    mask: usize,
    _memory: Memory,
}

// SAFETY: the places are atomics in memory that `_memory` keeps mapped, and that is `Send + Sync`.
unsafe impl<const N: usize> Send for Ring<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Ring<N> {}

impl<const N: usize> From<ZeroedRing<N>> for Ring<N> {
    fn from(ring: ZeroedRing<N>) -> Self {
        Self {
            mask: ring.places() - 1,
            first: ring.0.first().cast(),
            _memory: ring.0.memory().clone(),
        }
    }
}

impl<const N: usize> Ring<N> {
    /// The place at `index`, masked to the ring.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, index: usize) -> &[AtomicU64; N] {
        // SAFETY: 1. in bounds: `ZeroedRing::new` counted `mask + 1` places, and nothing cut by
        //            the mask is above it. 2. aligned: words are multiples of 8 of a page.
        //         3. mapped: `_memory` owns the mapping. 4. shared: only atomics are handed out.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }

    /// The places from `index`, masked to the ring, to the end of the ring.
    #[inline(always)]
    #[must_use]
    pub fn run(&self, index: usize) -> &[[AtomicU64; N]] {
        let index = index & self.mask;
        // SAFETY: `index` is at most `mask`, so that many places are left; else as in `place`.
        unsafe { std::slice::from_raw_parts(self.first.add(index).as_ptr(), self.mask + 1 - index) }
    }

    /// Places of the ring.
    #[inline(always)]
    #[must_use]
    pub fn places(&self) -> usize {
        self.mask + 1
    }
}

/// A ring that the device writes and software reads, one place after the other, without end.
#[derive(Debug)]
pub struct ReadRing<const N: usize> {
    first: NonNull<[AtomicU64; N]>,
    /// The next place, in bytes from the first. Always below `end`, and a multiple of a place.
    next: usize,
    /// Bytes of all places: a power of two of them.
    end: usize,
    ring: Ring<N>,
}

// SAFETY: the places are atomics that `ring` keeps, which is `Send + Sync`.
unsafe impl<const N: usize> Send for ReadRing<N> {}
// SAFETY: as above; the cursor moves by `&mut self` only.
unsafe impl<const N: usize> Sync for ReadRing<N> {}

impl<const N: usize> From<ZeroedRing<N>> for ReadRing<N> {
    fn from(ring: ZeroedRing<N>) -> Self {
        let ring = Ring::from(ring);
        Self {
            first: ring.first,
            next: 0,
            end: ring.places() * Self::PLACE_BYTES,
            ring,
        }
    }
}

impl<const N: usize> ReadRing<N> {
    const PLACE_BYTES: usize = {
        assert!(N.is_power_of_two(), "the ring's bytes are a power of two");
        N * size_of::<AtomicU64>()
    };

    /// The next place.
    #[inline(always)]
    #[must_use]
    pub fn next(&self) -> &[AtomicU64; N] {
        // SAFETY: `next` is below `end`, so inside the places that `ring` keeps, and a multiple of
        // a place's bytes; else as in `Ring::place`.
        unsafe { self.first.byte_add(self.next).as_ref() }
    }

    /// The place after the next one.
    #[must_use]
    pub fn second(&self) -> &[AtomicU64; N] {
        self.ahead(1)
    }

    /// The place `count` after the next one, masked to the ring.
    #[must_use]
    pub fn ahead(&self, count: usize) -> &[AtomicU64; N] {
        self.ring.place(self.index().wrapping_add(count))
    }

    /// The places from the next one to the end of the ring.
    #[inline(always)]
    #[must_use]
    pub fn run(&self) -> &[[AtomicU64; N]] {
        let left = (self.end - self.next) / Self::PLACE_BYTES;
        // SAFETY: as in `next`; so many places are left up to the end.
        unsafe { std::slice::from_raw_parts(self.first.byte_add(self.next).as_ptr(), left) }
    }

    /// Advances by `count` places. Returns true if the end of the ring was reached or passed.
    #[inline(always)]
    #[must_use]
    pub fn pass(&mut self, count: usize) -> bool {
        let next = self
            .next
            .wrapping_add(count.wrapping_mul(Self::PLACE_BYTES));
        let turned = next >= self.end;
        if turned {
            self.turn(next);
        } else {
            self.next = next;
        }
        turned
    }

    #[cold]
    fn turn(&mut self, next: usize) {
        // Still a multiple of a place's bytes: `end` is a power of two of those.
        self.next = next & (self.end - 1);
    }

    /// Index of the next place.
    #[inline(always)]
    #[must_use]
    pub fn index(&self) -> usize {
        self.next / Self::PLACE_BYTES
    }

    /// Places of the ring.
    #[inline(always)]
    #[must_use]
    pub fn places(&self) -> usize {
        self.end / Self::PLACE_BYTES
    }
}

/// One word that the device reads. The constructor checks its index, so a store needs no check.
#[derive(Debug)]
pub struct SharedWord {
    word: NonNull<AtomicU64>,
    _memory: Memory,
}

// SAFETY: an atomic in memory that `_memory` keeps mapped.
unsafe impl Send for SharedWord {}
// SAFETY: as above.
unsafe impl Sync for SharedWord {}

impl SharedWord {
    /// The word at `index` of `words`; `None` if there is none.
    #[must_use]
    pub fn new(words: &Words, index: usize) -> Option<Self> {
        let word = NonNull::from(words.as_slice().get(index)?);
        Some(Self {
            word,
            _memory: words.memory().clone(),
        })
    }

    /// Stores a value. All earlier writes are visible before it.
    #[inline(always)]
    pub fn store_release(&self, value: u64) {
        // SAFETY: found inside mapped memory by `new`, which `_memory` keeps mapped.
        unsafe { self.word.as_ref() }.store(value.to_le(), Ordering::Release);
    }
}

/// The most elements of a [`Table`], or of [`Records`]: more than any device has numbers.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// The smallest power of two of at least `count`, and of at least one.
fn power_of_two(count: usize) -> usize {
    assert!(
        count <= MAX_ELEMENTS,
        "{count} elements are more than the {MAX_ELEMENTS} that a table may have"
    );
    count.max(1).next_power_of_two()
}

/// A fixed table of values; their number is a power of two.
#[derive(Debug)]
pub struct Table<T> {
    values: Box<[T]>,
    mask: usize,
}

/// Look-ups in a [`Table`]; its fields stay in registers.
#[derive(Debug)]
pub struct TableView<'a, T> {
    first: NonNull<T>,
    mask: usize,
    table: PhantomData<&'a [T]>,
}

impl<T> Table<T> {
    /// Makes a table of at least `count` values (and at least one), rounded up to a power of two.
    ///
    /// # Panics
    /// With more than [`MAX_ELEMENTS`].
    #[must_use]
    pub fn new(count: usize, value: impl FnMut(usize) -> T) -> Self {
        let count = power_of_two(count);
        Self {
            values: (0..count).map(value).collect(),
            mask: count - 1,
        }
    }

    /// A view for look-ups.
    #[inline(always)]
    #[must_use]
    pub fn view(&self) -> TableView<'_, T> {
        TableView {
            first: NonNull::from(&*self.values).cast(),
            mask: self.mask,
            table: PhantomData,
        }
    }

    /// The value at `index`, mutable; `None` beyond the table.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.values.get_mut(index)
    }

    /// The value at `index`, masked to the table, mutable.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: `Table::new` made `mask + 1` values, a power of two, and a box keeps its length:
        // nothing cut by the mask is beyond it. The table is borrowed to be changed.
        unsafe { self.values.get_unchecked_mut(index & self.mask) }
    }

    /// The value at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.values.get(index)
    }

    /// The value at `index`, masked to the table.
    #[must_use]
    pub fn at(&self, index: usize) -> &T {
        self.view().at(index)
    }

    /// Returns the number of values of the table.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }
}

impl<'a, T> TableView<'a, T> {
    /// The value at `index`, masked to the table.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, index: usize) -> &'a T {
        // SAFETY: `Table::new` made `mask + 1` values, a power of two, and a box keeps its length:
        // nothing cut by the mask is beyond it. The table is borrowed for 'a.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }
}

/// Records of `N` words that only this process uses. Their number is a power of two. Clones share
/// them.
#[derive(Debug)]
pub struct Records<const N: usize> {
    first: NonNull<[AtomicU64; N]>,
    mask: usize,
    owner: Arc<super::memory::HotPiece>,
}

impl<const N: usize> Clone for Records<N> {
    fn clone(&self) -> Self {
        Self {
            first: self.first,
            mask: self.mask,
            owner: Arc::clone(&self.owner),
        }
    }
}

// SAFETY: the words are atomics that `owner` keeps, which is `Send + Sync`.
unsafe impl<const N: usize> Send for Records<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Records<N> {}

impl<const N: usize> Records<N> {
    /// Makes at least `count` records (and at least one), rounded up to a power of two, each word
    /// `value`.
    ///
    /// They lie on huge pages if the system has them, beside the records of other owners.
    ///
    /// # Panics
    /// With more than [`MAX_ELEMENTS`], or more words than memory can have.
    #[must_use]
    pub fn new(count: usize, value: u64) -> Self {
        let count = power_of_two(count);
        let owner = super::memory::HotPiece::new(count.saturating_mul(N));
        for word in owner.words() {
            word.store(value, Ordering::Relaxed);
        }
        Self {
            first: NonNull::from(owner.words()).cast(),
            mask: count - 1,
            owner: Arc::new(owner),
        }
    }

    /// The record at `index`, masked to the table.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, index: usize) -> &[AtomicU64; N] {
        // SAFETY: 1. in bounds: `new` took `(mask + 1) * N` words. 2. aligned: `HotPiece` aligns
        //            to a cache line. 3. alive: `owner` keeps them. 4. shared: atomics.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }

    /// Returns the number of records of the table.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> usize {
        self.mask + 1
    }

    /// True if they lie on huge pages.
    #[must_use]
    pub fn on_huge_page(&self) -> bool {
        self.owner.on_huge_page()
    }
}

/// Words of a place of a work queue: one quantum.
const PLACE_WORDS: usize = 4;
/// Words of the record beside each place.
const RECORD_WORDS: usize = 2;
/// Bytes of a record.
const RECORD_BYTES: usize = RECORD_WORDS * 8;
/// Bytes of a place for each byte of a record: two, a factor that an x86 address can scale by.
const PLACE_TO_RECORD: usize = PLACE_WORDS / RECORD_WORDS;
/// Places of the largest ring: cursors have 32 bits.
const MAX_PLACES: usize = 1 << 24;

/// Places that software fills one after the other, each with a record beside it.
///
/// A cursor runs from the first place to a limit that the owner sets, at most the end of the ring,
/// so a place that is taken needs no bounds check. The record of a place is for the side that
/// processes the device's completions.
#[derive(Debug)]
#[repr(C)] // what each post reads comes first
pub struct PostRing<B = ()> {
    places: NonNull<[AtomicU64; PLACE_WORDS]>,
    records: NonNull<[AtomicU64; RECORD_WORDS]>,
    /// The next place, in bytes of its record. Never above `limit`.
    next: usize,
    /// The first place that may not be taken, in bytes of its record. Never above `end`.
    limit: usize,
    /// The owner's values that each post needs: in the same cache line.
    pub beside: B,
    /// Bytes of all records: a power of two of them.
    end: usize,
    ring: Ring<PLACE_WORDS>,
    _records: Records<RECORD_WORDS>,
}

// SAFETY: the places and records are atomics that `ring` and `_records` keep, which are
// `Send + Sync`.
unsafe impl<B: Send> Send for PostRing<B> {}
// SAFETY: as above; the cursor moves by `&mut self` only.
unsafe impl<B: Sync> Sync for PostRing<B> {}

impl<B> PostRing<B> {
    /// Bytes from the beginning that each post reads.
    pub const HOT_BYTES: usize = std::mem::offset_of!(Self, beside) + size_of::<B>();

    /// Makes a ring with a record for each place; `None` if the counts differ. Nothing can be taken
    /// before [`PostRing::renew`].
    #[must_use]
    pub fn new(
        ring: ZeroedRing<PLACE_WORDS>,
        records: Records<RECORD_WORDS>,
        beside: B,
    ) -> Option<Self> {
        let ring = Ring::from(ring);
        if ring.places() != records.count() || ring.places() > MAX_PLACES {
            return None;
        }
        Some(Self {
            places: ring.first,
            records: records.first,
            next: 0,
            limit: 0,
            beside,
            end: ring.places() * RECORD_BYTES,
            ring,
            _records: records,
        })
    }

    /// Places of the ring.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> u32 {
        (self.end / RECORD_BYTES) as u32
    }

    /// The next place to be taken; the count of places at the end of a pass.
    #[inline(always)]
    #[must_use]
    pub fn next(&self) -> u32 {
        (self.next / RECORD_BYTES) as u32
    }

    /// Allows places to be taken up to the place of `position`, masked to the ring. If that place
    /// is in the next pass, allows them up to the end of this pass. At the end of a pass continues
    /// at the first place, and returns true.
    #[inline]
    pub fn renew(&mut self, position: u64) -> bool {
        let place = (position as usize).wrapping_mul(RECORD_BYTES) & (self.end - RECORD_BYTES);
        if self.next == self.end {
            self.next = 0;
            self.limit = place;
            return true;
        }
        self.limit = if place < self.next { self.end } else { place };
        false
    }

    /// True if `count` places can be taken.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, count: u32) -> bool {
        // Cursors are below 2^28, and what is added is below 2^36: nothing wraps.
        self.next + count as usize * RECORD_BYTES <= self.limit
    }

    /// Prefetches the next place and its record; a hint without effect on results.
    #[inline(always)]
    pub fn prefetch(&self) {
        let next = self.next;
        let place = self.places.as_ptr();
        let place = place.wrapping_byte_add(next * PLACE_TO_RECORD);
        let record = self.records.as_ptr().wrapping_byte_add(next);
        prefetch_line(place.cast::<u8>());
        prefetch_line(record.cast::<u8>());
    }

    /// Takes `count` places from the cursor on; `None` if the limit is closer.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> Option<Taken<'_>> {
        if count == 0 || !self.has(count) {
            return None;
        }
        let first = self.next;
        self.next = first + count as usize * RECORD_BYTES;
        // SAFETY: in bounds: `first` is a multiple of a record's bytes, as everything that is added
        // to it, and with `count` records at most `limit`, which `renew` keeps at most the bytes of
        // all records. `new` found a record for each place, and a place is two records long.
        let (place, record) = unsafe {
            (
                self.places.byte_add(first * PLACE_TO_RECORD),
                self.records.byte_add(first),
            )
        };
        Some(Taken {
            place,
            record,
            count,
            ring: PhantomData,
        })
    }

    /// The place at `index`, masked to the ring.
    #[must_use]
    pub fn place(&self, index: usize) -> &[AtomicU64; PLACE_WORDS] {
        self.ring.place(index)
    }
}

/// Places that were taken together: one element of a work queue.
#[derive(Debug)]
pub struct Taken<'a> {
    place: NonNull<[AtomicU64; PLACE_WORDS]>,
    record: NonNull<[AtomicU64; RECORD_WORDS]>,
    count: u32,
    ring: PhantomData<&'a Ring<PLACE_WORDS>>,
}

impl<'a> Taken<'a> {
    /// The first place.
    #[inline(always)]
    #[must_use]
    pub fn first(&self) -> &'a [AtomicU64; PLACE_WORDS] {
        // SAFETY: `PostRing::take` took at least one place here, and the ring lives for 'a.
        unsafe { self.place.as_ref() }
    }

    /// The place `index` after the first; `None` beyond the places taken.
    #[inline(always)]
    #[must_use]
    pub fn further(&self, index: usize) -> Option<&'a [AtomicU64; PLACE_WORDS]> {
        if index >= self.count as usize {
            return None;
        }
        // SAFETY: `PostRing::take` took `count` places from here on, and the ring lives for 'a.
        Some(unsafe { self.place.add(index).as_ref() })
    }

    /// The record of the first place.
    #[inline(always)]
    #[must_use]
    pub fn record(&self) -> &'a [AtomicU64; RECORD_WORDS] {
        // SAFETY: `PostRing::take` took the record with the place, and the ring lives for 'a.
        unsafe { self.record.as_ref() }
    }
}

#[cfg(test)]
mod tests;
