//! The objects that programs have made and not yet destroyed, by address.
//!
//! A context ends what is left of it when it is closed, as the kernel does when a program's
//! descriptor goes. Calls that destroy an object twice, or after its context, are refused, and so
//! are those of a child of a fork for objects of its parent: it knows its own alone.

use crate::abi::{
    ibv_ah, ibv_context, ibv_cq, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_srq,
};
use crate::device::lock;
use ringside_bus::PerProcess;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard};

/// The kind of an object, in the order in which those of a context end: users before the objects
/// that they use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    QueuePair,
    AddressHandle,
    Window,
    Region,
    SharedReceives,
    CompletionQueue,
    ParentDomain,
    Domain,
    Context,
}

/// Destroys the object at an address; an errno value, or 0.
pub(crate) type End = unsafe fn(usize) -> c_int;

impl Kind {
    /// The place of `handle` in the public structure, with which each object begins.
    const fn place_of_handle(self) -> Option<usize> {
        match self {
            Self::QueuePair => Some(offset_of!(ibv_qp, handle)),
            Self::AddressHandle => Some(offset_of!(ibv_ah, handle)),
            Self::Window => Some(offset_of!(ibv_mw, handle)),
            Self::Region => Some(offset_of!(ibv_mr, handle)),
            Self::SharedReceives => Some(offset_of!(ibv_srq, handle)),
            Self::CompletionQueue => Some(offset_of!(ibv_cq, handle)),
            Self::ParentDomain | Self::Domain => Some(offset_of!(ibv_pd, handle)),
            Self::Context => None,
        }
    }

    /// The public handle of the object at an address, which a program may change.
    ///
    /// # Safety
    /// An object of this kind lives there.
    unsafe fn handle_of(self, object: usize) -> u32 {
        let place = self.place_of_handle();
        // SAFETY: within the public structure, by the caller's promise.
        place.map_or(0, |place| unsafe { *((object + place) as *const u32) })
    }
}

struct Live {
    kind: Kind,
    /// as it was made
    handle: u32,
    context: usize,
    end: End,
}

static LIVE: PerProcess<Mutex<BTreeMap<usize, Live>>> = PerProcess::new();

/// The objects of this process, locked.
fn all() -> MutexGuard<'static, BTreeMap<usize, Live>> {
    lock(LIVE.get_or_init(Mutex::default))
}

/// An object is made, which `end` destroys if it is left when its context is closed. Returns its
/// pointer.
pub(crate) fn enter<T>(object: *mut T, kind: Kind, context: *mut ibv_context, end: End) -> *mut T {
    let live = Live {
        kind,
        // SAFETY: just made, and the public structure comes first in each object.
        handle: unsafe { kind.handle_of(object as usize) },
        context: context as usize,
        end,
    };
    all().insert(object as usize, live);
    object
}

/// `EINVAL` for an address where no object of these kinds lives: nothing there is read. `ENOENT`
/// for an object whose `handle` the program has changed: the kernel would look for another one.
pub(crate) fn expect<T>(object: *mut T, kinds: &[Kind]) -> Result<(), c_int> {
    let all = all();
    let live = all.get(&(object as usize));
    let live = live.filter(|live| kinds.contains(&live.kind));
    let live = live.ok_or(libc::EINVAL)?;
    // SAFETY: it lives, as the table is locked.
    match unsafe { live.kind.handle_of(object as usize) } == live.handle {
        true => Ok(()),
        false => Err(libc::ENOENT),
    }
}

/// As [`expect`] for a protection domain of a program's call.
pub(crate) fn expect_domain(domain: *mut ibv_pd) -> Result<(), c_int> {
    expect(domain, &[Kind::Domain, Kind::ParentDomain])
}

/// As [`expect`] for the completion queues and the shared receive queue of a new queue pair.
pub(crate) fn expect_queues(init: &ibv_qp_init_attr) -> Result<(), c_int> {
    for queue in [init.send_cq, init.recv_cq] {
        if !queue.is_null() {
            expect(queue, &[Kind::CompletionQueue])?;
        }
    }
    match init.srq.is_null() {
        true => Ok(()),
        false => expect(init.srq, &[Kind::SharedReceives]),
    }
}

/// An object is about to be freed.
pub(crate) fn leave<T>(object: *mut T) {
    all().remove(&(object as usize));
}

/// The objects that a context has left, users before the objects that they use.
fn left_of(context: *mut ibv_context) -> Vec<(Kind, usize, End)> {
    let live = all();
    let objects = live
        .iter()
        .filter(|(_, live)| live.context == context as usize);
    let objects = objects.filter(|(_, live)| live.kind != Kind::Context);
    let mut left: Vec<_> = objects
        .map(|(object, live)| (live.kind, *object, live.end))
        .collect();
    left.sort_unstable_by_key(|(kind, object, _)| (*kind, *object));
    left
}

/// Destroys the objects that a context has left. False if one stays.
///
/// # Safety
/// The context is open, and no other thread uses it or an object of it.
pub(crate) unsafe fn end_all(context: *mut ibv_context) -> bool {
    let mut are_gone = true;
    for (_, object, end) in left_of(context) {
        // SAFETY: the table has only objects that were not freed, each with the call that frees it.
        let ended = unsafe { end(object) };
        if ended != 0 {
            are_gone = false;
            tracing::warn!(errno = ended, "an object of a closed context stays");
        }
    }
    are_gone
}
