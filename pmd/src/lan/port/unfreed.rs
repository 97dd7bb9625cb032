//! Profiles and rows that go, and those that the firmware does not take back at once.

use super::shared::PortShared;
use crate::admin::{AdminError, AdminQueue};
use ringside_spec::lan::admin::switch::Resource;
use std::sync::{MutexGuard, PoisonError};

impl PortShared {
    /// Frees a profile or a row. One that the firmware does not take back is freed before the next
    /// one is made: a row goes on leading packets to its profile.
    pub(super) fn free_entry(&self, admin: &AdminQueue, resource: Resource, number: u16) {
        if let Err(error) = admin.free_resource(resource, 1, number) {
            tracing::warn!(%error, ?resource, number, "a table entry stays for the time being");
            self.unfreed().push((resource, number));
        }
    }

    /// Frees what was not taken back at the first attempt.
    pub(super) fn free_remaining(&self, admin: &AdminQueue) -> Result<(), AdminError> {
        let mut unfreed = self.unfreed();
        while let Some((resource, number)) = unfreed.last() {
            admin.free_resource(*resource, 1, *number)?;
            unfreed.pop();
        }
        Ok(())
    }

    /// Frees what was not taken back, at the end of the port or of a VSI.
    pub(super) fn free_last(&self) {
        if let Ok(admin) = self.admin()
            && let Err(error) = self.free_remaining(admin)
        {
            tracing::warn!(%error, "a table entry stays until the next rule or reset");
        }
    }

    /// Those of all VSIs: a VSI that is dropped leaves its own.
    fn unfreed(&self) -> MutexGuard<'_, Vec<(Resource, u16)>> {
        let further = self.further.as_ref();
        let home = further.map_or(self, |further| &*further.port);
        home.unfreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
