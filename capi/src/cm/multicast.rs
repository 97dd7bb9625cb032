//! Multicast groups of ids.

use super::abi::{DATAGRAM_KEY, event, rdma_cm_id, rdma_cm_join_mc_attr_ex};
use super::events::finish;
use super::id::{Detail, Group, IdObject, Notice, notices_of};
use super::node::{node, push};
use super::{route, socket_address};
use crate::abi::kind;
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use crate::gid::gid_of;
use crate::groups;
use crate::live::{self, Kind};
use crate::queue_pair::QueuePairObject;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;

/// Queue pair of datagrams to a group.
const GROUP_QUEUE_PAIR: u32 = 0xFF_FFFF;

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
    let mut private = object.private();
    let local = private.local.ok_or(libc::EINVAL)?;
    let class = private.traffic_class;
    let port = node()?.port();
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
    private.groups.push(Group {
        address: group,
        vlan,
        is_attached,
        is_for_sending: is_sender_only,
    });
    drop(private);
    push(Notice {
        detail: Detail::Datagram {
            route: vector,
            queue_pair: GROUP_QUEUE_PAIR,
            queue_key: DATAGRAM_KEY,
            context: context.expose_provenance(),
        },
        ..Notice::new(id as usize, event::MULTICAST_JOIN, 0)
    });
    Ok(())
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
        group.and_then(|group| leave(id, group))
    };
    answer(result)
}

/// Discards the event of joining if it was not read: its context may be gone.
///
/// Errors: `EADDRNOTAVAIL` if the id did not join the group.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn leave(id: *mut rdma_cm_id, group: IpAddr) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut private = IdObject::of(id).private();
        let place = private.groups.iter().position(|one| one.address == group);
        let left = private.groups.remove(place.ok_or(libc::EADDRNOTAVAIL)?);
        if left.is_attached && live::expect((*id).qp, &[Kind::QueuePair]).is_ok() {
            let pair = QueuePairObject::of((*id).qp);
            // The program may have detached it.
            let _ = groups::detach(pair, |one| *one == (group, left.vlan));
        }
        drop(private);
        let gid = gid_of(group);
        let joins = |notice: &Notice| match &notice.detail {
            Detail::Datagram { route, .. } => {
                notice.event == event::MULTICAST_JOIN && route.grh.dgid.raw == gid.raw
            }
            _ => false,
        };
        if let Some(notices) = notices_of(id) {
            notices.withdraw(|notice| notice.id == id as usize && joins(notice));
        }
        Ok(())
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
