//! Reasons why a registry refuses a call.

use super::cause::Cause;
use crate::error::OpenError;
use ringside_bus::DeviceAddress;

/// A call of a [`Registry`](super::Registry) that was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The device was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The registry has opened the device already.
    #[error(
        "{address} is open under the name {name}; use that device, or remove it first (a removal that \
         is under way has to end)"
    )]
    AlreadyOpen {
        /// The requested address.
        address: DeviceAddress,
        /// Its name.
        name: String,
    },
    /// The name belongs to another address for the lifetime of the process.
    #[error("the name {name} belongs to {address} in this process; choose another name")]
    NameInUse {
        /// The requested name.
        name: String,
        /// The address that has it.
        address: DeviceAddress,
    },
    /// The address has another name for the lifetime of the process.
    #[error(
        "{address} is called {name} in this process, and cannot be called {wanted}; open it by \
         {name}, or without a name"
    )]
    NamedAlready {
        /// The requested address.
        address: DeviceAddress,
        /// Its name.
        name: String,
        /// The requested name.
        wanted: String,
    },
    /// The text is not a valid name of a device.
    #[error("'{name}' is not a name: 1 to 63 letters, digits, '-', '_' and '.'")]
    BadName {
        /// The text.
        name: String,
    },
    /// The registry has no device of this name.
    #[error("no device is called {name}; Registry::devices lists those that are open")]
    NoSuchDevice {
        /// The requested name.
        name: String,
    },
    /// The registry has no client of this name.
    #[error("no client is called {name}; Registry::clients lists those that are registered")]
    NoSuchClient {
        /// The requested name.
        name: String,
    },
    /// The registry has a client of this name, or its unregistration has not ended.
    #[error("a client is called {name} already; unregister it first, or choose another name")]
    ClientExists {
        /// The requested name.
        name: String,
    },
    /// The call waits for clients, and was made by one of them.
    #[error(
        "client {client} called Registry::{call} from inside a callback, which that call would wait \
         for; call it from another thread, or use DeviceHandle::request_removal, which does not wait"
    )]
    InCallback {
        /// The client.
        client: String,
        /// The refused call.
        call: &'static str,
    },
    /// A client does not return from a callback. The call continues in the background once it does.
    #[error(
        "client {client} has not returned from {callback} for {device} within {waited_ms} ms; {device} \
         stays as it is until then. Fix the client, or call again to wait once more"
    )]
    ClientBusy {
        /// The client.
        client: String,
        /// The method, or `drop`.
        callback: &'static str,
        /// The device, or `all devices` of a client that is dropped.
        device: String,
        /// The time waited since the call of the client began, or since this call, ms.
        waited_ms: u64,
    },
    /// Users hold the device. It is shut down once they have dropped it.
    #[error(
        "{device} is held by {holders} after {waited_ms} ms; it is shut down when they drop their \
         DeviceUse. Call again to wait once more"
    )]
    InUse {
        /// The device.
        device: String,
        /// The holders, with the number of times each holds it.
        holders: String,
        /// The time waited, ms.
        waited_ms: u64,
    },
    /// The shutdown of the device does not end, although each of its steps has a deadline.
    #[error(
        "the shutdown of {device} has not ended within {waited_ms} ms; end the process, and report \
         this as a bug"
    )]
    ShutdownSlow {
        /// The device.
        device: String,
        /// The time waited, ms.
        waited_ms: u64,
    },
    /// The device was removed. A device that was opened again later is a new one with the same
    /// name.
    #[error("{device} was removed ({cause}); open it again once it is there")]
    Removed {
        /// The device.
        device: String,
        /// The reason of the removal.
        cause: Cause,
    },
    /// The registry is closed.
    #[error("the registry is closed; make another one")]
    Closed,
    /// The registry belongs to another process.
    #[error(
        "the registry belongs to the process that this one was forked from; a child opens devices by a \
         registry of its own, or executes a program of its own"
    )]
    OtherProcess,
    /// The names stay locked: another thread was naming a device when this process was forked.
    #[error(
        "the names of the devices are locked: this process was forked while a thread opened a device; \
         fork before devices are opened, or execute a program of its own"
    )]
    NamesLocked,
    /// A limit of the registry.
    #[error("more than {limit} {what}; remove some first")]
    TooMany {
        /// The kind of object whose number is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The system refused a thread.
    #[error("no thread for the registry: {0}; raise the limit of threads")]
    Thread(#[source] std::io::Error),
}
