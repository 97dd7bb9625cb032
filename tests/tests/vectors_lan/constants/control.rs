//! Constants of VSIs, switch, resources and addresses.

use ringside_spec::lan::admin::generic::{
    self, MacReadFlags, MacWriteFlags, lock_status, lock_timeout_ms, resource,
};
use ringside_spec::lan::admin::switch::{self, *};
use ringside_spec::lan::admin::vsi::{self, *};

use super::{Constant, compare};

/// Number, type, and the sections that are filled in.
fn numbers_and_sections() -> Vec<Constant<'static>> {
    vec![
        ("vsi_num_m", u64::from(VsiNumber::NUMBER_MASK)),
        ("vsi_is_valid", u64::from(VsiNumber::VALID_MASK)),
        ("vsi_keep_alloc", u64::from(vsi::KEEP_ALLOCATED)),
        ("vsi_type_m", u64::from(VsiType::KIND_MASK)),
        ("vsi_type_vf", u64::from(vsi::kind::VIRTUAL_FUNCTION)),
        ("vsi_type_vmdq2", u64::from(vsi::kind::VIRTUAL_MACHINE)),
        ("vsi_type_pf", u64::from(vsi::kind::PHYSICAL_FUNCTION)),
        ("vsi_type_emp_mng", u64::from(vsi::kind::MANAGEMENT)),
        ("vsi_prop_sw_valid", u64::from(VsiSections::SWITCH_MASK)),
        (
            "vsi_prop_security_valid",
            u64::from(VsiSections::SECURITY_MASK),
        ),
        ("vsi_prop_vlan_valid", u64::from(VsiSections::VLAN_MASK)),
        (
            "vsi_prop_outer_tag_valid",
            u64::from(VsiSections::OUTER_TAG_MASK),
        ),
        (
            "vsi_prop_ingress_up_valid",
            u64::from(VsiSections::INGRESS_PRIORITY_MASK),
        ),
        (
            "vsi_prop_egress_up_valid",
            u64::from(VsiSections::EGRESS_PRIORITY_MASK),
        ),
        (
            "vsi_prop_rxq_map_valid",
            u64::from(VsiSections::RECEIVE_QUEUE_MAP_MASK),
        ),
        (
            "vsi_prop_q_opt_valid",
            u64::from(VsiSections::QUEUE_OPTION_MASK),
        ),
        (
            "vsi_prop_outer_up_valid",
            u64::from(VsiSections::OUTER_PRIORITY_MASK),
        ),
        (
            "vsi_prop_flow_dir_valid",
            u64::from(VsiSections::FLOW_DIRECTOR_MASK),
        ),
        (
            "vsi_prop_pasid_valid",
            u64::from(VsiSections::PROCESS_ADDRESS_SPACE_MASK),
        ),
    ]
}

/// Switch and security.
fn switching() -> Vec<Constant<'static>> {
    vec![
        (
            "vsi_sw_flag_allow_lb",
            u64::from(SwitchFlags::ALLOW_LOOPBACK_MASK),
        ),
        (
            "vsi_sw_flag_local_lb",
            u64::from(SwitchFlags::LOCAL_LOOPBACK_MASK),
        ),
        (
            "vsi_sw_flag_src_prune",
            u64::from(SwitchFlags::SOURCE_PRUNE_MASK),
        ),
        (
            "vsi_sw_flag_lan_ena",
            u64::from(SwitchFlags2::LAN_ENABLE_MASK),
        ),
        (
            "vsi_sw_flag_rx_vlan_prune_ena",
            u64::from(SwitchFlags2::RECEIVE_VLAN_PRUNE_MASK),
        ),
        (
            "vsi_sw_flag_rx_prune_en_m",
            u64::from(
                SwitchFlags2::RECEIVE_VLAN_PRUNE_MASK | SwitchFlags2::RECEIVE_PRUNE_OTHER_MASK,
            ),
        ),
        ("vsi_sw_veb_stat_id_m", u64::from(VebStatistics::ID_MASK)),
        (
            "vsi_sw_veb_stat_id_valid",
            u64::from(VebStatistics::VALID_MASK),
        ),
        (
            "vsi_sec_flag_allow_dest_ovrd",
            u64::from(SecurityFlags::ALLOW_DESTINATION_OVERRIDE_MASK),
        ),
        (
            "vsi_sec_flag_ena_mac_anti_spoof",
            u64::from(SecurityFlags::MAC_ANTI_SPOOF_MASK),
        ),
        (
            "vsi_sec_tx_prune_ena_m",
            u64::from(
                SecurityFlags::TRANSMIT_VLAN_PRUNE_MASK | SecurityFlags::TRANSMIT_PRUNE_OTHER_MASK,
            ),
        ),
        (
            "vsi_sec_tx_vlan_prune_ena",
            u64::from(
                SecurityFlags::TRANSMIT_VLAN_PRUNE_MASK >> SecurityFlags::TRANSMIT_VLAN_PRUNE_SHIFT,
            ),
        ),
    ]
}

