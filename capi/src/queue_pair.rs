//! Queue pairs: making, changing, asking, destroying.

use crate::abi::{
    event, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_srq,
    kind, mask, state,
};
use crate::bounce::{Bounce, MAX_BOUNCE};
use crate::builder::Builder;
use crate::cancel::Uncancelled;
use crate::completion::CompletionObject;
use crate::context_object::{ContextObject, Reported};
use crate::device::lock;
use crate::errno;
use crate::guarded::{Guarded, Held};
use crate::live::{self, Kind};
use crate::memory::DomainObject;
use crate::pair::{Group, Pair};
use crate::shared::SharedObject;
use crate::transitions::no_attributes;
use ringside_pmd::rdma::QueuePairConfig;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Inline bytes that the card takes.
const MAX_INLINE: u32 = ringside_spec::rdma::limits::MAX_INLINE_BYTES;

/// State that calls change.
pub(crate) struct Inner {
    pub(crate) pair: Pair,
    pub(crate) state: c_int,
    /// fragments of a send request
    pub(crate) most_fragments: u32,
    /// bytes that a request holds itself
    pub(crate) inline_bytes: u32,
    /// for inline data beyond the card's; freed after the queue pair
    pub(crate) bounce: Option<Bounce>,
    /// the shared receive queue that feeds it, or null
    pub(crate) shared: *mut SharedObject,
    pub(crate) attributes: ibv_qp_attr,
    /// the multicast groups that it is a member of
    pub(crate) groups: Vec<Group>,
}

/// A queue pair. The public part has the size of the extended form, which programs may request.
#[repr(C)]
pub(crate) struct QueuePairObject {
    public: ibv_qp_ex,
    pub(crate) signal_all: bool,
    /// the operations of the extended form that it was made for, if it was made for some
    pub(crate) operations: Cell<Option<u64>>,
    /// the builder, from `ibv_wr_start` to the end of the batch; used by its holder alone
    pub(crate) batch: UnsafeCell<Option<Held<'static, Builder>>>,
    pub(crate) builder: Guarded<Builder>,
    init: ibv_qp_init_attr,
    inner: Guarded<Inner>,
    /// the device has it no more, or has failed
    is_ended: AtomicBool,
    /// the program was told that it takes no more receives of its shared queue
    pub(crate) told_of_last_receive: AtomicBool,
}

impl QueuePairObject {
    /// # Safety
    /// `pair` came from [`ibv_create_qp`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(pair: *mut ibv_qp) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*pair.cast() }
    }

    /// The capacities that it was made with.
    pub(crate) fn capacities(&self) -> &ibv_qp_cap {
        &self.init.cap
    }

    /// The plain form of its public part.
    pub(crate) fn plain(&self) -> &ibv_qp {
        &self.public.qp_base
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> Held<'_, Inner> {
        self.inner.hold()
    }

    /// It has failed, by the device or by the program. Requests that no event of the device tells
    /// of give one in time. It takes no more receives of its shared queue: tells the program once
    /// until it is reset, since programs wait for that before they destroy it.
    pub(crate) fn note_failure(&self) {
        // SAFETY: a context outlives its objects.
        let context = unsafe { ContextObject::of(self.plain().context) };
        context.port.failing.add(self.plain().qp_num);
        if self.init.srq.is_null() || self.told_of_last_receive.swap(true, Ordering::AcqRel) {
            return;
        }
        context.events.push(Reported {
            element: &raw const self.public as usize,
            kind: event::QP_LAST_WQE_REACHED,
        });
    }

    /// True if its sends or its receives complete on this queue.
    pub(crate) fn reports_to(&self, queue: *mut ibv_cq) -> bool {
        [self.init.send_cq, self.init.recv_cq].contains(&queue)
    }

    /// The library has completed its requests, without an event of the device: tells the channels
    /// of its completion queues.
    pub(crate) fn notify_queues(&self) {
        self.queues().for_each(CompletionObject::notify);
    }

    /// The device has reported that it failed: see [`CompletionObject::tell_of_failure`].
    pub(crate) fn tell_of_failure(&self) {
        self.queues().for_each(CompletionObject::tell_of_failure);
    }

    /// It failed a short time ago: see [`CompletionObject::tell_of_flushed`].
    pub(crate) fn tell_of_flushed(&self) {
        self.queues().for_each(CompletionObject::tell_of_flushed);
    }

    fn queues(&self) -> impl Iterator<Item = &CompletionObject> {
        let both = [self.init.send_cq, self.init.recv_cq].into_iter();
        // SAFETY: a completion queue outlives its queue pairs: it refuses to go before.
        both.map(|queue| unsafe { CompletionObject::of(queue) })
    }
}

