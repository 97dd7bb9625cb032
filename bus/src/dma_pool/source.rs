//! The origin of a buffer, and the record of memory of the application.

use crate::memory::Memory;

/// The memory that a buffer is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A block of the pool, by index.
    Block(usize),
    /// Memory of the application, all of it.
    Application,
}

/// The record of a piece of such memory.
pub(super) enum Brought {
    /// A thread is mapping this many bytes; it unmaps them if the record is gone afterwards.
    BeingMapped(usize),
    Mapped(Memory),
}

impl Brought {
    /// Bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::BeingMapped(length) => *length,
            Self::Mapped(memory) => memory.length(),
        }
    }
}
