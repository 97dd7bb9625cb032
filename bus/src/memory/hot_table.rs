//! Tables that only this process reads, on huge pages where there are any.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A fixed table of records of `N` zero-initialised 64-bit atomics: work-request ids, queue look-ups.
///
/// On a huge page when the pool has one (through `hugepage_rs::alloc`, whose null is checked: its
/// `Box` would panic when the pool is dry) and the table fills at least half of one; otherwise on the heap.
pub struct HotTable<const N: usize> {
    // Flat, so that an access is a load: where the words lie matters only when they are freed.
    first: NonNull<[AtomicU64; N]>,
    count: usize,
    origin: Origin,
}

/// Whom to give the words back to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Heap,
    HugePages,
}

// SAFETY: the words are owned by this value, and are atomics.
unsafe impl<const N: usize> Send for HotTable<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for HotTable<N> {}

/// Tables smaller than this do not take a huge page of their own.
const WORTH_A_HUGE_PAGE: usize = 1 << 20;

impl<const N: usize> HotTable<N> {
    /// `count` records of zeros.
    #[must_use]
    pub fn new(count: usize) -> Self {
        match Layout::array::<[AtomicU64; N]>(count) {
            Ok(layout) if layout.size() >= WORTH_A_HUGE_PAGE => {
                Self::on_huge_pages(count, layout).unwrap_or_else(|| Self::on_heap(count))
            }
            _ => Self::on_heap(count),
        }
    }

    fn on_heap(count: usize) -> Self {
        let record = || std::array::from_fn(|_| AtomicU64::new(0));
        let records: Box<[[AtomicU64; N]]> = (0..count).map(|_| record()).collect();
        let mut records = std::mem::ManuallyDrop::new(records);
        // SAFETY: a slice's pointer is never null, dangling for an empty one included.
        let first = unsafe { NonNull::new_unchecked(records.as_mut_ptr()) };
        Self {
            first,
            count,
            origin: Origin::Heap,
        }
    }

    fn on_huge_pages(count: usize, layout: Layout) -> Option<Self> {
        // SAFETY: the layout has a size, checked by the caller to be large.
        let first = NonNull::new(unsafe { hugepage_rs::alloc(layout) })?.cast::<[AtomicU64; N]>();
        // Fresh anonymous memory is zero, which is a valid `AtomicU64`.
        Some(Self {
            first,
            count,
            origin: Origin::HugePages,
        })
    }

    /// True if it lies on huge pages.
    #[must_use]
    pub fn on_huge_page(&self) -> bool {
        self.origin == Origin::HugePages
    }
}

impl<const N: usize> Deref for HotTable<N> {
    type Target = [[AtomicU64; N]];

    #[inline(always)]
    fn deref(&self) -> &[[AtomicU64; N]] {
        // SAFETY: `first` holds `count` initialised records until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<const N: usize> Drop for HotTable<N> {
    fn drop(&mut self) {
        match self.origin {
            Origin::Heap => {
                let records = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count);
                // SAFETY: the very box that `on_heap` took apart, put together once.
                drop(unsafe { Box::from_raw(records) });
            }
            Origin::HugePages => {
                // Never an error: `new` has had the same layout made.
                if let Ok(layout) = Layout::array::<[AtomicU64; N]>(self.count) {
                    // SAFETY: allocated by `hugepage_rs::alloc` with this very layout, freed once.
                    unsafe { hugepage_rs::dealloc(self.first.as_ptr().cast(), layout) };
                }
            }
        }
    }
}

impl<const N: usize> std::fmt::Debug for HotTable<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "HotTable({} records, huge page: {})",
            self.len(),
            self.on_huge_page()
        )
    }
}
