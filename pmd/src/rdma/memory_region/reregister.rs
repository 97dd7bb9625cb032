//! Reregistration of a region's memory.

use super::{Access, Base, DeregisterError, MemoryRegion, Pages, ReregisterError};
use crate::rdma::lifecycle::{By, Destroyed, NotMade};
use crate::rdma::objects::Object;
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
            return Err(self.foreign(domain));
        }
        let plan = match Pages::of(&self.buffers, &self.domain.engine().pool) {
            Ok(plan) => plan,
            Err(error) => return Err(self.unchanged(error)),
        };
        let share = match domain.share_of_region(&plan) {
            Ok(share) => share,
            Err(error) => return Err(self.unchanged(error)),
        };
        let engine = domain.engine();
        let mut state = match engine.open_state() {
            Ok(state) => state,
            Err(error) => return Err(self.unchanged(error)),
        };
        let (number, key) = match domain.register_pages(&mut state, &plan, access, self.base, None)
        {
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

    /// Replaces its memory, its rights and its domain under the same keys: peers that have the
    /// remote key reach the new memory. Requests that use the region must have completed. Returns
    /// the region and its former memory.
    ///
    /// Errors: [`ReregisterError`], with the region as it was if the device was not told or refused
    /// to end the old registration. Without a region, the old registration has ended, and the
    /// device did not make the new one.
    pub fn replace(
        mut self,
        domain: &ProtectionDomain,
        buffers: Vec<DmaBuffer>,
        access: Access,
        base: Base,
    ) -> Result<(Self, Vec<DmaBuffer>), ReregisterError> {
        if !Arc::ptr_eq(self.domain.engine(), domain.engine()) {
            return Err(self.foreign(domain));
        }
        let plan = match Pages::of(&buffers, &domain.engine().pool)
            .and_then(|plan| plan.check_base(base))
        {
            Ok(plan) => plan,
            Err(error) => return Err(self.unchanged(error)),
        };
        let share = match domain.share_of_region(&plan) {
            Ok(share) => share,
            Err(error) => return Err(self.unchanged(error)),
        };
        let mut state = match domain.engine().open_state() {
            Ok(state) => state,
            Err(error) => return Err(self.unchanged(error)),
        };
        match state.destroy::<RegionRecord>(self.number, By::Owner) {
            Destroyed::Gone(_) => {}
            Destroyed::Refused(error) => {
                drop(state);
                return Err(self.unchanged(error));
            }
            Destroyed::DeviceFailed { cause, .. } => {
                drop(state);
                return Err(self.unchanged(RdmaError::DeviceFailed { cause }));
            }
            Destroyed::Unconfirmed(error) => {
                let number = self.number;
                return Err(self.set_apart(&mut state, number, error));
            }
        }
        // From here on the device does not have it.
        let before = std::mem::take(&mut self.buffers);
        let again = Some((self.number, self.key));
        match domain.register_pages(&mut state, &plan, access, base, again) {
            Ok(_) => {}
            Err(NotMade::Refused(error)) => return Err(gone(error)),
            Err(NotMade::Unconfirmed { number, error }) => {
                state.set_memory_apart(RegionRecord::NAME, number, buffers, &error);
                state.look_after();
                return Err(gone(error));
            }
        }
        drop(state);
        self.domain = domain.clone();
        self.share = share;
        (self.access, self.base) = (access, base);
        (self.address, self.length) = (base.first(plan.address), plan.length as usize);
        self.buffers = buffers;
        Ok((self, before))
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
        state.look_after();
        ReregisterError {
            error: DeregisterError::Kept { error, bytes }.into(),
            region: None,
        }
    }

    /// The domain is of another device, or one of the two has ended.
    fn foreign(self, domain: &ProtectionDomain) -> ReregisterError {
        let error = domain.engine().end_or(RdmaError::ForeignDomain);
        let error = self.domain.engine().end_or(error);
        self.unchanged(error)
    }

    fn unchanged(self, error: RdmaError) -> ReregisterError {
        ReregisterError {
            error: error.into(),
            region: Some(Box::new(self)),
        }
    }
}

/// The old registration has ended, and there is no new one.
fn gone(error: RdmaError) -> ReregisterError {
    ReregisterError {
        error: error.into(),
        region: None,
    }
}
