//! Registering a region's memory anew.

use super::{Access, DeregisterError, MemoryRegion, Pages, ReregisterError};
use crate::rdma::protection_domain::Kind;
use crate::rdma::{ProtectionDomain, RdmaError};
use ringside_bus::DmaBuffer;

impl MemoryRegion {
    /// Registers its memory anew, for another domain or other rights, under new keys; the old keys
    /// are good for nothing then. Requests that use them must have completed.
    ///
    /// Errors: [`ReregisterError`]; the region is as it was, or gone, as it says.
    pub fn reregister(
        mut self,
        domain: &ProtectionDomain,
        access: Access,
    ) -> Result<Self, ReregisterError> {
        let plan = match Pages::of(&self.buffers) {
            Ok(plan) => plan,
            Err(error) => return Err(self.unchanged(error)),
        };
        let share = domain
            .take_share(Kind::RegisteredBytes, plan.length)
            .and_then(|bytes| Ok([domain.take_share(Kind::MemoryRegions, 1)?, bytes]));
        let share = match share {
            Ok(share) => share,
            Err(error) => return Err(self.unchanged(error)),
        };
        let (number, key) = match domain.register_pages(&plan, access, self.base) {
            Ok(made) => made,
            Err((error, false)) => return Err(self.unchanged(error)),
            Err((error, true)) => {
                // Two registrations may be in the device: the memory stays.
                let kept: Vec<DmaBuffer> = std::mem::take(&mut self.buffers);
                let bytes = kept.iter().map(DmaBuffer::length).sum();
                kept.into_iter().for_each(DmaBuffer::leak);
                return Err(ReregisterError {
                    error: DeregisterError::Kept { error, bytes }.into(),
                    region: None,
                });
            }
        };
        let old = self.number;
        let destroyed = self.domain.engine().state().destroy_region(old);
        if let Err(error) = destroyed {
            let undone = domain.engine().state().destroy_region(number);
            if undone.is_ok() {
                return Err(self.unchanged(error));
            }
            tracing::error!(%error, "the old registration of a region stays");
        }
        self.domain = domain.clone();
        self.share = share;
        (self.number, self.key, self.access) = (number, key, access);
        Ok(self)
    }

    fn unchanged(self, error: RdmaError) -> ReregisterError {
        ReregisterError {
            error: error.into(),
            region: Some(Box::new(self)),
        }
    }
}
