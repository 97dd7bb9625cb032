//! Packets that are sent as they are: the short way from the ring to the switch.

use super::LanEngine;
use super::offload::pad;
use super::switching::Destination;
use crate::chip::{Context, QueueCause};

impl LanEngine {
    /// Takes one packet of a queue, if nothing is to be done for it but to send it. False, and
    /// nothing has happened, for all other packets.
    #[inline]
    pub(super) fn take_plain(&mut self, number: u16, context: &mut Context<'_>) -> bool {
        let Some(queue) = self.transmit.get_mut(number) else {
            return false;
        };
        let mut frame = self.spares.take();
        let Some(reported) = queue.next_plain(&mut frame.bytes, context.memory) else {
            self.spares.keep(frame);
            return false;
        };
        let vsi = queue.context.vsi;
        if queue.has_work() {
            self.ready.push_back(number);
        }
        if reported {
            context.causes.raise_queue(QueueCause::Transmit(number));
        }
        pad(&mut frame.bytes);
        self.forward(vsi, Destination::Switch, frame, context);
        true
    }
}
