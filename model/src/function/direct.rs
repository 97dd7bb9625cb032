//! Delivery from function to function without a frame.

use super::{Context, FunctionModel, lend};
use crate::chip::Verdict;
use crate::packet::Path;
use crate::rdma::deliver;
use ringside_bus::{DmaSpace, Instant};

impl FunctionModel {
    /// True if the cache may not hold all its queue pairs.
    #[inline]
    pub(crate) fn has_many_queue_pairs(&self) -> bool {
        self.rdma.has_many()
    }

    /// Has the queue pair that was rung brought into the cache; see
    /// [`crate::rdma::RdmaEngine::prefetch_rung`].
    #[inline]
    pub(crate) fn prefetch_rung(&self) -> Option<u32> {
        self.rdma.prefetch_rung()
    }

    /// Has a queue pair that is about to receive brought into the cache.
    #[inline]
    pub(crate) fn prefetch_peer(&self, number: u32) {
        self.rdma.prefetch_peer(number);
    }

    /// The lower layers of the packet that the RDMA engine sends next, if another function may get
    /// it by [`FunctionModel::deliver_to`].
    #[inline]
    pub(crate) fn direct_path(&mut self, spaces: &[DmaSpace]) -> Option<Path> {
        if !self.link_up {
            return None;
        }
        let path = self.rdma.direct_path(spaces.get(self.index)?)?;
        (!self.loops_back(path.destination)).then_some(path)
    }

    /// Delivers the next packets of the RDMA engine, `most` at most, to another function, as if
    /// unicast frames had gone along `path`. Returns their number; `None` if frames have to go.
    pub(crate) fn deliver_to(
        &mut self,
        receiver: &mut Self,
        path: &Path,
        (spaces, now): (&[DmaSpace], Instant),
        most: u32,
    ) -> Option<u32> {
        let memories = (spaces.get(self.index), spaces.get(receiver.index));
        let (Some(near), Some(far)) = memories else {
            return None;
        };
        let verdict = receiver.filter.judge(path.destination);
        if !receiver.link_up || !matches!(verdict, Verdict::Accepted { rdma: true }) {
            return None;
        }
        let mut sending = lend!(self, near, now);
        let mut receiving = lend!(receiver, far, now);
        let from = (&mut self.rdma, &mut sending);
        let to = (&mut receiver.rdma, &mut receiving);
        let delivered = deliver(from, to, path, most)?;
        let (bytes, packets) = (delivered.wire_bytes, u64::from(delivered.packets));
        self.statistics.sent.count_unicast(bytes, packets);
        let received = &mut receiver.statistics;
        received.received.count_unicast(bytes, packets);
        received.vsi_received.count_unicast(bytes, packets);
        receiver.deliver_causes();
        Some(delivered.packets)
    }

    /// Gives the RDMA engine's next queue pair its turn, if an acknowledgement is all that it would
    /// bring. True if that is the next packet.
    #[inline]
    pub(crate) fn acknowledges_next(&mut self, spaces: &[DmaSpace]) -> bool {
        let memory = spaces.get(self.index);
        memory.is_some_and(|memory| self.rdma.acknowledges_next(memory))
    }
}
