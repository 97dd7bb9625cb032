//! Channels and ids, their addresses and options.

use super::abi::{rdma_cm_id, rdma_event_channel, space};
use super::events::drop_event;
use super::id::{ChannelObject, IdObject, Notice, Step, notices_of};
use super::node::{Node, node};
use super::pairs;
use super::ports::Owner;
use super::recovery::node_in_service;
use super::route;
use super::socket_address;
use crate::abi::{ibv_context, kind};
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Makes an event channel. Errors: `ENODEV` without a device.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rdma_create_event_channel() -> *mut rdma_event_channel {
    let _call = Uncancelled::new();
    match node().and_then(|_| ChannelObject::make()) {
        Ok(channel) => channel,
        Err(error) => errno::null(error),
    }
}

/// Destroys a channel and its unread events. Connections of ids that it still has end, and their
/// peers are told, as when the kernel closes the channel; all that is left to do with such an id is
/// to destroy it.
///
/// # Safety
/// `channel` came from [`ringside_rdma_create_event_channel`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_destroy_event_channel(
    channel: *mut rdma_event_channel,
) {
    let _call = Uncancelled::new();
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            if let Ok(node) = node() {
                orphan_ids(node, channel);
            }
            ChannelObject::free(channel);
        }
    }
}

/// Ends what the ids of a channel do, and takes the channel from them.
///
/// # Safety
/// As for [`ringside_rdma_destroy_event_channel`].
unsafe fn orphan_ids(node: &Node, channel: *mut rdma_event_channel) {
    // SAFETY: the set has ids that exist.
    let is_own = |id: &usize| unsafe { (*(*id as *mut rdma_cm_id)).channel } == channel;
    let ids: Vec<_> = node.with(|state, _| state.ids.iter().copied().filter(is_own).collect());
    let mut unread = Vec::new();
    for id in ids {
        if unread.contains(&id) {
            continue;
        }
        let id = id as *mut rdma_cm_id;
        // SAFETY: the program destroys no id meanwhile.
        unsafe {
            unread.extend(withdraw(node, id, Step::Orphaned));
            super::multicast::leave_all(id);
            (*id).channel = std::ptr::null_mut();
        }
    }
    for request in unread {
        // SAFETY: no program has seen it.
        unsafe { IdObject::free(request as *mut rdma_cm_id) };
    }
}

