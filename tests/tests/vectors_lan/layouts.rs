//! Offsets and sizes of structures against the debug information of the compiled C headers.

use std::collections::BTreeSet;

use ringside_spec::lan::admin::{
    Descriptor, Generic, board::*, capabilities::*, generic::*, link::*, lldp::*, nvm::*,
    package::*, queues::*, rss::*, scheduler::*, switch::*, vsi::*,
};
use ringside_spec::lan::package::*;
use ringside_spec::lan::{Layout, receive, transmit};

use super::{Fields, vectors};

pub(crate) const COUNT: usize = 140;

/// Structures that have no counterpart of their own, and why.
const SKIPPED: &[(&str, &str)] = &[
    ("res_elem", "a number of 16 bits; AllocateResource names it"),
    ("fv", "an array of FieldVectorWord"),
    ("nvm_table", "a count of 32 bits and as many versions"),
    ("buf_table", "a count of 32 bits and as many buffers"),
    (
        "boost_key",
        "an array of two BoostKeyValue; BoostEntry has it",
    ),
];

/// C fields that overlap another one or that follow as a list of variable length, beside those
/// marked so in the vectors.
const OTHER_VIEWS: &[(&str, &str)] = &[
    ("32byte_rx_desc", "wb.qword0.hi_dword.fd_id"),
    ("32b_rx_flex_desc", "wb.flex_ts.ts_high"),
    ("32b_rx_flex_desc_nic", "flex_ts.flex.vlan_id"),
    ("32b_rx_flex_desc_nic", "flex_ts.flex.flow_id_ipv6"),
    ("32b_rx_flex_desc_nic_2", "flex_ts.flex.rsvd"),
    ("32b_rx_flex_desc_nic_2", "flex_ts.flex.flow_id_ipv6"),
    ("device_id", "id"),
];

fn ours() -> Vec<(&'static str, Vec<Layout>)> {
    let mut all = vec![
        (
            "32byte_rx_desc",
            vec![
                receive::FreeDescriptor::LAYOUT,
                receive::LegacyDescriptor::LAYOUT,
            ],
        ),
        (
            "32b_rx_flex_desc",
            vec![
                receive::FreeDescriptor::LAYOUT,
                receive::FlexDescriptor::LAYOUT,
            ],
        ),
        ("32b_rx_flex_desc_nic", vec![receive::NicDescriptor::LAYOUT]),
        (
            "32b_rx_flex_desc_nic_2",
            vec![receive::Nic2Descriptor::LAYOUT],
        ),
        ("tx_desc", vec![transmit::DataDescriptor::LAYOUT]),
        ("tx_ctx_desc", vec![transmit::ContextDescriptor::LAYOUT]),
        ("fltr_desc", vec![transmit::FilterDescriptor::LAYOUT]),
    ];
    all.extend(parameters());
    all.extend(buffers());
    all.extend(package());
    all
}

