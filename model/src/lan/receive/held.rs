//! Written descriptors that the driver does not see yet: they are written back together.
//!
//! A driver polls the descriptor that it expects next. Each write to the line of the cache that it
//! reads takes the line from its core and gives it back, which lasts longer than the packet's own
//! work. A card collects the descriptors of a cache line, and writes a part of one when the
//! interrupt's timer ends. Source: ice `ice_napi_poll`, `ice_set_wb_on_itr`.

use super::written::{DESCRIPTOR_WORDS, write_back};
use crate::lan::ring::{Descriptor, Ring};

/// The most descriptors that wait: those of a burst of packets.
const MAX_HELD: usize = 32;

/// Descriptors that follow each other in the ring, in order.
#[derive(Default)]
pub(super) struct Held {
    /// Place of the first in the ring.
    first: u16,
    /// Their words. The memory is kept: nothing is allocated for a packet.
    written: Vec<[u64; DESCRIPTOR_WORDS]>,
}

impl Held {
    /// True if there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// True if no more may wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.written.len() >= MAX_HELD
    }

    /// Keeps what is to be written over the descriptor at `index`, which follows the last one.
    #[inline]
    pub(super) fn push(&mut self, index: u16, written: [u64; DESCRIPTOR_WORDS]) {
        if self.written.is_empty() {
            self.first = index;
        }
        self.written.push(written);
    }

    /// Writes all that wait to the ring, in order. Only rings that are resolved as a whole have
    /// any, and no request to the function comes before they are written.
    #[inline]
    pub(super) fn write_back(&mut self, ring: &Ring<DESCRIPTOR_WORDS>) {
        let mut index = self.first;
        for written in &self.written {
            if let Some(known) = ring.known(index) {
                write_back(*written, &Descriptor::Known(known));
            }
            index = ring.after(index);
        }
        self.written.clear();
    }
}
