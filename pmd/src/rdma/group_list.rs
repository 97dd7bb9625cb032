//! The multicast groups of a device, for its IP stack.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The multicast groups that queue pairs of a device have joined, each with its VLAN.
///
/// The IP stack of the port reports them to routers and switches. It looks at the version in each
/// poll, and reads the list only if that has changed.
#[derive(Default)]
pub struct MulticastGroups {
    version: AtomicU64,
    groups: Mutex<Vec<(IpAddr, Option<u16>)>>,
    /// is called at each change
    notify: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
}

impl std::fmt::Debug for MulticastGroups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MulticastGroups")
            .field("version", &self.version)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
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

    /// Has `notify` called after each change from now on, in place of an earlier one. It must
    /// neither wait nor use the device: the thread that changes the list holds the device's locks.
    pub fn notify_by(&self, notify: impl Fn() + Send + Sync + 'static) {
        let mut place = self.notify.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(notify));
    }

    /// Replaces the list.
    pub(crate) fn set(&self, groups: Vec<(IpAddr, Option<u16>)>) {
        let mut list = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if *list == groups {
            return;
        }
        *list = groups;
        self.version.fetch_add(1, Ordering::Release);
        drop(list);
        let notify = self.notify.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = &*notify {
            notify();
        }
    }
}
