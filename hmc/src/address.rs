//! Addresses in function private memory (FPM): the flat space that holds all objects of a function.

use std::fmt;

/// Bytes that one segment descriptor covers.
pub const SEGMENT_BYTES: u64 = 2 << 20;

/// Bytes that one page descriptor of a paged segment covers.
pub const PAGE_BYTES: u64 = 4 << 10;

/// Pages of a segment.
pub const PAGES_PER_SEGMENT: u16 = 512;

/// A byte address in function private memory, counted from 0 for each function.
///
/// The device never puts it on the bus: segment and page descriptors turn it into an I/O virtual
/// address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FpmAddress(pub u64);

/// An FPM address, taken apart as the device does to translate it.
///
/// Source: irdma `hmc.h`, IRDMA_HMC_DIRECT_BP_SIZE, IRDMA_HMC_PAGED_BP_SIZE; e810-rdma reference
/// 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Index of the segment.
    pub segment: u32,
    /// Page within the segment, 0..=511.
    pub page: u16,
    /// Byte within the page, 0..=4095.
    pub offset_bytes: u16,
}

impl Location {
    /// Byte within the segment, for a segment that is one piece of memory.
    #[must_use]
    pub fn offset_in_segment_bytes(self) -> usize {
        usize::from(self.page) * PAGE_BYTES as usize + usize::from(self.offset_bytes)
    }
}

impl FpmAddress {
    /// Segment, page and offset. Addresses past the last segment that has a 32-bit index, which no
    /// validated layout holds, count as lying in that segment.
    #[must_use]
    pub fn location(self) -> Location {
        let in_segment = self.0 % SEGMENT_BYTES;
        Location {
            segment: u32::try_from(self.0 / SEGMENT_BYTES).unwrap_or(u32::MAX),
            page: (in_segment / PAGE_BYTES) as u16,
            offset_bytes: (in_segment % PAGE_BYTES) as u16,
        }
    }

    /// The first address of a segment.
    #[must_use]
    pub fn of_segment(segment: u32) -> Self {
        Self(u64::from(segment) * SEGMENT_BYTES)
    }
}

impl fmt::Debug for FpmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for FpmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_segment_page_and_offset() {
        let address = FpmAddress(3 * SEGMENT_BYTES + 5 * PAGE_BYTES + 7);
        let location = address.location();
        assert_eq!(
            location,
            Location {
                segment: 3,
                page: 5,
                offset_bytes: 7
            }
        );
        assert_eq!(location.offset_in_segment_bytes(), 5 * 4096 + 7);
        assert_eq!(FpmAddress::of_segment(3).location().segment, 3);
        let last = FpmAddress(SEGMENT_BYTES - 1).location();
        assert_eq!(
            last,
            Location {
                segment: 0,
                page: 511,
                offset_bytes: 4095
            }
        );
        assert_eq!(FpmAddress(u64::MAX).location().page, 511);
    }
}
