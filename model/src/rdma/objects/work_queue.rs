//! A send or receive ring: where the device is in it, found by valid bits.

use crate::rdma::ring::{Place, Ring};
use ringside_bus::{Direction, Words};
use ringside_spec::verbs::{MAX_QUANTA, QUANTUM_WORDS, SendHeader};

/// The word of an element that holds its valid bit.
const HEADER: usize = 3;

/// Words of the largest element.
pub(in crate::rdma) const ELEMENT_WORDS: usize = MAX_QUANTA * QUANTUM_WORDS;

/// An element copied out of a ring.
pub(in crate::rdma) struct ElementWords {
    pub(in crate::rdma) words: [u64; ELEMENT_WORDS],
    pub(in crate::rdma) quanta: u32,
}

impl ElementWords {
    /// No element.
    pub(in crate::rdma) const fn none() -> Self {
        Self {
            words: [0; ELEMENT_WORDS],
            quanta: 0,
        }
    }

    #[inline]
    pub(in crate::rdma) fn as_slice(&self) -> &[u64] {
        let count = self.quanta as usize * QUANTUM_WORDS;
        self.words.get(..count).unwrap_or(&self.words)
    }
}

/// A ring of work queue elements, as the device goes through it.
pub(in crate::rdma) struct WorkQueue {
    pub(in crate::rdma) ring: Ring,
    /// Quanta of the ring, a power of two.
    quanta: u32,
    next: u32,
    polarity: bool,
}

impl WorkQueue {
    pub(in crate::rdma) fn new(place: Place, quanta: u32) -> Self {
        Self {
            ring: Ring::new(place, quanta as usize * QUANTUM_WORDS, Direction::Read),
            quanta,
            next: 0,
            polarity: true,
        }
    }

    pub(in crate::rdma) fn quanta(&self) -> u32 {
        self.quanta
    }

    /// Index of the quantum at which the next element begins.
    #[inline(always)]
    pub(in crate::rdma) fn next(&self) -> u32 {
        self.next
    }

    /// The valid bit's value there.
    #[inline(always)]
    pub(in crate::rdma) fn polarity(&self) -> bool {
        self.polarity
    }

    /// The next element's header word, if software has handed it over.
    #[inline(always)]
    pub(in crate::rdma) fn peek(&self) -> Option<u64> {
        let word = self
            .ring
            .load_acquire(self.next as usize * QUANTUM_WORDS + HEADER);
        (SendHeader(word).valid() == self.polarity && self.quanta > 0).then_some(word)
    }

    /// The next header word: first word of the part of the ring that holds it, and its place there.
    #[inline]
    pub(in crate::rdma) fn next_header(&self) -> Option<(u32, u32)> {
        let word = self.next as usize * QUANTUM_WORDS + HEADER;
        let base = self.ring.chunk_start(word)?;
        Some((base as u32, (word - base) as u32))
    }

    /// The part of the ring that begins with word `base`.
    pub(in crate::rdma) fn chunk(&self, base: u32) -> Option<Words> {
        self.ring.chunk(base as usize)
    }

    /// Copies `quanta` quanta from `index` on; bytes beyond the ring read as 0.
    #[inline]
    pub(in crate::rdma) fn read(&self, index: u32, quanta: u32) -> ElementWords {
        let quanta = quanta.min(MAX_QUANTA as u32);
        let mut words = [0; ELEMENT_WORDS];
        let first = index as usize * QUANTUM_WORDS;
        let count = quanta as usize * QUANTUM_WORDS;
        for (offset, word) in words.iter_mut().take(count).enumerate() {
            *word = self.ring.load(first + offset);
        }
        ElementWords { words, quanta }
    }

    /// Copies one quantum.
    #[inline(always)]
    pub(in crate::rdma) fn read_one(&self, index: u32) -> [u64; QUANTUM_WORDS] {
        self.ring.load_four(index as usize * QUANTUM_WORDS)
    }

    /// Goes on behind an element of so many quanta.
    #[inline]
    pub(in crate::rdma) fn advance(&mut self, quanta: u32) {
        self.next += quanta;
        if self.next >= self.quanta {
            self.next = 0;
            self.polarity = !self.polarity;
        }
    }
}
