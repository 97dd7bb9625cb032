//! Virtual station interfaces (VSIs): the switch's ends that own queues.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters of [`AddVsi`](super::Opcode::AddVsi), [`UpdateVsi`](super::Opcode::UpdateVsi),
    /// [`GetVsi`](super::Opcode::GetVsi) (all with [`VsiProperties`] in the buffer) and
    /// [`FreeVsi`](super::Opcode::FreeVsi) (without).
    pub struct VsiCommand "ice_aqc_add_get_update_free_vsi" {
        /// see [`VsiNumber`]; on add without its valid bit the firmware chooses
        number "vsi_num": U16,
        /// bit 0 on free: [`KEEP_ALLOCATED`]
        flags "cmd_flags": U16,
        /// virtual function that the VSI is for
        virtual_function "vf_id": u8,
        /// zero
        reserved "reserved": u8,
        /// see [`VsiType`]
        vsi_flags "vsi_flags": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Answer to all of them.
    pub struct VsiAnswer "ice_aqc_add_update_free_vsi_resp" {
        /// see [`VsiNumber`]
        number "vsi_num": U16,
        /// more about a failure
        extended_status "ext_status": U16,
        /// VSIs in use
        used "vsi_used": U16,
        /// VSIs that are free
        free "vsi_free": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// Properties of a VSI; a section counts on update only if its bit of [`VsiSections`] is set.
    pub struct VsiProperties "ice_aqc_vsi_props": 128 {
        /// see [`VsiSections`]
        valid_sections "valid_sections": U16,
        /// switch that the VSI belongs to
        switch_id "sw_id": u8,
        /// see [`SwitchFlags`]
        switch_flags "sw_flags": u8,
        /// see [`SwitchFlags2`]
        switch_flags_2 "sw_flags2": u8,
        /// see [`VebStatistics`]
        veb_statistics "veb_stat_id": u8,
        /// see [`SecurityFlags`]
        security_flags "sec_flags": u8,
        /// zero
        security_reserved "sec_reserved": u8,
        /// port VLAN, inner tag
        inner_port_vlan "port_based_inner_vlan": U16,
        /// zero
        inner_vlan_reserved "inner_vlan_reserved": [u8; 2],
        /// see [`InnerVlanFlags`]
        inner_vlan_flags "inner_vlan_flags": u8,
        /// zero
        inner_vlan_reserved_2 "inner_vlan_reserved2": [u8; 3],
        /// see [`PriorityTable`]
        ingress_table "ingress_table": U32,
        /// see [`PriorityTable`]
        egress_table "egress_table": U32,
        /// port VLAN, outer tag; double VLAN mode only
        outer_port_vlan "port_based_outer_vlan": U16,
        /// see [`OuterVlanFlags`]
        outer_vlan_flags "outer_vlan_flags": u8,
        /// zero
        outer_vlan_reserved "outer_vlan_reserved": u8,
        /// see [`QUEUES_CONTIGUOUS`] and [`QUEUES_SCATTERED`]
        mapping_flags "mapping_flags": U16,
        /// contiguous: first queue and number of queues; else up to sixteen queues
        queue_mapping "q_mapping": [U16; 16],
        /// see [`ClassMapping`], one for each traffic class
        class_mapping "tc_mapping": [U16; 8],
        /// see [`QueueOptionRss`]
        queue_option_rss "q_opt_rss": u8,
        /// see [`QueueOptionClass`]
        queue_option_class "q_opt_tc": u8,
        /// bit 0: RDMA filters enabled
        queue_option_flags "q_opt_flags": u8,
        /// zero
        queue_option_reserved "q_opt_reserved": [u8; 3],
        /// see [`PriorityTable`]
        outer_priority_table "outer_up_table": U32,
        /// zero
        section_10_reserved "sect_10_reserved": U16,
        /// see [`FlowDirectorOptions`]
        flow_director_options "fd_options": U16,
        /// filters of this VSI alone
        flow_director_dedicated "max_fd_fltr_dedicated": U16,
        /// filters from the shared pool
        flow_director_shared "max_fd_fltr_shared": U16,
        /// see [`FlowDirectorDefault`]
        flow_director_default "fd_def_q": U16,
        /// see [`FlowDirectorReport`]
        flow_director_report "fd_report_opt": U16,
        /// see [`ProcessAddressSpace`]
        process_address_space "pasid_id": U32,
        /// zero
        reserved "reserved": [u8; 24],
    }
}

/// [`VsiCommand::flags`] on free: the number stays allocated.
pub const KEEP_ALLOCATED: u16 = 1;
/// [`VsiProperties::mapping_flags`]: queues in one range.
pub const QUEUES_CONTIGUOUS: u16 = 0;
/// [`VsiProperties::mapping_flags`]: queues anywhere.
pub const QUEUES_SCATTERED: u16 = 1;
/// [`VsiProperties::queue_option_flags`]: RDMA filters enabled.
pub const RDMA_FILTERS_ENABLED: u8 = 1;

/// Values of [`VsiType::kind`]. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_TYPE_*`.
pub mod kind {
    /// of a virtual function
    pub const VIRTUAL_FUNCTION: u16 = 0;
    /// of a virtual machine (VMDq2)
    pub const VIRTUAL_MACHINE: u16 = 1;
    /// of the physical function
    pub const PHYSICAL_FUNCTION: u16 = 2;
    /// of the firmware
    pub const MANAGEMENT: u16 = 3;
}

/// Values of [`InnerVlanFlags::receive_mode`] and [`OuterVlanFlags::receive_mode`].
pub mod vlan_receive {
    /// tag and priority go from the packet into the descriptor
    pub const STRIP_BOTH: u8 = 0;
    /// the priority is written to the descriptor
    pub const STRIP_PRIORITY: u8 = 1;
    /// the tag is removed
    pub const STRIP: u8 = 2;
    /// the packet is left alone
    pub const NOTHING: u8 = 3;
}

/// Values of [`InnerVlanFlags::transmit_mode`] and [`OuterVlanFlags::transmit_mode`].
pub mod vlan_transmit {
    /// packets without tag only
    pub const UNTAGGED: u8 = 1;
    /// packets with tag only
    pub const TAGGED: u8 = 2;
    /// all packets
    pub const ALL: u8 = 3;
}

/// Values of [`OuterVlanFlags::tag_type`].
pub mod outer_tag {
    /// no tag
    pub const NONE: u8 = 0;
    /// service tag, 0x88A8
    pub const SERVICE: u8 = 1;
    /// 0x8100
    pub const CUSTOMER: u8 = 2;
    /// 0x9100
    pub const OLD_SERVICE: u8 = 3;
}

/// Values of [`QueueOptionRss::table`] and [`QueueOptionRss::hash`].
pub mod rss {
    /// lookup table of the VSI
    pub const TABLE_VSI: u8 = 0;
    /// lookup table of the function
    pub const TABLE_FUNCTION: u8 = 2;
    /// a global lookup table
    pub const TABLE_GLOBAL: u8 = 3;
    /// Toeplitz hash
    pub const HASH_TOEPLITZ: u8 = 0;
    /// symmetric Toeplitz hash
    pub const HASH_SYMMETRIC: u8 = 1;
    /// exclusive or
    pub const HASH_XOR: u8 = 2;
    /// Jenkins hash
    pub const HASH_JENKINS: u8 = 3;
}

crate::words! {
    /// Number of a VSI. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_NUM_M`, `_IS_VALID`.
    pub struct VsiNumber: u16 {
        /// number in the device
        number: [9:0],
        /// the number counts
        valid: [15],
    }
    /// Kind of VSI. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_TYPE_M`.
    pub struct VsiType: u16 {
        /// see [`kind`]
        kind: [1:0],
    }
    /// Sections of the properties. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_PROP_*_VALID`.
    pub struct VsiSections: u16 {
        /// switch
        switch: [0],
        /// security
        security: [1],
        /// inner VLAN
        vlan: [2],
        /// outer tag
        outer_tag: [3],
        /// ingress priorities
        ingress_priority: [4],
        /// egress priorities
        egress_priority: [5],
        /// receive queues
        receive_queue_map: [6],
        /// queue options
        queue_option: [7],
        /// outer priorities
        outer_priority: [8],
        /// access control list
        access_control: [10],
        /// flow director
        flow_director: [11],
        /// process address space
        process_address_space: [12],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_SW_FLAG_*`.
    pub struct SwitchFlags: u8 {
        /// packets may loop back
        allow_loopback: [5],
        /// packets loop back locally
        local_loopback: [6],
        /// packets from itself are dropped
        source_prune: [7],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_SW_FLAG_*`.
    pub struct SwitchFlags2: u8 {
        /// received packets with a VLAN id without rule are dropped
        receive_vlan_prune: [0],
        /// other kinds of pruning
        receive_prune_other: [3:1],
        /// packets may leave through the port
        lan_enable: [4],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_SW_VEB_STAT_ID_M`.
    pub struct VebStatistics: u8 {
        /// counter block
        id: [4:0],
        /// the id counts
        valid: [5],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_SEC_*`.
    pub struct SecurityFlags: u8 {
        /// descriptors may name a destination
        allow_destination_override: [0],
        /// packets from another address are dropped
        mac_anti_spoof: [2],
        /// sent packets with a VLAN id without rule are dropped
        transmit_vlan_prune: [4],
        /// other kinds of pruning
        transmit_prune_other: [7:5],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_INNER_VLAN_*`.
    pub struct InnerVlanFlags: u8 {
        /// see [`vlan_transmit`]
        transmit_mode: [1:0],
        /// the port VLAN is inserted
        insert_port_vlan: [2],
        /// see [`vlan_receive`]
        receive_mode: [4:3],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_OUTER_*`.
    pub struct OuterVlanFlags: u8 {
        /// see [`vlan_receive`]
        receive_mode: [1:0],
        /// see [`outer_tag`]
        tag_type: [3:2],
        /// the port VLAN is inserted
        insert_port_vlan: [4],
        /// see [`vlan_transmit`]
        transmit_mode: [6:5],
        /// descriptors may not insert a tag
        block_descriptor_tag: [7],
    }
    /// Priority that each priority becomes. Source: ice `ice_adminq_cmd.h`,
    /// `ICE_AQ_VSI_UP_TABLE_*`.
    pub struct PriorityTable: u32 {
        /// of priority 0
        priority_0: [2:0],
        /// of priority 1
        priority_1: [5:3],
        /// of priority 2
        priority_2: [8:6],
        /// of priority 3
        priority_3: [11:9],
        /// of priority 4
        priority_4: [14:12],
        /// of priority 5
        priority_5: [17:15],
        /// of priority 6
        priority_6: [20:18],
        /// of priority 7
        priority_7: [23:21],
    }
    /// Queues of a traffic class. Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_TC_Q_*`.
    pub struct ClassMapping: u16 {
        /// first queue, counted from the VSI's first
        offset: [10:0],
        /// number of queues as a power of two
        count_log2: [14:11],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_Q_OPT_RSS_*`.
    pub struct QueueOptionRss: u8 {
        /// see [`rss`]
        table: [1:0],
        /// the number of the global table
        global_table: [5:2],
        /// see [`rss`]
        hash: [7:6],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_Q_OPT_TC_OVR_M`, `_PROF_TC_OVR`.
    pub struct QueueOptionClass: u8 {
        /// traffic class that overrides
        override_class: [4:0],
        /// the override applies
        override_enable: [7],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_FD_*`.
    pub struct FlowDirectorOptions: u16 {
        /// enabled
        enable: [0],
        /// filters learned from sent packets
        transmit_auto: [1],
        /// filters may be programmed
        program: [3],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_FD_DEF_*`.
    pub struct FlowDirectorDefault: u16 {
        /// queue of packets that match none
        queue: [10:0],
        /// queue group
        group: [14:12],
        /// drop them
        drop: [15],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_FD_REPORT_Q_M`, `_FD_DEF_PRIORITY_M`.
    pub struct FlowDirectorReport: u16 {
        /// queue that reports go to
        queue: [10:0],
        /// priority of packets that match none
        priority: [14:12],
    }
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_VSI_PASID_ID_*`.
    pub struct ProcessAddressSpace: u32 {
        /// process address space id
        id: [19:0],
        /// the id counts
        valid: [31],
    }
}