/// The sizes for a request: the requested ones, and at least one of each.
fn sizes(asked: &ibv_qp_cap, has_shared: bool) -> Result<ibv_qp_cap, c_int> {
    const MAX_REQUESTS: u32 = 16_384;
    const MAX_FRAGMENTS: u32 = ringside_spec::rdma::limits::MAX_FRAGMENTS;
    let receives = if has_shared { 1 } else { asked.max_recv_wr };
    let beyond = asked.max_send_wr > MAX_REQUESTS
        || receives > MAX_REQUESTS
        || asked.max_send_sge > MAX_FRAGMENTS
        || asked.max_recv_sge > MAX_FRAGMENTS
        || asked.max_inline_data > MAX_BOUNCE;
    if beyond {
        tracing::warn!(
            sends = asked.max_send_wr,
            receives,
            send_fragments = asked.max_send_sge,
            receive_fragments = asked.max_recv_sge,
            inline_bytes = asked.max_inline_data,
            "no queue pair: at most {MAX_REQUESTS} requests of {MAX_FRAGMENTS} fragments and \
             {MAX_BOUNCE} inline bytes"
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
        .inline_bytes(cap.max_inline_data.min(MAX_INLINE));
    let made = match init.qp_type {
        kind::RC => domain.domain.queue_pair(config).map(Pair::Initialised),
        kind::UD => domain
            .domain
            .datagram_queue_pair(config)
            .map(Pair::DatagramInitialised),
        kind::UC | kind::RAW_PACKET | kind::XRC_SEND | kind::XRC_RECEIVE | kind::DRIVER => {
            return Err(libc::EOPNOTSUPP);
        }
        _ => return Err(libc::EINVAL),
    };
    made.map_err(|error| errno::of(&error))
}

/// Memory for inline data that the card does not take in a request.
fn bounce(domain: &DomainObject, cap: &ibv_qp_cap) -> Result<Option<Bounce>, c_int> {
    if cap.max_inline_data <= MAX_INLINE {
        return Ok(None);
    }
    // SAFETY: a domain's context outlives it.
    let context = unsafe { ContextObject::of(domain.public.context) };
    let (sends, bytes) = (cap.max_send_wr, cap.max_inline_data);
    Bounce::make(&context.port, &domain.domain, sends, bytes).map(Some)
}

/// True if there are completion queues, and if they, the shared receive queue and the domain are of
/// one context: the kernel's handles name nothing in another one.
///
/// # Safety
/// The objects in `init` are of this library, or null.
unsafe fn is_of_one_context(domain: &DomainObject, init: &ibv_qp_init_attr) -> bool {
    let context = domain.public.context;
    let (send, receive, shared) = (init.send_cq, init.recv_cq, init.srq.cast::<ibv_srq>());
    // SAFETY: the caller's promise.
    unsafe {
        let queues = [send.as_ref(), receive.as_ref()];
        queues.map(|queue| queue.is_some_and(|queue| queue.context == context)) == [true; 2]
            && shared
                .as_ref()
                .is_none_or(|shared| shared.context == context)
    }
}

/// Makes the device's queue pair for `init` with its bounce memory, and attaches it to its shared
/// receive queue if it has one. Returns the capacities that it has.
///
/// # Safety
/// The objects in `init` are of this library.
unsafe fn make_attached(
    domain: &DomainObject,
    init: &ibv_qp_init_attr,
) -> Result<(Pair, Option<Bounce>, ibv_qp_cap), c_int> {
    let mut cap = sizes(&init.cap, !init.srq.is_null())?;
    if !init.srq.is_null() {
        // SAFETY: the caller's promise.
        let shared = unsafe { SharedObject::of(init.srq.cast()) };
        (cap.max_recv_wr, cap.max_recv_sge) = (shared.room(), shared.fragments);
    }
    let bounce = bounce(domain, &cap)?;
    let mut pair = make(domain, init, &cap)?;
    if init.srq.is_null() {
        cap.max_recv_wr = pair.receive_capacity();
    }
    // SAFETY: the caller's promise.
    unsafe { pair.attach(init) }?;
    Ok((pair, bounce, cap))
}

/// The part of a new queue pair that programs see.
fn public_form(
    domain: *mut ibv_pd,
    object: &DomainObject,
    init: &ibv_qp_init_attr,
    number: u32,
) -> ibv_qp_ex {
    // SAFETY: numbers, pointers and functions that may be missing: all zero is a value.
    let mut public: ibv_qp_ex = unsafe { std::mem::zeroed() };
    public.qp_base.context = object.public.context;
    public.qp_base.qp_context = init.qp_context;
    public.qp_base.pd = domain;
    public.qp_base.send_cq = init.send_cq;
    public.qp_base.recv_cq = init.recv_cq;
    public.qp_base.srq = init.srq;
    public.qp_base.handle = number;
    public.qp_base.qp_num = number;
    public.qp_base.state = state::RESET;
    public.qp_base.qp_type = init.qp_type;
    public
}

/// # Safety
/// `domain` and the objects in `init` are of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (object, init) = unsafe { (DomainObject::of(domain), &mut *init) };
    let known = live::expect_domain(domain).and_then(|()| live::expect_queues(init));
    if let Err(error) = known {
        return errno::null(error);
    }
    // SAFETY: the caller's promise.
    if !unsafe { is_of_one_context(object, init) } {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let made = unsafe { make_attached(object, init) };
    let (pair, bounce, cap) = match made {
        Ok(made) => made,
        Err(error) => return errno::null(error),
    };
    init.cap = cap;
    let public = public_form(domain, object, init, pair.number());
    let inner = Inner {
        pair,
        state: state::RESET,
        most_fragments: cap.max_send_sge,
        inline_bytes: cap.max_inline_data.min(MAX_INLINE),
        bounce,
        shared: init.srq.cast(),
        attributes: no_attributes(cap),
        groups: Vec::new(),
    };
    let is_single = object.is_single();
    let made = Box::new(QueuePairObject {
        public,
        signal_all: init.sq_sig_all != 0,
        operations: Cell::new(None),
        batch: UnsafeCell::new(None),
        builder: Guarded::new(Builder::default(), is_single),
        init: *init,
        inner: Guarded::new(inner, is_single),
        is_ended: AtomicBool::new(false),
        told_of_last_receive: AtomicBool::new(false),
    });
    object.users.fetch_add(1, Ordering::Relaxed);
    for queue in [init.send_cq, init.recv_cq] {
        // SAFETY: the caller's promise.
        let queue = unsafe { CompletionObject::of(queue) };
        queue.users.fetch_add(1, Ordering::Relaxed);
    }
    for queue in [init.send_cq, init.recv_cq] {
        // SAFETY: the caller's promise.
        unsafe { CompletionObject::of(queue) }.take_requests();
    }
    let number = made.plain().qp_num;
    let made: *mut ibv_qp = Box::into_raw(made).cast();
    // SAFETY: as for the exported call.
    let end = |pair| unsafe { destroy(pair as *mut _) };
    live::enter(made, Kind::QueuePair, object.public.context, end);
    // SAFETY: a domain's context outlives it.
    let context = unsafe { ContextObject::of(object.public.context) };
    let mut registry = lock(&context.port.registry);
    registry.queue_pairs.insert(number, made as usize);
    made
}

/// Destroys a queue pair. Errors: `EBUSY` while it is a member of a multicast group, or while a
/// device that failed may still write to the memory of its requests: it can be destroyed later.
///
/// # Safety
/// `pair` came from [`ibv_create_qp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(pair: *mut ibv_qp) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(pair, &[Kind::QueuePair]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if !QueuePairObject::of(pair).inner().groups.is_empty() {
            return errno::failed(libc::EBUSY);
        }
        destroy(pair)
    }
}

