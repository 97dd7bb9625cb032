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

#[cfg(test)]
mod tests;

use ringside_clock::Instant;

use super::config::{PathMtu, RequesterConfig};
use super::fault::{RequesterFault, RequesterFaultReason};
use super::work::{
    Completion, MAXIMUM_MESSAGE_BYTES, MessageBytes, Operation, PostError, RequestPacket,
    WorkRequest,
};
use crate::packet::{Extension, Opcode, Psn, TransportHeaders};

pub use response::{IgnoredResponse, ResponseOutcome};

/// Packets that may lie between the oldest unanswered and the newest: half the numbers.
const LARGEST_SPAN: u64 = Psn::MODULUS as u64 / 2;
const LARGEST_CAPACITY: usize = 1 << 16;

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

/// What the requester waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For nothing: no packet is unanswered, or all of them are about to be sent again.
    Open,
    /// For an answer; without one by then it goes back.
    Unanswered { until: Instant },
    /// For the receiver to post a receive request. No packet is unanswered meanwhile.
    NotReady { until: Instant },
    /// It has ended.
    Stopped,
}

/// What it has done about the oldest unanswered packet since the last progress. A loss takes one
/// retry, although a time-out and several answers may tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// Nothing.
    Untried,
    /// It went back because time was up. The answers that come late tell of the same loss.
    TimedOut,
    /// It went back because an answer told of a gap.
    Told,
}

/// The configuration, in the units of the data path.
#[derive(Clone, Copy, Debug)]
struct Settings {
    mtu: PathMtu,
    /// packets
    window: u64,
    acknowledge_mask: u64,
    reads_limit: u32,
    retry_limit: u8,
    not_ready_retry_limit: u8,
    retransmit_after_ns: u64,
    /// what all its packets have in common
    template: TransportHeaders,
}

impl Settings {
    fn new(config: &RequesterConfig) -> Self {
        let every = config
            .acknowledge_every_packets
            .clamp(1, 1 << 16)
            .next_power_of_two();
        Self {
            mtu: config.path_mtu,
            window: u64::from(config.window_packets.max(1)),
            acknowledge_mask: u64::from(every) - 1,
            reads_limit: u32::from(config.outstanding_reads),
            retry_limit: config.retry_limit,
            not_ready_retry_limit: config.not_ready_retry_limit,
            retransmit_after_ns: u64::try_from(config.retransmit_after.as_nanos())
                .unwrap_or(u64::MAX),
            template: TransportHeaders {
                opcode: Opcode::WRITE_ONLY,
                solicited: false,
                migrated: true,
                partition_key: config.partition_key,
                forward_congestion: false,
                backward_congestion: false,
                destination_qp: config.destination_qp,
                acknowledge_request: false,
                psn: config.first_psn,
                extension: Extension::None,
            },
        }
    }
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
        let capacity = config
            .capacity
            .clamp(1, LARGEST_CAPACITY)
            .next_power_of_two();
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

    /// Ends it for good: nothing is sent or taken any more. Completions can still be drained.
    pub fn stop(&mut self) {
        self.phase = Phase::Stopped;
    }

