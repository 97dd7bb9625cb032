//! Addresses in function private memory (FPM): the flat space that holds all objects of a function.

use std::fmt;

use ringside_spec::rdma::segments::{FpmLocation, SEGMENT_BYTES};

/// A byte address in function private memory, counted from 0 for each function.
///
/// It never appears on the bus: the device's segment and page descriptors translate it into an I/O
/// virtual address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FpmAddress(pub u64);

impl FpmAddress {
    /// Segment, page and offset: the parts by which the device translates the address.
    #[must_use]
    pub const fn location(self) -> FpmLocation {
        FpmLocation::of(self.0)
    }

    /// True if a segment starts here.
    #[must_use]
    pub const fn starts_segment(self) -> bool {
        self.0.is_multiple_of(SEGMENT_BYTES)
    }
}

impl fmt::Debug for FpmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for FpmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
