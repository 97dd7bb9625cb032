//! The completion queue: a ring that the device writes and one core polls.
//!
//! # Nothing lost, nothing twice, nothing to the wrong request
//! A completion names its queue pair by context and its request by ring index. The context must be
//! that of an attached queue pair, slot and generation; the index must be the first quantum of an
//! outstanding request. A record is outstanding if its 64-bit position is the one that the index
//! has at or after the tail, so a second completion of the same request finds none.
//!
//! A completion also retires what came before it on its queue. That is right for sends that asked
//! for no completion. Each record also carries the number of the signalled sends up to it: if the
//! device passes over one of those, the numbers don't follow each other, and the queue reports the
//! missed ones one by one (a later success means theirs), before it goes on.
//!
//! # Errors
//! After a failure the device writes one completion for each queue: the oldest request with the
//! reason. From there on software completes what is posted, now and later, as flushed.
//! Source: irdma `uk.c`, irdma_uk_cq_poll_cmpl; `verbs.c`, irdma_generate_flush_completions.

use crate::QueueError;
use crate::completion::{Completion, Status, flag};
use crate::inbox::{CompletionQueueHandle, Inbox, Request};
use crate::table::{AttachError, Drain, Entry, Progress, Sides, Table};
use ringside_bus::{Doorbell, Words};
use ringside_qp::state::{Outstanding, Tracker};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::rdma::events::{
    CQ_SHADOW_ARM_WORD, CQ_SHADOW_HEAD_WORD, CqShadowArm, CqShadowHead,
};
use ringside_spec::verbs::completion::{
    CompletionHeader, CompletionLength, CompletionSource, ExtensionHeader, ExtensionImmediate,
};
use ringside_spec::verbs::status::FLUSH_MAJOR;
use ringside_spec::verbs::{QUANTUM_WORDS, QueueSide};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of the largest completion ring. Source: irdma `icrdma_hw.c`, `max_hw_cq_size`.
const MAXIMUM_SLOTS: usize = 1 << 20;

/// Words of the shadow area.
const SHADOW_WORDS: usize = 8;

/// Requests from other cores that can wait for the next poll.
const INBOX_CAPACITY: usize = 256;

/// What the device said that can't be true; each was skipped or put right. All zero on a device
/// that keeps the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// Completions whose context is no attached queue pair's (0 included). Not a fault for a while
    /// after a queue pair was detached.
    pub unknown_context: u64,
    /// Completions of a queue that doesn't report here.
    pub wrong_queue: u64,
    /// Completions whose index is no outstanding request's: also second ones.
    pub bad_index: u64,
    /// Requests that the device passed over, reported by software.
    pub passed_over: u64,
    /// Successes of sends that had asked for none; not reported.
    pub unasked: u64,
    /// Queue pairs from other cores that the table had no place for.
    pub attach_refused: u64,
}

/// A completion queue. `Send`, not `Sync`: it belongs to the core that polls it.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: Words,
    shadow: Words,
    /// Slots of the ring, a power of two.
    size: u64,
    /// Slots read since the beginning.
    head: u64,
    /// Head that the shadow area shows.
    published: u64,
    table: Table,
    inbox: Arc<Inbox>,
    /// What has to be reported before the ring is read on.
    drain: Option<Drain>,
    /// Contexts of queue pairs of which a queue is flushed.
    flushed: Vec<CompletionContext>,
    anomalies: Anomalies,
    one_core: PhantomData<Cell<()>>,
}

/// What reading one slot came to.
enum Step {
    /// A completion is in the batch.
    Delivered,
    /// The slot was consumed without one.
    Skipped,
    /// There is nothing to read.
    Empty,
    /// Requests have to be retired one by one first.
    Drain(Drain),
}

impl CompletionQueue {
    /// A queue in `ring` with its shadow area, for up to `queue_pairs` slots of contexts.
    ///
    /// Range: 4..=2^20 slots of 32 bytes, a power of two; 8 words of shadow.
    /// Effects: fills ring and shadow with zeros; allocates all that polling will ever need.
    pub fn new(ring: Words, shadow: Words, queue_pairs: u32) -> Result<Self, QueueError> {
        let words = ring.count();
        let slots = words / QUANTUM_WORDS;
        let fits = (4..=MAXIMUM_SLOTS).contains(&slots) && slots.is_power_of_two();
        if !fits || !words.is_multiple_of(QUANTUM_WORDS) {
            return Err(QueueError::WrongSize { words });
        }
        if shadow.count() < SHADOW_WORDS {
            let words = shadow.count();
            return Err(QueueError::ShadowTooSmall { words });
        }
        ring.fill(0);
        shadow.fill(0);
        Ok(Self {
            ring,
            shadow,
            size: slots as u64,
            head: 0,
            published: 0,
            table: Table::new(queue_pairs),
            inbox: Arc::new(Inbox::new(INBOX_CAPACITY)),
            drain: None,
            flushed: Vec::with_capacity(queue_pairs as usize),
            anomalies: Anomalies::default(),
            one_core: PhantomData,
        })
    }

