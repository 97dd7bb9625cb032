//! Memory of a descriptor ring.

use crate::vector::PathError;
use ringside_bus::{DmaBuffer, Words};
use ringside_spec::lan::limits::{MAX_RING, RING_ALIGNMENT, RING_MIN, RING_MULTIPLE};
use ringside_spec::lan::receive::MAX_BUFFERS_PER_PACKET;
use thiserror::Error;

/// The reason why a ring is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// A length out of range.
    #[error(
        "a ring of {0} descriptors is not possible: choose a multiple of {RING_MULTIPLE}, \
         {RING_MIN} to {MAX_RING}"
    )]
    Length(u16),
    /// Memory that is too small or not aligned.
    #[error(
        "a ring of {descriptors} descriptors needs {needed} bytes at a multiple of \
         {RING_ALIGNMENT}: allocate these, or choose a shorter ring"
    )]
    Memory {
        /// The requested number of descriptors.
        descriptors: u16,
        /// Bytes that they take.
        needed: usize,
    },
    /// The pool's buffers do not fit the queue.
    #[error(
        "frames of {frame_bytes} bytes do not fit {MAX_BUFFERS_PER_PACKET} buffers of \
         {buffer_bytes} bytes: choose longer buffers (PoolSettings::buffer_bytes), or a smaller MTU"
    )]
    Frame {
        /// The requested length of the longest frame.
        frame_bytes: u16,
        /// Bytes of a buffer.
        buffer_bytes: u16,
    },
    /// The requested instructions are not available.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// The ring: `N` words to a descriptor.
#[derive(Debug)]
pub(crate) struct Ring<const N: usize> {
    buffer: Option<DmaBuffer>,
    words: Words,
    pub(crate) length: u16,
}

impl<const N: usize> Ring<N> {
    pub(crate) fn new(buffer: DmaBuffer, length: u16) -> Result<Self, RingError> {
        if !(RING_MIN..=MAX_RING).contains(&length) || !length.is_multiple_of(RING_MULTIPLE) {
            return Err(RingError::Length(length));
        }
        let count = usize::from(length) * N;
        let memory = RingError::Memory {
            descriptors: length,
            needed: count * 8,
        };
        if !buffer.iova().0.is_multiple_of(RING_ALIGNMENT) {
            return Err(memory);
        }
        let words = buffer.words().part(0..count).ok_or(memory)?;
        Ok(Self {
            buffer: Some(buffer),
            words,
            length,
        })
    }

    /// The descriptors.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// The descriptor after `index`.
    #[inline(always)]
    pub(crate) const fn after(&self, index: u16) -> u16 {
        let next = index + 1;
        if next == self.length { 0 } else { next }
    }

    /// True in a child by fork of the process that made it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.buffer.as_ref().is_some_and(DmaBuffer::is_elsewhere)
    }

    /// Takes its memory out, when the queue ends.
    pub(crate) const fn take_buffer(&mut self) -> Option<DmaBuffer> {
        self.buffer.take()
    }

    pub(crate) fn zero(&self) {
        self.words.fill(0);
    }
}
