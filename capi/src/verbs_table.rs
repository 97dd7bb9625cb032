//! The table of a context: the operations that programs call without a symbol.

use crate::abi::{ibv_context, ibv_context_ops, ibv_device, verbs_context};
use crate::completion::poll_cq;
use crate::completion_events::req_notify_cq;
use crate::context::{ibv_query_device, ibv_query_port, query_device_ex, query_port};
use crate::extended::create_qp_ex;
use crate::polling::create_cq_ex;
use crate::post::{post_recv, post_send};
use crate::shared_posts::post_srq_recv;
use crate::thread_domain::{alloc_parent_domain, alloc_td, dealloc_td};
use crate::unsupported::refuse_call;
use crate::window::{alloc_mw, bind_mw, dealloc_mw};
use std::ffi::c_int;

/// A new context's table. Entries that are empty make the headers' functions return `EOPNOTSUPP`;
/// those that the headers call unasked refuse by themselves.
pub(crate) fn table(
    device: *mut ibv_device,
    [cmd_fd, async_fd]: [c_int; 2],
    num_comp_vectors: c_int,
) -> verbs_context {
    verbs_context {
        newest: [None; 6],
        query_port: Some(query_port),
        advise_to_rate_limit: [None; 13],
        alloc_parent_domain: Some(alloc_parent_domain),
        dealloc_td: Some(dealloc_td),
        alloc_td: Some(alloc_td),
        modify_cq: None,
        post_srq_ops: None,
        work_queues: [None; 5],
        query_rt_values: None,
        create_cq_ex: Some(create_cq_ex),
        private: std::ptr::null_mut(),
        query_device_ex: Some(query_device_ex),
        flows: [None; 4],
        open_qp: None,
        create_qp_ex: Some(create_qp_ex),
        get_srq_num: None,
        create_srq_ex: None,
        open_xrcd: None,
        close_xrcd: Some(refuse_call),
        placeholder: 0,
        size: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: ibv_context_ops {
                query_device: Some(ibv_query_device),
                query_port: Some(ibv_query_port),
                compat_objects: [Some(refuse_call); 5],
                alloc_mw: Some(alloc_mw),
                bind_mw: Some(bind_mw),
                dealloc_mw: Some(dealloc_mw),
                compat_create_cq: Some(refuse_call),
                poll_cq: Some(poll_cq),
                req_notify_cq: Some(req_notify_cq),
                compat_queues: [Some(refuse_call); 7],
                post_srq_recv: Some(post_srq_recv),
                compat_pairs: [Some(refuse_call); 4],
                post_send: Some(post_send),
                post_recv: Some(post_recv),
                compat_rest: [Some(refuse_call); 5],
            },
            cmd_fd,
            async_fd,
            num_comp_vectors,
            mutex: [0; 5],
            abi_compat: usize::MAX,
        },
    }
}
