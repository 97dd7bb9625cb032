//! Hints to the cache of the processor.
#![allow(unsafe_code)] // the instruction takes a pointer

/// Bytes of a cache line.
const LINE: usize = 64;

/// The most lines that one call asks for.
const MAX_LINES: usize = 24;

/// Asks the processor to bring `value` into its cache, and does not wait for it. A hint without
/// effect on results. Of a value of more than 1,536 bytes only the first are brought in.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(LINE).min(MAX_LINES) {
        prefetch_line(first.wrapping_add(line * LINE));
    }
}

/// The same for the cache line of an address, which need not be that of a value.
#[inline(always)]
pub(crate) fn prefetch_line(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing as far as the program can tell, at any address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
