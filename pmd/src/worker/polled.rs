//! The result of a poll.

/// The result of one poll. It goes into the statistics only; the worker polls on either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// The poll found work and did it.
    Worked,
    /// The poll found no work.
    Idle,
}