/// Handling of inner VLAN tags.
fn inner_vlan() -> Vec<Constant<'static>> {
    vec![
        (
            "vsi_inner_vlan_tx_mode_m",
            u64::from(InnerVlanFlags::TRANSMIT_MODE_MASK),
        ),
        (
            "vsi_inner_vlan_tx_mode_acceptuntagged",
            u64::from(vlan_transmit::UNTAGGED),
        ),
        (
            "vsi_inner_vlan_tx_mode_accepttagged",
            u64::from(vlan_transmit::TAGGED),
        ),
        ("vsi_inner_vlan_tx_mode_all", u64::from(vlan_transmit::ALL)),
        (
            "vsi_inner_vlan_insert_pvid",
            u64::from(InnerVlanFlags::INSERT_PORT_VLAN_MASK),
        ),
        (
            "vsi_inner_vlan_emode_m",
            u64::from(InnerVlanFlags::RECEIVE_MODE_MASK),
        ),
        (
            "vsi_inner_vlan_emode_str_both",
            u64::from(vlan_receive::STRIP_BOTH),
        ),
        (
            "vsi_inner_vlan_emode_str_up",
            u64::from(vlan_receive::STRIP_PRIORITY),
        ),
        ("vsi_inner_vlan_emode_str", u64::from(vlan_receive::STRIP)),
        (
            "vsi_inner_vlan_emode_nothing",
            u64::from(vlan_receive::NOTHING),
        ),
    ]
}

/// Handling of outer tags.
fn outer_vlan() -> Vec<Constant<'static>> {
    vec![
        (
            "vsi_outer_vlan_emode_m",
            u64::from(OuterVlanFlags::RECEIVE_MODE_MASK),
        ),
        (
            "vsi_outer_vlan_emode_show_both",
            u64::from(vlan_receive::STRIP_BOTH),
        ),
        (
            "vsi_outer_vlan_emode_show_up",
            u64::from(vlan_receive::STRIP_PRIORITY),
        ),
        ("vsi_outer_vlan_emode_show", u64::from(vlan_receive::STRIP)),
        (
            "vsi_outer_vlan_emode_nothing",
            u64::from(vlan_receive::NOTHING),
        ),
        (
            "vsi_outer_tag_type_m",
            u64::from(OuterVlanFlags::TAG_TYPE_MASK),
        ),
        ("vsi_outer_tag_none", u64::from(outer_tag::NONE)),
        ("vsi_outer_tag_stag", u64::from(outer_tag::SERVICE)),
        ("vsi_outer_tag_vlan_8100", u64::from(outer_tag::CUSTOMER)),
        ("vsi_outer_tag_vlan_9100", u64::from(outer_tag::OLD_SERVICE)),
        (
            "vsi_outer_vlan_port_based_insert",
            u64::from(OuterVlanFlags::INSERT_PORT_VLAN_MASK),
        ),
        (
            "vsi_outer_vlan_tx_mode_m",
            u64::from(OuterVlanFlags::TRANSMIT_MODE_MASK),
        ),
        (
            "vsi_outer_vlan_tx_mode_acceptuntagged",
            u64::from(vlan_transmit::UNTAGGED),
        ),
        (
            "vsi_outer_vlan_tx_mode_accepttagged",
            u64::from(vlan_transmit::TAGGED),
        ),
        ("vsi_outer_vlan_tx_mode_all", u64::from(vlan_transmit::ALL)),
        (
            "vsi_outer_vlan_block_tx_desc",
            u64::from(OuterVlanFlags::BLOCK_DESCRIPTOR_TAG_MASK),
        ),
    ]
}

