//! Copies to and from memory that somebody else may be changing.
//!
//! A Rust `memcpy` of memory that another agent writes at the same time is undefined behaviour. A
//! string instruction is not a Rust memory access: like a device's own DMA it reads or writes
//! bytes, and a race gives old bytes or new ones. Short copies go word by word, volatile, because
//! the string instruction takes some 30 cycles to start.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Below this many bytes, copy by words.
const SHORT: usize = 64;

/// # Safety
/// `from` must be valid for reads of `into.len()` bytes.
#[inline]
pub(super) unsafe fn copy_from_shared(into: &mut [u8], from: NonNull<u8>) {
    let length = into.len();
    // SAFETY: `into` is valid for writes of its own length; the caller vouches for `from`.
    unsafe { copy_bytes(into.as_mut_ptr(), from.as_ptr(), length) }
}

/// # Safety
/// `to` must be valid for writes of `from.len()` bytes.
#[inline]
pub(super) unsafe fn copy_to_shared(to: NonNull<u8>, from: &[u8]) {
    // SAFETY: `from` is valid for reads of its own length; the caller vouches for `to`.
    unsafe { copy_bytes(to.as_ptr(), from.as_ptr(), from.len()) }
}

/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
pub(super) unsafe fn copy_shared(to: NonNull<u8>, from: NonNull<u8>, length: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { copy_bytes(to.as_ptr(), from.as_ptr(), length) }
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
        unsafe { to.as_ptr().add(index).write_volatile(byte) };
    }
}

/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
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
            inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as for this function.
    unsafe {
        copy_short(to, from, length)
    }
}

/// Whole words where both sides are aligned, so that an aligned word is never torn.
///
/// # Safety
/// `to` must be valid for writes and `from` for reads of `length` bytes.
#[inline]
unsafe fn copy_short(to: *mut u8, from: *const u8, length: usize) {
    let aligned = (to as usize | from as usize).is_multiple_of(8);
    let words = if aligned { length / 8 } else { 0 };
    for index in 0..words {
        // SAFETY: `index * 8 + 8 <= length`, and both pointers are multiples of 8.
        unsafe {
            let word = from.cast::<u64>().add(index).read_volatile();
            to.cast::<u64>().add(index).write_volatile(word);
        }
    }
    for index in words * 8..length {
        // SAFETY: `index < length`.
        unsafe {
            to.add(index)
                .write_volatile(from.add(index).read_volatile())
        };
    }
}
