//! Reading and acknowledging events.

use super::abi::{
    DATAGRAM_KEY, event, event_param, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_ud_param,
};
use super::id::{ChannelObject, Detail, IdObject, Notice, Reads};
use super::node::node;
use super::pairs;
use crate::abi::state;
use crate::cancel::Uncancelled;
use crate::errno;
use ringside_cm::{Reason, Refused};
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// Queue pair of datagrams to a group.
const GROUP_QUEUE_PAIR: u32 = 0xFF_FFFF;

/// An event that a program has read.
#[repr(C)]
struct EventObject {
    public: rdma_cm_event,
    /// the id that its acknowledgement counts for
    counted: usize,
    /// that of a group that was joined
    group: Option<Arc<Reads>>,
    data: Vec<u8>,
}

/// The peer accepted: sets the queue pair of the id, and confirms. Returns the event and status
/// that the program reads.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn confirm(id: *mut rdma_cm_id) -> (c_int, c_int) {
    // SAFETY: the caller's promise.
    let (has_pair, connection) =
        unsafe { (!(*id).qp.is_null(), IdObject::of(id).private().connection) };
    if !has_pair {
        return (event::CONNECT_RESPONSE, 0);
    }
    // SAFETY: the id has a queue pair.
    let moved =
        unsafe { pairs::change(id, state::RTR).and_then(|()| pairs::change(id, state::RTS)) };
    let (Ok(node), Some(connection)) = (node(), connection) else {
        return (event::CONNECT_ERROR, -libc::EINVAL);
    };
    let done = moved.and_then(|()| {
        node.with(|state, _| state.manager.ready(connection, &[]))
            .map_err(|_| libc::EINVAL)
    });
    match done {
        Ok(()) => (event::ESTABLISHED, 0),
        Err(error) => {
            node.with(|state, _| {
                let refusal = Refused::because(Reason::CONSUMER);
                // A connection that no longer exists cannot be refused.
                let _ = state.manager.reject(connection, &refusal);
            });
            (event::CONNECT_ERROR, -error)
        }
    }
}

fn parameters(detail: &Detail, data: &[u8]) -> event_param {
    let private_data = match data {
        [] => std::ptr::null(),
        data => data.as_ptr().cast(),
    };
    let private_data_len = data.len().min(255) as u8;
    // SAFETY: pointers and numbers: all zero is a value.
    let mut all: event_param = unsafe { std::mem::zeroed() };
    match detail {
        Detail::Datagram {
            route,
            queue_pair,
            queue_key,
        } => {
            all.ud = rdma_ud_param {
                private_data,
                private_data_len,
                ah_attr: *route,
                qp_num: *queue_pair,
                qkey: *queue_key,
            };
        }
        Detail::Group { route, context, .. } => {
            all.ud = rdma_ud_param {
                private_data: std::ptr::with_exposed_provenance(*context),
                private_data_len: 0,
                ah_attr: *route,
                qp_num: GROUP_QUEUE_PAIR,
                qkey: DATAGRAM_KEY,
            };
        }
        Detail::Connection(shown) => {
            all.conn = rdma_conn_param {
                private_data,
                private_data_len,
                ..*shown
            };
        }
        Detail::Argument(argument) => all.arg = *argument,
        // Both forms begin with the private data.
        Detail::None => {
            all.conn.private_data = private_data;
            all.conn.private_data_len = private_data_len;
        }
    }
    all
}

/// Counts an event that a program reads, so that its id waits for the acknowledgement, and its
/// group.
///
/// # Safety
/// The id that the notice counts for exists.
unsafe fn count(notice: &Notice) {
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(notice.counted() as *mut rdma_cm_id) };
    object.reads.count();
    if let Some(group) = group_of(notice) {
        group.count();
    }
}

/// The group of an event of joining.
const fn group_of(notice: &Notice) -> Option<&Arc<Reads>> {
    match &notice.detail {
        Detail::Group { reads, .. } => Some(reads),
        _ => None,
    }
}

/// Gives the id of a request a channel of its own, as its listener has one: its calls wait. Errors:
/// an errno value; the request was refused, and its event acknowledged.
///
/// # Safety
/// The ids exist; the request was counted, and no program has seen it.
unsafe fn give_channel(request: *mut rdma_cm_id, listener: *mut rdma_cm_id) -> Result<(), c_int> {
    let (node, channel) = (node()?, ChannelObject::make());
    // SAFETY: the caller's promise.
    unsafe {
        match channel {
            Ok(channel) => node.with(|_, _| {
                IdObject::move_to(request, channel);
                IdObject::of(request).private().is_synchronous = true;
                Ok(())
            }),
            Err(error) => {
                node.with(|state, now| state.discard_request(now, request as usize));
                IdObject::of(listener).reads.acknowledge();
                Err(error)
            }
        }
    }
}

/// True if the event only repeats what the program knows: after `RDMA_CM_EVENT_CONNECT_ERROR`, the
/// end of the same connection.
/// Source: rdma-core `librdmacm/cma.c`, `rdma_get_cm_event`, which discards these two events.
///
/// # Safety
/// The id that the notice names exists.
unsafe fn is_obsolete(notice: &Notice) -> bool {
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(notice.id as *mut rdma_cm_id) };
    matches!(notice.event, event::REJECTED | event::DISCONNECTED)
        && object.private().has_reply_failed
}

