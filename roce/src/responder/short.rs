//! Writes of one packet and their acknowledgement, for a carrier without packets.

use super::{Message, Pending, Phase, Responder};
use crate::packet::{Psn, QpNumber};
use crate::partition_keys_match;

impl<G: Copy> Responder<G> {
    /// True if a write whose one packet has this number and partition key would be taken, once its
    /// memory is granted. Nothing changes: [`Responder::took_short_write`] records it.
    #[inline]
    #[must_use]
    pub fn takes_short_write(&self, partition_key: u16, psn: Psn, length_bytes: u32) -> bool {
        self.phase == Phase::InOrder
            && matches!(self.message, Message::None)
            && psn == self.expected
            && length_bytes <= self.mtu.bytes()
            && partition_keys_match(partition_key, self.template.partition_key)
    }

    /// Records that the write of [`Responder::takes_short_write`] is in its memory.
    #[inline]
    pub fn took_short_write(&mut self) {
        self.message = Message::None;
        self.expected = self.expected.plus(1);
        self.behind = (self.behind + 1).min(Psn::MODULUS / 2);
        self.message_done();
        self.pending = Pending::Acknowledge;
        self.statistics.packets_accepted += 1;
    }

    /// True if the next packet is an acknowledgement without a refusal, not the response of a read.
    #[inline]
    #[must_use]
    pub fn acknowledges(&self) -> bool {
        self.pending == Pending::Acknowledge && self.reads.is_empty()
    }

    /// Takes the acknowledgement that leaves next, if one does ([`Responder::acknowledges`]):
    /// everything up to the packet of this number arrived. Returns also the partition key.
    #[inline]
    pub fn take_acknowledgement(&mut self) -> Option<(Psn, u16)> {
        if !self.acknowledges() {
            return None;
        }
        self.pending = Pending::None;
        self.statistics.acknowledgements_sent += 1;
        let psn = self.expected.plus(Psn::MODULUS - 1);
        Some((psn, self.template.partition_key))
    }

    /// The peer's queue pair.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> QpNumber {
        self.template.destination_qp
    }
}
