//! Copies of many buffer numbers at once. Unsafe code.
//!
//! A loop of atomic accesses takes five instructions a number. The values of a magazine belong to
//! one thread: its cache holds it, or it has claimed the cache of a thread that ended. The pool's
//! stacks and the thread numbers hand magazines over with release and acquire order. So nothing
//! accesses the values meanwhile, and a plain copy is no race.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

/// Copies the values of a magazine that this thread owns.
#[inline]
pub(crate) fn copy_all_out(from: &[AtomicU32], to: &mut [u32]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: same lengths; the slices cannot overlap, because `to` is exclusive; no other thread
    //         writes the values: see the module.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u32>(), to.as_mut_ptr(), to.len());
    }
}

/// Copies values into a magazine that this thread owns.
#[inline]
pub(crate) fn copy_all_in(from: &[u32], to: &[AtomicU32]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: same lengths; no overlap: one slice is of atomics, the other is not; no other thread
    //         accesses the values: see the module. Atomics may be written through a shared
    //         reference.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr().cast_mut().cast(), to.len());
    }
}

/// Copies `N` values of a magazine that this thread owns.
#[inline(always)]
pub(crate) fn copy_out<const N: usize>(from: &[AtomicU32; N], to: &mut [u32; N]) {
    // SAFETY: as above, with lengths that the types make equal.
    *to = unsafe { std::ptr::from_ref(from).cast::<[u32; N]>().read() };
}

/// Copies `N` values into a magazine that this thread owns.
#[inline(always)]
pub(crate) fn copy_in<const N: usize>(from: &[u32; N], to: &[AtomicU32; N]) {
    // SAFETY: as above, with lengths that the types make equal.
    unsafe {
        std::ptr::from_ref(to)
            .cast_mut()
            .cast::<[u32; N]>()
            .write(*from)
    };
}
