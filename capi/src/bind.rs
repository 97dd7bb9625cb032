//! The request that binds a memory window.

use crate::abi::{access, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_send_wr, window};
use ringside_qp::BindWindow;
use std::ffi::c_int;

/// The union at the end of a request, for a bind.
pub(crate) fn union_of(window: *mut ibv_mw, key: u32, bind: &ibv_mw_bind_info) -> [u64; 6] {
    [
        window as u64,
        key.into(),
        bind.mr as u64,
        bind.addr,
        bind.length,
        bind.mw_access_flags.into(),
    ]
}

/// The bind that a request names.
///
/// Errors: `EINVAL` without a window or a region, and for zero-based addresses: where such a window
/// begins in its region is not documented.
///
/// # Safety
/// The objects that the request names are of this library.
pub(crate) unsafe fn bind_of(wanted: &ibv_send_wr) -> Result<BindWindow, c_int> {
    let [window, key, region, address, length_bytes, flags] = wanted.rest;
    let (window, region) = (window as *mut ibv_mw, region as *const ibv_mr);
    let flags = flags as u32 as c_int;
    if window.is_null() || region.is_null() || flags & access::ZERO_BASED != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (window_type_1, window_key, region_key) = unsafe {
        (
            (*window).kind == window::TYPE_1,
            key_of(&*window, key),
            (*region).lkey,
        )
    };
    Ok(BindWindow {
        address,
        length_bytes,
        region_key,
        window_key,
        remote_read: flags & access::REMOTE_READ != 0,
        remote_write: flags & access::REMOTE_WRITE != 0,
        virtual_address_based: true,
        window_type_1,
    }
    .without_rights_if_empty())
}

/// The key of a window once it is bound: the index is the window's, the request names the low byte.
const fn key_of(window: &ibv_mw, wanted: u64) -> u32 {
    window.rkey & !0xFF | wanted as u32 & 0xFF
}

/// Notes the key of a bind that was posted.
///
/// # Safety
/// The request was posted: its window is of this library.
pub(crate) unsafe fn note_bound(wanted: &ibv_send_wr) {
    let [window, key, ..] = wanted.rest;
    // SAFETY: the caller's promise; the public field belongs to the library.
    unsafe {
        let window = window as *mut ibv_mw;
        (*window).rkey = key_of(&*window, key);
    }
}
