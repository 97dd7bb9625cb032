//! Transmit queues.

mod limits;
mod place;
mod reclaim;

use crate::burst::Burst;
use crate::control::{QueueControl, QueueState, Remains, Service, StopError};
use crate::drops::Drops;
use crate::packet::Packet;
use crate::pool::PacketPool;
use crate::ring::{Ring, RingError};
use crate::shared::NO_BUFFER;
use crate::vector::{Departures, Outgoing, PacketPath, Template, forget_front, send};
use limits::{Dropped, MAX_PLAIN_BYTES, Refused};
use reclaim::{SHARED, WORDS};
use ringside_bus::{DmaBuffer, Doorbell};
use ringside_spec::lan::transmit::{DataCommand, kind};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

/// Descriptors after which the queue requests a report, at the next end of a packet.
const REPORT_EVERY: u16 = 32;
/// Sizes of a transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitSettings {
    /// Descriptors of the ring: a multiple of 32, 64..=8160.
    pub descriptors: u16,
    /// Instructions to use; `None` for those of the environment variable, else AVX2 if
    /// the processor has it.
    pub path: Option<PacketPath>,
}

impl Default for TransmitSettings {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            path: None,
        }
    }
}

/// Counts of a transmit queue since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransmitCounters {
    /// Packets given to the device.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls that found no room for all packets.
    pub ring_full: u64,
    /// Packets of another pool, which were copied.
    pub copied: u64,
    /// Packets dropped: shorter than 17 bytes, with an empty segment, or without the headers or the
    /// payload that they had when checksums or segmentation were requested.
    pub too_short: u64,
    /// Packets dropped: longer than the device sends, or a segment longer than a descriptor takes.
    pub too_long: u64,
    /// Packets dropped: a frame from more than eight buffers, or more buffers than the ring has
    /// descriptors.
    pub too_many_segments: u64,
    /// Packets dropped: an outer tag without an inner one, on a card in single VLAN mode.
    pub outer_tag_alone: u64,
    /// Packets dropped: of another pool, and this one had no buffers for a copy.
    pub no_buffers: u64,
    /// Packets in the ring when the queue stopped, and not reported sent. Some may have been sent:
    /// the device reports the last packet of a burst, for all of it.
    pub unsent: u64,
}

/// A ring of packets that the device sends. `Send`, not `Sync`: only one core uses it.
pub struct TransmitQueue {
    ring: Ring<WORDS>,
    /// the buffer of each descriptor, which is freed when the device is done
    slots: Box<[u32]>,
    /// descriptors that the device reports, oldest first; a ring of its own
    reports: Box<[u16]>,
    first_report: usize,
    report_count: usize,
    /// the descriptor that is filled next
    next: u16,
    /// the oldest descriptor whose buffer is not free yet
    clean: u16,
    free: u16,
    since_report: u16,
    /// descriptors that are not free and whose slot is not that of a plain packet
    special: u16,
    /// descriptors that the device has reported done, ever
    done: u64,
    state: QueueState,
    path: PacketPath,
    /// the device inserts an outer tag into a packet without an inner one
    outer_tag_alone: bool,
    plain: Outgoing,
    #[cfg(test)]
    pub(crate) one_by_one: bool,
    pool: PacketPool,
    doorbell: Doorbell,
    service: Arc<Service>,
    control: Arc<dyn QueueControl>,
    counters: TransmitCounters,
    dropped: Dropped,
    one_core: PhantomData<Cell<()>>,
}

