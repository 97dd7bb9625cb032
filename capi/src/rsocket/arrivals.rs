//! The connections of a listener that the program has not taken.

use std::collections::VecDeque;

/// Connections that a listener keeps if its backlog names no number.
const MOST: usize = 1024;

/// The connections of a listener that the program has not taken, in the order of their requests.
pub(super) struct Arrivals<T> {
    pub(super) waiting: VecDeque<T>,
    limit: usize,
    /// the process had no descriptors for the next request, which waits: an errno value
    pub(super) shortage: Option<i32>,
    /// the library's thread does not look for requests until a call finds room and a descriptor
    pub(super) is_paused: bool,
}

impl<T> Arrivals<T> {
    /// Without room.
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            limit: 0,
            shortage: None,
            is_paused: false,
        }
    }

    /// Has room for as many connections as the backlog says, as the connection manager reads it.
    pub(super) fn make_room(&mut self, backlog: i32) {
        let limit = usize::try_from(backlog).unwrap_or(0);
        self.limit = if (1..=MOST).contains(&limit) {
            limit
        } else {
            MOST
        };
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.limit
    }

    /// True if a call that takes a connection returns: with one, or because it lacks descriptors.
    pub(super) fn has_one(&self) -> bool {
        self.shortage.is_some() || !self.waiting.is_empty()
    }

    /// Takes the first one. Errors: the shortage, or `EAGAIN` without a request.
    pub(super) fn take(&mut self) -> Result<T, i32> {
        let error = self.shortage.unwrap_or(libc::EAGAIN);
        self.waiting.pop_front().ok_or(error)
    }
}
