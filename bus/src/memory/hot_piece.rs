//! Memory that only this process reads, and reads often: on huge pages if available.
#![allow(unsafe_code)] // maps memory, and hands out pieces of it

use crate::per_process::PerProcess;
use crate::process::Birth;
use crate::ranges::Ranges;
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a chunk from which pieces are cut: one huge page.
const CHUNK: usize = 2 << 20;
/// Pieces begin at a cache line and take whole lines.
const LINE: usize = 64;

/// Bytes that a piece takes: an odd number of cache lines. Pieces of the same size then begin at
/// different sets of the cache. With a power of two of lines, the pieces of many queue pairs would
/// share a few sets, and evict each other between a post and its poll. A piece as large as the
/// cache covers all sets.
const fn taken_bytes(words: usize) -> usize {
    // Below it no rounding wraps, here or in a chunk.
    assert!(words <= MAX_WORDS, "more words than memory can have");
    let lines = (words * 8).div_ceil(LINE);
    let odd = if lines < CACHE / LINE {
        lines | 1
    } else {
        lines
    };
    odd * LINE
}

/// The most words of a piece: half of all addresses.
const MAX_WORDS: usize = isize::MAX as usize / 16;

/// At least the bytes of a first-level cache.
const CACHE: usize = 64 << 10;

/// Chunks that pieces still use: new pieces are cut from them.
static CHUNKS: PerProcess<Mutex<Vec<Weak<Chunk>>>> = PerProcess::new();

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contiguous huge pages, and the free ranges in them.
struct Chunk {
    origin: Origin,
    /// The first byte of the first whole huge page.
    first: NonNull<u8>,
    free: Mutex<Ranges>,
    /// the process that cuts it: in a child of a fork, another thread may have held its lock
    birth: Birth,
}

/// The origin of a chunk, which decides its release.
#[derive(Clone, Copy)]
enum Origin {
    /// The system's pool of huge pages, through `hugepage-rs`.
    Pool(Layout),
    /// A mapping of ordinary memory, of which the kernel is asked to make huge pages.
    Mapped { first: NonNull<u8>, bytes: usize },
}

// SAFETY: the memory is owned by this value; pieces of it are handed out once each, as atomics.
unsafe impl Send for Chunk {}
// SAFETY: as above; what is free is behind a lock.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates at least `bytes` of private memory in whole huge pages: from the pool of huge
    /// pages, otherwise ordinary memory for which the kernel is asked to use transparent huge
    /// pages.
    fn new(bytes: usize, pool: impl FnOnce(Layout) -> Option<NonNull<u8>>) -> Self {
        let bytes = bytes.next_multiple_of(CHUNK);
        let whole = Layout::from_size_align(bytes, CHUNK).ok();
        let of_pool = whole.and_then(|layout| Some((pool(layout)?, Origin::Pool(layout))));
        let Some((first, origin)) = of_pool.or_else(|| ordinary(bytes)) else {
            std::alloc::handle_alloc_error(Layout::new::<[u8; CHUNK]>());
        };
        Self {
            origin,
            first,
            free: Mutex::new(Ranges::new(std::iter::once(0..bytes as u64))),
            birth: Birth::now(),
        }
    }

    const fn is_huge(&self) -> bool {
        matches!(self.origin, Origin::Pool(_))
    }

    fn take(self: &Arc<Self>, words: usize) -> Option<HotPiece> {
        let bytes = taken_bytes(words);
        let at = locked(&self.free).take(bytes as u64, LINE as u64)?;
        Some(HotPiece {
            // SAFETY: inside the chunk: `free` holds nothing else.
            first: unsafe { self.first.add(at as usize) }.cast(),
            words,
            at,
            chunk: Arc::clone(self),
        })
    }
}

/// Allocates from the system's pool of huge pages; `None` if not enough are free.
///
/// `hugepage-rs` uses pages of the system's default size, and panics if the kernel has no huge
/// pages at all: so it is called only if that size is a chunk's.
fn of_pool(layout: Layout) -> Option<NonNull<u8>> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    if default_page_bytes(&text) != Some(CHUNK) {
        return None;
    }
    // SAFETY: the layout has at least the bytes of a chunk.
    NonNull::new(unsafe { hugepage_rs::alloc(layout) })
}

