//! A vector that is connected to a descriptor.

use ringside_bus::Function;
use std::os::fd::OwnedFd;

/// A vector that is connected.
#[derive(Debug)]
pub(crate) struct ConnectedInterrupt {
    pub(super) vector: u16,
    /// the completion event queue that raises it
    pub(super) event_queue: Option<u16>,
    /// asynchronous events raise it
    pub(super) takes_events: bool,
    /// the owner's event descriptor, which ends a wait for the interrupt
    pub(super) event: OwnedFd,
}

impl ConnectedInterrupt {
    /// Wakes the waiting thread, as the device would.
    pub(crate) fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.event, &1u64.to_ne_bytes()) {
            tracing::debug!(%error, "the waiting thread was not woken");
        }
    }

    /// Disconnects the vector, after a reset of the device.
    pub(crate) fn disconnect(&self, function: &dyn Function) {
        if let Err(error) = function.set_interrupts(self.vector, &[None]) {
            tracing::warn!(%error, vector = self.vector, "an interrupt stays connected");
        }
    }
}
