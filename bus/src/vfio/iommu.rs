//! The ranges that the IOMMU accepts, and the used part of them.

use crate::function::DmaLimits;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of struct vfio_iommu_type1_info without capabilities.
pub(super) const INFO_BYTES: usize = 24;

/// Mappings that the kernel allows when it does not say. Source: module parameter
/// `vfio_iommu_type1.dma_entry_limit`, default U16_MAX.
const MAPPINGS_DEFAULT: usize = 65_535;

/// VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE
const CAPABILITY_RANGES: u16 = 1;
/// VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL
const CAPABILITY_AVAILABLE: u16 = 3;

ringside_spec::words! {
    /// Source: `linux/vfio.h`, struct vfio_iommu_type1_info, flags.
    pub(super) struct InfoFlags: u32 {
        /// page sizes are given
        page_sizes: [0],
        /// capabilities follow
        capabilities: [1],
    }
}

/// The length of the whole answer, from its first bytes.
pub(super) fn whole_length(bytes: &[u8]) -> Option<usize> {
    u32_at(bytes, 0).map(|length| length as usize)
}

/// Reads struct vfio_iommu_type1_info and its capabilities.
///
/// Kernels before 5.4 report no ranges: the default is 39 bits without the window of
/// message-signalled interrupts, which every x86 IOMMU accepts. Malformed data counts as not
/// reported.
pub(super) fn limits(bytes: &[u8]) -> DmaLimits {
    let flags = InfoFlags(u32_at(bytes, 4).unwrap_or(0));
    let sizes = u64_at(bytes, 8).filter(|_| flags.page_sizes()).unwrap_or(0);
    let mut found = DmaLimits {
        iova_ranges: Vec::new(),
        mappings: MAPPINGS_DEFAULT,
        page_bytes: match sizes {
            0 => 4096,
            sizes => (1 << sizes.trailing_zeros()).max(4096),
        },
    };
    let mut at = match flags.capabilities() {
        true => u32_at(bytes, 16).unwrap_or(0) as usize,
        false => 0,
    };
    let mut before = INFO_BYTES - 1;
    // each capability lies after the previous one: a loop would not end
    while at > before {
        before = at;
        let Some(header) = u32_at(bytes, at) else {
            break;
        };
        match header as u16 {
            CAPABILITY_RANGES => found.iova_ranges = ranges(bytes, at),
            CAPABILITY_AVAILABLE => {
                let available = u32_at(bytes, at + 8).map(|count| count as usize);
                found.mappings = available.unwrap_or(MAPPINGS_DEFAULT);
            }
            _ => {}
        }
        at = u32_at(bytes, at + 4).unwrap_or(0) as usize;
    }
    found.iova_ranges = merged(found.iova_ranges);
    if found.iova_ranges.is_empty() {
        found.iova_ranges = vec![0..0xFEE0_0000, 0xFEF0_0000..1 << 39];
    }
    found
}

/// The limits of iommufd: ranges with inclusive ends, the smallest page, and no limit to the number
/// of mappings.
pub(super) fn limits_of(ranges: &[[u64; 2]], alignment: u64) -> DmaLimits {
    let ranges = ranges.iter().filter(|[first, last]| first <= last);
    let ranges = ranges.map(|[first, last]| *first..last.saturating_add(1));
    DmaLimits {
        iova_ranges: merged(ranges.collect()),
        mappings: usize::MAX,
        page_bytes: match alignment {
            0 => 4096,
            bytes => bytes.next_power_of_two().max(4096),
        },
    }
}

/// struct vfio_iommu_type1_info_cap_iova_range; ends are inclusive there and exclusive here.
fn ranges(bytes: &[u8], at: usize) -> Vec<Range<u64>> {
    let count = u32_at(bytes, at + 8).unwrap_or(0) as usize;
    let places = (0..count).map(|index| at + 16 + index * 16);
    let read = places.map_while(|place| Some((u64_at(bytes, place)?, u64_at(bytes, place + 8)?)));
    read.filter(|(first, last)| first <= last)
        .map(|(first, last)| first..last.saturating_add(1))
        .collect()
}

/// Returns the ranges sorted and merged.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut made: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match made.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => made.push(range),
        }
    }
    made
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(eight.try_into().ok()?))
}

/// The current mappings. The kernel counts them too, but its refusal carries no details.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
    warned: bool,
}

/// Reasons why a mapping is not requested from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotMappable {
    #[error("address and length must be multiples of {page_bytes}; this is a bug of the caller")]
    Unaligned { page_bytes: u64 },
    #[error("the IOMMU accepts only {accepted}")]
    Outside { accepted: String },
    #[error("{0:#x}..{1:#x} is mapped already; this is a bug of the caller")]
    Overlap(u64, u64),
    #[error(
        "the kernel allows {0} mappings and all are in use; use larger pages, or raise \
         /sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
    )]
    TooMany(usize),
}

impl Mapped {
    /// True if a request for `length` bytes at `iova` is possible.
    pub(super) fn check(
        &self,
        iova: u64,
        length: u64,
        limits: &DmaLimits,
    ) -> Result<(), NotMappable> {
        let page_bytes = limits.page_bytes;
        let end = iova.checked_add(length).filter(|end| *end > iova);
        let aligned = iova.is_multiple_of(page_bytes) && length.is_multiple_of(page_bytes);
        let Some(end) = end.filter(|_| aligned) else {
            return Err(NotMappable::Unaligned { page_bytes });
        };
        let holds = |range: &Range<u64>| range.start <= iova && end <= range.end;
        if !limits.iova_ranges.iter().any(holds) {
            let list = limits.iova_ranges.iter();
            let list: Vec<_> = list
                .map(|range| format!("{:#x}..{:#x}", range.start, range.end))
                .collect();
            let accepted = list.join(", ");
            return Err(NotMappable::Outside { accepted });
        }
        if let Some((&at, &until)) = self.ranges.range(..end).next_back()
            && until > iova
        {
            return Err(NotMappable::Overlap(at, until));
        }
        if self.ranges.len() >= limits.mappings {
            return Err(NotMappable::TooMany(limits.mappings));
        }
        Ok(())
    }

    /// Notes a new mapping. Returns true once: when nine tenths of the limit are in use.
    pub(super) fn add(&mut self, iova: u64, length: u64, limits: &DmaLimits) -> bool {
        self.ranges.insert(iova, iova.saturating_add(length));
        let close = self.ranges.len() >= limits.mappings - limits.mappings / 10;
        let first = close && !self.warned;
        self.warned |= close;
        first
    }

    /// Notes the end of a mapping.
    pub(super) fn remove(&mut self, iova: u64) {
        self.ranges.remove(&iova);
    }

    /// The number of mappings.
    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes of all mappings.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests;
