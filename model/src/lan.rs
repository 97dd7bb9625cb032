//! The LAN engine of the E810 in software: queues of the host's network stack, the offloads on
//! their way out, parser and spreading on their way in, and the switch between the function's
//! VSIs and its port.
//!
//! The firmware's tables come in through [`LanEngine::configure`], doorbells and tails through
//! [`LanEngine::ring`] and [`LanEngine::receive_tail`]. [`LanEngine::next_frame`] gives frames for
//! the wire, [`LanEngine::receive`] takes them. Descriptors are believed nothing: every address is
//! looked up, every length checked, and one call works for a bounded time.

pub(crate) mod alone;
mod answers;
mod bytes;
pub(crate) mod classes;
mod counters;
mod flow_director;
mod frame;
mod headers;
mod numbered;
mod offload;
mod plain;
mod receive;
mod receivers;
mod ring;
mod rss;
pub(crate) mod switching;
mod transmit;
pub(crate) mod words;

pub(crate) use counters::{LanCounters, VsiCounters};
pub(crate) use frame::SentFrame;
pub(crate) use rss::{Scheme, Spreading};

use crate::chip::{Context, QueueCause, Timer};
use crate::strict::Ledger;
use answers::Answers;
use flow_director::FlowDirector;
use frame::{CHECK_BYTES, Headers, Spares};
use headers::{ETHERNET_BYTES, Parsed};
use numbered::Numbered;
use receive::{Arrival, NotTaken, ReceiveQueue};
use receivers::Receivers;
use ringside_spec::lan::receive::ReceiveContext;
use ringside_spec::lan::registers::queues::DescriptorProfile;
use ringside_spec::lan::transmit::TransmitContext;
use std::collections::VecDeque;
use switching::{Destination, Tables, TagReceived, Vsi};
use transmit::{MAX_FRAME_BYTES, Packet, TransmitQueue};

/// Packets that one call takes from the rings at most, if none of them is for the wire.
const PACKETS_BURST: usize = 32;

/// Transmit queues as the firmware holds them: number, serial, context.
pub(crate) type TransmitQueues<'a> =
    dyn Iterator<Item = (u16, u64, [u8; TransmitContext::SIZE])> + 'a;

/// See the module.
#[derive(Default)]
pub(crate) struct LanEngine {
    tables: Tables,
    transmit: Numbered<TransmitQueue>,
    /// Queues whose doorbell rang and whose descriptors have not been read since, in order.
    ready: VecDeque<u16>,
    receive: Receivers,
    /// Frames on their way to the wire.
    outgoing: VecDeque<Box<SentFrame>>,
    answers: Answers,
    /// The packet that is worked on. One is filled again and again: it is large to move.
    packet: Option<Box<Packet>>,
    spares: Spares,
    director: FlowDirector,
    counters: LanCounters,
    /// the PHY's timer, which stamps frames
    timer: Timer,
}

impl LanEngine {
    /// A reset of the function: queues go, counters stay.
    pub(crate) fn reset(&mut self) {
        self.transmit.clear();
        self.ready.clear();
        self.receive.clear();
        self.outgoing.clear();
        self.director.reset();
    }

    /// Takes over the changes of commands.
    pub(crate) fn configure(
        &mut self,
        tables: Tables,
        queues: &mut TransmitQueues<'_>,
        ledger: &mut Ledger,
    ) {
        self.tables = tables;
        self.answers.forget();
        self.director.keep(&self.tables);
        let mut before = std::mem::take(&mut self.transmit);
        for (number, serial, bytes) in queues {
            let queue = match before.remove(number) {
                Some(queue) if queue.serial == serial => queue,
                _ => TransmitQueue::new(number, serial, &bytes, ledger),
            };
            self.transmit.insert(number, queue);
        }
        // A queue that was removed, or is another one now, has no doorbell that waits.
        let transmit = &self.transmit;
        self.ready
            .retain(|number| transmit.get(*number).is_some_and(TransmitQueue::has_work));
    }

