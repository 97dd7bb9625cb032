//! Steering tags of regions and windows, and the record that both are.

use crate::rdma::RdmaError;
use crate::rdma::lifecycle::Making;
use crate::rdma::objects::Object;
use crate::rdma::objects::{Held, Objects, Table};
use crate::rdma::records::RegionRecord;
use ringside_spec::rdma::commands::{DeallocateStag, SteeringTag};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::STAG_INDEX_BITS;

impl Object for RegionRecord {
    const NAME: &'static str = "memory region";
    const CONTEXT: ObjectType = ObjectType::MemoryRegion;
    type Destroy = DeallocateStag;

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.regions
    }

    fn destruction(&self, _number: u32) -> DeallocateStag {
        DeallocateStag {
            protection_domain: self.protection_domain,
            stag_index: self.stag_index,
            is_memory_region: !self.is_window,
        }
    }
}

impl Making<'_, '_, RegionRecord> {
    /// A tag for the region or window; it cannot be guessed.
    pub(crate) fn steering_tag(&mut self) -> SteeringTag {
        let number = self.number();
        let state = self.state();
        let bits = state.objects.region_index_bits;
        let random = u64::from(state.random_24_bits());
        let index = (random << bits | u64::from(number)) & ((1 << STAG_INDEX_BITS) - 1);
        SteeringTag::ZERO
            .with_index(index as u32)
            .with_key(state.random_24_bits() & 0xFF)
    }

    /// Takes page buffer list entries for so many pages in one run. Returns the first one's index.
    pub(crate) fn reserve_pages(&mut self, pages: u32) -> Result<u32, RdmaError> {
        let list = self
            .state()
            .memory(|memory, _| memory.reserve_pages(pages))?;
        let first = list.first_index();
        self.hold(Held::Pages(list));
        Ok(first)
    }
}
