//! Buffers of packets that the device has sent.

use super::TransmitQueue;
use crate::shared::{NO_BUFFER, Shared};
use ringside_spec::lan::transmit::{DataCommand, kind};

/// Words of a descriptor.
pub(super) const WORDS: usize = 2;
/// A slot whose buffer belongs to a packet with several handles: the rest is its first buffer.
pub(super) const SHARED: u32 = 1 << 31;

impl TransmitQueue {
    /// Reclaims the descriptors that the device reports done; returns their number.
    ///
    /// [`TransmitQueue::send`] does it too; a core that sends nothing calls this to get packets
    /// back.
    #[inline]
    pub fn reclaim(&mut self) -> usize {
        if !self.service.in_service() {
            return 0;
        }
        self.reclaim_running()
    }

    /// The same for a queue whose device is known to be in service.
    #[inline(always)]
    pub(super) fn reclaim_running(&mut self) -> usize {
        let before = self.free;
        while self.report_count > 0 {
            let index = self.reports[self.first_report];
            let word = self
                .ring
                .words()
                .load_acquire(usize::from(index) * WORDS + 1);
            if DataCommand(word).kind() != kind::DONE {
                break;
            }
            self.first_report += 1;
            if self.first_report == self.reports.len() {
                self.first_report = 0;
            }
            self.report_count -= 1;
            self.free_through(index);
        }
        let done = self.free - before;
        self.done += u64::from(done);
        done.into()
    }

    /// Descriptors that the device has reported done since the queue was made.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Frees all buffers up to descriptor `last`.
    #[inline(always)]
    pub(super) fn free_through(&mut self, last: u16) {
        let mut first = usize::from(self.clean);
        if last < self.clean {
            self.free_mixed(first, self.slots.len());
            first = 0;
        }
        let end = usize::from(last) + 1;
        // Nearly always all buffers are plain: freed in place.
        if self.special == 0 {
            let slots = &self.slots[first..end];
            self.free += slots.len() as u16;
            self.pool.shared().give(slots);
        } else {
            self.free_mixed(first, end);
        }
        self.clean = self.ring.after(last);
    }

    /// Frees the buffers of descriptors in a row, of which some may not be plain.
    #[inline(never)]
    fn free_mixed(&mut self, first: usize, end: usize) {
        let shared = self.pool.shared();
        let slots = &self.slots[first..end];
        self.free += slots.len() as u16;
        if slots.iter().fold(0, |all, slot| all | slot) < SHARED {
            return shared.give(slots);
        }
        for slot in slots {
            self.special -= u16::from(*slot >= SHARED);
            free_slot(shared, *slot);
        }
    }
}

#[cold]
fn free_slot(shared: &Shared, slot: u32) {
    match slot {
        NO_BUFFER => {}
        slot if slot & SHARED != 0 => shared.give_share(slot & !SHARED),
        slot => shared.give(&[slot]),
    }
}
