//! Constants of scheduler, link, flash, LLDP, hashing, queues and package.

use ringside_spec::lan::admin::generic::lock_status;
use ringside_spec::lan::admin::link::{self, *};
use ringside_spec::lan::admin::lldp::{AgentCommand, MibChange, MibType};
use ringside_spec::lan::admin::nvm::{self, ChecksumFlags, NvmFlags};
use ringside_spec::lan::admin::package;
use ringside_spec::lan::admin::queues::{self, *};
use ringside_spec::lan::admin::rss::{RssKey, RssVsi};
use ringside_spec::lan::admin::scheduler::{self, *};

use super::{Constant, compare};

fn byte(mask: u8) -> u64 {
    u64::from(mask)
}

fn half(mask: u16) -> u64 {
    u64::from(mask)
}

#[test]
fn nodes_of_the_scheduler_are_those_of_the_c_headers() {
    let kind = |kind: ElementType| u64::from(kind.code());
    compare(
        "constants.scheduler",
        &[
            ("elem_type_undefined", kind(ElementType::Undefined)),
            ("elem_type_root_port", kind(ElementType::RootPort)),
            ("elem_type_tc", kind(ElementType::TrafficClass)),
            ("elem_type_se_generic", kind(ElementType::Generic)),
            ("elem_type_entry_point", kind(ElementType::EntryPoint)),
            ("elem_type_leaf", kind(ElementType::Leaf)),
            ("elem_type_se_padded", kind(ElementType::Padded)),
            ("elem_valid_generic", byte(ElementSections::GENERIC_MASK)),
            ("elem_valid_cir", byte(ElementSections::COMMITTED_MASK)),
            ("elem_valid_eir", byte(ElementSections::EXCESS_MASK)),
            ("elem_valid_shared", byte(ElementSections::SHARED_MASK)),
            (
                "elem_generic_mode_m",
                byte(ElementGeneric::PACKET_MODE_MASK),
            ),
            ("elem_generic_prio_m", byte(ElementGeneric::PRIORITY_MASK)),
            ("elem_generic_sp_m", byte(ElementGeneric::STRICT_MASK)),
            (
                "elem_generic_adjust_val_m",
                byte(ElementGeneric::ADJUST_MASK),
            ),
            ("elem_flag_suspend_m", byte(scheduler::SUSPENDED)),
            ("move_elem_mode_same_pf", byte(move_mode::SAME_FUNCTION)),
            ("move_elem_mode_give_own", byte(move_mode::GIVE_OWNERSHIP)),
            ("move_elem_mode_keep_own", byte(move_mode::KEEP_OWNERSHIP)),
            ("rl_profile_type_m", byte(RateLimitFlags::KIND_MASK)),
            ("rl_profile_inval_m", byte(RateLimitFlags::INVALID_MASK)),
            ("topo_max_level_num", scheduler::MAX_LAYERS as u64),
        ],
        // Plain values 0, 1, 2 of the kind, in its documentation.
        &[
            "rl_profile_type_cir",
            "rl_profile_type_eir",
            "rl_profile_type_srl",
        ],
    );
}

const PHY_SKIPPED: &[&str] = &[
    // Recovered clock output: not used here.
    "get_phy_rec_clk_out_curr_port",
    "get_phy_rec_clk_out_out_en",
    // Compliance bytes of modules that are not distinguished here.
    "mod_type_byte1_10g_base_er",
    "mod_type_byte1_10g_base_lr",
    "mod_type_byte1_10g_base_lrm",
    "mod_type_byte1_10g_base_sr",
    "mod_type_byte1_sfp_plus_cu_active",
    "mod_type_byte1_sfp_plus_cu_passive",
    "mod_type_ident",
    // Energy efficient Ethernet: the words are carried as they are.
    "phy_eee_en_1000base_kx",
    "phy_eee_en_1000base_t",
    "phy_eee_en_100base_tx",
    "phy_eee_en_10gbase_kr",
    "phy_eee_en_10gbase_t",
    "phy_eee_en_25gbase_kr",
    "phy_eee_en_40gbase_kr4",
    // Masks of several fields, or of none.
    "phy_caps_mask",
    "phy_low_power",
    "phy_type_low_max_index",
];

