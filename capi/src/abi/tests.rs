//! Every field of every structure against what the headers of rdma-core 44 to 65 say.

use super::*;
use crate::device::lock;
use serde_json::Value;
use std::mem::{offset_of, size_of};
use std::sync::Mutex;

fn layout(name: &str) -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/vectors/verbs_abi.json"
    );
    let text = std::fs::read_to_string(path).expect("tests/vectors/verbs_abi.json");
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let wanted = [
        format!("struct_layout.{name}"),
        format!("struct_layout.{name}@65.0"),
    ];
    let found = all
        .into_iter()
        .find(|one| wanted.iter().any(|name| one["name"] == name.as_str()));
    found.unwrap_or_else(|| panic!("no layout of {name}"))["decoded"].take()
}

/// A structure as this library has it.
#[derive(Clone)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) size: usize,
    /// names and offsets
    pub(crate) fields: Vec<(String, usize)>,
}

/// Every structure that was checked.
static RECORD: Mutex<Vec<Layout>> = Mutex::new(Vec::new());

/// The structures that were checked.
pub(crate) fn recorded() -> Vec<Layout> {
    lock(&RECORD).clone()
}

/// Checks every structure of verbs.
pub(crate) fn record_all() {
    objects_have_the_layout_of_the_headers();
    extended_objects_have_the_layout_of_the_headers();
    attributes_have_the_layout_of_the_headers();
    requests_and_completions_have_the_layout_of_the_headers();
    the_table_before_a_context_has_the_places_of_the_headers();
}

fn record(name: &str, size: usize, fields: &[(&str, usize)]) {
    let fields = fields
        .iter()
        .map(|(field, offset)| ((*field).to_owned(), *offset));
    let (name, fields) = (name.to_owned(), fields.collect());
    lock(&RECORD).push(Layout { name, size, fields });
}

pub(crate) fn check(name: &str, size: usize, fields: &[(&str, usize)]) {
    record(name, size, fields);
    let layout = layout(name);
    assert_eq!(layout["size"], size, "size of {name}");
    for (field, offset) in fields {
        let all = layout["fields"].as_array().expect("fields");
        let found = all.iter().find(|one| one["field"] == *field);
        let found = found.unwrap_or_else(|| panic!("{name} has no {field}"));
        assert_eq!(found["offset"], *offset, "{name}.{field}");
    }
}

macro_rules! same {
    ($type:ident: $($field:ident)*) => {
        check(
            stringify!($type),
            size_of::<$type>(),
            &[$((stringify!($field), offset_of!($type, $field))),*],
        );
    };
}

#[test]
fn objects_have_the_layout_of_the_headers() {
    same!(ibv_device: node_type transport_type name dev_name dev_path ibdev_path);
    same!(ibv_context: device ops cmd_fd async_fd num_comp_vectors mutex abi_compat);
    same!(ibv_context_ops: alloc_mw bind_mw dealloc_mw poll_cq req_notify_cq post_srq_recv
        post_send post_recv);
    same!(ibv_pd: context handle);
    same!(ibv_mr: context pd addr length handle lkey rkey);
    same!(ibv_mw: context pd rkey handle);
    let kind = ("type", offset_of!(ibv_mw, kind));
    check("ibv_mw", size_of::<ibv_mw>(), &[kind]);
    same!(ibv_mw_bind_info: mr addr length mw_access_flags);
    same!(ibv_mw_bind: wr_id send_flags bind_info);
    same!(ibv_mr_init_attr: length access comp_mask iova addr fd fd_offset dmah buf);
    same!(ibv_comp_channel: context fd refcnt);
    same!(ibv_cq: context channel cq_context handle cqe mutex cond comp_events_completed
        async_events_completed);
    same!(ibv_qp: context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond
        events_completed);
    same!(ibv_ah: context pd handle);
    same!(ibv_srq: context srq_context pd handle mutex cond events_completed);
    same!(ibv_srq_attr: max_wr max_sge srq_limit);
    same!(ibv_srq_init_attr: srq_context attr);
    same!(ibv_td: context);
    record("ibv_gid", size_of::<ibv_gid>(), &[("raw", 0)]);
}

