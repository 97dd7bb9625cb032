//! Frames between a TAP interface and a receive and a transmit queue.

use ringside_bus::tap::{SendError, Tap};
use ringside_lan::{Arming, Burst, Packet, QueueState, ReceiveQueue, TransmitQueue};
use ringside_pmd::lan::Vsi;
use ringside_pmd::lan::port::ReceiveInterrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Packets of one direction before the other one has its turn.
const BURST: usize = 32;
/// Failed reads in a row after which the interface is taken for removed.
const MAX_FAILURES: u32 = 16;
/// The length of a sleep on a device without an interrupt for its receive queue.
const IDLE: Duration = Duration::from_micros(50);
/// Bytes of an Ethernet header, and of each VLAN tag in it.
const HEADER_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
/// Tags that a frame may have beside its payload of `mtu` bytes.
const MAX_TAGS: usize = 2;
/// Types that say that a tag follows. Source: IEEE 802.1Q, table 9-1.
const TAG_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xA8]];
/// Bits of a tag that name the VLAN.
const VLAN_BITS: u16 = 0xFFF;

/// The settings of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// Bytes of a frame behind its Ethernet header and its tags: longer frames of the host are
    /// dropped.
    pub mtu: u16,
    /// The VLAN that the interface is in: the device inserts its tag into frames of the host, and
    /// frames of others do not reach the host. `None`: tags stay in the frames.
    pub vlan: Option<u16>,
}

/// Packets and bytes of one direction, and those that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgedWay {
    /// Frames that arrived on the other side.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames for which the other side had no room, that came while it was down, that the device
    /// received with an error, or that were in the rings when it failed: some of those may have
    /// been sent. Their bytes stay in `bytes`.
    pub dropped: u64,
}

/// The counts of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounters {
    /// Frames of the wire.
    pub to_host: BridgedWay,
    /// Frames of the host.
    pub to_wire: BridgedWay,
    /// Frames of other VLANs, which were dropped.
    pub other_vlan: u64,
    /// Frames of the host that are longer than the MTU allows, which were dropped.
    pub too_long: u64,
    /// Frames of the wire that the device dropped: no descriptor was free, or they were longer than
    /// the queue takes (`rx_dropped` of the VSI). As of the last [`Bridge::look_at`].
    pub device_dropped: u64,
}

impl BridgeCounters {
    /// Adds the counts of another bridge.
    pub const fn add(&mut self, other: &Self) {
        self.to_host.add(&other.to_host);
        self.to_wire.add(&other.to_wire);
        self.other_vlan += other.other_vlan;
        self.too_long += other.too_long;
        self.device_dropped += other.device_dropped;
    }
}

impl BridgedWay {
    const fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
    }
}

/// Sees the packets of a bridge, as a capture does.
pub trait PacketObserver {
    /// Packets arrived in the receive queue.
    fn received(&mut self, packets: &[Packet]);

    /// Packets are offered to the transmit queue.
    fn offered(&mut self, packets: &[Packet]);

    /// The transmit queue took the first `count` of the packets that were offered last, and dropped
    /// those with a bit in `dropped`: bit 0 for the first.
    fn sent(&mut self, count: usize, dropped: u64);
}

/// Sees nothing.
impl PacketObserver for () {
    fn received(&mut self, _: &[Packet]) {}

    fn offered(&mut self, _: &[Packet]) {}

    fn sent(&mut self, _: usize, _: u64) {}
}

/// The host's interface was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host's interface is gone: it was removed")]
pub struct InterfaceGone;

/// Both directions. It moves frames only in [`Bridge::round`].
#[derive(Debug)]
pub struct Bridge<O> {
    tap: Arc<Tap>,
    receive: ReceiveQueue,
    interrupt: Option<ReceiveInterrupt>,
    /// the receive queue is armed: its vector masks itself at the first packet, so that further
    /// ones come late
    is_armed: bool,
    transmit: TransmitQueue,
    vlan: Option<u16>,
    observer: O,
    burst: Burst,
    frame: Vec<u8>,
    mtu: usize,
    /// the last state that the interface was given
    carrier: Option<bool>,
    /// the sleeps since the transmit queue has no room: frames stay with the host; `None` if it has
    full: Option<u32>,
    counters: BridgeCounters,
    /// `device_dropped` of former VSIs
    former_drops: u64,
    failures: u32,
}

