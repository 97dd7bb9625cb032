//! The host memory that must back the objects, and the memory that already does.
//!
//! Function private memory is backed segment by segment (2 MiB): *direct*, one contiguous buffer,
//! or *paged*, a page of 512 descriptors that name 4 KiB pages each. This module decides which kind
//! a segment has, and records which memory exists. It allocates nothing and sends nothing. The
//! caller queries what is missing, allocates it, sends the device its address, and then records it
//! with [`Backing::note`]. If the caller fails half way, the record holds the part that was done.
//!
//! Objects that the device accesses on its own must be fully backed before the first queue is
//! created: its internal queues and free lists, the hash table, and also queue pair contexts and
//! memory regions, since a packet from the network can carry any queue pair number and any key.
//! Objects that only the host names (completion queues, ARP entries, address vectors, multicast
//! groups, page lists) are backed when they come into use.

use std::collections::BTreeMap;
use std::ops::Range;

use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::segments::{
    BACKING_PAGE_BYTES, PAGES_PER_SEGMENT, PageDescriptor, SEGMENT_BYTES, SegmentData, SegmentEntry,
};
use thiserror::Error;

use crate::address::FpmAddress;
use crate::layout::Layout;

/// The policy for backing objects with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingPolicy {
    /// Objects that only the host names are backed page by page as they come into use.
    Sparse,
    /// Every segment is direct and backed before the first use, as Linux does (but for page lists).
    Whole,
}

/// The backing of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// One contiguous buffer of 2 MiB.
    Direct,
    /// A page of 512 page descriptors.
    Paged,
}

/// Memory that must be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// A zeroed contiguous buffer of 2 MiB, aligned to its size, that a segment descriptor must
    /// name.
    Segment {
        /// Index of the segment.
        segment: u16,
    },
    /// A zeroed page for 512 page descriptors, that a segment descriptor must name.
    PageTable {
        /// Index of the segment.
        segment: u16,
    },
    /// A zeroed page of 4 KiB, that a descriptor in the segment's page table must name.
    Page {
        /// Index of the segment.
        segment: u16,
        /// Index of the descriptor in the segment's table, 0..=511.
        page: u16,
    },
}

impl Missing {
    /// Size of the memory in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Segment { .. } => SEGMENT_BYTES,
            Self::PageTable { .. } | Self::Page { .. } => BACKING_PAGE_BYTES,
        }
    }

    /// Returns the segment table entry that names memory at `address` (I/O virtual), for the
    /// command that updates segments. `None` for a page, whose descriptor the host writes itself.
    #[must_use]
    pub fn segment_entry(self, address: u64) -> Option<SegmentEntry> {
        match self {
            Self::Segment { segment } => Some(SegmentEntry::write(
                segment,
                SegmentData::backed(address, true),
            )),
            Self::PageTable { segment } => Some(SegmentEntry::write(
                segment,
                SegmentData::backed(address, false),
            )),
            Self::Page { .. } => None,
        }
    }

    /// For a page, returns the byte offset in the segment's table and the descriptor that names
    /// memory at `address` (I/O virtual). `None` for the others.
    #[must_use]
    pub fn page_descriptor(self, address: u64) -> Option<(usize, PageDescriptor)> {
        match self {
            Self::Page { page, .. } => {
                let offset_bytes = usize::from(page) * size_of::<PageDescriptor>();
                Some((offset_bytes, PageDescriptor::backed(address)))
            }
            Self::Segment { .. } | Self::PageTable { .. } => None,
        }
    }
}

/// Backing was requested for something that does not exist: a bug of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BackingError {
    /// The object has no such indexes.
    #[error("{} has {count} entries, asked for {first}..{end}", .object.name())]
    OutOfRange {
        /// The object.
        object: ObjectType,
        /// First index asked for.
        first: u32,
        /// End of the indexes asked for.
        end: u32,
        /// The number of them.
        count: u32,
    },
    /// The memory noted is not missing, or does not fit the segment's kind.
    #[error("{0:?} was not missing")]
    NotMissing(Missing),
}

