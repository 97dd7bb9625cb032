//! The receive queue: a ring of elements of one size that the device reads when it needs one.
//!
//! There is no doorbell: the valid bit alone tells the device, so software keeps the queue from
//! overrunning. Source: irdma `uk.c`, irdma_uk_post_receive.

use crate::RingError;
use crate::send_queue::commit;
use crate::state::{QueuePairState, SendRecordInfo};
use ringside_bus::Words;
use ringside_spec::verbs::receive::ReceiveHeader;
use ringside_spec::verbs::sizes::{MAXIMUM_FRAGMENTS, MAXIMUM_RING_QUANTA};
use ringside_spec::verbs::{Fragment, QUANTUM_WORDS, ReceiveElement};
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
#[derive(Debug)]
pub struct ReceiveQueue {
    ring: Words,
    state: Arc<QueuePairState>,
    maximum_fragments: usize,
    one_core: PhantomData<Cell<()>>,
}

impl ReceiveQueue {
    /// A queue in `ring`, of elements of the state's size.
    ///
    /// Range: a power of two of elements, as many as `state` was made for; at most 32768 quanta.
    /// Effects: fills the ring with zeros.
    pub fn new(ring: Words, state: Arc<QueuePairState>) -> Result<Self, RingError> {
        let quanta = ring.count() / QUANTUM_WORDS;
        let shift = state.receive.element_shift();
        let elements = quanta >> shift;
        if !quanta.is_power_of_two() || quanta > MAXIMUM_RING_QUANTA as usize || elements < 2 {
            return Err(RingError::WrongSize {
                words: ring.count(),
                minimum: 2 << shift,
                maximum: MAXIMUM_RING_QUANTA,
            });
        }
        if state.receive.slots() != elements {
            return Err(RingError::StateMismatch {
                ring: elements,
                state: state.receive.slots(),
            });
        }
        ring.fill(0);
        let slots = (2 << shift) - 1;
        Ok(Self {
            ring,
            maximum_fragments: slots.min(MAXIMUM_FRAGMENTS),
            state,
            one_core: PhantomData,
        })
    }

    /// Posts one buffer, in up to as many pieces as the queue was made for.
    ///
    /// Effects: memory only; the device may take it at once. `id` comes back in the completion.
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the others are the caller's
    /// mistakes.
    #[inline]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        if fragments.len() > self.maximum_fragments {
            return Err(PostReceiveError::TooManyFragments {
                given: fragments.len(),
                maximum: self.maximum_fragments,
            });
        }
        let longest = fragments.iter().map(|piece| piece.length_bytes).max();
        if let Some(length_bytes) = longest.filter(|&bytes| bytes > Fragment::MAXIMUM_BYTES) {
            return Err(PostReceiveError::FragmentTooLong { length_bytes });
        }
        let state = &self.state.receive;
        let size = state.slots() as u64;
        let position = state.posted();
        if position - state.tail() >= size - 1 {
            return Err(PostReceiveError::QueueFull);
        }
        let polarity = position & size == 0;
        let slot = (position & (size - 1)) as usize;
        // One place, of whatever size.
        let info = SendRecordInfo::ZERO.with_quanta(1);
        // Every receive is reported: the one before ends where this one is.
        state.post(slot, position, id, info, Some(position), position + 1);
        self.write(slot << state.element_shift(), polarity, fragments);
        Ok(())
    }

    #[inline(always)]
    fn write(&self, slot: usize, polarity: bool, fragments: &[Fragment]) {
        let (ring, _) = self.ring.as_slice().as_chunks::<QUANTUM_WORDS>();
        let (first, rest) = match fragments {
            [first, rest @ ..] => (*first, rest),
            [] => (Fragment::default(), &[][..]),
        };
        let mut slots = 0;
        for (pair, place) in rest.chunks(2).zip(ring.iter().skip(slot + 1)) {
            let second = pair.get(1).copied().unwrap_or_default().encode(polarity);
            let piece = pair.first().copied().unwrap_or_default().encode(polarity);
            for (word, value) in place.iter().zip(piece.into_iter().chain(second)) {
                word.store(value.to_le(), Ordering::Relaxed);
            }
            slots += 2;
        }
        let header = ReceiveHeader::ZERO
            .with_further_fragments(slots)
            .with_valid(polarity);
        let [address, key] = first.encode(polarity);
        if let Some(place) = ring.get(slot) {
            commit(place, [address, key, 0, header.0]);
        }
    }

    /// The pieces of the request at a position, as they stand in the ring: good for those that are
    /// outstanding or completed last. The device only reads them. Allocates.
    #[must_use]
    pub fn fragments_at(&self, position: u64) -> Vec<Fragment> {
        let state = &self.state.receive;
        let words = QUANTUM_WORDS << state.element_shift();
        let first = (position as usize & (state.slots() - 1)) * words;
        let element = self.ring.as_slice().get(first..first + words);
        let read: Vec<u64> = element
            .unwrap_or(&[])
            .iter()
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
        (self.state.receive.head() - self.state.receive.tail()) as u32
    }

    /// Requests that can be outstanding.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.state.receive.slots() as u32 - 1
    }

    /// Pieces that one request may have.
    #[must_use]
    pub fn maximum_fragments(&self) -> usize {
        self.maximum_fragments
    }

    /// What is outstanding, shared with the completion queue.
    #[must_use]
    pub fn state(&self) -> &Arc<QueuePairState> {
        &self.state
    }
}

#[cfg(test)]
mod tests;
