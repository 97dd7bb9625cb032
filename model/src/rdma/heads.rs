//! The next element of each send queue, kept close together: where a doorbell page is polled, an
//! element whose doorbell was overwritten is found by its valid bit.

use super::objects::queue_pair::QueuePair;
use ringside_bus::{Words, prefetch};
use ringside_spec::verbs::SendHeader;
use std::sync::atomic::Ordering;

/// The place of the next element's header word.
struct Head {
    words: Words,
    index: u32,
    /// First word of `words` in the ring, which distinguishes pages of one ring.
    base: u32,
    polarity: bool,
}

impl Head {
    /// True if software has handed the element over.
    #[inline(always)]
    fn is_valid(&self) -> bool {
        let word = self.words.as_slice().get(self.index as usize);
        word.is_some_and(|word| {
            SendHeader(u64::from_le(word.load(Ordering::Acquire))).valid() == self.polarity
        })
    }

    /// Has the header word brought into the cache.
    #[inline(always)]
    fn prefetch(&self) {
        if let Some(word) = self.words.as_slice().get(self.index as usize) {
            prefetch(word);
        }
    }
}

/// A queue pair that exists.
struct Entry {
    number: u32,
    /// The peer's queue pair, as far as known: a hint.
    peer: u32,
    /// Unknown until the queue pair has rested since the last change of a mapping.
    head: Option<Head>,
}

/// No entry.
const NOWHERE: u32 = u32::MAX;

/// Queue pairs from which on the cache may not hold all of them.
const MANY: usize = 256;

/// All queue pairs of a function, in the order in which they were made.
pub(super) struct Heads {
    entries: Vec<Entry>,
    /// The entry of each queue pair, by number.
    places: Vec<u32>,
    /// The entry that is read next.
    next: usize,
    /// The mappings that the heads were taken under.
    stamp: (u64, u64),
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            entries: Vec::with_capacity(64),
            places: Vec::new(),
            next: 0,
            stamp: (u64::MAX, u64::MAX),
        }
    }
}

impl Heads {
    /// A queue pair was made.
    pub(super) fn add(&mut self, number: u32) {
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, NOWHERE);
        }
        self.set_place(number, self.entries.len());
        self.entries.push(Entry {
            number,
            peer: 0,
            head: None,
        });
    }

    /// Removes a destroyed queue pair.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(from) = self.place(number) else {
            return;
        };
        self.entries.remove(from);
        self.set_place(number, NOWHERE as usize);
        for place in from..self.entries.len() {
            if let Some(moved) = self.entries.get(place).map(|entry| entry.number) {
                self.set_place(moved, place);
            }
        }
    }

    /// The entry of a queue pair.
    #[inline(always)]
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        let place = *self.places.get(number as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    fn set_place(&mut self, number: u32, place: usize) {
        if let Some(known) = self.places.get_mut(number as usize) {
            *known = place as u32;
        }
    }

    /// True if the cache may not hold all queue pairs.
    #[inline(always)]
    pub(super) fn are_many(&self) -> bool {
        self.count() >= MANY
    }

    /// Has the next element of a queue pair brought into the cache. Returns the number of its
    /// peer's queue pair, 0 if unknown. `None` if there are so few that the cache holds all.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) -> Option<u32> {
        if !self.are_many() {
            return None;
        }
        let entry = self.entries.get(self.place(number)?)?;
        if let Some(head) = &entry.head {
            head.prefetch();
        }
        Some(entry.peer)
    }

    /// Forgets heads that were taken under other mappings.
    #[inline(always)]
    pub(super) fn check(&mut self, stamp: (u64, u64)) {
        if self.stamp != stamp {
            self.forget_all(stamp);
        }
    }

    #[cold]
    fn forget_all(&mut self, stamp: (u64, u64)) {
        self.stamp = stamp;
        for entry in &mut self.entries {
            entry.head = None;
        }
    }

    /// Records the place of the next element of a queue pair that has taken all elements.
    #[inline]
    pub(super) fn rest(&mut self, qp: &QueuePair) {
        let current = qp.is_resolved(self.stamp);
        let place = self.place(qp.number);
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            return;
        };
        entry.peer = qp.context.destination_qp;
        if !current {
            entry.head = None;
            return;
        }
        let Some((base, index)) = qp.send.next_header() else {
            entry.head = None;
            return;
        };
        let polarity = qp.send.polarity();
        match &mut entry.head {
            Some(head) if head.base == base => {
                head.index = index;
                head.polarity = polarity;
            }
            head => {
                *head = qp.send.chunk(base).map(|words| Head {
                    words,
                    index,
                    base,
                    polarity,
                });
            }
        }
    }

    /// The number of queue pairs.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The next queue pair in turn, if it may have work.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Option<u32> {
        let place = self.next;
        self.next = if place + 1 < self.entries.len() {
            place + 1
        } else {
            0
        };
        self.look_at(place)
    }

    /// Looks at the next `looks` queue pairs in turn. True if none may have work; else the next
    /// look begins where this one did.
    #[inline(always)]
    pub(super) fn look_over(&mut self, looks: usize) -> bool {
        let first = self.next;
        for _ in 0..self.count().min(looks) {
            if self.look().is_some() {
                self.next = first;
                return false;
            }
        }
        self.prefetch_next(looks);
        true
    }

    /// Has the elements of the next `looks` looks brought into the cache.
    #[inline(always)]
    pub(super) fn prefetch_next(&self, looks: usize) {
        if !self.are_many() {
            return;
        }
        let next = self.entries.get(self.next..).unwrap_or_default();
        for head in next
            .iter()
            .take(looks)
            .filter_map(|entry| entry.head.as_ref())
        {
            head.prefetch();
        }
    }

    /// The queue pair made so many before the one at `place`, if it may have work.
    #[inline]
    pub(super) fn look_before(&self, place: usize, by: usize) -> Option<u32> {
        let place = place.checked_sub(by).or_else(|| {
            let wrapped = (place + self.entries.len()).checked_sub(by)?;
            Some(wrapped)
        });
        self.look_at(place?)
    }

    #[inline(always)]
    fn look_at(&self, place: usize) -> Option<u32> {
        let entry = self.entries.get(place)?;
        match &entry.head {
            Some(head) if !head.is_valid() => None,
            _ => Some(entry.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_queue_pairs_that_are_left() {
        let mut heads = Heads::default();
        for number in [9, 3, 70, 4] {
            heads.add(number);
        }
        heads.remove(3);
        heads.remove(5);
        heads.add(5);
        let places = [9, 3, 70, 4, 5, 1000].map(|number| heads.place(number));
        assert_eq!(places, [Some(0), None, Some(1), Some(2), Some(3), None]);
        // Unknown elements count as work.
        assert_eq!(heads.look_before(0, 1), Some(5));
        assert_eq!(heads.look_before(2, 1), Some(70));
    }

    #[test]
    fn only_of_many_queue_pairs_one_is_brought_into_the_cache() {
        let mut heads = Heads::default();
        for number in 1..MANY as u32 {
            heads.add(number);
        }
        assert_eq!(heads.prefetch(1), None);
        heads.add(MANY as u32);
        assert_eq!(heads.prefetch(1), Some(0));
        assert_eq!(heads.prefetch(MANY as u32 + 1), None);
    }
}