/// Priorities, traffic classes and their queues.
fn priorities_and_queues() -> Vec<Constant<'static>> {
    vec![
        (
            "vsi_up_table_up0_m",
            u64::from(PriorityTable::PRIORITY_0_MASK),
        ),
        (
            "vsi_up_table_up1_m",
            u64::from(PriorityTable::PRIORITY_1_MASK),
        ),
        (
            "vsi_up_table_up2_m",
            u64::from(PriorityTable::PRIORITY_2_MASK),
        ),
        (
            "vsi_up_table_up3_m",
            u64::from(PriorityTable::PRIORITY_3_MASK),
        ),
        (
            "vsi_up_table_up4_m",
            u64::from(PriorityTable::PRIORITY_4_MASK),
        ),
        (
            "vsi_up_table_up5_m",
            u64::from(PriorityTable::PRIORITY_5_MASK),
        ),
        (
            "vsi_up_table_up6_m",
            u64::from(PriorityTable::PRIORITY_6_MASK),
        ),
        (
            "vsi_up_table_up7_m",
            u64::from(PriorityTable::PRIORITY_7_MASK),
        ),
        ("vsi_q_map_contig", u64::from(vsi::QUEUES_CONTIGUOUS)),
        ("vsi_q_map_noncontig", u64::from(vsi::QUEUES_SCATTERED)),
        ("vsi_tc_q_offset_m", u64::from(ClassMapping::OFFSET_MASK)),
        ("vsi_tc_q_num_m", u64::from(ClassMapping::COUNT_LOG2_MASK)),
    ]
}

/// Queue options: hashing, classes, RDMA filters.
fn hashing() -> Vec<Constant<'static>> {
    vec![
        ("vsi_q_opt_rss_lut_m", u64::from(QueueOptionRss::TABLE_MASK)),
        (
            "vsi_q_opt_rss_gbl_lut_m",
            u64::from(QueueOptionRss::GLOBAL_TABLE_MASK),
        ),
        ("vsi_q_opt_rss_hash_m", u64::from(QueueOptionRss::HASH_MASK)),
        ("vsi_q_opt_rss_lut_vsi", u64::from(vsi::rss::TABLE_VSI)),
        ("vsi_q_opt_rss_lut_pf", u64::from(vsi::rss::TABLE_FUNCTION)),
        ("vsi_q_opt_rss_lut_gbl", u64::from(vsi::rss::TABLE_GLOBAL)),
        (
            "vsi_q_opt_rss_hash_tplz",
            u64::from(vsi::rss::HASH_TOEPLITZ),
        ),
        (
            "vsi_q_opt_rss_hash_sym_tplz",
            u64::from(vsi::rss::HASH_SYMMETRIC),
        ),
        ("vsi_q_opt_rss_hash_xor", u64::from(vsi::rss::HASH_XOR)),
        (
            "vsi_q_opt_rss_hash_jhash",
            u64::from(vsi::rss::HASH_JENKINS),
        ),
        (
            "vsi_q_opt_tc_ovr_m",
            u64::from(QueueOptionClass::OVERRIDE_CLASS_MASK),
        ),
        (
            "vsi_q_opt_prof_tc_ovr",
            u64::from(QueueOptionClass::OVERRIDE_ENABLE_MASK),
        ),
        ("vsi_q_opt_pe_fltr_en", u64::from(vsi::RDMA_FILTERS_ENABLED)),
    ]
}

