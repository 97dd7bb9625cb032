//! Reasons why a device could not be opened.

use crate::network::NetworkError;
use ringside_bus::FunctionError;
use ringside_bus::address::AddressError;
use ringside_bus::vfio::ClaimError;
use ringside_config::ConfigError;
use ringside_model::embedded::ThreadedError;
use ringside_pmd::BringUpError;
use ringside_stack::host::HostError;

/// A device that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is not a device address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A value of the configuration is not possible: each is named with its key.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// VFIO refused the PCI function.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The vfio-user server refused the connection.
    #[error(transparent)]
    Connect(#[from] FunctionError),
    /// The model did not start.
    #[error(transparent)]
    Model(#[from] ThreadedError),
    /// The model has fewer functions.
    #[error(
        "model:{index} does not exist: the model of this process has {functions} functions; set \
         model.functions to at least {} before the first function is opened",
        index + 1
    )]
    NoSuchFunction {
        /// The requested function.
        index: u16,
        /// The number of functions.
        functions: u16,
    },
    /// This process has the function open already.
    #[error(
        "model:{index} is open already; one driver owns a function, so use that device, or drop it first"
    )]
    Busy {
        /// The requested function.
        index: u16,
    },
    /// The list of open functions stays locked: another thread was opening or closing one when this
    /// process was forked.
    #[error(
        "the functions of the model are locked: this process was forked while a thread opened or \
         closed one; fork before devices are opened, or execute a program of its own"
    )]
    LockedByParent,
    /// The interface of `network.host_interface` cannot be made or used.
    #[error(transparent)]
    HostInterface(#[from] HostError),
    /// The device was brought up, and the interface of `network.host_interface` has no port.
    #[error("the interface of network.host_interface carries nothing: {0}")]
    HostPort(#[from] Box<NetworkError>),
    /// The device was claimed, and a stage of its bring-up failed.
    #[error(transparent)]
    BringUp(#[from] Box<BringUpError>),
    /// The system refused the housekeeping thread, or a descriptor for it.
    #[error(
        "no housekeeping thread for the device: {0}; raise the limit of threads and open files, or set housekeeping.thread = false and call supervise"
    )]
    Thread(#[source] std::io::Error),
}
