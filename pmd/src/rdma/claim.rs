//! The parts of the engine's state that one operation has for itself while its commands are under
//! way.

/// A part that an operation claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// The state of one queue pair in the device: its owner's operations and its failure.
    QueuePair(u32),
    /// Multicast groups and their members. Claimed after a queue pair.
    Groups,
    /// The table of MAC addresses. Claimed after the other two.
    Addresses,
    /// The buffer of the device's counters.
    Statistics,
}
