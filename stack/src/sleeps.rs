//! Counts of the sleeps of a stack's thread.

/// The sleeps of a stack's thread so far, by what ended them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeps {
    /// A frame, by the interrupt of the receive queue.
    pub by_frames: u64,
    /// A request of another thread.
    pub by_requests: u64,
    /// Their time was over.
    pub timed_out: u64,
}
