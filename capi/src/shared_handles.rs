//! Address handles of the device, which equal ones of the program share: Linux irdma does so, too,
//! and programs make one for each queue pair that they send to.

use crate::device::lock;
use ringside_pmd::rdma::{AddressHandle, Destination};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, Weak};

/// One of the device's address handles.
pub(crate) struct SharedHandle {
    handle: Arc<AddressHandle>,
    destination: Destination,
}

impl SharedHandle {
    pub(crate) fn handle(&self) -> &AddressHandle {
        &self.handle
    }
}

/// The address handles of a protection domain, by their destinations.
#[derive(Default)]
pub(crate) struct SharedHandles(Mutex<HashMap<Destination, Weak<AddressHandle>>>);

impl SharedHandles {
    /// The handle to a destination; makes it if there is none, or none in service. Errors: those of
    /// `make`.
    pub(crate) fn get(
        &self,
        destination: Destination,
        is_in_service: bool,
        make: impl FnOnce() -> Result<AddressHandle, c_int>,
    ) -> Result<SharedHandle, c_int> {
        let mut all = lock(&self.0);
        let known = all.get(&destination).and_then(Weak::upgrade);
        let handle = match known.filter(|_| is_in_service) {
            Some(handle) => handle,
            None => {
                let handle = Arc::new(make()?);
                all.insert(destination, Arc::downgrade(&handle));
                handle
            }
        };
        Ok(SharedHandle {
            handle,
            destination,
        })
    }

    /// A handle of the program is gone; the device's goes with the last one.
    pub(crate) fn give_back(&self, shared: SharedHandle) {
        let mut all = lock(&self.0);
        if Arc::strong_count(&shared.handle) == 1 {
            all.remove(&shared.destination);
        }
        // With the lock: a handle that is made meanwhile may need its number.
        drop(shared);
    }
}
