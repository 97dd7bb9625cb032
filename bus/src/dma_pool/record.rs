//! The record of memory of the application.

use crate::memory::Memory;

/// Memory of the application, as the pool records it.
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
