//! Buffers on their way into the ring.

use super::{REFILL, ReceiveQueue, WORDS};
use crate::shared::RUN;
use crate::vector::{MARGIN, post, post_run};
use ringside_spec::lan::receive::{MAX_BUFFERS_PER_PACKET, TAIL_MULTIPLE};

/// The smallest share of a pool. Before a refill 17 buffers are left then. The device reads the
/// tail in steps, so that 7 of them may not count: the longest frame has room in the others.
const SHARE_MIN: u16 = 48;
const _: () = assert!(SHARE_MIN >= REFILL + TAIL_MULTIPLE + MAX_BUFFERS_PER_PACKET);

impl ReceiveQueue {
    /// Posts buffers where at least `least` descriptors have none.
    #[inline]
    pub(super) fn refill(&mut self, least: u16) {
        let missing = self.capacity - self.posted;
        if missing < least {
            return;
        }
        // The usual number, after a burst of that many.
        if missing != RUN as u16 || !self.post_run() {
            self.post(missing);
        }
    }

    /// Posts buffers into an empty ring, as many as its share has.
    pub(super) fn fill(&mut self) {
        // One group of descriptors stays unposted: a full ring differs from an empty one.
        self.capacity = self
            .share
            .max(SHARE_MIN)
            .min(self.ring.length - TAIL_MULTIPLE);
        self.post(self.capacity);
    }

    /// Posts a run of buffers; false, and nothing posted, if this thread's cache has none or the
    /// ring ends before.
    #[inline(always)]
    fn post_run(&mut self) -> bool {
        let first = usize::from(self.fill);
        let end = self.fill + RUN as u16;
        let words = self.ring.words().as_slice().get(first * WORDS..);
        let slots = self.slots.get_mut(first + MARGIN..);
        let (Some(words), Some(slots)) = (
            words.and_then(|words| words.first_chunk()),
            slots.and_then(|slots| slots.first_chunk_mut()),
        ) else {
            return false;
        };
        if end > self.ring.length || !self.pool.shared().take_run(slots) {
            return false;
        }
        post_run(self.path, &self.buffers, words, slots);
        self.posted += RUN as u16;
        self.fill = if end == self.ring.length { 0 } else { end };
        self.ring_tail();
        true
    }

    #[inline(always)]
    fn ring_tail(&self) {
        let tail = self.fill - self.fill % TAIL_MULTIPLE;
        self.tail.ring(tail.into());
    }

    /// Posts buffers into descriptors in a row, which exist; returns how many of `count`.
    fn post_row(&mut self, count: u16) -> u16 {
        let first = usize::from(self.fill);
        let count = usize::from(count);
        let slots = &mut self.slots[MARGIN + first..MARGIN + first + count];
        let got = self.pool.shared().take(slots);
        let words = &self.ring.words().as_slice()[first * WORDS..];
        post(self.path, &self.buffers, words, &slots[..got]);
        self.posted += got as u16;
        self.fill += got as u16;
        if self.fill == self.ring.length {
            self.fill = 0;
        }
        self.counters.no_buffers += u64::from(got < count);
        got as u16
    }

    /// Posts buffers into all descriptors that have none, if there are as many. Not inlined: nearly
    /// all are posted as runs.
    #[inline(never)]
    fn post(&mut self, missing: u16) {
        let mut left = missing;
        loop {
            let count = left.min(self.ring.length - self.fill);
            let got = self.post_row(count);
            left -= got;
            if left == 0 || got < count {
                break;
            }
        }
        if left < missing {
            self.ring_tail();
        }
    }
}
