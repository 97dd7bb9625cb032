//! Registers of the RDMA engine in BAR 0, as byte offsets, and their words.
//!
//! Sources: irdma `icrdma_hw.c`/`icrdma_hw.h` (registers that a driver uses) and DPDK
//! `ice_hw_autogen.h` (the same offsets, fields, and the registers that drivers leave alone).

use crate::words;

/// PFPE_CQPDB: doorbell of the control queue pair, see [`CqpDoorbell`].
pub const CQP_DOORBELL: u64 = 0x50_0800;
/// PFPE_CQPTAIL: tail of the control queue pair, see [`CqpTail`].
pub const CQP_TAIL: u64 = 0x50_0880;
/// PFPE_CCQPSTATUS: state of the control queue pair, see [`CqpStatus`].
pub const CQP_STATUS: u64 = 0x50_A000;
/// PFPE_CCQPLOW: low half of the CQP context's address. Written second: starts creation, or
/// destruction when both halves are 0.
pub const CQP_CONTEXT_LOW: u64 = 0x50_A080;
/// PFPE_CCQPHIGH: high half of the CQP context's address. Written first.
pub const CQP_CONTEXT_HIGH: u64 = 0x50_A100;
/// PFPE_CQPERRCODES: error of the last failed command, see [`CqpErrorCodes`].
pub const CQP_ERROR_CODES: u64 = 0x50_A200;
/// PFPE_CQARM: number of the completion queue to arm, see [`CompletionQueueNumber`].
pub const CQ_ARM: u64 = 0x50_2C00;
/// PFPE_CQACK: number of the completion queue whose event was taken.
pub const CQ_ACKNOWLEDGE: u64 = 0x50_2C80;
/// PFPE_AEQALLOC: number of asynchronous events just taken, 32 bits.
pub const AEQ_ALLOCATE: u64 = 0x50_2D00;
/// PFPE_WQEALLOC: send queue doorbell, see [`SendDoorbell`].
pub const WQE_ALLOCATE: u64 = 0x50_4400;
/// GLPE_CPUSTATUS0..2: each reads [`CPU_STATUS_READY`] when the engine's processors run.
pub const CPU_STATUS: [u64; 3] = [0x50_BA5C, 0x50_BA60, 0x50_BA64];
/// The value of a [`CPU_STATUS`] register when its processor runs.
pub const CPU_STATUS_READY: u32 = 0x80;
/// GLPE_CRITERR: cause of a critical error (one source only: irdma).
pub const CRITICAL_ERROR: u64 = 0x53_4000;
/// The value of [`CRITICAL_ERROR`] that only deserves a warning (Q1 resource check).
pub const CRITICAL_ERROR_Q1_RESOURCE: u32 = 0x0001_024D;
/// GLPCI_LBARCTRL: layout of the BARs, see [`BarControl`].
pub const BAR_CONTROL: u64 = 0x09_DE74;
/// PFINT_AEQCTL: interrupt of the asynchronous event queue, see [`CauseControl`].
pub const AEQ_CAUSE_CONTROL: u64 = 0x16_CB00;
/// PFHMC_PDINV: drop a cached page descriptor, see [`PageDescriptorInvalidate`].
pub const PAGE_DESCRIPTOR_INVALIDATE: u64 = 0x52_0300;
/// PFPE_MRTEIDXMASK: number of index bits of a steering tag, bits `[4:0]`.
pub const STAG_INDEX_BITS: u64 = 0x50_A300;
/// PFHMC_SDCMD: register form of the segment command, see
/// [`crate::rdma::segments::SegmentCommand`].
pub const SEGMENT_COMMAND: u64 = 0x52_0000;
/// PFHMC_SDDATALOW: low half of [`crate::rdma::segments::SegmentData`].
pub const SEGMENT_DATA_LOW: u64 = 0x52_0100;
/// PFHMC_SDDATAHIGH: high half of [`crate::rdma::segments::SegmentData`].
pub const SEGMENT_DATA_HIGH: u64 = 0x52_0200;
/// PFHMC_ERRORINFO: host memory cache error, see [`HmcErrorInfo`].
pub const HMC_ERROR_INFO: u64 = 0x52_0400;
/// PFHMC_ERRORDATA: data of that error, bits `[29:0]`.
pub const HMC_ERROR_DATA: u64 = 0x52_0500;
/// GLNVM_ULD: which units have loaded after reset, see [`UnitsLoaded`].
pub const UNITS_LOADED: u64 = 0x0B_6008;
/// PRTDCB_TUP2TC: traffic class of each user priority, 3 bits each.
pub const PRIORITY_TO_TRAFFIC_CLASS: u64 = 0x1D_26C0;