/// The segments and pages that have memory.
#[derive(Clone, Debug)]
pub struct Backing {
    layout: Layout,
    kinds: Vec<SegmentKind>,
    present: BTreeMap<u16, Present>,
}

/// A segment that has a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Present {
    Direct,
    Paged(PageSet),
}

/// The pages of a segment's 512 that have memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PageSet([u64; (PAGES_PER_SEGMENT / u64::BITS) as usize]);

impl PageSet {
    fn contains(&self, page: u16) -> bool {
        let word = self.0.get(usize::from(page) / 64);
        word.is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    /// Adds a page; false if it was there, or if there is no such page.
    fn insert(&mut self, page: u16) -> bool {
        let absent = !self.contains(page);
        match self.0.get_mut(usize::from(page) / 64) {
            Some(word) => {
                *word |= 1 << (page % 64);
                absent
            }
            None => false,
        }
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// True if only the host names indexes of this object, so that unused ones need no memory.
#[must_use]
pub fn may_be_sparse(object: ObjectType) -> bool {
    matches!(
        object,
        ObjectType::CompletionQueue
            | ObjectType::Arp
            | ObjectType::AddressVector
            | ObjectType::MulticastGroup
            | ObjectType::PageBufferList
    )
}

impl Backing {
    /// Makes a record in which nothing has memory.
    #[must_use]
    pub fn new(layout: &Layout, policy: BackingPolicy) -> Self {
        let mut kinds = vec![SegmentKind::Paged; layout.segments() as usize];
        for object in ObjectType::ALL {
            if policy == BackingPolicy::Whole || !may_be_sparse(object) {
                let touched = segments_of(layout, object, 0..layout.count(object));
                for kind in kinds.iter_mut().take(touched.end).skip(touched.start) {
                    *kind = SegmentKind::Direct;
                }
            }
        }
        Self {
            layout: layout.clone(),
            kinds,
            present: BTreeMap::new(),
        }
    }

    /// Number of segments from 0 to the end of the last object, backed or not.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.kinds.len()
    }

    /// Returns the current or planned kind of a segment; `None` for one that holds no object.
    #[must_use]
    pub fn kind(&self, segment: u16) -> Option<SegmentKind> {
        self.kinds.get(usize::from(segment)).copied()
    }

    /// Returns the memory needed before the device may use its objects at all, in the order of
    /// segments.
    ///
    /// This is every direct segment: those that hold an object which the device accesses on its
    /// own, or all segments under [`BackingPolicy::Whole`].
    pub fn missing_at_start(&self) -> impl Iterator<Item = Missing> {
        self.kinds
            .iter()
            .zip(0..=u16::MAX)
            .filter(|(kind, segment)| {
                **kind == SegmentKind::Direct && !self.present.contains_key(segment)
            })
            .map(|(_, segment)| Missing::Segment { segment })
    }

    /// Returns the memory needed before the objects with these indexes are used. Each page table
    /// precedes its pages.
    ///
    /// Errors: [`BackingError::OutOfRange`].
    pub fn missing(
        &self,
        object: ObjectType,
        indexes: Range<u32>,
    ) -> Result<Vec<Missing>, BackingError> {
        let placement = self.layout.placement(object);
        if indexes.start > indexes.end || indexes.end > placement.count {
            let Range { start: first, end } = indexes;
            return Err(BackingError::OutOfRange {
                object,
                first,
                end,
                count: placement.count,
            });
        }
        if indexes.is_empty() {
            return Ok(Vec::new());
        }
        let at = |index: u32| placement.base.0 + u64::from(index) * placement.size_bytes;
        let bytes = at(indexes.start)..at(indexes.end);
        let mut missing = Vec::new();
        for segment in segments_of(&self.layout, object, indexes) {
            // A layout's segments are numbered below 4096.
            self.missing_in_segment(segment as u16, &bytes, &mut missing);
        }
        Ok(missing)
    }

    /// Adds the missing memory of one segment for a range of bytes in function private memory.
    fn missing_in_segment(&self, segment: u16, bytes: &Range<u64>, missing: &mut Vec<Missing>) {
        let present = self.present.get(&segment);
        if self.kind(segment) == Some(SegmentKind::Direct) {
            if present.is_none() {
                missing.push(Missing::Segment { segment });
            }
            return;
        }
        if present.is_none() {
            missing.push(Missing::PageTable { segment });
        }
        let start = u64::from(segment) * SEGMENT_BYTES;
        let first = bytes.start.max(start);
        let last = bytes.end.min(start + SEGMENT_BYTES) - 1;
        let page = |address: u64| FpmAddress(address).location().page as u16;
        for page in page(first)..=page(last) {
            let there = matches!(present, Some(Present::Paged(pages)) if pages.contains(page));
            if !there {
                missing.push(Missing::Page { segment, page });
            }
        }
    }

    /// Records that memory was allocated and the device has its address.
    ///
    /// Errors: [`BackingError::NotMissing`] if the memory was recorded already or does not belong
    /// there; the record stays unchanged.
    pub fn note(&mut self, brought: Missing) -> Result<(), BackingError> {
        let refuse = BackingError::NotMissing(brought);
        let (segment, present) = match brought {
            Missing::Segment { segment } => (segment, Present::Direct),
            Missing::PageTable { segment } => (segment, Present::Paged(PageSet::default())),
            Missing::Page { segment, page } => {
                let added = match self.present.get_mut(&segment) {
                    Some(Present::Paged(pages)) => pages.insert(page),
                    Some(Present::Direct) | None => false,
                };
                return if added { Ok(()) } else { Err(refuse) };
            }
        };
        let kind = match present {
            Present::Direct => SegmentKind::Direct,
            Present::Paged(_) => SegmentKind::Paged,
        };
        if self.kind(segment) != Some(kind) || self.present.contains_key(&segment) {
            return Err(refuse);
        }
        self.present.insert(segment, present);
        Ok(())
    }

    /// Returns the segments that have a descriptor, in ascending order: those that teardown must
    /// clear.
    pub fn present(&self) -> impl Iterator<Item = (u16, SegmentKind)> {
        self.present
            .iter()
            .map(|(&segment, present)| match present {
                Present::Direct => (segment, SegmentKind::Direct),
                Present::Paged(_) => (segment, SegmentKind::Paged),
            })
    }

    /// Returns the entries that clear the descriptors of all present segments. The record is
    /// unchanged: call [`Backing::forget`] once the device has processed them. The device may still
    /// cache page descriptors of a paged segment: invalidate them (register PFHMC_PDINV) before the
    /// segment is used again without a reset between.
    pub fn clearing_entries(&self) -> impl Iterator<Item = SegmentEntry> {
        self.present().map(|(segment, kind)| {
            SegmentEntry::write(segment, SegmentData::cleared(kind == SegmentKind::Direct))
        })
    }

    /// Notes that a segment's descriptor was cleared, with all its pages; false if it had none.
    pub fn forget(&mut self, segment: u16) -> bool {
        self.present.remove(&segment).is_some()
    }

    /// Bytes of memory that are present, page tables included.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.present
            .values()
            .map(|present| match present {
                Present::Direct => SEGMENT_BYTES,
                Present::Paged(pages) => BACKING_PAGE_BYTES * (1 + u64::from(pages.count())),
            })
            .sum()
    }
}

/// The segments that objects with these indexes lie in; empty for no indexes.
fn segments_of(layout: &Layout, object: ObjectType, indexes: Range<u32>) -> Range<usize> {
    if indexes.is_empty() {
        return 0..0;
    }
    let placement = layout.placement(object);
    let at = |index: u32| placement.base.0 + u64::from(index) * placement.size_bytes;
    // Below 2^13, since a layout ends within 4096 segments.
    let first = at(indexes.start) / SEGMENT_BYTES;
    let last = (at(indexes.end) - 1) / SEGMENT_BYTES;
    first as usize..last as usize + 1
}

#[cfg(test)]
mod tests;
