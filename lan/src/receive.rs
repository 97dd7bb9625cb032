//! Receive queues.

mod arm;
mod post;

pub use arm::Arming;

use crate::burst::Burst;
use crate::control::{QueueControl, QueueState, Remains, Service, StopError};
use crate::drops::Drops;
use crate::packet::{Packet, Written};
use crate::pool::PacketPool;
use crate::ring::{Ring, RingError};
use crate::shared::NO_BUFFER;
use crate::vector::{Arrivals, MARGIN, PacketPath, Posted, Template, receive};
use ringside_bus::{DmaBuffer, Doorbell};
use ringside_spec::lan::receive::{
    MAX_BUFFERS_PER_PACKET, WriteBack0, WriteBack1, WriteBack2, profile,
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Words of a descriptor.
const WORDS: usize = 4;
/// Descriptors that are posted again at once, at least.
const REFILL: u16 = 32;

/// Sizes of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// Descriptors of the ring: a multiple of 32, 64..=8160.
    pub descriptors: u16,
    /// Longest frame with its check sequence, up to 9728 bytes, and up to five buffers.
    pub frame_bytes_max: u16,
    /// Instructions to use; `None` for those of the environment variable, else AVX2 if
    /// the processor has it.
    pub path: Option<PacketPath>,
}

impl Default for ReceiveSettings {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            frame_bytes_max: 1522,
            path: None,
        }
    }
}

/// Counts of a receive queue since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReceiveCounters {
    /// Packets delivered.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls of [`ReceiveQueue::receive`].
    pub polls: u64,
    /// Calls that found no packet.
    pub empty_polls: u64,
    /// Calls that filled the burst: the queue is the bottleneck.
    pub full_polls: u64,
    /// Times that the pool had too few buffers to post. Those of sent packets are free once
    /// [`TransmitQueue::reclaim`](crate::TransmitQueue::reclaim) was called.
    pub no_buffers: u64,
    /// Packets dropped: a length beyond the buffer, or none.
    pub bad_length: u64,
    /// Packets dropped: a descriptor of another profile than the queue's.
    pub bad_profile: u64,
    /// Packets dropped: more than five buffers without an end.
    pub chain_too_long: u64,
    /// Packets dropped: they had arrived when the queue stopped.
    pub unread: u64,
}

/// A ring of buffers that the device fills. `Send`, not `Sync`: only one core uses it.
pub struct ReceiveQueue {
    ring: Ring<WORDS>,
    /// the buffer of each descriptor that is posted, with a margin in front and behind
    slots: Box<[u32]>,
    /// the descriptor that the device fills next
    head: u16,
    /// the descriptor that is posted next
    fill: u16,
    posted: u16,
    buffer_bytes: u16,
    /// buffers that the longest frame fills
    buffers_per_frame: u16,
    /// its part of the pool: buffers that it has posted from its next start on, at most
    share: u16,
    /// buffers that it has posted, at most
    capacity: u16,
    headroom: u16,
    buffers: Posted,
    state: QueueState,
    path: PacketPath,
    template: Template,
    #[cfg(test)]
    pub(crate) one_by_one: bool,
    /// the rest of a packet that was dropped is still coming
    skipping: bool,
    /// a packet whose last buffer has not come
    partial: Option<Packet>,
    pool: PacketPool,
    tail: Doorbell,
    service: Arc<Service>,
    control: Arc<dyn QueueControl>,
    counters: ReceiveCounters,
    one_core: PhantomData<Cell<()>>,
}

impl ReceiveQueue {
    /// A queue that is stopped, in `memory` of at least 32 bytes a descriptor.
    ///
    /// Errors: [`RingError`], sizes out of range.
    pub fn new(
        settings: ReceiveSettings,
        memory: DmaBuffer,
        pool: PacketPool,
        tail: Doorbell,
        service: Arc<Service>,
        control: Arc<dyn QueueControl>,
    ) -> Result<Self, RingError> {
        let ring = Ring::new(memory, settings.descriptors)?;
        let sizes = pool.settings();
        let most = u32::from(sizes.buffer_bytes) * u32::from(MAX_BUFFERS_PER_PACKET);
        if u32::from(settings.frame_bytes_max) > most {
            return Err(RingError::Frame {
                frame_bytes: settings.frame_bytes_max,
                buffer_bytes: sizes.buffer_bytes,
            });
        }
        let template = Packet::empty(pool.reference(), NO_BUFFER, sizes.headroom_bytes);
        let slots = usize::from(settings.descriptors) + 2 * MARGIN;
        let buffers = Posted {
            base: pool.shared().iova(0) + u64::from(sizes.headroom_bytes),
            stride: pool.shared().stride(),
        };
        Ok(Self {
            path: PacketPath::choose(settings.path)?,
            template: Template::of(template),
            #[cfg(test)]
            one_by_one: false,
            slots: vec![NO_BUFFER; slots].into(),
            ring,
            head: 0,
            fill: 0,
            posted: 0,
            buffer_bytes: sizes.buffer_bytes,
            buffers_per_frame: settings.frame_bytes_max.div_ceil(sizes.buffer_bytes).max(1),
            share: u16::MAX,
            capacity: 0,
            headroom: sizes.headroom_bytes,
            buffers,
            state: QueueState::Stopped,
            skipping: false,
            partial: None,
            pool,
            tail,
            service,
            control,
            counters: ReceiveCounters::default(),
            one_core: PhantomData,
        })
    }

