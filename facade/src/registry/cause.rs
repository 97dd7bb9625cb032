//! The reasons of an `uninitialise`.

use std::fmt;

/// The reason of an [`uninitialise`](super::Client::uninitialise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device does not respond on the bus: it was unplugged, or the model in the other process
    /// ended.
    Gone,
    /// The host asks the program to release the device: it is to be unbound or unplugged.
    ReleaseRequested,
    /// The program removed the device.
    Removed,
    /// The program unregistered the client. The device stays in service.
    Unregistered,
    /// The registry is closed.
    Closed,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the device is gone from the bus",
            Self::ReleaseRequested => "the host asks for the device",
            Self::Removed => "the program removed the device",
            Self::Unregistered => "the program unregistered the client",
            Self::Closed => "the registry is closed",
        })
    }
}