/// GLINT_CEQCTL(n): interrupt of completion event queue n (0..=2047), see [`CauseControl`].
#[must_use]
pub const fn ceq_cause_control(ceq: u16) -> u64 {
    0x15_C000 + 4 * ceq as u64
}

/// GLINT_DYN_CTL(n): control of interrupt vector n (0..=2047), see [`DynamicControl`].
#[must_use]
pub const fn dynamic_control(vector: u16) -> u64 {
    0x16_0000 + 4 * vector as u64
}

/// GLINT_RATE(n): rate limit of interrupt vector n.
#[must_use]
pub const fn interrupt_rate(vector: u16) -> u64 {
    0x15_A000 + 4 * vector as u64
}

/// VSIQF_PE_CTL1(v): bit 0 enables RDMA filters of VSI v.
#[must_use]
pub const fn vsi_filter_control(vsi: u16) -> u64 {
    0x41_4000 + 4 * vsi as u64
}

/// GLHMC_VFPDINV(n): as [`PAGE_DESCRIPTOR_INVALIDATE`] for VF n (0..=31).
#[must_use]
pub const fn vf_page_descriptor_invalidate(vf: u16) -> u64 {
    0x52_8300 + 4 * vf as u64
}

/// The doorbell page that processes map: 4 KiB at 8 MiB − 64 KiB of BAR 0.
/// Source: irdma `icrdma_hw.h`, ICRDMA_DB_ADDR_OFFSET.
pub const DOORBELL_PAGE: u64 = 0x7F_0000;
/// Bytes of the doorbell page.
pub const DOORBELL_PAGE_BYTES: u64 = 4096;
/// In the doorbell page: the same as [`WQE_ALLOCATE`].
pub const DOORBELL_PAGE_SEND: u64 = 0x00;
/// In the doorbell page: the same as [`CQ_ARM`].
pub const DOORBELL_PAGE_ARM: u64 = 0x40;

/// Start of push page `index` in BAR 0.
#[must_use]
pub const fn push_page(index: u16) -> u64 {
    0x80_0000 + DOORBELL_PAGE_BYTES * index as u64
}

