//! The receive queue: a ring of elements of one size. The device reads an element when a message
//! needs it.
//!
//! There is no doorbell: the valid bit alone hands an element to the device, so software must keep
//! the queue from overrunning. Source: irdma `uk.c`, irdma_uk_post_receive.

use crate::RingError;
use crate::element::{commit, store_further};
use crate::request::Polarity;
use crate::request::encoding::fragment_words;
use crate::state::{QueuePairState, SendRecordInfo, Tracker};
use ringside_bus::ring::Taken;
use ringside_bus::{PostRing, Words, ZeroedRing};
use ringside_spec::verbs::receive::ReceiveHeader;
use ringside_spec::verbs::sizes::{MAX_FRAGMENTS, MAX_RING_QUANTA};
use ringside_spec::verbs::{Fragment, Quantum, ReceiveElement};
use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;

/// Reasons why a receive request was not posted. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostReceiveError {
    /// No room: poll completions and try again.
    #[error("the receive queue is full: poll its completion queue, then post again")]
    QueueFull,
    /// The request has more fragments than an element of this queue holds.
    #[error("{given} fragments; this receive queue takes at most {maximum}: split the buffer less")]
    TooManyFragments {
        /// fragments given
        given: usize,
        /// the most that an element of this queue holds
        maximum: usize,
    },
    /// A fragment is longer than its length field can express.
    #[error("a fragment of {length_bytes} bytes; at most {}", Fragment::MAX_BYTES)]
    FragmentTooLong {
        /// length of the fragment
        length_bytes: u32,
    },
}

/// A queue pair's receive queue. `Send`, not `Sync`: it belongs to one core.
///
/// A post reads one cache line of it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReceiveQueue {
    ring: PostRing<EachPost>,
    // The fields below are read only when a post reaches the limit.
    /// Passes of the ring that are complete.
    passes: u64,
    state: Arc<QueuePairState>,
    one_core: PhantomData<Cell<()>>,
}

/// The values besides the ring that each post needs.
#[derive(Clone, Copy, Debug)]
struct EachPost {
    polarity: Polarity,
    maximum_fragments: u16,
    /// quanta of an element
    quanta: NonZeroU16,
}

const _: () = assert!(
    PostRing::<EachPost>::HOT_BYTES <= 64,
    "a post reads one line of it"
);

impl ReceiveQueue {
    /// A queue in `ring`, of elements of the state's size.
    ///
    /// Range: a power of two of elements, as many as `state` was made for; at most 32768 quanta.
    /// Effects: fills the ring with zeros.
    pub fn new(ring: Words, state: Arc<QueuePairState>) -> Result<Self, RingError> {
        let quanta = 1u16 << state.receive.element_shift();
        let sizes = 2 * usize::from(quanta)..=MAX_RING_QUANTA as usize;
        let ring = ZeroedRing::new(ring, sizes).map_err(|error| RingError::WrongSize {
            words: error.words,
            minimum: 2 * u32::from(quanta),
            maximum: MAX_RING_QUANTA,
        })?;
        let mismatch = RingError::StateMismatch {
            ring: ring.places() / usize::from(quanta),
            state: state.receive.slots() / usize::from(quanta),
        };
        let each_post = EachPost {
            polarity: true.into(),
            maximum_fragments: (2 * quanta - 1).min(MAX_FRAGMENTS as u16),
            quanta: NonZeroU16::new(quanta).unwrap_or(NonZeroU16::MIN),
        };
        let ring = PostRing::new(ring, state.receive.records().clone(), each_post);
        let mut queue = Self {
            ring: ring.ok_or(mismatch)?,
            passes: 0,
            state,
            one_core: PhantomData,
        };
        queue.look_at_tail();
        Ok(queue)
    }

