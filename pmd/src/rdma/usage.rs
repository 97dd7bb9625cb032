//! The numbers of objects in use, and memory that was refused.

use super::RdmaError;
use ringside_bus::Memory;

/// Memory of the application that the device was not given.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct MapError {
    /// The error.
    #[source]
    pub error: RdmaError,
    /// The memory.
    pub memory: Memory,
}

/// A number in use, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// The number in use.
    pub used: u32,
    /// May be in use at once.
    pub limit: u32,
}

/// Objects in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ObjectUsage {
    /// Queue pairs.
    pub queue_pairs: Usage,
    /// Completion queues.
    pub completion_queues: Usage,
    /// Memory regions.
    pub memory_regions: Usage,
    /// Address handles.
    pub address_handles: Usage,
    /// Multicast groups.
    pub multicast_groups: Usage,
    /// Protection domains.
    pub protection_domains: Usage,
    /// Page buffer list entries.
    pub page_list_entries: Usage,
    /// Bytes of memory behind the host memory cache.
    pub host_memory_cache_bytes: u64,
}