/// The default size of huge pages, bytes; `None` if there are none.
fn default_page_bytes(meminfo: &str) -> Option<usize> {
    let mut lines = meminfo.lines();
    let size = lines.find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Allocates ordinary memory with `bytes` from a huge page boundary on.
fn ordinary(bytes: usize) -> Option<(NonNull<u8>, Origin)> {
    let mapped_bytes = bytes.checked_add(CHUNK)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let at = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(at, mapped_bytes, protection, MapFlags::PRIVATE) };
    let mapped: NonNull<u8> = NonNull::new(mapped.ok()?.cast())?;
    let skip = mapped.as_ptr().align_offset(CHUNK);
    debug_assert!(skip + bytes <= mapped_bytes);
    // SAFETY: a huge page more than `bytes` is mapped, and no place is further than that from the
    // next multiple of one.
    let first = unsafe { mapped.add(skip) };
    let advice = rustix::mm::Advice::LinuxHugepage;
    // SAFETY: inside the mapping, as above; the advice changes no content. A kernel that refuses it
    // serves ordinary pages.
    let _ = unsafe { rustix::mm::madvise(first.as_ptr().cast(), bytes, advice) };
    let origin = Origin::Mapped {
        first: mapped,
        bytes: mapped_bytes,
    };
    Some((first, origin))
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: what `hugepage_rs::alloc` returned for this layout, once: every piece holds
            // the chunk.
            Origin::Pool(layout) => unsafe { hugepage_rs::dealloc(self.first.as_ptr(), layout) },
            Origin::Mapped { first, bytes } => {
                // SAFETY: what `ordinary` mapped, once, as above.
                let unmapped = unsafe { rustix::mm::munmap(first.as_ptr().cast(), bytes) };
                if let Err(error) = unmapped {
                    tracing::warn!(%error, "munmap failed; the memory stays mapped");
                }
            }
        }
    }
}

/// 64-bit words that only this process uses, on a huge page shared with other pieces.
pub(crate) struct HotPiece {
    first: NonNull<AtomicU64>,
    words: usize,
    at: u64,
    chunk: Arc<Chunk>,
}

// SAFETY: the words are atomics in memory that `chunk` keeps mapped.
unsafe impl Send for HotPiece {}
// SAFETY: as above.
unsafe impl Sync for HotPiece {}

impl HotPiece {
    /// Allocates `words` words, aligned to a cache line, with arbitrary content. Control path:
    /// takes a lock and may map memory.
    pub(crate) fn new(words: usize) -> Self {
        let mut chunks = locked(CHUNKS.get_or_init(Mutex::default));
        chunks.retain(|chunk| chunk.strong_count() > 0);
        let found = chunks
            .iter()
            .filter_map(Weak::upgrade)
            .find_map(|chunk| chunk.take(words));
        if let Some(piece) = found {
            return piece;
        }
        let chunk = Arc::new(Chunk::new(taken_bytes(words), of_pool));
        chunks.push(Arc::downgrade(&chunk));
        match chunk.take(words) {
            Some(piece) => piece,
            // A new chunk has room for the piece that it was made for.
            None => unreachable!("{words} words do not fit a chunk of their own"),
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: 1. in bounds and aligned: cut from the chunk at a multiple of a line, whole.
        //         2. initialised: mapped memory is, with zeros or what the last user left.
        //         3. mapped: `chunk` is. 4. shared: only atomics are handed out.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }

    pub(crate) fn on_huge_page(&self) -> bool {
        self.chunk.is_huge()
    }
}

impl Drop for HotPiece {
    fn drop(&mut self) {
        if !self.chunk.birth.is_here() {
            return;
        }
        let bytes = taken_bytes(self.words) as u64;
        locked(&self.chunk.free).give(self.at..self.at + bytes);
    }
}

impl std::fmt::Debug for HotPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.chunk.is_huge() {
            "huge"
        } else {
            "ordinary"
        };
        write!(f, "HotPiece({} words, {place} pages)", self.words)
    }
}

#[cfg(test)]
mod tests;
