//! Buffers on their way into the ring.

use super::{ReceiveQueue, WORDS};
use crate::shared::RUN;
use crate::vector::{MARGIN, post, post_run};
use ringside_spec::lan::receive::TAIL_MULTIPLE;

impl ReceiveQueue {
    /// Posts buffers where at least `least` descriptors have none.
    #[inline]
    pub(super) fn refill(&mut self, least: u16) {
        // One group of descriptors stays unposted: a full ring differs from an empty one.
        let capacity = self.ring.length - TAIL_MULTIPLE;
        let missing = capacity - self.posted;
        if missing < least {
            return;
        }
        // The usual number, after a burst of that many.
        if missing != RUN as u16 || !self.post_run() {
            self.post(missing);
        }
    }

    /// Posts buffers into an empty ring, at most `most`.
    pub(super) fn fill(&mut self, most: u16) {
        self.post((self.ring.length - TAIL_MULTIPLE).min(most));
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