    /// Takes what is complete, up to the length of `batch`, and returns how many there are.
    ///
    /// Effects: gives the requests' places in their rings back; writes the head to the shadow area
    /// once, however many there are. Never blocks, allocates or calls the system.
    #[inline]
    pub fn poll(&mut self, batch: &mut [Completion]) -> usize {
        let mut count = 0;
        if self.drain.is_some() || self.inbox.is_waiting() {
            count = self.attend(batch);
            if self.drain.is_some() {
                return count;
            }
        }
        while let Some(place) = batch.get_mut(count) {
            match self.step(place) {
                Step::Delivered => count += 1,
                Step::Skipped => {}
                Step::Empty => {
                    if !self.flushed.is_empty() {
                        count = self.complete_flushed(batch, count);
                    }
                    break;
                }
                Step::Drain(drain) => {
                    self.drain = Some(drain);
                    count = self.carry_on(batch, count);
                }
            }
        }
        self.publish_head();
        count
    }

    /// Makes the queue accept completions of a queue pair, before its first post.
    pub fn attach(&mut self, state: Arc<QueuePairState>, sides: Sides) -> Result<(), AttachError> {
        self.table.attach(state, sides)
    }

    /// Makes the queue forget a queue pair that the device has destroyed; false if it has none
    /// with this context. What it had not completed is dropped.
    pub fn detach(&mut self, context: CompletionContext) -> bool {
        self.flushed.retain(|flushed| *flushed != context);
        if self.drain.is_some_and(|drain| drain.context == context.0) {
            self.drain = None;
        }
        self.table.detach(context)
    }

    /// Completes what is outstanding, and all that will be posted, as flushed; false if the queue
    /// doesn't serve this. See [`CompletionQueueHandle::flush`] for when to call it.
    pub fn flush(&mut self, context: CompletionContext, side: QueueSide) -> bool {
        match self.table.find(context.0) {
            Some(entry) if entry.serves(side) => {
                entry.queue(side).1.flushed = true;
                if !self.flushed.contains(&context) {
                    self.flushed.push(context);
                }
                true
            }
            _ => false,
        }
    }

    /// A way to this queue from other cores.
    #[must_use]
    pub fn handle(&self) -> CompletionQueueHandle {
        CompletionQueueHandle {
            inbox: Arc::clone(&self.inbox),
            slots: self.table.slots(),
        }
    }

    /// Asks for an event at the next completion, or at the next solicited or failed one.
    ///
    /// `doorbell` is the arm doorbell, `number` the queue's. Poll once more afterwards: what came
    /// before may give no event. Source: irdma `uk.c`, irdma_uk_cq_request_notification.
    pub fn arm(&mut self, doorbell: &Doorbell, number: u32, solicited_only: bool) {
        let before = CqShadowArm(self.shadow.load(CQ_SHADOW_ARM_WORD));
        let armed = before.armed(solicited_only);
        self.shadow.store_release(CQ_SHADOW_ARM_WORD, armed.0);
        doorbell.ring(number);
    }

    /// What the device said that can't be true, so far.
    #[must_use]
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// Index of the next slot.
    #[must_use]
    pub fn head_index(&self) -> u32 {
        (self.head & (self.size - 1)) as u32
    }

    /// Valid bit that the next slot will have.
    #[must_use]
    pub fn polarity(&self) -> bool {
        self.head & self.size == 0
    }

