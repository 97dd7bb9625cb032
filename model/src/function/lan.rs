//! The LAN engine's place in the function: registers of its queues, and frames as bytes.

use super::{Context, FunctionModel, lend};
use crate::firmware::QUEUES;
use crate::frame::Frame;
use crate::lan::SentFrame;
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::lan::receive::ReceiveContext;
use ringside_spec::lan::registers::filters::{
    FLOW_DIRECTOR_COUNT, FUNCTION_FLOW_DIRECTOR_SIZE, FlowDirectorSize, VSI_FLOW_DIRECTOR_COUNT,
    VsiFlowDirectorSize,
};
use ringside_spec::lan::registers::queues::{
    self, DescriptorProfile, ReceiveQueueControl, TransmitQueueHead,
};
use ringside_spec::lan::registers::statistics::{
    FLOW_DIRECTOR_MATCHES, FLOW_DIRECTOR_MATCHES_HIGH,
};

/// Bits of the high half of a counter of the flow director.
const MATCHES_HIGH: u32 = 0xFF;

impl FunctionModel {
    /// The next frame of the host's network stack for the wire: everything but RoCEv2, which
    /// [`FunctionModel::next_frame`] gives. [`FunctionModel::recycle`] takes it back, and
    /// [`FunctionModel::deliver_causes`] follows a burst.
    #[inline]
    pub(crate) fn next_sent_frame(
        &mut self,
        spaces: &[DmaSpace],
        now: Instant,
    ) -> Option<Box<SentFrame>> {
        if !self.lan.has_work() {
            return None;
        }
        let passes = self.passes_frames();
        let memory = spaces.get(self.index)?;
        let mut context = lend!(self, memory, now);
        if !passes {
            if self.looped {
                self.statistics.not_for_us += self.lan.return_frames(&mut context);
                self.deliver_causes();
            } else {
                self.lan.discard(&mut context);
            }
            return None;
        }
        let mut frame = self.lan.next_frame(&mut context)?;
        if let Some(index) = frame.stamp.take()
            && self.firmware.stamp_sent(index, now)
        {
            self.causes.raise_transmit_stamp();
        }
        Some(frame)
    }

    /// Sets whether frames travel between port and wire.
    pub(super) fn set_link_up(&mut self, up: bool) {
        self.link_up = up;
        self.passes = up && !self.stale;
    }

    /// True if frames travel between port and wire. The tables that decide about them are not stale
    /// then.
    #[inline]
    fn passes_frames(&mut self) -> bool {
        self.passes || self.passes_once_refreshed()
    }

    #[cold]
    fn passes_once_refreshed(&mut self) -> bool {
        self.refresh_stale();
        self.link_up
    }

    /// Takes back a frame that has been sent.
    #[inline]
    pub(crate) fn recycle(&mut self, frame: Box<SentFrame>) {
        self.lan.recycle(frame);
    }

    /// A frame of another function that is no RoCEv2 packet: as
    /// [`FunctionModel::receive_ethernet_frame`].
    #[inline]
    pub(crate) fn receive_sent_frame(
        &mut self,
        frame: &SentFrame,
        spaces: &[DmaSpace],
        now: Instant,
    ) {
        let passes = self.passes_frames();
        let Some(memory) = spaces.get(self.index).filter(|_| passes) else {
            return;
        };
        let mut context = lend!(self, memory, now);
        if !self.lan.receive_sent(frame, &mut context) {
            self.statistics.not_for_us += 1;
        }
    }

    /// A frame from the wire as bytes, from its Ethernet header on, without frame check sequence:
    /// everything that is not a sound RoCEv2 packet, for which there is
    /// [`FunctionModel::receive`]. [`FunctionModel::deliver_causes`] follows a burst.
    pub(crate) fn receive_ethernet_frame(
        &mut self,
        frame: &[u8],
        spaces: &[DmaSpace],
        now: Instant,
    ) {
        let passes = self.passes_frames();
        let Some(memory) = spaces.get(self.index).filter(|_| passes) else {
            return;
        };
        let mut context = lend!(self, memory, now);
        if !self.lan.receive(frame, &mut context) {
            self.statistics.not_for_us += 1;
        }
    }

    /// A RoCEv2 packet that the port has counted and the RDMA engine does not take: the host's
    /// network stack gets it, as any datagram.
    #[cold]
    pub(super) fn receive_unclaimed(&mut self, frame: &Frame, spaces: &[DmaSpace], now: Instant) {
        self.refresh_stale();
        let Some(memory) = spaces.get(self.index) else {
            return;
        };
        let mut bytes = Vec::with_capacity(frame.length());
        if let Err(error) = frame.serialise(spaces, &mut bytes) {
            tracing::debug!(%error, "a packet for the network stack has no bytes");
            return;
        }
        let mut context = lend!(self, memory, now);
        if !self.lan.receive_counted(&bytes, &mut context) {
            self.statistics.not_for_us += 1;
        }
        self.deliver_causes();
    }

