//! The switch: elements, port parameters, resources, VLAN mode, recipes and rules.

use crate::lan::wire::{codes, parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32, U64};

parameters! {
    /// Parameters and answer of [`GetSwitchConfig`](super::Opcode::GetSwitchConfig); the buffer
    /// of the answer holds [`SwitchElement`].
    pub struct GetSwitchConfig "ice_aqc_get_sw_cfg" {
        /// zero
        flags "flags": U16,
        /// first element; in an answer the element to continue with, 0 at the end
        element "element": U16,
        /// answer: elements in the buffer
        element_count "num_elems": U16,
        /// zero
        reserved "rsvd": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetPortParameters`](super::Opcode::SetPortParameters).
    pub struct SetPortParameters "ice_aqc_set_port_params" {
        /// see [`PortFlags`]
        flags "cmd_flags": U16,
        /// VSI of bad frames
        bad_frame_vsi "bad_frame_vsi": U16,
        /// see [`PortSwitch`]
        switch_id "swid": U16,
        /// see [`LocalForward`]
        local_forward_mode "local_fwd_mode": u8,
        /// zero
        reserved "reserved": [u8; 9],
    }
    /// Parameters of [`AllocateResource`](super::Opcode::AllocateResource) and
    /// [`FreeResource`](super::Opcode::FreeResource); the buffer holds a
    /// [`ResourceElements`] and the elements, 16 bits each.
    pub struct AllocateResource "ice_aqc_alloc_free_res_cmd" {
        /// lists in the buffer: 1
        entry_count "num_entries": U16,
        /// zero
        reserved "reserved": [u8; 6],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`AddRecipe`](super::Opcode::AddRecipe) and
    /// [`GetRecipe`](super::Opcode::GetRecipe); the buffer holds [`RecipeElement`].
    pub struct RecipeCommand "ice_aqc_add_get_recipe" {
        /// recipes in the buffer
        count "num_sub_recipes": U16,
        /// get: first recipe
        index "return_index": U16,
        /// zero
        reserved "reserved": [u8; 4],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`RecipeToProfile`](super::Opcode::RecipeToProfile), and answer of
    /// [`GetRecipeToProfile`](super::Opcode::GetRecipeToProfile).
    pub struct RecipeToProfile "ice_aqc_recipe_to_profile" {
        /// profile
        profile "profile_id": U16,
        /// zero
        reserved "rsvd": [u8; 6],
        /// a bit for each of 64 recipes
        recipes "recipe_assoc": U64,
    }
    /// Parameters of [`AddSwitchRules`](super::Opcode::AddSwitchRules),
    /// [`UpdateSwitchRules`](super::Opcode::UpdateSwitchRules) and
    /// [`RemoveSwitchRules`](super::Opcode::RemoveSwitchRules); the buffer holds rules one after
    /// the other: [`LookupRule`], [`LargeAction`], [`VsiListRule`].
    pub struct SwitchRules "ice_aqc_sw_rules" {
        /// rules in the buffer
        rule_count "num_rules_fltr_entry_index": U16,
        /// zero
        reserved "reserved": [u8; 6],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`QueryFlowControlMode`](super::Opcode::QueryFlowControlMode) and
    /// [`SetFlowControlMode`](super::Opcode::SetFlowControlMode).
    pub struct FlowControlMode "ice_aqc_set_query_pfc_mode" {
        /// 1 by VLAN priority, 2 by DSCP; the answer repeats it
        mode "pfc_mode": u8,
        /// zero
        reserved "rsvd": [u8; 15],
    }
}

wire! {
    /// One element of the switch.
    pub struct SwitchElement "ice_aqc_get_sw_cfg_resp_elem": 6 {
        /// see [`ElementNumber`]
        number "vsi_port_num": U16,
        /// switch that the element belongs to
        switch_id "swid": U16,
        /// see [`ElementFunction`]
        function "pf_vf_num": U16,
    }
    /// Head of a list of resources; `count` elements of 16 bits follow.
    pub struct ResourceElements "ice_aqc_alloc_free_res_elem": 4 {
        /// see [`ResourceType`]
        resource_type "res_type": U16,
        /// elements that follow
        count "num_elems": U16,
    }
    /// Buffer of [`SetVlanMode`](super::Opcode::SetVlanMode).
    pub struct SetVlanMode "ice_aqc_set_vlan_mode": 100 {
        /// zero
        reserved "reserved": u8,
        /// priority tagging
        priority_tagging "l2tag_prio_tagging": u8,
        /// zero
        tag_reserved "l2tag_reserved": [u8; 64],
        /// tags of RDMA packets
        rdma_packet "rdma_packet": u8,
        /// zero
        rdma_reserved "rdma_reserved": [u8; 2],
        /// protocol id of the management VLAN
        management_protocol "mng_vlan_prot_id": u8,
        /// zero
        protocol_reserved "prot_id_reserved": [u8; 30],
    }
    /// Buffer of the answer of [`GetVlanMode`](super::Opcode::GetVlanMode).
    pub struct GetVlanMode "ice_aqc_get_vlan_mode": 100 {
        /// bit 0: double VLAN mode
        mode "vlan_mode": u8,
        /// priority tagging
        priority_tagging "l2tag_prio_tagging": u8,
        /// zero
        reserved "reserved": [u8; 98],
    }
    /// The look-up words and the action of a recipe.
    pub struct RecipeContent "ice_aqc_recipe_content": 28 {
        /// see [`RecipeId`]
        recipe "rid": u8,
        /// see [`RecipeLookup`]; the first looks up the switch id
        lookups "lkup_indx": [u8; 5],
        /// masks of the five words
        masks "mask": [U16; 5],
        /// see [`RecipeResult`]
        result "result_indx": u8,
        /// zero
        reserved_0 "rsvd0": [u8; 3],
        /// priority when joined
        join_priority "act_ctrl_join_priority": u8,
        /// priority of forwarding, four bits
        forward_priority "act_ctrl_fwd_priority": u8,
        /// see [`RecipeAction`]
        action_control "act_ctrl": u8,
        /// zero
        reserved_1 "rsvd1": u8,
        /// see [`RecipeDefault`]
        default_action "dflt_act": U32,
    }
    /// A recipe.
    pub struct RecipeElement "ice_aqc_recipe_data_elem": 64 {
        /// recipe
        index "recipe_indx": u8,
        /// answer: bit 0 updated
        answer "resp_bits": u8,
        /// zero
        reserved_0 "rsvd0": [u8; 2],
        /// recipes of the chain, a bit each
        recipes "recipe_bitmap": [u8; 8],
        /// zero
        reserved_1 "rsvd1": [u8; 4],
        /// content of the recipe
        content "content": RecipeContent,
        /// zero
        reserved_2 "rsvd2": [u8; 20],
    }
    /// First four bytes of every rule.
    pub struct RuleHeader "ice_aqc_sw_rules_elem_hdr": 4 {
        /// see [`RuleType`]
        kind "type": U16,
        /// answer for this rule: 0 success
        status "status": U16,
    }
    /// Rule that looks up a packet; `header_length` bytes of a packet's header follow.
    pub struct LookupRule "ice_sw_rule_lkup_rx_tx": 16 {
        /// kind and status
        header "hdr": RuleHeader,
        /// the fields that count; see [`recipe`]
        recipe "recipe_id": U16,
        /// receive: logical port; transmit: VSI
        source "src": U16,
        /// the action; see [`SingleAction`] and [`QueueAction`]
        action "act": U32,
        /// number of the rule; answer of add, needed for update and remove
        index "index": U16,
        /// bytes of header that follow: [`LOOKUP_HEADER_BYTES`], 0 on update and remove
        header_length "hdr_len": U16,
    }
    /// Several actions under one number; `count` actions of 32 bits follow.
    pub struct LargeAction "ice_sw_rule_lg_act": 8 {
        /// kind and status
        header "hdr": RuleHeader,
        /// number
        index "index": U16,
        /// actions that follow
        count "size": U16,
    }
    /// List of VSIs; `count` numbers of 16 bits follow.
    pub struct VsiListRule "ice_sw_rule_vsi_list": 8 {
        /// kind and status
        header "hdr": RuleHeader,
        /// number of the list
        list "index": U16,
        /// VSIs that follow
        count "number_vsi": U16,
    }
}

/// Bytes of packet header that a [`LookupRule`] carries: destination, source, tag, tag control.
pub const LOOKUP_HEADER_BYTES: usize = 16;
/// Bytes of the buffer that drivers give for [`GetSwitchConfig`].
pub const SWITCH_CONFIG_BUFFER_BYTES: usize = 2048;
/// [`GetVlanMode::mode`]: double VLAN mode.
pub const DOUBLE_VLAN_MODE: u8 = 1;
/// [`RecipeElement::answer`]: the recipe was updated.
pub const RECIPE_UPDATED: u8 = 1;

/// Values of [`ElementNumber::kind`]. Source: ice `ICE_AQC_GET_SW_CONF_RESP_*`.
pub mod element {
    /// physical port
    pub const PHYSICAL_PORT: u16 = 0;
    /// virtual port
    pub const VIRTUAL_PORT: u16 = 1;
    /// VSI
    pub const VSI: u16 = 2;
}

/// Recipes that exist without a package. Source: ice `ice_switch.h`, `ice_sw_lkup_type`.
pub mod recipe {
    /// Ethertype
    pub const ETHERTYPE: u16 = 0;
    /// destination MAC address
    pub const MAC: u16 = 1;
    /// destination MAC address and VLAN id
    pub const MAC_VLAN: u16 = 2;
    /// all packets, unicast or multicast by the header's first byte
    pub const PROMISCUOUS: u16 = 3;
    /// VLAN id
    pub const VLAN: u16 = 4;
    /// packets that match nothing else
    pub const DEFAULT_VSI: u16 = 5;
    /// Ethertype and MAC address
    pub const ETHERTYPE_MAC: u16 = 8;
    /// all packets of a VLAN
    pub const PROMISCUOUS_VLAN: u16 = 9;
    /// logical port
    pub const LOGICAL_PORT: u16 = 10;
}

/// Values of [`SingleAction::kind`]. Source: ice `ICE_SINGLE_ACT_*`.
pub mod action {
    /// forward to a VSI or a list of them
    pub const FORWARD: u32 = 0;
    /// forward to a queue; see [`QueueAction`](super::QueueAction)
    pub const QUEUE: u32 = 1;
    /// drop packets that no rule permits
    pub const PRUNE: u32 = 2;
    /// something else
    pub const OTHER: u32 = 3;
}

codes! {
    /// Kind of a rule. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_SW_RULES_T_*`.
    pub enum RuleType: u16 {
        /// lookup of received packets
        LookupReceive "sw_rules_t_lkup_rx" = 0,
        /// lookup of sent packets
        LookupTransmit "sw_rules_t_lkup_tx" = 1,
        /// several actions
        LargeAction "sw_rules_t_lg_act" = 2,
        /// adds VSIs to a list
        VsiListSet "sw_rules_t_vsi_list_set" = 3,
        /// removes VSIs from a list
        VsiListClear "sw_rules_t_vsi_list_clear" = 4,
        /// adds VSIs to a prune list
        PruneListSet "sw_rules_t_prune_list_set" = 5,
        /// removes VSIs from a prune list
        PruneListClear "sw_rules_t_prune_list_clear" = 6,
    }
    /// Resource that [`AllocateResource`] is about; the low seven bits of [`ResourceType`].
    /// Source: ice `ice_adminq_cmd.h`, `ICE_AQC_RES_TYPE_*`; those not in Linux, DPDK.
    pub enum Resource: u16 {
        /// list of VSIs to replicate to
        VsiListReplication "res_type_vsi_list_rep" = 0x03,
        /// list of VSIs to prune by
        VsiListPrune "res_type_vsi_list_prune" = 0x04,
        /// recipe
        Recipe "res_type_recipe" = 0x05,
        /// switch profile
        SwitchProfile "res_type_profile" = 0x06,
        /// switch
        SwitchId "res_type_swid" = 0x07,
        /// VSI
        Vsi "res_type_vsi" = 0x08,
        /// global hash table
        GlobalHash "res_type_global_rss_hash" = 0x20,
        /// block of flow director counters
        FlowDirectorCounters "res_type_fdir_counter_block" = 0x21,
        /// guaranteed flow director entries
        FlowDirectorGuaranteed "res_type_fdir_guaranteed_entries" = 0x22,
        /// shared flow director entries
        FlowDirectorShared "res_type_fdir_shared_entries" = 0x23,
        /// access control profile
        AccessProfile "res_type_acl_prof_bldr_profid" = 0x50,
        /// access control match memory
        AccessTcam "res_type_acl_prof_bldr_tcam" = 0x51,
        /// flow director profile
        FlowDirectorProfile "res_type_fd_prof_bldr_profid" = 0x58,
        /// flow director match memory
        FlowDirectorTcam "res_type_fd_prof_bldr_tcam" = 0x59,
        /// hash profile
        HashProfile "res_type_hash_prof_bldr_profid" = 0x60,
        /// hash match memory
        HashTcam "res_type_hash_prof_bldr_tcam" = 0x61,
    }
}

crate::words! {
    /// Source: ice `ICE_AQC_GET_SW_CONF_RESP_TYPE_*`, `_VSI_PORT_NUM_*`.
    pub struct ElementNumber: u16 {
        /// number of the port or VSI
        number: [9:0],
        /// see [`element`]
        kind: [15:14],
    }
    /// Source: ice `ICE_AQC_GET_SW_CONF_RESP_FUNC_NUM_*`, `_IS_VF`.
    pub struct ElementFunction: u16 {
        /// number of the function
        number: [14:0],
        /// the function is virtual
        is_virtual: [15],
    }
    /// Source: ice `ICE_AQC_SET_P_PARAMS_*`.
    pub struct PortFlags: u16 {
        /// double VLAN mode
        double_vlan: [2],
    }
    /// Source: ice `ICE_AQC_PORT_SWID_*`.
    pub struct PortSwitch: u16 {
        /// switch
        id: [7:0],
        /// the id counts
        valid: [15],
    }
    /// Source: ice `ICE_AQC_SET_P_PARAMS_LOCAL_FWD_MODE_VALID`.
    pub struct LocalForward: u8 {
        /// the way of packets between functions of the port
        mode: [1:0],
        /// the mode counts
        valid: [2],
    }
    /// Source: ice `ICE_AQC_RES_TYPE_*`.
    pub struct ResourceType: u16 {
        /// see [`Resource`]
        resource: [6:0],
        /// shared among functions
        shared: [7],
        /// number of a prune list
        prune_list: [11:8],
        /// search from the end
        scan_bottom: [12],
        /// any index will do
        ignore_index: [13],
        /// subscribe to a shared one
        subscribe_shared: [14],
        /// subscribe with control
        subscribe_control: [15],
    }
    /// Source: ice `ICE_AQ_RECIPE_ID_*`.
    pub struct RecipeId: u8 {
        /// recipe
        id: [5:0],
        /// root of its chain
        root: [7],
    }
    /// Source: ice `ICE_AQ_RECIPE_LKUP_*`.
    pub struct RecipeLookup: u8 {
        /// word of the field vector
        word: [5:0],
        /// the word does not count
        ignore: [7],
    }
    /// Source: ice `ICE_AQ_RECIPE_RESULT_*`.
    pub struct RecipeResult: u8 {
        /// index of the result
        index: [5:0],
        /// there is a result
        enable: [7],
    }
    /// Source: ice `ICE_AQ_RECIPE_ACT_*`.
    pub struct RecipeAction: u8 {
        /// needs to pass layer 2
        need_pass_layer_2: [0],
        /// may pass layer 2
        allow_pass_layer_2: [1],
        /// the action is inverted
        inverse: [2],
        /// prune index
        prune_index: [5:4],
    }
    /// Source: ice `ICE_AQ_RECIPE_DFLT_ACT_*`.
    pub struct RecipeDefault: u32 {
        /// action, as in a rule
        action: [18:0],
        /// there is one
        valid: [31],
    }
    /// The action for a packet that matches a rule. Source: ice `ICE_SINGLE_ACT_*`.
    pub struct SingleAction: u32 {
        /// see [`action`]
        kind: [1:0],
        /// loop back to local VSIs
        loopback: [2],
        /// send to the wire
        lan: [3],
        /// VSI, or list of VSIs if `is_list`
        vsi: [13:4],
        /// `vsi` is a list
        is_list: [14],
        /// prune: sent packets
        egress: [15],
        /// prune: received packets
        ingress: [16],
        /// forward: the rule counts
        valid: [17],
        /// forward: drop
        drop: [18],
    }
    /// Forwarding to queues, kind [`action::QUEUE`]. Source: ice `ICE_SINGLE_ACT_Q_*`.
    pub struct QueueAction: u32 {
        /// see [`action`]
        kind: [1:0],
        /// loop back to local VSIs
        loopback: [2],
        /// send to the wire
        lan: [3],
        /// first queue
        queue: [14:4],
        /// number of queues as a power of two
        region_log2: [17:15],
        /// high priority
        priority: [18],
    }
}
