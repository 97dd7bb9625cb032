//! Numbers and steering tags of regions and windows.

use crate::control::ControlError;
use crate::rdma::RdmaError;
use crate::rdma::engine::EngineState;
use ringside_spec::rdma::commands::{DeallocateStag, SteeringTag};
use ringside_spec::rdma::limits::STAG_INDEX_BITS;

impl EngineState {
    /// Number and tag for a new region or window; both cannot be guessed.
    pub(crate) fn take_steering_tag(&mut self) -> Result<(u32, SteeringTag), RdmaError> {
        let numbers = self.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
        let number = numbers.regions.take(&mut self.random)?;
        let bits = numbers.region_index_bits;
        let random = u64::from(self.random_24_bits());
        let index = (random << bits | u64::from(number)) & ((1 << STAG_INDEX_BITS) - 1);
        let key = SteeringTag::ZERO
            .with_index(index as u32)
            .with_key(self.random_24_bits() & 0xFF);
        Ok((number, key))
    }

    /// Takes a region or window out of the device; nothing to do if a shutdown did it already.
    /// After a refusal it is still there.
    pub(crate) fn destroy_region(&mut self, number: u32) -> Result<(), RdmaError> {
        let Some(record) = self.regions.get(&number) else {
            return Ok(());
        };
        if let Some(cause) = self.end.cause {
            // It is gone with the reset; before that, the device may still know it.
            return match self.end.released {
                true => Ok(()),
                false => Err(RdmaError::DeviceFailed { cause }),
            };
        }
        let result = self.control.execute(DeallocateStag {
            protection_domain: record.protection_domain,
            stag_index: record.stag_index,
            is_memory_region: !record.is_window,
        });
        if let Err(error @ ControlError::Refused { .. }) = result {
            return Err(error.into());
        }
        let record = self.regions.remove(&number);
        result?;
        self.free_pages(record.and_then(|record| record.pages));
        self.give_region_number(number);
        Ok(())
    }

    pub(crate) fn give_region_number(&mut self, number: u32) {
        if let Some(numbers) = &mut self.numbers {
            numbers.regions.give(number);
        }
    }

    pub(crate) fn free_pages(&mut self, pages: Option<ringside_hmc::PageList>) {
        if let (Some(memory), Some(list)) = (&mut self.memory, pages)
            && let Err(error) = memory.page_lists.free(list)
        {
            tracing::error!(%error, "page list");
        }
    }
}
