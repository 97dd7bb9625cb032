//! Counts of a socket.

/// Counts of a socket since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Clients that connected.
    pub clients: u64,
    /// Clients that were refused because the function has a client.
    pub turned_away: u64,
    /// Messages.
    pub messages: u64,
    /// Messages that were refused, with or without a reply.
    pub refused: u64,
}
