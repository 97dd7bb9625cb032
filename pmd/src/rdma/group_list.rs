//! The multicast groups of a device, for its IP stack.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The multicast groups that queue pairs of a device have joined, each with its VLAN.
///
/// The IP stack of the port reports them to routers and switches. It looks at the version in each
/// poll, and reads the list only if that has changed.
#[derive(Debug, Default)]
pub struct MulticastGroups {
    version: AtomicU64,
    groups: Mutex<Vec<(IpAddr, Option<u16>)>>,
}

impl MulticastGroups {
    /// A number that changes with the list. Data path.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The groups. Control path.
    #[must_use]
    pub fn list(&self) -> Vec<(IpAddr, Option<u16>)> {
        let groups = self.groups.lock();
        groups.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the list.
    pub(crate) fn set(&self, groups: Vec<(IpAddr, Option<u16>)>) {
        let mut list = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if *list != groups {
            *list = groups;
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}
