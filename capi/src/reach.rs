//! The memory of registered regions: for copies that the library makes in the card's place.

use parking_lot::Mutex;
use ringside_pmd::rdma::Fragment;
use std::collections::HashMap;

/// The memory behind a local key.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// number of the protection domain
    pub(crate) domain: u32,
    /// address by which requests name the first byte
    pub(crate) named: u64,
    /// of the first byte in this process
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) is_writable: bool,
}

/// The memory of all regions of a device, by local key.
#[derive(Default)]
pub(crate) struct Reaches(Mutex<HashMap<u32, Reach>>);

impl Reaches {
    pub(crate) fn insert(&self, key: u32, reach: Reach) {
        self.0.lock().insert(key, reach);
    }

    pub(crate) fn remove(&self, key: u32) -> Option<Reach> {
        self.0.lock().remove(&key)
    }

    /// The address of the first of `bytes` bytes that a fragment names, where a queue pair of this
    /// protection domain may write them; `None` if it may not.
    pub(crate) fn find(&self, domain: u32, piece: &Fragment, bytes: usize) -> Option<usize> {
        let reach = *self.0.lock().get(&piece.steering_tag)?;
        let offset = usize::try_from(piece.address.checked_sub(reach.named)?).ok()?;
        let inside = offset.checked_add(bytes)? <= reach.length;
        (inside && reach.is_writable && reach.domain == domain).then_some(reach.address + offset)
    }
}
