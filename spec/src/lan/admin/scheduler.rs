//! The transmit scheduler: a tree of nodes from the port down to the queues.
//!
//! Every node has a 32-bit id (TEID) that the firmware gives. Lists in buffers are groups: a head
//! with a parent and a count, then elements.

use crate::lan::wire::{codes, parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters and answer of [`GetDefaultTopology`](super::Opcode::GetDefaultTopology); the
    /// buffer of the answer holds `branch_count` [`TopologyBranch`].
    pub struct GetTopology "ice_aqc_get_topo" {
        /// logical port
        port "port_num": u8,
        /// answer: branches in the buffer, 1 to 8
        branch_count "num_branches": u8,
        /// zero
        reserved_1 "reserved1": U16,
        /// zero
        reserved_2 "reserved2": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`SetTransmitTopology`](super::Opcode::SetTransmitTopology) and
    /// [`GetTransmitTopology`](super::Opcode::GetTransmitTopology).
    pub struct TransmitTopology "ice_aqc_get_set_tx_topo" {
        /// see [`TransmitTopologySet`]
        set_flags "set_flags": u8,
        /// the values to read
        get_flags "get_flags": u8,
        /// zero
        reserved_1 "reserved1": U16,
        /// zero
        reserved_2 "reserved2": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of the commands that add, configure, query, move, suspend, resume
    /// and delete elements. Requested and answered count must agree: groups for add, move and
    /// delete, elements for the others.
    pub struct ElementCommand "ice_aqc_sched_elem_cmd" {
        /// groups or elements in the buffer
        requested "num_elem_req": U16,
        /// answer: groups or elements done
        answered "num_elem_resp": U16,
        /// zero
        reserved "reserved": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`QueryPortEts`](super::Opcode::QueryPortEts); the buffer of the answer
    /// holds [`PortEts`].
    pub struct QueryPortEts "ice_aqc_query_port_ets" {
        /// id of the port's node
        port_node "port_teid": U32,
        /// zero
        reserved "reserved": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of the rate limit profile commands; the buffer holds
    /// [`RateLimitProfile`].
    pub struct RateLimitCommand "ice_aqc_rl_profile" {
        /// profiles in the buffer
        count "num_profiles": U16,
        /// answer: profiles done
        processed "num_processed": U16,
        /// zero
        reserved "reserved": [u8; 4],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`QuerySchedulerResources`](super::Opcode::QuerySchedulerResources); the
    /// buffer of the answer holds [`SchedulerResources`].
    pub struct QuerySchedulerResources "ice_aqc_query_txsched_res" {
        /// zero
        reserved "reserved": [u8; 8],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// A bandwidth: profile and share.
    pub struct Bandwidth "ice_aqc_elem_info_bw": 4 {
        /// rate limit profile, 0 is unlimited
        profile "bw_profile_idx": U16,
        /// share among siblings
        share "bw_alloc": U16,
    }
    /// The kind of a node.
    pub struct Element "ice_aqc_txsched_elem": 16 {
        /// see [`ElementType`]
        kind "elem_type": u8,
        /// see [`ElementSections`]
        valid_sections "valid_sections": u8,
        /// see [`ElementGeneric`]
        generic "generic": u8,
        /// bit 0: suspended
        flags "flags": u8,
        /// committed information rate
        committed "cir_bw": Bandwidth,
        /// excess information rate
        excess "eir_bw": Bandwidth,
        /// shared rate limit
        shared_limit "srl_id": U16,
        /// zero
        reserved "reserved2": U16,
    }
    /// A node of the tree.
    pub struct Node "ice_aqc_txsched_elem_data": 24 {
        /// id of the parent, [`NO_NODE`] for the root
        parent "parent_teid": U32,
        /// id of the node
        node "node_teid": U32,
        /// content of the element
        element "data": Element,
    }
    /// Head of a group: of [`Node`]s on add, of ids on delete.
    pub struct GroupHeader "ice_aqc_txsched_topo_grp_info_hdr": 8 {
        /// id of the parent
        parent "parent_teid": U32,
        /// elements that follow
        count "num_elems": U16,
        /// zero
        reserved "reserved2": U16,
    }
    /// One branch of the default topology.
    pub struct TopologyBranch "ice_aqc_get_topo_elem": 224 {
        /// parent and number of nodes
        header "hdr": GroupHeader,
        /// the nodes, root first
        nodes "generic": [Node; 9],
    }
    /// Head of a move; `count` ids of 32 bits follow.
    pub struct MoveHeader "ice_aqc_txsched_move_grp_info_hdr": 12 {
        /// id of the parent that they leave
        source_parent "src_parent_teid": U32,
        /// id of the parent that they get
        destination_parent "dest_parent_teid": U32,
        /// ids that follow
        count "num_elems": U16,
        /// see [`move_mode`]
        mode "mode": u8,
        /// zero
        reserved "reserved": u8,
    }
    /// Traffic classes of a port.
    pub struct PortEts "ice_aqc_port_ets_elem": 64 {
        /// classes in use, a bit each
        valid_classes "tc_valid_bits": u8,
        /// zero
        reserved "reserved": [u8; 3],
        /// class of each priority
        priority_to_class "up2tc": U32,
        /// share of each class in percent
        share "tc_bw_share": [u8; 8],
        /// excess profile of the port
        excess_profile "port_eir_prof_id": U32,
        /// committed profile of the port
        committed_profile "port_cir_prof_id": U32,
        /// priority of each class
        node_priority "tc_node_prio": U32,
        /// zero
        reserved_1 "reserved1": [u8; 4],
        /// id of each class's node, [`NO_NODE`] for those not in use
        class_nodes "tc_node_teid": [U32; 8],
    }
    /// A rate limit profile.
    pub struct RateLimitProfile "ice_aqc_rl_profile_elem": 12 {
        /// layer, counted from 1
        level "level": u8,
        /// see [`RateLimitFlags`]
        flags "flags": u8,
        /// profile; answer of add
        profile "profile_id": U16,
        /// longest burst
        burst_max "max_burst_size": U16,
        /// multiplier
        multiplier "rl_multiply": U16,
        /// wake up
        wake_up "wake_up_calc": U16,
        /// encoded rate
        encoded "rl_encode": U16,
    }
    /// Limits of the whole scheduler.
    pub struct SchedulerProperties "ice_aqc_generic_sched_props": 32 {
        /// layers in hardware
        physical_levels "phys_levels": U16,
        /// layers that software sees
        logical_levels "logical_levels": U16,
        /// layers that are flattened, a bit each
        flattening "flattening_bitmap": u8,
        /// congestion domains of the device
        device_domains_max "max_device_cgds": u8,
        /// congestion domains of the function
        function_domains_max "max_pf_cgds": u8,
        /// zero
        reserved_0 "rsvd0": u8,
        /// RDMA queue sets
        rdma_queue_sets "rdma_qsets": U16,
        /// zero
        reserved_1 "rsvd1": [u8; 22],
    }
    /// Limits of one layer.
    pub struct LayerProperties "ice_aqc_layer_props": 32 {
        /// number of the layer as software sees it
        logical_layer "logical_layer": u8,
        /// nodes are given in such chunks
        chunk_size "chunk_size": u8,
        /// nodes of the device
        device_nodes_max "max_device_nodes": U16,
        /// nodes of the function
        function_nodes_max "max_pf_nodes": U16,
        /// zero
        reserved_0 "rsvd0": [u8; 4],
        /// nodes under one parent
        siblings_max "max_sibl_grp_sz": U16,
        /// committed profiles
        committed_profiles_max "max_cir_rl_profiles": U16,
        /// excess profiles
        excess_profiles_max "max_eir_rl_profiles": U16,
        /// shared profiles
        shared_profiles_max "max_srl_profiles": U16,
        /// zero
        reserved_1 "rsvd1": [u8; 14],
    }
    /// Answer of [`QuerySchedulerResources`](super::Opcode::QuerySchedulerResources).
    pub struct SchedulerResources "ice_aqc_query_txsched_res_resp": 320 {
        /// the whole
        properties "sched_props": SchedulerProperties,
        /// each layer, the root's first
        layers "layer_props": [LayerProperties; 9],
    }
}

/// The id that means "no node".
pub const NO_NODE: u32 = 0xFFFF_FFFF;
/// Layers at most.
pub const MAX_LAYERS: usize = 9;
/// [`Element::flags`]: the node sends nothing.
pub const SUSPENDED: u8 = 1;
/// Share of a node that drivers give.
pub const DEFAULT_SHARE: u16 = 4;

/// Values of [`MoveHeader::mode`]. Source: ice `ICE_AQC_MOVE_ELEM_MODE_*`.
pub mod move_mode {
    /// within the function
    pub const SAME_FUNCTION: u8 = 0;
    /// ownership is transferred too
    pub const GIVE_OWNERSHIP: u8 = 1;
    /// ownership stays
    pub const KEEP_OWNERSHIP: u8 = 2;
}

codes! {
    /// Kind of a node. Source: ice `ICE_AQC_ELEM_TYPE_*`.
    pub enum ElementType: u8 {
        /// none
        Undefined "elem_type_undefined" = 0,
        /// port
        RootPort "elem_type_root_port" = 1,
        /// traffic class
        TrafficClass "elem_type_tc" = 2,
        /// node between
        Generic "elem_type_se_generic" = 3,
        /// beginning of the driver's part
        EntryPoint "elem_type_entry_point" = 4,
        /// queue
        Leaf "elem_type_leaf" = 5,
        /// node between that only fills a layer
        Padded "elem_type_se_padded" = 6,
    }
}

crate::words! {
    /// The valid parts of an [`Element`]. Source: ice `ICE_AQC_ELEM_VALID_*`.
    pub struct ElementSections: u8 {
        /// generic byte
        generic: [0],
        /// committed rate
        committed: [1],
        /// excess rate
        excess: [2],
        /// shared limit
        shared: [3],
    }
    /// Source: ice `ICE_AQC_ELEM_GENERIC_*`.
    pub struct ElementGeneric: u8 {
        /// counts packets instead of bytes
        packet_mode: [0],
        /// priority among siblings
        priority: [3:1],
        /// strict priority
        strict: [4],
        /// adjustment of lengths
        adjust: [6:5],
    }
    /// Source: ice `ICE_AQC_RL_PROFILE_*`.
    pub struct RateLimitFlags: u8 {
        /// 0 committed, 1 excess, 2 shared
        kind: [1:0],
        /// the profile is invalid
        invalid: [7],
    }
    /// Source: ice `ICE_AQC_TX_TOPO_FLAGS_*`.
    pub struct TransmitTopologySet: u8 {
        /// a core reset follows
        core_reset: [0],
        /// the topology is in the buffer
        source_memory: [1],
        /// load a new topology
        load_new: [4],
        /// the command was given
        issued: [5],
    }
}

impl Node {
    /// A node between port and queues under `parent`, without limits, with the share that
    /// drivers give; the firmware fills in its id.
    #[must_use]
    pub fn generic_under(parent: u32) -> Self {
        Self {
            parent: parent.into(),
            node: 0.into(),
            element: Element {
                kind: ElementType::Generic.code(),
                ..Element::unlimited()
            },
        }
    }
}

impl Element {
    /// An element without kind and limits, with the share that drivers give.
    #[must_use]
    pub fn unlimited() -> Self {
        let bandwidth = Bandwidth {
            profile: 0.into(),
            share: DEFAULT_SHARE.into(),
        };
        Self {
            valid_sections: ElementSections::ZERO
                .with_generic(true)
                .with_committed(true)
                .with_excess(true)
                .0,
            committed: bandwidth,
            excess: bandwidth,
            ..Self::zeroed()
        }
    }

    /// The kind of the node, unknown kinds kept.
    #[must_use]
    pub fn kind(&self) -> ElementType {
        ElementType::from_code(self.kind)
    }
}
