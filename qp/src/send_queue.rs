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
//! A quantum inside an element gets its bit before the first quantum commits the element. This is
//! safe: the device reads it only through that first quantum.

use crate::RingError;
use crate::element::{commit, make_valid, store_further, store_words};
use crate::request::{Nop, Polarity, RequestError, SendFlags, WorkRequest};
use crate::state::{QueuePairState, SendRecordInfo, Tracker};
use ringside_bus::{Doorbell, PostRing, Words, ZeroedRing};
use ringside_spec::verbs::sizes::{MAX_RING_QUANTA, MIN_SEND_RING_QUANTA};
use ringside_spec::verbs::{MAX_QUANTA, SendOpcode};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use thiserror::Error;

/// Reasons why a send request was not posted. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostSendError {
    /// No room: poll completions and try again. An unsignalled request frees its room only when a
    /// later signalled one completes.
    #[error("the send queue is full: poll its completion queue, then post again")]
    QueueFull,
    /// The request itself is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Quanta that always stay free, so that a full ring differs from an empty one.
const FREE_QUANTA: u64 = 1;

/// Quanta of a block. No element crosses the end of a block.
const BLOCK: u32 = MAX_QUANTA as u32;

/// A queue pair's send queue. `Send`, not `Sync`: it belongs to one core.
///
/// The first cache line holds what each post and each doorbell needs. The ring's limit is the end
/// of the free places or the end of the pass, whichever comes first: a post reads the tail and
/// turns the polarity only when it reaches the limit.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SendQueue {
    ring: PostRing<EachPost>,
    // The fields below are read only when a post reaches the limit.
    /// Passes of the ring that are complete.
    passes: u64,
    state: Arc<QueuePairState>,
    one_core: PhantomData<Cell<()>>,
}

/// The values besides the ring that each post and each doorbell needs.
#[derive(Debug)]
#[repr(C)]
struct EachPost {
    polarity: Polarity,
    /// number of the queue pair
    number: u32,
    /// Extends beyond the cache line: the part that a mapped doorbell needs comes first.
    doorbell: Doorbell,
}

const _: () = assert!(
    PostRing::<EachPost>::HOT_BYTES - size_of::<Doorbell>() / 2 <= 64,
    "a post reads one line of it, and its doorbell's address is there too"
);

impl SendQueue {
    /// Makes a queue in `ring`, which the device must not know yet.
    ///
    /// Range: 64..=32768 quanta, a power of two, as many as `state` was made for.
    /// Effects: fills the ring with zeros.
    pub fn new(
        ring: Words,
        doorbell: Doorbell,
        state: Arc<QueuePairState>,
    ) -> Result<Self, RingError> {
        let sizes = MIN_SEND_RING_QUANTA as usize..=MAX_RING_QUANTA as usize;
        let ring = ZeroedRing::new(ring, sizes).map_err(|error| RingError::WrongSize {
            words: error.words,
            minimum: MIN_SEND_RING_QUANTA,
            maximum: MAX_RING_QUANTA,
        })?;
        let mismatch = RingError::StateMismatch {
            ring: ring.places(),
            state: state.send.slots(),
        };
        let each_post = EachPost {
            polarity: true.into(),
            number: state.number(),
            doorbell,
        };
        let ring = PostRing::new(ring, state.send.records().clone(), each_post);
        let mut queue = Self {
            ring: ring.ok_or(mismatch)?,
            passes: 0,
            state,
            one_core: PhantomData,
        };
        queue.look_at_tail();
        Ok(queue)
    }

    /// Posts one request. The device may process it only after [`Self::ring_doorbell`].
    ///
    /// Shape: 1..=8 contiguous quanta that do not cross a block of eight; NOPs fill the gap.
    /// Effects: writes memory only. The completion returns `id`.
    /// Errors: [`PostSendError::QueueFull`] (poll, then retry), [`PostSendError::Request`].
    /// Source: rdma-core `uk.c`, irdma_qp_get_next_send_wqe.
    #[inline(always)]
    pub fn post<R: WorkRequest>(
        &mut self,
        id: u64,
        request: &R,
        flags: SendFlags,
    ) -> Result<(), PostSendError> {
        // Checked before the request is read, so that few values are live meanwhile. The rest works
        // on a copy, so that the common case keeps the ring's values in registers.
        if !self.ring.has(1) {
            self.look_at_tail();
            return self.post_now(id, request, flags);
        }
        self.post_now(id, request, flags)
    }

