//! Rings and other structures of whole words in host memory, resolved once and kept until a
//! mapping changes.

use super::hmc::{Hmc, HmcFault};
use ringside_bus::{Direction, DmaFault, DmaSpace, Iova, Words};
use std::sync::atomic::Ordering;

/// Bytes of a page of a listed ring: queues always have pages of 4 KiB.
const PAGE_BYTES: usize = 4096;
const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The place of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One block.
    Contiguous(Iova),
    /// Pages named by page buffer list entries from this one on.
    Listed(u64),
}

/// A ring of whole words.
pub(super) struct Ring {
    place: Place,
    /// the device's use of it
    direction: Direction,
    count: usize,
    /// All of it, if it lies in one piece of memory.
    whole: Option<Words>,
    /// Else its pieces.
    chunks: Vec<Words>,
    chunk_words: usize,
    stamp: (u64, u64),
}

impl Ring {
    /// A ring of `count` words, not yet resolved.
    pub(super) fn new(place: Place, count: usize, direction: Direction) -> Self {
        Self {
            place,
            direction,
            count,
            whole: None,
            chunks: Vec::new(),
            chunk_words: count.max(1),
            stamp: (u64::MAX, u64::MAX),
        }
    }

    /// Pages that a ring of `count` words at `place` is resolved to; 0 if it lies in one piece of
    /// memory.
    pub(super) fn pages_of(
        place: Place,
        count: usize,
        direction: Direction,
        memory: &DmaSpace,
    ) -> usize {
        let bytes = count * 8;
        match place {
            Place::Contiguous(base) if memory.view(base, bytes, Some(direction)).is_ok() => 0,
            _ => bytes.div_ceil(PAGE_BYTES),
        }
    }

    /// Pages that are kept for it.
    pub(super) fn pages(&self) -> usize {
        self.chunks.len()
    }

    /// True while nothing has changed since it was resolved.
    #[inline(always)]
    pub(super) fn is_current(&self, hmc: &Hmc, memory: &DmaSpace) -> bool {
        self.stamp == (memory.generation(), hmc.generation())
    }

    /// Finds the memory, unless it is known.
    #[inline(always)]
    pub(super) fn resolve(&mut self, hmc: &mut Hmc, memory: &DmaSpace) -> Result<(), HmcFault> {
        if self.is_current(hmc, memory) {
            return Ok(());
        }
        self.resolve_anew(hmc, memory)
    }

    #[cold]
    fn resolve_anew(&mut self, hmc: &mut Hmc, memory: &DmaSpace) -> Result<(), HmcFault> {
        self.whole = None;
        self.chunks.clear();
        self.stamp = (u64::MAX, u64::MAX);
        let bytes = self.count * 8;
        let direction = Some(self.direction);
        let whole = match self.place {
            Place::Contiguous(base) => match memory.view(base, bytes, direction) {
                Ok(words) => Some(words),
                // Perhaps several mappings side by side.
                Err(DmaFault::NotMapped { .. }) if bytes > PAGE_BYTES => None,
                Err(fault) => return Err(fault.into()),
            },
            Place::Listed(_) => None,
        };
        if let Some(words) = whole {
            self.chunk_words = self.count.max(1);
            self.whole = Some(words);
        } else {
            self.chunk_words = PAGE_WORDS;
            for page in 0..bytes.div_ceil(PAGE_BYTES) {
                let at = match self.place {
                    Place::Contiguous(base) => base.add((page * PAGE_BYTES) as u64),
                    Place::Listed(first) => {
                        let entry = first.wrapping_add(page as u64);
                        Iova(hmc.listed_page(entry, PAGE_BYTES as u64, memory)?)
                    }
                };
                let length = (bytes - page * PAGE_BYTES).min(PAGE_BYTES);
                self.chunks.push(memory.view(at, length, direction)?);
            }
            if self.chunks.len() == 1 {
                self.whole = self.chunks.pop();
            }
        }
        self.stamp = (memory.generation(), hmc.generation());
        Ok(())
    }

    /// First word of the piece of memory that holds word `index`; `None` outside the ring.
    #[inline]
    pub(super) fn chunk_start(&self, index: usize) -> Option<usize> {
        if self.whole.is_some() {
            return (index < self.count).then_some(0);
        }
        let chunk = index / self.chunk_words;
        (chunk < self.chunks.len()).then_some(chunk * self.chunk_words)
    }

    /// The piece of memory that begins with word `start`.
    pub(super) fn chunk(&self, start: usize) -> Option<Words> {
        match &self.whole {
            Some(words) => Some(words.clone()),
            None => self.chunks.get(start / self.chunk_words).cloned(),
        }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> Option<&std::sync::atomic::AtomicU64> {
        if let Some(words) = &self.whole {
            return words.as_slice().get(index);
        }
        let chunk = self.chunks.get(index / self.chunk_words)?;
        chunk.as_slice().get(index % self.chunk_words)
    }

    /// Reads a word; 0 outside the ring.
    #[inline(always)]
    pub(super) fn load(&self, index: usize) -> u64 {
        let word = self.word(index);
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Reads a word before anything that is read after it.
    #[inline(always)]
    pub(super) fn load_acquire(&self, index: usize) -> u64 {
        let word = self.word(index);
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
    }

    /// Reads the four words from `index` on, a multiple of four; 0 outside the ring.
    #[inline(always)]
    pub(super) fn load_four(&self, index: usize) -> [u64; 4] {
        let words = self.four(index);
        words.map_or([0; 4], |words| {
            std::array::from_fn(|at| u64::from_le(words[at].load(Ordering::Relaxed)))
        })
    }

    /// Writes the four words from `index` on, a multiple of four: the last after all that was
    /// written before it. Nothing outside the ring.
    #[inline(always)]
    pub(super) fn store_four_release(&self, index: usize, values: [u64; 4]) {
        if let Some(words) = self.four(index) {
            words[0].store(values[0].to_le(), Ordering::Relaxed);
            words[1].store(values[1].to_le(), Ordering::Relaxed);
            words[2].store(values[2].to_le(), Ordering::Relaxed);
            words[3].store(values[3].to_le(), Ordering::Release);
        }
    }

    /// Four words that lie in one piece of memory: a piece of several holds a multiple of four.
    #[inline(always)]
    fn four(&self, index: usize) -> Option<&[std::sync::atomic::AtomicU64; 4]> {
        let (chunk, at) = match &self.whole {
            Some(words) => (words, index),
            None => {
                let chunk = self.chunks.get(index / self.chunk_words)?;
                (chunk, index % self.chunk_words)
            }
        };
        chunk.as_slice().get(at..)?.first_chunk()
    }

    /// Writes a word; nothing outside the ring.
    #[inline(always)]
    pub(super) fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Writes a word after everything that was written before it.
    #[inline(always)]
    pub(super) fn store_release(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value.to_le(), Ordering::Release);
        }
    }
}
