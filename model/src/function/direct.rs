//! Delivery from function to function without a frame.

use super::{Context, FunctionModel, lend};
use crate::chip::Verdict;
use crate::packet::Path;
use crate::rdma::{Way, deliver};
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

    /// Grows with every change of what [`FunctionModel::direct_path`] and
    /// [`FunctionModel::takes_directly`] depend on, the queue pair's own settings aside.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes + self.rdma.address_changes()
    }

    /// The way of the packet that the RDMA engine sends next as it was last found, if another
    /// function may get it by [`FunctionModel::deliver_to`].
    #[inline]
    pub(crate) fn direct_way(&mut self, spaces: &[DmaSpace]) -> Option<Way> {
        self.rdma.direct_way(spaces.get(self.index)?)
    }

    /// The lower layers of the packet that the RDMA engine sends next, if it may leave the function
    /// without a frame.
    pub(crate) fn direct_path(&self) -> Option<Path> {
        if !self.link_up {
            return None;
        }
        let path = self.rdma.direct_path()?;
        (!self.loops_back(path.destination)).then_some(path)
    }

    /// True if RDMA packets with these lower layers get in.
    pub(crate) fn takes_directly(&self, path: &Path) -> bool {
        let verdict = self.filter.judge(path.destination, path.vlan);
        self.link_up && matches!(verdict, Verdict::Accepted { rdma: true })
    }

    /// Keeps the way of the packet that the RDMA engine sends next.
    pub(crate) fn keep_way(&mut self, way: Way) {
        self.rdma.keep_way(way);
    }

    /// Delivers the next packets of the RDMA engine, `most` at most, to the function at the end of
    /// their way, as if unicast frames had gone there. Returns their number; `None` if frames have
    /// to go.
    pub(crate) fn deliver_to(
        &mut self,
        receiver: &mut Self,
        (spaces, now): (&[DmaSpace], Instant),
        most: u32,
    ) -> Option<u32> {
        let memories = (spaces.get(self.index), spaces.get(receiver.index));
        let (Some(near), Some(far)) = memories else {
            return None;
        };
        let mut sending = lend!(self, near, now);
        let mut receiving = lend!(receiver, far, now);
        let from = (&mut self.rdma, &mut sending);
        let to = (&mut receiver.rdma, &mut receiving);
        let delivered = deliver(from, to, most)?;
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
