//! Queue pairs of ids.

use super::abi::{DATAGRAM_KEY, rdma_cm_id};
use super::id::{Group, IdObject, Reads};
use super::node::node;
use super::route;
use crate::abi::{
    access, ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, kind, mask, qp_init, state,
};
use crate::cancel::Uncancelled;
use crate::channel::last_error;
use crate::completion::{ibv_create_cq, ibv_destroy_cq};
use crate::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::errno;
use crate::extended;
use crate::groups;
use crate::live;
use crate::modify::ibv_modify_qp;
use crate::queue_pair::{QueuePairObject, destroy, ibv_create_qp};
use ringside_cm::Parameters;
use ringside_connect::Within;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// Chooses the completion queues: the program's, in its attributes or in the id, else new ones,
/// each with a channel. Errors: `EINVAL` if attributes and id name different ones.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn make_queues(id: *mut rdma_cm_id, init: &mut ibv_qp_init_attr) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let (public, object) = unsafe { (&*id, IdObject::of(id)) };
    let context = public.verbs;
    for (given, own) in [
        (&mut init.send_cq, public.send_cq),
        (&mut init.recv_cq, public.recv_cq),
    ] {
        if !given.is_null() && !own.is_null() && *given != own {
            return Err(libc::EINVAL);
        }
        if given.is_null() {
            *given = own;
        }
    }
    if init.send_cq.is_null() {
        // SAFETY: the context is open.
        let (channel, queue) = unsafe { make_queue(context, id, init.cap.max_send_wr) }?;
        // SAFETY: the library writes these fields.
        unsafe { ((*id).send_cq_channel, (*id).send_cq) = (channel, queue) };
        object.private().made_queues[0] = true;
        init.send_cq = queue;
    }
    if init.recv_cq.is_null() {
        // SAFETY: as above.
        let (channel, queue) = unsafe { make_queue(context, id, init.cap.max_recv_wr) }?;
        // SAFETY: as above.
        unsafe { ((*id).recv_cq_channel, (*id).recv_cq) = (channel, queue) };
        object.private().made_queues[1] = true;
        init.recv_cq = queue;
    }
    Ok(())
}

type MadeQueue = (*mut ibv_comp_channel, *mut ibv_cq);

/// # Safety
/// `context` is open.
unsafe fn make_queue(
    context: *mut ibv_context,
    id: *mut rdma_cm_id,
    size: u32,
) -> Result<MadeQueue, c_int> {
    let size = c_int::try_from(size.max(1)).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise; what is made here is used at once.
    unsafe {
        let channel = ibv_create_comp_channel(context);
        if channel.is_null() {
            return Err(last_error());
        }
        let queue = ibv_create_cq(context, size, id.cast(), channel, 0);
        if queue.is_null() {
            let error = last_error();
            ibv_destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, queue))
    }
}

/// Destroys a completion queue, if there is one, and removes it from its place.
///
/// # Safety
/// The place is null, or names a queue of this library.
unsafe fn end_queue(place: &mut *mut ibv_cq) {
    let queue = std::mem::replace(place, std::ptr::null_mut());
    if !queue.is_null() {
        // SAFETY: the caller's promise.
        unsafe { ibv_destroy_cq(queue) };
    }
}

/// As [`end_queue`], for a completion channel.
///
/// # Safety
/// The place is null, or names a channel of this library.
unsafe fn end_channel(place: &mut *mut ibv_comp_channel) {
    let channel = std::mem::replace(place, std::ptr::null_mut());
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        unsafe { ibv_destroy_comp_channel(channel) };
    }
}

/// Destroys the completion queues that were made with a queue pair which could not be made.
///
/// # Safety
/// `id` is an id of this library without a queue pair.
unsafe fn destroy_made_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let [send, receive] = std::mem::take(&mut IdObject::of(id).private().made_queues);
        let id = &mut *id;
        if send {
            end_queue(&mut id.send_cq);
            end_channel(&mut id.send_cq_channel);
        }
        if receive {
            end_queue(&mut id.recv_cq);
            end_channel(&mut id.recv_cq_channel);
        }
    }
}

/// Destroys the completion queues and channels of an id with its queue pair: those that were made
/// with it, and those that the program has put there. Programs do, and leave it to this call.
/// Of the program's, a send queue goes only with a receive queue. Source: `rdma_destroy_qp` of
/// rdma-core 56.
///
/// # Safety
/// `id` is an id of this library without a queue pair; it names no object that was destroyed.
unsafe fn destroy_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        destroy_made_queues(id);
        let id = &mut *id;
        if !id.recv_cq.is_null() {
            if id.send_cq == id.recv_cq {
                id.send_cq = std::ptr::null_mut();
            }
            end_queue(&mut id.recv_cq);
            end_queue(&mut id.send_cq);
        }
        if !id.recv_cq_channel.is_null() {
            if id.send_cq_channel == id.recv_cq_channel {
                id.send_cq_channel = std::ptr::null_mut();
            }
            end_channel(&mut id.recv_cq_channel);
            end_channel(&mut id.send_cq_channel);
        }
    }
}