/// Destroys a queue pair, which leaves its multicast groups.
///
/// Errors: `EBUSY` while a device that failed may still write.
///
/// # Safety
/// As for [`ibv_destroy_qp`].
pub(crate) unsafe fn destroy(pair: *mut ibv_qp) -> c_int {
    if let Err(error) = live::expect(pair, &[Kind::QueuePair]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.plain().context) };
    if let Err(error) = context.port.await_rest() {
        return errno::failed(error);
    }
    if !object.is_ended.swap(true, Ordering::AcqRel) {
        // SAFETY: the caller's promise.
        unsafe { end(object, context) };
        // The device may have failed by these commands.
        if let Err(error) = context.port.await_rest() {
            return errno::failed(error);
        }
    }
    for queue in [object.plain().send_cq, object.plain().recv_cq] {
        // SAFETY: completion queues outlive the queue pairs that report to them.
        let queue = unsafe { CompletionObject::of(queue) };
        queue.users.fetch_sub(1, Ordering::Relaxed);
    }
    // SAFETY: a domain outlives its objects.
    let domain = unsafe { DomainObject::of(object.plain().pd) };
    domain.users.fetch_sub(1, Ordering::Relaxed);
    live::leave(pair);
    // SAFETY: it is in no table any more, and the caller gives it up.
    drop(unsafe { Box::from_raw(pair.cast::<QueuePairObject>()) });
    0
}

