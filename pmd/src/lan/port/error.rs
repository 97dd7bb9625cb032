//! Reasons why a port did not carry out a call.

use crate::admin::AdminError;
use ringside_bus::{FunctionError, MemoryError};
use ringside_lan::{FilterError, PoolError, RingError, StopError};

/// Reasons why a port did not carry out a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PortError {
    /// A command of the firmware failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// An access to the function failed.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The device was not brought up as far: a bug of this driver.
    #[error("{what} is missing: stage {stage} has to run first; this is a bug of the driver")]
    NotBroughtUp {
        /// The missing part.
        what: &'static str,
        /// The stage that provides it.
        stage: &'static str,
    },
    /// No memory for rings.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Receive queues would receive little or nothing.
    #[error(
        "a pool of {buffers} buffers is too small for {queues} receive queues: set \
         PortSettings::pool.buffers to {needed} or more, or choose fewer receive_queues"
    )]
    PoolTooSmall {
        /// Buffers of the pool.
        buffers: u32,
        /// Receive queues.
        queues: usize,
        /// The fewest buffers for so many queues.
        needed: u32,
    },
    /// No pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A ring that is not possible.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A queue did not start or stop.
    #[error(transparent)]
    Queue(#[from] StopError),
    /// A rule was not programmed.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A rule that does not fit beside those that the port has.
    #[error("{rule}: {reason}; {remedy}")]
    Rule {
        /// The rule.
        rule: String,
        /// The obstacle.
        reason: String,
        /// The way around it.
        remedy: &'static str,
    },
    /// The firmware refused a MAC address.
    #[error(
        "the device refuses {address} as its MAC address ({source}): the port keeps {kept}; choose \
         another one, or let in further addresses with add_address"
    )]
    Address {
        /// The refused address.
        address: String,
        /// The address that the port has.
        kept: String,
        /// The answer of the firmware.
        source: Box<AdminError>,
    },
    /// The port is open, or another thread has dropped it and is still closing it.
    #[error("the port is open already: a function has one; drop its port and queues first")]
    AlreadyOpen,
    /// The device failed or was shut down.
    #[error("the device is out of service: recover it, then open the port again")]
    OutOfService,
    /// Numbers that the device does not have.
    #[error("{wanted} {what} are not possible: this function has {limit}")]
    TooMany {
        /// The kind of object.
        what: &'static str,
        /// The requested number.
        wanted: usize,
        /// The number of them.
        limit: usize,
    },
    /// A receive queue has an interrupt already.
    #[error("receive queue {queue} has an interrupt already: a queue has one; drop that one first")]
    InterruptTaken {
        /// The queue, counted from the function's first.
        queue: u16,
    },
    /// The operating system refused an operation.
    #[error("{operation}: {error}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Its error.
        error: String,
    },
    /// A value out of range.
    #[error("{what} {value}: {remedy}")]
    Invalid {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// The possible values.
        remedy: &'static str,
    },
}