#[test]
fn abilities_of_the_phy_are_those_of_the_c_headers() {
    type Fec = ForwardErrorCorrection;
    let names: Vec<(String, u64)> = phy_type::ALL
        .iter()
        .map(|(bit, name)| (format!("phy_type_low_{}", name.to_lowercase()), *bit))
        .collect();
    assert_eq!(names.len(), 64);
    let mode = |mode: u16| u64::from(PhyReport::ZERO.with_mode(mode).0);
    let mut ours: Vec<Constant<'_>> = vec![
        ("get_phy_rqm", half(PhyReport::QUALIFIED_MODULES_MASK)),
        ("report_mode_m", half(PhyReport::MODE_MASK)),
        ("report_topo_cap_no_media", mode(report_mode::TOPOLOGY)),
        (
            "report_topo_cap_media",
            mode(report_mode::TOPOLOGY_WITH_MEDIA),
        ),
        ("report_active_cfg", mode(report_mode::ACTIVE)),
        ("report_dflt_cfg", mode(report_mode::DEFAULT)),
        (
            "phy_en_tx_link_pause",
            byte(PhyAbilities::TRANSMIT_PAUSE_MASK),
        ),
        (
            "phy_en_rx_link_pause",
            byte(PhyAbilities::RECEIVE_PAUSE_MASK),
        ),
        ("phy_low_power_mode", byte(PhyAbilities::LOW_POWER_MASK)),
        ("phy_en_link", byte(PhyAbilities::LINK_MASK)),
        ("phy_an_mode", byte(PhyAbilities::AUTONEGOTIATION_MASK)),
        (
            "get_phy_en_mod_qual",
            byte(PhyAbilities::MODULE_QUALIFICATION_MASK),
        ),
        (
            "phy_en_auto_fec",
            byte(PhyAbilities::AUTOMATIC_CORRECTION_MASK),
        ),
        (
            "phy_ena_tx_pause_ability",
            byte(PhyEnable::TRANSMIT_PAUSE_MASK),
        ),
        (
            "phy_ena_rx_pause_ability",
            byte(PhyEnable::RECEIVE_PAUSE_MASK),
        ),
        ("phy_ena_low_power", byte(PhyEnable::LOW_POWER_MASK)),
        ("phy_ena_link", byte(PhyEnable::LINK_MASK)),
        (
            "phy_ena_auto_link_updt",
            byte(PhyEnable::AUTOMATIC_UPDATE_MASK),
        ),
        ("phy_ena_lesm", byte(PhyEnable::LINK_STATE_MACHINE_MASK)),
        (
            "phy_ena_auto_fec",
            byte(PhyEnable::AUTOMATIC_CORRECTION_MASK),
        ),
        ("phy_ena_valid_mask", byte(PhyEnable::DEFINED)),
        (
            "phy_en_d3cold_low_power_autoneg",
            byte(LowPowerControl::COLD_MASK),
        ),
        ("phy_an_en_clause28", byte(LowPowerControl::CLAUSE_28_MASK)),
        ("phy_an_en_clause73", byte(LowPowerControl::CLAUSE_73_MASK)),
        ("phy_an_en_clause37", byte(LowPowerControl::CLAUSE_37_MASK)),
        ("phy_fec_10g_kr_40g_kr4_en", byte(Fec::KR_10G_40G_MASK)),
        (
            "phy_fec_10g_kr_40g_kr4_req",
            byte(Fec::KR_10G_40G_REQUEST_MASK),
        ),
        ("phy_fec_25g_rs_528_req", byte(Fec::RS_528_REQUEST_MASK)),
        ("phy_fec_25g_kr_req", byte(Fec::KR_25G_REQUEST_MASK)),
        ("phy_fec_25g_rs_544_req", byte(Fec::RS_544_REQUEST_MASK)),
        ("phy_fec_25g_rs_clause91_en", byte(Fec::RS_CLAUSE_91_MASK)),
        ("phy_fec_25g_kr_clause74_en", byte(Fec::KR_CLAUSE_74_MASK)),
        ("phy_fec_mask", byte(Fec::DEFINED)),
        ("mod_type_byte0_sfp_plus", byte(module_type::SFP_PLUS)),
        ("mod_type_byte0_qsfp_plus", byte(module_type::QSFP_PLUS)),
        ("mod_type_byte2_sfp_plus", byte(module_type::SFP_PLUS_LAST)),
        (
            "mod_type_byte2_qsfp_plus",
            byte(module_type::QSFP_PLUS_LAST),
        ),
    ];
    ours.extend(names.iter().map(|(name, bit)| (name.as_str(), *bit)));
    compare("constants.phy", &ours, PHY_SKIPPED);
}