/// # Safety
/// `id` is an id of this library; `init` is valid.
unsafe fn create(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let public = unsafe { &mut *id };
    let domain = if domain.is_null() { public.pd } else { domain };
    if !public.qp.is_null() || public.verbs.is_null() || domain.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: a domain of this library.
    if unsafe { (*domain).context } != public.verbs || init.qp_type != public.qp_type {
        return Err(libc::EINVAL);
    }
    if init.srq.is_null() {
        init.srq = public.srq;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if let Err(error) = make_queues(id, init) {
            destroy_made_queues(id);
            return Err(error);
        }
        let pair = ibv_create_qp(domain, init);
        if pair.is_null() {
            let error = last_error();
            destroy_made_queues(id);
            return Err(error);
        }
        public.qp = pair;
        public.pd = domain;
        let moved = start(id);
        if moved.is_err() {
            destroy(public.qp);
            public.qp = std::ptr::null_mut();
            destroy_made_queues(id);
        }
        moved
    }
}

/// Brings a new queue pair to the state that programs expect: a connection's takes receives, a
/// datagram's is ready.
///
/// # Safety
/// `id` has a queue pair.
unsafe fn start(id: *mut rdma_cm_id) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        change(id, state::INIT)?;
        if (*id).qp_type == kind::UD {
            change(id, state::RTR)?;
            change(id, state::RTS)?;
        }
    }
    Ok(())
}

/// Moves the queue pair of an id. `EINVAL` for one that the program has destroyed by itself.
///
/// # Safety
/// `id` has a queue pair.
pub(super) unsafe fn change(id: *mut rdma_cm_id, to: c_int) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        live::expect((*id).qp, &[live::Kind::QueuePair])?;
        if to == state::RTR && (*id).qp_type != kind::UD {
            // The rights follow from the request and its answer.
            change(id, state::INIT)?;
        }
        let (mut attributes, given) = attributes(id, to)?;
        match ibv_modify_qp((*id).qp, &raw mut attributes, given) {
            0 => Ok(()),
            error => Err(error),
        }
    }
}

/// Moves the queue pair of an id, if it has one, to the error state.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn fail(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        // Some programs destroy it with `ibv_destroy_qp`.
        if live::expect((*id).qp, &[live::Kind::QueuePair]).is_ok() {
            let mut attributes = empty(state::ERR);
            ibv_modify_qp((*id).qp, &raw mut attributes, mask::STATE);
        }
    }
}

fn empty(to: c_int) -> ibv_qp_attr {
    // SAFETY: numbers: all zero is a value.
    let mut attributes: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.qp_state = to;
    attributes
}

/// Returns the attributes of a queue pair in a step, and their mask; `EINVAL` for an id without a
/// device, and with a connection that has no such step yet, `ENOENT` for one that the program
/// destroys, as from Linux.
///
/// Source: `rdma_init_qp_attr` of Linux 6.12.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn attributes(id: *mut rdma_cm_id, to: c_int) -> Result<(ibv_qp_attr, c_int), c_int> {
    // SAFETY: the caller's promise.
    let (public, object) = unsafe { (&*id, IdObject::of(id)) };
    object.private().expect_present()?;
    if public.verbs.is_null() {
        return Err(libc::EINVAL);
    }
    let mut wanted = empty(to);
    let is_datagram = public.qp_type == kind::UD;
    // Before there is a connection Linux answers each step as that to INIT.
    let step = match object.private().connection {
        None if !is_datagram && (state::RESET..=state::ERR).contains(&to) => state::INIT,
        _ => to,
    };
    let given = match step {
        state::INIT => {
            wanted.port_num = 1;
            wanted.qkey = DATAGRAM_KEY;
            let last = if is_datagram {
                mask::QKEY
            } else {
                wanted.qp_access_flags = rights(object) as c_uint;
                mask::ACCESS_FLAGS
            };
            mask::STATE | mask::PKEY_INDEX | mask::PORT | last
        }
        state::RTR if is_datagram => mask::STATE,
        state::RTS if is_datagram => mask::STATE | mask::SQ_PSN,
        state::RTR => {
            let parameters = object.private().parameters.ok_or(libc::EINVAL)?;
            set_receiving(&mut wanted, &parameters)?
        }
        state::RTS => {
            let private = object.private();
            let parameters = private.parameters.ok_or(libc::EINVAL)?;
            wanted.timeout = private.ack_timeout.unwrap_or(parameters.ack_timeout);
            wanted.retry_cnt = parameters.retry_count;
            wanted.rnr_retry = parameters.rnr_retry_count;
            wanted.sq_psn = parameters.send_psn;
            // The peer may answer more than the device asks for.
            let (_, most) = route::depths(&node()?.port());
            wanted.max_rd_atomic = parameters.initiator_depth.min(most);
            mask::STATE
                | mask::TIMEOUT
                | mask::RETRY_CNT
                | mask::RNR_RETRY
                | mask::SQ_PSN
                | mask::MAX_QP_RD_ATOMIC
        }
        _ => return Err(libc::EINVAL),
    };
    Ok((wanted, given))
}

