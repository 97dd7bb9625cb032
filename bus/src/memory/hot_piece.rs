//! Memory that only this process reads, and reads often: on huge pages where there are any.
#![allow(unsafe_code)] // maps memory, and hands out pieces of it

use crate::ranges::Ranges;
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a chunk from which pieces are cut: one huge page.
const CHUNK: usize = 2 << 20;
/// Pieces begin at cache lines, and take whole ones.
const LINE: usize = 64;

/// Chunks that pieces still use: new pieces are cut from the same.
static CHUNKS: Mutex<Vec<Weak<Chunk>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Huge pages in a row, and what is free of them.
struct Chunk {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// The first byte of the first whole huge page.
    first: NonNull<u8>,
    huge: bool,
    free: Mutex<Ranges>,
}

// SAFETY: the memory is owned by this value; pieces of it are handed out once each, as atomics.
unsafe impl Send for Chunk {}
// SAFETY: as above; what is free is behind a lock.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// At least `bytes` of private memory, in whole huge pages: of the pool of huge pages, else
    /// ordinary memory that the kernel is asked to put on transparent ones.
    fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(CHUNK);
        let reserved = map(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB);
        let (mapped, mapped_bytes, huge) = match reserved {
            Some(mapped) => (mapped, bytes, true),
            None => match map(bytes + CHUNK, MapFlags::empty()) {
                Some(mapped) => (mapped, bytes + CHUNK, false),
                None => std::alloc::handle_alloc_error(Layout::new::<[u8; CHUNK]>()),
            },
        };
        let skip = mapped.as_ptr().align_offset(CHUNK);
        debug_assert!(skip + bytes <= mapped_bytes);
        // SAFETY: huge pages are aligned already; else a huge page more than `bytes` is mapped, and
        // no place is further than that from the next multiple of one.
        let first = unsafe { mapped.add(skip) };
        if !huge {
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: inside the mapping, as above; the advice changes no content. A kernel that
            // refuses it serves ordinary pages.
            let _ = unsafe { rustix::mm::madvise(first.as_ptr().cast(), bytes, advice) };
        }
        Self {
            mapped,
            mapped_bytes,
            first,
            huge,
            free: Mutex::new(Ranges::new(std::iter::once(0..bytes as u64))),
        }
    }

    fn take(self: &Arc<Self>, words: usize) -> Option<HotPiece> {
        let bytes = (words * 8).next_multiple_of(LINE);
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

fn map(bytes: usize, flags: MapFlags) -> Option<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = flags | MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
    NonNull::new(mapped.ok()?.cast())
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: what `map` returned, once: every piece holds the chunk.
        let unmapped =
            unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, "munmap failed; the memory stays mapped");
        }
    }
}

/// 64-bit words for the use of this process alone, beside those of others on a huge page.
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
    /// `words` words, aligned to a cache line, of any value. Control path: locks and may map.
    pub(crate) fn new(words: usize) -> Self {
        let mut chunks = locked(&CHUNKS);
        chunks.retain(|chunk| chunk.strong_count() > 0);
        let found = chunks
            .iter()
            .filter_map(Weak::upgrade)
            .find_map(|chunk| chunk.take(words));
        if let Some(piece) = found {
            return piece;
        }
        let chunk = Arc::new(Chunk::new((words * 8).next_multiple_of(LINE)));
        chunks.push(Arc::downgrade(&chunk));
        match chunk.take(words) {
            Some(piece) => piece,
            // A new chunk has room for what it was made for.
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
        self.chunk.huge
    }
}

impl Drop for HotPiece {
    fn drop(&mut self) {
        let bytes = (self.words * 8).next_multiple_of(LINE) as u64;
        locked(&self.chunk.free).give(self.at..self.at + bytes);
    }
}

impl std::fmt::Debug for HotPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.chunk.huge { "huge" } else { "ordinary" };
        write!(f, "HotPiece({} words, {place} pages)", self.words)
    }
}