    /// Slots of the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.size as usize
    }

    #[inline(always)]
    fn publish_head(&mut self) {
        if self.head != self.published {
            self.published = self.head;
            let head = CqShadowHead::ZERO.with_head(self.head & (self.size - 1));
            if let Some(word) = self.shadow.as_slice().get(CQ_SHADOW_HEAD_WORD) {
                word.store(head.0.to_le(), Ordering::Release);
            }
        }
    }

    /// Reads the next slot.
    #[inline(always)]
    fn step(&mut self, place: &mut Completion) -> Step {
        let (slots, _) = self.ring.as_slice().as_chunks::<QUANTUM_WORDS>();
        let index = (self.head & (self.size - 1)) as usize;
        let Some(slot) = slots.get(index) else {
            return Step::Empty;
        };
        let header = CompletionHeader(u64::from_le(slot[3].load(Ordering::Acquire)));
        if header.valid() != (self.head & self.size == 0) {
            return Step::Empty;
        }
        let context = word(slot, 1);
        if header.extended() {
            return self.step_extended(place, header, context);
        }
        let raw = Raw::read(slot, header, None);
        self.head += 1;
        self.deliver(place, context, &raw)
    }

    /// Reads a completion that takes two slots; nothing until both are there.
    fn step_extended(
        &mut self,
        place: &mut Completion,
        header: CompletionHeader,
        context: u64,
    ) -> Step {
        let (slots, _) = self.ring.as_slice().as_chunks::<QUANTUM_WORDS>();
        let index = (self.head & (self.size - 1)) as usize;
        let next = self.head + 1;
        let extension_index = (next & (self.size - 1)) as usize;
        let (Some(slot), Some(extension)) = (slots.get(index), slots.get(extension_index)) else {
            return Step::Empty;
        };
        let extension_header = ExtensionHeader(u64::from_le(extension[3].load(Ordering::Acquire)));
        if extension_header.valid() != (next & self.size == 0) {
            return Step::Empty;
        }
        let immediate = extension_header
            .immediate_valid()
            .then_some(ExtensionImmediate(word(extension, 0)).immediate() as u32);
        let raw = Raw::read(slot, header, immediate);
        self.head += 2;
        self.deliver(place, context, &raw)
    }

    #[inline(always)]
    fn deliver(&mut self, place: &mut Completion, context: u64, raw: &Raw) -> Step {
        if self.table.find(context).is_none() && self.inbox.is_waiting() {
            self.read_inbox();
        }
        let Some(entry) = self.table.find(context) else {
            self.anomalies.unknown_context += 1;
            return Step::Skipped;
        };
        let side = raw.side();
        if !entry.serves(side) {
            self.anomalies.wrong_queue += 1;
            return Step::Skipped;
        }
        let delivered = match side {
            _ if raw.header.error() => None,
            QueueSide::Send => deliver_send(entry, place, raw),
            QueueSide::Receive => deliver_receive(entry, place, raw),
        };
        match delivered {
            Some(()) => Step::Delivered,
            None => self.out_of_line(context, raw),
        }
    }

    /// What is not the next success of its queue: an error, a wrong index, a request passed over.
    #[cold]
    fn out_of_line(&mut self, context: u64, raw: &Raw) -> Step {
        let side = raw.side();
        let Some(entry) = self.table.find(context) else {
            return Step::Skipped;
        };
        let flush = raw.header.error() && raw.header.major() as u16 == FLUSH_MAJOR;
        let found = find(entry, raw);
        let oldest = oldest(entry, side);
        let Some(named) = found.or(oldest.filter(|_| flush)) else {
            self.anomalies.bad_index += 1;
            return Step::Skipped;
        };
        if flush && found.is_none() {
            self.anomalies.bad_index += 1;
        }
        if !raw.header.error() && side == QueueSide::Send && !named.info.signalled() {
            self.anomalies.unasked += 1;
            let drain = Drain {
                context,
                side,
                at: named.position,
                named: None,
                to_end: false,
            };
            return Step::Drain(drain);
        }
        let number = entry.state.number;
        let mut completion = raw.completion(number, &named);
        if raw.header.error() {
            let (major, minor) = (raw.header.major() as u16, raw.header.minor() as u16);
            completion.status = Status::from_codes(major, minor);
            completion.byte_length = 0;
        }
        if flush {
            self.flush(CompletionContext(context), side);
        }
        Step::Drain(Drain {
            context,
            side,
            at: named.position,
            named: Some(completion),
            to_end: flush,
        })
    }

    /// Requests from other cores, and what is left of a drain.
    #[cold]
    fn attend(&mut self, batch: &mut [Completion]) -> usize {
        if self.inbox.is_waiting() {
            self.read_inbox();
        }
        self.carry_on(batch, 0)
    }

    #[cold]
    fn read_inbox(&mut self) {
        self.inbox.seen();
        while let Some(request) = self.inbox.take() {
            match request {
                Request::Attach(state, sides) => {
                    let refused = self.attach(state, sides).is_err();
                    self.anomalies.attach_refused += u64::from(refused);
                }
                Request::Detach(context) => {
                    self.detach(context);
                }
                Request::Flush(context, side) => {
                    self.flush(context, side);
                }
            }
        }
    }

    /// Goes on with the drain at hand; it is gone when it is done.
    #[cold]
    fn carry_on(&mut self, batch: &mut [Completion], count: usize) -> usize {
        let Some(drain) = self.drain.take() else {
            return count;
        };
        let (count, done) = self.run(&drain, batch, count);
        if !done {
            self.drain = Some(drain);
        }
        count
    }

    /// Everything that is posted to flushed queues. The ring is empty: the device's own
    /// completions of these queues have all been taken.
    #[cold]
    fn complete_flushed(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        for index in 0..self.flushed.len() {
            let Some(context) = self.flushed.get(index).copied() else {
                break;
            };
            for side in [QueueSide::Send, QueueSide::Receive] {
                let flushed = self
                    .table
                    .find(context.0)
                    .is_some_and(|entry| entry.queue(side).1.flushed);
                if flushed {
                    let drain = Drain {
                        context: context.0,
                        side,
                        at: 0,
                        named: None,
                        to_end: true,
                    };
                    (count, _) = self.run(&drain, batch, count);
                }
            }
        }
        count
    }

    /// Retires requests from the tail on, and says whether the drain is done.
    ///
    /// Before the named one: sends that asked for no completion are retired silently; signalled
    /// ones were passed over by the device and succeeded; receives were passed over. After it:
    /// flushed.
    fn run(&mut self, drain: &Drain, batch: &mut [Completion], mut count: usize) -> (usize, bool) {
        let anomalies = &mut self.anomalies;
        let Some(entry) = self.table.find(drain.context) else {
            return (count, true);
        };
        let number = entry.state.number;
        let (tracker, progress) = entry.queue(drain.side);
        let head = tracker.head();
        while progress.tail < head {
            let tail = progress.tail;
            let Some(request) = tracker.at(tail) else {
                // Padding between elements: there is no request.
                progress.tail += 1;
                continue;
            };
            let report = match tail.cmp(&drain.at) {
                std::cmp::Ordering::Less => passed_over(drain.side, number, &request),
                std::cmp::Ordering::Equal => {
                    drain.named.or(flushed_at_end(drain, number, &request))
                }
                std::cmp::Ordering::Greater => Some(flushed(drain.side, number, &request)),
            };
            if let Some(completion) = report {
                let Some(place) = batch.get_mut(count) else {
                    tracker.retire_to(progress.tail);
                    return (count, false);
                };
                *place = completion;
                count += 1;
                anomalies.passed_over += u64::from(tail < drain.at);
            }
            retire(tracker, progress, drain.side, &request);
            if tail == drain.at && !drain.to_end {
                break;
            }
        }
        tracker.retire_to(progress.tail);
        (count, true)
    }
}