fn link_states() -> Vec<Constant<'static>> {
    type Info = LinkInfo;
    type Negotiation = AutonegotiationInfo;
    vec![
        ("restart_an_link_restart", byte(RestartFlags::RESTART_MASK)),
        ("restart_an_link_enable", byte(RestartFlags::ENABLE_MASK)),
        ("lse_nop", half(link_events::KEEP)),
        ("lse_dis", half(link_events::DISABLE)),
        ("lse_ena", half(link_events::ENABLE)),
        ("lse_is_enabled", half(link_events::ENABLED)),
        ("link_topo_conflict", byte(TopologyConflict::TOPOLOGY_MASK)),
        ("link_media_conflict", byte(TopologyConflict::MEDIA_MASK)),
        ("link_topo_corrupt", byte(TopologyConflict::CORRUPT_MASK)),
        (
            "link_topo_unreach_prt",
            byte(TopologyConflict::UNREACHABLE_PORT_MASK),
        ),
        (
            "link_topo_undrutil_prt",
            byte(TopologyConflict::UNDERUSED_PORT_MASK),
        ),
        (
            "link_topo_undrutil_media",
            byte(TopologyConflict::UNDERUSED_MEDIA_MASK),
        ),
        (
            "link_topo_unsupp_media",
            byte(TopologyConflict::UNSUPPORTED_MEDIA_MASK),
        ),
        (
            "link_module_power_unsupported",
            byte(LinkConfigError::MODULE_POWER_MASK),
        ),
        (
            "link_external_phy_load_failure",
            byte(LinkConfigError::PHY_LOAD_MASK),
        ),
        (
            "link_inval_max_power_limit",
            byte(LinkConfigError::POWER_LIMIT_MASK),
        ),
        ("link_up", byte(Info::UP_MASK)),
        ("link_fault", byte(Info::FAULT_MASK)),
        ("link_fault_tx", byte(Info::TRANSMIT_FAULT_MASK)),
        ("link_fault_rx", byte(Info::RECEIVE_FAULT_MASK)),
        ("link_fault_remote", byte(Info::REMOTE_FAULT_MASK)),
        ("link_up_port", byte(Info::PORT_UP_MASK)),
        ("media_available", byte(Info::MEDIA_MASK)),
        ("signal_detect", byte(Info::SIGNAL_MASK)),
        ("an_completed", byte(Negotiation::COMPLETED_MASK)),
        ("lp_an_ability", byte(Negotiation::PARTNER_ABLE_MASK)),
        ("fec_en", byte(Negotiation::ERROR_CORRECTION_MASK)),
        ("link_pause_tx", byte(Negotiation::TRANSMIT_PAUSE_MASK)),
        ("link_pause_rx", byte(Negotiation::RECEIVE_PAUSE_MASK)),
        ("qualified_module", byte(Negotiation::QUALIFIED_MODULE_MASK)),
        (
            "link_phy_temp_alarm",
            byte(ExtendedInfo::TEMPERATURE_ALARM_MASK),
        ),
        (
            "link_excessive_errors",
            byte(ExtendedInfo::EXCESSIVE_ERRORS_MASK),
        ),
        ("link_tx_m", byte(ExtendedInfo::TRANSMIT_STATE_MASK)),
        ("link_25g_kr_fec_en", byte(LinkConfig::KR_MASK)),
        ("link_25g_rs_528_fec_en", byte(LinkConfig::RS_528_MASK)),
        ("link_25g_rs_544_fec_en", byte(LinkConfig::RS_544_MASK)),
        ("fec_mask", byte(LinkConfig::DEFINED)),
        ("link_event_updown", half(LinkEvents::UP_DOWN_MASK)),
        ("link_event_media_na", half(LinkEvents::NO_MEDIA_MASK)),
        ("link_event_link_fault", half(LinkEvents::FAULT_MASK)),
        (
            "link_event_phy_temp_alarm",
            half(LinkEvents::TEMPERATURE_ALARM_MASK),
        ),
        (
            "link_event_excessive_errors",
            half(LinkEvents::EXCESSIVE_ERRORS_MASK),
        ),
        ("link_event_signal_detect", half(LinkEvents::SIGNAL_MASK)),
        (
            "link_event_an_completed",
            half(LinkEvents::AUTONEGOTIATION_MASK),
        ),
        (
            "link_event_module_qual_fail",
            half(LinkEvents::MODULE_UNQUALIFIED_MASK),
        ),
        (
            "link_event_port_tx_suspended",
            half(LinkEvents::PORT_SUSPENDED_MASK),
        ),
        (
            "link_event_phy_fw_load_fail",
            half(LinkEvents::PHY_LOAD_MASK),
        ),
    ]
}

