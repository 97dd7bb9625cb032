//! Reregistration of a region's memory.

use super::{Access, DeregisterError, MemoryRegion, Pages, ReregisterError};
use crate::rdma::lifecycle::{By, Destroyed, NotMade};
use crate::rdma::objects::Object;
use crate::rdma::protection_domain::Kind;
use crate::rdma::records::RegionRecord;
use crate::rdma::session::Session;
use crate::rdma::{ProtectionDomain, RdmaError};
use ringside_bus::DmaBuffer;
use std::sync::Arc;

impl MemoryRegion {
    /// Registers its memory again, for another domain or with other rights, under new keys; the old
    /// keys become invalid. Requests that use them must have completed.
    ///
    /// Errors: [`ReregisterError`] distinguishes an unchanged region from a destroyed one.
    pub fn reregister(
        mut self,
        domain: &ProtectionDomain,
        access: Access,
    ) -> Result<Self, ReregisterError> {
        if !Arc::ptr_eq(self.domain.engine(), domain.engine()) {
            return Err(self.unchanged(RdmaError::ForeignDomain));
        }
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
        let engine = domain.engine();
        let mut state = match engine.open_state() {
            Ok(state) => state,
            Err(error) => return Err(self.unchanged(error)),
        };
        let (number, key) = match domain.register_pages(&mut state, &plan, access, self.base) {
            Ok(made) => made,
            Err(NotMade::Refused(error)) => {
                drop(state);
                return Err(self.unchanged(error));
            }
            // Two registrations may be in the device: the memory stays.
            Err(NotMade::Unconfirmed { number, error }) => {
                return Err(self.set_apart(&mut state, number, error));
            }
        };
        let error = match state.destroy::<RegionRecord>(self.number, By::Owner) {
            Destroyed::Gone(_) => None,
            Destroyed::Refused(error) | Destroyed::Unconfirmed(error) => Some(error),
            Destroyed::DeviceFailed { cause, .. } => Some(RdmaError::DeviceFailed { cause }),
        };
        if let Some(error) = error {
            let old_is_there = state.objects.regions.get(self.number).is_some();
            let undone = state.destroy::<RegionRecord>(number, By::Owner);
            if old_is_there && matches!(undone, Destroyed::Gone(_)) {
                drop(state);
                return Err(self.unchanged(error));
            }
            return Err(self.set_apart(&mut state, number, error));
        }
        drop(state);
        self.domain = domain.clone();
        self.share = share;
        (self.number, self.key, self.access) = (number, key, access);
        Ok(self)
    }

    /// The device may use the memory under `number`, under the old number, or both.
    fn set_apart(
        &mut self,
        state: &mut Session<'_>,
        number: u32,
        error: RdmaError,
    ) -> ReregisterError {
        let kept: Vec<DmaBuffer> = std::mem::take(&mut self.buffers);
        let bytes = kept.iter().map(DmaBuffer::length).sum();
        state.set_memory_apart(RegionRecord::NAME, number, kept, &error);
        ReregisterError {
            error: DeregisterError::Kept { error, bytes }.into(),
            region: None,
        }
    }

    fn unchanged(self, error: RdmaError) -> ReregisterError {
        ReregisterError {
            error: error.into(),
            region: Some(Box::new(self)),
        }
    }
}
