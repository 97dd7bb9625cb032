//! Receive-queue elements.
//!
//! Source: irdma `uk.c`, irdma_uk_post_receive.

use super::{Fragment, FragmentKey, MAX_QUANTA, QUANTUM_WORDS};

crate::words! {
    /// Word 3 of a receive element: the one with the valid bit, stored last.
    ///
    /// Source: irdma `defs.h`, IRDMAQPSQ_ADDFRAGCNT, IRDMAQPSQ_VALID.
    pub struct ReceiveHeader: u64 {
        /// fragment slots after the first quantum
        further_fragments: [41:38],
        /// ring polarity
        valid: [63],
    }
}

/// A receive element as read from a ring.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveElement<'a> {
    words: &'a [u64],
}

impl<'a> ReceiveElement<'a> {
    /// Reads an element from the words of its fixed size (1, 2, 4 or 8 quanta); nothing if there
    /// are fewer words than a quantum or more than eight quanta have.
    #[must_use]
    pub fn new(words: &'a [u64]) -> Option<Self> {
        let fits = (QUANTUM_WORDS..=MAX_QUANTA * QUANTUM_WORDS).contains(&words.len());
        fits.then_some(Self { words })
    }

    /// Word 3.
    #[must_use]
    pub fn header(&self) -> ReceiveHeader {
        ReceiveHeader(self.words.get(3).copied().unwrap_or(0))
    }

    /// The pieces to scatter into, in order. A zero piece that only completes a quantum is among
    /// them; slots that the element has no room for are not.
    pub fn fragments(&self) -> impl Iterator<Item = Fragment> + use<'a> {
        let further = self.header().further_fragments() as usize;
        slots(self.words, 1 + further).map(|(address, key)| Fragment::decode(address, key))
    }

    /// Bytes that it takes in all.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.fragments()
            .map(|piece| u64::from(piece.length_bytes))
            .sum()
    }

    /// True if every rule of the layout holds: no reserved bit, word 2 zero, no more slots than
    /// the element has, every slot's valid bit as the ring's polarity.
    #[must_use]
    pub fn is_well_formed(&self, polarity: bool) -> bool {
        let further = self.header().further_fragments() as usize;
        self.header().0 & ReceiveHeader::RESERVED == 0
            && self.words.get(2) == Some(&0)
            && self.words.len() >= (further / 2 + 1) * QUANTUM_WORDS
            && further.is_multiple_of(2)
            && slots(self.words, 1 + further).all(|(_, key)| key.valid() == polarity)
    }
}

/// The fragment slots of an element: the first at byte 0, the others from byte 32 on.
pub(super) fn slots(words: &[u64], count: usize) -> impl Iterator<Item = (u64, FragmentKey)> {
    let first = words.get(..2).unwrap_or(&[]);
    let further = words.get(QUANTUM_WORDS..).unwrap_or(&[]);
    let (first, _) = first.as_chunks::<2>();
    let (further, _) = further.as_chunks::<2>();
    first
        .iter()
        .chain(further)
        .take(count)
        .map(|&[address, key]| (address, FragmentKey(key)))
}
