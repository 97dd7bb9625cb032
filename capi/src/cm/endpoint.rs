//! Addresses by name, and endpoints: ids with address, route and queue pair in one call.

use super::abi::{event, rdma_addrinfo, rdma_cm_id, space};
use super::addressing::{create, ringside_rdma_bind_addr, ringside_rdma_destroy_id};
use super::events::{drop_event, ringside_rdma_ack_cm_event, ringside_rdma_get_cm_event};
use super::id::{AddressList, IdObject};
use super::node::node;
use super::pairs::{ringside_rdma_create_qp, ringside_rdma_destroy_qp};
use super::resolving::{ringside_rdma_resolve_addr, ringside_rdma_resolve_route};
use super::shared::ringside_rdma_destroy_srq;
use crate::abi::{ibv_pd, ibv_qp_init_attr, kind};
use crate::cancel::Uncancelled;
use crate::errno;
use std::ffi::{c_char, c_int};

/// Listens, rather than connects.
const PASSIVE: c_int = 1;
/// The name is an address.
const NUMERIC: c_int = 2;
/// The family is the named one.
const FAMILY: c_int = 8;
/// Addresses of InfiniBand.
const AF_IB: c_int = 27;
/// Time for each step of an endpoint.
const MILLISECONDS: c_int = 2000;

/// A copy of a socket address that `free` takes; null for null.
///
/// # Safety
/// `address` is null or has `length` bytes.
unsafe fn copied(address: *const libc::sockaddr, length: u32) -> *mut libc::sockaddr {
    if address.is_null() || length == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise; the copy has room for all bytes.
    unsafe {
        let copy = libc::malloc(length as usize);
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(address.cast::<u8>(), copy.cast(), length as usize);
        }
        copy.cast()
    }
}

fn no_information() -> rdma_addrinfo {
    // SAFETY: pointers and numbers: all zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Looks a name up.
///
/// # Safety
/// Names are null or texts, `hints` is null or valid, `into` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    into: *mut *mut rdma_addrinfo,
) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = node() {
        return errno::minus_one(error);
    }
    if name.is_null() && service.is_null() && hints.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let hints = unsafe { hints.as_ref() };
    let mut made = no_information();
    if let Some(hints) = hints {
        made.ai_flags = match name.is_null() && service.is_null() {
            true => hints.ai_flags,
            false => hints.ai_flags & PASSIVE,
        };
        made.ai_family = hints.ai_family;
        made.ai_qp_type = hints.ai_qp_type;
        made.ai_port_space = hints.ai_port_space;
    }
    if !name.is_null() || !service.is_null() {
        // SAFETY: the caller's promise.
        let looked_up = unsafe { look_up(name, service, hints, &mut made) };
        if looked_up != 0 {
            return looked_up;
        }
    } else if let Some(hints) = hints {
        // SAFETY: the caller's promise.
        made.ai_dst_addr = unsafe { copied(hints.ai_dst_addr, hints.ai_dst_len) };
        made.ai_dst_len = hints.ai_dst_len;
    }
    if let Some(hints) = hints
        && made.ai_src_addr.is_null()
    {
        // SAFETY: the caller's promise.
        made.ai_src_addr = unsafe { copied(hints.ai_src_addr, hints.ai_src_len) };
        made.ai_src_len = hints.ai_src_len;
    }
    // SAFETY: room for the value; the caller's place. Nothing else owns the addresses.
    unsafe {
        let list = libc::malloc(size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
        if list.is_null() {
            libc::free(made.ai_src_addr.cast());
            libc::free(made.ai_dst_addr.cast());
            return errno::minus_one(libc::ENOMEM);
        }
        list.write(made);
        *into = list;
    }
    0
}

