//! Queue pairs: making, changing, asking, destroying.

use crate::abi::{ibv_context, ibv_gid};
use crate::abi::{
    ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex, kind, mask,
    state,
};
use crate::address::destination;
use crate::completion::CompletionObject;
use crate::context_object::ContextObject;
use crate::device::lock;
use crate::errno;
use crate::gid::address_of;
use crate::memory::DomainObject;
use crate::shared::SharedObject;
use crate::transitions::{check, keep, no_attributes};
use ringside_pmd::rdma::{
    Connected, DatagramInitialised, DatagramReady, Initialised, QueuePair, QueuePairConfig,
    RdmaError, ReceiveAttributes, Receiving, SendAttributes,
};
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inline bytes that the card takes.
const INLINE_MOST: u32 = ringside_spec::rdma::limits::MAX_INLINE_BYTES;

/// A queue pair in the state that the driver has it in.
pub(crate) enum Pair {
    Initialised(QueuePair<Initialised>),
    Receiving(QueuePair<Receiving>),
    Connected(QueuePair<Connected>),
    DatagramInitialised(QueuePair<DatagramInitialised>),
    DatagramReady(QueuePair<DatagramReady>),
    /// the device refused a change, and nothing is left
    Gone,
}

impl Pair {
    fn number(&self) -> u32 {
        match self {
            Self::Initialised(pair) => pair.number(),
            Self::Receiving(pair) => pair.number(),
            Self::Connected(pair) => pair.number(),
            Self::DatagramInitialised(pair) => pair.number(),
            Self::DatagramReady(pair) => pair.number(),
            Self::Gone => 0,
        }
    }

