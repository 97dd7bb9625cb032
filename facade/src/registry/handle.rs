//! A device of a registry: its names, its state, and the counted uses that keep it from its
//! shutdown.

use super::cause::Cause;
use super::error::RegistryError;
use super::names::Identity;
use crate::device::Device;
use ringside_bus::DeviceAddress;
use ringside_bus::process::Birth;
use ringside_pmd::recovery::FailureCause;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of the only port of a function, as verbs count.
const PORT: u8 = 1;

/// The state of a device of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// In service; `life` counts its bring-ups, from 1.
    InService {
        /// See [`Device::life`].
        life: u32,
    },
    /// It failed. It is recovered, or removed.
    Failed(FailureCause),
    /// It is being removed.
    Leaving(Cause),
    /// It was shut down.
    Removed(Cause),
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    name: String,
    index: u32,
    physical: Option<u8>,
    mac: Option<[u8; 6]>,
}

impl Port {
    /// The name: that of the device, a slash, and the number. Linux's `rdma link` shows it so.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index among all ports of this process, from 0; the same after a removal.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The number on the device, from 1. Verbs: `port_num`.
    #[must_use]
    pub const fn number(&self) -> u8 {
        PORT
    }

    /// The logical port of the card, 0..=7; `None` if the firmware did not name it.
    #[must_use]
    pub const fn physical(&self) -> Option<u8> {
        self.physical
    }

    /// The MAC address when the device was opened.
    #[must_use]
    pub const fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }
}

/// A report of a device to the registry.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Failed {
        life: u32,
        cause: FailureCause,
    },
    Recovered {
        life: u32,
        cause: FailureCause,
    },
    /// A recovery failed; `is_gone`: the device did not respond on the bus.
    NotRecovered {
        life: u32,
        is_gone: bool,
    },
    RemovalRequested,
    /// The host asks the program to release the device.
    ReleaseRequested,
    /// The last use of a device that is closing ended.
    Released,
}

/// Sends a report to the registry. Does not wait.
pub(super) type Tell = Arc<dyn Fn(News) + Send + Sync>;

struct State {
    /// `None` once it is shut down
    device: Option<Arc<Device>>,
    /// true if new uses are refused
    is_closing: bool,
    uses: BTreeMap<Arc<str>, usize>,
    state: DeviceState,
}

/// The state that all handles of a device share.
pub(super) struct Slot {
    identity: Identity,
    address: DeviceAddress,
    ports: Vec<Port>,
    birth: Birth,
    tell: Tell,
    state: Mutex<State>,
}

impl Slot {
    pub(super) fn new(
        device: Device,
        identity: Identity,
        address: DeviceAddress,
        tell: Tell,
    ) -> Self {
        let life = device.life();
        let driver = device.driver();
        let port = Port {
            name: format!("{}/{PORT}", identity.name),
            index: identity.port_index,
            physical: driver.facts().switch.as_ref().map(|switch| switch.port),
            mac: driver.facts().mac,
        };
        drop(driver);
        Self {
            identity,
            address,
            ports: vec![port],
            birth: Birth::now(),
            tell,
            state: Mutex::new(State {
                device: Some(Arc::new(device)),
                is_closing: false,
                uses: BTreeMap::new(),
                state: DeviceState::InService { life },
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.identity.name
    }

    pub(super) fn tell(&self) -> &Tell {
        &self.tell
    }

    /// Notes a failure or a recovery, unless the device is being removed.
    pub(super) fn note(&self, new: DeviceState) {
        let mut state = self.state();
        if let DeviceState::InService { .. } | DeviceState::Failed(_) = state.state {
            state.state = new;
        }
    }

    pub(super) fn is_recovering(&self) -> bool {
        let state = self.state();
        state.device.as_ref().is_some_and(|it| it.is_recovering())
    }

    pub(super) fn leave(&self, cause: Cause) {
        self.state().state = DeviceState::Leaving(cause);
    }

    /// Refuses new uses. Returns the device if it has no users; otherwise [`News::Released`]
    /// follows when the last use ends.
    pub(super) fn close(&self) -> Option<Device> {
        let mut state = self.state();
        state.is_closing = true;
        if !state.uses.is_empty() {
            return None;
        }
        state.device.take().and_then(Arc::into_inner)
    }

    pub(super) fn removed(&self) {
        let mut state = self.state();
        if let DeviceState::Leaving(cause) = state.state {
            state.state = DeviceState::Removed(cause);
        }
    }

    /// The holders, with the number of times each holds the device.
    pub(super) fn holders(&self) -> String {
        let state = self.state();
        let named = state.uses.iter().map(|(holder, times)| match times {
            1 => holder.to_string(),
            _ => format!("{holder} ({times} times)"),
        });
        named.collect::<Vec<_>>().join(", ")
    }

    fn end_use(&self, holder: &Arc<str>) {
        let mut state = self.state();
        if let Some(times) = state.uses.get_mut(holder) {
            *times -= 1;
            if *times == 0 {
                state.uses.remove(holder);
            }
        }
        let is_last = state.is_closing && state.uses.is_empty();
        drop(state);
        if is_last {
            (self.tell)(News::Released);
        }
    }
}

/// A device of a [`Registry`](super::Registry). Cheap to clone; a handle does not delay the removal
/// of the device; the value that [`DeviceHandle::device`] returns does.
#[derive(Clone)]
pub struct DeviceHandle {
    slot: Arc<Slot>,
    holder: Arc<str>,
}

impl fmt::Debug for DeviceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceHandle({}, {}, {:?})",
            self.name(),
            self.address(),
            self.state()
        )
    }
}

