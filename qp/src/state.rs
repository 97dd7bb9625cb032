//! The outstanding requests of a queue pair: shared by the side that posts and the side that
//! retires.
//!
//! The queue pair writes records. The completion queue reads records and writes the tail. Each
//! value has one writer at a time. On x86 every access here is a plain move. The two sides may run
//! on different cores: the second word of a record publishes it (release), and the tail frees its
//! place (release).
//!
//! Positions count quanta since the queue was made, in 64 bits, and never wrap in practice. Each
//! element has a record at its first quantum, which holds the element's length, so a walk from the
//! tail goes from element to element. Padding has a record too. Places inside an element and
//! retired places have none ([`SendRecordInfo::NONE`]). The walk ends at the first place without a
//! record, which is the head, so the queue pair need not publish its head.
//!
//! A completion names the ring index of its request. In the common case that is the oldest request:
//! the index equals the tail's index and the record requests a report. Any other index is found by
//! a walk. An index beyond the ring, or one at which no outstanding element begins, finds nothing.

use crate::sync::{AtomicBool, AtomicU64, Ordering, Records};
use ringside_spec::verbs::sizes::{MAX_RING_QUANTA, MIN_SEND_RING_QUANTA};

ringside_spec::words! {
    /// The context that the device returns in every completion of a queue pair: a slot of the
    /// completion queue's table, and the number of uses of this slot.
    ///
    /// Never a pointer: the device is not trusted to return the value that it was given.
    pub struct CompletionContext: u64 {
        /// slot in the tables of completion queues
        slot: [31:0],
        /// count of uses of the slot, from 1; so the context is never 0
        generation: [63:32],
    }

    /// The queue pair of a tracker, at the bits where completions have it.
    pub struct QueuePairNote: u64 {
        /// number of the queue pair
        number: [23:0],
        /// a queue pair of datagrams
        is_datagram: [63],
    }

    /// The properties of a request besides the caller's number.
    pub struct SendRecordInfo: u64 {
        /// quanta of the element besides the first: 0 needs no instruction
        further_quanta: [3:0],
        /// operation code
        opcode: [9:4],
        /// not a request: fills the rest of a block
        padding: [10],
        /// bytes of the message
        length_bytes: [62:32],
        /// the device reports no success for it
        silent: [63],
    }
}

impl SendRecordInfo {
    /// The record of a place in which no outstanding element begins. No element has this value:
    /// bits 11 to 31 of an element's record are clear. It is silent, so that one test separates
    /// requests to be reported from all other records.
    pub const NONE: Self = Self(u64::MAX);

    /// Returns a record for an element of `quanta` quanta, at least 1.
    #[inline(always)]
    #[must_use]
    pub const fn with_quanta(self, quanta: u64) -> Self {
        self.with_further_quanta(quanta - 1)
    }

    /// Quanta that the element takes.
    #[inline(always)]
    #[must_use]
    pub const fn quanta(self) -> u64 {
        self.further_quanta() + 1
    }

    /// True if the device reports its success.
    #[inline(always)]
    #[must_use]
    pub const fn signalled(self) -> bool {
        !self.silent()
    }
}

impl CompletionContext {
    /// Makes the context of the `generation`th use of a slot. Generation 0 becomes 1: a context of
    /// 0 means "none".
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        let generation = if generation == 0 { 1 } else { generation };
        Self::ZERO
            .with_slot(slot as u64)
            .with_generation(generation as u64)
    }
}

/// Words of a record: the caller's number, and info. Few, because with thousands of queue pairs
/// each record is loaded from memory; a power of two, so that finding a record is a shift.
const RECORD_WORDS: usize = 2;

/// Position of the index in the header of a completion.
pub const INDEX_SHIFT: u32 = 32;

/// An outstanding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The caller's number.
    pub id: u64,
    /// Quanta posted before it since the queue was made.
    pub position: u64,
    /// Its properties. For a receive only the count of quanta is set.
    pub info: SendRecordInfo,
}

impl Outstanding {
    /// The position after the last quantum of the request.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.position + self.info.quanta()
    }
}