    /// Has the shared receive queue feed it, if the program names one.
    ///
    /// # Safety
    /// The objects in `init` are of this library.
    unsafe fn attach(&mut self, init: &ibv_qp_init_attr) -> Result<(), c_int> {
        if init.srq.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (shared, queue) = unsafe {
            (
                SharedObject::of(init.srq.cast()),
                CompletionObject::of(init.recv_cq),
            )
        };
        queue.share(init.srq.cast())?;
        let mut receives = lock(&shared.queue);
        let attached = match self {
            Self::Initialised(pair) => receives.attach(pair),
            Self::DatagramInitialised(pair) => receives.attach(pair),
            _ => Ok(()),
        };
        drop(receives);
        if let Err(error) = attached {
            queue.stop_sharing();
            return Err(errno::of(&error));
        }
        shared.users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Destroys one that a shared receive queue feeds: what it had not used serves the others.
    ///
    /// # Safety
    /// The objects in `init` are of this library.
    unsafe fn detach(self, init: &ibv_qp_init_attr) {
        // SAFETY: the caller's promise.
        let (shared, queue) = unsafe {
            (
                SharedObject::of(init.srq.cast()),
                CompletionObject::of(init.recv_cq),
            )
        };
        let mut receives = lock(&shared.queue);
        let gone = match self {
            Self::Initialised(pair) => receives.destroy(pair),
            Self::Receiving(pair) => receives.destroy(pair),
            Self::Connected(pair) => receives.destroy(pair),
            Self::DatagramInitialised(pair) => receives.destroy(pair),
            Self::DatagramReady(pair) => receives.destroy(pair),
            Self::Gone => Ok(0),
        };
        drop(receives);
        if let Err(error) = gone {
            errno::of(&error);
        }
        queue.stop_sharing();
        shared.users.fetch_sub(1, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        match self {
            Self::Initialised(pair) => pair.has_failed(),
            Self::Receiving(pair) => pair.has_failed(),
            Self::Connected(pair) => pair.has_failed(),
            Self::DatagramInitialised(pair) => pair.has_failed(),
            Self::DatagramReady(pair) => pair.has_failed(),
            Self::Gone => true,
        }
    }
}

/// What calls change.
pub(crate) struct Inner {
    pub(crate) pair: Pair,
    pub(crate) state: c_int,
    attributes: ibv_qp_attr,
}

/// A queue pair. The public part is as long as the extended form, which programs may ask for.
#[repr(C)]
pub(crate) struct QueuePairObject {
    pub(crate) public: ibv_qp,
    extended: [u64; 25],
    pub(crate) signal_all: bool,
    init: ibv_qp_init_attr,
    inner: Mutex<Inner>,
}

impl QueuePairObject {
    /// # Safety
    /// `pair` came from [`ibv_create_qp`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(pair: *mut ibv_qp) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*pair.cast() }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// The sizes that are made for a wish: what was asked for, and at least one of each.
fn sizes(asked: &ibv_qp_cap, has_shared: bool) -> Result<ibv_qp_cap, c_int> {
    const REQUESTS_MOST: u32 = 4094;
    const FRAGMENTS_MOST: u32 = ringside_spec::rdma::limits::MAX_FRAGMENTS;
    let receives = if has_shared { 1 } else { asked.max_recv_wr };
    let beyond = asked.max_send_wr > REQUESTS_MOST
        || receives > REQUESTS_MOST
        || asked.max_send_sge > FRAGMENTS_MOST
        || asked.max_recv_sge > FRAGMENTS_MOST
        || asked.max_inline_data > INLINE_MOST;
    if beyond {
        tracing::warn!(
            sends = asked.max_send_wr,
            receives,
            send_fragments = asked.max_send_sge,
            receive_fragments = asked.max_recv_sge,
            inline_bytes = asked.max_inline_data,
            "no queue pair: at most {REQUESTS_MOST} requests of {FRAGMENTS_MOST} fragments and \
             {INLINE_MOST} inline bytes"
        );
        return Err(libc::EINVAL);
    }
    Ok(ibv_qp_cap {
        max_send_wr: asked.max_send_wr.max(1),
        max_recv_wr: receives.max(1),
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: asked.max_recv_sge.max(1),
        max_inline_data: asked.max_inline_data,
    })
}

fn make(domain: &DomainObject, init: &ibv_qp_init_attr, cap: &ibv_qp_cap) -> Result<Pair, c_int> {
    // SAFETY: the caller of `ibv_create_qp` promises its completion queues.
    let (send, receive) = unsafe {
        (
            CompletionObject::of(init.send_cq),
            CompletionObject::of(init.recv_cq),
        )
    };
    let config = QueuePairConfig::reporting_to(send.target.clone())
        .receives_report_to(receive.target.clone())
        .send_requests(cap.max_send_wr)
        .receive_requests(cap.max_recv_wr)
        .send_fragments(cap.max_send_sge)
        .receive_fragments(cap.max_recv_sge)
        .inline_bytes(cap.max_inline_data);
    let made = match init.qp_type {
        kind::RC => domain.domain.queue_pair(config).map(Pair::Initialised),
        kind::UD => domain
            .domain
            .datagram_queue_pair(config)
            .map(Pair::DatagramInitialised),
        _ => return Err(libc::EOPNOTSUPP),
    };
    made.map_err(|error| errno::of(&error))
}

/// # Safety
/// `domain` and the objects in `init` are of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let (object, init) = unsafe { (DomainObject::of(domain), &mut *init) };
    if init.send_cq.is_null() || init.recv_cq.is_null() {
        return errno::null(libc::EINVAL);
    }
    let made = sizes(&init.cap, !init.srq.is_null()).and_then(|mut cap| {
        if !init.srq.is_null() {
            // SAFETY: the caller's promise.
            let shared = unsafe { SharedObject::of(init.srq.cast()) };
            (cap.max_recv_wr, cap.max_recv_sge) = (shared.window(), shared.fragments);
        }
        let mut pair = make(object, init, &cap)?;
        // SAFETY: the caller's promise.
        unsafe { pair.attach(init) }?;
        Ok((pair, cap))
    });
    let (pair, cap) = match made {
        Ok(made) => made,
        Err(error) => return errno::null(error),
    };
    init.cap = cap;
    let made = Box::new(QueuePairObject {
        public: ibv_qp {
            context: object.public.context,
            qp_context: init.qp_context,
            pd: domain,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: pair.number(),
            qp_num: pair.number(),
            state: state::RESET,
            qp_type: init.qp_type,
            mutex: [0; 5],
            cond: [0; 6],
            events_completed: 0,
        },
        extended: [0; 25],
        signal_all: init.sq_sig_all != 0,
        init: *init,
        inner: Mutex::new(Inner {
            pair,
            state: state::RESET,
            attributes: no_attributes(cap),
        }),
    });
    object.users.fetch_add(1, Ordering::Relaxed);
    for queue in [init.send_cq, init.recv_cq] {
        // SAFETY: the caller's promise.
        let queue = unsafe { CompletionObject::of(queue) };
        queue.users.fetch_add(1, Ordering::Relaxed);
    }
    let number = made.public.qp_num;
    let made: *mut ibv_qp = Box::into_raw(made).cast();
    // SAFETY: a domain's context outlives it.
    let context = unsafe { ContextObject::of(object.public.context) };
    let mut registry = lock(&context.port.registry);
    registry.queue_pairs.insert(number, made as usize);
    made
}

/// The slot behind `ibv_create_qp_ex`, for programs that ask for nothing beyond the plain form.
///
/// # Safety
/// `init` is valid; its objects are of this library.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    const DOMAIN: u32 = 1;
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*init };
    if wanted.comp_mask != DOMAIN {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the first 64 bytes of both structures are equal; the caller's promise.
    unsafe { ibv_create_qp(wanted.pd, init.cast()) }
}

/// # Safety
/// `pair` came from [`ibv_create_qp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(pair: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.public.context) };
    lock(&context.port.registry)
        .queue_pairs
        .remove(&object.public.qp_num);
    context.finish_events(pair as usize);
    for queue in [object.public.send_cq, object.public.recv_cq] {
        // SAFETY: completion queues outlive the queue pairs that report to them.
        let queue = unsafe { CompletionObject::of(queue) };
        queue.users.fetch_sub(1, Ordering::Relaxed);
    }
    // SAFETY: a domain outlives its objects.
    let domain = unsafe { DomainObject::of(object.public.pd) };
    domain.users.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: it is in no table any more, and the caller gives it up.
    let object = unsafe { Box::from_raw(pair.cast::<QueuePairObject>()) };
    if !object.init.srq.is_null() {
        let init = object.init;
        let inner = object.inner.into_inner();
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        // SAFETY: shared receive queue and completion queue outlive it.
        unsafe { inner.pair.detach(&init) };
    }
    0
}

