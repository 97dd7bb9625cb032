//! Steering tags: the table of memory regions and windows, kept in the host memory cache.

use crate::rdma::hmc::{Hmc, HmcFault};
use crate::roce::AccessFault;
use ringside_bus::DmaSpace;
use ringside_spec::rdma::commands::{AccessRights, PageList, PageSize, SteeringTag};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::STAG_INDEX_MIN_BITS;

ringside_spec::words! {
    /// Second word of a table entry, in the model's private format.
    struct EntrySize: u64 {
        /// bytes
        length_bytes: [45:0],
        /// protection domain
        protection_domain: [63:46],
    }

    /// Sixth word of a table entry: of a bound window.
    struct EntryBinding: u64 {
        parent: [31:0],
        queue_pair: [63:32],
    }

    /// Seventh word of a table entry.
    struct EntryCounts: u64 {
        first_entry: [31:0],
        windows: [63:32],
    }

    /// Third word of a table entry.
    struct EntryFlags: u64 {
        steering_tag: [31:0],
        rights: [36:32],
        page_list: [38:37],
        page_size: [40:39],
        va_based: [41],
        window: [42],
        type_1: [43],
        remote_access: [44],
        valid: [45],
        allocated: [46],
        list_is_fixed: [47],
        signature: [63:48],
    }
}

/// Tells an entry that was written from memory that was not, or was lost.
const SIGNATURE: u64 = 0x3A6E;

/// Entries of a leaf of a page list with two levels.
const LEAF_ENTRIES: u64 = 512;

/// The object behind a steering tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Region {
    pub(in crate::rdma) tag: SteeringTag,
    /// The tag exists, though perhaps it may not be used.
    pub(in crate::rdma) allocated: bool,
    /// It may be used.
    pub(in crate::rdma) valid: bool,
    /// A memory window; else a memory region.
    pub(in crate::rdma) window: bool,
    pub(in crate::rdma) type_1: bool,
    pub(in crate::rdma) virtual_address: u64,
    pub(in crate::rdma) length_bytes: u64,
    /// The length of its allocation: the most that a fast registration may request.
    pub(in crate::rdma) capacity_bytes: u64,
    pub(in crate::rdma) protection_domain: u32,
    pub(in crate::rdma) rights: AccessRights,
    pub(in crate::rdma) remote_access: bool,
    pub(in crate::rdma) va_based: bool,
    pub(in crate::rdma) page_list: PageList,
    pub(in crate::rdma) page_size: PageSize,
    pub(in crate::rdma) first_block: u64,
    pub(in crate::rdma) first_entry: u32,
    /// The tag came with its page list: a fast registration may name no other.
    pub(in crate::rdma) list_is_fixed: bool,
    /// Of a bound window: the region's tag and the queue pair that it is bound to.
    pub(in crate::rdma) parent: u32,
    pub(in crate::rdma) queue_pair: u32,
    /// Windows bound to this region.
    pub(in crate::rdma) windows: u32,
}

/// A page buffer list in the host memory cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct PageListAt {
    pub(in crate::rdma) levels: PageList,
    pub(in crate::rdma) first_entry: u32,
    /// pages that it lists
    pub(in crate::rdma) pages: u64,
}

impl PageListAt {
    /// The list of `region`: as many pages as it touches, from the one of its first byte on.
    /// Source: irdma `verbs.c`, `irdma_reg_user_mr_type_mem`; `ib_umem.h`,
    /// `ib_umem_num_dma_blocks`.
    pub(in crate::rdma) fn of(region: &Region) -> Self {
        let page_bytes = region.page_bytes();
        let from_first = region.virtual_address % page_bytes;
        Self {
            levels: region.page_list,
            first_entry: region.first_entry,
            pages: (from_first + region.length_bytes).div_ceil(page_bytes),
        }
    }

    /// Entries of the list's first level.
    pub(in crate::rdma) const fn entries(&self) -> u64 {
        match self.levels {
            PageList::OneLevel => self.pages,
            PageList::TwoLevels => self.pages.div_ceil(LEAF_ENTRIES),
            _ => 0,
        }
    }
}

impl Region {
    pub(in crate::rdma) const NONE: Self = Self {
        tag: SteeringTag::ZERO,
        allocated: false,
        valid: false,
        window: false,
        type_1: false,
        virtual_address: 0,
        length_bytes: 0,
        capacity_bytes: 0,
        protection_domain: 0,
        rights: AccessRights::ZERO,
        remote_access: false,
        va_based: false,
        page_list: PageList::Contiguous,
        page_size: PageSize::FourKib,
        first_block: 0,
        first_entry: 0,
        list_is_fixed: false,
        parent: 0,
        queue_pair: 0,
        windows: 0,
    };