#[test]
fn states_of_the_link_are_those_of_the_c_headers() {
    let mut ours = link_states();
    ours.extend([
        ("link_speed_10mb", half(link::speed::MEGABITS_10)),
        ("link_speed_100mb", half(link::speed::MEGABITS_100)),
        ("link_speed_1000mb", half(link::speed::GIGABITS_1)),
        ("link_speed_2500mb", half(link::speed::GIGABITS_2_5)),
        ("link_speed_5gb", half(link::speed::GIGABITS_5)),
        ("link_speed_10gb", half(link::speed::GIGABITS_10)),
        ("link_speed_20gb", half(link::speed::GIGABITS_20)),
        ("link_speed_25gb", half(link::speed::GIGABITS_25)),
        ("link_speed_40gb", half(link::speed::GIGABITS_40)),
        ("link_speed_50gb", half(link::speed::GIGABITS_50)),
        ("link_speed_100gb", half(link::speed::GIGABITS_100)),
        ("link_speed_200gb", half(link::speed::GIGABITS_200)),
        ("link_speed_unknown", half(link::speed::UNKNOWN)),
    ]);
    // Of the link partner, which the E810 does not report; power classes, which are carried as
    // they are; values and masks that only combine others.
    let skipped = [
        "link_lp_100g_kr_272_fec_cap",
        "link_lp_10g_kr_fec_cap",
        "link_lp_10g_kr_fec_req",
        "link_lp_200g_kr_272_fec_cap",
        "link_lp_25g_kr_fec_cap",
        "link_lp_25g_kr_fec_req",
        "link_lp_50g_kr_272_fec_cap",
        "link_lp_asm_dir_adv",
        "link_lp_kr_272_fec_req",
        "link_lp_pause_adv",
        "link_lp_rs_528_fec_cap",
        "link_lp_rs_528_fec_req",
        "link_pwr_baset_high",
        "link_pwr_baset_low_high",
        "link_pwr_qsfp_class_1",
        "link_pwr_qsfp_class_2",
        "link_pwr_qsfp_class_3",
        "link_pwr_qsfp_class_4",
        "link_rs_272_fec_en",
        "link_speed_m",
        "link_tx_active",
        "link_tx_drained",
        "link_tx_flushed",
        "lse_m",
    ];
    compare("constants.link", &ours, &skipped);
}