impl DeviceHandle {
    /// A handle whose uses count as those of `holder`.
    pub(super) const fn new(slot: Arc<Slot>, holder: Arc<str>) -> Self {
        Self { slot, holder }
    }

    /// The name, which no other address gets in this process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.slot.identity.name
    }

    /// The index, from 0, in the order in which this process first opened the addresses; the same
    /// after a removal.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.slot.identity.index
    }

    /// The address that the device was opened by.
    #[must_use]
    pub fn address(&self) -> &DeviceAddress {
        &self.slot.address
    }

    /// The ports: one for a function of the E810.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.slot.ports
    }

    /// The state, as far as the registry knows. Sends no command and does not wait for a recovery.
    /// In a child process made by `fork` it is [`DeviceState::Removed`].
    #[must_use]
    pub fn state(&self) -> DeviceState {
        if !self.slot.birth.is_here() {
            return DeviceState::Removed(Cause::Closed);
        }
        self.slot.state().state
    }

    /// The device, for use. It is shut down only after this is dropped, so a client drops it in
    /// [`uninitialise`](super::Client::uninitialise) at the latest.
    ///
    /// Errors: [`RegistryError::Removed`] once all clients have uninitialised it;
    /// [`RegistryError::OtherProcess`].
    pub fn device(&self) -> Result<DeviceUse, RegistryError> {
        if !self.slot.birth.is_here() {
            return Err(RegistryError::OtherProcess);
        }
        let mut state = self.slot.state();
        let device = match &state.device {
            Some(device) if !state.is_closing => Arc::clone(device),
            _ => {
                let cause = match state.state {
                    DeviceState::Leaving(cause) | DeviceState::Removed(cause) => cause,
                    DeviceState::InService { .. } | DeviceState::Failed(_) => Cause::Closed,
                };
                return Err(RegistryError::Removed {
                    device: self.name().to_owned(),
                    cause,
                });
            }
        };
        *state.uses.entry(Arc::clone(&self.holder)).or_insert(0) += 1;
        drop(state);
        Ok(DeviceUse {
            device,
            counted: Counted(self.clone()),
        })
    }

    /// Requests the removal of the device without waiting, so callbacks may call it.
    pub fn request_removal(&self) {
        if self.slot.birth.is_here() {
            (self.slot.tell)(News::RemovalRequested);
        }
    }
}

/// A device in use. The registry does not shut it down as long as this exists.
pub struct DeviceUse {
    /// dropped before the use is counted as ended
    device: Arc<Device>,
    counted: Counted,
}

impl DeviceUse {
    /// The handle of the device.
    #[must_use]
    pub const fn handle(&self) -> &DeviceHandle {
        &self.counted.0
    }
}

impl Deref for DeviceUse {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for DeviceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceUse({})", self.handle().name())
    }
}

struct Counted(DeviceHandle);

impl Drop for Counted {
    fn drop(&mut self) {
        // In a child by fork the lock may be held for ever.
        if self.0.slot.birth.is_here() {
            self.0.slot.end_use(&self.0.holder);
        }
    }
}
