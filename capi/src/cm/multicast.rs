//! Multicast groups of ids.

use super::abi::{event, rdma_cm_id, rdma_cm_join_mc_attr_ex};
use super::events::{drop_event_of, finish};
use super::id::{Detail, Group, IdObject, Notice, Reads, notices_of};
use super::node::{node, push};
use super::{route, socket_address};
use crate::abi::kind;
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use crate::groups;
use crate::live::{self, Kind};
use crate::queue_pair::QueuePairObject;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::sync::Arc;

/// # Safety
/// `id` is an id of this library; `address` is a socket address.
unsafe fn join(
    id: *mut rdma_cm_id,
    address: *const libc::sockaddr,
    is_sender_only: bool,
    context: *mut c_void,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let group = unsafe { socket_address::read(address) }
        .ok_or(libc::EINVAL)?
        .ip();
    let IpAddr::V4(four) = group else {
        return Err(libc::ENOTSUP);
    };
    if !four.is_multicast() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    if object.public.qp_type != kind::UD {
        return Err(libc::EINVAL);
    }
    let private = object.private();
    private.expect_present()?;
    let local = private.local.ok_or(libc::EINVAL)?;
    let class = private.traffic_class;
    drop(private);
    let node = node()?;
    let port = node.port();
    let vlan = port.vlan_towards(local.ip(), group);
    let vector = route::towards(&port, local.ip(), group, class);
    let vector = vector.ok_or(libc::EADDRNOTAVAIL)?;
    // SAFETY: the id's own queue pair.
    let is_attached = unsafe { !(*id).qp.is_null() && !is_sender_only };
    if is_attached {
        // SAFETY: as above.
        let pair = unsafe { QueuePairObject::of((*id).qp) };
        groups::attach(pair, &[(group, vlan)])?;
    }
    let joined = Group {
        address: group,
        vlan,
        is_attached,
        is_for_sending: is_sender_only,
        reads: Arc::default(),
    };
    let notice = Notice {
        detail: Detail::Group {
            route: vector,
            context: context.expose_provenance(),
            reads: Arc::clone(&joined.reads),
        },
        ..Notice::new(id as usize, event::MULTICAST_JOIN, 0)
    };
    let added = node.with_id(object, |_, _| {
        object.private().groups.push(joined.clone());
        push(notice);
        Ok(())
    });
    if added.is_err() && is_attached {
        // SAFETY: the caller's promise.
        unsafe { detach(id, &joined) };
    }
    added
}

/// Ends the membership of the id's queue pair, also one that the program itself has attached.
/// Source: `rdma_leave_multicast` of rdma-core 56, which leaves out groups that are only sent to.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn detach(id: *mut rdma_cm_id, group: &Group) {
    // SAFETY: the caller's promise.
    unsafe {
        if !group.is_for_sending && live::expect((*id).qp, &[Kind::QueuePair]).is_ok() {
            let pair = QueuePairObject::of((*id).qp);
            // The program may have detached it.
            let _ = groups::detach(pair, |one| *one == (group.address, group.vlan));
        }
    }
}

/// # Safety
/// `id` is an id of this library; `address` is a socket address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *const libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match join(id, address, false, context) {
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// # Safety
/// `id` is an id of this library; `wanted` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    wanted: *const rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let _call = Uncancelled::new();
    const ADDRESS_AND_FLAGS: u32 = 3;
    // SAFETY: the caller's promise.
    unsafe {
        if (*wanted).comp_mask > ADDRESS_AND_FLAGS {
            return errno::minus_one(libc::ENOTSUP);
        }
        if (*wanted).comp_mask != ADDRESS_AND_FLAGS || (*wanted).join_flags > 1 {
            return errno::minus_one(libc::EINVAL);
        }
        match join(id, (*wanted).addr, (*wanted).join_flags == 1, context) {
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// Leaves a group. Waits until the program has acknowledged the event of joining, if it has read
/// it: the value that the event names may be freed afterwards.
///
/// # Safety
/// `id` is an id of this library; `address` is a socket address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_leave_multicast(
    id: *mut rdma_cm_id,
    address: *const libc::sockaddr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let result = unsafe {
        let group = socket_address::read(address).map(|group| group.ip());
        let group = group.ok_or(libc::EINVAL);
        group.and_then(|group| {
            IdObject::of(id).private().expect_present()?;
            let reads = leave(id, group)?;
            drop_event_of(id, &reads);
            reads.wait();
            Ok(())
        })
    };
    answer(result)
}

/// Discards the event of joining if it was not read: its context may be gone. Returns those that
/// were read.
///
/// Errors: `EADDRNOTAVAIL` if the id did not join the group.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn leave(id: *mut rdma_cm_id, group: IpAddr) -> Result<Arc<Reads>, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut private = IdObject::of(id).private();
        let place = private.groups.iter().position(|one| one.address == group);
        let left = private.groups.remove(place.ok_or(libc::EADDRNOTAVAIL)?);
        // A command to the device: no call for another id waits for it.
        drop(private);
        detach(id, &left);
        let joins = |notice: &Notice| match &notice.detail {
            Detail::Group { reads, .. } => Arc::ptr_eq(reads, &left.reads),
            _ => false,
        };
        // No other thread moves the id to another channel meanwhile.
        node()?.with(|_, _| {
            if let Some(notices) = notices_of(id) {
                notices.withdraw(joins);
            }
        });
        Ok(left.reads)
    }
}

/// Leaves all groups.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn leave_all(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let groups = IdObject::of(id).private().groups.clone();
        for group in groups {
            // Of the id's own list: it joined each of them.
            let _ = leave(id, group.address);
        }
    }
}
