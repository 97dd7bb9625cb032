//! The completion queue: a ring that the device writes and one core polls.
//!
//! # Nothing lost, nothing twice, nothing to the wrong request
//! A completion names its queue pair by context and its request by ring index. The context must be
//! that of an attached queue pair, slot and generation; the index must be the first quantum of an
//! outstanding request. A request is outstanding until the tail has passed its 64-bit position, so
//! a second completion of the same one finds none.
//!
//! A completion also retires what came before it on its queue. That is right for sends that asked
//! for no completion. Each record also holds where the signalled request before it ends: if the
//! tail has not got there, the device passed over a request, and the queue reports the missed ones
//! one by one (a later success means theirs), before it goes on.
//!
//! # Errors
//! After a failure the device writes one completion for each queue: the oldest request with the
//! reason. From there on software completes what is posted, now and later, as flushed.
//! Source: irdma `uk.c`, irdma_uk_cq_poll_cmpl; `verbs.c`, irdma_generate_flush_completions.

mod attend;
mod replace;
mod ring_words;
mod slots;

use self::ring_words::{extension_header_of, header_of, word};
use self::slots::{Raw, deliver, find, oldest, take_plain, take_run};
use crate::QueueError;
use crate::arming;
use crate::completion::Completion;
use crate::inbox::{CompletionQueueHandle, Inbox, NOTHING_IS_PLAIN};
use crate::table::{AttachError, Drain, Sides, Table, tracker};
use ringside_bus::{Doorbell, ReadRing, SharedWord, Words, ZeroedRing};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::rdma::events::{
    CQ_SHADOW_ARM_WORD, CQ_SHADOW_HEAD_WORD, CqShadowArm, CqShadowHead,
};
use ringside_spec::verbs::completion::{CompletionExtension, CompletionHeader};
use ringside_spec::verbs::status::FLUSH_MAJOR;
use ringside_spec::verbs::{QUANTUM_WORDS, QueueSide};
use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

/// Slots of the largest completion ring. Source: irdma `icrdma_hw.c`, `max_hw_cq_size`.
const MAXIMUM_SLOTS: usize = (CqShadowHead::HEAD_MASK + 1) as usize;

/// Words of the shadow area.
const SHADOW_WORDS: usize = 8;

/// Requests from other cores that can wait for the next poll at least; more where there are many
/// queue pairs, so that all can be attached, flushed and detached without a poll between.
const INBOX_CAPACITY: usize = 256;

/// Polls that wait for the second half of a completion while a queue is to be flushed. A device
/// writes both in one go: a few microseconds at most. Without an end, a device that stopped in
/// between would hold up the flush for ever.
const HALF_WRITTEN_POLLS: u32 = 4096;

/// The impossible reports of the device; each was skipped or corrected. All zero on a device
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
    /// Completions of two slots whose second one never came, given up while a queue was flushed.
    pub half_written: u64,
}

/// A completion queue. `Send`, not `Sync`: it belongs to the core that polls it.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: ReadRing<QUANTUM_WORDS>,
    /// Where the device reads how far this side has read.
    head: SharedWord,
    /// Requests of other cores; and what a plain success of a send has in its header. While there is
    /// something else to attend to, that is a value that no header has: a poll asks one question
    /// only.
    inbox: Arc<Inbox>,
    /// Valid bit of this pass, in its place in the header.
    valid: u64,
    shadow: Words,
    /// The first slot of a pair is there and the second isn't: wait for it.
    stalled: bool,
    /// Polls that found it so, one after the other, with a queue to flush.
    stalled_polls: u32,
    /// The largest number of them.
    stalled_polls_max: u32,
    table: Table,
    /// The condition to report before the ring is read further.
    drain: Option<Drain>,
    /// Contexts of queue pairs of which a queue is flushed.
    flushed: Vec<CompletionContext>,
    /// Taken from a ring that the queue left, and not delivered yet.
    backlog: VecDeque<Completion>,
    anomalies: Anomalies,
    one_core: PhantomData<Cell<()>>,
}