fn single(list: &[(&'static str, Layout)]) -> Vec<(&'static str, Vec<Layout>)> {
    list.iter()
        .map(|(name, layout)| (*name, vec![*layout]))
        .collect()
}

fn parameters() -> Vec<(&'static str, Vec<Layout>)> {
    single(&[
        ("desc", Descriptor::LAYOUT),
        ("generic", Generic::LAYOUT),
        ("get_ver", Version::LAYOUT),
        ("driver_ver", DriverVersion::LAYOUT),
        ("q_shutdown", QueueShutdown::LAYOUT),
        ("req_res", RequestResource::LAYOUT),
        ("list_caps", ListCapabilities::LAYOUT),
        ("manage_mac_read", ReadMac::LAYOUT),
        ("manage_mac_write", WriteMac::LAYOUT),
        ("clear_pxe", ClearPxe::LAYOUT),
        ("get_sw_cfg", GetSwitchConfig::LAYOUT),
        ("set_port_params", SetPortParameters::LAYOUT),
        ("alloc_free_res_cmd", AllocateResource::LAYOUT),
        ("add_get_update_free_vsi", VsiCommand::LAYOUT),
        ("add_update_free_vsi_resp", VsiAnswer::LAYOUT),
        ("add_get_recipe", RecipeCommand::LAYOUT),
        ("recipe_to_profile", RecipeToProfile::LAYOUT),
        ("sw_rules", SwitchRules::LAYOUT),
        ("set_query_pfc_mode", FlowControlMode::LAYOUT),
        ("get_topo", GetTopology::LAYOUT),
        ("get_set_tx_topo", TransmitTopology::LAYOUT),
        ("sched_elem_cmd", ElementCommand::LAYOUT),
        ("query_port_ets", QueryPortEts::LAYOUT),
        ("rl_profile", RateLimitCommand::LAYOUT),
        ("query_txsched_res", QuerySchedulerResources::LAYOUT),
        ("get_phy_caps", GetPhyCapabilities::LAYOUT),
        ("set_phy_cfg", SetPhyConfig::LAYOUT),
        ("set_mac_cfg", SetMacConfig::LAYOUT),
        ("restart_an", RestartAutonegotiation::LAYOUT),
        ("get_link_status", GetLinkStatus::LAYOUT),
        ("set_event_mask", SetEventMask::LAYOUT),
        ("set_mac_lb", SetMacLoopback::LAYOUT),
        ("get_link_topo", GetLinkTopology::LAYOUT),
        ("dnl_call_command", RunScript::LAYOUT),
        ("get_port_options", GetPortOptions::LAYOUT),
        ("sff_eeprom", ModuleEeprom::LAYOUT),
        ("nvm", NvmCommand::LAYOUT),
        ("nvm_checksum", NvmChecksum::LAYOUT),
        ("pf_vf_msg", MailboxMessage::LAYOUT),
        ("lldp_get_mib", LldpGetMib::LAYOUT),
        ("lldp_set_mib_change", LldpSetMibChange::LAYOUT),
        ("lldp_stop", LldpStop::LAYOUT),
        ("lldp_start", LldpStart::LAYOUT),
        ("lldp_set_local_mib", LldpSetLocalMib::LAYOUT),
        ("lldp_stop_start_specific_agent", LldpDcbAgent::LAYOUT),
        ("lldp_filter_ctrl", LldpFilterControl::LAYOUT),
        ("get_set_rss_key", RssKeyCommand::LAYOUT),
        ("get_set_rss_lut", RssTableCommand::LAYOUT),
        ("neigh_dev_req", NeighbourDeviceRequest::LAYOUT),
        ("add_txqs", AddTransmitQueues::LAYOUT),
        ("dis_txqs", DisableTransmitQueues::LAYOUT),
        ("cfg_txqs", MoveTransmitQueues::LAYOUT),
        ("add_rdma_qset", AddRdmaQueueSets::LAYOUT),
        ("download_pkg", DownloadPackage::LAYOUT),
        ("download_pkg_resp", DownloadAnswer::LAYOUT),
        ("get_pkg_info_list", GetPackageInfo::LAYOUT),
        ("driver_shared_params", DriverSharedParameters::LAYOUT),
        ("event_lan_overflow", LanOverflow::LAYOUT),
    ])
}

fn buffers() -> Vec<(&'static str, Vec<Layout>)> {
    single(&[
        ("list_caps_elem", Capability::LAYOUT),
        ("manage_mac_read_resp", MacAddress::LAYOUT),
        ("get_sw_cfg_resp_elem", SwitchElement::LAYOUT),
        ("alloc_free_res_elem", ResourceElements::LAYOUT),
        ("set_vlan_mode", SetVlanMode::LAYOUT),
        ("get_vlan_mode", GetVlanMode::LAYOUT),
        ("vsi_props", VsiProperties::LAYOUT),
        ("recipe_content", RecipeContent::LAYOUT),
        ("recipe_data_elem", RecipeElement::LAYOUT),
        ("sw_rules_elem_hdr", RuleHeader::LAYOUT),
        ("lkup_rx_tx", LookupRule::LAYOUT),
        ("lg_act", LargeAction::LAYOUT),
        ("vsi_list", VsiListRule::LAYOUT),
        ("txsched_move_grp_info_hdr", MoveHeader::LAYOUT),
        ("elem_info_bw", Bandwidth::LAYOUT),
        ("txsched_elem", Element::LAYOUT),
        ("txsched_elem_data", Node::LAYOUT),
        ("txsched_topo_grp_info_hdr", GroupHeader::LAYOUT),
        ("get_topo_elem", TopologyBranch::LAYOUT),
        ("port_ets_elem", PortEts::LAYOUT),
        ("rl_profile_elem", RateLimitProfile::LAYOUT),
        ("generic_sched_props", SchedulerProperties::LAYOUT),
        ("layer_props", LayerProperties::LAYOUT),
        ("query_txsched_res_resp", SchedulerResources::LAYOUT),
        ("get_phy_caps_data", PhyCapabilities::LAYOUT),
        ("set_phy_cfg_data", PhyConfig::LAYOUT),
        ("get_link_status_data", LinkStatus::LAYOUT),
        ("link_topo_params", TopologyParameters::LAYOUT),
        ("link_topo_addr", TopologyAddress::LAYOUT),
        ("get_port_options_elem", PortOption::LAYOUT),
        ("dnl_equa_param", EqualizerRequest::LAYOUT),
        ("dnl_equa_respon", EqualizerValue::LAYOUT),
        ("get_cee_dcb_cfg_resp", CeeConfig::LAYOUT),
        ("get_set_rss_keys", RssKey::LAYOUT),
        ("add_tx_qgrp", TransmitQueueGroup::LAYOUT),
        ("add_txqs_perq", TransmitQueue::LAYOUT),
        ("dis_txq_item", DisableGroup::LAYOUT),
        ("cfg_txqs_buf", MoveQueues::LAYOUT),
        ("cfg_txq_perq", MovedQueue::LAYOUT),
        ("add_rdma_qset_data", RdmaQueueSetGroup::LAYOUT),
        ("add_tx_rdma_qset_entry", RdmaQueueSet::LAYOUT),
        ("get_pkg_info", PackageInfo::LAYOUT),
        ("get_pkg_info_resp", PackageInfoList::LAYOUT),
    ])
}

fn package() -> Vec<(&'static str, Vec<Layout>)> {
    single(&[
        ("pkg_ver", PackageVersion::LAYOUT),
        ("pkg_hdr", PackageHeader::LAYOUT),
        ("generic_seg_hdr", SegmentHeader::LAYOUT),
        ("device_id", DeviceId::LAYOUT),
        ("device_id_entry", DeviceEntry::LAYOUT),
        ("seg", DeviceSegment::LAYOUT),
        ("run_time_cfg_seg", RuntimeSegment::LAYOUT),
        ("global_metadata_seg", MetadataSegment::LAYOUT),
        ("sign_seg", SigningSegment::LAYOUT),
        ("section_entry", SectionEntry::LAYOUT),
        ("buf_hdr", BufferHeader::LAYOUT),
        ("meta_sect", MetadataSection::LAYOUT),
        ("label", Label::LAYOUT),
        ("label_section", LabelSection::LAYOUT),
        ("fv_word", FieldVectorWord::LAYOUT),
        ("sw_fv_section", FieldVectorSection::LAYOUT),
        ("boost_key_value", BoostKeyValue::LAYOUT),
        ("boost_tcam_entry", BoostEntry::LAYOUT),
        ("boost_tcam_section", BoostSection::LAYOUT),
        ("marker_ptype_tcam_entry", MarkerEntry::LAYOUT),
        ("marker_ptype_tcam_section", MarkerSection::LAYOUT),
        ("xlt1_section", PacketGroupSection::LAYOUT),
        ("xlt2_section", VsiGroupSection::LAYOUT),
        ("prof_redir_section", RedirectSection::LAYOUT),
    ])
}

/// Structures whose fields are spread over two: the head here, and a list that ours leaves out.
const HEADS: &[(&str, &str)] = &[
    ("add_elem", "GroupHeader and Nodes"),
    ("delete_elem", "GroupHeader and ids"),
    ("move_elem", "MoveHeader and ids"),
];

fn check(name: &str, layout: &Layout, theirs: &[Fields<'_>]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for field in layout.fields {
        let found = theirs
            .iter()
            .find(|their| their.text("field") == field.c_name)
            .unwrap_or_else(|| panic!("{name}: no C field {}", field.c_name));
        let count = found.number("count").max(1);
        let size = found.number("size").max(found.number("element_size")) * count;
        assert_eq!(
            (field.offset as u64, field.size as u64),
            (found.number("offset"), size),
            "{name}.{}",
            field.c_name
        );
        seen.insert(field.c_name.to_owned());
    }
    seen
}

#[test]
fn every_field_lies_where_the_c_headers_have_it() {
    let ours = ours();
    let mut unmatched: BTreeSet<&str> = ours.iter().map(|(name, _)| *name).collect();
    assert_eq!(unmatched.len(), ours.len(), "a structure is listed twice");
    let mut run = 0;
    for vector in vectors("layout") {
        let name = vector.name().strip_prefix("layout.").expect("a layout");
        let decoded = Fields(&vector.0["decoded"]);
        let c_fields = decoded.objects("fields");
        if SKIPPED
            .iter()
            .chain(HEADS)
            .any(|(skipped, _)| *skipped == name)
        {
            continue;
        }
        let (_, layouts) = ours
            .iter()
            .find(|(ours, _)| *ours == name)
            .unwrap_or_else(|| panic!("{name} is neither checked nor skipped"));
        unmatched.remove(name);
        let mut seen = BTreeSet::new();
        for layout in layouts {
            assert_eq!(layout.size as u64, decoded.number("size"), "{name}");
            seen.append(&mut check(name, layout, &c_fields));
        }
        for field in &c_fields {
            let c_name = field.text("field");
            let covered = seen.contains(c_name)
                || field.0["flexible_array"] == true
                || c_name.starts_with("qual_modules[0].")
                || OTHER_VIEWS.contains(&(name, c_name));
            assert!(covered, "{name}.{c_name} has no field here");
        }
        run += 1;
    }
    assert!(unmatched.is_empty(), "no vectors: {unmatched:?}");
    assert_eq!(run, COUNT - SKIPPED.len() - HEADS.len());
}

#[test]
fn heads_of_lists_are_as_long_as_what_precedes_the_list() {
    let sizes = [
        ("add_elem", GroupHeader::SIZE),
        ("delete_elem", GroupHeader::SIZE),
        ("move_elem", MoveHeader::SIZE),
    ];
    for (name, size) in sizes {
        let vectors = vectors("layout");
        let vector = vectors
            .iter()
            .find(|vector| vector.name().ends_with(&format!(".{name}")))
            .unwrap_or_else(|| panic!("no vector {name}"));
        assert_eq!(
            vector.0["decoded"]["size"].as_u64(),
            Some(size as u64),
            "{name}"
        );
    }
}

#[test]
fn qualified_modules_lie_in_their_list() {
    let vectors = vectors("layout");
    let vector = vectors
        .iter()
        .find(|vector| vector.name() == "layout.get_phy_caps_data")
        .expect("the vector");
    let fields = Fields(&vector.0["decoded"]).objects("fields");
    for ours in QualifiedModule::LAYOUT.fields {
        let theirs = fields
            .iter()
            .find(|field| field.text("field") == ours.c_name)
            .unwrap_or_else(|| panic!("no {}", ours.c_name));
        let size = theirs.number("size") * theirs.number("count").max(1);
        assert_eq!(
            (ours.offset as u64 + 48, ours.size as u64),
            (theirs.number("offset"), size),
            "{}",
            ours.c_name
        );
    }
}
