//! Making and ending connections.

use super::abi::{DATAGRAM_KEY, MAX_RESOURCES, event, rdma_cm_id, rdma_conn_param};
use super::addressing::bind;
use super::events::{drop_event, finish};
use super::id::{IdObject, Notice, Step};
use super::node::{Node, node, push};
use super::pairs;
use super::recovery::node_in_service;
use super::route;
use crate::abi::{kind, state};
use crate::cancel::Uncancelled;
use crate::errno::{self, answer};
use ringside_cm::{
    Accept, Connect, ConnectionId, ListenAt, ListenError, Reason, Refused, RequestError, Resolve,
    ServiceAnswer, ServiceId, ServiceKind, ServiceStatus, StateName,
};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Requests that may wait for the program.
const MAX_BACKLOG: c_int = 1024;

fn refused(error: &RequestError) -> c_int {
    tracing::debug!(%error, "refused");
    match error {
        RequestError::Full { .. } => libc::ENOMEM,
        RequestError::Address { .. } => libc::EADDRNOTAVAIL,
        RequestError::NotOnRoce => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}

/// # Safety
/// `data` has `length` bytes, or is null.
unsafe fn bytes(data: *const c_void, length: u8) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) }.to_vec()
}

/// # Safety
/// `id` is an id of this library.
unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> Result<(), c_int> {
    let node = node()?;
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    let step = object.private().step;
    if step == Step::Made {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        // SAFETY: the caller's promise.
        unsafe { bind(node, id, any) }?;
    }
    let (local, family_only) = {
        let private = object.private();
        private.expect(Step::Bound)?;
        (private.local.ok_or(libc::EINVAL)?, private.family_only)
    };
    let is_bound = !local.ip().is_unspecified();
    if is_bound {
        // An address is one of the device, which may be out of service for good.
        node_in_service()?;
    }
    let service = ServiceId::of(object.space().ok_or(libc::EINVAL)?, local.port());
    let place = match (local.ip(), family_only) {
        (ip, _) if !ip.is_unspecified() => ListenAt::Address(ip),
        (IpAddr::V4(_), None | Some(true)) => ListenAt::AnyIpv4,
        (IpAddr::V6(_), Some(true)) => ListenAt::AnyIpv6,
        _ => ListenAt::Any,
    };
    let backlog = if (1..=MAX_BACKLOG).contains(&backlog) {
        backlog
    } else {
        MAX_BACKLOG
    };
    node.with(|state, _| {
        // Another thread may have done so meanwhile.
        object.private().expect(Step::Bound)?;
        if is_bound && state.lost.is_some() {
            return Err(libc::ENODEV);
        }
        // SAFETY: the caller's promise.
        let space = unsafe { (*id).ps };
        state.ports.may_listen(space, local.port(), id as usize)?;
        let kind = match object.public.qp_type {
            kind::UD => ServiceKind::Datagrams,
            _ => ServiceKind::Connections,
        };
        let made = (state.manager).listen_for(kind, service, place, backlog as usize);
        let listener = made.map_err(|error| match error {
            ListenError::InUse { .. } => libc::EADDRINUSE,
            ListenError::AddressNotLocal { .. } => libc::EADDRNOTAVAIL,
            _ => libc::EOPNOTSUPP,
        })?;
        state.listeners.insert(listener, id as usize);
        // Others no longer share its port, as for Linux.
        if let Some(owner) = state.ports.owner(space, local.port(), id as usize) {
            owner.shares = false;
        }
        let mut private = object.private();
        private.listener = Some(listener);
        private.step = Step::Listening;
        Ok(())
    })
}

/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    answer(unsafe { listen(id, backlog) })
}

/// Returns the parameters of a program, or empty ones for a null pointer.
///
/// # Safety
/// `given` is null or valid.
unsafe fn given(given: *const rdma_conn_param) -> rdma_conn_param {
    if given.is_null() {
        return rdma_conn_param {
            private_data: std::ptr::null(),
            private_data_len: 0,
            responder_resources: MAX_RESOURCES,
            initiator_depth: MAX_RESOURCES,
            flow_control: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: 0,
            qp_num: 0,
        };
    }
    // SAFETY: the caller's promise.
    unsafe { *given }
}

