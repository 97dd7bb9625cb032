//! The outstanding requests of a queue pair: shared by the side that posts and the side that
//! retires.
//!
//! The queue pair writes records, the completion queue reads records and writes the tail; each value
//! has one writer at a time. On x86 every access here is a plain move. The two sides may run on
//! different cores: a record is published by its second word (release), and its place is given back
//! by the tail (release).
//!
//! Positions count quanta since the queue was made, in 64 bits, and never wrap in practice. A record
//! lies beside the first quantum of each element and tells its length, so whoever walks from the
//! tail goes from element to element. Padding has a record too. Places inside an element have none
//! ([`SendRecordInfo::NONE`]), nor has one that was retired: the walk ends at the first place
//! without a record, which is the head. The poster therefore publishes no head.
//!
//! A completion names the index of its request. In the common case that is the oldest one: its index
//! is the tail's, all bits of it compared, and its record asks for a report. Anything else is found by
//! walking. An index beyond the ring, or of no element that is outstanding, finds nothing.

use crate::sync::{AtomicU64, Ordering, Records};
use ringside_spec::verbs::sizes::{MAXIMUM_RING_QUANTA, MINIMUM_SEND_RING_QUANTA};

ringside_spec::words! {
    /// The values that the device returns in every completion of a queue pair: the slot of a
    /// completion
    /// queue's table, and which of the queue pairs that had this slot.
    ///
    /// Never a pointer: the device is not trusted to return what it was given.
    pub struct CompletionContext: u64 {
        /// slot in the tables of completion queues
        slot: [31:0],
        /// which use of the slot, from 1; so the context is never 0
        generation: [63:32],
    }

    /// What a record says besides the caller's number.
    pub struct SendRecordInfo: u64 {
        /// quanta that the element takes besides the first: 0 needs no instruction
        further_quanta: [3:0],
        /// operation code
        opcode: [9:4],
        /// no request: what fills a block up
        padding: [10],
        /// bytes of the message
        length_bytes: [62:32],
        /// the device reports no success
        silent: [63],
    }
}

impl SendRecordInfo {
    /// Of a place in which no outstanding element begins. No element has it: bits 11 to 31 are clear.
    /// It is silent, so that one test tells a request to report from all else.
    pub const NONE: Self = Self(u64::MAX);

    /// With the quanta that the element takes, at least 1.
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
    /// The context of a slot's use. Generation 0 becomes 1: a context of 0 means "none".
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        let generation = if generation == 0 { 1 } else { generation };
        Self::ZERO
            .with_slot(slot as u64)
            .with_generation(generation as u64)
    }
}

/// Words of a record: the caller's number, and info. Few, because with thousands of queue pairs
/// each is brought in from memory; a power of two, so that finding one is a shift.
const RECORD_WORDS: usize = 2;

/// Position of the index in the header of a completion.
pub const INDEX_SHIFT: u32 = 32;

/// A request that was found outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The caller's number.
    pub id: u64,
    /// Quanta before it, since the queue was made.
    pub position: u64,
    /// What it is. Receive: only its quanta.
    pub info: SendRecordInfo,
}

impl Outstanding {
    /// The position behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.position + self.info.quanta()
    }
}

/// One queue's outstanding requests, and all else of the queue that retiring one needs.
///
/// One cache line, so that with thousands of queue pairs a completion brings in no more than that
/// (`benches/scaling` counts).
#[derive(Debug)]
#[repr(align(64))]
pub struct Tracker {
    records: Records<RECORD_WORDS>,
    context: u64,
    tail: AtomicU64,
    number: u32,
    element_shift: u32,
}

impl Tracker {
    /// For a ring of `quanta` places, rounded up to a power of two, of queue pair `number`.
    ///
    /// `element_shift`: quanta of a receive element, as a power of two; 0 for sends.
    #[must_use]
    pub fn new(context: CompletionContext, quanta: u32, number: u32, element_shift: u32) -> Self {
        Self {
            records: Records::new(quanta as usize, SendRecordInfo::NONE.0),
            context: context.0,
            tail: AtomicU64::new(0),
            number,
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
        self.number
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

    /// Position of the oldest place not given back.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Position behind the last element posted. Walks over what is outstanding: not for a data path.
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

    /// The records, for the poster's ring.
    pub(crate) fn records(&self) -> &Records<RECORD_WORDS> {
        &self.records
    }

    /// Notes an element in its record. Only the poster calls this, for a place behind the head that
    /// the tail has passed since it was last used.
    #[inline(always)]
    pub(crate) fn note(record: &[AtomicU64; RECORD_WORDS], id: u64, info: SendRecordInfo) {
        record[0].store(id, Ordering::Relaxed);
        record[1].store(info.0, Ordering::Release);
    }

    /// The element that begins at a position less than a ring behind the tail, padding included.
    fn element(&self, position: u64) -> Option<Outstanding> {
        let [id, info] = self.records.at(position as usize);
        let info = SendRecordInfo(info.load(Ordering::Acquire));
        (info != SendRecordInfo::NONE).then(|| Outstanding {
            id: id.load(Ordering::Relaxed),
            position,
            info,
        })
    }

    /// The first outstanding request at `position` or behind it, padding passed over. `position` is
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

    /// The request that begins at `position`, if one is outstanding there. For the retiring side.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<Outstanding> {
        let behind = position.checked_sub(self.tail())?;
        let found = self.element(position)?;
        (behind < self.slots() as u64 && !found.info.padding()).then_some(found)
    }

    /// The outstanding request at ring index `index`.
    ///
    /// `index` comes from the device: nothing if the ring has no such index, or no request that
    /// begins there is outstanding. For the retiring side.
    #[must_use]
    pub fn find(&self, index: u64) -> Option<Outstanding> {
        let mask = self.slots() as u64 - 1;
        if index > mask {
            return None;
        }
        let tail = self.tail();
        self.at(tail + (index.wrapping_sub(tail) & mask))
    }

    /// Takes the oldest request if it is to be reported and `named` is `rest` with its ring index in
    /// bits 32 to 46, and gives its places back; its number and what it is. For the retiring side.
    ///
    /// One comparison of a completion's header, for its index and for all else.
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

    /// The same for the oldest request to be reported, with silent ones and padding before it: they
    /// are retired with it. Nothing if the first to be reported has another index.
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

    /// Gives back every place before `tail`, which is at most the head. Only the retiring side
    /// calls this, with values that never fall.
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
}

impl QueuePairState {
    /// State for rings of `send_quanta` quanta and `receive_elements` elements of
    /// `1 << receive_shift` quanta.
    ///
    /// Allocates all that posting and polling will ever need.
    #[must_use]
    pub fn new(
        context: CompletionContext,
        number: u32,
        send_quanta: u32,
        receive_elements: u32,
        receive_shift: u32,
    ) -> Self {
        let send_quanta = send_quanta.clamp(MINIMUM_SEND_RING_QUANTA, MAXIMUM_RING_QUANTA);
        let receive_shift = receive_shift.min(3);
        let receive_elements = receive_elements.clamp(1, MAXIMUM_RING_QUANTA >> receive_shift);
        let receive_quanta = receive_elements << receive_shift;
        let number = number % QUEUE_PAIR_NUMBERS;
        Self {
            context,
            send: Tracker::new(context, send_quanta, number, 0),
            receive: Tracker::new(context, receive_quanta, number, receive_shift),
        }
    }

    /// The queue pair's number, below 2^24.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.send.number
    }
}
