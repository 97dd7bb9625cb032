//! The receive queue: a ring of elements of one size that the device reads when it needs one.
//!
//! There is no doorbell: the valid bit alone tells the device, so software keeps the queue from
//! overrunning. Source: irdma `uk.c`, irdma_uk_post_receive.

use crate::RingError;
use crate::element::{commit, store_further};
use crate::request::Polarity;
use crate::request::encoding::fragment_words;
use crate::state::{QueuePairState, SendRecordInfo, Tracker};
use ringside_bus::ring::Taken;
use ringside_bus::{PostRing, Words, ZeroedRing};
use ringside_spec::verbs::receive::ReceiveHeader;
use ringside_spec::verbs::sizes::{MAXIMUM_FRAGMENTS, MAXIMUM_RING_QUANTA};
use ringside_spec::verbs::{Fragment, Quantum, ReceiveElement};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;

/// Why a receive request was not posted. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostReceiveError {
    /// No room: poll completions and try again.
    #[error("the receive queue is full: poll its completion queue, then post again")]
    QueueFull,
    /// More pieces than this queue's elements hold.
    #[error("{given} fragments; this receive queue takes at most {maximum}: split the buffer less")]
    TooManyFragments {
        /// fragments given
        given: usize,
        /// what the queue was made for
        maximum: usize,
    },
    /// A piece longer than the field that tells its length.
    #[error(
        "a fragment of {length_bytes} bytes; at most {}",
        Fragment::MAXIMUM_BYTES
    )]
    FragmentTooLong {
        /// its bytes
        length_bytes: u32,
    },
}

/// A queue pair's receive queue. `Send`, not `Sync`: it belongs to one core.
///
/// A post reads one cache line of it. The limit of its ring is set as that of the send queue is.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReceiveQueue {
    ring: PostRing<EachPost>,
    // From here on: looked at when the limit is reached.
    /// Passes of the ring before this one.
    passes: u64,
    state: Arc<QueuePairState>,
    one_core: PhantomData<Cell<()>>,
}

/// What each post needs besides the ring.
#[derive(Clone, Copy, Debug)]
struct EachPost {
    polarity: Polarity,
    maximum_fragments: u16,
    /// Quanta of an element.
    quanta: u16,
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
        let quanta = 1 << state.receive.element_shift();
        let sizes = 2 * usize::from(quanta)..=MAXIMUM_RING_QUANTA as usize;
        let ring = ZeroedRing::new(ring, sizes).map_err(|error| RingError::WrongSize {
            words: error.words,
            minimum: 2 * u32::from(quanta),
            maximum: MAXIMUM_RING_QUANTA,
        })?;
        let mismatch = RingError::StateMismatch {
            ring: ring.places() / usize::from(quanta),
            state: state.receive.slots() / usize::from(quanta),
        };
        let each_post = EachPost {
            polarity: true.into(),
            maximum_fragments: (2 * quanta - 1).min(MAXIMUM_FRAGMENTS as u16),
            quanta,
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

    /// Posts one buffer, in up to as many pieces as the queue was made for.
    ///
    /// Effects: memory only; the device may take it at once. `id` comes back in the completion.
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the others are the caller's
    /// mistakes.
    #[inline(always)]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        self.check(fragments)?;
        let quanta = u32::from(self.ring.beside.quanta);
        if !self.ring.has(quanta) {
            self.look_at_tail();
        }
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

    #[inline(always)]
    fn check(&self, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let maximum = usize::from(self.ring.beside.maximum_fragments);
        if fragments.len() > maximum {
            let given = fragments.len();
            return Err(PostReceiveError::TooManyFragments { given, maximum });
        }
        let longest = fragments.iter().map(|piece| piece.length_bytes).max();
        match longest.filter(|&bytes| bytes > Fragment::MAXIMUM_BYTES) {
            Some(length_bytes) => Err(PostReceiveError::FragmentTooLong { length_bytes }),
            None => Ok(()),
        }
    }

    /// Sets the limit to what is free now, at most the end of the pass; turns at the end of one. One
    /// element stays free, so that a full ring differs from an empty one.
    #[cold]
    #[inline(never)]
    fn look_at_tail(&mut self) {
        let kept = u64::from(self.ring.beside.quanta);
        if self
            .ring
            .renew(self.state.receive.tail().wrapping_sub(kept))
        {
            self.ring.beside.polarity = self.ring.beside.polarity.turned();
            self.passes += 1;
        }
    }

    /// The pieces of the request at a position, in quanta, as they stand in the ring: good for those
    /// that are outstanding or completed last. The device only reads them. Allocates.
    #[must_use]
    pub fn fragments_at(&self, position: u64) -> Vec<Fragment> {
        let places = (0..usize::from(self.ring.beside.quanta))
            .flat_map(|index| self.ring.place(position as usize + index));
        let read: Vec<u64> = places
            .map(|word| u64::from_le(word.load(Ordering::Relaxed)))
            .collect();
        let pieces = ReceiveElement::new(&read).map(|element| element.fragments().collect());
        let mut pieces: Vec<Fragment> = pieces.unwrap_or_default();
        // A zero piece at the end only completes a quantum.
        if pieces.len() > 1 && pieces.last() == Some(&Fragment::default()) {
            pieces.pop();
        }
        pieces
    }

    /// Requests posted and not retired.
    #[must_use]
    pub fn used(&self) -> u32 {
        let head = self.passes * u64::from(self.ring.count()) + u64::from(self.ring.next());
        (head - self.state.receive.tail()) as u32 / u32::from(self.ring.beside.quanta)
    }

    /// Requests that can be outstanding.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.ring.count() / u32::from(self.ring.beside.quanta) - 1
    }

    /// Pieces that one request may have.
    #[must_use]
    pub fn maximum_fragments(&self) -> usize {
        self.ring.beside.maximum_fragments.into()
    }

    /// The outstanding requests, shared with the completion queue.
    #[must_use]
    pub fn state(&self) -> &Arc<QueuePairState> {
        &self.state
    }
}

/// Writes the quanta behind an element's first one; returns the first one, for [`commit`].
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