/// One completion as read from the ring, without its context.
struct Raw {
    header: CompletionHeader,
    payload_bytes: u32,
    key_or_source: u32,
    immediate: Option<u32>,
}

impl Raw {
    #[inline(always)]
    fn read(
        slot: &[AtomicU64; QUANTUM_WORDS],
        header: CompletionHeader,
        immediate: Option<u32>,
    ) -> Self {
        Self {
            header,
            payload_bytes: CompletionLength(word(slot, 0)).payload_bytes() as u32,
            key_or_source: CompletionSource(word(slot, 2)).invalidated_or_source() as u32,
            immediate,
        }
    }

    #[inline(always)]
    const fn side(&self) -> QueueSide {
        if self.header.send_queue() {
            QueueSide::Send
        } else {
            QueueSide::Receive
        }
    }

    /// The completion of `request`, as a success.
    #[inline(always)]
    fn completion(&self, queue_pair: u32, request: &Outstanding) -> Completion {
        let send = self.header.send_queue();
        let immediate_flag = if self.immediate.is_some() {
            flag::IMMEDIATE
        } else {
            0
        };
        let (byte_length, operation) = if send {
            (
                request.info.length_bytes() as u32,
                request.info.opcode() as u8,
            )
        } else {
            (self.payload_bytes, self.header.operation() as u8)
        };
        Completion {
            id: request.id,
            status: Status::Success,
            byte_length,
            queue_pair,
            immediate: self.immediate.unwrap_or(0),
            key_or_source: self.key_or_source,
            operation,
            flags: Completion::flags_of(self.header) | immediate_flag,
        }
    }
}

