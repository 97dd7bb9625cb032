//! Refused accesses: reasons, conditions and reports.

use crate::Iova;
use std::fmt;

/// An access that the address space refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaFault {
    /// Nothing is mapped there, or the range extends beyond its mapping.
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
    /// The function's bus-master bit is off: it may not access memory at all.
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
    /// Memory is mapped there, but a [`Refusal`] is in force.
    #[error("{direction} of {length} bytes at {iova} was refused")]
    Refused {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
        /// Read or write.
        direction: Direction,
    },
    /// Memory of another process is mapped there, but is no longer accessible: the process has
    /// ended, or has unmapped the memory without telling the device. A kernel driver pins the
    /// memory instead.
    #[error("{direction} of {length} bytes at {iova} found no memory: {}", reason(*.owner_ended))]
    Gone {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
        /// Read or write.
        direction: Direction,
        /// The process has ended.
        owner_ended: bool,
    },
}

const fn reason(owner_ended: bool) -> &'static str {
    if owner_ended {
        "its process has ended"
    } else {
        "its process has unmapped it; deregister memory first"
    }
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

/// Accesses that are refused although memory is mapped, as by an IOMMU whose tables were changed by
/// other software, or by a switch on the path that does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Only accesses of this direction; `None` for both.
    pub direction: Option<Direction>,
    /// The number of accesses to refuse, at least 1; `None`: as long as the refusal is in force.
    /// Taking a view of a structure counts as one access.
    pub accesses: Option<u64>,
    /// First address: only accesses that touch the range are refused.
    pub first: Iova,
    /// Length of the range in bytes.
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
    /// First address that could not be accessed.
    pub iova: Iova,
    /// For a write: the data, at most 8 bytes. `None` for a read.
    pub written: Option<Vec<u8>>,
}