    /// A VSI was freed; [`LanEngine::configure`] was not called since. Counts its receive queues
    /// that are enabled.
    pub(crate) fn check_freed(&self, number: u16, ledger: &mut Ledger) {
        let own = self.tables.vsi(number).map(|vsi| vsi.queues.as_slice());
        let own = own.unwrap_or_default().iter();
        let mut enabled = own.filter(|queue| self.receive.queues.contains(**queue));
        let Some(first) = enabled.next() else { return };
        // A queue that another VSI names too counts as its own. Hundreds of VSIs may have thousands
        // of queues each.
        let mut of_others = vec![false; usize::from(u16::MAX) + 1];
        let others = self.tables.vsis.iter().filter(|vsi| vsi.number != number);
        for queue in others.flat_map(|vsi| &vsi.queues) {
            if let Some(taken) = of_others.get_mut(usize::from(*queue)) {
                *taken = true;
            }
        }
        let own = |queue: &&u16| of_others.get(usize::from(**queue)) == Some(&false);
        if let Some(queue) = std::iter::once(first).chain(enabled).find(own) {
            ledger.breach("VSI freed while its receive queues are enabled", || {
                format!("VSI {number}, queue {queue}")
            });
        }
    }

    /// The PHY's timer was changed.
    pub(crate) fn set_timer(&mut self, timer: Timer) {
        self.timer = timer;
    }

