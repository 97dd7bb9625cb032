//! Thread domains, and parent domains: protection domains whose objects one thread uses.

use crate::abi::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, parent_domain,
};
use crate::cancel::Uncancelled;
use crate::errno;
use crate::live::{self, Kind};
use crate::memory::{DomainObject, Joined, ThreadObject, end_domain};
use crate::shared_handles::SharedHandles;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// The slot behind `ibv_alloc_td`.
///
/// # Safety
/// `context` is open; `wanted` is valid.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    wanted: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the caller's promise.
    if unsafe { (*wanted).comp_mask } != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    let made = Box::new(ThreadObject {
        public: ibv_td { context },
        users: AtomicU32::new(0),
    });
    Box::into_raw(made).cast()
}

/// The slot behind `ibv_dealloc_td`: `EBUSY` while a parent domain has it.
///
/// # Safety
/// `thread` came from [`alloc_td`].
pub(crate) unsafe extern "C" fn dealloc_td(thread: *mut ibv_td) -> c_int {
    let object = thread.cast::<ThreadObject>();
    // SAFETY: the caller's promise.
    unsafe {
        if (*object).users.load(Ordering::Relaxed) > 0 {
            return errno::failed(libc::EBUSY);
        }
        drop(Box::from_raw(object));
    }
    0
}

/// The slot behind `ibv_alloc_parent_domain`. The result is usable wherever a protection domain is;
/// the keys of its regions serve the protection domain that it joins too.
///
/// Errors: `EINVAL` without a protection domain or with one of another context; `EOPNOTSUPP` for
/// allocators: rings lie in memory that the device reaches, which the program cannot provide.
///
/// # Safety
/// `context` is open; `wanted` is valid, its objects are of this library.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    wanted: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*wanted };
    if wanted.comp_mask & !parent_domain::DOMAIN_CONTEXT != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's promise.
    let (base, thread) = unsafe {
        (
            wanted.pd.cast::<DomainObject>().as_ref(),
            wanted.td.cast::<ThreadObject>().as_ref(),
        )
    };
    let is_foreign = thread.is_some_and(|thread| thread.public.context != context);
    let base = base.filter(|base| base.public.context == context && !base.is_parent());
    let Some(base) = base.filter(|_| !is_foreign) else {
        return errno::null(libc::EINVAL);
    };
    base.users.fetch_add(1, Ordering::Relaxed);
    if let Some(thread) = thread {
        thread.users.fetch_add(1, Ordering::Relaxed);
    }
    let made = Box::new(DomainObject {
        public: ibv_pd {
            context,
            handle: base.public.handle,
        },
        domain: base.domain.clone(),
        users: AtomicU32::new(0),
        handles: SharedHandles::default(),
        parent: Some(Joined {
            domain: wanted.pd,
            thread: wanted.td.cast(),
        }),
    });
    live::enter(Box::into_raw(made), Kind::ParentDomain, context, end_domain).cast()
}