/// Flow director and process address space.
fn flow_director() -> Vec<Constant<'static>> {
    vec![
        ("vsi_fd_enable", u64::from(FlowDirectorOptions::ENABLE_MASK)),
        (
            "vsi_fd_tx_auto_enable",
            u64::from(FlowDirectorOptions::TRANSMIT_AUTO_MASK),
        ),
        (
            "vsi_fd_prog_enable",
            u64::from(FlowDirectorOptions::PROGRAM_MASK),
        ),
        ("vsi_fd_def_q_m", u64::from(FlowDirectorDefault::QUEUE_MASK)),
        (
            "vsi_fd_def_grp_m",
            u64::from(FlowDirectorDefault::GROUP_MASK),
        ),
        ("vsi_fd_def_drop", u64::from(FlowDirectorDefault::DROP_MASK)),
        (
            "vsi_fd_report_q_m",
            u64::from(FlowDirectorReport::QUEUE_MASK),
        ),
        (
            "vsi_fd_def_priority_m",
            u64::from(FlowDirectorReport::PRIORITY_MASK),
        ),
        ("vsi_pasid_id_m", u64::from(ProcessAddressSpace::ID_MASK)),
        (
            "vsi_pasid_id_valid",
            u64::from(ProcessAddressSpace::VALID_MASK),
        ),
    ]
}

#[test]
fn vsi_properties_are_those_of_the_c_headers() {
    let ours = [
        numbers_and_sections(),
        switching(),
        inner_vlan(),
        outer_vlan(),
        priorities_and_queues(),
        hashing(),
        flow_director(),
    ]
    .concat();
    // Entries of the scattered map are plain queue numbers.
    compare("constants.vsi", &ours, &["vsi_q_m", "vsi_q_s"]);
}

#[test]
fn rules_and_actions_are_those_of_the_c_headers() {
    let mask = |mask: u32| u64::from(mask);
    let kind = |kind: RuleType| u64::from(kind.code());
    compare(
        "constants.switch_rule",
        &[
            ("sw_rules_t_lkup_rx", kind(RuleType::LookupReceive)),
            ("sw_rules_t_lkup_tx", kind(RuleType::LookupTransmit)),
            ("sw_rules_t_lg_act", kind(RuleType::LargeAction)),
            ("sw_rules_t_vsi_list_set", kind(RuleType::VsiListSet)),
            ("sw_rules_t_vsi_list_clear", kind(RuleType::VsiListClear)),
            ("sw_rules_t_prune_list_set", kind(RuleType::PruneListSet)),
            (
                "sw_rules_t_prune_list_clear",
                kind(RuleType::PruneListClear),
            ),
            ("single_act_type_m", mask(SingleAction::KIND_MASK)),
            ("single_act_vsi_forwarding", mask(switch::action::FORWARD)),
            ("single_act_to_q", mask(switch::action::QUEUE)),
            ("single_act_prune", mask(switch::action::PRUNE)),
            ("single_act_other_acts", mask(switch::action::OTHER)),
            ("single_act_lb_enable", mask(SingleAction::LOOPBACK_MASK)),
            ("single_act_lan_enable", mask(SingleAction::LAN_MASK)),
            ("single_act_vsi_id_m", mask(SingleAction::VSI_MASK)),
            ("single_act_vsi_list_id_m", mask(SingleAction::VSI_MASK)),
            ("single_act_mirror_vsi_id_m", mask(SingleAction::VSI_MASK)),
            ("single_act_vsi_list", mask(SingleAction::IS_LIST_MASK)),
            ("single_act_egress", mask(SingleAction::EGRESS_MASK)),
            ("single_act_ingress", mask(SingleAction::INGRESS_MASK)),
            ("single_act_valid_bit", mask(SingleAction::VALID_MASK)),
            ("single_act_drop", mask(SingleAction::DROP_MASK)),
            ("single_act_q_index_m", mask(QueueAction::QUEUE_MASK)),
            ("single_act_q_region_m", mask(QueueAction::REGION_LOG2_MASK)),
            ("single_act_q_priority", mask(QueueAction::PRIORITY_MASK)),
        ],
        // Pointers to large actions, counters of them: no driver here uses large actions.
        &[
            "single_act_prunet",
            "single_act_ptr",
            "single_act_ptr_bit",
            "single_act_ptr_val_m",
            "single_act_ptr_val_s",
            "single_act_stat_count_index_m",
            "single_act_stat_count_index_s",
        ],
    );
}

