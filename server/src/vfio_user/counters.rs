//! Counts of a socket.

/// Counts of a socket since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Clients that connected.
    pub clients: u64,
    /// Clients that were told that the function is taken.
    pub turned_away: u64,
    /// Messages.
    pub messages: u64,
    /// Messages that were refused, with a reply or without.
    pub refused: u64,
}