/// The rights of the peer: none before there is one, and reads only if the program answers some.
/// Source: `cma_ib_init_qp_attr` and `cm_init_qp_init_attr` of Linux 6.12.
fn rights(object: &IdObject) -> c_int {
    let private = object.private();
    if private.connection.is_none() {
        return 0;
    }
    let offered = private.parameters.map(|all| all.responder_resources);
    match offered.unwrap_or(private.offered_resources) {
        0 => access::REMOTE_WRITE,
        _ => access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC,
    }
}

fn set_receiving(wanted: &mut ibv_qp_attr, parameters: &Parameters) -> Result<c_int, c_int> {
    let route = route::address_vector(
        &node()?.port(),
        (parameters.local.address(), Within::Vlan(parameters.vlan)),
        parameters.remote.address(),
        parameters.traffic_class,
        parameters.flow_label,
    );
    wanted.ah_attr = route.ok_or(libc::EADDRNOTAVAIL)?;
    wanted.path_mtu = parameters.path_mtu.into();
    wanted.dest_qp_num = parameters.queue_pair;
    wanted.rq_psn = parameters.receive_psn;
    wanted.max_dest_rd_atomic = parameters.responder_resources;
    Ok(mask::STATE
        | mask::AV
        | mask::PATH_MTU
        | mask::DEST_QPN
        | mask::RQ_PSN
        | mask::MAX_DEST_RD_ATOMIC
        | mask::MIN_RNR_TIMER)
}

/// # Safety
/// `id` came from `rdma_create_id`; `init` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_qp(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    match unsafe { create(id, domain, &mut *init) } {
        Ok(()) => 0,
        Err(error) => errno::minus_one(error),
    }
}

/// Makes a queue pair with the operations of the extended form, if the program names some.
///
/// # Safety
/// As [`ringside_rdma_create_qp`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*init };
    let named = match extended::operations(wanted) {
        Ok(named) => named,
        Err(error) => return errno::minus_one(error),
    };
    let domain = match wanted.comp_mask & qp_init::DOMAIN {
        0 => std::ptr::null_mut(),
        _ => wanted.pd,
    };
    // SAFETY: the first 64 bytes of both structures are equal; the caller's promise.
    unsafe {
        let result = ringside_rdma_create_qp(id, domain, init.cast());
        if result != 0 {
            return result;
        }
        if let Some(named) = named {
            extended::enable((*id).qp, named);
        }
        // The domain that was chosen, as rdma-core tells it.
        (*init).pd = (*(*id).qp).pd;
        (*init).comp_mask |= qp_init::DOMAIN;
        result
    }
}

/// # Safety
/// `id` came from `rdma_create_id`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_destroy_qp(id: *mut rdma_cm_id) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        if !(*id).qp.is_null() {
            // It stays while a device that failed may write to the memory of its requests.
            if destroy((*id).qp) == libc::EBUSY {
                return;
            }
            (*id).qp = std::ptr::null_mut();
        }
        destroy_queues(id);
    }
}

/// Attaches the queue pair of an id to a group whose event of joining is read: the program has made
/// it since. Nothing if it is attached, or the program only sends.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn attach_to_group(
    id: *mut rdma_cm_id,
    group: Option<&Arc<Reads>>,
) -> Result<(), c_int> {
    let Some(reads) = group else {
        return Ok(());
    };
    // SAFETY: the caller's promise.
    let (object, pair) = unsafe { (IdObject::of(id), (*id).qp) };
    let mut private = object.private();
    let is_named = |group: &&mut Group| Arc::ptr_eq(&group.reads, reads);
    let Some(group) = private.groups.iter_mut().find(is_named) else {
        return Ok(());
    };
    if group.is_attached
        || group.is_for_sending
        || live::expect(pair, &[live::Kind::QueuePair]).is_err()
    {
        return Ok(());
    }
    // SAFETY: the queue pair lives.
    let joining = unsafe { QueuePairObject::of(pair) };
    groups::attach(joining, &[(group.address, group.vlan)])?;
    group.is_attached = true;
    Ok(())
}

/// Returns attributes for a program that moves a queue pair of its own.
///
/// # Safety
/// `id` came from `rdma_create_id`; the others are valid places.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    into: *mut ibv_qp_attr,
    given: *mut c_int,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match attributes(id, (*into).qp_state) {
            Ok((found, bits)) => {
                *into = found;
                *given = bits;
                0
            }
            Err(error) => errno::minus_one(error),
        }
    }
}
