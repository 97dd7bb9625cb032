//! Objects whose destruction the device never confirmed: kept apart until a reset.

use super::RdmaError;
use super::engine::EngineState;
use super::kept::{Kept, Quarantined, stay};
use super::objects::Object;
use super::records::QueuePairRecord;
use ringside_bus::DmaBuffer;

impl EngineState {
    /// Sets memory apart that the device may still write to: it is not used before a reset.
    pub(crate) fn set_memory_apart(
        &mut self,
        what: &'static str,
        number: u32,
        buffers: Vec<DmaBuffer>,
        reason: &RdmaError,
    ) {
        let bytes: usize = buffers.iter().map(DmaBuffer::length).sum();
        let buffers = self.kept_for_feeder(what, number, buffers);
        if let Some(kept) = self.set_apart_before(what, number) {
            kept.entry.bytes += bytes;
            kept.add(buffers);
            return;
        }
        tracing::error!(what, number, bytes, %reason, "quarantined");
        let kept = Kept::new(what, number, bytes, buffers, reason);
        self.withheld.quarantined.push(kept);
    }

    /// The entry of an object that was set apart.
    fn set_apart_before(&mut self, what: &'static str, number: u32) -> Option<&mut Kept> {
        let mut entries = self.withheld.quarantined.iter_mut();
        entries.find(|kept| (kept.entry.what, kept.entry.number) == (what, number))
    }

    /// Keeps the rings of a queue pair for the shared receive queue that feeds it, which may write
    /// to them after a reset too. Returns the buffers that remain.
    fn kept_for_feeder(
        &mut self,
        what: &'static str,
        number: u32,
        buffers: Vec<DmaBuffer>,
    ) -> Vec<DmaBuffer> {
        if what != QueuePairRecord::NAME {
            return buffers;
        }
        match self.withheld.fed.get_mut(&number) {
            Some(fed) => {
                fed.rings.extend(buffers);
                Vec::new()
            }
            None => buffers,
        }
    }

    /// Frees rings to which a shared receive queue writes no more, unless the device may.
    pub(crate) fn free_fed_rings(&mut self, number: u32, rings: Vec<DmaBuffer>) {
        match self.set_apart_before(QueuePairRecord::NAME, number) {
            Some(kept) => kept.add(rings),
            None => self.free_after_reset(rings),
        }
    }

    /// Memory of an object of a device that failed: free once that was reset.
    pub(crate) fn free_after_reset(&mut self, buffers: impl IntoIterator<Item = DmaBuffer>) {
        let buffers: Vec<DmaBuffer> = buffers.into_iter().collect();
        if self.service.end.holds_memory() {
            stay(&buffers);
            self.withheld.kept.extend(buffers);
        }
    }

    /// The kept entries, oldest first; then those that the device refused to destroy.
    pub(crate) fn quarantined(&self) -> Vec<Quarantined> {
        let withheld = &self.withheld;
        let kept = withheld.quarantined.iter().chain(&withheld.refused);
        kept.map(|kept| kept.entry.clone()).collect()
    }

    /// Gives all of it back to the pool: after a reset of the function, and only then. Returns the
    /// bytes.
    pub(crate) fn reclaim_quarantine(&mut self) -> usize {
        let mut kept = std::mem::take(&mut self.withheld.quarantined);
        kept.append(&mut self.withheld.refused);
        let bytes = kept.iter().map(|kept| kept.entry.bytes).sum();
        drop(kept.into_iter().flat_map(|kept| kept.buffers));
        bytes
    }
}