words! {
    /// PFPE_CQPDB.
    pub struct CqpDoorbell: u32 {
        /// index of the next free entry
        head: [10:0],
    }

    /// PFPE_CQPTAIL.
    pub struct CqpTail: u32 {
        /// advances with each completed command
        tail: [10:0],
        /// a command failed: see PFPE_CQPERRCODES
        operation_error: [31],
    }

    /// PFPE_CCQPSTATUS.
    pub struct CqpStatus: u32 {
        /// the control queue pair exists
        done: [0],
        /// profile of the host memory cache
        hmc_profile: [6:4],
        /// VFs with RDMA
        rdma_enabled_vfs: [21:16],
        /// creation failed
        error: [31],
    }

    /// PFPE_CQPERRCODES.
    pub struct CqpErrorCodes: u32 {
        /// see `control_completion`
        minor: [15:0],
        /// see `control_completion`
        major: [31:16],
    }

    /// PFPE_CQARM, PFPE_CQACK and the arm doorbell of the page.
    pub struct CompletionQueueNumber: u32 {
        /// number of the completion queue
        number: [18:0],
    }

    /// PFPE_WQEALLOC, the send doorbell of the page, and push doorbells.
    pub struct SendDoorbell: u32 {
        /// number of the queue pair
        qp_number: [17:0],
        /// only for push doorbells: quantum index / 8
        wqe_index_by_8: [31:20],
    }

    /// GLPCI_LBARCTRL.
    pub struct BarControl: u32 {
        /// BARs are prefetchable
        prefetchable: [0],
        /// BARs are 32 bits wide
        bar_32_bits: [1],
        /// page space of the PF
        pf_pages_space: [2],
        /// flash is visible
        expose_flash: [3],
        /// size of the doorbell space: 1 = 4 MiB, 2 = 8 MiB
        pe_doorbell_size: [5:4],
        /// page space of VFs
        vf_pages_space: [9],
        /// size of the expansion ROM
        expansion_rom_size: [13:11],
        /// size of the VFs' doorbell space
        vf_pe_doorbell_size: [15:14],
    }

    /// PFINT_AEQCTL and GLINT_CEQCTL.
    pub struct CauseControl: u32 {
        /// interrupt vector
        vector: [10:0],
        /// throttling timer, see [`ITR_NONE`]
        itr_index: [12:11],
        /// the cause raises interrupts
        cause_enable: [30],
        /// an event is waiting
        event: [31],
    }

    /// GLINT_DYN_CTL.
    pub struct DynamicControl: u32 {
        /// the vector is enabled
        interrupt_enable: [0],
        /// clear the pending bit
        clear_pending: [1],
        /// raise the interrupt now
        software_trigger: [2],
        /// throttling timer that is written
        itr_index: [4:3],
        /// its interval in units of 2 µs
        interval_by_2us: [16:5],
        /// take `software_itr_index`
        software_itr_index_enable: [24],
        /// throttling timer of the software trigger
        software_itr_index: [26:25],
        /// write descriptors back when the timer expires
        write_back_on_itr: [30],
        /// leave `interrupt_enable` unchanged
        interrupt_enable_mask: [31],
    }

    /// PFHMC_PDINV.
    pub struct PageDescriptorInvalidate: u32 {
        /// index of the segment
        segment_index: [11:0],
        /// partition of the RDMA engine
        rdma_partition: [15],
        /// index of the page in the segment
        page_index: [24:16],
    }

    /// PFHMC_ERRORINFO.
    pub struct HmcErrorInfo: u32 {
        /// index of the function
        function_index: [4:0],
        /// the function is a VF
        is_vf: [7],
        /// kind of error
        error_type: [11:8],
        /// kind of object
        object_type: [20:16],
        /// there is an error
        detected: [31],
    }

    /// GLNVM_ULD, the part for the RDMA engine.
    pub struct UnitsLoaded: u32 {
        /// the RDMA engine has loaded
        rdma_engine_done: [10],
    }

    /// Interrupt causes of the RDMA engine in PFINT_OICR and PFINT_OICR_ENA.
    pub struct OtherCauses: u32 {
        /// host memory cache error
        hmc_error: [26],
        /// push error
        push_error: [27],
        /// critical error, see GLPE_CRITERR
        critical_error: [28],
    }
}

/// `itr_index` of [`CauseControl`]: not throttled.
pub const ITR_NONE: u32 = 3;

impl CauseControl {
    /// A cause on a vector, not throttled; disabled, it only keeps the vector.
    /// Source: irdma `icrdma_hw.c`, `icrdma_cfg_ceq`; `ctrl.c`, `irdma_cfg_aeq`.
    #[must_use]
    pub const fn on_vector(vector: u16, enable: bool) -> Self {
        Self::ZERO
            .with_vector(vector as u32)
            .with_itr_index(ITR_NONE)
            .with_cause_enable(enable)
    }
}

impl DynamicControl {
    /// Enables a vector and clears its pending interrupt; interval in µs, 0..=8190.
    /// Source: irdma `icrdma_hw.c`, `icrdma_ena_irq`.
    #[must_use]
    pub const fn enabled(interval_us: u16) -> Self {
        Self::ZERO
            .with_interrupt_enable(true)
            .with_clear_pending(true)
            .with_interval_by_2us(interval_us as u32 / 2)
    }
}

impl PageDescriptorInvalidate {
    /// Drops the descriptor of a page of a segment. Only the low 9 bits of the page index count.
    /// Source: irdma `hmc.h`, INVALIDATE_PF_HMC_PD.
    #[must_use]
    pub const fn of(segment_index: u16, page_index: u32) -> Self {
        let page_index = page_index & (Self::PAGE_INDEX_MASK >> Self::PAGE_INDEX_SHIFT);
        Self::ZERO
            .with_segment_index(segment_index as u32)
            .with_rdma_partition(true)
            .with_page_index(page_index)
    }
}
