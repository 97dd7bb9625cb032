//! The host memory cache: segments that the host backs, and the objects that the device keeps
//! there.
//!
//! The model keeps its queue pair contexts, completion queue contexts and memory region entries in
//! the host's memory, in a format of its own. So it detects memory that a driver did not back, or
//! backed wrongly, as a card would.

mod capacity;
mod layout;

pub(super) use capacity::capacity;
pub(super) use layout::lay_out;

use ringside_bus::{DmaFault, DmaSpace, Iova};
use ringside_spec::rdma::fpm::{FpmCommit, FpmQuery, ObjectType};
use ringside_spec::rdma::segments::{
    FpmLocation, PAGES_PER_SEGMENT, PBLE_BYTES, PageDescriptor, SEGMENT_BYTES, SegmentData,
};

/// The reason why an object cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HmcFault {
    #[error("function private memory was never committed")]
    NotCommitted,
    #[error("{} {index} is beyond the {count} that were committed", .object.name())]
    OutOfRange {
        object: ObjectType,
        index: u64,
        count: u32,
    },
    #[error("segment {segment} is not backed")]
    NoSegment { segment: u64 },
    #[error("page {page} of segment {segment} is not backed")]
    NoPage { segment: u64, page: u32 },
    #[error("{} {index} is no longer in the memory that it was kept in", .object.name())]
    Lost { object: ObjectType, index: u32 },
    #[error("page list entry {entry:#x} is no page of {page_bytes} bytes")]
    NoPageOfList { entry: u64, page_bytes: u64 },
    #[error("backing memory: {0}")]
    Memory(#[from] DmaFault),
}

impl HmcFault {
    /// The host refused the access, though memory is mapped.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Memory(DmaFault::Refused { .. }))
    }
}

struct Segment {
    data: SegmentData,
    /// Page descriptors that the device has read, until they are invalidated.
    pages: Option<Box<[PageDescriptor; PAGES_PER_SEGMENT as usize]>>,
}

/// Sizes and places of the objects, and the segments behind them.
pub(super) struct Hmc {
    segments: Vec<Segment>,
    first_segment: u16,
    grant: Option<FpmCommit>,
    generation: u64,
    pub(super) static_pages_allocated: bool,
}

impl Hmc {
    /// Those of a function whose first segment has this number.
    pub(super) fn new(first_segment: u16) -> Self {
        let segment = || Segment {
            data: SegmentData::ZERO,
            pages: None,
        };
        let end = first_segment.saturating_add(capacity().max_segments);
        Self {
            segments: (0..end).map(|_| segment()).collect(),
            first_segment,
            grant: None,
            generation: 1,
            static_pages_allocated: false,
        }
    }

    /// The function's limits, as QUERY_FPM reports them.
    pub(super) fn limits(&self) -> FpmQuery {
        FpmQuery {
            first_segment: self.first_segment,
            ..*capacity()
        }
    }

    pub(super) const fn first_segment(&self) -> u16 {
        self.first_segment
    }

