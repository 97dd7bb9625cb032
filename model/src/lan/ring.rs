//! Rings of descriptors in host memory, resolved once and kept until a mapping changes.

use ringside_bus::{DmaFault, DmaSpace, Iova, Words};
use std::sync::atomic::{AtomicU64, Ordering};

/// A generation that no memory has.
const NEVER: u64 = u64::MAX;

/// A ring of descriptors of `WORDS` words of 64 bits.
pub(super) struct Ring<const WORDS: usize> {
    base: Iova,
    entries: u16,
    /// The whole ring, if it lies in one mapping and accesses need no check.
    whole: Option<Words>,
    /// The generation of the memory in which `whole` was found.
    generation: u64,
}

/// One descriptor.
pub(super) enum Descriptor<'a, const WORDS: usize> {
    /// Of a ring that is resolved.
    Known(&'a [AtomicU64; WORDS]),
    /// Looked up by itself.
    Found(Words),
}

impl<const WORDS: usize> Ring<WORDS> {
    /// Bytes of a descriptor.
    const BYTES: usize = WORDS * 8;

    /// A ring at `base`, not yet resolved.
    pub(super) const fn new(base: Iova, entries: u16) -> Self {
        Self {
            base,
            entries,
            whole: None,
            generation: NEVER,
        }
    }

    /// Its first byte.
    pub(super) const fn base(&self) -> Iova {
        self.base
    }

    /// The place that follows `index`.
    #[inline]
    pub(super) const fn after(&self, index: u16) -> u16 {
        let next = index + 1;
        if next >= self.entries { 0 } else { next }
    }

    /// Finds the memory, unless nothing has changed since the last time. A ring that is not found
    /// as a whole is looked up descriptor by descriptor.
    #[inline]
    pub(super) fn resolve(&mut self, memory: &DmaSpace) {
        if self.generation != memory.generation() {
            self.resolve_anew(memory);
        }
    }

    #[cold]
    fn resolve_anew(&mut self, memory: &DmaSpace) {
        self.generation = memory.generation();
        // A refusal counts and judges each access.
        let open = memory.is_bus_master() && !memory.is_refusing();
        let bytes = usize::from(self.entries) * Self::BYTES;
        let whole = open.then(|| memory.words(self.base, bytes).ok());
        self.whole = whole.flatten();
    }

    /// The descriptor at `index` of a ring that is resolved as a whole. The caller has called
    /// [`Ring::resolve`].
    #[inline]
    pub(super) fn known(&self, index: u16) -> Option<&[AtomicU64; WORDS]> {
        let whole = self.whole.as_ref()?.as_slice();
        whole.get(usize::from(index) * WORDS..)?.first_chunk()
    }

    /// The descriptor at `index`. The caller has called [`Ring::resolve`] with this memory.
    ///
    /// Errors: [`DmaFault`]; it is not in memory that the device reaches.
    #[inline]
    pub(super) fn descriptor(
        &self,
        index: u16,
        memory: &DmaSpace,
    ) -> Result<Descriptor<'_, WORDS>, DmaFault> {
        if let Some(words) = self.known(index) {
            return Ok(Descriptor::Known(words));
        }
        // 57 bits of address in the contexts: nothing is lost.
        let offset = u64::from(index) * Self::BYTES as u64;
        let at = Iova(self.base.0.wrapping_add(offset));
        memory.words(at, Self::BYTES).map(Descriptor::Found)
    }
}

impl<const WORDS: usize> Descriptor<'_, WORDS> {
    #[inline]
    fn word(&self, index: usize) -> Option<&AtomicU64> {
        match self {
            Self::Known(words) => words.get(index),
            Self::Found(words) => words.as_slice().get(index),
        }
    }

    /// Reads a word; 0 outside the descriptor.
    #[inline]
    pub(super) fn load(&self, index: usize) -> u64 {
        let word = self.word(index);
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Writes a word; nothing outside the descriptor.
    #[inline]
    pub(super) fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Writes a word after all that was written before it.
    #[inline]
    pub(super) fn store_release(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value.to_le(), Ordering::Release);
        }
    }
}