    /// Starts the queue with a share of a pool that is smaller than all rings: the device has at
    /// most `most` buffers, also after refills and later calls of [`ReceiveQueue::start`]. Without
    /// a share, idle queues take what busy ones give back. The least share is 48 buffers.
    ///
    /// Control path. Errors: as [`ReceiveQueue::start`].
    pub fn start_with(&mut self, most: u16) -> Result<(), StopError> {
        self.share = most;
        self.start()
    }

    /// Posts buffers and starts the queue.
    ///
    /// Control path. Errors: [`StopError`]; the queue is stopped, or lost if the device did not
    /// answer.
    pub fn start(&mut self) -> Result<(), StopError> {
        if !self.service.in_service() {
            return Err(StopError::OutOfService);
        }
        match self.state {
            QueueState::Running => return Ok(()),
            // The device did not confirm the last stop: it may still use the ring.
            QueueState::Lost => self.stop()?,
            QueueState::Stopped => {}
        }
        self.ring.zero();
        (self.head, self.fill, self.skipping) = (0, 0, false);
        self.control.configure()?;
        // The register holds the tail of an earlier run: without buffers, `refill` does not write
        // it, and the device would use descriptors that have no address.
        self.tail.ring(0);
        self.state = QueueState::Running;
        self.fill();
        let enabled = self.control.enable();
        if enabled.is_err() {
            // Stopped if the device refused or lets go of the ring, else lost: `stop` notes which.
            let _ = self.stop();
        }
        enabled
    }

    /// Takes the ring from the device and gives its buffers back to the pool.
    ///
    /// Control path. Errors: [`StopError`]; the queue keeps its buffers, and this can be called
    /// again.
    pub fn stop(&mut self) -> Result<(), StopError> {
        if self.state == QueueState::Stopped {
            return Ok(());
        }
        if !self.service.is_released() {
            if !self.service.in_service() {
                self.state = QueueState::Lost;
                return Err(StopError::OutOfService);
            }
            if let Err(error) = self.control.disable() {
                self.state = QueueState::Lost;
                return Err(error);
            }
        }
        self.count_unread();
        self.partial = None;
        let posted = self.take_posted();
        self.pool.shared().give(&posted);
        self.state = QueueState::Stopped;
        Ok(())
    }

    /// Stops the queue and starts it again, as [`TransmitQueue::restart`](crate::TransmitQueue).
    ///
    /// Control path. Errors: [`StopError`].
    pub fn restart(&mut self) -> Result<(), StopError> {
        self.stop()?;
        self.start()
    }

    /// Not inlined: what is inlined here is taken from the data path.
    #[cold]
    #[inline(never)]
    fn count_unread(&mut self) {
        self.counters.unread += self.unread();
    }

    /// Whole packets that have arrived and were not received.
    fn unread(&self) -> u64 {
        let (mut at, mut packets) = (self.head, 0);
        for _ in 0..self.posted {
            let status = WriteBack1(self.ring.words().load(usize::from(at) * WORDS + 1));
            if !status.done() {
                break;
            }
            packets += u64::from(status.end_of_packet());
            at = self.ring.after(at);
        }
        packets
    }

