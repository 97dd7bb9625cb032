//! 64-bit words that the device accesses too.
#![allow(unsafe_code)]

use super::Memory;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view of 64-bit words in shared memory, in the memory's own (little-endian) order.
///
/// Cheap to clone; keeps the mapping alive. Words are atomics: relaxed loads and stores are plain
/// moves, and a value that the device changes meanwhile is an old one or a new one, never torn.
#[derive(Clone)]
pub struct Words {
    first: NonNull<AtomicU64>,
    count: usize,
    memory: Memory,
}

// SAFETY: the words are atomics in memory that `memory` owns, which is `Send + Sync`.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    pub(super) fn new(memory: &Memory, offset: usize, length: usize) -> Option<Self> {
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= memory.length());
        let address = memory.base().as_ptr().wrapping_add(offset) as usize;
        if !inside || !address.is_multiple_of(8) || !length.is_multiple_of(8) {
            return None;
        }
        // SAFETY: in bounds by the check above.
        let first = unsafe { memory.base().add(offset) }.cast();
        Some(Self {
            first,
            count: length / 8,
            memory: memory.clone(),
        })
    }

    /// An empty view of `memory`.
    pub(super) fn none(memory: &Memory) -> Self {
        Self {
            first: NonNull::dangling(),
            count: 0,
            memory: memory.clone(),
        }
    }

    /// All words.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: 1. in bounds and 8-aligned: checked in `new`.
        //         2. mapped: `self.memory` owns the mapping. 3. shared: only atomics are handed
        //         out, and byte copies of the same memory are atomic accesses too (see `copy.rs`).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    pub(crate) fn first(&self) -> NonNull<AtomicU64> {
        self.first
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The number of words.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Reads one word, relaxed. Panics if `index` is outside, as a slice does.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        u64::from_le(self.as_slice()[index].load(Ordering::Relaxed))
    }

    /// Reads one word; nothing after it is read before it.
    #[inline(always)]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        u64::from_le(self.as_slice()[index].load(Ordering::Acquire))
    }

    /// Writes one word, relaxed.
    #[inline(always)]
    pub fn store(&self, index: usize, value: u64) {
        self.as_slice()[index].store(value.to_le(), Ordering::Relaxed);
    }

    /// Writes one word; everything written before it is visible before it.
    #[inline(always)]
    pub fn store_release(&self, index: usize, value: u64) {
        self.as_slice()[index].store(value.to_le(), Ordering::Release);
    }

    /// Fills all words with `value`.
    pub fn fill(&self, value: u64) {
        for word in self.as_slice() {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// A part of the view; `None` if it reaches outside.
    #[must_use]
    pub fn part(&self, words: Range<usize>) -> Option<Self> {
        if words.start > words.end || words.end > self.count {
            return None;
        }
        // SAFETY: in bounds by the check above.
        let first = unsafe { self.first.add(words.start) };
        Some(Self {
            first,
            count: words.end - words.start,
            memory: self.memory.clone(),
        })
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({})", self.count)
    }
}
