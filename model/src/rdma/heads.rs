//! The next element of each send queue, kept close together: where a doorbell page is polled, an
//! element whose doorbell was overwritten is found by its valid bit.

use super::objects::queue_pair::QueuePair;
use ringside_bus::Words;
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
}

/// A queue pair that exists.
struct Entry {
    number: u32,
    /// Unknown until the queue pair has rested since the last change of a mapping.
    head: Option<Head>,
}

/// All queue pairs of a function, in the order in which they were made.
pub(super) struct Heads {
    entries: Vec<Entry>,
    /// The entry that is read next.
    next: usize,
    /// The mappings that the heads were taken under.
    stamp: (u64, u64),
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            entries: Vec::with_capacity(64),
            next: 0,
            stamp: (u64::MAX, u64::MAX),
        }
    }
}

impl Heads {
    /// A queue pair was made.
    pub(super) fn add(&mut self, qp: &mut QueuePair) {
        qp.place = self.entries.len();
        self.entries.push(Entry {
            number: qp.number,
            head: None,
        });
    }

    /// Removes a destroyed queue pair. Returns the queue pairs that moved up, with their new
    /// places.
    pub(super) fn remove(&mut self, number: u32) -> impl Iterator<Item = (u32, usize)> + '_ {
        let found = self.entries.iter().position(|entry| entry.number == number);
        let from = found.unwrap_or(self.entries.len());
        if from < self.entries.len() {
            self.entries.remove(from);
        }
        let moved = self.entries.iter().enumerate().skip(from);
        moved.map(|(place, entry)| (entry.number, place))
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
        let Some(entry) = self.entries.get_mut(qp.place) else {
            return;
        };
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
        true
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