/// The outstanding requests of one queue, and everything else that retiring one needs.
///
/// It takes one cache line, so that with thousands of queue pairs a completion loads no more than
/// that (`benches/scaling` measures it).
#[derive(Debug)]
#[repr(align(64))]
pub struct Tracker {
    records: Records<RECORD_WORDS>,
    context: u64,
    tail: AtomicU64,
    note: QueuePairNote,
    element_shift: u32,
}

impl Tracker {
    /// Makes a tracker for a ring of `quanta` places, rounded up to a power of two, of queue pair
    /// `number`.
    ///
    /// `element_shift`: quanta of a receive element, as a power of two; 0 for sends.
    #[must_use]
    pub fn new(context: CompletionContext, quanta: u32, number: u32, element_shift: u32) -> Self {
        Self {
            records: Records::new(quanta as usize, SendRecordInfo::NONE.0),
            context: context.0,
            tail: AtomicU64::new(0),
            note: QueuePairNote::ZERO.with_number(u64::from(number % QUEUE_PAIR_NUMBERS)),
            element_shift,
        }
    }

    /// The queue pair's completion context, as the device returns it.
    #[inline(always)]
    #[must_use]
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Number of the queue pair, below 2^24.
    #[inline(always)]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.note.number() as u32
    }

    /// The queue pair as completions note it: one word, so that a poll need not gather it.
    #[inline(always)]
    #[must_use]
    pub fn note_of_queue_pair(&self) -> QueuePairNote {
        self.note
    }

    /// Quanta of a receive element, as a power of two; 0 for sends.
    #[inline(always)]
    #[must_use]
    pub fn element_shift(&self) -> u32 {
        self.element_shift
    }

    /// Places of the ring, in quanta.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.records.count()
    }

    /// Position of the oldest place that is still in use.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Position after the last element posted. Walks over all outstanding requests: not for a data
    /// path.
    ///
    /// On another core than the posting one it is at most the head. While a core retires it may be
    /// any position from the tail on, because a record is cleared before the tail moves: see
    /// [`Tracker::posted_while`].
    #[must_use]
    pub fn head(&self) -> u64 {
        let tail = self.tail();
        let mut head = tail;
        while head - tail < self.slots() as u64
            && let Some(found) = self.element(head)
        {
            head = found.end();
        }
        head
    }

    /// Position after the last element that the device can see, for a core that neither posts nor
    /// retires. `is_posted` returns true if the quantum at a position has the valid bit of that
    /// pass of the ring. Walks over all outstanding quanta: not for a data path.
    ///
    /// Requests that are posted or retired meanwhile do not end the walk early, because it reads no
    /// records: the result is at least the head before the call. A quantum may have the bit of a
    /// later pass; then the tail has passed it, and the walk continues from the tail.
    #[must_use]
    pub fn posted_while(&self, is_posted: impl Fn(u64) -> bool) -> u64 {
        let mut head = self.tail();
        loop {
            let limit = head + self.slots() as u64;
            while head < limit && is_posted(head) {
                head += 1;
            }
            let tail = self.tail();
            if tail <= head {
                return head;
            }
            head = tail;
        }
    }

    /// The records, for the ring of the posting side.
    pub(crate) fn records(&self) -> &Records<RECORD_WORDS> {
        &self.records
    }

    /// Writes the record of an element. Only the posting side calls this, for a place after the
    /// head that the tail has passed since its last use.
    #[inline(always)]
    pub(crate) fn note(record: &[AtomicU64; RECORD_WORDS], id: u64, info: SendRecordInfo) {
        record[0].store(id, Ordering::Relaxed);
        record[1].store(info.0, Ordering::Release);
    }

    /// Returns the element that begins at `position`, which is less than one ring length after the
    /// tail. Padding counts as an element.
    fn element(&self, position: u64) -> Option<Outstanding> {
        let [id, info] = self.records.at(position as usize);
        let info = SendRecordInfo(info.load(Ordering::Acquire));
        (info != SendRecordInfo::NONE).then(|| Outstanding {
            id: id.load(Ordering::Relaxed),
            position,
            info,
        })
    }

    /// Returns the first outstanding request at or after `position`, without padding. `position` is
    /// the tail or the end of an element. For the retiring side.
    #[must_use]
    pub fn next_from(&self, mut position: u64) -> Option<Outstanding> {
        let end = self.tail() + self.slots() as u64;
        while position < end {
            let found = self.element(position)?;
            if !found.info.padding() {
                return Some(found);
            }
            position = found.end();
        }
        None
    }

    /// Returns the number of the request that begins or began at `position`. Valid for outstanding
    /// requests and for those retired last, as long as their places are not used again.
    #[must_use]
    pub(crate) fn id_at(&self, position: u64) -> u64 {
        let [id, _] = self.records.at(position as usize);
        id.load(Ordering::Relaxed)
    }

    /// Returns the request that begins at `position`, if one is outstanding there. For the retiring
    /// side.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<Outstanding> {
        let behind = position.checked_sub(self.tail())?;
        let found = self.element(position)?;
        (behind < self.slots() as u64 && !found.info.padding()).then_some(found)
    }

    /// Returns the outstanding request at ring index `index`.
    ///
    /// `index` comes from the device. Returns `None` if the ring has no such index, or if no
    /// outstanding request begins there. For the retiring side.
    #[must_use]
    pub fn find(&self, index: u64) -> Option<Outstanding> {
        let mask = self.slots() as u64 - 1;
        if index > mask {
            return None;
        }
        let tail = self.tail();
        self.at(tail + (index.wrapping_sub(tail) & mask))
    }

    /// Retires the oldest request if it is to be reported and `named` equals `rest` with the
    /// request's ring index in bits 32 to 46. Returns its number and properties. For the retiring
    /// side.
    ///
    /// One comparison checks the index and all other bits of a completion's header.
    #[inline(always)]
    #[must_use]
    pub fn take_next(&self, named: u64, rest: u64) -> Option<(u64, SendRecordInfo)> {
        let tail = self.tail.load(Ordering::Relaxed);
        let slot = tail & (self.records.count() as u64 - 1);
        if named != rest | slot << INDEX_SHIFT {
            return None;
        }
        let [id, info_word] = self.records.at(slot as usize);
        let info = SendRecordInfo(info_word.load(Ordering::Acquire));
        if info.silent() {
            return None;
        }
        let id = id.load(Ordering::Relaxed);
        info_word.store(SendRecordInfo::NONE.0, Ordering::Relaxed);
        self.tail.store(tail + info.quanta(), Ordering::Release);
        Some((id, info))
    }

    /// Retires the oldest request to be reported, together with silent requests and padding before
    /// it. Returns `None` if the first request to be reported has another index.
    #[cold]
    #[must_use]
    pub fn take_behind_silent(&self, index: u16) -> Option<(u64, SendRecordInfo)> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut position = tail;
        while position - tail < self.slots() as u64 {
            let found = self.element(position)?;
            if found.info.silent() {
                position = found.end();
                continue;
            }
            let slot = position as usize & (self.slots() - 1);
            if slot as u16 != index {
                return None;
            }
            self.retire_to(found.end());
            return Some((found.id, found.info));
        }
        None
    }

    /// Frees every place before `tail`, which is at most the head. Only the retiring side calls
    /// this, with values that never decrease.
    pub fn retire_to(&self, tail: u64) {
        for position in self.tail.load(Ordering::Relaxed)..tail {
            let [_, info] = self.records.at(position as usize);
            info.store(SendRecordInfo::NONE.0, Ordering::Relaxed);
        }
        self.tail.store(tail, Ordering::Release);
    }
}

