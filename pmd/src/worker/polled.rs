//! The result of a poll.

/// The result of one poll: for the statistics, and for the [`Policy`](super::Policy) of a worker
/// that stops polling while it finds no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// The poll found work and did it.
    Worked,
    /// The poll found no work.
    Idle,
}
