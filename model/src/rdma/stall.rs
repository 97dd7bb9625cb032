//! The stall of the engine, a fault.

/// The reason for which the engine is stopped, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    No,
    /// It does nothing.
    Yes,
    /// The stall ends; work continues where it stopped.
    Ending,
}
