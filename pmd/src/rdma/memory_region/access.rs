//! The permitted uses of a region, and its addresses in requests.

use ringside_spec::rdma::commands::AccessRights;

/// The permitted uses of a memory region. Reading by its own device is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// The own device may read: gather data to send.
    pub const LOCAL_READ: Self = Self(0);
    /// The own device may write: receives and read responses.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write. Includes [`Access::LOCAL_WRITE`], as verbs demand.
    pub const REMOTE_WRITE: Self = Self(4 | 1);
    /// Memory windows may be bound to it.
    pub const BIND_WINDOW: Self = Self(8);
    /// All of it.
    pub const ALL: Self = Self(15);

    /// True if all that `other` allows is allowed here too.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(in crate::rdma) fn rights(self) -> AccessRights {
        AccessRights::ZERO
            .with_local_read(true)
            .with_local_write(self.contains(Self::LOCAL_WRITE))
            .with_remote_read(self.contains(Self::REMOTE_READ))
            .with_remote_write(self.contains(Self::REMOTE_WRITE))
            .with_bind_window(self.contains(Self::BIND_WINDOW))
    }

    pub(in crate::rdma) fn is_remote(self) -> bool {
        self.0 & 6 != 0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The start of a region's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At the I/O virtual address of its first byte.
    Address,
    /// At 0: the address shows peers nothing about its place in memory. No memory window can be
    /// bound to it.
    Zero,
    /// At this address, usually the program's own. Its offset in a page must be that of the first
    /// byte: in a page of 4 KiB, or of 2 MiB or 1 GiB if the memory consists of such pages.
    Named(u64),
}

impl Base {
    /// The address of the first byte, as requests name it. `iova` is its I/O virtual address.
    pub(super) const fn first(self, iova: u64) -> u64 {
        match self {
            Self::Address => iova,
            Self::Zero => 0,
            Self::Named(address) => address,
        }
    }
}

/// A place in a peer's memory, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in the peer's region.
    pub address: u64,
    /// Remote key of that region.
    pub key: u32,
}

/// A peer's memory region, as the peer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoteRegion {
    /// Address of its first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes.
    pub length_bytes: u64,
}

impl RemoteRegion {
    /// The place `offset` bytes into it. The peer's device checks that it is inside.
    #[inline]
    #[must_use]
    pub const fn at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            address: self.address.wrapping_add(offset),
            key: self.key,
        }
    }
}

/// A range outside of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bytes {start}..{end} are not in the region's {length_bytes} bytes, or more than one fragment holds"
)]
pub struct SliceError {
    /// First requested byte.
    pub start: usize,
    /// End of the requested bytes.
    pub end: usize,
    /// Bytes of the region.
    pub length_bytes: usize,
}
