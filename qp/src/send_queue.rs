//! The send queue: a ring of quanta that the device reads.
//!
//! # Why nothing is cleared ahead of the head
//! The device reads elements while the valid bit of the next first quantum has the polarity of
//! this pass, and stops at the first that hasn't. So the quantum at the head must show the *other*
//! polarity until it is posted. The Linux driver keeps that true by overwriting 128 quanta
//! (4 KiB) ahead of its head from time to time. It is true without:
//!
//! *Invariant: every quantum behind the head, of this pass, has this pass's polarity in bit 63 of
//! its last word; every quantum from the head on has the last pass's.*
//!
//! It starts true: the ring begins zeroed, and the first pass's polarity is 1. Each post keeps it
//! true, because elements and padding cover the ring without gaps and every kind of quantum
//! carries the bit: a first quantum and a NOP in its header; a quantum of fragments in the second
//! fragment's valid bit (an even count is completed by a zero fragment that has it); a quantum of
//! inline data in its byte 31. When the ring wraps, the polarity turns round, and what this pass
//! wrote is what the next pass calls invalid. The tests check the invariant over the whole ring
//! after each post of a random sequence.
//!
//! A quantum inside an element gets its bit before the first quantum commits the element. That is
//! no hole: the device comes to it only through that first quantum.

use crate::RingError;
use crate::request::{Nop, RequestError, SendFlags, WorkRequest};
use crate::state::{QueuePairState, SendRecordInfo};
use ringside_bus::{Doorbell, Words};
use ringside_spec::verbs::sizes::{MAXIMUM_RING_QUANTA, MINIMUM_SEND_RING_QUANTA};
use ringside_spec::verbs::{MAXIMUM_QUANTA, QUANTUM_WORDS, Quantum};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// Why a send request was not posted. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostSendError {
    /// No room: poll completions and try again. Unsignalled requests give their room back only
    /// when a later signalled one completes.
    #[error("the send queue is full: poll its completion queue, then post again")]
    QueueFull,
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Quanta that always stay free, so that a full ring differs from an empty one.
const FREE_QUANTA: u64 = 1;

/// A queue pair's send queue. `Send`, not `Sync`: it belongs to one core.
///
/// One cache line, which no post writes: what changes is in the state's line.
#[derive(Debug)]
#[repr(align(64))]
pub struct SendQueue {
    ring: Words,
    doorbell: Doorbell,
    state: Arc<QueuePairState>,
    one_core: PhantomData<Cell<()>>,
}

const _: () = assert!(size_of::<SendQueue>() == 64, "a post reads one line of it");

impl SendQueue {
    /// A queue in `ring`, which must be zeroed and unknown to the device as yet.
    ///
    /// Range: 64..=32768 quanta, a power of two, as many as `state` was made for.
    /// Effects: fills the ring with zeros.
    pub fn new(
        ring: Words,
        doorbell: Doorbell,
        state: Arc<QueuePairState>,
    ) -> Result<Self, RingError> {
        let quanta = ring.count() / QUANTUM_WORDS;
        let in_range =
            (MINIMUM_SEND_RING_QUANTA as usize..=MAXIMUM_RING_QUANTA as usize).contains(&quanta);
        if !in_range || !quanta.is_power_of_two() || !ring.count().is_multiple_of(QUANTUM_WORDS) {
            return Err(RingError::WrongSize {
                words: ring.count(),
                minimum: MINIMUM_SEND_RING_QUANTA,
                maximum: MAXIMUM_RING_QUANTA,
            });
        }
        if state.send.slots() != quanta {
            return Err(RingError::StateMismatch {
                ring: quanta,
                state: state.send.slots(),
            });
        }
        ring.fill(0);
        Ok(Self {
            ring,
            doorbell,
            state,
            one_core: PhantomData,
        })
    }