    /// Returns a register of the flow director: its counters, and entries in use.
    pub(super) fn filter_register(&self, offset: u64) -> Option<u32> {
        if let Some(index) = FLOW_DIRECTOR_MATCHES.index_of(offset) {
            return Some(self.lan.filter_matches(index as u16) as u32);
        }
        if let Some(index) = FLOW_DIRECTOR_MATCHES_HIGH.index_of(offset) {
            let high = self.lan.filter_matches(index as u16) >> 32;
            return Some(high as u32 & MATCHES_HIGH);
        }
        let entries = self.firmware.filter_entries();
        if offset == FUNCTION_FLOW_DIRECTOR_SIZE {
            let size = FlowDirectorSize::ZERO.with_guaranteed(entries.guaranteed.into());
            return Some(size.with_best_effort(entries.shared.into()).0);
        }
        let in_use = |vsi| {
            let count = self.lan.filters(vsi);
            let guaranteed = count.min(entries.guaranteed.into());
            (guaranteed as u32, (count - guaranteed) as u32)
        };
        if offset == FLOW_DIRECTOR_COUNT {
            let (guaranteed, best_effort) = in_use(None);
            let count = FlowDirectorSize::ZERO.with_guaranteed(guaranteed);
            return Some(count.with_best_effort(best_effort).0);
        }
        let vsi = VSI_FLOW_DIRECTOR_COUNT.index_of(offset)?;
        let (guaranteed, best_effort) = in_use(Some(vsi as u16));
        let count = VsiFlowDirectorSize::ZERO.with_guaranteed(guaranteed);
        Some(count.with_best_effort(best_effort).0)
    }

    /// Writes half of a counter of the flow director; false if the register is none.
    pub(super) fn write_filter_counter(&mut self, offset: u64, value: u32) -> bool {
        let low = FLOW_DIRECTOR_MATCHES.index_of(offset);
        let high = FLOW_DIRECTOR_MATCHES_HIGH.index_of(offset);
        let Some(index) = low.or(high) else {
            return false;
        };
        let before = self.lan.filter_matches(index as u16);
        let value = if low.is_some() {
            before >> 32 << 32 | u64::from(value)
        } else {
            u64::from(value & MATCHES_HIGH) << 32 | u64::from(before as u32)
        };
        self.lan.set_filter_matches(index as u16, value);
        true
    }

    /// The register with the head of a transmit queue.
    pub(super) fn transmit_head(&self, queue: u32) -> u32 {
        let head = self.lan.transmit_head(queue);
        TransmitQueueHead::ZERO.with_head(head.into()).0
    }

    /// Writes a register of a queue; false if it is none.
    pub(super) fn write_queue_register(
        &mut self,
        offset: u64,
        value: u32,
        space: &DmaSpace,
        now: Instant,
    ) -> bool {
        if let Some(queue) = queues::TRANSMIT_QUEUE_DOORBELL.index_of(offset) {
            let mut context = lend!(self, space, now);
            self.lan.ring(queue, value, &mut context);
            return true;
        }
        if let Some(queue) = queues::RECEIVE_QUEUE_TAIL.index_of(offset) {
            self.registers.set(offset, value);
            let mut context = lend!(self, space, now);
            self.lan.receive_tail(queue, value, &mut context);
            return true;
        }
        if let Some(queue) = queues::RECEIVE_QUEUE_CONTROL.index_of(offset) {
            self.control_receive_queue(queue, ReceiveQueueControl(value), space, now);
            return true;
        }
        if let Some((_, queue)) = queues::RECEIVE_QUEUE_CONTEXT.position_of(offset) {
            if self.lan.receives(queue) {
                self.ledger.breach(
                    "context of a receive queue written while it is enabled",
                    || format!("{value:#x} to {offset:#x}"),
                );
            }
            self.registers.set(offset, value);
            return true;
        }
        false
    }

    /// Enables or disables a receive queue; the status follows the request at once.
    fn control_receive_queue(
        &mut self,
        queue: u32,
        control: ReceiveQueueControl,
        space: &DmaSpace,
        now: Instant,
    ) {
        let followed = control.with_enable_status(control.enable_request());
        self.registers
            .set(queues::RECEIVE_QUEUE_CONTROL.at(queue), followed.0);
        if !control.enable_request() {
            self.lan.disable_receive(queue);
            return;
        }
        if self.lan.receives(queue) {
            return;
        }
        if queue >= QUEUES.into() {
            let kind = "receive queue enabled that the function does not have";
            self.ledger.breach(kind, || format!("queue {queue}"));
            return;
        }
        let dwords = std::array::from_fn::<u32, { ReceiveContext::DWORDS }, _>(|dword| {
            let at = queues::RECEIVE_QUEUE_CONTEXT.at(dword as u32, queue);
            self.registers.get(at)
        });
        let profile = self.registers.get(queues::RECEIVE_QUEUE_PROFILE.at(queue));
        let tail = self.registers.get(queues::RECEIVE_QUEUE_TAIL.at(queue));
        let mut context = lend!(self, space, now);
        self.lan.enable_receive(
            queue,
            dwords,
            DescriptorProfile(profile),
            tail,
            &mut context,
        );
    }
}