#[test]
fn flash_commands_are_those_of_the_c_headers() {
    let preserve = |value: u8| u64::from(NvmFlags::ZERO.with_preservation(value).0);
    compare(
        "constants.nvm",
        &[
            ("nvm_last_cmd", byte(NvmFlags::LAST_MASK)),
            ("nvm_preservation_m", byte(NvmFlags::PRESERVATION_MASK)),
            ("nvm_no_preservation", preserve(0)),
            ("nvm_preserve_all", preserve(1)),
            ("nvm_preserve_selected", preserve(3)),
            ("nvm_activ_sel_nvm", byte(NvmFlags::SELECT_FIRMWARE_MASK)),
            ("nvm_activ_sel_orom", byte(NvmFlags::SELECT_ROM_MASK)),
            ("nvm_activ_sel_netlist", byte(NvmFlags::SELECT_NETLIST_MASK)),
            ("nvm_special_update", byte(NvmFlags::SPECIAL_MASK)),
            ("nvm_revert_last_activ", byte(NvmFlags::SPECIAL_MASK)),
            ("nvm_flash_only", byte(NvmFlags::FLASH_ONLY_MASK)),
            ("nvm_max_offset", u64::from(nvm::MAX_OFFSET)),
            ("nvm_start_point", half(nvm::FLAT)),
            ("nvm_checksum_verify", byte(ChecksumFlags::VERIFY_MASK)),
            ("nvm_checksum_recalc", byte(ChecksumFlags::RECALCULATE_MASK)),
            ("nvm_checksum_correct", half(nvm::CHECKSUM_CORRECT)),
        ],
        // Updating the flash: not done here.
        &[
            "nvm_activ_req_empr",
            "nvm_activ_sel_mask",
            "nvm_empr_ena",
            "nvm_empr_flag",
            "nvm_erase_len",
            "nvm_factory_default",
            "nvm_pcir_req",
            "nvm_perst_flag",
            "nvm_pkg_delete",
            "nvm_pkg_skipped",
            "nvm_por_flag",
            "nvm_reset_lvl_m",
        ],
    );
}

#[test]
fn lldp_commands_are_those_of_the_c_headers() {
    let act = byte(AgentCommand::ACT_MASK);
    compare(
        "constants.lldp",
        &[
            ("lldp_mib_type_m", byte(MibType::KIND_MASK)),
            ("lldp_brid_type_m", byte(MibType::BRIDGE_MASK)),
            ("lldp_tx_m", byte(MibType::TRANSMIT_STATE_MASK)),
            ("lldp_dcbx_m", byte(MibType::EXCHANGE_MASK)),
            ("lldp_mib_update_dis", byte(MibChange::DISABLE_MASK)),
            ("lldp_mib_pending_m", byte(MibChange::PENDING_MASK)),
            ("lldp_agent_shutdown", act),
            ("lldp_agent_start", act),
            ("lldp_agent_persist_dis", byte(AgentCommand::PERSIST_MASK)),
            ("lldp_agent_persist_ena", byte(AgentCommand::PERSIST_MASK)),
        ],
        // Plain values of the fields above, and bits of fields with one bit, as documented there.
        &[
            "lldp_filter_action_add",
            "lldp_filter_action_delete",
            "start_stop_agent_m",
            "start_stop_agent_start_dcbx",
            "start_stop_agent_stop_dcbx",
            "lldp_agent_state_mask",
            "lldp_agent_stop",
            "lldp_brid_type_nearest_brid",
            "lldp_brid_type_non_tpmr",
            "lldp_dcbx_cee",
            "lldp_dcbx_ieee",
            "lldp_dcbx_na",
            "lldp_mib_change_executed",
            "lldp_mib_change_pending",
            "lldp_mib_change_state_m",
            "lldp_mib_local",
            "lldp_mib_local_and_remote",
            "lldp_mib_pending_disable",
            "lldp_mib_pending_enable",
            "lldp_mib_remote",
            "lldp_mib_update_enable",
            "lldp_tx_active",
            "lldp_tx_flushed",
            "lldp_tx_suspended",
        ],
    );
}

