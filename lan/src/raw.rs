//! The plain pointer by which packets reach their pool. Unsafe code; so are the bytes of packets in
//! `packet::bytes`, the paths in `vector` and the copies in `copy`, and nothing else of this crate.
//!
//! # Why packets may hold a plain pointer
//! A reference-counted one would cost an atomic read-modify-write for each packet. Instead the
//! pool's caches count taken and returned buffers, and [`PoolReference::free`] is called only once
//! the last handle of the pool was dropped, when no buffer is in use: then no packet exists, and
//! none can be made. A packet that is being dropped accesses the pool for the last time when it
//! stores the counter of returned buffers, with release order; who frees the pool reads the
//! counters with acquire order, those of returned buffers first, so that it never counts too few in
//! use. A pool that is dropped while packets are held waits in a list until they were dropped.
//!
//! The pointer is kept as its address, with exposed provenance: the vector paths carry it through
//! integer registers.
#![allow(unsafe_code)]

use crate::shared::Shared;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The reference of a packet to its pool. Copying it does not keep the pool alive.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
pub(crate) struct PoolReference(NonZeroUsize);

// It gives out `&Shared` in any thread.
const fn is_sync<T: Sync + Send>() {}
const _: () = is_sync::<Shared>();

impl PoolReference {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(NonNull::from(Box::leak(Box::new(shared))).expose_provenance())
    }

    #[inline(always)]
    fn pointer(self) -> NonNull<Shared> {
        NonNull::with_exposed_provenance(self.0)
    }

    /// The pool.
    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: alive: `free` has not been called while a packet, a queue or the pool's own
        //         handle exists, and only those hold references. Never borrowed exclusively before
        //         that.
        unsafe { self.pointer().as_ref() }
    }

    /// Frees the pool. Called once, after its last owner was dropped, with nothing in use.
    pub(crate) fn free(self) {
        debug_assert_eq!(self.shared().in_use(), 0);
        // SAFETY: made by `Box::leak` in `new`; freed once, because the owner's `Drop`
        //         either calls this or puts it into the list of dropped pools, which gives it out
        //         once; no packet exists: see the module.
        drop(unsafe { Box::from_raw(self.pointer().as_ptr()) });
    }
}