/// The hints of the C library: the kind of queue pairs is one of sockets, and the port space a
/// protocol. The C library refuses two that do not fit.
fn wanted(hints: &rdma_addrinfo) -> libc::addrinfo {
    let flags = hints.ai_flags;
    // SAFETY: numbers and pointers: all zero is a value.
    let mut asked: libc::addrinfo = unsafe { std::mem::zeroed() };
    asked.ai_family = match hints.ai_family {
        // rdma-core reads a GID if both flags are set, and otherwise takes it for any family.
        AF_IB if flags & (FAMILY | NUMERIC) != FAMILY | NUMERIC => libc::AF_UNSPEC,
        family => family,
    };
    asked.ai_socktype = match hints.ai_qp_type {
        kind::RC | kind::UC | kind::XRC_SEND | kind::XRC_RECEIVE => libc::SOCK_STREAM,
        kind::UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    asked.ai_protocol = match (hints.ai_port_space, asked.ai_socktype) {
        (space::TCP, _) | (space::IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (space::UDP | space::IPOIB, _) | (space::IB, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
        _ => 0,
    };
    for (ours, theirs) in [(PASSIVE, libc::AI_PASSIVE), (NUMERIC, libc::AI_NUMERICHOST)] {
        if flags & ours != 0 {
            asked.ai_flags |= theirs;
        }
    }
    asked
}

/// # Safety
/// Names are null or texts.
unsafe fn look_up(
    name: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    made: &mut rdma_addrinfo,
) -> c_int {
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let asked = hints.map(wanted);
    let asked = asked
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref::<libc::addrinfo>);
    let mut found: *mut libc::addrinfo = std::ptr::null_mut();
    // SAFETY: the caller's promise; live places.
    let result = unsafe { libc::getaddrinfo(name, service, asked, &raw mut found) };
    if result != 0 {
        return result;
    }
    // SAFETY: the list that was just made; its first entry exists.
    unsafe {
        let first = &*found;
        made.ai_family = first.ai_family;
        if made.ai_qp_type == 0 {
            made.ai_qp_type = match first.ai_socktype {
                libc::SOCK_STREAM => kind::RC,
                libc::SOCK_DGRAM => kind::UD,
                _ => 0,
            };
        }
        if made.ai_port_space == 0 {
            made.ai_port_space = match first.ai_protocol {
                libc::IPPROTO_TCP => space::TCP,
                libc::IPPROTO_UDP => space::UDP,
                _ => 0,
            };
        }
        let copy = copied(first.ai_addr, first.ai_addrlen);
        if flags & PASSIVE != 0 {
            (made.ai_src_addr, made.ai_src_len) = (copy, first.ai_addrlen);
        } else {
            (made.ai_dst_addr, made.ai_dst_len) = (copy, first.ai_addrlen);
        }
        libc::freeaddrinfo(found);
    }
    0
}

/// Frees a list and all that its entries name, also what a program has put there by `malloc`.
///
/// # Safety
/// `list` is null or came from [`ringside_rdma_getaddrinfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    drop(unsafe { AddressList::own(list) });
}

/// Does the steps of an endpoint; -1 with an errno value if one fails.
///
/// # Safety
/// As [`ringside_rdma_create_ep`].
unsafe fn prepare(
    id: *mut rdma_cm_id,
    information: &rdma_addrinfo,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if information.ai_flags & PASSIVE != 0 {
            let result = ringside_rdma_bind_addr(id, information.ai_src_addr);
            if result == 0 {
                if !domain.is_null() {
                    (*id).pd = domain;
                }
                IdObject::of(id).private().template = init.as_ref().copied();
            }
            return result;
        }
        let (source, destination) = (information.ai_src_addr, information.ai_dst_addr);
        let mut result = ringside_rdma_resolve_addr(id, source, destination, MILLISECONDS);
        if result == 0 {
            result = ringside_rdma_resolve_route(id, MILLISECONDS);
        }
        if result == 0 && !init.is_null() {
            (*init).qp_type = information.ai_qp_type;
            result = ringside_rdma_create_qp(id, domain, init);
        }
        let (data, length) = (information.ai_connect, information.ai_connect_len);
        if result == 0 && !data.is_null() && length > 0 {
            let data = std::slice::from_raw_parts(data.cast::<u8>(), length);
            IdObject::of(id).private().first_data = data.to_vec();
        }
        result
    }
}

/// Makes an id with address, route and queue pair; or one to listen on. The data for a connection
/// that `information` names go to the peer before the private data of `rdma_connect`.
///
/// # Safety
/// `information` is valid, `domain` and `init` are null or valid, `into` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_ep(
    into: *mut *mut rdma_cm_id,
    information: *const rdma_addrinfo,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let information = &*information;
        let (space, kind) = (information.ai_port_space, information.ai_qp_type);
        let id = match create(std::ptr::null_mut(), space, kind) {
            Ok(id) => id,
            Err(error) => return errno::minus_one(error),
        };
        let result = prepare(id, information, domain, init);
        if result != 0 {
            let error = crate::channel::last_error();
            ringside_rdma_destroy_id(id);
            return errno::minus_one(error);
        }
        *into = id;
    }
    0
}

/// # Safety
/// `id` came from [`ringside_rdma_create_ep`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_destroy_ep(id: *mut rdma_cm_id) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        ringside_rdma_destroy_qp(id);
        ringside_rdma_destroy_srq(id);
        ringside_rdma_destroy_id(id);
    }
}

/// Waits for the next request of a synchronous listener.
///
/// # Safety
/// `listener` is an id of this library; `into` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_request(
    listener: *mut rdma_cm_id,
    into: *mut *mut rdma_cm_id,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let private = IdObject::of(listener).private();
        let (is_synchronous, template) = (private.is_synchronous, private.template);
        drop(private);
        if !is_synchronous {
            return errno::minus_one(libc::EINVAL);
        }
        drop_event(listener);
        let mut read = std::ptr::null_mut();
        if ringside_rdma_get_cm_event((*listener).channel, &raw mut read) != 0 {
            return -1;
        }
        if (*read).status != 0 || (*read).event != event::CONNECT_REQUEST {
            let error = if (*read).status != 0 {
                (*read).status.abs()
            } else {
                libc::EINVAL
            };
            ringside_rdma_ack_cm_event(read);
            return errno::minus_one(error);
        }
        let id = (*read).id;
        let mut result = 0;
        if let Some(mut init) = template {
            init.qp_type = (*id).qp_type;
            result = ringside_rdma_create_qp(id, (*listener).pd, &raw mut init);
        }
        if result != 0 {
            let error = crate::channel::last_error();
            ringside_rdma_ack_cm_event(read);
            ringside_rdma_destroy_id(id);
            return errno::minus_one(error);
        }
        (*id).event = read;
        *into = id;
    }
    0
}
