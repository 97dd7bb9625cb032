//! smoltcp's interface to a pair of packet queues.

use crate::bootp::{Searches, padded};
use crate::copies::GroupCopies;
use crate::exchange::Exchange;
use crate::reports::is_report;
use ringside_lan::{Burst, MAX_BURST, Packet, ReceiveQueue, TransmitQueue};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of an Ethernet header.
const HEADER_BYTES: usize = 14;
/// Descriptors that a frame may take: at most eight buffers, and offloads.
const DESCRIPTORS: u16 = 9;

/// One receive and one transmit queue as a device of smoltcp.
///
/// Frames without a VLAN tag only: those whose tag the device has removed are dropped. Checksums
/// are smoltcp's. While the transmit ring is full, received frames wait in the receive queue.
#[derive(Debug)]
pub struct QueueDevice {
    queues: Queues,
}

/// The two queues and the packets that were received and not processed.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) receive: ReceiveQueue,
    pub(crate) transmit: TransmitQueue,
    burst: Burst,
    waiting: VecDeque<Packet>,
    /// bytes of a frame without its check sequence
    frame_bytes: usize,
    /// frames that the device has got
    pub(crate) sent: u64,
    /// frames that were not sent: no buffer, or a full ring
    pub(crate) unsent: u64,
    /// frames that the device received with an error
    pub(crate) damaged: u64,
    pub(crate) searches: Searches,
    pub(crate) exchange: Exchange,
    /// the host's interface beside the stack, if there is one
    pub(crate) copies: Option<Arc<GroupCopies>>,
}

impl Queues {
    pub(crate) fn new(receive: ReceiveQueue, transmit: TransmitQueue, mtu: u16) -> Self {
        Self {
            receive,
            transmit,
            burst: Burst::with_limit(MAX_BURST),
            waiting: VecDeque::with_capacity(MAX_BURST),
            frame_bytes: HEADER_BYTES + usize::from(mtu),
            sent: 0,
            unsent: 0,
            damaged: 0,
            searches: Searches::default(),
            exchange: Exchange::default(),
            copies: None,
        }
    }

    /// The next packet that has arrived. Those that the device received with an error are dropped.
    pub(crate) fn next(&mut self) -> Option<Packet> {
        if self.waiting.is_empty() {
            self.receive.receive(&mut self.burst);
            let before = self.burst.len();
            let arrived = self.burst.drain();
            self.waiting
                .extend(arrived.filter(|packet| !packet.flags().receive_error()));
            self.damaged += (before - self.waiting.len()) as u64;
        }
        self.waiting.pop_front()
    }

    pub(crate) fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.frame_bytes;
        capabilities
    }

    /// True if one more frame can be sent. Asked before a packet is taken from the receive queue:
    /// its answer needs the room, and smoltcp does not give a packet back.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.transmit.room() < DESCRIPTORS {
            self.transmit.reclaim();
        }
        self.transmit.room() >= DESCRIPTORS
    }

    /// True if frames wait for room in the transmit ring.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() || self.transmit.room() < DESCRIPTORS
    }

    /// True if the device has sent all frames.
    pub(crate) fn is_sent(&mut self) -> bool {
        self.transmit.reclaim();
        self.transmit.outstanding() == 0
    }

    /// Permission to send one frame; `None` while the ring is full.
    pub(crate) fn sending(&mut self, vlan: Option<u16>) -> Option<Sending<'_>> {
        self.has_room().then_some(Sending {
            queues: self,
            vlan,
            is_muted: false,
            of_smoltcp: None,
        })
    }

    /// Takes one frame and drops it, for a frame that was sent already.
    pub(crate) const fn muted(&mut self) -> Sending<'_> {
        Sending {
            queues: self,
            vlan: None,
            is_muted: true,
            of_smoltcp: None,
        }
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, frame: &[u8], vlan: Option<u16>) {
        match self.sending(vlan) {
            Some(sending) => sending.consume(frame.len(), |bytes| bytes.copy_from_slice(frame)),
            None => self.unsent += 1,
        }
    }
}

