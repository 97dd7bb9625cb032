//! The objects that programs have made and not yet destroyed, by address.
//!
//! A context ends what is left of it when it is closed, as the kernel does when a program's
//! descriptor goes. Calls that destroy an object twice, or after its context, are refused, and so
//! are those of a child of a fork for objects of its parent: it knows its own alone.

use crate::abi::ibv_context;
use crate::device::lock;
use crate::per_process::PerProcess;
use std::collections::BTreeMap;
use std::ffi::c_int;
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

struct Live {
    kind: Kind,
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
    let context = context as usize;
    all().insert(object as usize, Live { kind, context, end });
    object
}

/// `EINVAL` for an address where no object of these kinds lives. Nothing there is read.
pub(crate) fn expect<T>(object: *mut T, kinds: &[Kind]) -> Result<(), c_int> {
    match all().get(&(object as usize)) {
        Some(live) if kinds.contains(&live.kind) => Ok(()),
        _ => Err(libc::EINVAL),
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
