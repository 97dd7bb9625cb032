//! The handling of returned packets by a requester.

use ringside_clock::Instant;

use super::{MAX_SPAN, Phase, Recovery, Requester};
use crate::config::{RETRY_FOREVER, receiver_not_ready_wait};
use crate::fault::{RequesterFault, RequesterFaultReason};
use crate::packet::{Extension, NegativeCode, Opcode, Psn, Syndrome, TransportHeaders};
use crate::partition_keys_match;
use crate::work::MessageBytes;

/// The meaning of a response packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Requests were answered; completions may be there to take.
    Acknowledged,
    /// Something was lost, or the receiver is not ready: packets will come again.
    Repeating,
    /// Copy the packet's payload to these bytes of the read's local memory, then take completions.
    Place(MessageBytes),
    /// The response had no effect.
    Ignored(IgnoredResponse),
    /// The requester has stopped. Completions of the requests before are still there to take.
    Fault(RequesterFault),
}

/// The reason why a response had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IgnoredResponse {
    /// the requester has stopped
    Stopped,
    /// of another partition
    PartitionKey,
    /// answered before, or never requested
    OutOfWindow,
    /// an answer of another service than the reliable connection, or to a request of another kind
    Unexpected,
    /// after a missing request or read response, which was sent or requested again already
    AfterGap,
    /// an RNR NAK although nothing was sent since the one before: a copy of it
    NotReadyAgain,
}

/// The obstacle met on the way forward.
#[derive(PartialEq, Eq)]
enum Advance {
    Done,
    ReadResponseMissing,
}

impl Requester {
    /// Takes one response packet whose payload has `payload_bytes`.
    #[inline]
    pub fn on_response(
        &mut self,
        now: Instant,
        headers: &TransportHeaders,
        payload_bytes: u32,
    ) -> ResponseOutcome {
        let outcome = self.take_response(now, headers, payload_bytes);
        self.count_ignored(outcome)
    }

    /// Counts a response that had no effect.
    #[inline]
    fn count_ignored(&mut self, outcome: ResponseOutcome) -> ResponseOutcome {
        if matches!(outcome, ResponseOutcome::Ignored(_)) {
            self.statistics.responses_ignored += 1;
        }
        outcome
    }

    /// Takes an acknowledgement that comes without a packet, as [`Requester::on_response`] takes
    /// that of a packet.
    #[inline]
    pub fn on_acknowledgement(
        &mut self,
        now: Instant,
        psn: Psn,
        partition_key: u16,
    ) -> ResponseOutcome {
        let outcome = match self.position_of(psn, partition_key) {
            Ok(position) => self.on_acknowledge(now, position),
            Err(ignored) => ResponseOutcome::Ignored(ignored),
        };
        self.count_ignored(outcome)
    }

    /// Takes `packets` read responses that come as one, each with a payload of `packet_bytes`.
    /// Returns the outcome, and the number of its packets: the caller passes the others one by one,
    /// with the headers that [`TransportHeaders::of_run`] gives.
    #[inline]
    pub fn on_run(
        &mut self,
        now: Instant,
        headers: &TransportHeaders,
        packets: u32,
        packet_bytes: u32,
    ) -> (ResponseOutcome, u32) {
        let further = packets.saturating_sub(1);
        match self.on_response(now, headers, packet_bytes) {
            ResponseOutcome::Place(bytes) if self.takes_further(further, packet_bytes) => {
                self.unanswered += u64::from(further);
                self.progressed(now);
                let length_bytes = bytes.length_bytes + further * packet_bytes;
                let all = MessageBytes {
                    length_bytes,
                    ..bytes
                };
                (ResponseOutcome::Place(all), packets)
            }
            outcome => (outcome, 1),
        }
    }

    /// True if so many further packets of a read's response, none of them its last, are expected.
    #[inline]
    fn takes_further(&self, packets: u32, packet_bytes: u32) -> bool {
        let slot = self.slot(self.done);
        let inside = self.unanswered > slot.first
            && self.unanswered + u64::from(packets) < slot.end().min(self.sent_end);
        let is_read = self.done != self.tail && slot.is_read();
        is_read && inside && packet_bytes == self.settings.mtu.bytes()
    }