impl QueueDevice {
    /// A device for frames of up to `mtu` bytes behind the Ethernet header: 68 or more, the least
    /// of IPv4. smoltcp panics at less.
    #[must_use]
    pub fn new(receive: ReceiveQueue, transmit: TransmitQueue, mtu: u16) -> Self {
        let queues = Queues::new(receive, transmit, mtu);
        Self { queues }
    }

    /// Its queues; packets that were received and not processed are dropped.
    #[must_use]
    pub fn into_queues(self) -> (ReceiveQueue, TransmitQueue) {
        (self.queues.receive, self.queues.transmit)
    }

    /// Frames that were not sent, because the pool had no buffer or the ring was full.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.queues.unsent
    }
}

impl Device for QueueDevice {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        if !self.queues.has_room() {
            return None;
        }
        loop {
            let packet = self.queues.next()?;
            if packet.vlan().is_none() && packet.outer_vlan().is_none() {
                let sending = self.queues.sending(None)?;
                return Some((Received(packet), sending));
            }
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        self.queues.sending(None)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.queues.capabilities()
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Received(pub(crate) Packet);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, process: F) -> R {
        match self.0.segment_count() {
            1 => process(self.0.bytes()),
            _ => process(&self.0.to_vec()),
        }
    }
}

/// Permission to send one frame.
#[derive(Debug)]
pub struct Sending<'a> {
    queues: &'a mut Queues,
    vlan: Option<u16>,
    /// the frame is dropped: it was sent already
    is_muted: bool,
    /// the time at which smoltcp makes the frame, which may be dropped: see
    /// [`Sending::of_smoltcp`]
    of_smoltcp: Option<Instant>,
}

impl Sending<'_> {
    /// The same for a frame that smoltcp makes: its [reports](is_report) of groups and
    /// [early searches](Searches) for DHCP servers are dropped, and messages of DHCP are
    /// [padded].
    pub(crate) const fn of_smoltcp(self, now: Instant) -> Self {
        Self {
            of_smoltcp: Some(now),
            ..self
        }
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let Self {
            queues,
            vlan,
            is_muted,
            of_smoltcp,
        } = self;
        if is_muted {
            return fill(&mut vec![0; bytes]);
        }
        let (mut is_dropped, mut longer) = (false, None);
        let (searches, exchange) = (&mut queues.searches, &mut queues.exchange);
        let fill = |bytes: &mut [u8]| {
            let result = fill(bytes);
            if let Some(now) = of_smoltcp {
                is_dropped = is_report(bytes) || searches.is_early(bytes, now);
                if !is_dropped {
                    exchange.note(bytes);
                }
                longer = padded(bytes);
            }
            result
        };
        let pool = queues.transmit.pool().clone();
        let (result, packet) = match pool.packet() {
            Some(mut packet) if bytes <= packet.tailroom() => {
                let Some(place) = packet.extend(bytes) else {
                    let result = fill(&mut vec![0; bytes]);
                    queues.unsent += 1;
                    return result;
                };
                let result = fill(place);
                (result, Some(packet))
            }
            Some(_) => {
                let mut frame = vec![0; bytes];
                let result = fill(&mut frame);
                (result, pool.packet_with(&frame))
            }
            None => {
                let result = fill(&mut vec![0; bytes]);
                queues.unsent += 1;
                return result;
            }
        };
        if is_dropped {
            return result;
        }
        let longer = longer.filter(|frame: &Vec<u8>| frame.len() <= queues.frame_bytes);
        let packet = match longer {
            Some(frame) => pool.packet_with(&frame),
            None => packet,
        };
        let mut burst = Burst::with_limit(1);
        if let Some(mut packet) = packet {
            if let Some(copies) = &queues.copies {
                copies.give(&packet, vlan);
            }
            packet.set_vlan(vlan);
            let _ = burst.push(packet);
        }
        match queues.transmit.send(&mut burst) {
            0 => queues.unsent += 1,
            _ => queues.sent += 1,
        }
        result
    }
}