/// The result of reading one slot.
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
        if shadow.count() < SHADOW_WORDS {
            let words = shadow.count();
            return Err(QueueError::ShadowTooSmall { words });
        }
        let ring = ReadRing::from(Self::check_ring(ring)?);
        shadow.fill(0);
        let words = shadow.count();
        let head = SharedWord::new(&shadow, CQ_SHADOW_HEAD_WORD);
        Ok(Self {
            ring,
            head: head.ok_or(QueueError::ShadowTooSmall { words })?,
            inbox: Arc::new(Inbox::new(
                INBOX_CAPACITY.max(4 * queue_pairs as usize),
                plain_send(CompletionHeader::VALID_MASK),
            )),
            valid: CompletionHeader::VALID_MASK,
            shadow,
            stalled: false,
            stalled_polls: 0,
            stalled_polls_max: HALF_WRITTEN_POLLS,
            table: Table::new(queue_pairs),
            drain: None,
            flushed: Vec::with_capacity(queue_pairs as usize),
            backlog: VecDeque::new(),
            anomalies: Anomalies::default(),
            one_core: PhantomData,
        })
    }

    /// Takes what is complete, up to the length of `batch`, and returns how many there are.
    ///
    /// Looks at no more slots than the ring has, whatever the device writes meanwhile.
    /// Effects: gives the requests' places in their rings back; writes the head to the shadow area
    /// once, however many there are. Never blocks, allocates or calls the system.
    #[inline(always)]
    pub fn poll(&mut self, batch: &mut [Completion]) -> usize {
        // The first one by itself: with one request in flight that is all there is.
        let Some(place) = batch.first_mut() else {
            return 0;
        };
        if !self.take_first(place) {
            return self.poll_other(batch);
        }
        if self.is_there(header_of(self.ring.next())) {
            return self.poll_on(batch);
        }
        self.publish_head();
        1
    }

    /// Takes one completion, if there is any, and says whether there was.
    ///
    /// The same as a poll with room for one, without a look at what comes next.
    #[inline(always)]
    pub fn poll_one(&mut self, place: &mut Completion) -> bool {
        if self.take_first(place) {
            self.publish_head();
            return true;
        }
        self.poll_other(std::slice::from_mut(place)) == 1
    }

    /// Takes the next slot if it is a plain success of a send.
    ///
    /// Not while a request of another core waits: no completion of a queue pair that was detached
    /// may be delivered.
    #[inline(always)]
    fn take_first(&mut self, place: &mut Completion) -> bool {
        let expected = self.inbox.expected();
        let view = self.table.view::<true>();
        let taken = take_plain::<true>(self.ring.next(), expected, &view, place);
        if taken {
            self.advance(1);
        }
        taken
    }

    /// The same for a receive.
    #[inline(always)]
    fn take_first_receive(&mut self, place: &mut Completion) -> bool {
        let expected = self.inbox.expected() ^ CompletionHeader::SEND_QUEUE_MASK;
        let view = self.table.view::<false>();
        let taken = take_plain::<false>(self.ring.next(), expected, &view, place);
        if taken {
            self.advance(1);
        }
        taken
    }

    /// True for the header of a slot that the device has written in this pass.
    #[inline(always)]
    const fn is_there(&self, header: CompletionHeader) -> bool {
        (header.0 ^ self.valid) & CompletionHeader::VALID_MASK == 0
    }

    /// What follows where the first slot is no plain success of a send.
    #[inline(never)]
    fn poll_other(&mut self, batch: &mut [Completion]) -> usize {
        if let Some(place) = batch.first_mut()
            && self.take_first_receive(place)
        {
            if self.is_there(header_of(self.ring.next())) {
                return self.poll_all(batch, 1);
            }
            self.publish_head();
            return 1;
        }
        self.poll_all(batch, 0)
    }

    /// What follows behind a first plain success of a send: a run of them, and then whatever comes.
    #[inline(never)]
    fn poll_on(&mut self, batch: &mut [Completion]) -> usize {
        let [_, places @ ..] = batch else {
            return 0;
        };
        let expected = plain_send(self.valid);
        let taken = take_run::<true>(self.ring.run(), expected, self.table.view::<true>(), places);
        self.advance(taken);
        let count = 1 + taken;
        if count < batch.len() && self.is_there(header_of(self.ring.next())) {
            return self.poll_all(batch, count);
        }
        self.publish_head();
        count
    }

    /// Attends to what is not in the ring, if there is any; goes on polling until the ring is empty
    /// or the batch full, and publishes the head.
    #[inline(never)]
    fn poll_all(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        self.stalled = false;
        let mut may_read = true;
        let before = (self.ring.index(), count);
        if self.inbox.expected() == NOTHING_IS_PLAIN {
            (count, may_read) = self.attend(batch, count);
        }
        if may_read {
            count = self.take(batch, count);
        }
        // The device's side of the line is left alone while nothing comes.
        if before != (self.ring.index(), 0) {
            self.publish_head();
        }
        self.expect();
        count
    }

    /// Takes completions from the ring until it is empty or the batch full: runs of plain
    /// successes of one side, and [`Self::take_other`] for all else. At most a ring of slots.
    fn take(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        let mut left = self.slots();
        while left > 0
            && let Some(places @ [_, ..]) = batch.get_mut(count..)
        {
            let slots = self.ring.run();
            let slots = slots.get(..left).unwrap_or(slots);
            let header = header_of(self.ring.next());
            if !self.is_there(header) {
                if self.flushed.is_empty() {
                    return count;
                }
                return self.complete_flushed(batch, count);
            }
            let before = self.ring.index();
            let send = plain_send(self.valid);
            let taken = if header.send_queue() {
                take_run::<true>(slots, send, self.table.view::<true>(), places)
            } else {
                let receive = send & !CompletionHeader::SEND_QUEUE_MASK;
                take_run::<false>(slots, receive, self.table.view::<false>(), places)
            };
            self.advance(taken);
            count += taken;
            if taken == 0 {
                count = self.take_other(batch, count);
                if self.stalled || self.drain.is_some() {
                    return count;
                }
            }
            let passed = self.ring.index().wrapping_sub(before) & (self.slots() - 1);
            // A run as long as the ring ends where it began.
            left = left.saturating_sub(passed.max(taken));
        }
        count
    }

    /// Moves on by some slots, at most to the second one of the next pass.
    #[inline(always)]
    fn advance(&mut self, slots: usize) {
        if self.ring.pass(slots) {
            self.begin_pass();
        }
    }

    /// Goes on with the other valid bit.
    #[cold]
    #[inline(never)]
    fn begin_pass(&mut self) {
        self.valid ^= CompletionHeader::VALID_MASK;
        self.expect();
    }

    /// True if there is more to attend to than the ring.
    fn is_irregular(&self) -> bool {
        self.drain.is_some() || !self.flushed.is_empty() || !self.backlog.is_empty()
    }

    /// Sets what polls look for in the next slot.
    fn expect(&mut self) {
        self.inbox.expect(if self.is_irregular() {
            NOTHING_IS_PLAIN
        } else {
            plain_send(self.valid)
        });
    }

    /// Takes one completion that is not of the common case.
    #[cold]
    fn take_other(&mut self, batch: &mut [Completion], count: usize) -> usize {
        let Some(place) = batch.get_mut(count) else {
            return count;
        };
        match self.step(place) {
            Step::Empty => self.wait_for_second_half(),
            Step::Delivered => {
                self.stalled_polls = 0;
                return count + 1;
            }
            Step::Skipped => {}
            Step::Drain(drain) => {
                self.drain = Some(drain);
                return self.carry_on(batch, count);
            }
        }
        count
    }

    /// Half a completion is there: ends this poll, or gives it up if a flush waited long enough.
    #[cold]
    fn wait_for_second_half(&mut self) {
        self.stalled = true;
        if self.flushed.is_empty() {
            return;
        }
        self.stalled_polls += 1;
        if self.stalled_polls >= self.stalled_polls_max {
            self.stalled_polls = 0;
            self.stalled = false;
            self.anomalies.half_written += 1;
            self.advance(1);
        }
    }

    /// Makes the queue accept completions of a queue pair, before its first post.
    pub fn attach(&mut self, state: Arc<QueuePairState>, sides: Sides) -> Result<(), AttachError> {
        self.table.attach(&state, sides)
    }

    /// Makes the queue forget a queue pair that the device has destroyed; false if it has none
    /// with this context. What it had not completed is dropped.
    pub fn detach(&mut self, context: CompletionContext) -> bool {
        self.flushed.retain(|flushed| *flushed != context);
        if self.drain.is_some_and(|drain| drain.context == context.0) {
            self.drain = None;
        }
        // Its number may soon be another's: what was taken from a former ring goes with it.
        let sides = [QueueSide::Send, QueueSide::Receive];
        let found = sides
            .iter()
            .find_map(|side| self.table.find(*side, context.0));
        if let Some(number) = found.map(QueuePairState::number) {
            self.backlog.retain(|taken| taken.queue_pair() != number);
        }
        self.expect();
        self.table.detach(context)
    }

    /// Completes what is outstanding, and all that will be posted, as flushed; false if the queue
    /// doesn't serve this. See [`CompletionQueueHandle::flush`] for when to call it.
    pub fn flush(&mut self, context: CompletionContext, side: QueueSide) -> bool {
        let served = self.table.mark_flushed(side, context);
        if served && !self.flushed.contains(&context) {
            self.flushed.push(context);
        }
        self.expect();
        served
    }

    /// Has half a completion given up after so many polls with a queue to flush, in place of 4096.
    ///
    /// Range: at least 1. For tests of what follows, which need not poll that often for it.
    #[doc(hidden)]
    pub fn give_up_half_written_after(&mut self, polls: u32) {
        self.stalled_polls_max = polls;
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
    /// before may give no event. No read of that poll is carried out before the arming is stored:
    /// otherwise a completion in between could be missed by both.
    /// Source: irdma `uk.c`, irdma_uk_cq_request_notification.
    pub fn arm(&mut self, doorbell: &Doorbell, number: u32, solicited_only: bool) {
        let before = CqShadowArm(self.shadow.load(CQ_SHADOW_ARM_WORD));
        let armed = before.armed(solicited_only);
        arming::arm(
            || self.shadow.store_release(CQ_SHADOW_ARM_WORD, armed.0),
            || doorbell.ring(number),
        );
    }

    /// The impossible reports of the device so far.
    #[must_use]
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// Index of the next slot.
    #[must_use]
    pub fn head_index(&self) -> u32 {
        self.ring.index() as u32
    }

    /// Valid bit that the next slot will have.
    #[must_use]
    pub fn polarity(&self) -> bool {
        self.valid != 0
    }

    /// Slots of the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.ring.places()
    }

    #[inline(always)]
    fn publish_head(&self) {
        self.head
            .store_release(CqShadowHead(self.ring.index() as u64).0);
    }

    /// Reads the next slot, whatever is in it.
    fn step(&mut self, place: &mut Completion) -> Step {
        let slot = self.ring.next();
        let header = header_of(slot);
        let context = word(slot, 1);
        if !self.is_there(header) {
            return Step::Empty;
        }
        if header.extended() {
            return self.step_extended(place, header, context);
        }
        let raw = Raw::read(slot, header, CompletionExtension::NONE);
        self.advance(1);
        self.deliver(place, context, &raw)
    }

    /// Reads a completion that takes two slots; nothing until both are there.
    fn step_extended(
        &mut self,
        place: &mut Completion,
        header: CompletionHeader,
        context: u64,
    ) -> Step {
        let wraps = self.ring.index() + 1 == self.slots();
        let slot = self.ring.next();
        let extension = self.ring.second();
        let extension_header = extension_header_of(extension);
        if extension_header.valid() != (self.polarity() != wraps) {
            return Step::Empty;
        }
        let words = [0, 1, 2, 3].map(|index| match index {
            3 => extension_header.0,
            other => word(extension, other),
        });
        let raw = Raw::read(slot, header, CompletionExtension::decode(&words));
        self.advance(2);
        self.deliver(place, context, &raw)
    }

    fn deliver(&mut self, place: &mut Completion, context: u64, raw: &Raw) -> Step {
        let side = raw.side();
        if self.table.find(side, context).is_none() && self.inbox.is_waiting() {
            self.read_inbox();
        }
        let Some(state) = self.table.find(side, context) else {
            let other = [QueueSide::Send, QueueSide::Receive]
                .iter()
                .any(|side| self.table.find(*side, context).is_some());
            self.anomalies.wrong_queue += u64::from(other);
            self.anomalies.unknown_context += u64::from(!other);
            return Step::Skipped;
        };
        let delivered = if raw.header.error() {
            None
        } else {
            deliver(tracker(state, side), place, raw)
        };
        match delivered {
            Some(()) => Step::Delivered,
            None => self.out_of_line(context, raw),
        }
    }

    /// A completion that is not the next success of its queue: an error, a wrong index, a skipped
    /// request.
    #[cold]
    fn out_of_line(&mut self, context: u64, raw: &Raw) -> Step {
        let side = raw.side();
        let Some(state) = self.table.find(side, context) else {
            return Step::Skipped;
        };
        let flush = raw.header.error() && raw.header.major() as u16 == FLUSH_MAJOR;
        let found = find(state, raw);
        let oldest = oldest(state, side);
        let Some(named) = found.or(oldest.filter(|_| flush)) else {
            self.anomalies.bad_index += 1;
            return Step::Skipped;
        };
        if flush && found.is_none() {
            self.anomalies.bad_index += 1;
        }
        if !raw.header.error() && named.info.silent() {
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
        let completion = raw.completion(state.number(), named.id, named.info);
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

    /// Makes memory ready to be a ring, and gives the proof of it.
    ///
    /// Range: as for [`CompletionQueue::new`]. Effects: fills it with zeros.
    pub fn check_ring(ring: Words) -> Result<ZeroedRing<QUANTUM_WORDS>, QueueError> {
        ZeroedRing::new(ring, 4..=MAXIMUM_SLOTS)
            .map_err(|error| QueueError::WrongSize { words: error.words })
    }
}

/// What a plain success of a send has in the bits that a poll compares, but for its index. `valid`:
/// the valid bit of the pass.
const fn plain_send(valid: u64) -> u64 {
    CompletionHeader(valid).with_send_queue(true).0
}

#[cfg(test)]
mod tests;