    #[inline]
    fn take_response(
        &mut self,
        now: Instant,
        headers: &TransportHeaders,
        payload_bytes: u32,
    ) -> ResponseOutcome {
        let position = match self.position_of(headers.psn, headers.partition_key) {
            Ok(position) => position,
            Err(ignored) => return ResponseOutcome::Ignored(ignored),
        };
        match (headers.opcode, headers.extension) {
            (Opcode::ACKNOWLEDGE, Extension::Acknowledge(answer)) => match answer.syndrome {
                Syndrome::Acknowledge { .. } => self.on_acknowledge(now, position),
                Syndrome::ReceiverNotReady { timer } => self.on_not_ready(now, position, timer),
                Syndrome::Negative(code) => self.on_negative(now, position, code),
                Syndrome::Reserved(_) => ResponseOutcome::Ignored(IgnoredResponse::Unexpected),
            },
            (Opcode::READ_RESPONSE_MIDDLE, Extension::None) => {
                self.on_read_response(now, position, payload_bytes, Some(false))
            }
            (
                Opcode::READ_RESPONSE_FIRST
                | Opcode::READ_RESPONSE_LAST
                | Opcode::READ_RESPONSE_ONLY,
                Extension::Acknowledge(answer),
            ) => {
                let is_positive = matches!(answer.syndrome, Syndrome::Acknowledge { .. });
                let ends = headers.opcode != Opcode::READ_RESPONSE_FIRST;
                self.on_read_response(now, position, payload_bytes, is_positive.then_some(ends))
            }
            _ => ResponseOutcome::Ignored(IgnoredResponse::Unexpected),
        }
    }

    /// The position of the packet that a response is for, if it may be one that waits for it.
    #[inline]
    fn position_of(&self, psn: Psn, partition_key: u16) -> Result<u64, IgnoredResponse> {
        if self.is_stopped() {
            return Err(IgnoredResponse::Stopped);
        }
        if !partition_keys_match(partition_key, self.settings.template.partition_key) {
            return Err(IgnoredResponse::PartitionKey);
        }
        match psn.position_near(self.unanswered) {
            Some(position) if (self.unanswered..self.sent_end).contains(&position) => Ok(position),
            _ => Err(IgnoredResponse::OutOfWindow),
        }
    }

    #[inline]
    fn on_acknowledge(&mut self, now: Instant, position: u64) -> ResponseOutcome {
        match self.advance(now, position + 1) {
            Advance::Done => ResponseOutcome::Acknowledged,
            Advance::ReadResponseMissing => self.on_missing_read_response(),
        }
    }

    /// All packets before `position` arrived; the one at `position` did not.
    fn on_negative(&mut self, now: Instant, position: u64, code: NegativeCode) -> ResponseOutcome {
        let reason = match code {
            NegativeCode::SEQUENCE_ERROR => {
                self.statistics.sequence_errors += 1;
                let before = self.unanswered;
                self.advance(now, position);
                // Soft-RoCE reports the packet behind one that its receiver was not ready for as
                // out of order. All of them are sent again, and nothing was since. Source: Linux,
                // `rxe_resp.c`, check_psn.
                if matches!(self.phase, Phase::NotReady { .. }) && self.unanswered == before {
                    return ResponseOutcome::Ignored(IgnoredResponse::AfterGap);
                }
                return self.on_missing_request();
            }
            NegativeCode::INVALID_REQUEST => RequesterFaultReason::RemoteInvalidRequest,
            NegativeCode::REMOTE_ACCESS => RequesterFaultReason::RemoteAccess,
            _ => RequesterFaultReason::RemoteOperation,
        };
        // A refusal that passes over a read shows that the read's response was lost, as any answer
        // does; the refusal is not the read's. Source: InfiniBand Architecture Specification volume
        // 1, 9.9.2.1; Linux's soft-RoCE, `rxe_comp.c`, does the same.
        if self.advance(now, position) == Advance::ReadResponseMissing {
            return self.on_missing_read_response();
        }
        ResponseOutcome::Fault(self.fault(reason))
    }

    fn on_not_ready(&mut self, now: Instant, position: u64, timer: u8) -> ResponseOutcome {
        let before = self.unanswered;
        if self.advance(now, position) == Advance::ReadResponseMissing {
            return self.on_missing_read_response();
        }
        if matches!(self.phase, Phase::NotReady { .. }) && self.unanswered == before {
            return ResponseOutcome::Ignored(IgnoredResponse::NotReadyAgain);
        }
        self.statistics.receiver_not_ready += 1;
        let limit = self.settings.not_ready_retry_limit;
        if limit < RETRY_FOREVER && self.not_ready_retries >= limit {
            let reason = RequesterFaultReason::NotReadyRetriesExhausted;
            return ResponseOutcome::Fault(self.fault(reason));
        }
        self.not_ready_retries = self.not_ready_retries.saturating_add(1);
        self.retries = 0;
        self.go_back();
        let until = now.plus(receiver_not_ready_wait(timer));
        self.phase = Phase::NotReady { until };
        ResponseOutcome::Repeating
    }

