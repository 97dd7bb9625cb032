//! The request for a completion event that is still to come.

use super::sync::{Arc, AtomicU8, Ordering};

/// The source of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Next,
    /// The next completion of a message that was sent as solicited, or of a failure.
    Solicited,
}

/// The event that a completion queue has asked the device for, until it is taken. The queue, which
/// asks, and the thread that takes events share it.
///
/// The device tells requests apart by two bits, and a doorbell page in memory holds the last
/// doorbell only: four requests that the device has not seen look like none. So a queue asks again
/// only after its event.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventRequest(Arc<AtomicU8>);

/// Nothing was asked for since the last event.
const NOTHING: u8 = 0;

impl EventRequest {
    /// True if the device has to be asked: the event that is still to come does not serve this
    /// request. To be called before the doorbell is rung: the event may come at once.
    pub(crate) fn add(&self, notify: Notify) -> bool {
        let kind = match notify {
            Notify::Solicited => 1,
            Notify::Next => 2,
        };
        let is_new = self.0.load(Ordering::Acquire) < kind;
        if is_new {
            self.0.store(kind, Ordering::Release);
        }
        is_new
    }

    /// The event that is still to come, if there is one.
    pub(crate) fn pending(&self) -> Option<Notify> {
        match self.0.load(Ordering::Acquire) {
            NOTHING => None,
            1 => Some(Notify::Solicited),
            _ => Some(Notify::Next),
        }
    }

    /// The event was taken, or may not come any more. To be called before its taker is told.
    pub(crate) fn end(&self) {
        self.0.store(NOTHING, Ordering::Release);
    }
}
