//! The order in which arming and the poll after it take place.

use crate::sync::{Ordering, fence};

/// Stores the arming and rings. No read that follows is carried out before both are stored: a
/// processor may otherwise read the ring first, and then a completion in between is missed by the
/// poll, and its event is missing too since the queue was not armed when it came.
pub(crate) fn arm(store: impl FnOnce(), ring: impl FnOnce()) {
    store();
    ring();
    fence(Ordering::SeqCst);
}
