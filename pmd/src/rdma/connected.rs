//! A vector that is connected to a descriptor.

use crate::event_descriptor::EventDescriptor;

/// A vector that is connected.
#[derive(Debug)]
pub(crate) struct ConnectedInterrupt {
    pub(super) vector: u16,
    /// the completion event queue that raises it
    pub(super) event_queue: Option<u16>,
    /// asynchronous events raise it
    pub(super) takes_events: bool,
    /// the owner's event descriptor, which ends a wait for the interrupt
    pub(super) event: EventDescriptor,
}
