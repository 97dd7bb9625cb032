//! The firmware's lock for changes of the package's tables, as threads of one function share it.
//!
//! The firmware grants it to functions: a second request of the same function is an error, so the
//! threads of a function take turns. A release that the firmware refuses leaves the lock with the
//! function, for the next turn to release.

use ringside_bus::Instant;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ChangeLock(Mutex<Turn>);

/// The one use of the lock at a time.
#[derive(Debug, Default)]
pub(in crate::admin) struct Turn {
    /// the end of a grant that the firmware has not taken back
    pub(in crate::admin) held_until: Option<Instant>,
}

impl ChangeLock {
    /// Waits until no other thread uses the lock.
    pub(in crate::admin) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a grant: a reset has ended it.
    pub(super) fn forget(&self) {
        *self.turn() = Turn::default();
    }
}
