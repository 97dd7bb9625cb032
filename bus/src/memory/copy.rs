//! Copies to and from memory that the other side may be changing.
//!
//! In Rust, a `memcpy` or a volatile access of memory that another thread writes at the same time
//! is undefined behaviour: only atomics may race. Every access here is therefore a relaxed atomic
//! access of bytes or of aligned words, which on x86 is a plain move. A race gives old bytes or new
//! ones, and an aligned word is never torn. Longer copies use a string instruction, which is not a
//! Rust access: like a device's own DMA it moves bytes in memory that this process shares.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Up to this many bytes, copy by words: the string instruction takes about 30 cycles to start.
const SHORT: usize = 64;

/// The most bytes that [`copy_whole`] copies.
pub(super) const MAX_WHOLE: usize = 128;

/// The source or destination of bytes.
///
/// # Safety
/// An implementation may touch only the bytes that its constructor's caller vouched for.
unsafe trait Bytes: Copy {
    fn address(self) -> usize;
    /// # Safety
    /// `at` is below the length that was vouched for.
    unsafe fn load(self, at: usize) -> u8;
    /// # Safety
    /// `at + 8` is at most that length, and the address plus `at` is a multiple of 8.
    unsafe fn load_word(self, at: usize) -> u64;
    /// # Safety
    /// As for `load`.
    unsafe fn store(self, at: usize, value: u8);
    /// # Safety
    /// As for `load_word`.
    unsafe fn store_word(self, at: usize, value: u64);
}

/// Memory that others may access at the same time: atomics.
#[derive(Clone, Copy)]
struct Shared(NonNull<u8>);

