//! The threads that use a connection.

use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

/// The time for which a connection counts as shared after its user changed.
const SHARED: Duration = Duration::from_millis(10);

/// The last user of a connection.
#[derive(Debug, Default)]
pub(super) struct Users {
    last: Option<ThreadId>,
    /// the last time that it was another one than before
    changed: Option<Instant>,
}

impl Users {
    /// This thread uses the connection.
    pub(super) fn note(&mut self) {
        let user = current().id();
        if self.last.replace(user).is_some_and(|last| last != user) {
            self.changed = Some(Instant::now());
        }
    }

    /// True if other threads have used it lately, and may wait for it.
    pub(super) fn are_several(&self, now: Instant) -> bool {
        let since = |time| now.saturating_duration_since(time);
        self.changed.is_some_and(|time| since(time) < SHARED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_shared_for_a_while_after_another_thread_used_it() {
        let mut users = Users::default();
        users.note();
        users.note();
        assert_eq!(users.changed, None);
        let users = std::thread::spawn(move || {
            users.note();
            users
        });
        let users = users.join().unwrap();
        let changed = users.changed.unwrap();
        assert!(users.are_several(changed));
        assert!(!users.are_several(changed + SHARED));
    }
}