/// Takes a queue pair from the device and from all that know it. Its object stays.
///
/// # Safety
/// Completion queues and shared receive queue outlive it.
unsafe fn end(object: &QueuePairObject, context: &ContextObject) {
    let number = object.plain().qp_num;
    lock(&context.port.registry).queue_pairs.remove(&number);
    context.finish_events(&raw const object.public as usize);
    for queue in [object.plain().send_cq, object.plain().recv_cq] {
        // SAFETY: the caller's promise.
        unsafe { CompletionObject::of(queue) }.forget(number);
    }
    let pair = std::mem::replace(&mut object.inner().pair, Pair::Gone);
    match object.init.srq.is_null() {
        true => drop(pair),
        // SAFETY: the caller's promise.
        false => unsafe { pair.detach(&object.init, number) },
    }
}

/// # Safety
/// `pair` came from [`ibv_create_qp`]; the others are places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    given: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(pair, &[Kind::QueuePair]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    let inner = object.inner();
    let now = inner.shown_state();
    let mut all = inner.attributes;
    if given & (mask::RQ_PSN | mask::SQ_PSN) != 0
        && let Pair::Connected(pair) = &inner.pair
    {
        match pair.query() {
            Ok(report) => {
                (all.sq_psn, all.rq_psn) = (report.next_psn, report.expected_psn);
            }
            Err(error) => {
                return errno::failed(errno::of(&error));
            }
        }
    }
    all.qp_state = now;
    all.cur_qp_state = now;
    drop(inner);
    // SAFETY: the caller's places; the public field belongs to the library.
    unsafe {
        *attributes = all;
        *init = object.init;
        // As rdma-core's: programs (UCX) look at the field, and ask for other attributes meanwhile.
        if given & mask::STATE != 0 {
            (*pair).state = now;
        }
    }
    0
}

/// Answers of this device: none is promised.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
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
            max_inline_data: 1025,
            ..asked
        };
        assert_eq!(sizes(&more, false).err(), Some(libc::EINVAL));
    }
}
