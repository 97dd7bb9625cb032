//! The settings and the counts of a cache.

use super::super::memory_region::Access;

/// The source of the cache's knowledge of memory that is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapping {
    /// The program calls [`RegistrationCache::invalidate`] before. The default: it is correct with
    /// any number of threads.
    ///
    /// [`RegistrationCache::invalidate`]: super::RegistrationCache::invalidate
    Told,
    /// The kernel reports it through userfaultfd.
    ///
    /// **A gap between threads.** The kernel unmaps, then reports, and `munmap` returns once the
    /// report was read. While one thread is inside `munmap`, another thread may map memory at the
    /// same addresses. A look-up of that memory then answers with the old registration, and the
    /// device sends the bytes of the memory that was unmapped. Choose this only if no thread maps
    /// and sends large memory while another frees some: one thread, or an allocator that keeps what
    /// it has mapped.
    ///
    /// **`mremap`.** A watched range is a mapping of its own for the kernel. If only a part of some
    /// memory was registered, `mremap` of that memory fails with `EFAULT` from then on.
    Watched,
}

/// Settings of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// [`Access::LOCAL_READ`] to send, [`Access::LOCAL_WRITE`] to receive and to read from peers
    /// too.
    pub access: Access,
    /// Most entries; each is one memory region and one mapping of the IOMMU.
    pub max_entries: usize,
    /// Most bytes of all entries together, which are pinned memory over VFIO.
    pub max_bytes: u64,
    /// See [`Unmapping`].
    pub unmapping: Unmapping,
}

impl Default for CacheSettings {
    /// 1,024 entries, 1 GiB, read and written by the own device. The program invalidates memory
    /// before it unmaps it.
    fn default() -> Self {
        Self {
            access: Access::LOCAL_WRITE,
            max_entries: 1024,
            max_bytes: 1 << 30,
            unmapping: Unmapping::Told,
        }
    }
}

/// Counts of a cache, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// Entries now.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Look-ups that an entry answered.
    pub hits: u64,
    /// Look-ups that registered memory.
    pub misses: u64,
    /// Entries deregistered to make room.
    pub evicted: u64,
    /// Entries replaced by a larger one.
    pub merged: u64,
    /// Entries forgotten because their memory was unmapped.
    pub invalidated: u64,
    /// Registrations that were not kept: the kernel cannot watch them, or they were invalidated
    /// while they were made.
    pub not_kept: u64,
}
