//! The memory of registered regions: for copies that the library makes in the card's place.

use parking_lot::RwLock;
use ringside_pmd::rdma::Fragment;
use std::collections::BTreeMap;

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
///
/// A copy reads the list until it is done: a region that is removed is not written to any more.
#[derive(Default)]
pub(crate) struct Reaches(RwLock<BTreeMap<u32, Reach>>);

impl Reaches {
    pub(crate) fn insert(&self, key: u32, reach: Reach) {
        self.0.write().insert(key, reach);
    }

    /// Removes a region, once the copies that have begun are done.
    pub(crate) fn remove(&self, key: u32) -> Option<Reach> {
        self.0.write().remove(&key)
    }

    /// Calls `copy` with the address of the first of `bytes` bytes that a fragment names; `None` if
    /// a queue pair of this protection domain may not write them.
    ///
    /// The memory stays registered until `copy` returns, which must not change the list.
    pub(crate) fn write<T>(
        &self,
        domain: u32,
        piece: &Fragment,
        bytes: usize,
        copy: impl FnOnce(usize) -> T,
    ) -> Option<T> {
        let all = self.0.read();
        let reach = all.get(&piece.steering_tag)?;
        let offset = usize::try_from(piece.address.checked_sub(reach.named)?).ok()?;
        let inside = offset.checked_add(bytes)? <= reach.length;
        let may_write = inside && reach.is_writable && reach.domain == domain;
        may_write.then(|| copy(reach.address + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Reaches};
    use ringside_pmd::rdma::Fragment;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const KEY: u32 = 0x100;

    fn reaches() -> Reaches {
        let reaches = Reaches::default();
        let reach = Reach {
            domain: 1,
            named: 0x1000,
            address: 0x5000,
            length: 64,
            is_writable: true,
        };
        reaches.insert(KEY, reach);
        reaches
    }

    fn piece(address: u64) -> Fragment {
        Fragment {
            address,
            length_bytes: 8,
            steering_tag: KEY,
        }
    }

    #[test]
    fn a_copy_lies_inside_of_a_region_of_its_domain() {
        let reaches = reaches();
        let address = |domain, place| reaches.write(domain, &piece(place), 8, |address| address);
        assert_eq!(address(1, 0x1000), Some(0x5000));
        assert_eq!(address(1, 0x1038), Some(0x5038));
        assert_eq!(address(1, 0x1039), None);
        assert_eq!(address(1, 0xfff), None);
        assert_eq!(address(2, 0x1000), None);
    }

    #[test]
    fn a_region_is_not_removed_while_it_is_written_to() {
        let reaches = reaches();
        let is_removed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let copied = reaches.write(1, &piece(0x1000), 8, |_| {
                scope.spawn(|| {
                    assert!(reaches.remove(KEY).is_some());
                    is_removed.store(true, Ordering::Release);
                });
                std::thread::sleep(Duration::from_millis(100));
                assert!(!is_removed.load(Ordering::Acquire));
            });
            assert_eq!(copied, Some(()));
        });
        assert!(is_removed.load(Ordering::Acquire));
    }
}