/// The queue pair that a program connects: the id's, or the one that it names.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn queue_pair(id: *mut rdma_cm_id, wanted: &rdma_conn_param) -> (u32, bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match (*id).qp.as_ref() {
            Some(pair) => (pair.qp_num, !pair.srq.is_null()),
            None => (wanted.qp_num, wanted.srq != 0),
        }
    }
}

/// # Safety
/// `id` is an id of this library; `wanted` is null or valid.
unsafe fn connect(id: *mut rdma_cm_id, wanted: *const rdma_conn_param) -> Result<(), c_int> {
    let node = node()?;
    // SAFETY: the caller's promise.
    let (object, is_null) = unsafe { (IdObject::of(id), wanted.is_null() && (*id).qp.is_null()) };
    // SAFETY: the caller's promise.
    let wanted = unsafe { given(wanted) };
    let private = object.private();
    private.expect(Step::Routed)?;
    let (Some(local), Some(remote)) = (private.local, private.remote) else {
        return Err(libc::EINVAL);
    };
    let (traffic_class, ack_timeout) = (private.traffic_class, private.ack_timeout);
    let mut private_data = private.first_data.clone();
    drop(private);
    let service = ServiceId::of(object.space().ok_or(libc::EINVAL)?, remote.port());
    // SAFETY: the caller's promise.
    private_data.extend(unsafe { bytes(wanted.private_data, wanted.private_data_len) });
    let vlan = node.port().vlan_towards(local.ip(), remote.ip());
    if object.public.qp_type == kind::UD {
        let question = Resolve {
            local: local.ip(),
            vlan,
            remote: remote.ip(),
            service,
            source_port: local.port(),
            traffic_class,
            private_data,
        };
        return begin(node, id, |manager, now| manager.resolve(now, &question));
    }
    if is_null {
        return Err(libc::EINVAL);
    }
    let (inbound, outbound) = route::depths(&node.port());
    let choose = |asked: u8, most: u8| match asked {
        MAX_RESOURCES => Ok(most),
        asked if asked > most => Err(libc::EINVAL),
        asked => Ok(asked),
    };
    // SAFETY: the caller's promise.
    let (number, shared) = unsafe { queue_pair(id, &wanted) };
    let request = Connect {
        local: local.ip(),
        vlan,
        remote: remote.ip(),
        service,
        source_port: local.port(),
        queue_pair: number,
        shared_receive_queue: shared,
        responder_resources: choose(wanted.responder_resources, inbound)?,
        initiator_depth: choose(wanted.initiator_depth, outbound)?,
        flow_control: wanted.flow_control != 0,
        retry_count: wanted.retry_count,
        rnr_retry_count: wanted.rnr_retry_count,
        // SAFETY: the path lies in the id.
        path_mtu: unsafe { (*IdObject::path(id)).mtu },
        traffic_class,
        ack_timeout,
        private_data,
    };
    begin(node, id, |manager, now| manager.connect(now, &request))?;
    object.private().offered_resources = request.responder_resources;
    Ok(())
}

/// Starts a request of the manager, and records its id. Errors: `EINVAL` for an id that has one.
fn begin(
    node: &Node,
    id: *mut rdma_cm_id,
    call: impl FnOnce(
        &mut ringside_cm::Manager,
        std::time::Duration,
    ) -> Result<ConnectionId, RequestError>,
) -> Result<(), c_int> {
    node.with(|state, now| {
        // SAFETY: the callers' promise: an id of this library.
        let object = unsafe { IdObject::of(id) };
        object.private().expect_present()?;
        // SAFETY: as above.
        unsafe { node.check_device(state, id) }?;
        // Another thread may have connected it since the caller looked. The tables would keep the
        // first of two connections when the id is destroyed.
        object.private().expect(Step::Routed)?;
        let connection = call(&mut state.manager, now).map_err(|error| refused(&error))?;
        state.connections.insert(connection, id as usize);
        let mut private = object.private();
        private.connection = Some(connection);
        private.step = Step::Connecting;
        private.first_data = Vec::new();
        Ok(())
    })
}