impl<O: PacketObserver> Bridge<O> {
    /// A bridge over two queues of one VSI.
    pub fn new(
        tap: Arc<Tap>,
        (receive, transmit): (ReceiveQueue, TransmitQueue),
        settings: BridgeSettings,
        observer: O,
    ) -> Self {
        let mtu = usize::from(settings.mtu);
        Self {
            tap,
            receive,
            interrupt: None,
            is_armed: false,
            transmit,
            vlan: settings.vlan,
            observer,
            burst: Burst::with_limit(BURST),
            // A frame that the kernel cuts to the buffer is longer than `is_too_long` allows.
            frame: vec![0; mtu + HEADER_BYTES + MAX_TAGS * TAG_BYTES + 1],
            mtu,
            carrier: None,
            full: None,
            counters: BridgeCounters::default(),
            former_drops: 0,
            failures: 0,
        }
    }

    /// Sleeps until this interrupt of the receive queue from now on. Without one, an idle bridge
    /// polls the device.
    pub fn set_interrupt(&mut self, interrupt: Option<ReceiveInterrupt>) {
        self.interrupt = interrupt;
    }

    /// Continues with the queues of a port that was opened again. The interrupt of the former
    /// queues ends, and the frames in their rings count as dropped.
    pub fn replace(&mut self, (receive, transmit): (ReceiveQueue, TransmitQueue)) {
        self.end();
        self.former_drops = self.counters.device_dropped;
        (self.receive, self.transmit) = (receive, transmit);
        self.interrupt = None;
    }

    /// Stops the queues; the frames in their rings count as dropped. Call it before the last look
    /// at the counts, once: no frame is carried after it. Queues of a device that is out of service
    /// and still has them do not stop; their frames are in no count.
    pub fn end(&mut self) {
        // They fail for a queue that the device still has, which keeps its frames.
        let _ = (self.receive.stop(), self.transmit.stop());
        self.counters.to_host.dropped += self.receive.drops().unread;
        let unsent = self.transmit.drops().unsent;
        let way = &mut self.counters.to_wire;
        way.packets = way.packets.saturating_sub(unsent);
        way.dropped += unsent;
    }

    /// Reads how many frames the device dropped at the VSI of its queues. Control path: call it
    /// once a second, since the device counts in 32 bits. While the device is out of service the
    /// count stays.
    pub fn look_at(&mut self, vsi: &Vsi) {
        let counted = vsi.statistics().unwrap_or_default();
        let dropped = counted.iter().find(|one| one.name == "rx_dropped");
        if let Some(dropped) = dropped {
            self.counters.device_dropped = self.former_drops + dropped.value;
        }
    }

    /// Its counts.
    #[must_use]
    pub const fn counters(&self) -> &BridgeCounters {
        &self.counters
    }

    /// Sleeps until a frame comes from either side or `wake` is readable, at most `limit`. Signals
    /// end it, too.
    pub fn sleep(&mut self, limit: Duration, wake: Option<BorrowedFd<'_>>) {
        let of_host = self.full.is_none().then(|| self.tap.as_fd());
        let limit = match &mut self.full {
            None => limit,
            // Room comes soon, unless the link is paused: 1 ms at most.
            Some(sleeps) => {
                *sleeps = (*sleeps + 1).min(20);
                limit.min(IDLE * *sleeps)
            }
        };
        let Some(interrupt) = &self.interrupt else {
            return wait_for([of_host, wake, None], IDLE.min(limit));
        };
        match self.receive.arm() {
            Ok(Arming::Armed) => {}
            Ok(Arming::PollAgain) => return,
            // The device is being recovered: only the host has frames.
            Err(_) => return wait_for([of_host, wake, None], limit),
        }
        wait_for([of_host, wake, Some(interrupt.as_fd())], limit);
        // An error is one of the device, which supervision sees.
        let _ = interrupt.take();
        self.is_armed = true;
        if self.receive.has_packets() {
            self.disarm();
        }
    }

    /// Packets come as soon as they arrive from now on, as polling expects.
    fn disarm(&mut self) {
        self.is_armed = false;
        let _ = self.receive.disarm();
    }

    /// Shows the host if the port can carry frames. A kernel before 5.0 refuses: the interface then
    /// always has a carrier.
    pub fn set_carrier(&mut self, up: bool) {
        if self.carrier != Some(up) {
            self.carrier = Some(up);
            let _ = self.tap.set_carrier(up);
        }
    }

    /// Moves a burst each way; returns how many frames there were.
    ///
    /// Errors: [`InterfaceGone`].
    pub fn round(&mut self) -> Result<usize, InterfaceGone> {
        let moved = self.send_to_host() + self.send_to_wire()?;
        // Frames of the host have ended the sleep.
        if self.is_armed && moved > 0 {
            self.disarm();
        }
        Ok(moved)
    }

