//! Completion queues, completion event queues and the asynchronous event queue.

use crate::rdma::layout::codes;

codes! {
    /// The form of a buffer's page list (LPBLSIZE).
    /// Source: irdma `ctrl.c`/`verbs.c`, IRDMA_CQPSQ_*_LPBLSIZE and `pbl_chunk_size` users.
    pub enum PageList: u8 {
        /// No list: one contiguous block.
        Contiguous = 0,
        /// Page addresses in one list of page buffer list entries.
        OneLevel = 1,
        /// A list of lists: each root entry is the index of a leaf of up to 512 entries.
        TwoLevels = 3,
    }
}

commands! {
    /// Creates a completion queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_cq_create`, `irdma_sc_ccq_create`.
    pub struct CreateCompletionQueue {
        /// Completions that the ring holds, 1..=1048575.
        size_entries: u32 = 0[20:0],
        /// Returned in completion event queue entries and in events for this queue.
        completion_context: u64 = 1[62:0],
        /// Completions after which the device reads the shadow area.
        shadow_read_threshold: u32 = 2[17:0],
        /// I/O virtual address of the ring, 256-byte aligned; 0 when `ring_virtual`.
        ring_address: u64 = 4[63:0],
        /// I/O virtual address of the shadow area.
        shadow_address: u64 = 5[63:0],
        /// Index of the first page buffer list entry, when `ring_virtual`.
        first_pble_index: u32 = 6[27:0],
        /// Hint for the processor cache that is to receive completions.
        tph_value: u8 = 7[7:0],
        /// Number of the VSI.
        vsi_number: u16 = 7[17:8],
        /// Number of the queue; 0 is the control completion queue.
        cq_number: u32 = 3[18:0],
        /// Number of its completion event queue.
        ceq_number: u16 = 3[31:22],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// Raise an event instead of overwriting unread completions.
        check_overflow: bool = 3[46],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
        /// At most one outstanding completion event until it is acknowledged.
        ceqe_mask: bool = 3[48],
        /// `ceq_number` is valid.
        ceq_number_valid: bool = 3[49],
        /// Use `tph_value`.
        tph_enable: bool = 3[60],
        /// Completions of 64 bytes.
        extended_cqe: bool = 3[61],
    }

    /// Changes a completion queue; with `resize` it continues in a new ring.
    /// Source: irdma `ctrl.c`, `irdma_sc_cq_modify`.
    pub struct ModifyCompletionQueue {
        /// Completions that the new ring holds.
        size_entries: u32 = 0[20:0],
        /// Returned in completion event queue entries and in events for this queue.
        completion_context: u64 = 1[62:0],
        /// Completions after which the device reads the shadow area.
        shadow_read_threshold: u32 = 2[17:0],
        /// I/O virtual address of the ring; 0 when `ring_virtual`.
        ring_address: u64 = 4[63:0],
        /// I/O virtual address of the shadow area.
        shadow_address: u64 = 5[63:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// Hint for the processor cache that is to receive completions.
        tph_value: u8 = 7[7:0],
        /// Number of the VSI.
        vsi_number: u16 = 7[17:8],
        /// Number of the queue.
        cq_number: u32 = 3[18:0],
        /// Take the new ring.
        resize: bool = 3[43],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// Raise an event instead of overwriting unread completions.
        check_overflow: bool = 3[46],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
        /// At most one outstanding completion event until it is acknowledged.
        ceqe_mask: bool = 3[48],
        /// Use `tph_value`.
        tph_enable: bool = 3[60],
        /// Completions of 64 bytes.
        extended_cqe: bool = 3[61],
    }

    /// Destroys a completion queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_cq_destroy`, `irdma_sc_ccq_destroy`.
    pub struct DestroyCompletionQueue {
        /// Completions that the ring holds.
        size_entries: u32 = 0[20:0],
        /// As at creation.
        completion_context: u64 = 1[62:0],
        /// I/O virtual address of the shadow area.
        shadow_address: u64 = 5[63:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// Number of the queue.
        cq_number: u32 = 3[18:0],
        /// Number of its completion event queue.
        ceq_number: u16 = 3[31:22],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
        /// As at creation.
        ceqe_mask: bool = 3[48],
        /// `ceq_number` is valid.
        ceq_number_valid: bool = 3[49],
        /// As at creation.
        tph_enable: bool = 3[60],
        /// Completions of 64 bytes.
        extended_cqe: bool = 3[61],
    }

    /// Creates a completion event queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_ceq_create`.
    pub struct CreateCompletionEventQueue {
        /// Entries of 8 bytes that the ring holds, 1..=262143.
        size_entries: u32 = 2[21:0],
        /// I/O virtual address of the ring, 256-byte aligned; 0 when `ring_virtual`.
        ring_address: u64 = 4[63:0],
        /// Index of the first page buffer list entry, when `ring_virtual`.
        first_pble_index: u32 = 6[27:0],
        /// Hint for the processor cache that is to receive entries.
        tph_value: u8 = 7[7:0],
        /// Number of the VSI.
        vsi_number: u16 = 7[17:8],
        /// Number of the event queue.
        ceq_number: u16 = 3[9:0],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// Raise no interrupt when the throttling timer expires.
        itr_no_expire: bool = 3[46],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
        /// Use `tph_value`.
        tph_enable: bool = 3[60],
    }

    /// Destroys a completion event queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_ceq_destroy`.
    pub struct DestroyCompletionEventQueue {
        /// Entries that the ring holds.
        size_entries: u32 = 2[21:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// Number of the event queue.
        ceq_number: u16 = 3[9:0],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
        /// As at creation.
        tph_enable: bool = 3[60],
    }

    /// Creates the asynchronous event queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_aeq_create`.
    pub struct CreateAsynchronousEventQueue {
        /// Entries of 16 bytes that the ring holds, 1..=524287.
        size_entries: u32 = 2[18:0],
        /// I/O virtual address of the ring, 256-byte aligned; 0 when `ring_virtual`.
        ring_address: u64 = 4[63:0],
        /// Index of the first page buffer list entry, when `ring_virtual`.
        first_pble_index: u32 = 6[27:0],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
    }

    /// Destroys the asynchronous event queue.
    /// Source: irdma `ctrl.c`, `irdma_sc_aeq_destroy`.
    pub struct DestroyAsynchronousEventQueue {
        /// Entries that the ring holds.
        size_entries: u32 = 2[18:0],
        /// Index of the first page buffer list entry.
        first_pble_index: u32 = 6[27:0],
        /// The form of the ring's page list.
        pble_levels_code: PageList = 3[45:44],
        /// The ring is given by page buffer list entries.
        ring_virtual: bool = 3[47],
    }
}