/// Makes an id. Without a channel its calls wait for their events.
///
/// # Safety
/// `channel` is null or one of this library; `into` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_id(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    let kind = match port_space {
        space::UDP | space::IPOIB => kind::UD,
        _ => kind::RC,
    };
    match create(channel, port_space, kind) {
        Ok(id) => {
            // SAFETY: just made; the caller's place.
            unsafe {
                (*id).context = context;
                *into = id;
            }
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// Makes an id for queue pairs of a kind, which only `RDMA_PS_IB` leaves to the program. Errors:
/// `EINVAL` for an unknown port space, `ENODEV` without a device, `EIO` for a parent's channel in a
/// child of a fork.
pub(super) fn create(
    channel: *mut rdma_event_channel,
    port_space: c_int,
    kind: c_int,
) -> Result<*mut rdma_cm_id, c_int> {
    let kind = match port_space {
        space::TCP => kind::RC,
        space::UDP | space::IPOIB => kind::UD,
        space::IB => kind,
        _ => return Err(libc::EINVAL),
    };
    let node = node()?;
    let own = match channel.is_null() {
        true => ChannelObject::make()?,
        // SAFETY: the promise of the callers.
        false => unsafe { ChannelObject::own(channel) }?,
    };
    let id = IdObject::make(port_space, kind);
    // SAFETY: just made.
    unsafe {
        (*id).channel = own;
        IdObject::of(id).private().is_synchronous = channel.is_null();
    }
    node.with(|state, _| state.ids.insert(id as usize));
    Ok(id)
}

/// Destroys an id: notifies the peer, discards unread events, and waits until those that were read
/// are acknowledged. Calls of other threads for it meanwhile fail with `ENOENT`.
///
/// # Safety
/// `id` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let _call = Uncancelled::new();
    let node = match node() {
        Ok(node) => node,
        Err(error) => return errno::minus_one(error),
    };
    // SAFETY: the caller's promise; the requests that are freed were seen by no one.
    unsafe {
        let object = IdObject::of(id);
        for request in withdraw(node, id, Step::Gone) {
            IdObject::free(request as *mut rdma_cm_id);
        }
        super::multicast::leave_all(id);
        drop_event(id);
        object.reads.wait();
        if object.private().is_synchronous && !(*id).channel.is_null() {
            ChannelObject::free((*id).channel);
        }
        IdObject::free(id);
    }
    0
}

/// Ends an id whose channel's descriptor the program has closed by close(2): its peer is told, its
/// port is free, and its requests that were never read are refused. The descriptor has another
/// owner, and is left alone. Id, queue pair and channel keep their memory.
///
/// # Safety
/// `id` is an id of this library with a channel of its own; neither is destroyed after this.
pub(crate) unsafe fn retire(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise; the requests that are freed were seen by no one.
    unsafe {
        pairs::fail(id);
        if let Ok(node) = node() {
            for request in withdraw(node, id, Step::Orphaned) {
                IdObject::free(request as *mut rdma_cm_id);
            }
        }
    }
}

/// Leaves the descriptor of a channel alone from now on: the program has closed it, and it has
/// another owner.
///
/// # Safety
/// `channel` is a channel of this library, and is not destroyed after this.
pub(crate) unsafe fn abandon(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's promise.
    unsafe { ChannelObject::of(channel) }.notices.abandon();
}

/// Takes an id out of the connection manager. From then on it is in its last step, in which no call
/// puts it back. Returns the ids of requests that were never read.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn withdraw(node: &Node, id: *mut rdma_cm_id, last: Step) -> Vec<usize> {
    // SAFETY: the caller's promise.
    let (object, port_space) = unsafe { (IdObject::of(id), (*id).ps) };
    node.with(|state, now| {
        // Here, as another thread may have moved the id to another channel.
        // SAFETY: the caller's promise.
        let notices = unsafe { notices_of(id) };
        let mut private = object.private();
        let (connection, listener) = (private.connection.take(), private.listener.take());
        let owns_port = std::mem::take(&mut private.owns_port);
        let port = private.local.filter(|_| owns_port);
        private.step = last;
        drop(private);
        if let Some(port) = port {
            state.ports.give(port_space, port.port(), id as usize);
        }
        state.ids.remove(&(id as usize));
        state.resolving.remove(&(id as usize));
        if let Some(listener) = listener {
            state.listeners.remove(&listener);
            state.manager.unlisten(now, listener);
        }
        if let Some(connection) = connection {
            state.connections.remove(&connection);
            state.manager.destroy(now, connection);
        }
        let mine = |notice: &Notice| notice.id == id as usize || notice.listener == id as usize;
        let mut unread = Vec::new();
        for notice in notices.map_or_else(Vec::new, |notices| notices.withdraw(mine)) {
            if notice.listener == 0 {
                continue;
            }
            unread.push(notice.id);
            state.ids.remove(&notice.id);
            // SAFETY: made for this request, and seen by no one.
            let request = unsafe { IdObject::of(notice.id as *mut rdma_cm_id) };
            if let Some(connection) = request.private().connection {
                state.connections.remove(&connection);
                state.manager.destroy(now, connection);
            }
        }
        unread
    })
}

/// The address that datagram sockets use for localhost: on a model, whose wire does not leave the
/// machine, the device's own.
pub(super) fn here(node: &Node, loopback: IpAddr) -> Option<IpAddr> {
    let port = node.port();
    let mut own = port.addresses().into_iter().map(|own| own.address);
    let found = own.find(|own| own.is_ipv4() == loopback.is_ipv4());
    found.filter(|_| port.is_model)
}