    /// Posts one request if a place is free.
    #[inline(always)]
    fn post_now<R: WorkRequest>(
        &mut self,
        id: u64,
        request: &R,
        flags: SendFlags,
    ) -> Result<(), PostSendError> {
        let shape = request.shape()?;
        let quanta = shape.quanta as u32;
        if crosses(self.ring.next(), quanta) && !self.fill_block(quanta) {
            return Err(PostSendError::QueueFull);
        }
        if quanta > 1 && !self.ring.has(quanta) {
            self.look_at_tail();
        }
        let polarity = self.ring.beside.polarity;
        let Some(element) = self.ring.take(quanta) else {
            return Err(PostSendError::QueueFull);
        };
        let quantum = request.encode(flags, polarity, |index, quantum| {
            if let Some(place) = element.further(index) {
                store_further(place, quantum);
            }
        });
        // The words without the valid bit are stored before the record, so that few values are live
        // at a time.
        let place = element.first();
        let header = store_words(place, quantum);
        let info = SendRecordInfo::ZERO
            .with_length_bytes(u64::from(shape.length_bytes))
            .with_opcode(u64::from(request.opcode(flags).code()))
            .with_quanta(u64::from(quanta))
            .with_silent(!flags.contains(SendFlags::SIGNALLED));
        Tracker::note(element.record(), id, info);
        make_valid(place, header);
        Ok(())
    }

    /// Notifies the device of new work. Call it once for a burst of posts.
    ///
    /// The doorbell is always rung. The Linux driver omits it while the device's own tail shows
    /// that the device is still reading. That saves a store to the device, but each post pays a
    /// fence and a load of a cache line that the device writes.
    #[inline(always)]
    pub fn ring_doorbell(&self) {
        let EachPost {
            doorbell, number, ..
        } = &self.ring.beside;
        doorbell.ring(*number);
    }

    /// Prefetches the memory that the next post writes: its quantum and its record.
    ///
    /// A hint without effect on results. With thousands of queue pairs in turn, prefetch the queue
    /// that is posted to about four posts later. With a few queue pairs it costs about 1 ns a post
    /// and gains nothing.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.ring.prefetch();
    }

    /// Quanta posted and not retired, padding included.
    #[must_use]
    pub fn used_quanta(&self) -> u32 {
        (self.head() - self.state.send.tail()) as u32
    }

    /// Quanta that can be outstanding, padding included.
    #[must_use]
    pub fn capacity_quanta(&self) -> u32 {
        self.ring.count() - FREE_QUANTA as u32
    }

    /// Quanta that can be posted now, in this pass and the next: from the head to the tail.
    fn free_quanta(&self) -> u32 {
        let last_free = self.state.send.tail().wrapping_sub(FREE_QUANTA) as u32;
        last_free.wrapping_sub(self.ring.next()) & (self.ring.count() - 1)
    }

    /// Ring index at which the next post begins, before any padding.
    #[must_use]
    pub fn head_index(&self) -> u32 {
        self.ring.next() % self.ring.count()
    }

    /// Quanta posted since the queue was made, padding included.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.passes * u64::from(self.ring.count()) + u64::from(self.ring.next())
    }

    /// The outstanding requests, shared with the completion queue.
    #[must_use]
    pub fn state(&self) -> &Arc<QueuePairState> {
        &self.state
    }

    /// Pads to the next block, which an element of `quanta` would reach into. Without room for both
    /// padding and element, pads nothing and returns false: the element is refused, also if there
    /// is room for it alone.
    #[cold]
    #[inline(never)]
    fn fill_block(&mut self, quanta: u32) -> bool {
        let padding = BLOCK - self.ring.next() % BLOCK;
        if !self.ring.has(padding + quanta) {
            self.renew();
            // Free quanta of the next pass count too: the ring's limit covers this pass only.
            if padding + quanta > self.free_quanta() {
                return false;
            }
        }
        self.pad(padding);
        if self.ring.next() == self.ring.count() {
            self.renew();
        }
        true
    }

    /// Sets the ring's limit to the places that are free now, at most to the end of the pass. At
    /// the end of a pass the polarity turns.
    #[cold]
    #[inline(never)]
    fn look_at_tail(&mut self) {
        self.renew();
    }

    #[inline(always)]
    fn renew(&mut self) {
        // The last free place is one ring length behind the tail, less one.
        if self
            .ring
            .renew(self.state.send.tail().wrapping_sub(FREE_QUANTA))
        {
            self.ring.beside.polarity = self.ring.beside.polarity.turned();
            self.passes += 1;
        }
    }

    /// Fills the rest of a block with NOPs, one quantum each, under one record.
    fn pad(&mut self, count: u32) {
        let polarity = self.ring.beside.polarity;
        let Some(places) = self.ring.take(count) else {
            return;
        };
        let nop = Nop.encode(SendFlags::NONE, polarity, |_, _| {});
        for place in (0..count as usize).filter_map(|index| places.further(index)) {
            commit(place, nop, || {});
        }
        let info = SendRecordInfo::ZERO
            .with_quanta(u64::from(count))
            .with_opcode(u64::from(SendOpcode::Nop.code()))
            .with_silent(true)
            .with_padding(true);
        Tracker::note(places.record(), 0, info);
    }
}

/// True if `quanta` quanta from place `next` reach into the next block.
#[inline(always)]
const fn crosses(next: u32, quanta: u32) -> bool {
    next % BLOCK + quanta > BLOCK
}

#[cfg(test)]
mod tests;