#[test]
fn hash_keys_are_those_of_the_c_headers() {
    let key = RssKey::zeroed();
    compare(
        "constants.rss",
        &[
            ("rss_vsi_valid", half(RssVsi::VALID_MASK)),
            (
                "get_set_rss_key_data_rss_key_size",
                key.standard.len() as u64,
            ),
            (
                "get_set_rss_key_data_hash_key_size",
                key.extended.len() as u64,
            ),
            ("get_set_rss_key_extend_key_size", RssKey::SIZE as u64),
        ],
        &[],
    );
}

#[test]
fn queue_commands_are_those_of_the_c_headers() {
    compare(
        "constants.tx_queues",
        &[
            ("q_dis_cmd_m", byte(DisableFlags::RESET_MASK)),
            ("q_dis_cmd_no_func_reset", byte(queues::disable_reset::NONE)),
            (
                "q_dis_cmd_vm_reset",
                byte(queues::disable_reset::VIRTUAL_MACHINE),
            ),
            (
                "q_dis_cmd_vf_reset",
                byte(queues::disable_reset::VIRTUAL_FUNCTION),
            ),
            (
                "q_dis_cmd_pf_reset",
                byte(queues::disable_reset::PHYSICAL_FUNCTION),
            ),
            ("q_dis_cmd_subseq_call", byte(DisableFlags::SUBSEQUENT_MASK)),
            ("q_dis_cmd_flush_pipe", byte(DisableFlags::FLUSH_MASK)),
            (
                "q_dis_vmvf_num_m",
                half(DisableScope::VIRTUAL_FUNCTION_MASK),
            ),
            ("q_dis_timeout_m", half(DisableScope::TIMEOUT_100US_MASK)),
            (
                "q_dis_buf_elem_type_rdma_qset",
                half(DisabledQueue::RDMA_QUEUE_SET_MASK),
            ),
            (
                "q_dis_buf_elem_type_s",
                u64::from(DisabledQueue::RDMA_QUEUE_SET_SHIFT),
            ),
            ("q_cfg_subseq_call", byte(MoveFlags::SUBSEQUENT_MASK)),
            ("q_cfg_flush", byte(MoveFlags::FLUSH_MASK)),
            ("q_cfg_move_tc_chng", byte(MoveFlags::OPERATION_MASK)),
            ("q_cfg_src_prt_m", byte(PortChange::SOURCE_MASK)),
            ("q_cfg_dst_prt_m", byte(PortChange::DESTINATION_MASK)),
            ("q_cfg_timeout_m", byte(MoveTimeout::TIMEOUT_MASK)),
        ],
        // The absence of a bit, and plain values of the operation.
        &[
            "q_dis_buf_elem_type_lan_q",
            "q_cfg_move_node",
            "q_cfg_tc_chng",
        ],
    );
}

#[test]
fn package_commands_are_those_of_the_c_headers() {
    use ringside_spec::lan::admin::generic::lock_timeout_ms;
    compare(
        "constants.package",
        &[
            ("download_pkg_last_buf", byte(package::LAST_BUFFER)),
            ("res_glbl_success", half(lock_status::GRANTED)),
            ("res_glbl_in_prog", half(lock_status::IN_PROGRESS)),
            ("res_glbl_done", half(lock_status::DONE)),
            (
                "res_glbl_lock_dflt_timeout_ms",
                u64::from(lock_timeout_ms::GLOBAL_CONFIG),
            ),
        ],
        &[],
    );
}
