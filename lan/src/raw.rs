//! The plain pointer by which packets reach their pool. Unsafe code; so are the bytes of packets in
//! `packet::bytes`, the paths in `vector` and the copies in `copy`, and nothing else of this crate.
//!
//! # Why packets may hold a plain pointer
//! A reference-counted one would cost an atomic read-modify-write for each packet. Instead the pool's
//! caches count taken and returned buffers, and [`PoolReference::free`] is called only by the last
//! handle of the pool, when no buffer is in use: then no packet exists, and none can be made. A
//! packet that is being dropped accesses the pool for the last time when it stores the counter of
//! returned buffers, with release order; the owner reads the counters with acquire order. A pool
//! that is
//! dropped while packets are held is never freed.
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
        // SAFETY: alive: `free` has not been called while a packet, a queue or the pool's own handle
        //         exists, and only those hold references. Never borrowed exclusively before that.
        unsafe { self.pointer().as_ref() }
    }

    /// Frees the pool. Only its last owner calls this, with nothing in use.
    pub(crate) fn free(self) {
        debug_assert_eq!(self.shared().in_use(), 0);
        // SAFETY: made by `Box::leak` in `new`; freed once, because only the owner's `Drop` calls
        //         this; no packet exists: see the module.
        drop(unsafe { Box::from_raw(self.pointer().as_ptr()) });
    }
}
