//! Written descriptors that the driver does not see yet: they are written back together.
//!
//! A driver polls the descriptor that it expects next. Each write to the line of the cache that it
//! reads takes the line from its core and gives it back, which lasts longer than the packet's own
//! work. A card collects the descriptors of a cache line, and writes a part of one when the
//! interrupt's timer ends. Source: ice `ice_napi_poll`, `ice_set_wb_on_itr`.

use super::{Arrival, DESCRIPTOR_WORDS, NotTaken, ReceiveQueue, write_back};
use crate::lan::LanEngine;
use crate::lan::numbered::Numbered;
use crate::lan::ring::Descriptor;
use ringside_bus::DmaSpace;

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
}

impl ReceiveQueue {
    /// Uses the descriptor at the head, and keeps what is to be written over it until
    /// [`ReceiveQueue::write_back_held`].
    #[inline]
    pub(super) fn hold(&mut self, written: [u64; DESCRIPTOR_WORDS]) {
        if self.held.is_empty() {
            self.held.first = self.head;
        }
        self.held.written.push(written);
        self.head = self.after(self.head);
        if self.held.written.len() >= MAX_HELD {
            self.write_back_held();
        }
    }

    /// True if descriptors wait.
    #[inline]
    pub(in crate::lan) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Writes all that wait to the ring, in order. Only rings that are resolved as a whole have
    /// any, and no request to the function comes before they are written.
    #[inline]
    pub(in crate::lan) fn write_back_held(&mut self) {
        let mut index = self.held.first;
        for written in &self.held.written {
            if let Some(known) = self.ring.known(index) {
                write_back(*written, &Descriptor::Known(known));
            }
            index = self.after(index);
        }
        self.held.written.clear();
    }
}

/// The receive queues that are enabled.
#[derive(Default)]
pub(in crate::lan) struct Receivers {
    pub(in crate::lan) queues: Numbered<ReceiveQueue>,
    /// Those with descriptors that are not written back yet.
    held: Vec<u16>,
}

impl Receivers {
    /// Removes all.
    pub(in crate::lan) fn clear(&mut self) {
        self.queues.clear();
        self.held.clear();
    }

    /// Puts a frame into a queue; see [`ReceiveQueue::deliver`].
    ///
    /// Errors: [`NotTaken`]; the frame is lost.
    #[inline]
    pub(in crate::lan) fn deliver(
        &mut self,
        number: u16,
        arrival: &Arrival<'_>,
        memory: &DmaSpace,
    ) -> Result<(), NotTaken> {
        let queue = self.queues.get_mut(number).ok_or(NotTaken::NoDescriptors)?;
        let held = queue.holds();
        let taken = queue.deliver(arrival, memory);
        if queue.holds() && !held {
            self.held.push(number);
        }
        taken
    }
}

impl LanEngine {
    /// True if descriptors of receive queues are not written back yet.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.receive.held.is_empty()
    }

    /// Writes back the descriptors of the frames that were received since the last call.
    #[inline]
    pub(crate) fn write_back(&mut self) {
        let Receivers { queues, held } = &mut self.receive;
        for number in held.drain(..) {
            if let Some(queue) = queues.get_mut(number) {
                queue.write_back_held();
            }
        }
    }
}
