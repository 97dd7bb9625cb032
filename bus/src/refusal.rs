//! Accesses that are refused: why, which, and what is told of them.

use crate::Iova;
use std::fmt;

/// An access that the address space refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaFault {
    /// Nothing is mapped there, or the range leaves its mapping.
    #[error("{length} bytes at {iova} are not mapped")]
    NotMapped {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
    },
    /// A write to a mapping that only allows reads.
    #[error("{length} bytes at {iova} are mapped read-only")]
    ReadOnly {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
    },
    /// The function's bus-master bit is off: it may not touch memory at all.
    #[error("access to {iova} while bus mastering is off")]
    BusMasterOff {
        /// First address.
        iova: Iova,
    },
    /// A structure that must be aligned is not.
    #[error("{iova} is not aligned to {alignment} bytes")]
    Misaligned {
        /// First address.
        iova: Iova,
        /// The value of which it must be a multiple.
        alignment: u64,
    },
    /// Memory is mapped there, and the access was refused all the same: a [`Refusal`] is in force.
    #[error("{direction} of {length} bytes at {iova} was refused")]
    Refused {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
        /// Read or write.
        direction: Direction,
    },
}

/// The direction of an access, as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host's memory to the device.
    Read,
    /// From the device to the host's memory.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "the read",
            Self::Write => "the write",
        })
    }
}

/// Accesses that are refused although memory is mapped: as by an IOMMU whose tables somebody else
/// has changed, or a switch on the way that does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Only these; `None` for both.
    pub direction: Option<Direction>,
    /// So many, 1 at least; `None`: as long as it is in force. Taking a view of a structure counts
    /// as one access.
    pub accesses: Option<u64>,
    /// Only those that touch these addresses: the first one.
    pub first: Iova,
    /// And bytes from it on.
    pub bytes: u64,
}

impl Refusal {
    /// Every access, as long as it is in force.
    pub const EVERYTHING: Self = Self {
        direction: None,
        accesses: None,
        first: Iova(0),
        bytes: u64::MAX,
    };

    pub(super) fn touches(&self, iova: Iova, length: usize) -> bool {
        let end = iova.0.saturating_add(length as u64);
        iova.0 < self.first.0.saturating_add(self.bytes) && end > self.first.0
    }
}

/// An access that was refused, as an IOMMU would report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// First address that is not to be had.
    pub iova: Iova,
    /// Of a write: what should have gone there, at most 8 bytes. Nothing for a read.
    pub written: Option<Vec<u8>>,
}
