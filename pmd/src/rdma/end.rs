//! The end of a period of service.

use crate::failure::FailureCause;
use ringside_bus::Instant;
use ringside_cq::{CompletionContext, CompletionQueueHandle};
use ringside_spec::verbs::QueueSide;

/// A flush that a completion queue had no room for in its inbox.
#[derive(Debug)]
pub(crate) struct OwedFlush {
    pub(super) handle: CompletionQueueHandle,
    pub(super) context: CompletionContext,
    pub(super) side: QueueSide,
}

impl OwedFlush {
    pub(super) fn new(
        handle: &CompletionQueueHandle,
        context: CompletionContext,
        side: QueueSide,
    ) -> Self {
        Self {
            handle: handle.clone(),
            context,
            side,
        }
    }

    /// Flushes, if the completion queue has room for that now; false if it has none.
    pub(crate) fn try_again(&self) -> bool {
        self.handle.flush(self.context, self.side).is_ok()
    }
}

/// The end of an engine's period of service.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The cause; `None` while it is in service.
    pub(crate) cause: Option<FailureCause>,
    /// The time of the failure.
    pub(crate) since: Option<Instant>,
    /// A reset was confirmed: the device no longer accesses memory of its objects.
    pub(crate) released: bool,
    /// A reset of the function has begun: no register is written until the next period of service.
    pub(crate) reset_begun: bool,
    /// The device writes nothing more: its bus mastering is off, or it was reset.
    pub(crate) silent: bool,
    /// The time of the next attempt to silence a device that may still write. `None`: there was
    /// none yet, one is under way, or none is needed any more.
    pub(crate) next_attempt: Option<Instant>,
    /// Queue pairs that there were.
    pub(crate) queue_pairs: usize,
    /// flushes for when the device is silent
    pub(crate) waiting: Vec<OwedFlush>,
    /// flushes that found no room, also of earlier periods of service
    pub(crate) owed: Vec<OwedFlush>,
}

impl End {
    /// True if the device may still use memory of objects of this period of service.
    pub(crate) const fn holds_memory(&self) -> bool {
        self.cause.is_some() && !self.released
    }
}
