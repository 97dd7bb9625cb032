//! Every field of every structure against what the headers of rdma-core 44 to 65 say.

use super::*;
use crate::abi::layout_tests::check;
use std::mem::{offset_of, size_of};

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
pub(super) fn structures_of_the_connection_manager_have_the_layout_of_the_headers() {
    same!(rdma_ib_addr: sgid dgid pkey);
    same!(rdma_addr: src_storage dst_storage addr);
    same!(rdma_route: addr path_rec num_paths);
    same!(rdma_event_channel: fd);
    same!(rdma_cm_id: verbs channel context qp route ps port_num event send_cq_channel send_cq
        recv_cq_channel recv_cq srq pd qp_type);
    same!(rdma_conn_param: private_data private_data_len responder_resources initiator_depth
        flow_control retry_count rnr_retry_count srq qp_num);
    same!(rdma_ud_param: private_data private_data_len ah_attr qp_num qkey);
    same!(rdma_cm_event: id listen_id event status param);
    same!(rdma_addrinfo: ai_flags ai_family ai_qp_type ai_port_space ai_src_len ai_dst_len
        ai_src_addr ai_dst_addr ai_src_canonname ai_dst_canonname ai_route_len ai_route
        ai_connect_len ai_connect ai_next);
    same!(rdma_cm_join_mc_attr_ex: comp_mask join_flags addr);
    same!(ibv_sa_path_rec: dgid sgid dlid slid raw_traffic flow_label hop_limit traffic_class
        reversible numb_path pkey sl mtu_selector mtu rate_selector rate
        packet_life_time_selector packet_life_time preference);
}
