//! Shared receive queues of ids.

use super::abi::rdma_cm_id;
use crate::abi::{ibv_pd, ibv_srq_attr, ibv_srq_init_attr};
use crate::cancel::Uncancelled;
use crate::errno;
use crate::shared::{ibv_create_srq, ibv_destroy_srq};
use std::ffi::{c_int, c_void};

/// `ibv_srq_init_attr_ex` as far as basic queues use it (`infiniband/verbs.h`).
#[repr(C)]
pub struct ExtendedInit {
    srq_context: *mut c_void,
    attr: ibv_srq_attr,
    comp_mask: u32,
    srq_type: c_int,
    pd: *mut ibv_pd,
}

/// Members that are set: bits of `comp_mask`.
mod given {
    pub(super) const KIND: u32 = 1 << 0;
    pub(super) const DOMAIN: u32 = 1 << 1;
}

const BASIC: c_int = 0;

/// Makes a shared receive queue for the queue pair of an id.
///
/// Errors: `EINVAL` without a domain.
///
/// # Safety
/// `id` is an id of this library; `domain` is null or a domain; `init` is valid.
unsafe fn create(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let public = unsafe { &mut *id };
    let domain = if domain.is_null() { public.pd } else { domain };
    if domain.is_null() || !public.srq.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: a domain of this library.
    if unsafe { (*domain).context } != public.verbs {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let made = unsafe { ibv_create_srq(domain, init) };
    if made.is_null() {
        return Err(crate::channel::last_error());
    }
    if public.pd.is_null() {
        public.pd = domain;
    }
    public.srq = made.cast::<c_void>();
    Ok(())
}

/// # Safety
/// `id` is an id of this library; `domain` is null or a domain; `init` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_srq(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    errno::answer(unsafe { create(id, domain, init) })
}

/// Errors: `EOPNOTSUPP` for another kind than the basic one.
///
/// # Safety
/// `id` is an id of this library; `init` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    init: *mut ExtendedInit,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let init = unsafe { &mut *init };
    if init.comp_mask & given::KIND == 0 {
        return errno::minus_one(libc::EINVAL);
    }
    if init.srq_type != BASIC || init.comp_mask & !(given::KIND | given::DOMAIN) != 0 {
        return errno::minus_one(libc::EOPNOTSUPP);
    }
    let mut domain = std::ptr::null_mut();
    if init.comp_mask & given::DOMAIN != 0 {
        domain = init.pd;
    }
    let mut plain = ibv_srq_init_attr {
        srq_context: init.srq_context,
        attr: init.attr,
    };
    // SAFETY: the caller's promise.
    let made = unsafe { create(id, domain, &raw mut plain) };
    init.attr = plain.attr;
    if made.is_ok() && domain.is_null() {
        // The domain that was chosen, as rdma-core tells it.
        // SAFETY: the caller's promise.
        init.pd = unsafe { (*id).pd };
        init.comp_mask |= given::DOMAIN;
    }
    errno::answer(made)
}

/// # Safety
/// `id` is an id of this library, whose queue pair is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_destroy_srq(id: *mut rdma_cm_id) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        if !(*id).srq.is_null() && ibv_destroy_srq((*id).srq.cast()) == 0 {
            (*id).srq = std::ptr::null_mut();
        }
    }
}
