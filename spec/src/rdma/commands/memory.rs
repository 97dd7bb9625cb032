//! Steering tags: memory regions and memory windows.

use super::PageList;
use crate::rdma::layout::codes;

codes! {
    /// Size of the pages of a memory region.
    /// Source: irdma `defs.h`, IRDMA_CQPSQ_STAG_HPAGESIZE; `type.h`, IRDMA_PAGE_SIZE_*.
    pub enum PageSize: u8 {
        /// 4 KiB.
        FourKib = 0,
        /// 2 MiB.
        TwoMib = 1,
        /// 1 GiB.
        OneGib = 2,
    }
}

impl PageSize {
    /// Bytes of a page; `None` for an unknown code.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::FourKib => Some(4096),
            Self::TwoMib => Some(2 << 20),
            Self::OneGib => Some(1 << 30),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the code for pages of `bytes` bytes; `None` if the device does not support them.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            4096 => Some(Self::FourKib),
            0x20_0000 => Some(Self::TwoMib),
            0x4000_0000 => Some(Self::OneGib),
            _ => None,
        }
    }
}

crate::words! {
    /// Access rights of a memory region.
    /// Source: irdma `defs.h`, IRDMA_ACCESS_FLAGS_*.
    pub struct AccessRights: u8 {
        /// gather from it
        local_read: [0],
        /// scatter into it
        local_write: [1],
        /// peers may read it
        remote_read: [2],
        /// peers may write it
        remote_write: [3],
        /// memory windows may be bound to it
        bind_window: [4],
    }

    /// A steering tag (STag, local or remote key) as work queue elements and packets carry it.
    /// Source: irdma `defs.h`, IRDMA_CQPSQ_STAG_KEY, IRDMA_CQPSQ_STAG_IDX.
    pub struct SteeringTag: u32 {
        /// the consumer's part, checked on use
        key: [7:0],
        /// names the entry; its low bits select the table entry, all 24 are checked
        index: [31:8],
    }
}

impl crate::rdma::layout::FieldValue for AccessRights {
    const BITS: u32 = 8;
    const ZERO: Self = Self::ZERO;
    fn to_field(self) -> u128 {
        u128::from(self.0)
    }
    fn from_field(bits: u128) -> Self {
        Self(<u8 as crate::rdma::layout::FieldValue>::from_field(bits))
    }
}

commands! {
    /// Reserves a steering tag for a fast-registered memory region or for a memory window.
    /// Source: irdma `ctrl.c`, `irdma_sc_alloc_stag`, `irdma_sc_mw_alloc`.
    pub struct AllocateStag {
        /// Bytes that the region may have.
        length_bytes: u64 = 1[45:0],
        /// Protection domain, 18 bits.
        protection_domain: u32 = 1[63:46],
        /// Index part of the steering tag, 24 bits.
        stag_index: u32 = 2[31:8],
        /// Function index of the host memory cache; valid with `use_hmc_function_index`.
        hmc_function_index: u8 = 5[5:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// Memory window of type 1 (else type 2).
        type_1: bool = 3[42],
        /// A memory region; else a memory window.
        is_memory_region: bool = 3[43],
        /// The form of the page list to come.
        pble_levels_code: PageList = 3[45:44],
        /// Size of the pages.
        page_size: PageSize = 3[47:46],
        /// Access rights.
        access_rights: AccessRights = 3[52:48],
        /// Peers may have access. Drivers leave it clear for windows: irdma `ctrl.c`,
        /// `irdma_sc_mw_alloc`.
        remote_access: bool = 3[53],
        /// Memory window of type 1: bind without checking the key. Drivers leave it clear, and
        /// raise the key with each bind: rdma-core `uverbs.c`, `irdma_ubind_mw`.
        bind_without_key_check: bool = 3[58],
        /// Use `hmc_function_index`.
        use_hmc_function_index: bool = 3[60],
        /// Use the physical function's requester id.
        use_pf_requester_id: bool = 3[61],
    }

    /// Registers a memory region.
    /// Source: irdma `ctrl.c`, `irdma_sc_mr_reg_non_shared`.
    pub struct RegisterMemoryRegion {
        /// Virtual address of the first byte; with zero-based offsets, the first byte's offset in
        /// its page.
        virtual_address: u64 = 0[63:0],
        /// Bytes; 0 means all of memory.
        length_bytes: u64 = 1[45:0],
        /// Protection domain, 18 bits.
        protection_domain: u32 = 1[63:46],
        /// Key part of the steering tag.
        stag_key: u8 = 2[7:0],
        /// Index part of the steering tag, 24 bits.
        stag_index: u32 = 2[31:8],
        /// I/O virtual address of the block, with [`PageList::Contiguous`].
        first_block_address: u64 = 4[63:0],
        /// Function index of the host memory cache; valid with `use_hmc_function_index`.
        hmc_function_index: u8 = 5[5:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// A memory region; always set here.
        is_memory_region: bool = 3[43],
        /// The form of the page list.
        pble_levels_code: PageList = 3[45:44],
        /// Size of the pages.
        page_size: PageSize = 3[47:46],
        /// Access rights.
        access_rights: AccessRights = 3[52:48],
        /// Peers have access.
        remote_access: bool = 3[53],
        /// Tagged offsets are virtual addresses; else they start at 0.
        va_based: bool = 3[59],
        /// Use `hmc_function_index`.
        use_hmc_function_index: bool = 3[60],
        /// Use the physical function's requester id.
        use_pf_requester_id: bool = 3[61],
    }

    /// Releases a steering tag.
    /// Source: irdma `ctrl.c`, `irdma_sc_dealloc_stag`.
    pub struct DeallocateStag {
        /// Protection domain, 18 bits.
        protection_domain: u32 = 1[63:46],
        /// Index part of the steering tag, 24 bits.
        stag_index: u32 = 2[31:8],
        /// A memory region; else a memory window.
        is_memory_region: bool = 3[43],
    }

    /// Queries if a steering tag is valid.
    /// Source: irdma `defs.h`, IRDMA_CQP_OP_QUERY_STAG, IRDMA_CQPSQ_QUERYSTAG_IDX.
    pub struct QueryStag {
        /// Index part of the steering tag, 24 bits.
        stag_index: u32 = 2[31:8],
    }
}