#[inline(always)]
fn word(slot: &[AtomicU64; QUANTUM_WORDS], index: usize) -> u64 {
    u64::from_le(slot[index].load(Ordering::Relaxed))
}

/// Delivers the next signalled send; nothing if this is not it.
#[inline(always)]
fn deliver_send(entry: &mut Entry, place: &mut Completion, raw: &Raw) -> Option<()> {
    let tracker = &entry.state.send;
    let request = tracker.find(raw.header.element_index(), entry.send.tail)?;
    let sequence = request.info.sequence();
    if !request.info.signalled() || sequence != (entry.send.sequence + 1) & SEQUENCE_MASK {
        return None;
    }
    entry.send.sequence = sequence;
    entry.send.tail = request.position + request.info.quanta();
    tracker.retire_to(entry.send.tail);
    *place = raw.completion(entry.state.number, &request);
    Some(())
}

/// Delivers the next receive; nothing if this is not it.
#[inline(always)]
fn deliver_receive(entry: &mut Entry, place: &mut Completion, raw: &Raw) -> Option<()> {
    let request = find_receive(entry, raw)?;
    if request.position != entry.receive.tail {
        return None;
    }
    entry.receive.tail += 1;
    entry.state.receive.retire_to(entry.receive.tail);
    *place = raw.completion(entry.state.number, &request);
    Some(())
}

const SEQUENCE_MASK: u64 = 0xFFFF;

/// The receive that a completion names; its index counts quanta.
#[inline(always)]
fn find_receive(entry: &Entry, raw: &Raw) -> Option<Outstanding> {
    let shift = entry.state.receive_shift;
    let index = raw.header.element_index();
    if index & ((1 << shift) - 1) != 0 {
        return None;
    }
    entry.state.receive.find(index >> shift, entry.receive.tail)
}

fn find(entry: &Entry, raw: &Raw) -> Option<Outstanding> {
    match raw.side() {
        QueueSide::Send => {
            let index = raw.header.element_index();
            entry.state.send.find(index, entry.send.tail)
        }
        QueueSide::Receive => find_receive(entry, raw),
    }
}

/// The oldest outstanding request of a queue, padding passed over.
fn oldest(entry: &mut Entry, side: QueueSide) -> Option<Outstanding> {
    let (tracker, progress) = entry.queue(side);
    (progress.tail..tracker.head()).find_map(|position| tracker.at(position))
}

fn retire(tracker: &Tracker, progress: &mut Progress, side: QueueSide, request: &Outstanding) {
    match side {
        QueueSide::Send => {
            progress.sequence = request.info.sequence();
            progress.tail = request.position + request.info.quanta().max(1);
        }
        QueueSide::Receive => progress.tail = request.position + 1,
    }
    tracker.retire_to(progress.tail);
}

/// A request that the device did not name although it named a later one.
fn passed_over(side: QueueSide, queue_pair: u32, request: &Outstanding) -> Option<Completion> {
    let mut completion = flushed(side, queue_pair, request);
    match side {
        QueueSide::Send if !request.info.signalled() => return None,
        QueueSide::Send => {
            completion.status = Status::Success;
            completion.byte_length = request.info.length_bytes() as u32;
        }
        QueueSide::Receive => completion.status = Status::Unreported,
    }
    Some(completion)
}

/// A drain without a named request begins with "flushed" at once.
fn flushed_at_end(drain: &Drain, queue_pair: u32, request: &Outstanding) -> Option<Completion> {
    drain
        .to_end
        .then(|| flushed(drain.side, queue_pair, request))
}

fn flushed(side: QueueSide, queue_pair: u32, request: &Outstanding) -> Completion {
    let (flags, operation) = match side {
        QueueSide::Send => (flag::SEND, request.info.opcode() as u8),
        QueueSide::Receive => (0, 0),
    };
    Completion {
        id: request.id,
        status: Status::Flushed,
        queue_pair,
        operation,
        flags,
        ..Completion::EMPTY
    }
}

#[cfg(test)]
mod tests;