    fn to_words(self) -> [u64; 7] {
        let size = EntrySize::ZERO
            .with_length_bytes(self.length_bytes)
            .with_protection_domain(self.protection_domain.into());
        let flags = EntryFlags::ZERO
            .with_steering_tag(self.tag.0.into())
            .with_rights(self.rights.0.into())
            .with_page_list(self.page_list.code().into())
            .with_page_size(self.page_size.code().into())
            .with_va_based(self.va_based)
            .with_window(self.window)
            .with_type_1(self.type_1)
            .with_remote_access(self.remote_access)
            .with_valid(self.valid)
            .with_allocated(self.allocated)
            .with_list_is_fixed(self.list_is_fixed)
            .with_signature(SIGNATURE);
        let binding = EntryBinding::ZERO
            .with_parent(self.parent.into())
            .with_queue_pair(self.queue_pair.into());
        let counts = EntryCounts::ZERO
            .with_first_entry(self.first_entry.into())
            .with_windows(self.windows.into());
        [
            self.virtual_address,
            size.0,
            flags.0,
            self.first_block,
            self.capacity_bytes,
            binding.0,
            counts.0,
        ]
    }

    fn from_words(words: &[u64; 7]) -> Option<Self> {
        let [
            virtual_address,
            size,
            flags,
            first_block,
            capacity_bytes,
            binding,
            counts,
        ] = *words;
        let (binding, counts) = (EntryBinding(binding), EntryCounts(counts));
        let (size, flags) = (EntrySize(size), EntryFlags(flags));
        (flags.signature() == SIGNATURE).then_some(Self {
            tag: SteeringTag(flags.steering_tag() as u32),
            allocated: flags.allocated(),
            valid: flags.valid(),
            window: flags.window(),
            type_1: flags.type_1(),
            virtual_address,
            length_bytes: size.length_bytes(),
            capacity_bytes,
            protection_domain: size.protection_domain() as u32,
            rights: AccessRights(flags.rights() as u8),
            remote_access: flags.remote_access(),
            va_based: flags.va_based(),
            page_list: PageList::from_code(flags.page_list() as u8),
            page_size: PageSize::from_code(flags.page_size() as u8),
            first_block,
            first_entry: counts.first_entry() as u32,
            list_is_fixed: flags.list_is_fixed(),
            parent: binding.parent() as u32,
            queue_pair: binding.queue_pair() as u32,
            windows: counts.windows() as u32,
        })
    }

    /// Bytes of a page; 4 KiB where the code has no meaning (creation refuses such a code).
    #[inline]
    pub(in crate::rdma) fn page_bytes(&self) -> u64 {
        self.page_size.bytes().unwrap_or(4096)
    }

    /// True if it covers all of memory: length 0.
    #[inline]
    pub(in crate::rdma) fn is_all_of_memory(&self) -> bool {
        self.length_bytes == 0
    }
}

#[derive(Clone, Copy)]
struct Cached {
    region: Region,
    stamp: (u64, u64),
}

/// Never a stamp of a real entry.
const STALE: (u64, u64) = (u64::MAX, u64::MAX);

/// Grants that are kept at hand, of the tags that were used last.
const QUICK: usize = 4;

/// The memory of one block that a tag gives access to.
#[derive(Clone, Copy)]
struct Quick {
    tag: u32,
    protection_domain: u32,
    rights: u8,
    /// First address, and the one behind the last.
    bounds: (u64, u64),
    /// Added to an address, it gives the host's.
    offset: u64,
    stamp: (u64, u64),
    version: u64,
}

impl Quick {
    const NONE: Self = Self {
        tag: 0,
        protection_domain: 0,
        rights: 0,
        bounds: (0, 0),
        offset: 0,
        stamp: STALE,
        version: 0,
    };
}

/// The table: a cache in front of the entries in the host's memory.
pub(in crate::rdma) struct RegionTable {
    cached: Vec<Cached>,
    /// The entries that hold a tag, recorded in the device itself, so that it notices a lost entry.
    used: Vec<bool>,
    index_bits: u32,
    quick: [Quick; QUICK],
    /// Changes whenever an entry does.
    version: u64,
}

impl RegionTable {
    pub(in crate::rdma) fn new(count: u32) -> Self {
        let empty = Cached {
            region: Region::NONE,
            stamp: STALE,
        };
        let bits = count.checked_next_power_of_two().map_or(0, u32::ilog2);
        Self {
            cached: vec![empty; count as usize],
            used: vec![false; count as usize],
            index_bits: bits.max(STAG_INDEX_MIN_BITS),
            quick: [Quick::NONE; QUICK],
            version: 1,
        }
    }

    /// The entry that a tag's index selects: its low bits. Software may set the bits above them to
    /// any value.
    #[inline(always)]
    pub(in crate::rdma) fn slot(&self, tag_index: u32) -> usize {
        (tag_index % (1 << self.index_bits)) as usize
    }