    /// Changes whenever an object's memory may have moved.
    #[inline(always)]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Segments that are backed.
    pub(super) fn backed(&self) -> impl Iterator<Item = u16> + '_ {
        let numbered = (0u16..).zip(&self.segments);
        numbered
            .filter(|(_, segment)| segment.data.valid())
            .map(|(index, _)| index)
    }

    /// Writes a segment descriptor; false if there is no such segment.
    pub(super) fn set_segment(&mut self, index: u64, data: SegmentData) -> bool {
        let own = index >= self.first_segment.into();
        let found = usize::try_from(index)
            .ok()
            .and_then(|index| self.segments.get_mut(index));
        let Some(segment) = found.filter(|_| own) else {
            return false;
        };
        *segment = Segment { data, pages: None };
        self.generation += 1;
        true
    }

    pub(super) fn segment(&self, index: u64) -> Option<SegmentData> {
        let segment = self.segments.get(usize::try_from(index).ok()?)?;
        segment.data.valid().then_some(segment.data)
    }

    /// Forgets a page descriptor (PFHMC_PDINV).
    pub(super) fn invalidate_page(&mut self, segment: u32, page: u32) {
        let found = self.segments.get_mut(segment as usize);
        let pages = found.and_then(|segment| segment.pages.as_mut());
        if let Some(page) = pages.and_then(|pages| pages.get_mut(page as usize)) {
            *page = PageDescriptor::ZERO;
        }
        self.generation += 1;
    }

    pub(super) fn commit(&mut self, grant: FpmCommit) {
        self.grant = Some(grant);
        self.static_pages_allocated = false;
        self.generation += 1;
    }

    /// The granted number of an object; 0 before a commit.
    #[inline]
    pub(super) fn count(&self, object: ObjectType) -> u32 {
        self.grant.as_ref().map_or(0, |grant| grant.0[object].count)
    }

    /// Segments that an object lies in, for any index range of it.
    pub(super) fn object_segments(
        &self,
        object: ObjectType,
    ) -> Option<std::ops::RangeInclusive<u64>> {
        let grant = self.grant.as_ref()?.0[object];
        let bytes = u64::from(grant.count) * capacity().objects[object].size_bytes;
        let last = (grant.base() + bytes).checked_sub(1)?;
        (bytes > 0).then_some(grant.base() / SEGMENT_BYTES..=last / SEGMENT_BYTES)
    }

    /// The place of object `index` in function private memory.
    #[inline]
    fn place(&self, object: ObjectType, index: u64) -> Result<u64, HmcFault> {
        let grant = self.grant.as_ref().ok_or(HmcFault::NotCommitted)?.0[object];
        if index >= u64::from(grant.count) {
            return Err(HmcFault::OutOfRange {
                object,
                index,
                count: grant.count,
            });
        }
        let size = match object {
            ObjectType::PageBufferList => PBLE_BYTES,
            other => capacity().objects[other].size_bytes,
        };
        Ok(grant.base() + index * size)
    }

    /// Walks from function private memory to the host's memory.
    fn walk(&mut self, address: u64, memory: &DmaSpace) -> Result<Iova, HmcFault> {
        let at = FpmLocation::of(address);
        let missing = HmcFault::NoSegment {
            segment: at.segment,
        };
        let found = usize::try_from(at.segment)
            .ok()
            .and_then(|index| self.segments.get_mut(index));
        let segment = found
            .filter(|segment| segment.data.valid())
            .ok_or(missing)?;
        if segment.data.direct() {
            return Ok(Iova(segment.data.address()).add(at.segment_offset()));
        }
        let pages = segment
            .pages
            .get_or_insert_with(|| Box::new([PageDescriptor::ZERO; PAGES_PER_SEGMENT as usize]));
        let no_page = HmcFault::NoPage {
            segment: at.segment,
            page: at.page,
        };
        let page = pages.get_mut(at.page as usize).ok_or(no_page)?;
        if !page.valid() {
            let entry = Iova(segment.data.address()).add(u64::from(at.page) * 8);
            let [word] = memory.read_words(entry)?;
            *page = PageDescriptor(word);
        }
        if page.valid() {
            Ok(Iova(page.address()).add(u64::from(at.page_offset)))
        } else {
            Err(no_page)
        }
    }

    /// The place of object `index` in the host's memory. Objects never cross a page.
    pub(super) fn locate(
        &mut self,
        object: ObjectType,
        index: u64,
        memory: &DmaSpace,
    ) -> Result<Iova, HmcFault> {
        let address = self.place(object, index)?;
        self.walk(address, memory)
    }

    /// Keeps words in an object.
    pub(super) fn keep(
        &mut self,
        object: ObjectType,
        index: u32,
        words: &[u64],
        memory: &DmaSpace,
    ) -> Result<(), HmcFault> {
        let at = self.locate(object, index.into(), memory)?;
        Ok(memory.write_words(at, words)?)
    }

    /// Reads the words of an object back.
    pub(super) fn recall<const N: usize>(
        &mut self,
        object: ObjectType,
        index: u32,
        memory: &DmaSpace,
    ) -> Result<[u64; N], HmcFault> {
        let at = self.locate(object, index.into(), memory)?;
        Ok(memory.read_words(at)?)
    }

    /// One page buffer list entry, for inspection: the device does not cache a page descriptor.
    pub(super) fn peek_page_list_entry(&self, index: u64, memory: &DmaSpace) -> Option<u64> {
        let at = FpmLocation::of(self.place(ObjectType::PageBufferList, index).ok()?);
        let segment = self.segment(at.segment)?;
        let entry = if segment.direct() {
            Iova(segment.address()).add(at.segment_offset())
        } else {
            let listed = Iova(segment.address()).add(u64::from(at.page) * 8);
            let [word] = memory.read_words(listed).ok()?;
            let page = PageDescriptor(word);
            page.valid()
                .then(|| Iova(page.address()).add(u64::from(at.page_offset)))?
        };
        memory.read_words(entry).ok().map(|[word]| word)
    }

    /// The page of `page_bytes`, a power of two, that a page buffer list entry names.
    /// Source: irdma `verbs.c`, `irdma_copy_user_pgaddrs` and `irdma_set_page`.
    pub(super) fn listed_page(
        &mut self,
        index: u64,
        page_bytes: u64,
        memory: &DmaSpace,
    ) -> Result<u64, HmcFault> {
        let entry = self.page_list_entry(index, memory)?;
        if entry & page_bytes.wrapping_sub(1) != 0 {
            return Err(HmcFault::NoPageOfList { entry, page_bytes });
        }
        Ok(entry)
    }

    /// Reads one page buffer list entry.
    pub(super) fn page_list_entry(
        &mut self,
        index: u64,
        memory: &DmaSpace,
    ) -> Result<u64, HmcFault> {
        let at = self.locate(ObjectType::PageBufferList, index, memory)?;
        let [word] = memory.read_words(at)?;
        Ok(word)
    }
}

#[cfg(test)]
mod tests;
