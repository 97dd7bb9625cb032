//! Rings that the device fills and that need no table of queue pairs: event queues (completion
//! events of one word; asynchronous events of two words) and the control completion queue (four
//! words).
//!
//! In all of them bit 63 of an entry's last word is its valid bit; the polarity is 1 on the first
//! pass and turns at each wrap. Source: irdma `ctrl.c`, irdma_sc_get_next_aeqe,
//! irdma_sc_process_ceq, irdma_sc_ccq_get_cqe_info.

use crate::QueueError;
use ringside_bus::Words;
use std::sync::atomic::Ordering;

/// A ring of entries of `WORDS` words, read in order. `Send`; reading takes `&mut self`.
#[derive(Debug)]
pub struct EventRing<const WORDS: usize> {
    ring: Words,
    entries: usize,
    index: usize,
    polarity: bool,
}

impl<const WORDS: usize> EventRing<WORDS> {
    /// Makes an event ring in `ring`, which the device must not write yet. Any number of entries is
    /// valid.
    ///
    /// Effects: fills the ring with zeros.
    pub fn new(ring: Words) -> Result<Self, QueueError> {
        let words = ring.count();
        let whole = WORDS != 0 && words != 0 && words.is_multiple_of(WORDS);
        if !whole {
            return Err(QueueError::WrongEntries {
                words,
                entry_words: WORDS,
            });
        }
        ring.fill(0);
        Ok(Self {
            ring,
            entries: words / WORDS,
            index: 0,
            polarity: true,
        })
    }

    /// Takes the next entry, if the device has written it.
    #[inline]
    pub fn take(&mut self) -> Option<[u64; WORDS]> {
        let (entries, _) = self.ring.as_slice().as_chunks::<WORDS>();
        let entry = entries.get(self.index)?;
        let last = u64::from_le(entry.last()?.load(Ordering::Acquire));
        if (last >> 63 == 1) != self.polarity {
            return None;
        }
        let mut words = [0; WORDS];
        for (to, from) in words.iter_mut().zip(entry) {
            *to = u64::from_le(from.load(Ordering::Relaxed));
        }
        *words.last_mut()? = last;
        self.index += 1;
        if self.index == self.entries {
            self.index = 0;
            self.polarity = !self.polarity;
        }
        Some(words)
    }

    /// Index of the next entry: the value that a shadow area gets as the head.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Valid bit that the next entry will have.
    #[must_use]
    pub fn polarity(&self) -> bool {
        self.polarity
    }

    /// Entries of the ring.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries
    }
}

#[cfg(test)]
mod tests;
