//! The devices and clients of a registry, for lookups by any thread. No call of a client is made
//! under its lock.

use super::error::RegistryError;
use super::handle::{DeviceHandle, Slot};
use ringside_bus::DeviceAddress;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Devices that a registry has at most.
pub(super) const MAX_DEVICES: usize = 256;

/// Clients that a registry has at most: each has a thread.
pub(super) const MAX_CLIENTS: usize = 64;

/// The name of the holder for uses by the program itself.
const PROGRAM: &str = "the program";

/// A client and a device of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the device.
    pub device: String,
    /// The name of the client.
    pub client: String,
    /// The state of the client with the device.
    pub state: Attached,
    /// The client has been in a call for this device longer than
    /// [`RegistrySettings::call_deadline`](super::RegistrySettings::call_deadline).
    pub is_overdue: bool,
}

/// The state of an [`Attachment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The client was not called yet: an earlier client is in its call, or the device is out of
    /// service.
    Waiting,
    /// In its `initialise`.
    Initialising,
    /// Initialised.
    Initialised,
    /// `initialise` returned this error; the client is not called for the device.
    Refused(String),
    /// In its `uninitialise`.
    Uninitialising,
    /// Uninitialised.
    Uninitialised,
}

#[derive(Default)]
struct Names {
    /// by index; `None` while it is brought up
    devices: BTreeMap<u32, (Arc<str>, Option<Arc<Slot>>)>,
    clients: Vec<Arc<str>>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Listing(Mutex<Names>);

impl Listing {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the place of a device that is about to be opened.
    pub(super) fn reserve(
        &self,
        index: u32,
        name: &Arc<str>,
        address: &DeviceAddress,
    ) -> Result<(), RegistryError> {
        let mut names = self.names();
        if names.devices.contains_key(&index) {
            return Err(RegistryError::AlreadyOpen {
                address: address.clone(),
                name: name.to_string(),
            });
        }
        if names.devices.len() >= MAX_DEVICES {
            return Err(RegistryError::TooMany {
                what: "devices",
                limit: MAX_DEVICES,
            });
        }
        names.devices.insert(index, (Arc::clone(name), None));
        Ok(())
    }

    pub(super) fn opened(&self, index: u32, slot: &Arc<Slot>) {
        let entry = (Arc::clone(slot.name()), Some(Arc::clone(slot)));
        self.names().devices.insert(index, entry);
    }

    pub(super) fn device_ended(&self, name: &str) {
        let mut names = self.names();
        names.devices.retain(|_, (known, _)| &**known != name);
    }

    pub(super) fn client_came(&self, name: &Arc<str>) -> Result<(), RegistryError> {
        let mut names = self.names();
        if names.clients.contains(name) {
            return Err(RegistryError::ClientExists {
                name: name.to_string(),
            });
        }
        if names.clients.len() >= MAX_CLIENTS {
            return Err(RegistryError::TooMany {
                what: "clients",
                limit: MAX_CLIENTS,
            });
        }
        names.clients.push(Arc::clone(name));
        Ok(())
    }

    pub(super) fn client_ended(&self, name: &str) {
        self.names().clients.retain(|known| &**known != name);
    }

    /// The devices that are open, by index.
    pub(super) fn devices(&self) -> Vec<DeviceHandle> {
        let names = self.names();
        let open = names.devices.values().filter_map(|(_, slot)| slot.as_ref());
        open.map(|slot| DeviceHandle::new(Arc::clone(slot), PROGRAM.into()))
            .collect()
    }

    pub(super) fn clients(&self) -> Vec<String> {
        let names = self.names();
        names.clients.iter().map(ToString::to_string).collect()
    }
}
