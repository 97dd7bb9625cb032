//! The completion queue: a ring that the device writes and one core polls.
//!
//! # Each completion is reported once, to the right request
//! A completion names its queue pair by context and its request by ring index. The context must be
//! that of an attached queue pair, slot and generation. The index must be the first quantum of an
//! outstanding request. A request is outstanding until the tail has passed its 64-bit position, so
//! a second completion of the same request is rejected.
//!
//! A completion also retires the earlier requests of its queue. That is right for sends that
//! requested no completion. For requests that did, it means that the device passed over them: the
//! queue then reports the missed ones one by one before it goes on. A later success implies that
//! missed sends succeeded.
//!
//! # Errors
//! After a failure the device writes one completion for each queue, with the reason. It is that of
//! the oldest outstanding request, whichever index it has: with an index that the device chose
//! otherwise, sends that it never carried out would count as successes. Only requests that are due
//! no completion are skipped: such sends may be done, and the index then says which one failed.
//! From then on software completes all posted requests, present and future, as flushed. A receive
//! that failed otherwise is also the oldest one; the index counts for successes and for other
//! errors of sends.
//! Source: irdma `uk.c`, irdma_uk_cq_poll_cmpl; `verbs.c`, irdma_generate_flush_completions.

mod announced;
mod attend;
mod members;
mod replace;
mod ring_words;
mod slots;

pub use self::announced::{Announced, Elsewhere};
use self::ring_words::{extension_header_of, header_of, word};
use self::slots::{Raw, deliver, failed_first, find, oldest, plain_send, take_plain, take_run};
use crate::QueueError;
use crate::arming;
use crate::completion::Completion;
use crate::inbox::{CompletionQueueHandle, Inbox, NOTHING_IS_PLAIN};
use crate::table::{Drain, Table, tracker};
use ringside_bus::{Doorbell, ReadRing, SharedWord, Words, ZeroedRing};
use ringside_qp::CompletionContext;
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
const MAX_SLOTS: usize = 1 << 20;

/// Words of the shadow area.
const SHADOW_WORDS: usize = 8;

/// Polls that wait for the second half of a completion while a queue is to be flushed. A device
/// writes both halves within a few microseconds. Without this limit, a device that stops between
/// them would block the flush forever.
const HALF_WRITTEN_POLLS: u32 = 4096;

/// Counts of impossible reports by the device; each was skipped or corrected. All are zero for a
/// device that follows the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// Completions whose context is not that of an attached queue pair (0 included). For a while
    /// after a queue pair was detached these are normal.
    pub unknown_context: u64,
    /// Completions of a queue that does not report to this completion queue.
    pub wrong_queue: u64,
    /// Completions whose index is not that of an outstanding request, including repeated ones, and
    /// failures of a queue without an outstanding request.
    pub bad_index: u64,
    /// Requests that the device passed over, and that software reported.
    pub passed_over: u64,
    /// Successes of sends that had requested no completion; not reported.
    pub unasked: u64,
    /// Queue pairs from other cores for which the table had no free slot.
    pub attach_refused: u64,
    /// Two-slot completions whose second slot never arrived, given up while a queue was flushed.
    pub half_written: u64,
}

/// A completion queue. `Send`, not `Sync`: it belongs to the core that polls it.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: ReadRing<QUANTUM_WORDS>,
    /// The shadow word in which the device reads the head of this ring.
    head: SharedWord,
    /// Requests of other cores, and the header of a plain success of a send. While other work is
    /// pending, that is a value that no header has, so a poll needs one comparison only.
    inbox: Arc<Inbox>,
    /// Valid bit of this pass, at its position in the header.
    valid: u64,
    shadow: Words,
    /// The first slot of a pair is written and the second is not: wait for it.
    stalled: bool,
    /// Consecutive polls that found the slot unchanged while a queue is flushed.
    stalled_polls: u32,
    /// The limit of `stalled_polls`.
    stalled_polls_max: u32,
    table: Table,
    /// Requests to report before the ring is read further.
    drain: Option<Drain>,
    /// Contexts of queue pairs with a flushed queue.
    flushed: Vec<CompletionContext>,
    /// passes of the ring that are complete
    passes: usize,
    /// completions delivered that were not in the ring, less those in the ring that stand for them
    reported: usize,
    /// Completions taken from a ring that the queue left, not delivered yet.
    backlog: VecDeque<Completion>,
    /// the same while the ring is replaced
    moving: VecDeque<Completion>,
    /// The ring is being replaced: an empty ring does not mean that the device has completed
    /// nothing more.
    is_replacing: bool,
    anomalies: Anomalies,
    one_core: PhantomData<Cell<()>>,
}