#[test]
fn extended_objects_have_the_layout_of_the_headers() {
    same!(ibv_cq_ex: comp_mask status wr_id start_poll next_poll end_poll read_opcode
        read_vendor_err read_byte_len read_imm_data read_qp_num read_src_qp read_wc_flags read_slid
        read_sl read_dlid_path_bits read_completion_ts read_cvlan read_flow_tag read_tm_info
        read_completion_wallclock_ns);
    same!(ibv_qp_ex: qp_base comp_mask wr_id wr_flags wr_atomic_cmp_swp wr_atomic_fetch_add
        wr_bind_mw wr_local_inv wr_rdma_read wr_rdma_write wr_rdma_write_imm wr_send wr_send_imm
        wr_send_inv wr_send_tso wr_set_ud_addr wr_set_xrc_srqn wr_set_inline_data
        wr_set_inline_data_list wr_set_sge wr_set_sge_list wr_start wr_complete wr_abort
        wr_atomic_write wr_flush);
    same!(ibv_cq_init_attr_ex: cqe cq_context channel comp_vector wc_flags comp_mask flags
        parent_domain);
    same!(ibv_td_init_attr: comp_mask);
    same!(ibv_parent_domain_init_attr: pd td comp_mask alloc free pd_context);
    same!(ibv_poll_cq_attr: comp_mask);
    same!(ibv_data_buf: addr length);
    assert_eq!(size_of::<ibv_cq>(), offset_of!(ibv_cq_ex, comp_mask));
}

#[test]
fn attributes_have_the_layout_of_the_headers() {
    same!(ibv_device_attr: fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id
        vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe
        max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom
        max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp
        max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr
        max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt);
    same!(ibv_device_attr_ex: orig_attr comp_mask odp_caps completion_timestamp_mask hca_core_clock
        device_cap_flags_ex max_wq_type_rq packet_pacing_caps raw_packet_caps tm_caps cq_mod_caps
        max_dm_size pci_atomic_caps xrc_odp_caps phys_port_cnt_ex);
    same!(ibv_port_attr: state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz
        bad_pkey_cntr qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout
        init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2
        active_speed_ex);
    same!(ibv_gid_entry: gid gid_index port_num gid_type ndev_ifindex);
    same!(ibv_global_route: dgid flow_label sgid_index hop_limit traffic_class);
    same!(ibv_ah_attr: grh dlid sl src_path_bits static_rate is_global port_num);
    same!(ibv_qp_cap: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    same!(ibv_qp_init_attr: qp_context send_cq recv_cq srq cap qp_type sq_sig_all);
    same!(ibv_qp_init_attr_ex: qp_context send_cq recv_cq srq cap qp_type sq_sig_all comp_mask pd
        xrcd create_flags max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags);
    same!(ibv_qp_attr: qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
        qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify
        sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt
        rnr_retry alt_port_num alt_timeout rate_limit);
}

#[test]
fn requests_and_completions_have_the_layout_of_the_headers() {
    same!(ibv_wc: wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags
        pkey_index slid sl dlid_path_bits);
    same!(ibv_sge: addr length lkey);
    same!(ibv_send_wr: wr_id next sg_list num_sge opcode send_flags imm_data wr qp_type);
    same!(ibv_recv_wr: wr_id next sg_list num_sge);
    same!(ibv_async_event: element event_type);
}

#[test]
fn the_table_before_a_context_has_the_places_of_the_headers() {
    let layout = layout("verbs_context");
    assert_eq!(layout["size"], size_of::<verbs_context>());
    let context = offset_of!(verbs_context, context);
    let places = [
        (320, offset_of!(verbs_context, query_port)),
        (208, offset_of!(verbs_context, alloc_parent_domain)),
        (200, offset_of!(verbs_context, dealloc_td)),
        (192, offset_of!(verbs_context, alloc_td)),
        (184, offset_of!(verbs_context, modify_cq)),
        (120, offset_of!(verbs_context, create_cq_ex)),
        (104, offset_of!(verbs_context, query_device_ex)),
        (56, offset_of!(verbs_context, create_qp_ex)),
        (40, offset_of!(verbs_context, create_srq_ex)),
        (24, offset_of!(verbs_context, close_xrcd)),
        (8, offset_of!(verbs_context, size)),
    ];
    for (before, place) in places {
        assert_eq!(context - place, before);
    }
    macro_rules! table {
        ($($field:ident)*) => {
            &[$((stringify!($field), offset_of!(verbs_context, $field))),*]
        };
    }
    let fields = table!(query_port alloc_parent_domain dealloc_td alloc_td modify_cq post_srq_ops
        create_cq_ex query_device_ex open_qp create_qp_ex get_srq_num create_srq_ex open_xrcd
        close_xrcd context);
    record("verbs_context", size_of::<verbs_context>(), fields);
}