// SAFETY: each access is of the bytes asked for, which the caller keeps inside.
unsafe impl Bytes for Shared {
    #[inline(always)]
    fn address(self) -> usize {
        self.0.as_ptr() as usize
    }
    #[inline(always)]
    unsafe fn load(self, at: usize) -> u8 {
        // SAFETY: inside by the contract; every Rust access to this memory is atomic.
        unsafe { self.0.add(at).cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed)
    }
    #[inline(always)]
    unsafe fn load_word(self, at: usize) -> u64 {
        // SAFETY: as in `load`, and aligned by the contract.
        unsafe { self.0.add(at).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
    }
    #[inline(always)]
    unsafe fn store(self, at: usize, value: u8) {
        // SAFETY: as in `load`.
        unsafe { self.0.add(at).cast::<AtomicU8>().as_ref() }.store(value, Ordering::Relaxed);
    }
    #[inline(always)]
    unsafe fn store_word(self, at: usize, value: u64) {
        // SAFETY: as in `load_word`.
        unsafe { self.0.add(at).cast::<AtomicU64>().as_ref() }.store(value, Ordering::Relaxed);
    }
}

/// Memory of a Rust slice, which nothing else accesses: plain loads and stores.
#[derive(Clone, Copy)]
struct Own(*mut u8);

// SAFETY: each access is of the bytes asked for, which the caller keeps inside.
unsafe impl Bytes for Own {
    #[inline(always)]
    fn address(self) -> usize {
        self.0 as usize
    }
    #[inline(always)]
    unsafe fn load(self, at: usize) -> u8 {
        // SAFETY: inside by the contract.
        unsafe { self.0.add(at).read() }
    }
    #[inline(always)]
    unsafe fn load_word(self, at: usize) -> u64 {
        // SAFETY: inside by the contract.
        unsafe { self.0.add(at).cast::<u64>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, at: usize, value: u8) {
        // SAFETY: inside by the contract; `copy_from_shared` made this of a `&mut` slice.
        unsafe { self.0.add(at).write(value) }
    }
    #[inline(always)]
    unsafe fn store_word(self, at: usize, value: u64) {
        // SAFETY: as in `store`.
        unsafe { self.0.add(at).cast::<u64>().write_unaligned(value) }
    }
}

/// # Safety
/// `from` must be valid for reads of `into.len()` bytes.
#[inline]
pub(super) unsafe fn copy_from_shared(into: &mut [u8], from: NonNull<u8>) {
    let length = into.len();
    // SAFETY: `into` is valid for writes of its own length; the caller vouches for `from`.
    unsafe { copy_bytes(Own(into.as_mut_ptr()), Shared(from), length) }
}

/// # Safety
/// `to` must be valid for writes of `from.len()` bytes.
#[inline]
pub(super) unsafe fn copy_to_shared(to: NonNull<u8>, from: &[u8]) {
    let length = from.len();
    // SAFETY: `from` is valid for reads of its own length, and a source is only read; the caller
    // vouches for `to`.
    unsafe { copy_bytes(Shared(to), Own(from.as_ptr().cast_mut()), length) }
}

/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
pub(super) unsafe fn copy_shared(to: NonNull<u8>, from: NonNull<u8>, length: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { copy_bytes(Shared(to), Shared(from), length) }
}

/// Copies `length` bytes, [`MAX_WHOLE`] at most; all are read before the first is written, so the
/// ranges may overlap. False, and nothing is copied, if there are more.
///
/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
pub(super) unsafe fn copy_whole(to: NonNull<u8>, from: NonNull<u8>, length: usize) -> bool {
    let (to, from) = (Shared(to), Shared(from));
    if length == 8 && (to.address() | from.address()).is_multiple_of(8) {
        // SAFETY: the caller vouches for 8 bytes at both, whose addresses are multiples of 8.
        unsafe { to.store_word(0, from.load_word(0)) };
        return true;
    }
    // SAFETY: as for this function.
    unsafe { copy_through(to, from, length) }
}

/// The same by way of a buffer.
///
/// # Safety
/// As for [`copy_whole`].
unsafe fn copy_through(to: Shared, from: Shared, length: usize) -> bool {
    /// Aligned, so that words move whole.
    #[repr(align(8))]
    struct Buffer([u8; MAX_WHOLE]);
    let mut buffer = Buffer([0; MAX_WHOLE]);
    let Some(bytes) = buffer.0.get_mut(..length) else {
        return false;
    };
    // SAFETY: `bytes` has `length` bytes, and the caller vouches for as many at both addresses.
    unsafe {
        copy_from_shared(bytes, from.0);
        copy_to_shared(to.0, bytes);
    }
    true
}

/// # Safety
/// `to` must be valid for writes of `length` bytes.
pub(super) unsafe fn fill_shared(to: NonNull<u8>, length: usize, byte: u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: stores `byte` to `length` bytes at `to`, which the caller vouches for; the direction
    // flag is clear by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") length => _, inout("rdi") to.as_ptr() => _, in("al") byte,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for index in 0..length {
        // SAFETY: within the range that the caller vouches for.
        unsafe { Shared(to).store(index, byte) };
    }
}

/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
unsafe fn copy_bytes<T: Bytes, F: Bytes>(to: T, from: F, length: usize) {
    if length <= SHORT {
        // SAFETY: as for this function.
        unsafe { copy_short(to, from, length) }
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: moves `length` bytes between ranges that the caller vouches for; the direction flag
    // is clear by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to.address() => _, inout("rsi") from.address() => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as for this function.
    unsafe {
        copy_short(to, from, length)
    }
}

/// Whole words where both sides are aligned alike, so that an aligned word is never torn.
///
/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
unsafe fn copy_short<T: Bytes, F: Bytes>(to: T, from: F, length: usize) {
    let aligned = (to.address() | from.address()).is_multiple_of(8);
    let words = if aligned { length / 8 } else { 0 };
    for index in 0..words {
        // SAFETY: `index * 8 + 8 <= length`, and both addresses are multiples of 8.
        unsafe { to.store_word(index * 8, from.load_word(index * 8)) };
    }
    for index in words * 8..length {
        // SAFETY: `index < length`.
        unsafe { to.store(index, from.load(index)) };
    }
}
