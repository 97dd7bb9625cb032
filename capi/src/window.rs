//! Memory windows: the slots behind `ibv_alloc_mw`, `ibv_bind_mw` and `ibv_dealloc_mw`.
//!
//! A program binds a window of type 1 by `ibv_bind_mw`, which gives it the next key. It binds one
//! of type 2 by a request of the send queue, under a key that it names itself. What a bind may open
//! is judged by the device: the request fails with `IBV_WC_MW_BIND_ERR`.

use crate::abi::{ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_send_wr, request, window};
use crate::bind;
use crate::cancel::Uncancelled;
use crate::context_object::ContextObject;
use crate::errno;
use crate::live::{self, Kind};
use crate::memory::DomainObject;
use crate::post::post_send;
use ringside_pmd::rdma::{MemoryWindow, RdmaError, WindowKind};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

#[repr(C)]
struct WindowObject {
    public: ibv_mw,
    /// nothing once it was destroyed
    window: Option<MemoryWindow>,
}

/// The slot behind `ibv_alloc_mw`.
///
/// Errors: `EINVAL` for a type that does not exist.
///
/// # Safety
/// `domain` is one of this library.
pub(crate) unsafe extern "C" fn alloc_mw(domain: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    let _call = Uncancelled::new();
    let wanted = match kind {
        window::TYPE_1 => WindowKind::One,
        window::TYPE_2 => WindowKind::Two,
        _ => return errno::null(libc::EINVAL),
    };
    if let Err(error) = live::expect_domain(domain) {
        return errno::null(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { DomainObject::of(domain) };
    let made = match object.domain.memory_window(wanted) {
        Ok(made) => made,
        Err(error) => return errno::null(errno::of(&error)),
    };
    object.users.fetch_add(1, Ordering::Relaxed);
    let key = made.remote_key();
    let public = ibv_mw {
        context: object.public.context,
        pd: domain,
        rkey: key,
        handle: key >> 8,
        kind,
    };
    let made = Box::new(WindowObject {
        public,
        window: Some(made),
    });
    let made = Box::into_raw(made);
    // SAFETY: as for the slot.
    let end = |window| unsafe { dealloc_mw(window as *mut _) };
    live::enter(made, Kind::Window, object.public.context, end).cast()
}

/// The slot behind `ibv_dealloc_mw`: closes and frees a window.
///
/// Errors: `EBUSY` if the device refused, or has failed and may still write: the window stays, and
/// can be deallocated later.
///
/// # Safety
/// `window` came from [`alloc_mw`].
pub(crate) unsafe extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(window, &[Kind::Window]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { &mut *window.cast::<WindowObject>() };
    // SAFETY: a context outlives its objects.
    let port = unsafe { &ContextObject::of(object.public.context).port };
    if let Err(error) = port.await_rest() {
        return errno::failed(error);
    }
    while let Some(bound) = object.window.take() {
        let Err(kept) = bound.destroy() else {
            break;
        };
        tracing::warn!(%kept, "not deallocated");
        let has_failed = matches!(kept.error, RdmaError::DeviceFailed { .. });
        object.window = kept.window.map(|window| *window);
        // The device may have failed by this command.
        if let Err(error) = port.await_rest() {
            return errno::failed(error);
        }
        if object.window.is_some() && !has_failed {
            return errno::failed(libc::EBUSY);
        }
    }
    let domain = object.public.pd;
    live::leave(window);
    // SAFETY: it is in no table any more, and the caller gives it up.
    drop(unsafe { Box::from_raw(window.cast::<WindowObject>()) });
    // SAFETY: a domain outlives its windows.
    let domain = unsafe { DomainObject::of(domain) };
    domain.users.fetch_sub(1, Ordering::Relaxed);
    0
}

/// The slot behind `ibv_bind_mw`: posts a bind of a window of type 1 under its next key.
///
/// Errors: those of `ibv_post_send`; `EPERM` if window and queue pair are of two protection
/// domains.
///
/// # Safety
/// `pair` and `window` are of this library; `wanted` is valid.
pub(crate) unsafe extern "C" fn bind_mw(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    wanted: *mut ibv_mw_bind,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (wanted, key, is_foreign) = unsafe {
        (
            &*wanted,
            next_key((*window).rkey),
            DomainObject::of((*window).pd).domain.number()
                != DomainObject::of((*pair).pd).domain.number(),
        )
    };
    if is_foreign {
        return libc::EPERM;
    }
    // SAFETY: the caller's promise.
    let mut request = ibv_send_wr {
        wr_id: wanted.wr_id,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: request::BIND_MW,
        send_flags: wanted.send_flags,
        imm_data: 0,
        wr: [0; 4],
        qp_type: 0,
        padding: 0,
        rest: bind::union_of(window, key, &wanted.bind_info),
    };
    let mut refused = std::ptr::null_mut();
    // SAFETY: the caller's promise; the request names a window and a region of this library.
    let result = unsafe { post_send(pair, &raw mut request, &raw mut refused) };
    if result == 0 {
        // SAFETY: the public field belongs to the library; programs read it after this call.
        unsafe { (*window).rkey = key };
    }
    result
}

/// The next key under the same index, as `ibv_inc_rkey` makes it.
const fn next_key(key: u32) -> u32 {
    key & !0xFF | key.wrapping_add(1) & 0xFF
}

#[cfg(test)]
mod tests {
    use super::next_key;

    #[test]
    fn the_next_key_keeps_the_index() {
        assert_eq!(next_key(0x0102_0304), 0x0102_0305);
        assert_eq!(next_key(0x0102_03FF), 0x0102_0300);
    }
}