    /// A packet of a read's data. `ends`: it says that it is the last one; `None`: its syndrome is
    /// no acknowledgement, which no read response has (InfiniBand Architecture Specification volume
    /// 1, 9.7.5.1).
    fn on_read_response(
        &mut self,
        now: Instant,
        position: u64,
        payload_bytes: u32,
        ends: Option<bool>,
    ) -> ResponseOutcome {
        if position > self.unanswered && !self.is_read_at(position) {
            return ResponseOutcome::Ignored(IgnoredResponse::Unexpected);
        }
        if position > self.unanswered
            && (self.advance(now, position) == Advance::ReadResponseMissing)
        {
            return self.on_missing_read_response();
        }
        let slot = *self.slot(self.done);
        if self.done == self.tail || !slot.is_read() || position != self.unanswered {
            return ResponseOutcome::Ignored(IgnoredResponse::Unexpected);
        }
        let offset_bytes = (position - slot.first) as u32 * self.settings.mtu.bytes();
        let expected = (slot.request.length_bytes - offset_bytes).min(self.settings.mtu.bytes());
        let is_last = position + 1 == slot.end();
        if ends != Some(is_last) {
            return ResponseOutcome::Fault(self.fault(RequesterFaultReason::ResponseOpcode));
        }
        if payload_bytes != expected {
            let reason = RequesterFaultReason::ResponseLength {
                expected,
                found: payload_bytes,
            };
            return ResponseOutcome::Fault(self.fault(reason));
        }
        if is_last {
            self.done = self.done.wrapping_add(1);
            self.reads_open -= 1;
            // zero if the read was about to be sent again
            self.reads_sent = self.reads_sent.saturating_sub(1);
        }
        self.unanswered = position + 1;
        self.progressed(now);
        if expected == 0 {
            return ResponseOutcome::Acknowledged;
        }
        let token = slot.request.token;
        ResponseOutcome::Place(MessageBytes {
            token,
            offset_bytes,
            length_bytes: expected,
        })
    }

    /// True if the request at `position` is a read: a read response for another one
    /// acknowledges nothing before it.
    fn is_read_at(&self, position: u64) -> bool {
        let mut index = self.done;
        while index != self.tail {
            let slot = self.slot(index);
            if position < slot.end() {
                return slot.is_read();
            }
            index = index.wrapping_add(1);
        }
        false
    }

    /// Marks everything before `end` as answered, up to a read whose response is missing.
    #[inline]
    fn advance(&mut self, now: Instant, end: u64) -> Advance {
        debug_assert!(
            end - self.unanswered <= MAX_SPAN,
            "answers outside the window"
        );
        let before = self.unanswered;
        let mut result = Advance::Done;
        while self.done != self.tail && self.unanswered < end {
            let slot = *self.slot(self.done);
            if slot.is_read() {
                result = Advance::ReadResponseMissing;
                break;
            }
            self.unanswered = slot.end().min(end);
            if slot.end() > end {
                break;
            }
            self.done = self.done.wrapping_add(1);
        }
        if self.unanswered != before {
            self.progressed(now);
        }
        result
    }

    /// Answers came: counts start again, and the cursor does not stay behind them.
    #[inline]
    fn progressed(&mut self, now: Instant) {
        self.retries = 0;
        self.not_ready_retries = 0;
        self.recovery = Recovery::Untried;
        if self.next < self.unanswered {
            self.cursor = self.done;
            self.next = self.unanswered;
            self.reads_sent = 0;
        }
        self.skip_local_work();
        if self.unanswered < self.next {
            self.await_answer(now);
        } else if matches!(self.phase, Phase::Unanswered { .. }) {
            self.phase = Phase::Open;
        }
    }

    /// Requests a read response again that later answers have overtaken. Not after a time-out: late
    /// answers to the packets before it report no other loss.
    fn on_missing_read_response(&mut self) -> ResponseOutcome {
        if self.recovery != Recovery::Untried {
            return ResponseOutcome::Ignored(IgnoredResponse::AfterGap);
        }
        self.statistics.missing_read_responses += 1;
        self.recovery = Recovery::Told;
        self.repeat()
    }

    /// Sends the packet again that the peer reports as missing, once: a NAK that arrives twice, or
    /// after a missing read response, reports the same loss. One that follows a time-out takes no
    /// second retry.
    fn on_missing_request(&mut self) -> ResponseOutcome {
        match std::mem::replace(&mut self.recovery, Recovery::Told) {
            Recovery::Untried => self.repeat(),
            Recovery::TimedOut => {
                self.go_back();
                ResponseOutcome::Repeating
            }
            Recovery::Told => ResponseOutcome::Ignored(IgnoredResponse::AfterGap),
        }
    }

    fn repeat(&mut self) -> ResponseOutcome {
        match self.try_again() {
            Ok(()) => ResponseOutcome::Repeating,
            Err(fault) => ResponseOutcome::Fault(fault),
        }
    }
}