    /// Posts one request; the device sees it, but may not look until [`Self::ring_doorbell`].
    ///
    /// Shape: 1..=8 contiguous quanta that do not cross a block of eight; NOPs fill the gap.
    /// Effects: memory only. `id` comes back in the completion.
    /// Errors: [`PostSendError::QueueFull`] (poll, then retry), [`PostSendError::Request`].
    /// Source: rdma-core `uk.c`, irdma_qp_get_next_send_wqe.
    #[inline(always)]
    pub fn post<R: WorkRequest>(
        &mut self,
        id: u64,
        request: &R,
        flags: SendFlags,
    ) -> Result<(), PostSendError> {
        let shape = request.shape()?;
        let quanta = shape.quanta as u64;
        let state = &self.state.send;
        let size = state.slots() as u64;
        let position = self.reserve(quanta, size)?;
        let polarity = position & size == 0;
        let slot = (position & (size - 1)) as usize;
        let (ring, _) = self.ring.as_slice().as_chunks::<QUANTUM_WORDS>();
        // Always there: the ring has as many places as its state.
        let Some(place) = ring.get(slot) else {
            return Err(PostSendError::QueueFull);
        };
        let [a, b, c, header] = request.encode(flags, polarity, |index, quantum| {
            if let Some(place) = ring.get(slot + index) {
                store_further(place, quantum);
            }
        });
        // The words without the valid bit before the record, so that few values are kept at a time.
        place[0].store(a.to_le(), Ordering::Relaxed);
        place[1].store(b.to_le(), Ordering::Relaxed);
        place[2].store(c.to_le(), Ordering::Relaxed);
        let signalled = flags.contains(SendFlags::SIGNALLED);
        let info = SendRecordInfo::ZERO
            .with_length_bytes(u64::from(shape.length_bytes))
            .with_opcode(u64::from(request.opcode(flags).code()))
            .with_quanta(quanta)
            .with_signalled(signalled);
        let next = position + quanta;
        let before = signalled.then(|| state.report_to(next));
        state.post(slot, position, id, info, before, next);
        place[3].store(header.to_le(), Ordering::Release);
        Ok(())
    }

    /// Tells the device that there is work: once for a burst of posts.
    ///
    /// Always rung. The Linux driver leaves it out when the device's own tail says that it is
    /// still reading; that saves a store to the device at the price of a fence and a load of a
    /// line that the device writes, at each post.
    #[inline]
    pub fn ring_doorbell(&self) {
        self.doorbell.ring(self.state.send.number());
    }

    /// Quanta posted and not retired, padding included.
    #[must_use]
    pub fn used_quanta(&self) -> u32 {
        (self.state.send.head() - self.state.send.tail()) as u32
    }

    /// Quanta that can be outstanding, padding included.
    #[must_use]
    pub fn capacity_quanta(&self) -> u32 {
        self.state.send.slots() as u32 - FREE_QUANTA as u32
    }

    /// Index of the ring that the next post begins at, before any padding.
    #[must_use]
    pub fn head_index(&self) -> u32 {
        (self.state.send.head() & (self.state.send.slots() as u64 - 1)) as u32
    }

    /// What is outstanding, shared with the completion queue.
    #[must_use]
    pub fn state(&self) -> &Arc<QueuePairState> {
        &self.state
    }

    /// Finds `quanta` contiguous places of a ring of `size` and pads up to them; the position of the first.
    #[inline(always)]
    fn reserve(&self, quanta: u64, size: u64) -> Result<u64, PostSendError> {
        let block = MAXIMUM_QUANTA as u64;
        let state = &self.state.send;
        let head = state.posted();
        let in_block = head % block;
        let crosses = in_block + quanta > block;
        let padding = if crosses { block - in_block } else { 0 };
        let end = head + padding + quanta;
        if end - state.tail() > size - FREE_QUANTA {
            return Err(PostSendError::QueueFull);
        }
        if crosses {
            self.pad(head, padding);
        }
        Ok(head + padding)
    }

    /// Fills the rest of a block with NOPs, one quantum each.
    #[inline(never)]
    fn pad(&self, head: u64, count: u64) {
        let size = self.state.send.slots() as u64;
        let polarity = head & size == 0;
        let slot = (head & (size - 1)) as usize;
        let (ring, _) = self.ring.as_slice().as_chunks::<QUANTUM_WORDS>();
        let nop = Nop.encode(SendFlags::NONE, polarity, |_, _| {});
        for place in ring.iter().skip(slot).take(count as usize) {
            commit(place, nop);
        }
        self.state.send.skip_to(head + count);
    }
}

#[inline(always)]
fn store_further(place: &[AtomicU64; QUANTUM_WORDS], quantum: Quantum) {
    for (word, value) in place.iter().zip(quantum) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

/// Stores a first quantum, the word with the valid bit last and after everything before it.
#[inline(always)]
pub(crate) fn commit(place: &[AtomicU64; QUANTUM_WORDS], quantum: Quantum) {
    let [a, b, c, header] = quantum;
    place[0].store(a.to_le(), Ordering::Relaxed);
    place[1].store(b.to_le(), Ordering::Relaxed);
    place[2].store(c.to_le(), Ordering::Relaxed);
    place[3].store(header.to_le(), Ordering::Release);
}

#[cfg(test)]
mod tests;