    fn send_to_host(&mut self) -> usize {
        let count = self.receive.receive(&mut self.burst);
        self.observer.received(self.burst.packets());
        for packet in self.burst.packets() {
            if !is_of(self.vlan, packet) {
                self.counters.other_vlan += 1;
                continue;
            }
            let length = packet.length();
            let way = &mut self.counters.to_host;
            // As Linux's driver does: the frame may be damaged, or cut.
            if packet.flags().receive_error() {
                way.dropped += 1;
                continue;
            }
            let Some(frame) = self.frame.get_mut(..length) else {
                way.dropped += 1;
                continue;
            };
            if !packet.read(0, frame) {
                way.dropped += 1;
                continue;
            }
            match self.tap.send(frame) {
                Ok(()) => {
                    way.packets += 1;
                    way.bytes += length as u64;
                }
                Err(SendError::NoRoom | SendError::Down | SendError::Refused(_)) => {
                    way.dropped += 1
                }
            }
        }
        self.burst.clear();
        count
    }

    /// Frames that the transmit queue takes now, of any length. One that is not in service takes
    /// them all, and drops them.
    fn room(&mut self) -> usize {
        if self.transmit.state() != QueueState::Running {
            return BURST;
        }
        self.transmit.reclaim();
        let buffer_bytes = self.transmit.pool().settings().buffer_bytes;
        // A descriptor for each buffer, and one for the tag.
        let most = self.frame.len().div_ceil(usize::from(buffer_bytes.max(1))) + 1;
        usize::from(self.transmit.room()) / most
    }

    fn send_to_wire(&mut self) -> Result<usize, InterfaceGone> {
        let mut count = 0;
        let room = self.room();
        self.full = (room == 0).then(|| self.full.unwrap_or(0));
        while count < BURST.min(room) {
            let length = match self.tap.receive(&mut self.frame) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(_) => {
                    self.failures += 1;
                    if self.failures < MAX_FAILURES {
                        break;
                    }
                    return Err(InterfaceGone);
                }
            };
            self.failures = 0;
            count += 1;
            let frame = self.frame.get(..length).unwrap_or_default();
            if is_too_long(frame, self.mtu) {
                self.counters.too_long += 1;
                continue;
            }
            let Some(mut packet) = self.transmit.pool().packet_with(frame) else {
                self.transmit.reclaim();
                self.counters.to_wire.dropped += 1;
                continue;
            };
            packet.set_vlan(self.vlan);
            if self.burst.push(packet).is_err() {
                break;
            }
        }
        self.send();
        Ok(count)
    }

    fn send(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        let before = *self.transmit.counters();
        let offered = self.burst.len();
        self.observer.offered(self.burst.packets());
        let taken = self.transmit.send(&mut self.burst);
        self.observer
            .sent(taken, self.transmit.dropped_among(taken));
        self.burst.clear();
        let after = self.transmit.counters();
        let sent = after.packets - before.packets;
        let way = &mut self.counters.to_wire;
        way.packets += sent;
        way.bytes += after.bytes - before.bytes;
        way.dropped += offered as u64 - sent;
    }
}

/// Sleeps until one of the descriptors is readable, or a signal came.
fn wait_for(all: [Option<BorrowedFd<'_>>; 3], limit: Duration) {
    let Some(first) = all.into_iter().flatten().next() else {
        return std::thread::sleep(limit);
    };
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // In the place of a missing one, the first stands twice.
    let mut waited = all.map(|one| PollFd::from_borrowed_fd(one.unwrap_or(first), PollFlags::IN));
    let _ = poll(&mut waited, Some(&limit));
}

/// True if a packet is of the interface's VLAN. Without a VLAN every packet is.
fn is_of(vlan: Option<u16>, packet: &Packet) -> bool {
    vlan.is_none() || packet.vlan().map(|tag| tag & VLAN_BITS) == vlan
}

/// True if the payload of a frame is longer than the MTU. Tags are no payload.
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    let kind_at = |at: usize| frame.get(at..).and_then(<[u8]>::first_chunk::<2>);
    let is_tag = |tag: &usize| {
        let kind = kind_at(HEADER_BYTES - 2 + tag * TAG_BYTES);
        kind.is_some_and(|kind| TAG_TYPES.contains(kind))
    };
    let tags = (0..MAX_TAGS).take_while(is_tag).count();
    frame.len() > mtu + HEADER_BYTES + tags * TAG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_no_part_of_the_mtu() {
        let frame = |tags: usize, payload: usize| {
            let mut frame = vec![0; 12];
            for _ in 0..tags {
                frame.extend([0x81, 0, 0, 100]);
            }
            frame.extend([8, 0]);
            frame.resize(frame.len() + payload, 0);
            frame
        };
        for tags in 0..=MAX_TAGS {
            assert!(!is_too_long(&frame(tags, 1500), 1500), "{tags} tags");
            assert!(is_too_long(&frame(tags, 1501), 1500), "{tags} tags");
        }
        assert!(!is_too_long(&[], 1500));
    }
}
