//! Features, scheduling, statistics, push pages, no operation.

use crate::rdma::layout::codes;

codes! {
    /// The action on a node of the work scheduler.
    /// Source: irdma `ws.h`/`type.h`, IRDMA_ADD_NODE and its neighbours.
    pub enum SchedulerOperation: u8 {
        /// Add it; for a leaf the handle of its queue set is returned.
        Add = 0,
        /// Change it.
        Modify = 1,
        /// Remove it.
        Delete = 2,
    }

    /// The share that a node of the work scheduler has of its parent's bandwidth.
    /// Source: irdma `type.h`, IRDMA_PRIO_*.
    pub enum SchedulerPriority: u8 {
        /// Weighted round robin.
        WeightedRoundRobin = 1,
        /// Strict priority.
        Strict = 2,
        /// Weighted strict priority.
        WeightedStrict = 3,
    }
}

commands! {
    /// Reads the feature list, see [`crate::rdma::features`].
    /// Source: irdma `ctrl.c`, `irdma_sc_query_rdma_features`.
    pub struct QueryFeatures {
        /// Bytes of the buffer.
        buffer_length: u32 = 3[31:0],
        /// I/O virtual address of the buffer.
        buffer_address: u64 = 4[63:0],
    }

    /// Adds, changes or deletes a node of the work scheduler.
    ///
    /// Adding a leaf returns the handle of its queue set (10 bits).
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_ws_node`; `ws.c`.
    pub struct WorkSchedulerNode {
        /// Share of bandwidth.
        weight: u8 = 4[38:32],
        /// Number of the VSI.
        vsi_number: u16 = 4[57:48],
        /// Number of the node; 0 is the root.
        node_id: u16 = 3[9:0],
        /// Number of its parent.
        parent_id: u16 = 3[25:16],
        /// Number of the VM or VF.
        vm_vf_number: u16 = 3[51:42],
        /// The action.
        operation: SchedulerOperation = 3[53:52],
        /// Kind of VM or VF; 0 for a physical function.
        vm_vf_type: u8 = 3[55:54],
        /// Traffic class.
        traffic_class: u8 = 3[58:56],
        /// The share of the bandwidth.
        priority_type: SchedulerPriority = 3[60:59],
        /// The node is a leaf.
        leaf: bool = 3[61],
        /// The node is enabled.
        enable: bool = 3[62],
    }

    /// Copies statistics to memory, see [`crate::rdma::statistics`].
    /// Source: irdma `ctrl.c`, `irdma_sc_gather_stats`.
    pub struct GatherStatistics {
        /// I/O virtual address of the buffer of 1024 bytes.
        buffer_address: u64 = 4[63:0],
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 5[5:0],
        /// Statistics instance.
        statistics_instance: u8 = 3[6:0],
        /// Use `hmc_function_index`.
        use_hmc_function_index: bool = 3[60],
        /// Use `statistics_instance`.
        use_instance: bool = 3[61],
    }

    /// Allocates or frees a statistics instance; its index is returned.
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_stats_inst`.
    pub struct ManageStatistics {
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 5[5:0],
        /// Statistics instance.
        statistics_instance: u8 = 3[6:0],
        /// Use `hmc_function_index`.
        use_hmc_function_index: bool = 3[60],
        /// Allocate; else free.
        allocate: bool = 3[62],
    }

    /// Maps user priorities.
    /// Source: irdma `ctrl.c`, `irdma_sc_set_up_map`.
    pub struct UserPriorityMap {
        /// Eight bytes, one a user priority, priority 0 the least significant.
        map: u64 = 0[63:0],
        /// Function index of the host memory cache.
        hmc_function_index: u8 = 5[5:0],
        /// Priority of congestion notification packets.
        cnp_override: u8 = 5[37:32],
        /// Use `cnp_override`.
        use_override: bool = 3[61],
        /// Use the VLAN tag's priority.
        use_vlan: bool = 3[62],
    }

    /// Allocates or frees a push page; its index is returned.
    /// Source: irdma `ctrl.c`, `irdma_sc_manage_push_page`.
    pub struct ManagePushPage {
        /// Handle of the queue set.
        queue_set_handle: u16 = 2[9:0],
        /// Index of the page.
        push_page_index: u16 = 3[9:0],
        /// Kind of page.
        page_type: u8 = 3[61:60],
        /// Free the page.
        free: bool = 3[62],
    }

    /// Does nothing.
    /// Source: irdma `defs.h`, IRDMA_CQP_OP_NOP.
    pub struct Nop {}
}
