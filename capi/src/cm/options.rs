//! Options of ids: `rdma_set_option`.

use super::abi::rdma_cm_id;
use super::id::{IdObject, Step};
use super::node::node;
use super::ports::Owner;
use super::resolving::show_route;
use crate::abi::kind;
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use std::ffi::{c_int, c_void};

/// Bytes of a route. Source: rdma-core, `struct ibv_path_data`: flags, and a path record of 64
/// bytes.
const ROUTE_BYTES: usize = 72;

/// Flags of a route. Source: rdma-core `sa.h`, `IBV_PATH_FLAG_*`.
mod flag {
    /// for general management packets
    pub(super) const GMP: u32 = 1;
    pub(super) const PRIMARY: u32 = 1 << 1;
    pub(super) const OUTBOUND: u32 = 1 << 3;
    pub(super) const INBOUND_REVERSE: u32 = 1 << 5;
}

/// The flags of the route that is taken. Source: Linux `ucma.c`, `ucma_set_ib_path`.
const TAKEN: u32 = flag::GMP | flag::PRIMARY | flag::OUTBOUND | flag::INBOUND_REVERSE;

/// Takes a route that the program gives. The device has one route to each address, so the record
/// itself says nothing new.
///
/// # Safety
/// `id` is an id of this library; `routes` has `length` bytes.
unsafe fn set_route(
    id: *mut rdma_cm_id,
    routes: *const c_void,
    length: usize,
) -> Result<(), c_int> {
    if !length.is_multiple_of(ROUTE_BYTES) {
        return Err(libc::EINVAL);
    }
    let has_one = (0..length).step_by(ROUTE_BYTES).any(|at| {
        // SAFETY: the caller's promise; the flags come first.
        let flags = unsafe { routes.byte_add(at).cast::<u32>().read_unaligned() };
        flags == TAKEN
    });
    if !has_one {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { show_route(id) }
}

/// Changes an option of an id that has a port already.
fn change_owner(object: &IdObject, change: impl FnOnce(&mut Owner)) -> Result<(), c_int> {
    let Some(local) = object.private().local else {
        return Ok(());
    };
    let (space, id) = (object.public.ps, std::ptr::from_ref(object) as usize);
    node()?.with(|state, _| state.ports.owner(space, local.port(), id).map(change));
    Ok(())
}

/// Sets an option. A route (`RDMA_OPTION_IB_PATH`) takes the place of `rdma_resolve_route`; its
/// event is there at once, also for a synchronous id.
///
/// Errors: `EFAULT` for bytes at null; `EINVAL` for another length than that of the option, a list
/// without a route for both directions, or a state of the id in which the option cannot be set (a
/// route: before the address is resolved, or after the route is); `ENOSYS` for an unknown option.
///
/// # Safety
/// `id` is an id of this library; `value` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    let _call = Uncancelled::new();
    const OF_ID: c_int = 0;
    const OF_LINK: c_int = 1;
    const TYPE_OF_SERVICE: c_int = 0;
    const REUSE_ADDRESS: c_int = 1;
    const FAMILY_ONLY: c_int = 2;
    const ACK_TIMEOUT: c_int = 3;
    const ROUTE: c_int = 1;
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    if let Err(error) = object.private().expect_present() {
        return errno::minus_one(error);
    }
    if value.is_null() && length > 0 {
        return errno::minus_one(libc::EFAULT);
    }
    // SAFETY: the caller's promise; as many bytes are read as there are.
    let (byte, is_on) = unsafe {
        let first = if length > 0 { *value.cast::<u8>() } else { 0 };
        let is_on = length == 4 && value.cast::<c_int>().read_unaligned() != 0;
        (first, is_on)
    };
    if (level, option) == (OF_LINK, ROUTE) {
        // SAFETY: the caller's promise.
        return answer(unsafe { set_route(id, value, length) });
    }
    let mut private = object.private();
    let result = match (level, option, length) {
        (OF_ID, TYPE_OF_SERVICE, 1) => {
            private.traffic_class = byte;
            Ok(())
        }
        (OF_ID, REUSE_ADDRESS, 4)
            if private.step == Step::Made || private.step != Step::Listening && is_on =>
        {
            private.shares_port = is_on;
            drop(private);
            change_owner(object, |owner| owner.shares = is_on)
        }
        (OF_ID, FAMILY_ONLY, 4) if private.step <= Step::Bound => {
            private.family_only = Some(is_on);
            drop(private);
            change_owner(object, |owner| owner.family_only = is_on)
        }
        (OF_ID, ACK_TIMEOUT, 1) if object.public.qp_type == kind::RC => {
            private.ack_timeout = Some(byte.min(31));
            Ok(())
        }
        (OF_ID, TYPE_OF_SERVICE..=ACK_TIMEOUT, _) => Err(libc::EINVAL),
        _ => Err(libc::ENOSYS),
    };
    answer(result)
}