#[test]
fn recipes_are_those_of_the_c_headers() {
    let byte = |mask: u8| u64::from(mask);
    compare(
        "constants.recipe",
        &[
            ("recipe_id_m", byte(RecipeId::ID_MASK)),
            ("recipe_id_is_root", byte(RecipeId::ROOT_MASK)),
            ("recipe_lkup_data_m", byte(RecipeLookup::WORD_MASK)),
            ("recipe_lkup_ignore", byte(RecipeLookup::IGNORE_MASK)),
            ("recipe_result_data_m", byte(RecipeResult::INDEX_MASK)),
            ("recipe_result_en", byte(RecipeResult::ENABLE_MASK)),
            (
                "recipe_act_need_pass_l2",
                byte(RecipeAction::NEED_PASS_LAYER_2_MASK),
            ),
            (
                "recipe_act_allow_pass_l2",
                byte(RecipeAction::ALLOW_PASS_LAYER_2_MASK),
            ),
            ("recipe_act_inv_act", byte(RecipeAction::INVERSE_MASK)),
            (
                "recipe_act_prune_indx_m",
                byte(RecipeAction::PRUNE_INDEX_MASK),
            ),
            ("recipe_dflt_act_m", u64::from(RecipeDefault::ACTION_MASK)),
            (
                "recipe_dflt_act_valid",
                u64::from(RecipeDefault::VALID_MASK),
            ),
            ("recipe_was_updated", byte(switch::RECIPE_UPDATED)),
        ],
        // The forward priority is a whole byte here.
        &["recipe_fwd_priority_m", "recipe_fwd_priority_s"],
    );
}

#[test]
fn elements_of_the_switch_are_those_of_the_c_headers() {
    let mask = |mask: u16| u64::from(mask);
    compare(
        "constants.switch_config",
        &[
            (
                "get_sw_conf_resp_vsi_port_num_m",
                mask(ElementNumber::NUMBER_MASK),
            ),
            ("get_sw_conf_resp_type_m", mask(ElementNumber::KIND_MASK)),
            (
                "get_sw_conf_resp_phys_port",
                mask(switch::element::PHYSICAL_PORT),
            ),
            (
                "get_sw_conf_resp_virt_port",
                mask(switch::element::VIRTUAL_PORT),
            ),
            ("get_sw_conf_resp_vsi", mask(switch::element::VSI)),
            (
                "get_sw_conf_resp_func_num_m",
                mask(ElementFunction::NUMBER_MASK),
            ),
            (
                "get_sw_conf_resp_is_vf",
                mask(ElementFunction::IS_VIRTUAL_MASK),
            ),
            (
                "set_p_params_double_vlan_ena",
                mask(PortFlags::DOUBLE_VLAN_MASK),
            ),
            ("port_swid_m", mask(PortSwitch::ID_MASK)),
            ("port_swid_valid", mask(PortSwitch::VALID_MASK)),
            (
                "set_p_params_local_fwd_mode_valid",
                u64::from(LocalForward::VALID_MASK),
            ),
        ],
        &[],
    );
}

