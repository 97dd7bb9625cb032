//! The order of arming a completion queue and the poll that follows.

use crate::sync::{Ordering, fence};

/// Stores the arming and rings the doorbell. No later read is carried out before both are stored.
/// Otherwise a processor could read the ring first: the poll would miss a completion that arrives
/// in between, and its event would be missing too, because the queue was not armed when it arrived.
pub(crate) fn arm(store: impl FnOnce(), ring: impl FnOnce()) {
    store();
    ring();
    fence(Ordering::SeqCst);
}