/// # Safety
/// `id` is an id of this library; `wanted` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_connect(
    id: *mut rdma_cm_id,
    wanted: *const rdma_conn_param,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match connect(id, wanted) {
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// The answer to a request, from what the program wants and what the peer asks for.
///
/// # Safety
/// `id` is an id of this library; the private data of `wanted` is valid.
unsafe fn reply(
    node: &Node,
    id: *mut rdma_cm_id,
    wanted: &rdma_conn_param,
) -> Result<Accept, c_int> {
    // SAFETY: the caller's promise.
    let (object, private_data, (number, shared)) = unsafe {
        (
            IdObject::of(id),
            bytes(wanted.private_data, wanted.private_data_len),
            queue_pair(id, wanted),
        )
    };
    let (inbound, outbound) = route::depths(&node.port());
    let mut private = object.private();
    let parameters = private.parameters.as_mut().ok_or(libc::EINVAL)?;
    let choose = |asked: u8, requested: u8, most: u8| match asked {
        MAX_RESOURCES => Ok(requested.min(most)),
        asked if asked > most => Err(libc::EINVAL),
        asked => Ok(asked),
    };
    let responder_resources = choose(
        wanted.responder_resources,
        parameters.responder_resources,
        inbound,
    )?;
    parameters.initiator_depth =
        choose(wanted.initiator_depth, parameters.initiator_depth, outbound)?;
    parameters.responder_resources = responder_resources;
    Ok(Accept {
        queue_pair: number,
        shared_receive_queue: shared,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: wanted.flow_control != 0,
        rnr_retry_count: wanted.rnr_retry_count,
        private_data,
    })
}

/// Accepts a request. If that fails, the request is refused and the queue pair fails, as the kernel
/// does: the peer gets an answer at once.
///
/// # Safety
/// `id` is an id of this library; `wanted` is null or valid.
unsafe fn accept(id: *mut rdma_cm_id, wanted: *const rdma_conn_param) -> Result<(), c_int> {
    let node = node()?;
    // SAFETY: the caller's promise.
    let (object, wanted) = unsafe { (IdObject::of(id), given(wanted)) };
    let connection = object.private().connection()?;
    if object.public.qp_type == kind::UD {
        // SAFETY: the caller's promise.
        let (number, private_data) = unsafe {
            (
                queue_pair(id, &wanted).0,
                bytes(wanted.private_data, wanted.private_data_len),
            )
        };
        let found = ServiceAnswer {
            status: ServiceStatus::VALID,
            queue_pair: number,
            queue_key: DATAGRAM_KEY,
            private_data,
        };
        let answered = node.with_id(object, |state, _| {
            // SAFETY: the caller's promise.
            unsafe { node.check_device(state, id) }?;
            let answered = state.manager.answer(connection, &found);
            answered.map_err(|error| refused(&error))?;
            object.private().step = Step::Connecting;
            Ok(())
        });
        return answered.inspect_err(|_| {
            // A question that was answered before, or is gone, stays so.
            // SAFETY: the caller's promise.
            let _ = unsafe { refuse(id, Reason::CONSUMER, Vec::new()) };
        });
    }
    // SAFETY: the caller's promise.
    let reply = unsafe { reply(node, id, &wanted) }?;
    let (in_service, checked) = node.with(|state, _| {
        // SAFETY: the caller's promise.
        let in_service = unsafe { node.check_device(state, id) };
        (in_service, state.manager.check_accept(connection, &reply))
    });
    // A request that was answered before, or is gone, stays so.
    if let Err(error @ (RequestError::State { .. } | RequestError::Gone)) = checked {
        return in_service.and(Err(refused(&error)));
    }
    let accepted = in_service
        .and_then(|()| checked.map_err(|error| refused(&error)))
        // SAFETY: the caller's promise.
        .and_then(|()| unsafe { connect_pair(id) })
        .and_then(|()| {
            node.with_id(object, |state, now| {
                // SAFETY: the caller's promise.
                unsafe { node.check_device(state, id) }?;
                let accepted = state.manager.accept(now, connection, &reply);
                accepted.map_err(|error| refused(&error))?;
                object.private().step = Step::Connecting;
                Ok(())
            })
        });
    if accepted.is_err() {
        // SAFETY: the caller's promise. The request may have ended meanwhile.
        unsafe {
            pairs::fail(id);
            let _ = refuse(id, Reason::CONSUMER, Vec::new());
        }
    }
    accepted
}

/// Moves the queue pair of an id, if it has one, so that it works before the peer gets the reply.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn connect_pair(id: *mut rdma_cm_id) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*id).qp.is_null() {
            pairs::change(id, state::RTR)?;
            pairs::change(id, state::RTS)?;
        }
    }
    Ok(())
}

