//! The verbs objects of a connection, and posts to its queue pair.

use crate::abi::{
    ibv_comp_channel, ibv_cq, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge,
    kind, request,
};
use crate::channel::last_error;
use crate::cm::abi::rdma_cm_id;
use crate::cm::{ringside_rdma_create_qp, ringside_rdma_destroy_qp};
use crate::completion::{ibv_create_cq, ibv_destroy_cq};
use crate::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::post::{post_recv, post_send};
use crate::rsocket::wire::{MAPPING_BYTES, Target};
use std::ffi::c_int;

/// Requests of a receive have this bit in their number.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Sizes that a program chooses before it connects.
#[derive(Clone, Copy, Debug)]
pub(in crate::rsocket) struct Sizes {
    pub(in crate::rsocket) send_requests: u16,
    pub(in crate::rsocket) receives: u16,
    pub(in crate::rsocket) inline_bytes: u32,
    pub(in crate::rsocket) send_bytes: u32,
    pub(in crate::rsocket) receive_bytes: u32,
    pub(in crate::rsocket) mappings: u16,
}

/// Queue pair, completion queue and channel of a connection.
pub(super) struct Endpoint {
    pub(super) id: *mut rdma_cm_id,
    pub(super) queue: *mut ibv_cq,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) inline_bytes: u32,
}

impl Endpoint {
    /// # Safety
    /// `id` is an id of this library with a route and without a queue pair, and outlives this.
    pub(super) unsafe fn make(id: *mut rdma_cm_id, sizes: &Sizes) -> Result<Self, c_int> {
        // SAFETY: the caller's promise; what is made here is used at once.
        unsafe {
            let channel = ibv_create_comp_channel((*id).verbs);
            if channel.is_null() {
                return Err(last_error());
            }
            libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
            let entries = c_int::from(sizes.send_requests) + c_int::from(sizes.receives);
            let mut made = Self {
                id,
                queue: ibv_create_cq((*id).verbs, entries, id.cast(), channel, 0),
                channel,
                inline_bytes: 0,
            };
            if made.queue.is_null() {
                return Err(last_error());
            }
            let mut init = ibv_qp_init_attr {
                qp_context: std::ptr::null_mut(),
                send_cq: made.queue,
                recv_cq: made.queue,
                srq: std::ptr::null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: sizes.send_requests.into(),
                    max_recv_wr: sizes.receives.into(),
                    max_send_sge: 2,
                    max_recv_sge: 1,
                    max_inline_data: sizes.inline_bytes.max(MAPPING_BYTES as u32),
                },
                qp_type: kind::RC,
                sq_sig_all: 1,
            };
            if ringside_rdma_create_qp(id, std::ptr::null_mut(), &raw mut init) != 0 {
                return Err(last_error());
            }
            made.inline_bytes = init.cap.max_inline_data.min(sizes.inline_bytes);
            Ok(made)
        }
    }

    pub(super) fn post_receives(&self, count: u16) -> Result<(), c_int> {
        for _ in 0..count {
            let mut wanted = ibv_recv_wr {
                wr_id: RECEIVE,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
                padding: 0,
            };
            let mut refused = std::ptr::null_mut();
            // SAFETY: the queue pair of the id; a live request.
            let result = unsafe { post_recv((*self.id).qp, &raw mut wanted, &raw mut refused) };
            if result != 0 {
                return Err(result);
            }
        }
        Ok(())
    }

    /// Posts an RDMA write of up to two parts.
    pub(super) fn post_write(
        &self,
        number: u64,
        parts: &mut [ibv_sge],
        flags: u32,
        target: Target,
        immediate: Option<u32>,
    ) -> Result<(), c_int> {
        let opcode = match immediate {
            Some(_) => request::RDMA_WRITE_WITH_IMM,
            None => request::RDMA_WRITE,
        };
        let mut wanted = ibv_send_wr {
            wr_id: number,
            next: std::ptr::null_mut(),
            sg_list: parts.as_mut_ptr(),
            num_sge: parts.len() as c_int,
            opcode,
            send_flags: flags,
            imm_data: immediate.unwrap_or(0).to_be(),
            wr: [target.address, target.key.into(), 0, 0],
            qp_type: 0,
            padding: 0,
            rest: [0; 6],
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair of the id; a live request; the parts lie in registered memory or
        // are read before the call returns.
        match unsafe { post_send((*self.id).qp, &raw mut wanted, &raw mut refused) } {
            0 => Ok(()),
            error => Err(error),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: made here; the queue pair goes before its queue, and that before its channel.
        unsafe {
            ringside_rdma_destroy_qp(self.id);
            if !self.queue.is_null() {
                ibv_destroy_cq(self.queue);
            }
            ibv_destroy_comp_channel(self.channel);
        }
    }
}
