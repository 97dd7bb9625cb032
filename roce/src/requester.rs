//! The half that sends requests and completes them.
//!
//! Packets have 64-bit positions here: their PSN without the wrapping, which makes every
//! comparison plain. The work requests lie in a ring:
//!
//! ```text
//! head ........ done ............ cursor ........ tail
//!   completions    sent, not fully   not sent yet
//!   not taken      answered          (or again)
//! ```
//!
//! `unanswered` is the position of the oldest packet without answer; it lies in the request at
//! `done`. Going back always means going back to it.

mod response;
mod settings;
mod shape;
mod short;
mod stop;

#[cfg(test)]
mod tests;

use ringside_clock::Instant;

use super::config::RequesterConfig;
use super::fault::{RequesterFault, RequesterFaultReason};
use super::work::{
    Completion, MAX_MESSAGE_BYTES, MessageBytes, Operation, PostError, RequestPacket, WorkRequest,
};
use crate::packet::{Extension, Opcode, Psn, TransportHeaders};

use settings::Settings;
use shape::{Place, shape};

pub use response::{IgnoredResponse, ResponseOutcome};
pub use short::ShortWrite;

/// Packets that may lie between the oldest unanswered and the newest: half the numbers.
const MAX_SPAN: u64 = Psn::MODULUS as u64 / 2;
const MAX_CAPACITY: usize = 1 << 16;

/// The send queue's half of a reliable connection.
///
/// See the [module](super) for who calls what when.
#[derive(Debug)]
pub struct Requester {
    slots: Box<[Slot]>,
    mask: u32,
    head: u32,
    done: u32,
    cursor: u32,
    tail: u32,
    /// oldest packet without answer
    unanswered: u64,
    /// next packet to send, lies in the request at `cursor`
    next: u64,
    /// one past the newest packet ever sent
    sent_end: u64,
    /// first packet of the next request posted
    posted_end: u64,
    /// one past the answers to the newest read sent; the window counts from here
    reads_end: u64,
    /// reads from `done` to `cursor`
    reads_sent: u32,
    /// reads from `done` to `tail`
    reads_open: u32,
    phase: Phase,
    recovery: Recovery,
    /// times that it went back since the last progress
    retries: u8,
    /// RNR NAKs since the last progress
    not_ready_retries: u8,
    settings: Settings,
    statistics: RequesterStatistics,
}

/// The state in which the requester waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for nothing: no packet is unanswered, or all of them are about to be sent again.
    Open,
    /// It waits for an answer; without one by then it sends again.
    Unanswered { until: Instant },
    /// It waits for the receiver to post a receive request. No packet is unanswered meanwhile.
    NotReady { until: Instant },
    /// It has ended.
    Stopped,
}

/// Its action on the oldest unanswered packet since the last progress. A loss takes one retry, even
/// if a time-out and several answers report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// Nothing.
    Untried,
    /// It sent again because of a time-out. Answers that come late report the same loss.
    TimedOut,
    /// It sent again because an answer reported a gap.
    Told,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: WorkRequest,
    /// position of its first packet
    first: u64,
    /// packets, or packets of its answer for a read; 0 for local work
    packets: u32,
}

impl Slot {
    const EMPTY: Self = Self {
        request: WorkRequest {
            token: 0,
            operation: Operation::Local,
            length_bytes: 0,
            solicited: false,
        },
        first: 0,
        packets: 0,
    };

    #[inline]
    fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    /// The place of the packet at a position.
    #[inline]
    fn place(&self, position: u64) -> Place {
        match (position == self.first, position + 1 == self.end()) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, false) => Place::Middle,
            (false, true) => Place::Last,
        }
    }

    #[inline]
    fn is_read(&self) -> bool {
        matches!(self.request.operation, Operation::Read { .. })
    }
}

/// The counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterStatistics {
    /// packets handed out, repetitions included
    pub packets_sent: u64,
    /// packets handed out again
    pub packets_repeated: u64,
    /// times without answer
    pub timeouts: u64,
    /// NAKs for a gap
    pub sequence_errors: u64,
    /// acknowledgements that showed a read response to be missing
    pub missing_read_responses: u64,
    /// RNR NAKs
    pub receiver_not_ready: u64,
    /// packets that changed nothing
    pub responses_ignored: u64,
}

