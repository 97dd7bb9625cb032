//! The directions of a socket that a program ends.

/// Directions that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directions {
    Reads,
    Writes,
    Both,
}

impl Directions {
    /// True if the socket receives nothing any more.
    pub(super) const fn has_reads(self) -> bool {
        matches!(self, Self::Reads | Self::Both)
    }

    /// True if the socket sends nothing any more.
    pub(super) const fn has_writes(self) -> bool {
        matches!(self, Self::Writes | Self::Both)
    }
}
