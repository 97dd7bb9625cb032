//! Several devices in one process, and the parts of the program that work with them.
//!
//! A [`Registry`] opens devices under stable names, and calls [`Client`]s when a device is opened,
//! fails, recovers or is removed. The kernel does the same for the LAN and RDMA drivers of this
//! NIC. See the [guide](crate::guide::devices).

mod caller;
mod cause;
mod client;
mod engine;
mod error;
mod handle;
mod keeper;
mod listing;
mod names;
mod settings;

pub use cause::Cause;
pub use client::{Client, ClientError};
pub use error::RegistryError;
pub use handle::{DeviceHandle, DeviceState, DeviceUse, Port};
pub use listing::{Attached, Attachment};
pub use settings::RegistrySettings;

use crate::housekeeping::Observer;
use crate::open::open_with;
use engine::{ClientId, DeviceId, Limits};
use handle::{News, Slot, Tell};
use keeper::{Answer, Keeper, Message};
use listing::Listing;
use ringside_bus::DeviceAddress;
use ringside_bus::process::Birth;
use ringside_config::Config;
use ringside_pmd::recovery::{FailureCause, RecoverError};
use ringside_pmd::{BringUpOptions, ShutdownReport};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait for an answer of the registry's thread, whose own waits for clients and devices
/// are shorter.
const ANSWER_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Opens devices under stable names and indexes, lists them, and calls clients for each: see the
/// [module](self).
///
/// A name and an index belong to an address for the lifetime of the process, in every registry: a
/// device that was removed and opened again keeps them, and no other device gets them.
///
/// All calls are control path and can be made from any thread. Those that wait for clients (`open`,
/// `remove`, `register`, `unregister`, `close`) are refused inside a client's callback.
///
/// Dropping it closes it; [`Registry::close`] does the same and returns the error.
pub struct Registry {
    number: u64,
    sender: Sender<Message>,
    listing: Arc<Listing>,
    /// devices and clients of this registry
    ids: AtomicU64,
    birth: Birth,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("devices", &self.devices())
            .field("clients", &self.clients())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Makes a registry without devices and clients. It starts a thread, and later one for each
    /// client.
    ///
    /// Errors: [`RegistryError::Thread`].
    pub fn new(settings: &RegistrySettings) -> Result<Self, RegistryError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (sender, messages) = channel();
        let listing = Arc::new(Listing::default());
        let limits = Limits {
            call: settings.call_deadline.min(RegistrySettings::MAX_DEADLINE),
            gone: settings.removal_after.min(RegistrySettings::MAX_DEADLINE),
        };
        let keeper = Keeper::new(limits, Arc::clone(&listing), sender.clone());
        let thread = std::thread::Builder::new()
            .name("ringside-registry".to_owned())
            .spawn(move || keeper.run(&messages))
            .map_err(RegistryError::Thread)?;
        Ok(Self {
            number,
            sender,
            listing,
            ids: AtomicU64::new(0),
            birth: Birth::now(),
            thread: Some(thread),
        })
    }

    /// Opens the device at `address` as [`open`](crate::open()) does, and has every client
    /// initialise it. The device gets the name that its address has in this process, otherwise
    /// `ringside0`, `ringside1` and so on, by index.
    ///
    /// Returns once every client has initialised the device, refused it, or has been in a call for
    /// [`RegistrySettings::call_deadline`]; [`Registry::attachments`] has the results. Errors:
    /// [`RegistryError`]; the device is then not open.
    pub fn open(&self, address: &str, config: &Config) -> Result<DeviceHandle, RegistryError> {
        let address = address.parse().map_err(crate::OpenError::from)?;
        self.open_with(&address, None, config, BringUpOptions::default())
    }

    /// Opens a device as [`Registry::open`] does, under the name `name`.
    pub fn open_as(
        &self,
        name: &str,
        address: &str,
        config: &Config,
    ) -> Result<DeviceHandle, RegistryError> {
        let address = address.parse().map_err(crate::OpenError::from)?;
        self.open_with(&address, Some(name), config, BringUpOptions::default())
    }

    /// Opens a device as [`Registry::open`] does, with a parsed address, an optional name, and
    /// options for the bring-up.
    pub fn open_with(
        &self,
        address: &DeviceAddress,
        name: Option<&str>,
        config: &Config,
        options: BringUpOptions<'_>,
    ) -> Result<DeviceHandle, RegistryError> {
        self.check("open")?;
        let identity = names::name(address, name)?;
        let (index, name) = (identity.index, Arc::clone(&identity.name));
        self.listing.reserve(index, &name, address)?;
        let device = match open_with(address, config, options) {
            Ok(device) => device,
            Err(error) => {
                self.listing.device_ended(&name);
                return Err(error.into());
            }
        };
        let id = DeviceId(self.ids.fetch_add(1, Ordering::Relaxed));
        let sender = self.sender.clone();
        let tell: Tell = Arc::new(move |news| {
            // A registry that has ended gets no more reports.
            let _ = sender.send(Message::News(id, news));
        });
        let life = device.life();
        let slot = Arc::new(Slot::new(device, identity, address.clone(), tell));
        self.listing.opened(index, &slot);
        let handle = DeviceHandle::new(Arc::clone(&slot), "open".into());
        let device = handle.device()?;
        let opened = self.ask_while(
            |reply| Message::Arrived {
                id,
                life,
                slot: Arc::clone(&slot),
                reply,
            },
            || {
                let observer = Arc::new(Reporter(Arc::clone(slot.tell())));
                device.observe_by(observer);
                drop(device);
            },
        );
        match opened {
            Ok(_) => Ok(self.get(&name).unwrap_or(handle)),
            Err(error) => {
                self.listing.device_ended(&name);
                Err(error)
            }
        }
    }

    /// Removes a device: every client uninitialises it, in reverse order of registration, then it
    /// is shut down. Returns the report of the shutdown.
    ///
    /// Errors: [`RegistryError::NoSuchDevice`]. [`RegistryError::ClientBusy`] or
    /// [`RegistryError::InUse`] if a client does not return, or a user does not drop the device,
    /// within [`RegistrySettings::call_deadline`]: the removal then continues in the background,
    /// and a further call waits for it.
    pub fn remove(&self, name: &str) -> Result<ShutdownReport, RegistryError> {
        self.check("remove")?;
        let name = name.to_owned();
        self.ask(|reply| Message::Remove { name, reply })
    }

    /// Registers a client, and has it initialise every open device.
    ///
    /// Returns once it has initialised or refused them all, or has been in a call for
    /// [`RegistrySettings::call_deadline`]; [`Registry::attachments`] has the results. A device
    /// that is out of service is initialised after its recovery.
    ///
    /// Errors: [`RegistryError::ClientExists`], [`RegistryError::TooMany`],
    /// [`RegistryError::Thread`]: the client is then not registered.
    pub fn register(&self, name: &str, client: impl Client) -> Result<(), RegistryError> {
        self.check("register")?;
        let name: Arc<str> = name.into();
        self.listing.client_came(&name)?;
        let id = ClientId(self.ids.fetch_add(1, Ordering::Relaxed));
        let sender = self.sender.clone();
        let report = move |report| {
            // A registry that has ended gets no more reports.
            let _ = sender.send(Message::Client(id, report));
        };
        let registered = caller::start(self.number, &name, client, report)
            .map_err(RegistryError::Thread)
            .and_then(|calls| {
                let name = Arc::clone(&name);
                self.ask(|reply| Message::Register {
                    id,
                    name,
                    calls,
                    reply,
                })
            });
        if registered.is_err() {
            self.listing.client_ended(&name);
        }
        registered.map(drop)
    }

    /// Unregisters a client: it uninitialises every device, the last opened first, and is dropped.
    ///
    /// Errors: [`RegistryError::NoSuchClient`]; [`RegistryError::ClientBusy`] if it does not return
    /// within [`RegistrySettings::call_deadline`]: it is unregistered once it does.
    pub fn unregister(&self, name: &str) -> Result<(), RegistryError> {
        self.check("unregister")?;
        let name = name.to_owned();
        self.ask(|reply| Message::Unregister { name, reply })
            .map(drop)
    }

    /// Removes all devices and unregisters all clients.
    ///
    /// Errors: those of [`Registry::remove`] and [`Registry::unregister`]. The rest continues in
    /// the background after the named client returns or the named user drops the device.
    pub fn close(mut self) -> Result<(), RegistryError> {
        self.end()
    }

    /// The open devices, by index. One that is being removed is among them until it is shut down.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceHandle> {
        match self.birth.is_here() {
            true => self.listing.devices(),
            false => Vec::new(),
        }
    }

    /// The open device of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<DeviceHandle> {
        let mut devices = self.devices().into_iter();
        devices.find(|device| device.name() == name)
    }

    /// The open device of this index.
    #[must_use]
    pub fn by_index(&self, index: u32) -> Option<DeviceHandle> {
        let mut devices = self.devices().into_iter();
        devices.find(|device| device.index() == index)
    }

    /// The open device at this address.
    #[must_use]
    pub fn by_address(&self, address: &DeviceAddress) -> Option<DeviceHandle> {
        let address = names::full(address);
        let mut devices = self.devices().into_iter();
        devices.find(|device| names::full(device.address()) == address)
    }

    /// The ports of the open devices, with their devices, by index.
    #[must_use]
    pub fn ports(&self) -> Vec<(DeviceHandle, Port)> {
        let devices = self.devices().into_iter();
        let ports = devices.flat_map(|device| {
            let ports = device.ports().to_vec();
            ports.into_iter().map(move |port| (device.clone(), port))
        });
        let mut ports: Vec<_> = ports.collect();
        ports.sort_by_key(|(_, port)| port.index());
        ports
    }

    /// The names of the clients, in order of registration.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        match self.birth.is_here() {
            true => self.listing.clients(),
            false => Vec::new(),
        }
    }

    /// Returns the state of each client with each device. Does not wait for clients, so callbacks
    /// may call it.
    ///
    /// Errors: [`RegistryError::OtherProcess`], [`RegistryError::Closed`].
    pub fn attachments(&self) -> Result<Vec<Attachment>, RegistryError> {
        self.check_process()?;
        let (reply, answer) = channel();
        let sent = self.sender.send(Message::Attachments { reply });
        sent.map_err(|_| RegistryError::Closed)?;
        answer
            .recv_timeout(ANSWER_LIMIT)
            .map_err(|_| RegistryError::Closed)
    }

    fn check_process(&self) -> Result<(), RegistryError> {
        match self.birth.is_here() {
            true => Ok(()),
            false => Err(RegistryError::OtherProcess),
        }
    }

    /// Refuses a call that waits for clients, in another process or on the thread of a client.
    fn check(&self, call: &'static str) -> Result<(), RegistryError> {
        self.check_process()?;
        match caller::client_here(self.number) {
            Some(client) => Err(RegistryError::InCallback {
                client: client.to_string(),
                call,
            }),
            None => Ok(()),
        }
    }

    fn ask(&self, message: impl FnOnce(Sender<Answer>) -> Message) -> Answer {
        self.ask_while(message, || {})
    }

    /// Sends a message, runs `meanwhile`, and waits for the answer.
    fn ask_while(
        &self,
        message: impl FnOnce(Sender<Answer>) -> Message,
        meanwhile: impl FnOnce(),
    ) -> Answer {
        let (reply, answer) = mpsc::channel();
        let sent = self.sender.send(message(reply));
        meanwhile();
        sent.map_err(|_| RegistryError::Closed)?;
        answer
            .recv_timeout(ANSWER_LIMIT)
            .unwrap_or(Err(RegistryError::Closed))
    }

    fn end(&mut self) -> Result<(), RegistryError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        if !self.birth.is_here() {
            // In a child by fork: the threads stayed with the parent.
            std::mem::forget(thread);
            return Err(RegistryError::OtherProcess);
        }
        if let Err(error) = self.check("close") {
            // The registry ends in the background, after the client has returned.
            let (reply, _) = channel();
            let _ = self.sender.send(Message::Close { reply });
            return Err(error);
        }
        match self.ask(|reply| Message::Close { reply }) {
            Ok(_) => {
                if thread.join().is_err() {
                    tracing::error!("the registry's thread had panicked; report this as a bug");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        match self.end() {
            // A child process made by `fork` has no registry thread to end.
            Ok(()) | Err(RegistryError::OtherProcess) => {}
            Err(error) => tracing::error!(%error, "the registry was dropped"),
        }
    }
}

/// Passes failures and recoveries that a device's housekeeping detects on to the registry.
struct Reporter(Tell);

impl Observer for Reporter {
    fn failed(&self, life: u32, cause: FailureCause) {
        (self.0)(News::Failed { life, cause });
    }

    fn recovered(&self, life: u32, cause: FailureCause) {
        (self.0)(News::Recovered { life, cause });
    }

    fn release_requested(&self) {
        (self.0)(News::ReleaseRequested);
    }

    fn not_recovered(&self, life: u32, error: &RecoverError) {
        let is_gone = is_gone(error);
        (self.0)(News::NotRecovered { life, is_gone });
    }
}

/// The recovery failed because the device does not respond on the bus.
fn is_gone(error: &RecoverError) -> bool {
    use ringside_bus::FunctionError;
    use ringside_pmd::StageError;
    let stage = match error {
        RecoverError::NotReset { error, .. } => error,
        RecoverError::NotBroughtUp { error, .. } => &error.cause,
        RecoverError::InUse { .. } | RecoverError::OtherProcess(_) => return false,
    };
    matches!(stage, StageError::Function(FunctionError::Gone { .. }))
}
