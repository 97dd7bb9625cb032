//! Events that a program asks for: its own, and addresses that are looked up.

use super::abi::{event, rdma_addrinfo, rdma_cm_id};
use super::endpoint::ringside_rdma_getaddrinfo;
use super::events::finish;
use super::id::{AddressList, Detail, IdObject, Notice};
use super::node::{node, push};
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use std::ffi::{c_char, c_int};

/// Look the name up by the service records of InfiniBand.
const BY_SERVICE_RECORDS: c_int = 0x10;
/// Look it up by DNS.
const BY_DNS: c_int = 0x20;

/// Puts an event of the program into the channel of an id. Errors: `EINVAL` for another event than
/// `RDMA_CM_EVENT_USER`.
///
/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_write_cm_event(
    id: *mut rdma_cm_id,
    kind: c_int,
    status: c_int,
    argument: u64,
) -> c_int {
    let _call = Uncancelled::new();
    if kind != event::USER {
        return errno::minus_one(libc::EINVAL);
    }
    let notice = Notice {
        detail: Detail::Argument(argument),
        ..Notice::new(id as usize, event::USER, status)
    };
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    answer(node().and_then(|node| {
        node.with_id(object, |_, _| {
            push(notice);
            Ok(())
        })
    }))
}

/// Looks a name up as `rdma_getaddrinfo` does; the result is an event, and then in
/// [`ringside_rdma_query_addrinfo`].
///
/// Errors: `EBUSY` until the last result was fetched; `ENOTSUP` and `EOPNOTSUPP` for service
/// records of InfiniBand, which RoCE does not have; `ENOENT` for a name that is not found.
///
/// # Safety
/// `id` is an id of this library, names are null or texts, `hints` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    name: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let _call = Uncancelled::new();
    if id.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (object, flags) = unsafe {
        (
            IdObject::of(id),
            hints.as_ref().map_or(0, |all| all.ai_flags),
        )
    };
    let private = object.private();
    let is_unfetched = private.addresses.is_some();
    if let Err(error) = private.expect_present() {
        return errno::minus_one(error);
    }
    drop(private);
    if is_unfetched {
        return errno::minus_one(libc::EBUSY);
    }
    if flags & BY_SERVICE_RECORDS != 0 {
        let is_impossible = flags & BY_DNS != 0 || !name.is_null();
        return errno::minus_one(match is_impossible {
            true => libc::ENOTSUP,
            false => libc::EOPNOTSUPP,
        });
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: the caller's promise; a live place.
    match unsafe { ringside_rdma_getaddrinfo(name, service, hints, &raw mut list) } {
        0 => {}
        -1 => return -1,
        _ => return errno::minus_one(libc::ENOENT),
    }
    // SAFETY: just made.
    let found = unsafe { AddressList::own(list) };
    let told = node().and_then(|node| {
        node.with_id(object, |_, _| {
            object.private().addresses = Some(found);
            push(Notice::new(id as usize, event::ADDRINFO_RESOLVED, 0));
            Ok(())
        })
    });
    match told {
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { finish(id) },
        Err(error) => errno::minus_one(error),
    }
}

/// Fetches the addresses that were looked up: the program frees them. Errors: `ENOENT` without
/// some.
///
/// # Safety
/// `id` is null or an id of this library, `into` null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    into: *mut *mut rdma_addrinfo,
) -> c_int {
    let _call = Uncancelled::new();
    if id.is_null() || into.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let found = unsafe { IdObject::of(id) }.private().addresses.take();
    match found {
        Some(found) => {
            // SAFETY: the caller's place.
            unsafe { *into = found.release() };
            0
        }
        None => errno::minus_one(libc::ENOENT),
    }
}