    /// The buffers that are posted.
    fn take_posted(&mut self) -> Vec<u32> {
        let mut posted = Vec::with_capacity(self.posted.into());
        while self.posted > 0 {
            posted.extend(self.slots.get(usize::from(self.head) + MARGIN));
            self.head = self.ring.after(self.head);
            self.posted -= 1;
        }
        posted
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> QueueState {
        match self.state {
            QueueState::Running if !self.service.in_service() => QueueState::Lost,
            state => state,
        }
    }

    /// Its counts.
    #[must_use]
    pub const fn counters(&self) -> &ReceiveCounters {
        &self.counters
    }

    /// The packets that it dropped, by cause.
    #[must_use]
    pub fn drops(&self) -> Drops {
        Drops {
            bad_length: self.counters.bad_length,
            bad_profile: self.counters.bad_profile,
            chain_too_long: self.counters.chain_too_long,
            unread: self.counters.unread,
            ..Drops::default()
        }
    }

    /// The instructions that it uses.
    #[must_use]
    pub const fn path(&self) -> PacketPath {
        self.path
    }

    /// The pool that its packets come from.
    #[must_use]
    pub const fn pool(&self) -> &PacketPool {
        &self.pool
    }

    /// Buffers that the device has to fill.
    #[must_use]
    pub const fn posted(&self) -> u16 {
        self.posted
    }

    #[cfg(test)]
    pub(crate) fn cursors(&self) -> (u16, u16, u16, bool, bool) {
        let chain = self.partial.is_some();
        (self.head, self.fill, self.posted, self.skipping, chain)
    }

    /// Appends packets that have arrived to `burst`, as many as it has room for; returns how many.
    /// Frames that the device reports damaged are among them: Linux drops those with
    /// [`Flags::receive_error`](crate::Flags::receive_error).
    ///
    /// Data path: no lock, no allocation. A queue that is not running delivers nothing.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        if self.state != QueueState::Running || !self.service.in_service() {
            return 0;
        }
        let before = burst.len();
        let room = burst.room();
        let mut bytes = match self.is_one_by_one() {
            false => self.receive_plain(burst, room),
            true => 0,
        };
        let mut received = burst.len() - before;
        if received < room && self.has_arrived() {
            bytes += self.receive_others(burst, room - received);
            received = burst.len() - before;
        }
        self.counters.polls += 1;
        self.counters.empty_polls += u64::from(received == 0);
        self.counters.full_polls += u64::from(received == room);
        self.counters.packets += received as u64;
        self.counters.bytes += bytes;
        self.refill(REFILL);
        received
    }

    /// False; tests of the paths make the queue that they compare with so.
    #[inline(always)]
    const fn is_one_by_one(&self) -> bool {
        #[cfg(test)]
        return self.one_by_one;
        #[cfg(not(test))]
        false
    }

    /// True if the device is done with the next descriptor.
    #[inline(always)]
    fn has_arrived(&self) -> bool {
        let at = usize::from(self.head) * WORDS + 1;
        self.posted > 0 && WriteBack1(self.ring.words().load_acquire(at)).done()
    }

    /// Appends up to `room` packets of any kind; returns their bytes.
    ///
    /// Not inlined: plain packets, nearly all, do not come here, except for the last of a burst
    /// that are too few for a vector.
    #[inline(never)]
    fn receive_others(&mut self, burst: &mut Burst, room: usize) -> u64 {
        let before = burst.len();
        let mut bytes = 0;
        // Descriptors up to the next attempt at plain packets: the last attempt was just now.
        let stride = match self.is_one_by_one() {
            false => self.path.stride(),
            true => usize::MAX,
        };
        let mut single = stride;
        while burst.len() - before < room && self.posted > 0 {
            if single == 0 {
                bytes += self.receive_plain(burst, room - (burst.len() - before));
                single = stride;
                continue;
            }
            let Some((descriptor, buffer)) = self.next_descriptor() else {
                break;
            };
            single -= 1;
            // The only buffer of its packet, and nothing wrong with it: the common case.
            if descriptor.is_plain(self.buffer_bytes) && !self.is_in_chain() {
                let packet = self.packet(&descriptor, buffer);
                bytes += u64::from(packet.first_bytes());
                burst.packets.push(packet);
            } else if let Some(packet) = self.assemble(&descriptor, buffer) {
                bytes += u64::from(packet.total());
                burst.packets.push(packet);
            }
        }
        bytes
    }

    /// Appends plain packets, as many as the path takes; returns their bytes.
    #[inline(always)]
    fn receive_plain(&mut self, burst: &mut Burst, room: usize) -> u64 {
        if self.is_in_chain() {
            return 0;
        }
        let head = usize::from(self.head);
        let to_end = usize::from(self.ring.length) - head;
        let limit = room.min(self.posted.into()).min(to_end);
        let from = Arrivals {
            words: &self.ring.words().as_slice()[head * WORDS..],
            slots: &self.slots[head..],
            template: &self.template,
            buffer_bytes: self.buffer_bytes,
        };
        let handled = receive(self.path, &from, &mut burst.packets, limit);
        self.posted -= handled.packets as u16;
        self.head += handled.packets as u16;
        if self.head == self.ring.length {
            self.head = 0;
        }
        handled.bytes
    }

    /// The next descriptor if the device is done with it, and its buffer, which is the caller's.
    #[inline(always)]
    fn next_descriptor(&mut self) -> Option<(Descriptor, u32)> {
        let at = usize::from(self.head) * WORDS;
        let words: &[_; WORDS] = self.ring.words().as_slice()[at..].first_chunk()?;
        let status = WriteBack1(u64::from_le(words[1].load(Ordering::Acquire)));
        if !status.done() {
            return None;
        }
        let load = |word: usize| u64::from_le(words[word].load(Ordering::Relaxed));
        let written = [load(0), status.0, load(2), load(3)];
        let buffer = self.slots[usize::from(self.head) + MARGIN];
        self.head = self.ring.after(self.head);
        self.posted -= 1;
        Some((Descriptor(written), buffer))
    }

    #[inline(always)]
    const fn is_in_chain(&self) -> bool {
        self.partial.is_some() || self.skipping
    }

    /// A packet in one buffer, with all values of the descriptor.
    #[inline(always)]
    fn packet(&self, descriptor: &Descriptor, buffer: u32) -> Packet {
        let pool = self.pool.reference();
        let mut packet = Packet::delivered(pool, buffer, self.headroom, descriptor.0);
        if descriptor.has_tags() {
            descriptor.describe_tags(&mut packet);
        }
        packet
    }

    /// One buffer of several, or something that must not be.
    #[cold]
    fn assemble(&mut self, descriptor: &Descriptor, buffer: u32) -> Option<Packet> {
        let mut piece = Packet::empty(self.pool.reference(), buffer, self.headroom);
        let last = descriptor.status().end_of_packet();
        if self.skipping {
            self.skipping = !last;
            return None;
        }
        let length = descriptor.first().bytes() as u16;
        let empty_end = length == 0 && last && self.partial.is_some();
        let wrong = if descriptor.first().profile() != u64::from(profile::NIC) {
            Some(&mut self.counters.bad_profile)
        } else if length > self.buffer_bytes || (length == 0 && !empty_end) {
            Some(&mut self.counters.bad_length)
        } else {
            None
        };
        if let Some(counter) = wrong {
            *counter += 1;
            self.partial = None;
            self.skipping = !last;
            return None;
        }
        piece.set_first_bytes(length);
        let mut whole = match self.partial.take() {
            None => piece,
            Some(whole) if empty_end => whole,
            Some(mut whole) => {
                if whole.segment_count() >= usize::from(MAX_BUFFERS_PER_PACKET)
                    || whole.chain(piece).is_err()
                {
                    self.counters.chain_too_long += 1;
                    self.skipping = !last;
                    return None;
                }
                whole
            }
        };
        if !last {
            self.partial = Some(whole);
            return None;
        }
        // All fields but the length are those of the last descriptor.
        let first_bytes = whole.first_bytes();
        whole.describe(descriptor.0, first_bytes);
        if descriptor.has_tags() {
            descriptor.describe_tags(&mut whole);
        }
        Some(whole)
    }
}

