//! All receive queues that are enabled, and which of them hold descriptors back.

use super::LanEngine;
use super::numbered::Numbered;
use super::receive::{Arrival, NotTaken, ReceiveQueue};
use ringside_bus::DmaSpace;

/// The receive queues that are enabled.
#[derive(Default)]
pub(super) struct Receivers {
    pub(super) queues: Numbered<ReceiveQueue>,
    /// Those with descriptors that are not written back yet.
    held: Vec<u16>,
}

impl Receivers {
    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.held.clear();
    }

    /// Puts a frame into a queue; see [`ReceiveQueue::deliver`].
    ///
    /// Errors: [`NotTaken`]; the frame is lost.
    #[inline]
    pub(super) fn deliver(
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