/// # Safety
/// `id` is an id of this library; `wanted` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_accept(
    id: *mut rdma_cm_id,
    wanted: *const rdma_conn_param,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match accept(id, wanted) {
            // No event follows. That of the request counts for the listener, which may go first.
            Ok(()) if (*id).qp_type == kind::UD => {
                drop_event(id);
                0
            }
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// # Safety
/// `id` is an id of this library.
unsafe fn refuse(id: *mut rdma_cm_id, reason: Reason, private_data: Vec<u8>) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    let connection = object.private().connection()?;
    let is_datagram = object.public.qp_type == kind::UD;
    let done = node()?.with(|state, _| {
        if is_datagram {
            let refusal = ServiceAnswer {
                status: ServiceStatus::REJECTED,
                queue_pair: 0,
                queue_key: 0,
                private_data,
            };
            return state.manager.answer(connection, &refusal);
        }
        let refusal = Refused {
            private_data,
            ..Refused::because(reason)
        };
        state.manager.reject(connection, &refusal)
    });
    done.map_err(|error| refused(&error))
}

/// # Safety
/// `id` is an id of this library; `data` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    answer(unsafe { refuse(id, Reason::CONSUMER, bytes(data, length)) })
}

/// # Safety
/// As [`ringside_rdma_reject`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    answer(unsafe { refuse(id, Reason::VENDOR_OPTION, bytes(data, length)) })
}

/// Establishes a connection after the program has moved its own queue pair.
///
/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (object, has_pair) = unsafe { (IdObject::of(id), !(*id).qp.is_null()) };
    let connection = object.private().connection();
    let result = connection.and_then(|connection| {
        if has_pair {
            return Err(libc::EINVAL);
        }
        let done = node()?.with(|state, _| state.manager.ready(connection, &[]));
        done.map_err(|error| refused(&error))
    });
    answer(result)
}

/// An asynchronous event of the program's queue pair: the first packet of a peer whose last message
/// is late. Errors: `EISCONN` if the connection stands, else `EINVAL`.
///
/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    let _call = Uncancelled::new();
    const COMMUNICATION_ESTABLISHED: c_int = 4;
    // SAFETY: the caller's promise.
    let connection = match unsafe { IdObject::of(id) }.private().connection() {
        Ok(connection) => connection,
        Err(error) => return errno::minus_one(error),
    };
    let (Ok(node), COMMUNICATION_ESTABLISHED) = (node(), event) else {
        return errno::minus_one(libc::EINVAL);
    };
    answer(node.with(|state, _| match state.manager.state(connection) {
        Some(StateName::ReplySent | StateName::ReplyAcknowledged) => {
            state.manager.packet_arrived(connection);
            Ok(())
        }
        Some(StateName::Established) => Err(libc::EISCONN),
        _ => Err(libc::EINVAL),
    }))
}

/// Ends a connection, or confirms that the peer ended it. The queue pair goes to the error state
/// first.
///
/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let object = unsafe {
        pairs::fail(id);
        IdObject::of(id)
    };
    let connection = object.private().connection();
    let result = connection.and_then(|connection| {
        let node = node()?;
        node.with_id(object, |state, now| {
            let ended = state.manager.disconnect(now, connection);
            if ended == Err(RequestError::Gone) && node.has_left() {
                // The process ends: the connection was ended before the program's own clean-up,
                // which waits for the event.
                object.private().connection = None;
                push(Notice::new(id as usize, event::DISCONNECTED, 0));
            }
            Ok(ended)
        })
    });
    match result {
        // SAFETY: the caller's promise.
        Ok(Ok(())) => unsafe { finish(id) },
        // It has ended, or not begun: no event follows. Linux says so, too.
        Ok(Err(RequestError::State { .. } | RequestError::Gone)) => 0,
        Ok(Err(error)) => errno::minus_one(refused(&error)),
        Err(error) => errno::minus_one(error),
    }
}