/// Binds an id to an address and a port. Localhost is any address, as for Linux's connection
/// manager: the id has no device yet. Libraries bind to it where a program names no address
/// (libfabric). Errors: `EADDRNOTAVAIL` for an address that is not the device's, `EINVAL` for one
/// of the port space that RoCE does not have, or an id that is too far.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn bind(
    node: &Node,
    id: *mut rdma_cm_id,
    local: SocketAddr,
) -> Result<(), c_int> {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::UNSPECIFIED.into(),
        ip => ip,
    };
    // SAFETY: the caller's promise.
    unsafe {
        let (object, space) = (IdObject::of(id), (*id).ps);
        object.private().expect(Step::Made)?;
        if !ip.is_unspecified() && node.port().own(ip).is_none() {
            return Err(libc::EADDRNOTAVAIL);
        }
        if !ip.is_unspecified() && space == space::IPOIB {
            return Err(libc::EINVAL);
        }
        let port = node.with(|state, _| {
            let mut private = object.private();
            private.expect(Step::Made)?;
            let owner = Owner {
                id: id as usize,
                ip,
                family_only: private.family_only.unwrap_or(ip.is_ipv4()),
                shares: private.shares_port,
            };
            let port = state.ports.take(space, local.port(), owner)?;
            private.step = Step::Bound;
            private.local = Some(SocketAddr::new(ip, port));
            private.owns_port = true;
            if !ip.is_unspecified() {
                private.device = node.shared().context as usize;
            }
            Ok::<u16, c_int>(port)
        })?;
        route::show_local(id, SocketAddr::new(local.ip(), port));
        if !ip.is_unspecified() {
            route::show_device(id, node.shared());
        }
    }
    Ok(())
}

/// # Safety
/// `id` is an id of this library; `address` is a socket address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *const libc::sockaddr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let result = unsafe {
        let local = socket_address::read(address).ok_or(libc::EINVAL);
        local.and_then(|local| bind(node_in_service()?, id, local))
    };
    answer(result)
}

/// Moves an id and its unread events to another channel; without one, its calls wait from now on.
/// Errors: `EINVAL` without one if they do so already.
///
/// # Safety
/// `id` is an id of this library; `channel` is null or one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    if channel.is_null() && object.private().is_synchronous {
        return errno::minus_one(libc::EINVAL);
    }
    let found = node().and_then(|node| {
        let target = match channel.is_null() {
            true => ChannelObject::make(),
            // SAFETY: the caller's promise.
            false => unsafe { ChannelObject::own(channel) },
        };
        Ok((node, target?))
    });
    let (node, target) = match found {
        Ok(found) => found,
        Err(error) => return errno::minus_one(error),
    };
    // SAFETY: the caller's promise.
    unsafe {
        let old = (*id).channel;
        let moved = node.with_id(object, |_, _| {
            IdObject::move_to(id, target);
            let is_synchronous = &mut object.private().is_synchronous;
            Ok(std::mem::replace(is_synchronous, channel.is_null()))
        });
        let was_synchronous = match moved {
            Ok(was_synchronous) => was_synchronous,
            Err(error) => {
                if channel.is_null() {
                    ChannelObject::free(target);
                }
                return errno::minus_one(error);
            }
        };
        if was_synchronous {
            drop_event(id);
        }
        object.reads.wait();
        if was_synchronous {
            ChannelObject::free(old);
        }
    }
    0
}

/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let private = unsafe { IdObject::of(id) }.private();
    private.local.map_or(0, |address| address.port().to_be())
}

/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let private = unsafe { IdObject::of(id) }.private();
    private.remote.map_or(0, |address| address.port().to_be())
}

/// The contexts of all devices: those that ids show.
///
/// # Safety
/// `count` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_devices(
    count: *mut c_int,
) -> *mut *mut ibv_context {
    let _call = Uncancelled::new();
    let node = match node_in_service() {
        Ok(node) => node,
        Err(error) => return errno::null(error),
    };
    // SAFETY: room for one and the end; the caller's place.
    unsafe {
        let list = libc::calloc(2, size_of::<usize>()).cast::<*mut ibv_context>();
        if list.is_null() {
            return errno::null(libc::ENOMEM);
        }
        *list = node.show_context();
        if !count.is_null() {
            *count = 1;
        }
        list
    }
}

/// # Safety
/// `list` came from [`ringside_rdma_get_devices`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_free_devices(list: *mut *mut ibv_context) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { libc::free(list.cast()) };
}