impl TransmitQueue {
    /// A queue that is stopped, in `memory` of at least 16 bytes a descriptor. Packets of `pool`
    /// are sent from where they are, others are copied into it.
    ///
    /// Errors: [`RingError`], sizes out of range.
    pub fn new(
        settings: TransmitSettings,
        memory: DmaBuffer,
        pool: PacketPool,
        doorbell: Doorbell,
        service: Arc<Service>,
        control: Arc<dyn QueueControl>,
    ) -> Result<Self, RingError> {
        let ring = Ring::new(memory, settings.descriptors)?;
        let headroom = pool.settings().headroom_bytes;
        let template = Packet::empty(pool.reference(), NO_BUFFER, headroom);
        Ok(Self {
            path: PacketPath::choose(settings.path)?,
            outer_tag_alone: control.inserts_outer_tag_alone(),
            plain: Outgoing {
                template: Template::of(template),
                base: pool.shared().iova(0),
                stride: pool.shared().stride(),
                bytes_max: MAX_PLAIN_BYTES,
            },
            #[cfg(test)]
            one_by_one: false,
            slots: vec![NO_BUFFER; settings.descriptors.into()].into(),
            reports: vec![0; settings.descriptors.into()].into(),
            ring,
            first_report: 0,
            report_count: 0,
            next: 0,
            clean: 0,
            free: settings.descriptors - 1,
            since_report: 0,
            special: 0,
            done: 0,
            state: QueueState::Stopped,
            pool,
            doorbell,
            service,
            control,
            counters: TransmitCounters::default(),
            dropped: Dropped::default(),
            one_core: PhantomData,
        })
    }