/// Queue pair numbers have 24 bits.
pub(crate) const QUEUE_PAIR_NUMBERS: u32 = 1 << 24;

/// Completion state of a queue pair, shared by reference counting between the queue pair and the
/// completion queues of its two sides.
#[derive(Debug)]
pub struct QueuePairState {
    /// The values that the device returns in completions.
    pub context: CompletionContext,
    /// Outstanding sends.
    pub send: Tracker,
    /// Outstanding receives.
    pub receive: Tracker,
    keeps_receives: AtomicBool,
    is_fed: AtomicBool,
    flushed_in_former_rings: AtomicU64,
    /// position before which the device has reported that no send is pending
    settled_sends: AtomicU64,
}

impl QueuePairState {
    /// Makes the state for rings of `send_quanta` quanta and `receive_elements` elements of `1 <<
    /// receive_shift` quanta.
    ///
    /// Allocates all that posting and polling need later.
    #[must_use]
    pub fn new(
        context: CompletionContext,
        number: u32,
        send_quanta: u32,
        receive_elements: u32,
        receive_shift: u32,
    ) -> Self {
        let send_quanta = send_quanta.clamp(MIN_SEND_RING_QUANTA, MAX_RING_QUANTA);
        let receive_shift = receive_shift.min(3);
        let receive_elements = receive_elements.clamp(1, MAX_RING_QUANTA >> receive_shift);
        let receive_quanta = receive_elements << receive_shift;
        let number = number % QUEUE_PAIR_NUMBERS;
        Self {
            context,
            send: Tracker::new(context, send_quanta, number, 0),
            receive: Tracker::new(context, receive_quanta, number, receive_shift),
            keeps_receives: AtomicBool::new(false),
            is_fed: AtomicBool::new(false),
            flushed_in_former_rings: AtomicU64::new(0),
            settled_sends: AtomicU64::new(0),
        }
    }