/// Processes an event that was counted, and makes the event that the program reads. Errors: those
/// of [`give_channel`].
///
/// # Safety
/// The ids that the notice names exist.
unsafe fn made(notice: Notice) -> Result<*mut rdma_cm_event, c_int> {
    let id = notice.id as *mut rdma_cm_id;
    let (mut kind, mut status) = (notice.event, notice.status);
    // SAFETY: the caller's promise.
    unsafe {
        if notice.is_reply {
            (kind, status) = confirm(id);
            if kind == event::CONNECT_ERROR {
                IdObject::of(id).private().has_reply_failed = true;
            }
        }
        if kind == event::MULTICAST_JOIN
            && let Err(error) = pairs::attach_to_group(id, group_of(&notice))
        {
            (kind, status) = (event::MULTICAST_ERROR, -error);
        }
        if matches!(kind, event::REJECTED | event::CONNECT_ERROR) {
            pairs::fail(id);
        }
        let counted = notice.counted();
        if notice.listener != 0 {
            let connection = IdObject::of(id).private().connection;
            if let (Ok(node), Some(connection)) = (node(), connection) {
                node.with(|state, _| state.manager.request_read(connection));
            }
            let listener = notice.listener as *mut rdma_cm_id;
            // As in the kernel: the listener's context at the time of reading.
            (*id).context = (*listener).context;
            if IdObject::of(listener).private().is_synchronous {
                give_channel(id, listener)?;
            }
        }
        let mut made = Box::new(EventObject {
            public: rdma_cm_event {
                id,
                listen_id: notice.listener as *mut rdma_cm_id,
                event: kind,
                status,
                param: event_param {
                    conn: std::mem::zeroed(),
                },
            },
            counted,
            group: group_of(&notice).cloned(),
            data: notice.data,
        });
        made.public.param = parameters(&notice.detail, &made.data);
        Ok(Box::into_raw(made).cast())
    }
}

/// Waits for an event, unless the program made the descriptor non-blocking.
///
/// # Safety
/// `channel` is one of this library; `into` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_event,
) -> c_int {
    let _call = Uncancelled::new();
    if channel.is_null() || into.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise; ids take their events back before they go.
    unsafe {
        let notices = &ChannelObject::of(channel).notices;
        loop {
            let notice = match notices.take(|notice| count(notice)) {
                Ok(notice) => notice,
                Err(error) => return errno::minus_one(error),
            };
            if is_obsolete(&notice) {
                let object = IdObject::of(notice.counted() as *mut rdma_cm_id);
                object.reads.acknowledge();
                continue;
            }
            match made(notice) {
                Ok(read) => {
                    *into = read;
                    return 0;
                }
                // As rdma-core does: the next event.
                Err(error) => tracing::warn!(errno = error, "a request is refused"),
            }
        }
    }
}

/// # Safety
/// `read` came from `rdma_get_cm_event` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_ack_cm_event(read: *mut rdma_cm_event) -> c_int {
    let _call = Uncancelled::new();
    if read.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise; the id waits for this before it goes.
    unsafe {
        let object = Box::from_raw(read.cast::<EventObject>());
        if let Some(group) = &object.group {
            group.acknowledge();
        }
        IdObject::of(object.counted as *mut rdma_cm_id)
            .reads
            .acknowledge();
    }
    0
}

/// Ends a call of a synchronous id: waits for its event, which the id keeps. For others, nothing.
/// Returns the result of the call.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn finish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !IdObject::of(id).private().is_synchronous {
            return 0;
        }
        drop_event(id);
        if ringside_rdma_get_cm_event((*id).channel, &raw mut (*id).event) != 0 {
            return -1;
        }
        let read = &*(*id).event;
        match (read.status, read.event) {
            // Not what the call waits for.
            (_, event::DEVICE_REMOVAL) => errno::minus_one(libc::ENODEV),
            (0, _) => 0,
            (_, event::REJECTED) => errno::minus_one(libc::ECONNREFUSED),
            (status, _) => errno::minus_one(status.abs()),
        }
    }
}

/// Acknowledges the event of joining a group, if that is the one that a synchronous id keeps.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn drop_event_of(id: *mut rdma_cm_id, group: &Arc<Reads>) {
    // SAFETY: the caller's promise; the events of ids are of this library.
    unsafe {
        let kept = (*id).event.cast::<EventObject>().as_ref();
        let kept = kept.and_then(|kept| kept.group.as_ref());
        if kept.is_some_and(|kept| Arc::ptr_eq(kept, group)) {
            drop_event(id);
        }
    }
}

/// Acknowledges the event that a synchronous id keeps.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn drop_event(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*id).event.is_null() {
            ringside_rdma_ack_cm_event((*id).event);
            (*id).event = std::ptr::null_mut();
        }
    }
}

/// Name of an event.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rdma_event_str(kind: c_int) -> *const c_char {
    let _call = Uncancelled::new();
    const NAMES: [&CStr; 18] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    ];
    let name = usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind));
    name.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}
