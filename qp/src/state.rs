//! What is outstanding on a queue pair: shared by the side that posts and the side that retires.
//!
//! The queue pair writes a record and the head, the completion queue reads records and writes the
//! tail; each value has one writer. On x86 every access here is a plain move. The two sides may
//! run on different cores, so a record is published by its position (release) and a slot is
//! given back by the tail (release).
//!
//! Positions count places since the queue was made, in 64 bits, and never wrap in practice. Tail
//! and head are less than a ring apart, so whatever index the device names, one position at most
//! between them has it; and every record between them is of this pass, since a post writes those of
//! all places that it takes. A request is the next to report if all that lies between it and the
//! signalled one before it has been retired: each record holds how far back that one ends, its
//! reach. Retiring a request takes its reach away, so no place outside of tail and head has one,
//! and a single comparison tells both that a request is outstanding and that it is the next.

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
        /// one more than the places since the last request to report; 0: this is not to be
        /// reported itself
        reach: [15:0],
        /// operation code
        opcode: [21:16],
        /// the device reports its success
        signalled: [22],
        /// quanta that the element takes
        quanta: [31:28],
        /// bytes of the message
        length_bytes: [63:32],
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

/// Info of a place in which no request begins: every request's has a bit.
const NO_REQUEST: u64 = 0;

/// A request that was found outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The caller's number.
    pub id: u64,
    /// Where it is: the count of quanta (send) or requests (receive) before it.
    pub position: u64,
    /// Send: what it is. Receive: only its reach.
    pub info: SendRecordInfo,
    /// The device passed over no request that it should have reported before this one, and
    /// reports this one.
    pub is_next: bool,
}

/// One queue's outstanding requests, and all else of the queue that changes with each.
///
/// One cache line, so that with thousands of queue pairs a request brings in no more than that
/// (`benches/scaling` counts). Poster and retirer are on one core as a rule; where they are on
/// two, the line goes to and fro between them, as the records do anyway.
#[derive(Debug)]
#[repr(align(64))]
pub struct Tracker {
    records: HotTable<RECORD_WORDS>,
    mask: u64,
    head: AtomicU64,
    tail: AtomicU64,
    /// Position behind the last request to report. The poster's alone.
    reported_end: AtomicU64,
    number: u32,
    element_shift: u32,
}

impl Tracker {
    /// For a ring of `slots` places, rounded up to a power of two, of queue pair `number`.
    ///
    /// `element_shift`: quanta of a place, as a power of two.
    #[must_use]
    pub fn new(slots: u32, number: u32, element_shift: u32) -> Self {
        let slots = slots.max(1).next_power_of_two() as usize;
        let records = HotTable::new(slots);
        Self {
            records,
            mask: slots as u64 - 1,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            reported_end: AtomicU64::new(0),
            number,
            element_shift,
        }
    }

    /// Number of the queue pair, below 2^24.
    #[inline(always)]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Quanta of a place, as a power of two; 0 for sends, whose places are quanta.
    #[inline(always)]
    #[must_use]
    pub fn element_shift(&self) -> u32 {
        self.element_shift
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
        self.head.load(Ordering::Acquire)
    }

    /// Position of the oldest place not given back.
    #[inline(always)]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Position behind the last request to report, which becomes `end`. Only the poster calls this.
    #[inline(always)]
    pub(crate) fn report_to(&self, end: u64) -> u64 {
        let before = self.reported_end.load(Ordering::Relaxed);
        self.reported_end.store(end, Ordering::Relaxed);
        before
    }

    /// The head, for the poster, who moves it.
    #[inline(always)]
    pub(crate) fn posted(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Notes a request and moves the head to `next`. Only the poster calls this.
    ///
    /// `slot` is the position's place in the ring. `before` is the position behind the last request to report before this one, or nothing if
    /// this one is not to be reported itself.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        slot: usize,
        position: u64,
        id: u64,
        info: SendRecordInfo,
        before: Option<u64>,
        next: u64,
    ) {
        // Longer than a ring only after a flush, which retires what nobody is told of. Cut short
        // it is too short: the request is found not to be the next, and the long way round is taken.
        let reach = before.map_or(0, |before| position + 1 - before) & SendRecordInfo::REACH_MASK;
        if let Some([id_word, info_word]) = self.records.get(slot) {
            id_word.store(id, Ordering::Relaxed);
            info_word.store(info.with_reach(reach).0, Ordering::Release);
        }
        if next > position + 1 {
            self.clear(position + 1, next);
        }
        self.head.store(next, Ordering::Release);
    }

    /// Moves the head over places that hold no request. Only the poster calls this.
    pub(crate) fn skip_to(&self, next: u64) {
        self.clear(self.head(), next);
        self.head.store(next, Ordering::Release);
    }

    /// Notes that no request begins in these places, which do not cross the end of the ring.
    #[inline(always)]
    fn clear(&self, from: u64, to: u64) {
        let slot = (from & self.mask) as usize;
        for [_, info] in self.records.iter().skip(slot).take((to - from) as usize) {
            info.store(NO_REQUEST, Ordering::Relaxed);
        }
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
        let [id, info] = self.records.get(index as usize)?;
        // One that is being posted may have been taken before its poster moved the head.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        let distance = index.wrapping_sub(tail) & self.mask;
        let info = SendRecordInfo(info.load(Ordering::Acquire));
        let outstanding = distance < head.saturating_sub(tail) && info.0 != NO_REQUEST;
        outstanding.then(|| Outstanding {
            id: id.load(Ordering::Relaxed),
            position: tail + distance,
            info,
            is_next: distance < info.reach(),
        })
    }

    /// Takes the request at ring index `index` if it is the next to report, and gives back every
    /// place up to its end; its number and what it is. For the retiring side.
    ///
    /// The same as [`Self::find`] and [`Self::retire_to`] where [`Outstanding::is_next`].
    #[inline(always)]
    #[must_use]
    pub fn take_next(&self, index: u64) -> Option<(u64, SendRecordInfo)> {
        let [id, info_word] = self.records.get(index as usize)?;
        let info = SendRecordInfo(info_word.load(Ordering::Acquire));
        let tail = self.tail.load(Ordering::Relaxed);
        let distance = index.wrapping_sub(tail) & self.mask;
        if distance >= info.reach() {
            return None;
        }
        let id = id.load(Ordering::Relaxed);
        info_word.store(NO_REQUEST, Ordering::Relaxed);
        self.tail
            .store(tail + distance + info.quanta(), Ordering::Release);
        Some((id, info))
    }

    /// Gives back every place before `tail`, which is at most the head. Only the retiring side
    /// calls this, with values that never fall.
    pub fn retire_to(&self, tail: u64) {
        for position in self.tail.load(Ordering::Relaxed)..tail {
            if let Some([_, info]) = self.records.get((position & self.mask) as usize) {
                info.store(NO_REQUEST, Ordering::Relaxed);
            }
        }
        self.tail.store(tail, Ordering::Release);
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
        let receive_elements = receive_elements.min(MAXIMUM_RING_QUANTA);
        let number = number % QUEUE_PAIR_NUMBERS;
        Self {
            context,
            send: Tracker::new(send_quanta, number, 0),
            receive: Tracker::new(receive_elements, number, receive_shift.min(3)),
        }
    }

    /// The queue pair's number, below 2^24.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.send.number
    }
}
