//! Features of `librdmacm.so.1` that ringside does not have: polling of sockets by a set of
//! their own, vendor options.

use crate::cancel::Uncancelled;
use crate::errno;
use std::ffi::{c_int, c_void};

/// Refuses a call that returns a number.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rdma_refuse() -> isize {
    let _call = Uncancelled::new();
    errno::set(libc::EOPNOTSUPP);
    -1
}

/// The vendor's options of a connection: there are none.
///
/// # Safety
/// `into` is a place for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_remote_ece(
    _: *mut c_void,
    into: *mut [u32; 3],
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { *into = [0; 3] };
    0
}