/// A descriptor as the device wrote it.
#[derive(Clone, Copy)]
struct Descriptor(Written);

impl Descriptor {
    #[inline(always)]
    const fn first(&self) -> WriteBack0 {
        WriteBack0(self.0[0])
    }

    #[inline(always)]
    const fn status(&self) -> WriteBack1 {
        WriteBack1(self.0[1])
    }

    #[inline(always)]
    const fn tags(&self) -> WriteBack2 {
        WriteBack2(self.0[2])
    }

    /// One buffer, the layout of the queue, and a length that fits.
    #[inline(always)]
    fn is_plain(&self, buffer_bytes: u16) -> bool {
        // All 16 bits of the word of the length: the packet keeps it as it is.
        let length = (self.0[0] >> 32) & 0xFFFF;
        self.status().end_of_packet()
            && self.first().profile() == u64::from(profile::NIC)
            && length.wrapping_sub(1) < u64::from(buffer_bytes)
    }

    #[inline(always)]
    const fn has_tags(&self) -> bool {
        self.status().l2tag1_present() || self.tags().l2tag2_present()
    }

    /// One tag is in either place; of two, the outer one is in the first.
    #[cold]
    fn describe_tags(&self, packet: &mut Packet) {
        let (outer, inner) = (self.status().l2tag1(), self.tags().l2tag2_second());
        let (first, second) = (self.status().l2tag1_present(), self.tags().l2tag2_present());
        packet.set_vlan(Some(if second { inner } else { outer } as u16));
        if first && second {
            packet.set_outer_vlan(Some(outer as u16));
        }
    }
}

impl Drop for ReceiveQueue {
    /// Stops the queue. Buffers that the device does not release are kept until its reset.
    fn drop(&mut self) {
        // In a child by fork: the queue is its parent's.
        if self.ring.is_elsewhere() {
            return;
        }
        if self.stop().is_ok() {
            return;
        }
        // Buffers of a packet that is not whole have been written already: they are ours.
        self.partial = None;
        let buffers = self.take_posted();
        self.service.keep(Remains {
            ring: self.ring.take_buffer(),
            pool: self.pool.clone(),
            buffers,
            shared: Vec::new(),
        });
    }
}

impl std::fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("descriptors", &self.ring.length)
            .field("posted", &self.posted)
            .field("state", &self.state())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
