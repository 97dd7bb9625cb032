//! Writes of one packet, for a carrier that hands them to the responder without packets.

use ringside_clock::Instant;

use super::{MAX_SPAN, Phase, Requester};
use crate::packet::{Psn, QpNumber};
use crate::work::Operation;

/// A write without immediate data whose one packet may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortWrite {
    /// the caller's own name for the request
    pub token: u32,
    /// first byte at the peer
    pub address: u64,
    /// key of the peer's memory
    pub key: u32,
    /// bytes, at least 1
    pub length_bytes: u32,
    /// number of its packet, which requests an acknowledgement
    pub psn: Psn,
}

impl Requester {
    /// True if the next packet is a whole write: a cheaper look than [`Requester::short_write`].
    /// That may still refuse it: its window is full, it is a repetition, or it has no bytes.
    #[inline]
    #[must_use]
    pub fn is_at_short_write(&self) -> bool {
        let slot = self.slot(self.cursor);
        let is_write = matches!(slot.request.operation, Operation::Write { .. });
        self.cursor != self.tail && slot.packets == 1 && is_write
    }

    /// The next packet, if it is a whole write that was never sent before and may leave now. It has
    /// not left yet: [`Requester::sent_short_write`] records that. Any other packet is left to
    /// [`Requester::next_packet`].
    #[inline]
    #[must_use]
    pub fn short_write(&self) -> Option<ShortWrite> {
        if self.cursor == self.tail || !matches!(self.phase, Phase::Open | Phase::Unanswered { .. })
        {
            return None;
        }
        let slot = self.slot(self.cursor);
        let Operation::Write { address, key } = slot.request.operation else {
            return None;
        };
        let waiting = self
            .next
            .saturating_sub(self.unanswered.max(self.reads_end));
        let may_leave = waiting < self.settings.window && self.next - self.unanswered < MAX_SPAN;
        let is_whole = slot.packets == 1 && slot.request.length_bytes > 0;
        if !may_leave || !is_whole || self.next < self.sent_end {
            return None;
        }
        Some(ShortWrite {
            token: slot.request.token,
            address,
            key,
            length_bytes: slot.request.length_bytes,
            psn: Psn::from_position(self.next),
        })
    }

    /// Records that the write of [`Requester::short_write`] has left.
    #[inline]
    pub fn sent_short_write(&mut self, now: Instant) {
        self.sent(1, true);
        if self.phase == Phase::Open {
            self.await_answer(now);
        }
        self.statistics.packets_sent += 1;
    }

    /// True if all packets of all requests have left, and every completion was taken.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.cursor == self.tail && self.head == self.done
    }

    /// The peer's queue pair, and the partition key of all packets.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> (QpNumber, u16) {
        let template = &self.settings.template;
        (template.destination_qp, template.partition_key)
    }
}