    /// Makes it the state of a datagram queue pair: its receives are datagrams, and an error
    /// completion of a send that is only a notice
    /// ([`is_notice`](ringside_spec::verbs::status::is_notice)) is a success.
    #[must_use]
    pub fn of_datagrams(mut self, is_datagram: bool) -> Self {
        for tracker in [&mut self.send, &mut self.receive] {
            tracker.note = tracker.note.with_is_datagram(is_datagram);
        }
        self
    }

    /// True for the state of a datagram queue pair.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.send.note.is_datagram()
    }

    /// Notes that the device has completed all sends before position `end`: its flush found none
    /// of them pending. Those that asked for no completion get none, though the queue has failed.
    pub fn settle_sends(&self, end: u64) {
        self.settled_sends.store(end, Ordering::Release);
    }

    /// The position that [`Self::settle_sends`] noted.
    #[must_use]
    pub fn settled_sends(&self) -> u64 {
        self.settled_sends.load(Ordering::Acquire)
    }

    /// The queue pair's number, below 2^24.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.send.number()
    }

    /// True if a completion queue delivers receives that messages have used, and that it has taken
    /// out of a former ring, also after the queue pair was destroyed: a shared receive queue has
    /// posted them, and cannot give them to others. Those that were flushed it can.
    #[must_use]
    pub fn keeps_receives(&self) -> bool {
        self.keeps_receives.load(Ordering::Relaxed)
    }

    /// Receives that were flushed and that the completion queue has taken out of former rings, with
    /// those that it has delivered since. They are retired, so no request is outstanding for them.
    #[must_use]
    pub(crate) fn flushed_in_former_rings(&self) -> u64 {
        self.flushed_in_former_rings.load(Ordering::Relaxed)
    }

    /// Counts one more receive for which the completion queue has taken a flush out of its former
    /// ring. Only the core that polls the completion queue calls this.
    pub fn count_flushed_in_former_ring(&self) {
        let count = self.flushed_in_former_rings();
        self.flushed_in_former_rings
            .store(count + 1, Ordering::Relaxed);
    }

    /// True if a shared receive queue feeds it: receives of it that are flushed serve others, and
    /// are not reported.
    #[must_use]
    pub fn is_fed(&self) -> bool {
        self.is_fed.load(Ordering::Relaxed)
    }

    /// A shared receive queue feeds it from now on.
    pub(crate) fn feed(&self) {
        self.is_fed.store(true, Ordering::Relaxed);
    }

    /// Sets what [`Self::keeps_receives`] returns.
    pub(crate) fn keep_receives(&self, keep: bool) {
        self.keeps_receives.store(keep, Ordering::Relaxed);
    }
}