    /// Posts one buffer, in at most as many fragments as the queue was made for.
    ///
    /// Effects: writes memory only; the device may use the element at once. The completion returns
    /// `id`.
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the other errors are the
    /// caller's mistakes.
    #[inline(always)]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        self.check(fragments)?;
        if !self.ring.has(self.quanta()) {
            return self.post_at_limit(id, fragments);
        }
        self.post_now(id, fragments)
    }

    /// Continues a post that has reached the ring's limit.
    #[cold]
    #[inline(never)]
    fn post_at_limit(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        self.look_at_tail();
        self.post_now(id, fragments)
    }

    /// Posts one buffer, whose fragments were checked, if a place is free.
    #[inline(always)]
    fn post_now(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let quanta = self.quanta();
        let polarity = self.ring.beside.polarity;
        let Some(element) = self.ring.take(quanta) else {
            return Err(PostReceiveError::QueueFull);
        };
        let info = SendRecordInfo::ZERO.with_quanta(u64::from(quanta));
        Tracker::note(element.record(), id, info);
        let first = write_further(&element, polarity, fragments);
        commit(element.first(), first, || {});
        Ok(())
    }

    /// Quanta of an element.
    #[inline(always)]
    fn quanta(&self) -> u32 {
        self.ring.beside.quanta.get().into()
    }

    #[inline(always)]
    fn check(&self, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let maximum = usize::from(self.ring.beside.maximum_fragments);
        if fragments.len() > maximum {
            let given = fragments.len();
            return Err(PostReceiveError::TooManyFragments { given, maximum });
        }
        let longest = fragments.iter().map(|piece| piece.length_bytes).max();
        match longest.filter(|&bytes| bytes > Fragment::MAX_BYTES) {
            Some(length_bytes) => Err(PostReceiveError::FragmentTooLong { length_bytes }),
            None => Ok(()),
        }
    }

    /// Sets the ring's limit to the places that are free now, at most to the end of the pass. At
    /// the end of a pass the polarity turns. One element stays free, so that a full ring differs
    /// from an empty one.
    #[cold]
    #[inline(never)]
    fn look_at_tail(&mut self) {
        let kept = u64::from(self.quanta());
        if self
            .ring
            .renew(self.state.receive.tail().wrapping_sub(kept))
        {
            self.ring.beside.polarity = self.ring.beside.polarity.turned();
            self.passes += 1;
        }
    }

    /// Returns the fragments of the request at `position`, counted in quanta, as they stand in the
    /// ring. Valid for outstanding requests and for those completed last: the device only reads
    /// them. Allocates.
    #[must_use]
    pub fn fragments_at(&self, position: u64) -> Vec<Fragment> {
        let places = (0..self.quanta() as usize)
            .flat_map(|index| self.ring.place(position as usize + index));
        let read: Vec<u64> = places
            .map(|word| u64::from_le(word.load(Ordering::Relaxed)))
            .collect();
        let pieces = ReceiveElement::new(&read).map(|element| element.fragments().collect());
        let mut pieces: Vec<Fragment> = pieces.unwrap_or_default();
        // A zero fragment at the end only fills the quantum.
        if pieces.len() > 1 && pieces.last() == Some(&Fragment::default()) {
            pieces.pop();
        }
        pieces
    }

    /// Quanta posted since the queue was made.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.passes * u64::from(self.ring.count()) + u64::from(self.ring.next())
    }

    /// Receive requests posted and not retired.
    #[must_use]
    pub fn used(&self) -> u32 {
        (self.head() - self.state.receive.tail()) as u32 / self.quanta()
    }

    /// The most receive requests that can be outstanding.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.ring.count() / self.quanta() - 1
    }

    /// The most fragments that one request may have.
    #[must_use]
    pub fn maximum_fragments(&self) -> usize {
        self.ring.beside.maximum_fragments.into()
    }

    /// Refuses requests of more fragments from now on.
    ///
    /// Range: at most [`Self::maximum_fragments`]; more changes nothing.
    pub fn take_at_most(&mut self, fragments: usize) {
        let maximum = &mut self.ring.beside.maximum_fragments;
        *maximum = (*maximum).min(u16::try_from(fragments).unwrap_or(u16::MAX));
    }

    /// The outstanding requests, shared with the completion queue.
    #[must_use]
    pub fn state(&self) -> &Arc<QueuePairState> {
        &self.state
    }
}

/// Writes all quanta of an element but the first. Returns the first one, for [`commit`].
#[inline(always)]
fn write_further(element: &Taken<'_>, polarity: Polarity, fragments: &[Fragment]) -> Quantum {
    let (first, rest) = match fragments {
        [first, rest @ ..] => (*first, rest),
        [] => (Fragment::default(), &[][..]),
    };
    let mut slots = 0;
    for (index, pair) in rest.chunks(2).enumerate() {
        let first = pair.first().copied().unwrap_or_default();
        let second = pair.get(1).copied().unwrap_or_default();
        let [[a, b], [c, d]] = [first, second].map(|piece| fragment_words(piece, polarity));
        if let Some(place) = element.further(index + 1) {
            store_further(place, [a, b, c, d]);
        }
        slots += 2;
    }
    let header = ReceiveHeader::ZERO.with_further_fragments(slots);
    let [address, key] = fragment_words(first, polarity);
    [address, key, 0, polarity.on(header.0)]
}

#[cfg(test)]
mod tests;
