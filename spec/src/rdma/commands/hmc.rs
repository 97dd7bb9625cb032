//! Host memory cache: function private memory, segments, function table.

use crate::rdma::segments::SegmentEntry;

commands! {
    /// Asks for the maxima of the function private memory, see [`crate::rdma::fpm::FpmQuery`].
    /// Source: irdma `ctrl.c`, `irdma_sc_query_fpm_val`.
    pub struct QueryFpm {
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 2[5:0],
        /// I/O virtual address of the buffer of 176 bytes, 4-byte aligned.
        buffer_address: u64 = 4[63:0],
    }

    /// Sets the counts of the function private memory, see [`crate::rdma::fpm::FpmCommit`]. The
    /// device overwrites the buffer with what it granted.
    /// Source: irdma `ctrl.c`, `irdma_sc_commit_fpm_val`.
    pub struct CommitFpm {
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 2[5:0],
        /// Bytes of the buffer: 176.
        buffer_length: u32 = 3[31:0],
        /// I/O virtual address of the buffer, 4-byte aligned.
        buffer_address: u64 = 4[63:0],
    }

    /// Writes segment descriptors: up to three here, further ones in a list in memory.
    ///
    /// [`Self::from_entries`] fills it.
    /// Source: irdma `ctrl.c`, `cqp_sds_wqe_fill`.
    pub struct UpdateSegments {
        /// Command of the first entry, see [`crate::rdma::segments::SegmentCommand`].
        first_command: u32 = 0[31:0],
        /// Data of the first entry, see [`crate::rdma::segments::SegmentData`].
        first_data: u64 = 1[63:0],
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 2[5:0],
        /// I/O virtual address of the list in units of 64 bytes; the list is 128-byte aligned.
        list_address_by_64: u64 = 2[63:6],
        /// Entries in the list, 0..=8.
        list_entries: u8 = 3[3:0],
        /// Do not use the entry in word 0; never set by drivers.
        skip_entry: bool = 3[7],
        /// Command of the second entry.
        second_command: u32 = 4[31:0],
        /// The second entry is there.
        second_valid: bool = 4[63],
        /// Data of the second entry.
        second_data: u64 = 5[63:0],
        /// Command of the third entry.
        third_command: u32 = 6[31:0],
        /// The third entry is there.
        third_valid: bool = 6[63],
        /// Data of the third entry.
        third_data: u64 = 7[63:0],
    }

    /// Tells the device that all static objects have memory.
    /// Source: irdma `ctrl.c`, `irdma_sc_static_hmc_pages_allocated`.
    pub struct StaticHmcPagesAllocated {
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 2[5:0],
    }

    /// Gives a VF a function index of the host memory cache, which is returned.
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_hmc_pm_func_table`.
    pub struct ManageHmcFunctionTable {
        /// Index of the VF.
        vf_index: u16 = 3[15:0],
        /// Take the function index back.
        free: bool = 3[62],
    }
}

impl UpdateSegments {
    /// Entries that the command itself holds.
    pub const INLINE_ENTRIES: usize = 3;
    /// Entries that the list in memory holds (128 bytes).
    pub const LISTED_ENTRIES: usize = 8;
    /// Entries that one command can write.
    pub const MAX_ENTRIES: usize = Self::INLINE_ENTRIES + Self::LISTED_ENTRIES;
    /// Bytes of the list in memory, and its alignment.
    pub const LIST_BYTES: usize = 128;

    /// Returns the command that writes `entries`, and the entries for the list at `list_address`
    /// (I/O virtual address, 128-byte aligned, one for each slot of the ring).
    ///
    /// The command carries the list address only if the list is used. `None` if there are no
    /// entries or more than [`Self::MAX_ENTRIES`].
    #[must_use]
    pub fn from_entries(
        hmc_function_index: u8,
        entries: &[SegmentEntry],
        list_address: u64,
    ) -> Option<(Self, &[SegmentEntry])> {
        let (first, rest) = entries.split_first()?;
        let listed = entries.get(Self::INLINE_ENTRIES..).unwrap_or(&[]);
        if listed.len() > Self::LISTED_ENTRIES {
            return None;
        }
        let second = rest.first();
        let third = rest.get(1);
        let command = Self {
            first_command: first.command.low(),
            first_data: first.data.0,
            hmc_function_index,
            list_address_by_64: if listed.is_empty() {
                0
            } else {
                list_address / 64
            },
            list_entries: u8::try_from(listed.len()).ok()?,
            skip_entry: false,
            second_command: second.map_or(0, |entry| entry.command.low()),
            second_valid: second.is_some(),
            second_data: second.map_or(0, |entry| entry.data.0),
            third_command: third.map_or(0, |entry| entry.command.low()),
            third_valid: third.is_some(),
            third_data: third.map_or(0, |entry| entry.data.0),
        };
        Some((command, listed))
    }

    /// The entries that the command itself holds, in order.
    pub fn inline_entries(&self) -> impl Iterator<Item = SegmentEntry> {
        [
            (!self.skip_entry, self.first_command, self.first_data),
            (self.second_valid, self.second_command, self.second_data),
            (self.third_valid, self.third_command, self.third_data),
        ]
        .into_iter()
        .filter(|(present, ..)| *present)
        .map(|(_, command, data)| SegmentEntry::from_words([u64::from(command), data]))
    }

    /// I/O virtual address of the list.
    #[must_use]
    pub const fn list_address(&self) -> u64 {
        self.list_address_by_64 * 64
    }
}