/// The result of reading one slot.
enum Step {
    /// A completion was written to the batch.
    Delivered,
    /// The slot was consumed and gave no completion.
    Skipped,
    /// There is nothing to read.
    Empty,
    /// Requests must be retired one by one first.
    Drain(Drain),
}

impl CompletionQueue {
    /// Makes a queue in `ring` with its shadow area, for up to `queue_pairs` context slots.
    ///
    /// Range: 4..=2^20 slots of 32 bytes, a power of two; 8 words of shadow.
    /// Effects: fills ring and shadow area with zeros; allocates all that polling needs later.
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
                queue_pairs,
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
            passes: 0,
            reported: 0,
            backlog: VecDeque::new(),
            moving: VecDeque::new(),
            is_replacing: false,
            anomalies: Anomalies::default(),
            one_core: PhantomData,
        })
    }

    /// Takes completions, at most the length of `batch`, and returns their number.
    ///
    /// Reads no more slots than the ring has, even if the device keeps writing.
    /// Effects: frees the requests' places in their rings; writes the head to the shadow area once
    /// per call. Never blocks, allocates or makes a system call.
    #[inline(always)]
    pub fn poll(&mut self, batch: &mut [Completion]) -> usize {
        // The first one alone: with one request in flight there is no other.
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

    /// Takes one completion, if there is one; returns true if it did.
    ///
    /// Equals a poll with room for one completion, without checking the slot after it.
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
    /// Takes nothing while a request of another core waits: no completion of a detached queue pair
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

    /// Takes the next slot if it is a plain success of a receive.
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

    /// Continues a poll whose first slot is not a plain success of a send.
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
        if self.is_quiet() {
            return 0;
        }
        self.poll_all(batch, 0)
    }

    /// True if the next slot is not written, and nothing is pending besides the ring.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        let is_regular = self.inbox.expected() != NOTHING_IS_PLAIN;
        is_regular && !self.is_there(header_of(self.ring.next()))
    }

    /// Continues a poll after a first plain success of a send: takes a run of them, then the rest.
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

    /// Handles pending work outside the ring, if there is any; then polls until the ring is empty
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
        // The cache line that the device reads is not written while no completion arrives.
        if before != (self.ring.index(), 0) {
            self.publish_head();
        }
        self.expect();
        count
    }

    /// Takes completions from the ring until it is empty or the batch full: runs of plain successes
    /// of one side, and [`Self::take_other`] for all others. Takes at most one ring of slots.
    fn take(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        let mut left = self.slots();
        while left > 0
            && let Some(places @ [_, ..]) = batch.get_mut(count..)
        {
            let slots = self.ring.run();
            let slots = slots.get(..left).unwrap_or(slots);
            let header = header_of(self.ring.next());
            if !self.is_there(header) {
                if self.flushed.is_empty() || self.is_replacing {
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
            // A run as long as the ring ends at the slot where it began.
            left = left.saturating_sub(passed.max(taken));
        }
        count
    }

    /// Advances by `slots`, at most to the second slot of the next pass.
    #[inline(always)]
    fn advance(&mut self, slots: usize) {
        if self.ring.pass(slots) {
            self.begin_pass();
        }
    }

    /// Begins the next pass, with the other valid bit.
    #[cold]
    #[inline(never)]
    fn begin_pass(&mut self) {
        self.valid ^= CompletionHeader::VALID_MASK;
        self.passes = self.passes.wrapping_add(1);
        self.expect();
    }

    /// True if there is pending work besides the ring.
    fn is_irregular(&self) -> bool {
        self.drain.is_some() || !self.flushed.is_empty() || !self.backlog.is_empty()
    }

    /// Sets the header that polls look for in the next slot.
    fn expect(&mut self) {
        self.inbox.expect(if self.is_irregular() {
            NOTHING_IS_PLAIN
        } else {
            plain_send(self.valid)
        });
    }

    /// Takes one completion that is not a plain success.
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
                // Its first report is that of the slot.
                self.reported = self.reported.wrapping_sub(1);
                self.drain = Some(drain);
                return self.carry_on(batch, count);
            }
        }
        count
    }

    /// Handles a completion of which only the first slot is written: ends this poll, or gives the
    /// completion up if a flush has waited for the full limit.
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

    /// Sets the number of polls after which half a completion is given up during a flush; the
    /// default is 4096.
    ///
    /// Range: at least 1. For tests of the behaviour afterwards, which need not poll that often.
    #[doc(hidden)]
    pub fn give_up_half_written_after(&mut self, polls: u32) {
        self.stalled_polls_max = polls;
    }

    /// Returns a handle by which other cores reach this queue.
    #[must_use]
    pub fn handle(&self) -> CompletionQueueHandle {
        CompletionQueueHandle {
            inbox: Arc::clone(&self.inbox),
            slots: self.table.slots(),
        }
    }

    /// Requests an event at the next completion, or at the next solicited or failed one.
    ///
    /// `doorbell` is the arm doorbell, `number` the queue's number. Poll once more afterwards: a
    /// completion that arrived before the arming may give no event. No read of that poll is carried
    /// out before the arming is stored. Otherwise a completion in between could be missed by both
    /// poll and event.
    /// Source: irdma `uk.c`, irdma_uk_cq_request_notification.
    pub fn arm(&mut self, doorbell: &Doorbell, number: u32, solicited_only: bool) {
        let before = CqShadowArm(self.shadow.load(CQ_SHADOW_ARM_WORD));
        let armed = before.armed(solicited_only);
        arming::arm(
            || self.shadow.store_release(CQ_SHADOW_ARM_WORD, armed.0),
            || doorbell.ring(number),
        );
    }

    /// Counts of the device's impossible reports so far.
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

    /// Reads the next slot, with any content.
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

    /// Reads a completion of two slots. Returns [`Step::Empty`] until both are written.
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
            if let Some(success) = raw.without_notice(state) {
                return self.deliver(place, context, &success);
            }
            None
        } else {
            deliver(tracker(state, side), place, raw)
        };
        match delivered {
            Some(()) => Step::Delivered,
            None => self.out_of_line(context, raw),
        }
    }

    /// Handles a completion that is not the next success of its queue: an error, a wrong index, or
    /// one after a skipped request.
    #[cold]
    fn out_of_line(&mut self, context: u64, raw: &Raw) -> Step {
        let side = raw.side();
        let Some(state) = self.table.find(side, context) else {
            return Step::Skipped;
        };
        let error = raw.header.error();
        let flush = error && raw.header.major() as u16 == FLUSH_MAJOR;
        let named = if flush {
            failed_first(state, raw)
        } else if error && side == QueueSide::Receive {
            oldest(state, side)
        } else {
            find(state, raw)
        };
        let Some(named) = named else {
            self.anomalies.bad_index += 1;
            return Step::Skipped;
        };
        if !error && named.info.silent() {
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
        let completion = raw.completion(tracker(state, side), named.id, named.info);
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

    /// Prepares memory as a ring and returns the proof of it.
    ///
    /// Range: as for [`CompletionQueue::new`]. Effects: fills it with zeros.
    pub fn check_ring(ring: Words) -> Result<ZeroedRing<QUANTUM_WORDS>, QueueError> {
        ZeroedRing::new(ring, 4..=MAX_SLOTS)
            .map_err(|error| QueueError::WrongSize { words: error.words })
    }
}

#[cfg(test)]
mod tests;