/// # Safety
/// `pair` came from [`ibv_create_qp`]; `attributes` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    given: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (object, wanted) = unsafe { (QueuePairObject::of(pair), &*attributes) };
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.public.context) };
    let mut inner = object.inner();
    let from = if inner.pair.has_failed() {
        state::ERR
    } else {
        inner.state
    };
    let to = if given & mask::STATE != 0 {
        wanted.qp_state
    } else {
        from
    };
    let result = check(object.public.qp_type, from, to, given)
        .and_then(|()| inner.change(context, wanted, given, from, to));
    let now = inner.state;
    drop(inner);
    // SAFETY: the public field belongs to the library, and follows its calls.
    unsafe { (*pair).state = now };
    result.err().unwrap_or(0)
}

impl Inner {
    fn change(
        &mut self,
        context: &ContextObject,
        wanted: &ibv_qp_attr,
        given: c_int,
        from: c_int,
        to: c_int,
    ) -> Result<(), c_int> {
        if given & mask::PORT != 0 && wanted.port_num != 1 {
            return Err(libc::EINVAL);
        }
        if given & mask::PKEY_INDEX != 0 && wanted.pkey_index != 0 {
            return Err(libc::EINVAL);
        }
        let mut next = self.attributes;
        keep(&mut next, wanted, given);
        match (from, to) {
            (state::INIT, state::RTR) => self.receive(context, &next)?,
            (state::RTR, state::RTS) => self.send(&next)?,
            (_, state::ERR) => self.fail()?,
            (state::RESET, state::RESET) => {}
            (_, state::RESET) => return Err(libc::EOPNOTSUPP),
            _ => {}
        }
        self.attributes = next;
        self.state = to;
        Ok(())
    }

    fn receive(&mut self, context: &ContextObject, next: &ibv_qp_attr) -> Result<(), c_int> {
        let refuse = |error: &RdmaError| errno::of(error);
        match std::mem::replace(&mut self.pair, Pair::Gone) {
            Pair::Initialised(pair) => {
                let wanted = match receive_attributes(context, next) {
                    Ok(wanted) => wanted,
                    Err(error) => {
                        self.pair = Pair::Initialised(pair);
                        return Err(error);
                    }
                };
                match pair.receive_from(&wanted) {
                    Ok(pair) => self.pair = Pair::Receiving(pair),
                    Err(refused) => {
                        let error = refuse(&refused.error);
                        if let Some(pair) = refused.into_queue_pair() {
                            self.pair = Pair::Initialised(pair);
                        }
                        return Err(error);
                    }
                }
            }
            Pair::DatagramInitialised(pair) => match pair.ready(next.qkey) {
                Ok(pair) => self.pair = Pair::DatagramReady(pair),
                Err(refused) => return Err(refuse(&refused.error)),
            },
            other => self.pair = other,
        }
        Ok(())
    }