impl Requester {
    /// A requester at rest. This is the only place that allocates.
    #[must_use]
    pub fn new(config: &RequesterConfig) -> Self {
        let capacity = config.capacity.clamp(1, MAX_CAPACITY).next_power_of_two();
        // far enough from zero that no packet of the past has a negative position
        let start = u64::from(config.first_psn.value()) + u64::from(Psn::MODULUS);
        Self {
            slots: vec![Slot::EMPTY; capacity].into_boxed_slice(),
            mask: capacity as u32 - 1,
            head: 0,
            done: 0,
            cursor: 0,
            tail: 0,
            unanswered: start,
            next: start,
            sent_end: start,
            posted_end: start,
            reads_end: start,
            reads_sent: 0,
            reads_open: 0,
            phase: Phase::Open,
            recovery: Recovery::Untried,
            retries: 0,
            not_ready_retries: 0,
            settings: Settings::new(config),
            statistics: RequesterStatistics::default(),
        }
    }

    /// Work requests that can be posted now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() - self.tail.wrapping_sub(self.head) as usize
    }

    /// True if no work request waits for anything (completions may still be there to take).
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.done == self.tail
    }

    /// True if there is no work request, not even one whose completion was not taken.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Starts with the first place of the empty ring. Of many connections with one request each,
    /// the cache then holds one place, not the whole ring.
    #[inline]
    fn start_again(&mut self) {
        self.head = 0;
        self.done = 0;
        self.cursor = 0;
        self.tail = 0;
    }

    /// The place that the next request is written to: a carrier may have it brought into the cache
    /// before. Its content is of no use.
    #[inline]
    #[must_use]
    pub fn next_place(&self) -> &WorkRequest {
        let index = if self.is_empty() { 0 } else { self.tail };
        &self.slot(index).request
    }

    /// Reads posted and not complete; a read fence waits for zero.
    #[inline]
    #[must_use]
    pub fn open_reads(&self) -> u32 {
        self.reads_open
    }

    /// True once a fault or [`Requester::stop`] has ended it.
    #[inline]
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// Its counts.
    #[must_use]
    pub fn statistics(&self) -> RequesterStatistics {
        self.statistics
    }

    /// Number of the next new packet, and of the oldest without answer (for a context read back).
    #[must_use]
    pub fn sequence_numbers(&self) -> (Psn, Psn) {
        (
            Psn::from_position(self.next),
            Psn::from_position(self.unanswered),
        )
    }

    /// Takes one work request. Order of posting is order of execution.
    ///
    /// The caller enforces fences: it posts only once [`Requester::is_idle`] or
    /// [`Requester::open_reads`] permits it.
    ///
    /// # Errors
    /// [`PostError`]; the request was not taken.
    #[inline]
    pub fn post(&mut self, request: WorkRequest) -> Result<(), PostError> {
        if self.is_stopped() {
            return Err(PostError::Stopped);
        }
        if self.room() == 0 {
            return Err(PostError::Full {
                capacity: self.slots.len(),
            });
        }
        if request.length_bytes > MAX_MESSAGE_BYTES {
            return Err(PostError::TooLong {
                length_bytes: request.length_bytes,
            });
        }
        let packets = match request.operation {
            Operation::Local => 0,
            Operation::Read { .. } => {
                if self.settings.reads_limit == 0 {
                    return Err(PostError::ReadsNotAllowed);
                }
                self.reads_open += 1;
                self.settings.mtu.packets(request.length_bytes)
            }
            _ => self.settings.mtu.packets(request.length_bytes),
        };
        if self.is_empty() {
            self.start_again();
        }
        let index = (self.tail & self.mask) as usize;
        self.slots[index] = Slot {
            request,
            first: self.posted_end,
            packets,
        };
        self.posted_end += u64::from(packets);
        self.tail = self.tail.wrapping_add(1);
        if packets == 0 {
            self.skip_local_work();
        }
        Ok(())
    }

    /// The next packet to send, if there is one and the window, the limit of outstanding reads and
    /// a receiver that is not ready allow it. Call it until it gives `None` or the wire is full.
    #[inline]
    pub fn next_packet(&mut self, now: Instant) -> Option<RequestPacket> {
        self.next_run(now, 0)
    }

    /// The same, where a carrier takes several packets at once: up to `run_bytes` of a message's
    /// full packets come as one, the last packet of each message by itself.
    ///
    /// A run has the headers of its first packet, but requests an acknowledgement if any packet of
    /// it would. [`TransportHeaders::of_run`] gives the headers of each packet.
    #[inline]
    pub fn next_run(&mut self, now: Instant, run_bytes: u32) -> Option<RequestPacket> {
        let mut headers = self.settings.template;
        let (payload, packets) = self.next_run_into(now, run_bytes, &mut headers)?;
        Some(RequestPacket {
            headers,
            payload,
            packets,
        })
    }

    /// The same, with the headers written to the caller's place. Returns the payload's bytes and
    /// the number of packets.
    #[inline]
    pub fn next_run_into(
        &mut self,
        now: Instant,
        run_bytes: u32,
        headers: &mut TransportHeaders,
    ) -> Option<(MessageBytes, u32)> {
        if self.cursor == self.tail {
            return None;
        }
        match self.phase {
            Phase::Stopped => return None,
            Phase::NotReady { until } if now < until => return None,
            Phase::NotReady { .. } => self.phase = Phase::Open,
            Phase::Open | Phase::Unanswered { .. } => {}
        }
        let slot = *self.slot(self.cursor);
        let offset_bytes = (self.next - slot.first) as u32 * self.settings.mtu.bytes();
        let packet = if slot.is_read() {
            self.read_request(&slot, offset_bytes, headers)?
        } else {
            self.data_packets(&slot, offset_bytes, run_bytes, headers)?
        };
        if self.phase == Phase::Open {
            self.await_answer(now);
        }
        self.statistics.packets_sent += u64::from(packet.1);
        Some(packet)
    }

    /// One work request that is done, in order.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        if self.head == self.done {
            return None;
        }
        let WorkRequest {
            token,
            length_bytes,
            ..
        } = self.slot(self.head).request;
        self.head = self.head.wrapping_add(1);
        Some(Completion {
            token,
            length_bytes,
        })
    }

    /// The moment to call [`Requester::on_time`], or to request packets again; `None` if never.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Unanswered { until } => Some(until),
            Phase::NotReady { until } => (self.cursor != self.tail).then_some(until),
            Phase::Open | Phase::Stopped => None,
        }
    }

    /// Tells it the time: goes back if an answer is overdue. Cheap if it is not.
    ///
    /// # Errors
    /// The fault if the retries are used up.
    #[inline]
    pub fn on_time(&mut self, now: Instant) -> Result<(), RequesterFault> {
        match self.phase {
            Phase::Unanswered { until } if now >= until => {}
            _ => return Ok(()),
        }
        self.statistics.timeouts += 1;
        if self.recovery == Recovery::Untried {
            self.recovery = Recovery::TimedOut;
        }
        self.try_again()
    }

    #[inline]
    fn slot(&self, index: u32) -> &Slot {
        &self.slots[(index & self.mask) as usize]
    }

    /// Starts the wait for an answer.
    #[inline]
    fn await_answer(&mut self, now: Instant) {
        let until = Instant(now.0.saturating_add(self.settings.retransmit_after_ns));
        self.phase = Phase::Unanswered { until };
    }

    #[inline]
    fn data_packets(
        &mut self,
        slot: &Slot,
        offset_bytes: u32,
        run_bytes: u32,
        headers: &mut TransportHeaders,
    ) -> Option<(MessageBytes, u32)> {
        let waiting = self
            .next
            .saturating_sub(self.unanswered.max(self.reads_end));
        if waiting >= self.settings.window || self.next - self.unanswered >= MAX_SPAN {
            return None;
        }
        let WorkRequest {
            token,
            operation,
            length_bytes,
            solicited,
        } = slot.request;
        let remaining = length_bytes - offset_bytes;
        let place = slot.place(self.next);
        let is_last = place.is_last();
        let packets = match is_last || run_bytes == 0 {
            true => 1,
            false => self.run(slot, waiting, run_bytes),
        };
        let behind = self.next + u64::from(packets);
        let (opcode, extension) = shape(operation, length_bytes, place);
        *headers = TransportHeaders {
            opcode,
            extension,
            solicited: solicited && is_last,
            acknowledge_request: is_last
                || waiting + u64::from(packets) == self.settings.window
                || (self.next ^ behind) > self.settings.acknowledge_mask,
            psn: Psn::from_position(self.next),
            ..self.settings.template
        };
        let repeated = self.sent_end.saturating_sub(self.next);
        self.statistics.packets_repeated += repeated.min(u64::from(packets));
        self.sent(u64::from(packets), is_last);
        let length_bytes = remaining.min(self.settings.mtu.bytes() * packets);
        let payload = MessageBytes {
            token,
            offset_bytes,
            length_bytes,
        };
        Some((payload, packets))
    }

    /// Packets that the next run may have: full ones, and no more than the window lets out.
    fn run(&self, slot: &Slot, waiting: u64, run_bytes: u32) -> u32 {
        let full = slot.end() - 1 - self.next;
        let window = self.settings.window - waiting;
        let span = MAX_SPAN - (self.next - self.unanswered);
        let most = u64::from(self.settings.mtu.full_packets(run_bytes));
        most.min(full).min(window).min(span) as u32
    }

    fn read_request(
        &mut self,
        slot: &Slot,
        offset_bytes: u32,
        headers: &mut TransportHeaders,
    ) -> Option<(MessageBytes, u32)> {
        let end = slot.end();
        if self.reads_sent >= self.settings.reads_limit || end - self.unanswered > MAX_SPAN {
            return None;
        }
        let mut remote = slot
            .request
            .operation
            .remote(slot.request.length_bytes - offset_bytes);
        remote.address = remote.address.wrapping_add(u64::from(offset_bytes));
        *headers = TransportHeaders {
            opcode: Opcode::READ_REQUEST,
            extension: Extension::Remote(remote),
            psn: Psn::from_position(self.next),
            acknowledge_request: true,
            ..self.settings.template
        };
        self.statistics.packets_repeated += u64::from(self.next < self.sent_end);
        self.sent(end - self.next, true);
        self.reads_sent += 1;
        self.reads_end = end;
        let token = slot.request.token;
        let payload = MessageBytes {
            token,
            offset_bytes,
            length_bytes: 0,
        };
        Some((payload, 1))
    }

    /// Moves the cursor past the packets that were just returned.
    #[inline]
    fn sent(&mut self, packets: u64, is_last: bool) {
        self.next += packets;
        self.sent_end = self.sent_end.max(self.next);
        if is_last {
            self.cursor = self.cursor.wrapping_add(1);
            self.skip_local_work();
        }
    }

    /// Local work is done when it is reached: the cursor never stays on it, nor does `done`.
    #[inline]
    fn skip_local_work(&mut self) {
        while self.cursor != self.tail && self.slot(self.cursor).packets == 0 {
            self.cursor = self.cursor.wrapping_add(1);
        }
        while self.done != self.cursor && self.slot(self.done).packets == 0 {
            self.done = self.done.wrapping_add(1);
        }
    }

    /// Goes back to the oldest packet without answer, unless that happened too often.
    fn try_again(&mut self) -> Result<(), RequesterFault> {
        if self.retries >= self.settings.retry_limit {
            return Err(self.fault(RequesterFaultReason::RetriesExhausted));
        }
        self.retries += 1;
        self.go_back();
        Ok(())
    }

    fn go_back(&mut self) {
        self.cursor = self.done;
        self.next = self.unanswered;
        self.reads_end = self.unanswered;
        self.reads_sent = 0;
        if matches!(self.phase, Phase::Unanswered { .. }) {
            self.phase = Phase::Open;
        }
    }

    fn fault(&mut self, reason: RequesterFaultReason) -> RequesterFault {
        self.stop();
        RequesterFault {
            token: self.slot(self.done).request.token,
            reason,
        }
    }
}
