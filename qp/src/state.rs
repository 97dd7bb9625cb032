//! What is outstanding on a queue pair: shared by the side that posts and the side that retires.
//!
//! The queue pair writes a record and the head, the completion queue reads records and writes the
//! tail; each value has one writer. On x86 every access here is a plain move. The two sides may
//! run on different cores, so a record is published by its position (release) and a slot is
//! given back by the tail (release).
//!
//! Positions count places since the queue was made, in 64 bits, and never wrap in practice. A
//! record stays when its request is retired, and then its position lies before the tail; so
//! whatever index the device names, one comparison tells if a request there is outstanding. A
//! second one tells if it is the next to report: each record holds the position behind the
//! signalled request before it, and all of that must have been retired.

use crate::sync::{AtomicU64, HotTable, Ordering};
use ringside_spec::verbs::sizes::{MAXIMUM_RING_QUANTA, MINIMUM_SEND_RING_QUANTA};

ringside_spec::words! {
    /// What the device returns in every completion of a queue pair: which slot of a completion
    /// queue's table, and which of the queue pairs that had this slot.
    ///
    /// Never a pointer: the device is not trusted to return what it was given.
    pub struct CompletionContext: u64 {
        /// slot in the tables of completion queues
        slot: [31:0],
        /// which use of the slot, from 1; so the context is never 0
        generation: [63:32],
    }

    /// What a send record says besides the caller's number.
    pub struct SendRecordInfo: u64 {
        /// bytes of the message
        length_bytes: [31:0],
        /// operation code
        opcode: [37:32],
        /// quanta that the element takes
        quanta: [41:38],
        /// the device reports its success
        signalled: [42],
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

/// What a record of a request that the device does not report has instead of the end of the one
/// before: behind every tail, so that it is never the next to report.
const NEVER_NEXT: u64 = u64::MAX;

/// Words of a record: the caller's number, position, info, end of the last request to report
/// before it. A power of two, so that finding one is a shift.
const RECORD_WORDS: usize = 4;

/// Before every position: the record of a place that never held a request.
const NO_POSITION: u64 = u64::MAX;

/// A request that was found outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The caller's number.
    pub id: u64,
    /// Where it is: the count of quanta (send) or requests (receive) before it.
    pub position: u64,
    /// Send: what it is. Receive: 0.
    pub info: SendRecordInfo,
    /// The device passed over no request that it should have reported before this one, and
    /// reports this one.
    pub is_next: bool,
}

/// One queue's outstanding requests.
#[derive(Debug)]
#[repr(align(64))]
pub struct Tracker {
    records: HotTable,
    mask: u64,
    head: Line,
    tail: Line,
}

/// A counter on a cache line of its own: its writer and its reader may be on different cores.
#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Tracker {
    /// For a ring of `slots` places, rounded up to a power of two.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let slots = slots.max(1).next_power_of_two() as usize;
        let records = HotTable::new(slots * RECORD_WORDS);
        for record in records.chunks_exact(RECORD_WORDS) {
            record[1].store(NO_POSITION, Ordering::Relaxed);
        }
        Self {
            records,
            mask: slots as u64 - 1,
            head: Line(AtomicU64::new(0)),
            tail: Line(AtomicU64::new(0)),
        }
    }

    /// Places of the ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.mask as usize + 1
    }

    /// Position after the last request posted.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Position of the oldest place not given back.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Notes a request and moves the head to `next`. Only the poster calls this.
    ///
    /// `before` is the position behind the last request to report before this one, or nothing if
    /// this one is not to be reported itself.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        position: u64,
        id: u64,
        info: SendRecordInfo,
        before: Option<u64>,
        next: u64,
    ) {
        let slot = (position & self.mask) as usize;
        let (records, _) = self.records.as_chunks::<RECORD_WORDS>();
        if let Some([id_word, position_word, info_word, before_word]) = records.get(slot) {
            id_word.store(id, Ordering::Relaxed);
            info_word.store(info.0, Ordering::Relaxed);
            before_word.store(before.unwrap_or(NEVER_NEXT), Ordering::Relaxed);
            position_word.store(position, Ordering::Release);
        }
        self.head.0.store(next, Ordering::Release);
    }

    /// Moves the head over places that hold no request. Only the poster calls this.
    #[inline(always)]
    pub(crate) fn skip_to(&self, next: u64) {
        self.head.0.store(next, Ordering::Release);
    }

    /// The request at `position`, if one is outstanding there. For the retiring side.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<Outstanding> {
        self.find(position & self.mask)
            .filter(|request| request.position == position)
    }

    /// The outstanding request at ring index `index`.
    ///
    /// `index` comes from the device: nothing if the ring has no such index, or no request that
    /// begins there is outstanding. For the retiring side.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, index: u64) -> Option<Outstanding> {
        let (records, _) = self.records.as_chunks::<RECORD_WORDS>();
        let [id, position, info, before] = records.get(index as usize)?;
        let position = position.load(Ordering::Acquire);
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Signed, so that "no position" (-1) lies before every tail.
        (position as i64 >= tail as i64).then(|| Outstanding {
            id: id.load(Ordering::Relaxed),
            position,
            info: SendRecordInfo(info.load(Ordering::Relaxed)),
            is_next: before.load(Ordering::Relaxed) <= tail,
        })
    }

    /// Gives back every place before `tail`. Only the retiring side calls this, with values that
    /// never fall.
    #[inline(always)]
    pub fn retire_to(&self, tail: u64) {
        self.tail.0.store(tail, Ordering::Release);
    }
}

/// Queue pair numbers have 24 bits.
const QUEUE_PAIR_NUMBERS: u32 = 1 << 24;

/// Completion state of a queue pair, shared by reference counting between the queue pair and the
/// completion queues of its two sides.
#[derive(Debug)]
pub struct QueuePairState {
    /// What the device returns in completions.
    pub context: CompletionContext,
    /// The queue pair's number, below 2^24.
    pub number: u32,
    /// Quanta of a receive element, as a power of two.
    pub receive_shift: u32,
    /// Outstanding sends; positions count quanta.
    pub send: Tracker,
    /// Outstanding receives; positions count requests.
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
        Self {
            context,
            number: number % QUEUE_PAIR_NUMBERS,
            receive_shift: receive_shift.min(3),
            send: Tracker::new(send_quanta),
            receive: Tracker::new(receive_elements.min(MAXIMUM_RING_QUANTA)),
        }
    }
}
