//! The origin of a buffer.

/// The memory that a buffer is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A block of the pool, by index.
    Block(usize),
    /// Memory of the application, all of it.
    Application,
}
