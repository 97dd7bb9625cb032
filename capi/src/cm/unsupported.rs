//! Features of `librdmacm.so.1` that ringside does not have: polling of sockets by a set of
//! their own, vendor options.

use super::abi::rdma_cm_id;
use crate::cancel::Uncancelled;
use crate::errno;
use std::ffi::c_int;

/// Refuses a call that returns a number.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rdma_refuse() -> isize {
    let _call = Uncancelled::new();
    errno::set(libc::EOPNOTSUPP);
    -1
}

/// The vendor's options of a connection: there are none. Errors: `EINVAL` for an id with a queue
/// pair, whose options are the library's.
///
/// # Safety
/// `id` is null or an id of this library; `into` is null or a place for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    into: *mut [u32; 3],
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    if into.is_null() || unsafe { id.as_ref() }.is_none_or(|id| !id.qp.is_null()) {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { *into = [0; 3] };
    0
}
