//! Shared receive queues. The card has none: they exist in software. Messages are copied, see
//! [`lending`], except for very long receives, which are given to the queue pairs.

use crate::abi::{event, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use crate::cancel::Uncancelled;
use crate::context_object::{ContextObject, Reported};
use crate::errno;
use crate::guarded::Guarded;
use crate::live::{self, Kind};
use crate::memory::DomainObject;
use ringside_pmd::rdma::{SharedReceiveConfig, SharedReceiveQueue};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) mod feeds;
pub(crate) mod lending;
mod places;

use lending::Receives;
use places::places;

/// Most receives that each queue pair is given at a time.
const MAX_WINDOW: u32 = 64;
/// Queue pairs that are to have receives at a time, however many of them come after the receives.
const SHARES: u32 = 8;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SharedObject {
    pub(crate) public: ibv_srq,
    pub(crate) queue: Guarded<Receives>,
    receives: u32,
    pub(crate) fragments: u32,
    limit: AtomicU32,
    /// queue pairs that it feeds
    pub(crate) users: AtomicU32,
}

/// Receives that each queue pair of a shared receive queue of this size is given at a time.
fn window(receives: u32) -> u32 {
    (receives / SHARES).clamp(1, MAX_WINDOW)
}

impl SharedObject {
    /// # Safety
    /// `shared` came from [`ibv_create_srq`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(shared: *mut ibv_srq) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*shared.cast() }
    }

    /// Receives that the queue of a queue pair has room for.
    pub(crate) fn room(&self) -> u32 {
        window(self.receives).max(places(self.receives))
    }

    /// Reports that the limit was reached, if the program requested the event.
    pub(crate) fn report_limit(&self, queue: &mut SharedReceiveQueue) {
        if !queue.take_limit_event() {
            return;
        }
        self.limit.store(0, Ordering::Relaxed);
        // SAFETY: a context outlives its objects.
        let context = unsafe { ContextObject::of(self.public.context) };
        context.events.push(Reported {
            element: &raw const self.public as usize,
            kind: event::SRQ_LIMIT_REACHED,
        });
    }
}

/// # Safety
/// `domain` is one of this library; `init` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    domain: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect_domain(domain) {
        return errno::null(error);
    }
    // SAFETY: the caller's promise.
    let (object, init) = unsafe { (DomainObject::of(domain), &mut *init) };
    let (receives, fragments) = (init.attr.max_wr.max(1), init.attr.max_sge.max(1));
    let config = SharedReceiveConfig {
        receives,
        fragments,
        window: window(receives),
    };
    let queue = match object.domain.shared_receive_queue(&config) {
        Ok(queue) => queue,
        Err(error) => return errno::null(errno::of(&error)),
    };
    (init.attr.max_wr, init.attr.max_sge) = (receives, fragments);
    object.users.fetch_add(1, Ordering::Relaxed);
    let made = Box::new(SharedObject {
        public: ibv_srq {
            context: object.public.context,
            srq_context: init.srq_context,
            pd: domain,
            handle: 0,
            mutex: [0; 5],
            cond: [0; 6],
            events_completed: 0,
        },
        queue: Guarded::new(
            Receives::new(queue, receives, object.domain.clone()),
            object.is_single(),
        ),
        receives,
        fragments,
        limit: AtomicU32::new(0),
        users: AtomicU32::new(0),
    });
    let made = Box::into_raw(made);
    // SAFETY: as for the exported call.
    let end = |shared| unsafe { ibv_destroy_srq(shared as *mut _) };
    live::enter(made, Kind::SharedReceives, object.public.context, end).cast()
}

/// # Safety
/// `shared` came from [`ibv_create_srq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(shared: *mut ibv_srq) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(shared, &[Kind::SharedReceives]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { SharedObject::of(shared) };
    if object.users.load(Ordering::Relaxed) > 0 {
        return errno::failed(libc::EBUSY);
    }
    // SAFETY: a context and a domain outlive their objects; nothing uses this one any more.
    unsafe {
        ContextObject::of(object.public.context).finish_events(shared as usize);
        let domain = DomainObject::of(object.public.pd);
        live::leave(shared);
        drop(Box::from_raw(shared.cast::<SharedObject>()));
        domain.users.fetch_sub(1, Ordering::Relaxed);
    }
    0
}

/// Sets the limit below which an event is reported, if `given` names it. The size stays as it is.
///
/// # Safety
/// `shared` came from [`ibv_create_srq`]; `wanted` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    shared: *mut ibv_srq,
    wanted: *const ibv_srq_attr,
    given: c_int,
) -> c_int {
    const LIMIT: c_int = 2;
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (object, wanted) = unsafe { (SharedObject::of(shared), &*wanted) };
    if given == 0 {
        return 0;
    }
    if given != LIMIT || wanted.srq_limit > object.receives {
        return errno::failed(libc::EINVAL);
    }
    let mut receives = object.queue.hold();
    let queue = &mut receives.queue;
    queue.arm_limit(wanted.srq_limit);
    object.limit.store(wanted.srq_limit, Ordering::Relaxed);
    object.report_limit(queue);
    0
}

/// # Safety
/// `shared` came from [`ibv_create_srq`]; `attributes` is a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(
    shared: *mut ibv_srq,
    attributes: *mut ibv_srq_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let object = SharedObject::of(shared);
        *attributes = ibv_srq_attr {
            max_wr: object.receives,
            max_sge: object.fragments,
            srq_limit: object.limit.load(Ordering::Relaxed),
        };
    }
    0
}