    fn send(&mut self, next: &ibv_qp_attr) -> Result<(), c_int> {
        match std::mem::replace(&mut self.pair, Pair::Gone) {
            Pair::Receiving(pair) => {
                let wanted = SendAttributes {
                    psn: next.sq_psn & 0xFF_FFFF,
                    retries: next.retry_cnt.min(7),
                    receiver_not_ready_retries: next.rnr_retry.min(7),
                    outbound_reads: next.max_rd_atomic.min(127),
                };
                match pair.send_from(&wanted) {
                    Ok(pair) => self.pair = Pair::Connected(pair),
                    Err(refused) => return Err(errno::of(&refused.error)),
                }
            }
            other => self.pair = other,
        }
        Ok(())
    }

    fn fail(&mut self) -> Result<(), c_int> {
        let failed = match &mut self.pair {
            Pair::Receiving(pair) => pair.fail(),
            Pair::Initialised(pair) => pair.fail(),
            Pair::DatagramInitialised(pair) => pair.fail(),
            Pair::Connected(pair) => pair.fail(),
            Pair::DatagramReady(pair) => pair.fail(),
            Pair::Gone => Ok(()),
        };
        failed.map_err(|error| errno::of(&error))
    }
}

fn receive_attributes(
    context: &ContextObject,
    next: &ibv_qp_attr,
) -> Result<ReceiveAttributes, c_int> {
    let code = u32::try_from(next.path_mtu).unwrap_or(0);
    if !(1..=5).contains(&code) {
        return Err(libc::EINVAL);
    }
    tracing::debug!(peer = %address_of(&next.ah_attr.grh.dgid), "connecting");
    Ok(ReceiveAttributes {
        path: destination(&context.port, &next.ah_attr)?,
        queue_pair: next.dest_qp_num & 0xFF_FFFF,
        psn: next.rq_psn & 0xFF_FFFF,
        path_mtu: 128 << code,
        inbound_reads: next.max_dest_rd_atomic.min(127),
    })
}

/// # Safety
/// `pair` came from [`ibv_create_qp`]; the others are places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    let inner = object.inner();
    let now = if inner.pair.has_failed() {
        state::ERR
    } else {
        inner.state
    };
    let mut all = inner.attributes;
    all.qp_state = now;
    all.cur_qp_state = now;
    drop(inner);
    // SAFETY: the caller's places; the public field belongs to the library.
    unsafe {
        *attributes = all;
        *init = object.init;
        (*pair).state = now;
    }
    0
}

/// Answers of this device: none is promised.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}

/// There is no extended form of posting: programs fall back to work requests.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_qp_to_qp_ex(_: *mut ibv_qp) -> *mut ibv_qp {
    std::ptr::null_mut()
}

fn group(pair: *mut ibv_qp, gid: *const ibv_gid, join: bool) -> c_int {
    // SAFETY: the callers' promises, which are the same.
    let (object, address) = unsafe { (QueuePairObject::of(pair), address_of(&*gid)) };
    let inner = object.inner();
    let Pair::DatagramReady(pair) = &inner.pair else {
        return libc::EINVAL;
    };
    let result = if join {
        pair.join(address)
    } else {
        pair.leave(address)
    };
    result.err().map_or(0, |error| errno::of(&error))
}

/// # Safety
/// `pair` came from [`ibv_create_qp`]; `gid` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(pair: *mut ibv_qp, gid: *const ibv_gid, _: u16) -> c_int {
    group(pair, gid, true)
}

/// # Safety
/// `pair` came from [`ibv_create_qp`]; `gid` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(pair: *mut ibv_qp, gid: *const ibv_gid, _: u16) -> c_int {
    group(pair, gid, false)
}

#[cfg(test)]
mod tests {
    use super::sizes;
    use crate::abi::ibv_qp_cap;

    #[test]
    fn sizes_beyond_the_device_are_refused_and_others_kept() {
        let asked = ibv_qp_cap {
            max_send_wr: 100,
            max_recv_wr: 0,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 101,
        };
        let made = sizes(&asked, false).unwrap();
        assert_eq!(
            (made.max_send_wr, made.max_recv_wr, made.max_inline_data),
            (100, 1, 101)
        );
        let more = ibv_qp_cap {
            max_inline_data: 102,
            ..asked
        };
        assert_eq!(sizes(&more, false).err(), Some(libc::EINVAL));
    }
}
