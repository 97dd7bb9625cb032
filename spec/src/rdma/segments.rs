//! Segment descriptors and page descriptors of the host memory cache, and page buffer lists.
//!
//! Function private memory (FPM) is a flat space from 0 on. Segment i covers the 2 MiB from
//! i · 2 MiB on: direct, one contiguous buffer; or paged, a page with 512 page descriptors.

use crate::words;

/// Bytes that a segment covers.
pub const SEGMENT_BYTES: u64 = 2 << 20;
/// Bytes of a backing page of a paged segment.
pub const BACKING_PAGE_BYTES: u64 = 4096;
/// Page descriptors of a segment.
pub const PAGES_PER_SEGMENT: u32 = 512;

words! {
    /// The segment to write. In the register 32 bits; in lists 64, the upper half 0.
    /// Source: irdma `hmc.c`, `irdma_set_sd_entry`; DPDK PFHMC_SDCMD.
    pub struct SegmentCommand: u64 {
        /// index of the segment
        segment_index: [11:0],
        /// partition of the RDMA engine
        rdma_partition: [15],
        /// write, not read
        write: [31],
    }

    /// The new content of a segment descriptor.
    /// Source: irdma `hmc.c`, `irdma_set_sd_entry`, `irdma_clr_sd_entry`; DPDK PFHMC_SDDATALOW.
    pub struct SegmentData: u64 {
        /// the segment is backed
        valid: [0],
        /// one contiguous buffer of 2 MiB; else a page of page descriptors
        direct: [1],
        /// backing pages, always 512
        page_count: [11:2],
        /// I/O virtual address in units of 4 KiB
        address_by_4096: [63:12],
    }

    /// A backing page of a paged segment.
    /// Source: irdma `hmc.c`, `irdma_add_pd_table_entry`.
    pub struct PageDescriptor: u64 {
        /// the page is there
        valid: [0],
        /// I/O virtual address in units of 4 KiB
        address_by_4096: [63:12],
    }
}

impl SegmentCommand {
    /// The 32 bits that the register, and a command itself, can carry.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }
}

impl SegmentData {
    /// Backs a segment with the memory at `address` (I/O virtual, 4 KiB aligned; 2 MiB if `direct`
    /// is set, which means a contiguous buffer).
    #[must_use]
    pub const fn backed(address: u64, direct: bool) -> Self {
        Self(address & Self::ADDRESS_BY_4096_MASK)
            .with_valid(true)
            .with_direct(direct)
            .with_page_count(PAGES_PER_SEGMENT as u64)
    }

    /// Takes the backing away.
    #[must_use]
    pub const fn cleared(direct: bool) -> Self {
        Self::ZERO
            .with_direct(direct)
            .with_page_count(PAGES_PER_SEGMENT as u64)
    }

    /// I/O virtual address of the buffer or of the page of descriptors.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & Self::ADDRESS_BY_4096_MASK
    }
}

impl PageDescriptor {
    /// A page at `address` (I/O virtual, 4 KiB aligned).
    #[must_use]
    pub const fn backed(address: u64) -> Self {
        Self(address & Self::ADDRESS_BY_4096_MASK).with_valid(true)
    }

    /// I/O virtual address of the page.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & Self::ADDRESS_BY_4096_MASK
    }
}

/// An entry of a command that updates segments: 16 bytes in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentEntry {
    /// The segment.
    pub command: SegmentCommand,
    /// The new content.
    pub data: SegmentData,
}

impl SegmentEntry {
    /// Writes `data` to a segment (0..=4095).
    #[must_use]
    pub const fn write(segment_index: u16, data: SegmentData) -> Self {
        let command = SegmentCommand::ZERO
            .with_segment_index(segment_index as u64)
            .with_rdma_partition(true)
            .with_write(true);
        Self { command, data }
    }

    /// The two words in the list.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        [self.command.0, self.data.0]
    }

    /// An entry from the two words in the list.
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            command: SegmentCommand(words[0]),
            data: SegmentData(words[1]),
        }
    }

    /// The bits that are set although they have no meaning.
    #[must_use]
    pub const fn reserved_bits(self) -> [u64; 2] {
        [
            self.command.0 & SegmentCommand::RESERVED,
            self.data.0 & SegmentData::RESERVED,
        ]
    }
}

/// An address in function private memory, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FpmLocation {
    /// Index of the segment.
    pub segment: u64,
    /// Index of the page in the segment, 0..=511.
    pub page: u32,
    /// Byte in the page.
    pub page_offset: u32,
}

impl FpmLocation {
    /// Takes an address apart.
    #[must_use]
    pub const fn of(address: u64) -> Self {
        Self {
            segment: address / SEGMENT_BYTES,
            page: (address % SEGMENT_BYTES / BACKING_PAGE_BYTES) as u32,
            page_offset: (address % BACKING_PAGE_BYTES) as u32,
        }
    }

    /// Byte in the segment.
    #[must_use]
    pub const fn segment_offset(self) -> u64 {
        self.page as u64 * BACKING_PAGE_BYTES + self.page_offset as u64
    }
}

/// Bytes of a page buffer list entry: the I/O virtual address of a page, or in the root of a list
/// of two levels the index of a leaf. The host writes them into the backing memory itself.
pub const PBLE_BYTES: u64 = 8;
/// Entries that are allocated together.
pub const PBLE_UNIT: u32 = 8;
/// Entries of a leaf of a list of two levels.
pub const PBLES_PER_LEAF: u32 = 512;

#[cfg(test)]
mod tests;