    /// Index parts of the tags in use.
    pub(in crate::rdma) fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        let numbered = self.cached.iter().zip(&self.used).enumerate();
        numbered
            .filter(|(_, (_, used))| **used)
            .map(|(_, (cached, _))| cached.region.tag.index())
    }

    pub(in crate::rdma) fn is_used(&self, tag_index: u32) -> bool {
        self.used
            .get(self.slot(tag_index))
            .copied()
            .unwrap_or(false)
    }

    /// Writes an entry through to the host's memory.
    pub(in crate::rdma) fn write(
        &mut self,
        region: &Region,
        hmc: &mut Hmc,
        memory: &DmaSpace,
    ) -> Result<(), HmcFault> {
        let slot = self.slot(region.tag.index());
        self.version += 1;
        hmc.keep(
            ObjectType::MemoryRegion,
            slot as u32,
            &region.to_words(),
            memory,
        )?;
        if let (Some(cached), Some(used)) = (self.cached.get_mut(slot), self.used.get_mut(slot)) {
            cached.region = *region;
            cached.stamp = (memory.generation(), hmc.generation());
            *used = region.allocated;
        }
        Ok(())
    }

    /// Returns the offset from an address to the host's address, if a kept grant allows the access.
    #[inline(always)]
    pub(in crate::rdma) fn quick(
        &self,
        tag: u32,
        (address, length): (u64, u64),
        (rights, protection_domain): (AccessRights, u32),
        stamp: (u64, u64),
    ) -> Option<u64> {
        let quick = &self.quick[SteeringTag(tag).index() as usize % QUICK];
        let end = address.checked_add(length)?;
        let allowed = quick.tag == tag
            && quick.stamp == stamp
            && quick.version == self.version
            && quick.protection_domain == protection_domain
            && quick.rights & rights.0 == rights.0
            && quick.bounds.0 <= address
            && end <= quick.bounds.1;
        allowed.then_some(quick.offset)
    }

    /// Keeps a grant at hand: of a region in one block, to `offset` from the addresses in `bounds`.
    pub(in crate::rdma) fn keep_quick(
        &mut self,
        region: &Region,
        bounds: (u64, u64),
        offset: u64,
        stamp: (u64, u64),
    ) {
        self.quick[region.tag.index() as usize % QUICK] = Quick {
            tag: region.tag.0,
            protection_domain: region.protection_domain,
            rights: region.rights.0,
            bounds,
            offset,
            stamp,
            version: self.version,
        };
    }

    /// The region of a tag, if the cache has it, all bits match and it may be used.
    #[inline(always)]
    pub(in crate::rdma) fn cached(
        &self,
        tag: SteeringTag,
        hmc: &Hmc,
        memory: &DmaSpace,
    ) -> Option<&Region> {
        let cached = self.cached.get(self.slot(tag.index()))?;
        let current = cached.stamp == (memory.generation(), hmc.generation());
        (current && cached.region.tag == tag && cached.region.valid).then_some(&cached.region)
    }

    /// The entry that a tag's index selects, read back from the host's memory if the cache may be
    /// stale.
    #[inline]
    pub(in crate::rdma) fn read(
        &mut self,
        tag_index: u32,
        hmc: &mut Hmc,
        memory: &DmaSpace,
    ) -> Result<Region, HmcFault> {
        let slot = self.slot(tag_index);
        match self.cached.get(slot) {
            Some(cached) if cached.stamp == (memory.generation(), hmc.generation()) => {
                Ok(cached.region)
            }
            _ => self.read_back(slot, hmc, memory),
        }
    }

    #[cold]
    fn read_back(
        &mut self,
        slot: usize,
        hmc: &mut Hmc,
        memory: &DmaSpace,
    ) -> Result<Region, HmcFault> {
        self.version += 1;
        let fault = HmcFault::OutOfRange {
            object: ObjectType::MemoryRegion,
            index: slot as u64,
            count: hmc.count(ObjectType::MemoryRegion),
        };
        let used = self.used.get(slot).copied().ok_or(fault)?;
        let region = if used {
            let words = hmc.recall(ObjectType::MemoryRegion, slot as u32, memory)?;
            Region::from_words(&words).ok_or(HmcFault::Lost {
                object: ObjectType::MemoryRegion,
                index: slot as u32,
            })?
        } else {
            Region::NONE
        };
        if let Some(cached) = self.cached.get_mut(slot) {
            cached.region = region;
            cached.stamp = (memory.generation(), hmc.generation());
        }
        Ok(region)
    }
}

/// The reason why a tag could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum TagFault {
    /// The driver's or the peer's mistake.
    Access(AccessFault),
    /// The table itself could not be reached.
    Table(HmcFault),
    /// The tag is 0, which only privileged queue pairs may use.
    Privileged,
}

impl From<AccessFault> for TagFault {
    fn from(fault: AccessFault) -> Self {
        Self::Access(fault)
    }
}

impl From<HmcFault> for TagFault {
    fn from(fault: HmcFault) -> Self {
        match fault {
            HmcFault::OutOfRange {
                object: ObjectType::MemoryRegion,
                ..
            } => Self::Access(AccessFault::BadKeyIndex),
            other => Self::Table(other),
        }
    }
}