    /// Starts the queue.
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
        (self.next, self.clean, self.free) = (0, 0, self.ring.length - 1);
        (self.first_report, self.report_count, self.since_report) = (0, 0, 0);
        self.control.configure()?;
        self.state = QueueState::Running;
        let enabled = self.control.enable();
        if enabled.is_err() {
            // Stopped if the device refused or lets go of the ring, else lost: `stop` notes which.
            let _ = self.stop();
        }
        enabled
    }

    /// Takes the ring from the device and gives the buffers of all packets in it back. Packets that
    /// were not reported sent count as `unsent`.
    ///
    /// Control path. Errors: [`StopError`]; the queue keeps them, and this can be called again.
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
        self.count_unsent();
        self.free_all();
        self.state = QueueState::Stopped;
        Ok(())
    }

    /// Counts the packets that the device has not reported sent. Not inlined: what is inlined here
    /// is taken from the data path.
    #[cold]
    #[inline(never)]
    fn count_unsent(&mut self) {
        self.reclaim();
        self.counters.unsent += self.unsent();
    }

    /// Stops the queue and starts it again: what the device stopped by itself, such as its
    /// detection of malicious drivers, is in service again. Packets in the ring that the device has
    /// not sent by then are dropped; their buffers go back to the pool. Those not reported sent
    /// count as `unsent`.
    ///
    /// Control path. Errors: [`StopError`].
    pub fn restart(&mut self) -> Result<(), StopError> {
        self.stop()?;
        self.start()
    }

    /// Packets in the ring: each has one descriptor that ends it.
    fn unsent(&self) -> u64 {
        let (mut at, mut packets) = (self.clean, 0);
        while at != self.next {
            let word = self.ring.words().load(usize::from(at) * WORDS + 1);
            let command = DataCommand(word);
            packets += u64::from(command.kind() == kind::DATA && command.end_of_packet());
            at = self.ring.after(at);
        }
        packets
    }

    fn free_all(&mut self) {
        if self.clean != self.next {
            let last = match self.next {
                0 => self.ring.length - 1,
                next => next - 1,
            };
            self.free_through(last);
        }
        self.report_count = 0;
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
    pub const fn counters(&self) -> &TransmitCounters {
        &self.counters
    }

    /// The packets that it dropped, by cause.
    #[must_use]
    pub fn drops(&self) -> Drops {
        Drops {
            too_short: self.counters.too_short,
            too_long: self.counters.too_long,
            too_many_segments: self.counters.too_many_segments,
            outer_tag_alone: self.counters.outer_tag_alone,
            no_buffers: self.counters.no_buffers,
            unsent: self.counters.unsent,
            ..Drops::default()
        }
    }

    /// Packets that it has taken out of bursts.
    const fn taken(&self) -> u64 {
        let counters = &self.counters;
        let of_form = counters.too_short + counters.too_long + counters.too_many_segments;
        counters.packets + of_form + counters.outer_tag_alone + counters.no_buffers
    }

    /// The packets that the queue dropped among the `taken` ones that the last call of
    /// [`TransmitQueue::send`] returned: bit 0 for the first of the burst. It sends the others.
    #[must_use]
    pub const fn dropped_among(&self, taken: usize) -> u64 {
        match taken {
            0 => 0,
            _ => self.dropped.of(self.taken().wrapping_sub(taken as u64)),
        }
    }

    /// The instructions that it uses.
    #[must_use]
    pub const fn path(&self) -> PacketPath {
        self.path
    }

    /// The pool that it sends from without a copy.
    #[must_use]
    pub const fn pool(&self) -> &PacketPool {
        &self.pool
    }

    #[cfg(test)]
    pub(crate) fn cursors(&self) -> ([u16; 4], Vec<u16>) {
        let count = self.reports.len();
        let reports =
            (0..self.report_count).map(|at| self.reports[(self.first_report + at) % count]);
        let places = [self.next, self.clean, self.free, self.since_report];
        (places, reports.collect())
    }

    /// Buffers of descriptors that are not free yet, oldest first.
    #[cfg(test)]
    pub(crate) fn buffers(&self) -> Vec<u32> {
        let mut at = self.clean;
        std::iter::from_fn(|| {
            let slot = (at != self.next).then(|| self.slots[usize::from(at)])?;
            at = self.ring.after(at);
            Some(slot)
        })
        .collect()
    }

    /// Descriptors that the device has not reported done.
    #[must_use]
    pub const fn outstanding(&self) -> u16 {
        self.ring.length - 1 - self.free
    }

    /// Descriptors that are free: each segment of a packet takes one, segmentation or an outer tag
    /// one more. A packet is sent only if there is one more than its segments: with a room of 1
    /// the queue takes none.
    #[must_use]
    pub const fn room(&self) -> u16 {
        self.free
    }

    /// Sends packets from the front of `burst`, as many as there is room for, and takes them out of
    /// it; returns how many left it. Packets that the device cannot send are dropped and counted.
    ///
    /// Data path: no lock, no allocation. One doorbell. A queue that is not running takes nothing.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        if self.state != QueueState::Running || !self.service.in_service() {
            return 0;
        }
        self.reclaim_running();
        let first = self.next;
        let mut end = None;
        let mut taken = match self.is_one_by_one() {
            false => self.send_plain(&burst.packets, &mut end),
            true => 0,
        };
        match taken == burst.packets.len() {
            true => forget_front(&mut burst.packets, taken),
            false => taken = self.send_others(burst, taken, &mut end),
        }
        if self.next != first {
            self.report_last(end);
            self.doorbell.ring(self.next.into());
        }
        taken
    }

    /// Sends packets of any kind, of which the first `front` were sent as plain ones; returns how
    /// many left the burst.
    ///
    /// Not inlined: bursts of plain packets, nearly all, do not come here.
    #[inline(never)]
    fn send_others(
        &mut self,
        burst: &mut Burst,
        mut front: usize,
        end: &mut Option<(u16, DataCommand)>,
    ) -> usize {
        let mut taken = front;
        // Packets up to the next attempt at plain ones: the last attempt was just now.
        let stride = match self.is_one_by_one() {
            false => self.path.stride(),
            true => usize::MAX,
        };
        let mut single = if front == 0 { stride } else { 0 };
        // Plain packets at the front: their handles are not marked.
        while taken < burst.packets.len() {
            if single == 0 {
                let count = self.send_plain(&burst.packets[taken..], end);
                if taken == front {
                    front += count;
                } else {
                    let sent = burst.packets[taken..].iter_mut().take(count);
                    sent.for_each(|packet| packet.buffer = NO_BUFFER);
                }
                taken += count;
                single = stride;
                continue;
            }
            single -= 1;
            let packet = &mut burst.packets[taken];
            let placed = match usize::from(self.free) > packet.segment_count() {
                true => self.place(packet, end),
                false => self.find_room(packet.segment_count()),
            };
            if let Err(refused) = placed {
                self.count(refused, taken);
                if matches!(refused, Refused::RingFull) {
                    break;
                }
            }
            taken += 1;
        }
        forget_front(&mut burst.packets, front);
        if taken > front {
            for packet in burst.packets.drain(..taken - front) {
                // The ring owns the placed packets now, and they are marked; the others are
                // dropped.
                if packet.buffer == NO_BUFFER {
                    std::mem::forget(packet);
                }
            }
        }
        taken
    }

    /// False; tests of the paths make the queue that they compare with so.
    #[inline(always)]
    const fn is_one_by_one(&self) -> bool {
        #[cfg(test)]
        return self.one_by_one;
        #[cfg(not(test))]
        false
    }

    /// Sends plain packets from the front, as many as the path takes; returns their number. The
    /// caller must not drop them.
    #[inline(always)]
    fn send_plain(&mut self, packets: &[Packet], end: &mut Option<(u16, DataCommand)>) -> usize {
        let next = usize::from(self.next);
        // One descriptor stays free, as for single packets; a report ends a run.
        let to_end = usize::from(self.ring.length) - next;
        let to_report = usize::from(REPORT_EVERY.saturating_sub(self.since_report));
        let room = usize::from(self.free).saturating_sub(1);
        let limit = packets.len().min(room).min(to_end).min(to_report);
        let mut to = Departures {
            words: &self.ring.words().as_slice()[next * WORDS..],
            slots: &mut self.slots[next..],
            plain: &self.plain,
        };
        let handled = send(self.path, packets, &mut to, limit);
        let last = handled.packets.checked_sub(1);
        let Some(last) = last.and_then(|last| packets.get(last)) else {
            return 0;
        };
        let command = DataCommand::ZERO
            .with_end_of_packet(true)
            .with_buffer_bytes(last.first_bytes().into());
        let count = handled.packets as u16;
        let index = self.next + count - 1;
        self.next = self.ring.after(index);
        self.free -= count;
        self.since_report += count;
        self.counters.packets += u64::from(count);
        self.counters.bytes += handled.bytes;
        self.end_of_packet(index, command, end);
        handled.packets
    }

    /// Requests a report of the last packet, so that its buffers are freed when the queue is idle.
    #[inline(always)]
    fn report_last(&mut self, end: Option<(u16, DataCommand)>) {
        if self.since_report > 0
            && let Some((index, command)) = end
        {
            let word = command.with_report_status(true);
            self.ring
                .words()
                .store(usize::from(index) * WORDS + 1, word.0);
            self.push_report(index);
        }
    }

    #[inline(always)]
    fn push_report(&mut self, index: u16) {
        let mut at = self.first_report + self.report_count;
        if at >= self.reports.len() {
            at -= self.reports.len();
        }
        self.reports[at] = index;
        self.report_count += 1;
        self.since_report = 0;
    }

    /// Counts the packet at a place of the burst.
    #[cold]
    const fn count(&mut self, refused: Refused, place: usize) {
        if !matches!(refused, Refused::RingFull) {
            self.dropped.note(self.taken(), place);
        }
        match refused {
            Refused::TooShort => self.counters.too_short += 1,
            Refused::TooLong => self.counters.too_long += 1,
            Refused::TooManySegments => self.counters.too_many_segments += 1,
            Refused::OuterTagAlone => self.counters.outer_tag_alone += 1,
            Refused::NoBuffers => self.counters.no_buffers += 1,
            Refused::RingFull => self.counters.ring_full += 1,
        }
    }
}

impl Drop for TransmitQueue {
    /// Stops the queue. Buffers that the device does not release are kept until its reset.
    fn drop(&mut self) {
        // In a child by fork: the queue is its parent's.
        if self.ring.is_elsewhere() {
            return;
        }
        if self.stop().is_ok() {
            return;
        }
        let (mut buffers, mut shared) = (Vec::new(), Vec::new());
        while self.clean != self.next {
            match self.slots[usize::from(self.clean)] {
                NO_BUFFER => {}
                slot if slot & SHARED == 0 => buffers.push(slot),
                // The queue's handle stays: the last other one to go would free the buffers.
                slot => shared.push(slot & !SHARED),
            }
            self.clean = self.ring.after(self.clean);
        }
        self.service.keep(Remains {
            ring: self.ring.take_buffer(),
            pool: self.pool.clone(),
            buffers,
            shared,
        });
    }
}

impl std::fmt::Debug for TransmitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransmitQueue")
            .field("descriptors", &self.ring.length)
            .field("outstanding", &self.outstanding())
            .field("state", &self.state())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