    /// True if a call of [`LanEngine::next_frame`] would do anything.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.outgoing.is_empty()
    }

    /// Its counters.
    pub(crate) const fn counters(&self) -> &LanCounters {
        &self.counters
    }

    /// The doorbell of a transmit queue was written.
    pub(crate) fn ring(&mut self, number: u32, tail: u32, context: &mut Context<'_>) {
        let found = u16::try_from(number)
            .ok()
            .and_then(|number| self.transmit.get_mut(number));
        let Some(queue) = found else {
            // DPDK sets the tail to 0 before it adds the queue (24.11 `ice_rxtx.c`,
            // `ice_tx_queue_start`): that offers no descriptor.
            if tail == 0 {
                return;
            }
            context
                .ledger
                .breach("doorbell of a transmit queue that does not exist", || {
                    format!("queue {number}, tail {tail}")
                });
            return;
        };
        queue.ring(tail, context);
        if queue.has_work() && !self.ready.contains(&queue.number) {
            self.ready.push_back(queue.number);
        }
    }

    /// The descriptor that a transmit queue works on.
    pub(crate) fn transmit_head(&self, number: u32) -> u16 {
        let number = u16::try_from(number).ok();
        let queue = number.and_then(|number| self.transmit.get(number));
        queue.map_or(0, TransmitQueue::head)
    }

    /// Enables a receive queue with the values of its registers.
    pub(crate) fn enable_receive(
        &mut self,
        number: u32,
        registers: [u32; ReceiveContext::DWORDS],
        layout: DescriptorProfile,
        tail: u32,
        context: &mut Context<'_>,
    ) {
        let queue = ReceiveContext::from_dwords(registers);
        let profile = layout.profile() as u8;
        if !receive::has_layout(profile) {
            // No frame comes that way.
            context.ledger.remark(
                "receive descriptor profile without a layout in the model",
                || format!("profile {profile}, queue {number}"),
            );
            return;
        }
        let queue = ReceiveQueue::new(number, queue, layout, tail, context);
        self.receive.queues.insert(number as u16, queue);
    }

    /// A receive queue is disabled.
    pub(crate) fn disable_receive(&mut self, number: u32) {
        self.receive.queues.remove(number as u16);
    }

    /// True while a receive queue is enabled.
    pub(crate) fn receives(&self, number: u32) -> bool {
        self.receive.queues.contains(number as u16)
    }

    /// The tail of a receive queue was written; nothing happens before it is enabled.
    pub(crate) fn receive_tail(&mut self, number: u32, tail: u32, context: &mut Context<'_>) {
        if let Some(queue) = self.receive.queues.get_mut(number as u16) {
            queue.set_tail(tail, context);
        }
    }

    /// The next frame for the wire. [`LanEngine::recycle`] takes it back.
    pub(crate) fn next_frame(&mut self, context: &mut Context<'_>) -> Option<Box<SentFrame>> {
        for _ in 0..PACKETS_BURST {
            if !self.outgoing.is_empty() {
                break;
            }
            let number = self.ready.pop_front()?;
            self.work(number, context);
        }
        let frame = self.outgoing.pop_front()?;
        let bytes = frame.bytes.len() + CHECK_BYTES;
        self.counters.sent.count(frame.destination(), bytes);
        Some(frame)
    }

    /// Takes back a frame that is not needed any more.
    #[inline]
    pub(crate) fn recycle(&mut self, frame: Box<SentFrame>) {
        self.spares.keep(frame);
    }

    /// Receives the frames that were for the wire: the MAC returns them. The number of those that
    /// no receiver accepts.
    pub(crate) fn return_frames(&mut self, context: &mut Context<'_>) -> u64 {
        let mut unclaimed = 0;
        for _ in 0..PACKETS_BURST {
            let Some(frame) = self.next_frame(context) else {
                break;
            };
            unclaimed += u64::from(!self.receive_sent(&frame, context));
            self.recycle(frame);
        }
        unclaimed
    }

    /// Drops and counts the waiting frames when the link is down.
    pub(crate) fn discard(&mut self, context: &mut Context<'_>) {
        for _ in 0..PACKETS_BURST {
            let Some(number) = self.ready.pop_front() else {
                break;
            };
            self.work(number, context);
        }
        self.counters.sent_link_down += self.outgoing.len() as u64;
        self.outgoing.clear();
    }

    /// Takes one packet of a queue.
    fn work(&mut self, number: u16, context: &mut Context<'_>) {
        if self.take_plain(number, context) {
            return;
        }
        let mut packet = self.packet.take().unwrap_or_default();
        self.take_packet(number, &mut packet, context);
        self.packet = Some(packet);
    }

    fn take_packet(&mut self, number: u16, packet: &mut Packet, context: &mut Context<'_>) {
        let Some(queue) = self.transmit.get_mut(number) else {
            return;
        };
        if !queue.next_packet(packet, context) {
            return;
        }
        let vsi = queue.context.vsi;
        if packet.malformed.is_some() {
            // The queue has stopped: nothing is reported.
            self.counters.vsi(vsi).transmit_errors += 1;
            return;
        }
        if packet.dummy {
            // Before the packet is reported: a driver then looks for the outcome.
            self.program(vsi, packet, context);
        }
        let Some(queue) = self.transmit.get_mut(number) else {
            return;
        };
        let reported = queue.report(packet, context.memory);
        if queue.has_work() {
            self.ready.push_back(number);
        }
        if reported {
            context.causes.raise_queue(QueueCause::Transmit(number));
        }
        if !packet.dummy {
            self.send(vsi, packet, context);
        }
    }

    /// Executes the programming descriptor of a packet, and reports the outcome if requested.
    fn program(&mut self, vsi: u16, packet: &Packet, context: &mut Context<'_>) {
        let Some(programming) = &packet.programming else {
            return;
        };
        let Some(sender) = self.tables.vsi(vsi) else {
            return;
        };
        let (tables, frame) = (&self.tables, &packet.bytes);
        let status = self
            .director
            .program(programming, sender, frame, tables, context);
        let Some(status) = status else { return };
        let number = sender.queues.get(usize::from(sender.report_queue));
        let queue = number.and_then(|number| self.receive.queues.get_mut(*number));
        let written = queue.is_some_and(|queue| queue.report(status, context.memory));
        match (written, number) {
            (true, Some(number)) => context.causes.raise_queue(QueueCause::Receive(*number)),
            _ => context
                .ledger
                .breach("no room for the report of a filter", || {
                    format!("VSI {vsi}, queue {number:?}")
                }),
        }
    }

    /// Address and length of the ring of a transmit queue.
    pub(crate) fn transmit_ring(&self, number: u16) -> Option<(ringside_bus::Iova, u16)> {
        let queue = self.transmit.get(number)?;
        Some((queue.base(), queue.context.ring_length))
    }

    /// The value of a counter of the flow director.
    pub(crate) fn filter_matches(&self, counter: u16) -> u64 {
        self.director.matches(counter)
    }

    /// A driver writes a counter of the flow director.
    pub(crate) fn set_filter_matches(&mut self, counter: u16, value: u64) {
        self.director.set_matches(counter, value);
    }

    /// Filters of a VSI, or of all.
    pub(crate) fn filters(&self, vsi: Option<u16>) -> usize {
        self.director.count(vsi)
    }

    fn send(&mut self, vsi: u16, packet: &mut Packet, context: &mut Context<'_>) {
        let wanted = packet.destination;
        if let [Some((kind, _)), _] = &mut packet.offload.tags
            && let Some(own) = self.tables.vsi(vsi).and_then(|vsi| vsi.outer_tag)
        {
            *kind = own;
        }
        let applied = offload::apply(&mut packet.bytes, &packet.offload, |bytes| {
            let mut frame = self.spares.take();
            std::mem::swap(&mut frame.bytes, bytes);
            frame.stamp = packet.stamp;
            self.forward(vsi, wanted, frame, context);
        });
        if let Err(error) = applied {
            context
                .ledger
                .breach("transmit descriptors that contradict their packet", || {
                    format!("{error}: {:?}", packet.offload)
                });
            self.counters.vsi(vsi).transmit_errors += 1;
        }
    }

    /// Decides where a frame of a VSI goes.
    fn forward(
        &mut self,
        vsi: u16,
        wanted: Destination,
        mut frame: Box<SentFrame>,
        context: &mut Context<'_>,
    ) {
        if !frame.parse() {
            return;
        }
        let Some(sender) = self.tables.vsi(vsi) else {
            context
                .ledger
                .breach("transmit queue of a VSI that does not exist", || {
                    format!("VSI {vsi}")
                });
            return;
        };
        if let (Some(tag), None) = (sender.port_vlan, frame.headers.parsed.tag) {
            frame.bytes = tagged(&frame.bytes, tag);
            if !frame.parse() {
                return;
            }
        }
        let key = &frame.headers.key;
        let wire = match self.answers.route(&self.tables, sender, key, wanted) {
            Ok(wire) => wire,
            Err(refused) => {
                tracing::debug!(vsi, ?refused, ?key, "a frame may not be sent");
                self.counters.vsi(vsi).transmit_errors += 1;
                return;
            }
        };
        let counters = self.counters.vsi(vsi);
        counters.sent.count(key.destination, frame.bytes.len());
        for place in 0..self.answers.local().len() {
            if let Some(&target) = self.answers.local().get(place) {
                self.give(target, &frame.bytes, &frame.headers, Some(vsi), context);
            }
        }
        if wire {
            self.outgoing.push_back(frame);
        } else {
            self.spares.keep(frame);
        }
    }

    /// Takes a frame from the wire. False: no receiver accepts it.
    pub(crate) fn receive(&mut self, frame: &[u8], context: &mut Context<'_>) -> bool {
        let headers = Headers::of(frame);
        self.receive_parsed(frame, headers.as_ref(), context)
    }

    /// Takes a frame of another function; as [`LanEngine::receive`].
    pub(crate) fn receive_sent(&mut self, frame: &SentFrame, context: &mut Context<'_>) -> bool {
        self.receive_parsed(&frame.bytes, Some(&frame.headers), context)
    }

    fn receive_parsed(
        &mut self,
        frame: &[u8],
        headers: Option<&Headers>,
        context: &mut Context<'_>,
    ) -> bool {
        let bytes = frame.len() + CHECK_BYTES;
        let Some(headers) = headers.filter(|_| frame.len() > ETHERNET_BYTES) else {
            self.counters.undersize += 1;
            return true;
        };
        if bytes > MAX_FRAME_BYTES {
            self.counters.oversize += 1;
            return true;
        }
        let received = &mut self.counters.received;
        received.count(headers.key.destination, bytes);
        self.take(frame, headers, context)
    }

    /// Takes a frame that the port has counted already. False: no receiver accepts it.
    pub(crate) fn receive_counted(&mut self, frame: &[u8], context: &mut Context<'_>) -> bool {
        match Headers::of(frame) {
            Some(headers) => self.take(frame, &headers, context),
            None => false,
        }
    }

    fn take(&mut self, frame: &[u8], headers: &Headers, context: &mut Context<'_>) -> bool {
        let count = self.answers.receive(&self.tables, &headers.key);
        for place in 0..count {
            if let Some(&vsi) = self.answers.receivers().get(place) {
                self.give(vsi, frame, headers, None, context);
            }
        }
        count > 0
    }

    /// The PHY's time, for a frame that came through it.
    fn stamp(&self, sender: Option<u16>, context: &Context<'_>) -> Option<u64> {
        let stamped = sender.is_none() && self.timer.enabled();
        stamped.then(|| self.timer.at(context.now))
    }

    /// Puts a frame into the queue of a VSI that its headers choose.
    fn give(
        &mut self,
        number: u16,
        frame: &[u8],
        headers: &Headers,
        sender: Option<u16>,
        context: &mut Context<'_>,
    ) {
        let Some(vsi) = self.tables.vsi(number) else {
            return;
        };
        let parsed = &headers.parsed;
        let stamp = self.stamp(sender, context);
        let counters = self.counters.vsi(number);
        let bytes = frame.len() + CHECK_BYTES;
        counters.received.count(headers.key.destination, bytes);
        let hash = hash(vsi, frame, parsed, context.ledger);
        let filter = self.director.find(vsi, frame, parsed);
        if filter.is_some_and(|filter| filter.drop) {
            return;
        }
        let overlooks_tag = self.tables.overlooks_tag(&headers.key);
        let queue = match filter.and_then(|filter| filter.queues) {
            Some(group) => vsi.queue_of_group(group, hash),
            None => {
                let classes = &self.tables.classes;
                vsi.queue_of_class(classes.of_frame(frame, parsed, overlooks_tag), hash)
            }
        };
        let arrival = Arrival {
            frame,
            headers,
            hash,
            flow: filter.and_then(|filter| filter.id),
            tag: match parsed.tag {
                Some((kind, _)) if overlooks_tag || !vsi.takes(kind) => TagReceived::Kept,
                _ => vsi.tag_received,
            },
            sender,
            stamp,
        };
        let taken = match queue {
            Some(queue) => self.receive.deliver(queue, &arrival, context.memory),
            None => Err(NotTaken::NoDescriptors),
        };
        match (taken, queue) {
            (Ok(()), Some(queue)) => {
                context.causes.raise_queue(QueueCause::Receive(queue));
            }
            (Err(NotTaken::TooLong), _) => counters.receive_errors += 1,
            (Err(NotTaken::Fault), queue) => {
                counters.receive_errors += 1;
                if !context.memory.is_bus_master() {
                    // The driver has cut the device off: peers go on sending.
                    return;
                }
                if context.memory.is_refusing() {
                    return context.raise_pci_exception();
                }
                context
                    .ledger
                    .breach("receive ring or buffer that is not mapped", || {
                        format!("VSI {number}, queue {queue:?}")
                    });
            }
            _ => counters.dropped += 1,
        }
    }
}

/// Hash of a frame, if it is hashed. A frame whose hash the model cannot compute is treated as one
/// that is not.
fn hash(vsi: &Vsi, frame: &[u8], parsed: &Parsed, ledger: &mut Ledger) -> Option<u32> {
    let spreading = vsi.spreading.as_ref()?;
    let hash = match &vsi.hashed {
        Some(profiles) => {
            let profile = profiles.of_packet(parsed)?;
            spreading.hash_of(profile.input(frame, parsed))
        }
        None => spreading.hash(parsed.flow.as_ref()?),
    };
    let Some(scheme) = spreading.scheme_not_computed() else {
        return Some(hash);
    };
    ledger.remark("hash scheme that the model does not compute", || {
        format!("VSI {}, scheme {scheme}", vsi.number)
    });
    None
}

/// A frame with a tag put in.
fn tagged(frame: &[u8], value: u16) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    let [a, b] = value.to_be_bytes();
    let at = headers::TAG_AT.min(bytes.len());
    bytes.splice(at..at, [0x81, 0x00, a, b]);
    bytes
}

#[cfg(test)]
mod tests;
