//! Packets on their way between queues.

use crate::packet::Packet;
use arrayvec::ArrayVec;

/// Packets of a burst at most.
pub const MAX_BURST: usize = 64;

/// Up to [`MAX_BURST`] packets, or fewer if it was made so.
#[derive(Debug)]
pub struct Burst {
    pub(crate) packets: ArrayVec<Packet, MAX_BURST>,
    limit: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Self::with_limit(32)
    }
}

impl Burst {
    /// An empty burst for `limit` packets, 1..=[`MAX_BURST`]; a value outside is brought inside.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            packets: ArrayVec::new(),
            limit: limit.clamp(1, MAX_BURST),
        }
    }

    /// The number of packets that it can still take.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit - self.packets.len().min(self.limit)
    }

    /// The number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True if it has no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Appends a packet; gives it back if the burst is full.
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.room() == 0 {
            return Err(packet);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Its packets, in order.
    #[inline]
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// The same, to be changed.
    #[inline]
    #[must_use]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Takes all packets out.
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.packets.drain(..)
    }

    /// Keeps the packets for which `keep` returns true, and drops the others.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Packet) -> bool) {
        self.packets.retain(|packet| keep(packet));
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.packets.clear();
    }
}
