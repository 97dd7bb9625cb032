//! Reasons why a range is not registered by a cache, or not invalidated.

use crate::rdma::RdmaError;
use crate::rdma::memory_region::DeregisterError;
use ringside_bus::MemoryError;
use ringside_bus::unmaps::UnmapsError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A cache for peers.
    #[error(
        "a cache registers memory for requests of its own device only, and remote access was asked \
         for: a peer may use a key at any time; register that memory with ProtectionDomain::register"
    )]
    RemoteAccess,
    /// A cache without room for one page.
    #[error(
        "a cache of {max_entries} entries and {max_bytes} bytes holds nothing: allow 1 entry and \
         4096 bytes at least"
    )]
    NoRoom {
        /// Most entries.
        max_entries: usize,
        /// Most bytes.
        max_bytes: u64,
    },
    /// A range that begins at address zero, where no memory is.
    #[error(
        "{length} bytes at a null pointer: pass the address of memory that the program has mapped"
    )]
    Null {
        /// Bytes asked for.
        length: u64,
    },
    /// A range that ends behind the last address.
    #[error(
        "{length} bytes at {first:#x} end behind the last address: pass memory that the program has \
         mapped"
    )]
    Wraps {
        /// Its first address.
        first: u64,
        /// Bytes asked for.
        length: usize,
    },
    /// A range beyond the cache's bytes.
    #[error(
        "{length} bytes with their pages are more than the cache's {max_bytes}: raise max_bytes, or \
         register the range with ProtectionDomain::register"
    )]
    TooLong {
        /// Bytes asked for.
        length: u64,
        /// Most bytes of all entries.
        max_bytes: u64,
    },
    /// Every entry is in use.
    #[error(
        "all {entries} entries ({bytes} bytes) of the cache are in use: complete requests and drop \
         their Registered, or raise max_entries and max_bytes"
    )]
    Full {
        /// Entries.
        entries: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// Forgotten registrations that are held still.
    #[error(
        "{entries} registrations of the range are in use: complete their requests, drop each \
         Registered, and invalidate the range again before it is unmapped"
    )]
    InUse {
        /// The number of registrations.
        entries: usize,
    },
    /// The device did not give a region up.
    #[error("the memory must stay mapped until the device's shutdown: {0}")]
    Deregister(#[source] Box<DeregisterError>),
    /// The kernel does not report what is unmapped.
    #[error(transparent)]
    Unmaps(#[from] UnmapsError),
    /// The device or its limits refuse.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
}

impl From<MemoryError> for CacheError {
    fn from(error: MemoryError) -> Self {
        Self::Rdma(error.into())
    }
}