#[test]
fn resources_are_those_of_the_c_headers() {
    let mask = |mask: u16| u64::from(mask);
    let kind = |kind: Resource| u64::from(kind.code());
    compare(
        "constants.resources",
        &[
            ("res_access_read", mask(generic::RESOURCE_READ)),
            ("res_access_write", mask(generic::RESOURCE_WRITE)),
            ("res_id_nvm", mask(resource::NVM)),
            ("res_id_sdp", mask(resource::PINS)),
            ("res_id_chng_lock", mask(resource::CHANGE_LOCK)),
            ("res_id_glbl_lock", mask(resource::GLOBAL_CONFIG)),
            ("res_glbl_success", mask(lock_status::GRANTED)),
            ("res_glbl_in_prog", mask(lock_status::IN_PROGRESS)),
            ("res_glbl_done", mask(lock_status::DONE)),
            (
                "res_nvm_read_dflt_timeout_ms",
                u64::from(lock_timeout_ms::NVM_READ),
            ),
            (
                "res_nvm_write_dflt_timeout_ms",
                u64::from(lock_timeout_ms::NVM_WRITE),
            ),
            (
                "res_chng_lock_dflt_timeout_ms",
                u64::from(lock_timeout_ms::CHANGE_LOCK),
            ),
            (
                "res_glbl_lock_dflt_timeout_ms",
                u64::from(lock_timeout_ms::GLOBAL_CONFIG),
            ),
            ("res_type_m", mask(ResourceType::RESOURCE_MASK)),
            ("res_type_shared_m", mask(ResourceType::SHARED_MASK)),
            (
                "res_type_vsi_prune_list_m",
                mask(ResourceType::PRUNE_LIST_MASK),
            ),
            ("res_type_flag_shared", mask(ResourceType::SHARED_MASK)),
            (
                "res_type_flag_scan_bottom",
                mask(ResourceType::SCAN_BOTTOM_MASK),
            ),
            (
                "res_type_flag_ignore_index",
                mask(ResourceType::IGNORE_INDEX_MASK),
            ),
            (
                "res_type_flag_subscribe_shared",
                mask(ResourceType::SUBSCRIBE_SHARED_MASK),
            ),
            (
                "res_type_flag_subscribe_ctl",
                mask(ResourceType::SUBSCRIBE_CONTROL_MASK),
            ),
            ("res_type_vsi_list_rep", kind(Resource::VsiListReplication)),
            ("res_type_vsi_list_prune", kind(Resource::VsiListPrune)),
            ("res_type_recipe", kind(Resource::Recipe)),
            ("res_type_swid", kind(Resource::SwitchId)),
            (
                "res_type_fdir_counter_block",
                kind(Resource::FlowDirectorCounters),
            ),
            (
                "res_type_fdir_guaranteed_entries",
                kind(Resource::FlowDirectorGuaranteed),
            ),
            (
                "res_type_fdir_shared_entries",
                kind(Resource::FlowDirectorShared),
            ),
            (
                "res_type_fd_prof_bldr_profid",
                kind(Resource::FlowDirectorProfile),
            ),
            (
                "res_type_fd_prof_bldr_tcam",
                kind(Resource::FlowDirectorTcam),
            ),
            (
                "res_type_hash_prof_bldr_profid",
                kind(Resource::HashProfile),
            ),
            ("res_type_hash_prof_bldr_tcam", kind(Resource::HashTcam)),
        ],
        // The absence of a flag.
        &["res_type_flag_dedicated"],
    );
}

#[test]
fn addresses_are_those_of_the_c_headers() {
    compare(
        "constants.mac",
        &[
            (
                "man_mac_lan_addr_valid",
                u64::from(MacReadFlags::LAN_VALID_MASK),
            ),
            (
                "man_mac_san_addr_valid",
                u64::from(MacReadFlags::STORAGE_VALID_MASK),
            ),
            (
                "man_mac_port_addr_valid",
                u64::from(MacReadFlags::PORT_VALID_MASK),
            ),
            (
                "man_mac_wol_addr_valid",
                u64::from(MacReadFlags::WAKE_UP_VALID_MASK),
            ),
            ("man_mac_addr_type_lan", u64::from(generic::MAC_TYPE_LAN)),
            (
                "man_mac_addr_type_wol",
                u64::from(generic::MAC_TYPE_WAKE_UP),
            ),
            (
                "man_mac_wr_mc_mag_en",
                u64::from(MacWriteFlags::MULTICAST_MAGIC_MASK),
            ),
            (
                "man_mac_wr_wol_laa_pfr_keep",
                u64::from(MacWriteFlags::WAKE_UP_KEPT_MASK),
            ),
            ("man_mac_wr_m", u64::from(MacWriteFlags::TARGET_MASK)),
            (
                "man_mac_update_laa",
                u64::from(MacWriteFlags::ZERO.with_target(0).0),
            ),
            (
                "man_mac_update_laa_wol",
                u64::from(MacWriteFlags::ZERO.with_target(1).0),
            ),
            (
                "man_mac_read_m",
                u64::from(
                    MacReadFlags::LAN_VALID_MASK
                        | MacReadFlags::STORAGE_VALID_MASK
                        | MacReadFlags::PORT_VALID_MASK
                        | MacReadFlags::WAKE_UP_VALID_MASK,
                ),
            ),
        ],
        &[],
    );
}
