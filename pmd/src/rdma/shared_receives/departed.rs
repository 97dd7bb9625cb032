//! Queue pairs that were destroyed or dropped while a shared receive queue feeds them.

use super::SharedReceiveQueue;
use crate::rdma::engine::EngineState;
use crate::rdma::records::{FedEnd, FedQueuePair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl SharedReceiveQueue {
    /// True if a queue pair that it feeds was destroyed since [`Self::take_over_departed`].
    #[inline]
    pub(super) fn has_departed(&self) -> bool {
        self.departed.load(Ordering::Acquire)
    }

    /// Takes the receives of all queue pairs that it feeds and that were destroyed.
    #[cold]
    pub(super) fn take_over_departed(&mut self) {
        if self.domain.engine().is_elsewhere() {
            return;
        }
        self.departed.store(false, Ordering::Relaxed);
        let gone = self.domain.engine().state().departed_from(&self.departed);
        for number in gone {
            self.take_over(number);
        }
    }

    /// Takes the receives of a queue pair that it feeds and that was destroyed, for the others.
    /// Returns their number: 0 if the device may still write to them. Those are reported as flushed
    /// once it writes nothing more.
    pub(super) fn take_over(&mut self, number: u32) -> usize {
        // Copied first: with the end of the feeding, the memory of its ring returns to the pool.
        let Some(unused) = self.unused(number) else {
            return 0;
        };
        self.inner.forget(number);
        let end = self.domain.engine().state().stop_feeding(number);
        if end == Some(FedEnd::Gone) && !self.may_be_written_to() {
            return self.inner.put_back(&unused);
        }
        self.late.push(unused);
        0
    }
}

impl EngineState {
    /// A shared receive queue writes to the receive ring of this queue pair from now on. `departed`
    /// is set once the queue pair is destroyed.
    pub(super) fn begin_feeding(&mut self, number: u32, departed: &Arc<AtomicBool>) {
        let fed = FedQueuePair {
            rings: Vec::new(),
            is_number_free: false,
            end: None,
            departed: Arc::clone(departed),
        };
        self.withheld.fed.insert(number, fed);
        if let Some(record) = self.objects.queue_pairs.get_mut(number) {
            record.is_fed = true;
        }
    }

    /// Only its owner writes to the rings of this queue pair from now on. Returns its end, if its
    /// owner has destroyed it.
    pub(super) fn stop_feeding(&mut self, number: u32) -> Option<FedEnd> {
        let fed = self.withheld.fed.remove(&number)?;
        self.free_fed_rings(number, fed.rings);
        if let Some(record) = self.objects.queue_pairs.known_mut(number) {
            record.is_fed = false;
        }
        if fed.is_number_free {
            self.objects.queue_pairs.give(number);
        }
        fed.end
    }

    /// The owner of a queue pair has destroyed it: tells the shared receive queue that feeds it.
    pub(crate) fn depart(&mut self, number: u32, end: FedEnd) {
        if let Some(fed) = self.withheld.fed.get_mut(&number) {
            fed.end = Some(end);
            fed.departed.store(true, Ordering::Release);
        }
    }

    /// The queue pairs of this shared receive queue that were destroyed, by number.
    fn departed_from(&self, departed: &Arc<AtomicBool>) -> Vec<u32> {
        let ended = self
            .withheld
            .fed
            .iter()
            .filter(|(_, fed)| fed.end.is_some() && Arc::ptr_eq(&fed.departed, departed));
        ended.map(|(number, _)| *number).collect()
    }
}