    /// The oldest work request that is not complete: where a flush starts.
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        (self.done != self.tail).then(|| self.slot(self.done).request.token)
    }

    /// Takes one work request. Order of posting is order of execution.
    ///
    /// Fences are the caller's: it posts only once [`Requester::is_idle`] or
    /// [`Requester::open_reads`] says so.
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
        if request.length_bytes > MAXIMUM_MESSAGE_BYTES {
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
            self.read_request(&slot, offset_bytes)?
        } else {
            self.data_packet(&slot, offset_bytes)?
        };
        if self.phase == Phase::Open {
            self.await_answer(now);
        }
        self.statistics.packets_sent += 1;
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

    /// When to call [`Requester::on_time`], or to ask for packets again; `None` if never.
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

    /// From now on an answer is due.
    #[inline]
    fn await_answer(&mut self, now: Instant) {
        let until = Instant(now.0.saturating_add(self.settings.retransmit_after_ns));
        self.phase = Phase::Unanswered { until };
    }

    #[inline]
    fn data_packet(&mut self, slot: &Slot, offset_bytes: u32) -> Option<RequestPacket> {
        let waiting = self
            .next
            .saturating_sub(self.unanswered.max(self.reads_end));
        if waiting >= self.settings.window || self.next - self.unanswered >= LARGEST_SPAN {
            return None;
        }
        let WorkRequest {
            token,
            operation,
            length_bytes,
            solicited,
        } = slot.request;
        let remaining = length_bytes - offset_bytes;
        let (is_first, is_last) = (self.next == slot.first, self.next + 1 == slot.end());
        let (opcode, extension) = shape(operation, length_bytes, is_first, is_last);
        let headers = TransportHeaders {
            opcode,
            extension,
            solicited: solicited && is_last,
            acknowledge_request: is_last
                || waiting + 1 == self.settings.window
                || (self.next + 1) & self.settings.acknowledge_mask == 0,
            psn: Psn::from_position(self.next),
            ..self.settings.template
        };
        self.sent(1, is_last);
        let length_bytes = remaining.min(self.settings.mtu.bytes());
        Some(RequestPacket {
            headers,
            payload: MessageBytes {
                token,
                offset_bytes,
                length_bytes,
            },
        })
    }

    fn read_request(&mut self, slot: &Slot, offset_bytes: u32) -> Option<RequestPacket> {
        let end = slot.end();
        if self.reads_sent >= self.settings.reads_limit || end - self.unanswered > LARGEST_SPAN {
            return None;
        }
        let mut remote = slot
            .request
            .operation
            .remote(slot.request.length_bytes - offset_bytes);
        remote.address = remote.address.wrapping_add(u64::from(offset_bytes));
        let headers = TransportHeaders {
            opcode: Opcode::READ_REQUEST,
            extension: Extension::Remote(remote),
            psn: Psn::from_position(self.next),
            acknowledge_request: true,
            ..self.settings.template
        };
        self.sent(end - self.next, true);
        self.reads_sent += 1;
        self.reads_end = end;
        let token = slot.request.token;
        Some(RequestPacket {
            headers,
            payload: MessageBytes {
                token,
                offset_bytes,
                length_bytes: 0,
            },
        })
    }

    /// Moves the cursor over what was just handed out.
    #[inline]
    fn sent(&mut self, packets: u64, is_last: bool) {
        if self.next < self.sent_end {
            self.statistics.packets_repeated += 1;
        }
        self.next += packets;
        self.sent_end = self.sent_end.max(self.next);
        if is_last {
            self.cursor = self.cursor.wrapping_add(1);
            self.skip_local_work();
        }
    }

    /// Local work is done when it is reached: the cursor never rests on it, nor does `done`.
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

/// Opcode and extension of a packet at its place in a message.
#[inline]
fn shape(
    operation: Operation,
    length_bytes: u32,
    is_first: bool,
    is_last: bool,
) -> (Opcode, Extension) {
    use Opcode as O;
    match operation {
        Operation::Write { .. } => {
            let remote = Extension::Remote(operation.remote(length_bytes));
            match (is_first, is_last) {
                (true, true) => (O::WRITE_ONLY, remote),
                (true, false) => (O::WRITE_FIRST, remote),
                (false, false) => (O::WRITE_MIDDLE, Extension::None),
                (false, true) => (O::WRITE_LAST, Extension::None),
            }
        }
        Operation::WriteWithImmediate { immediate, .. } => {
            let remote = operation.remote(length_bytes);
            let announced = Extension::RemoteImmediate(remote, immediate);
            match (is_first, is_last) {
                (true, true) => (O::WRITE_ONLY_WITH_IMMEDIATE, announced),
                (true, false) => (O::WRITE_FIRST, Extension::Remote(remote)),
                (false, false) => (O::WRITE_MIDDLE, Extension::None),
                (false, true) => (
                    O::WRITE_LAST_WITH_IMMEDIATE,
                    Extension::Immediate(immediate),
                ),
            }
        }
        _ if !is_last => (
            if is_first {
                O::SEND_FIRST
            } else {
                O::SEND_MIDDLE
            },
            Extension::None,
        ),
        Operation::SendWithImmediate(value) => {
            let opcode = if is_first {
                O::SEND_ONLY_WITH_IMMEDIATE
            } else {
                O::SEND_LAST_WITH_IMMEDIATE
            };
            (opcode, Extension::Immediate(value))
        }
        Operation::SendWithInvalidate(key) => {
            let opcode = if is_first {
                O::SEND_ONLY_WITH_INVALIDATE
            } else {
                O::SEND_LAST_WITH_INVALIDATE
            };
            (opcode, Extension::Invalidate(key))
        }
        // reads and local work have no packets of this shape and never come here
        Operation::Send | Operation::Read { .. } | Operation::Local => (
            if is_first { O::SEND_ONLY } else { O::SEND_LAST },
            Extension::None,
        ),
    }
}
