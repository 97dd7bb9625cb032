mod short;
mod table;
mod taken_back;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::config::{PathMtu, RETRY_FOREVER, receiver_not_ready_wait};
use crate::packet::{
    Acknowledgement, ExtensionKind, NegativeCode, QpNumber, RemoteBuffer, Syndrome,
};

pub(super) const START: u32 = 0xFF_FFFE; // so that numbers wrap in every test
pub(super) const MTU: u32 = 1024;
pub(super) const TIMEOUT: Duration = Duration::from_millis(1);

pub(super) struct TimedRequester {
    pub(super) requester: Requester,
    pub(super) now: Instant,
}

pub(super) fn config() -> RequesterConfig {
    let mut config = RequesterConfig::new(QpNumber::new(7), PathMtu::Bytes1024, Psn::new(START));
    config.retransmit_after = TIMEOUT;
    config.retry_limit = 3;
    config.outstanding_reads = 2;
    config.capacity = 8;
    config
}

impl TimedRequester {
    pub(super) fn new(config: &RequesterConfig) -> Self {
        Self {
            requester: Requester::new(config),
            now: Instant(1_000),
        }
    }

    pub(super) fn post(&mut self, token: u32, operation: Operation, length_bytes: u32) {
        let work = WorkRequest {
            token,
            operation,
            length_bytes,
            solicited: false,
        };
        self.requester.post(work).expect("room for it");
    }

    pub(super) fn post_writes(&mut self, count: u32) {
        for token in 0..count {
            self.post(token, WRITE, 8);
        }
    }

    /// Numbers, counted from the first, of the packets that leave now.
    pub(super) fn sent(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.requester.next_packet(self.now))
            .map(|packet| packet.headers.psn.distance_from(Psn::new(START)) as u32)
            .collect()
    }

    fn answer(&mut self, offset: u32, syndrome: Syndrome) -> ResponseOutcome {
        let answer = Acknowledgement {
            syndrome,
            message_sequence_number: 0,
        };
        self.respond(
            offset,
            Opcode::ACKNOWLEDGE,
            Extension::Acknowledge(answer),
            0,
        )
    }

    fn acknowledge(&mut self, offset: u32) -> ResponseOutcome {
        self.answer(offset, Syndrome::Acknowledge { credits: 31 })
    }

    fn read_response(&mut self, offset: u32, opcode: Opcode, length: u32) -> ResponseOutcome {
        let syndrome = Syndrome::Acknowledge { credits: 31 };
        let answer = Acknowledgement {
            syndrome,
            message_sequence_number: 0,
        };
        let extension = match opcode.extension_kind() {
            ExtensionKind::Acknowledge => Extension::Acknowledge(answer),
            _ => Extension::None,
        };
        self.respond(offset, opcode, extension, length)
    }

    fn respond(
        &mut self,
        offset: u32,
        opcode: Opcode,
        extension: Extension,
        payload_bytes: u32,
    ) -> ResponseOutcome {
        let headers = TransportHeaders {
            opcode,
            solicited: false,
            migrated: true,
            partition_key: 0xFFFF,
            forward_congestion: false,
            backward_congestion: false,
            destination_qp: QpNumber::new(1),
            acknowledge_request: false,
            psn: Psn::new(START).plus(offset),
            extension,
        };
        self.requester
            .on_response(self.now, &headers, payload_bytes)
    }

    fn completed(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.requester.next_completion())
            .map(|done| done.token)
            .collect()
    }

    fn wait(&mut self, time: Duration) -> Result<(), RequesterFault> {
        self.now = self.now.plus(time);
        self.requester.on_time(self.now)
    }
}

const WRITE: Operation = Operation::Write {
    address: 0x1000,
    key: 5,
};
const READ: Operation = Operation::Read {
    address: 0x2000,
    key: 6,
};
const IGNORED: fn(IgnoredResponse) -> ResponseOutcome = ResponseOutcome::Ignored;

#[test]
fn one_request_at_a_time_takes_one_place_of_the_ring() {
    let mut timed = TimedRequester::new(&config());
    for token in 0..20 {
        timed.post(token, WRITE, 8);
        assert_eq!(timed.sent(), [token]);
        assert_eq!(timed.acknowledge(token), ResponseOutcome::Acknowledged);
        assert_eq!(timed.completed(), [token]);
    }
    let slots = timed.requester.slots.iter();
    assert_eq!(slots.filter(|slot| slot.packets > 0).count(), 1);
}

#[test]
fn messages_are_cut_at_the_mtu_with_the_opcodes_of_their_places() {
    use Opcode as O;
    let write_immediate = Operation::WriteWithImmediate {
        address: 0x1000,
        key: 5,
        immediate: 3,
    };
    let table = [
        (
            WRITE,
            [
                O::WRITE_ONLY,
                O::WRITE_FIRST,
                O::WRITE_MIDDLE,
                O::WRITE_LAST,
            ],
        ),
        (
            write_immediate,
            [
                O::WRITE_ONLY_WITH_IMMEDIATE,
                O::WRITE_FIRST,
                O::WRITE_MIDDLE,
                O::WRITE_LAST_WITH_IMMEDIATE,
            ],
        ),
        (
            Operation::Send,
            [O::SEND_ONLY, O::SEND_FIRST, O::SEND_MIDDLE, O::SEND_LAST],
        ),
        (
            Operation::SendWithImmediate(3),
            [
                O::SEND_ONLY_WITH_IMMEDIATE,
                O::SEND_FIRST,
                O::SEND_MIDDLE,
                O::SEND_LAST_WITH_IMMEDIATE,
            ],
        ),
        (
            Operation::SendWithInvalidate(3),
            [
                O::SEND_ONLY_WITH_INVALIDATE,
                O::SEND_FIRST,
                O::SEND_MIDDLE,
                O::SEND_LAST_WITH_INVALIDATE,
            ],
        ),
    ];
    for (operation, [only, first, middle, last]) in table {
        let lengths: [(u32, &[(Opcode, u32)]); 5] = [
            (0, &[(only, 0)]),
            (1, &[(only, 1)]),
            (MTU, &[(only, MTU)]),
            (MTU + 1, &[(first, MTU), (last, 1)]),
            (3 * MTU, &[(first, MTU), (middle, MTU), (last, MTU)]),
        ];
        for (length_bytes, expected) in lengths {
            // away from the multiples at which an acknowledgement is asked for anyway
            let config = RequesterConfig {
                first_psn: Psn::new(1),
                ..config()
            };
            let mut rig = TimedRequester::new(&config);
            rig.post(1, operation, length_bytes);
            let mut offset_bytes = 0;
            for (opcode, length) in expected {
                let packet = rig.requester.next_packet(rig.now).expect("a packet");
                assert_eq!(packet.headers.opcode, *opcode);
                assert_eq!(packet.headers.extension.kind(), opcode.extension_kind());
                let payload = MessageBytes {
                    token: 1,
                    offset_bytes,
                    length_bytes: *length,
                };
                assert_eq!(packet.payload, payload);
                assert_eq!(
                    packet.headers.acknowledge_request,
                    *opcode == last || *opcode == only
                );
                offset_bytes += length;
            }
            assert_eq!(rig.requester.next_packet(rig.now), None);
        }
    }
}

#[test]
fn remote_address_key_and_whole_length_travel_with_the_first_packet() {
    let mut rig = TimedRequester::new(&config());
    rig.post(1, WRITE, 3 * MTU);
    let packet = rig.requester.next_packet(rig.now).expect("a packet");
    let remote = RemoteBuffer {
        address: 0x1000,
        key: 5,
        length_bytes: 3 * MTU,
    };
    assert_eq!(packet.headers.extension, Extension::Remote(remote));
}

#[test]
fn the_solicited_bit_is_on_the_last_packet_only() {
    let mut rig = TimedRequester::new(&config());
    let work = WorkRequest {
        token: 1,
        operation: Operation::Send,
        length_bytes: 2 * MTU,
        solicited: true,
    };
    rig.requester.post(work).expect("room");
    let bits: Vec<bool> = std::iter::from_fn(|| rig.requester.next_packet(rig.now))
        .map(|packet| packet.headers.solicited)
        .collect();
    assert_eq!(bits, [false, true]);
}

#[test]
fn acknowledgements_are_asked_for_now_and_then_within_long_messages() {
    let mut config = config();
    config.acknowledge_every_packets = 4;
    let mut rig = TimedRequester::new(&config);
    rig.post(1, WRITE, 16 * MTU);
    let asked = std::iter::from_fn(|| rig.requester.next_packet(rig.now))
        .filter(|packet| packet.headers.acknowledge_request)
        .count();
    assert_eq!(asked, 5, "four times and at the end");
}

#[test]
fn one_acknowledgement_completes_everything_before_it() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(5);
    assert_eq!(rig.sent(), [0, 1, 2, 3, 4]);
    assert_eq!(rig.acknowledge(3), ResponseOutcome::Acknowledged);
    assert_eq!(rig.completed(), [0, 1, 2, 3]);
    assert_eq!(rig.acknowledge(3), IGNORED(IgnoredResponse::OutOfWindow));
    assert_eq!(rig.acknowledge(4), ResponseOutcome::Acknowledged);
    assert_eq!(rig.completed(), [4]);
    assert!(rig.requester.is_idle());
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_ignored() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(3);
    assert_eq!(rig.acknowledge(0), IGNORED(IgnoredResponse::OutOfWindow));
    assert!(rig.requester.next_packet(rig.now).is_some());
    assert_eq!(rig.acknowledge(1), IGNORED(IgnoredResponse::OutOfWindow));
    assert_eq!(rig.completed(), [0u32; 0]);
}

#[test]
fn the_window_bounds_what_is_unacknowledged_and_its_last_packet_asks() {
    let mut config = config();
    config.window_packets = 3;
    config.first_psn = Psn::new(START).plus(10);
    let mut rig = TimedRequester::new(&config);
    rig.post(1, WRITE, 8 * MTU);
    let window: Vec<bool> = std::iter::from_fn(|| rig.requester.next_packet(rig.now))
        .map(|packet| packet.headers.acknowledge_request)
        .collect();
    assert_eq!(window, [false, false, true]);
    rig.acknowledge(12);
    assert_eq!(rig.sent(), [13, 14, 15]);
}

#[test]
fn a_sequence_error_goes_back_to_the_packet_that_is_missing() {
    let mut rig = TimedRequester::new(&config());
    rig.post(0, WRITE, 8);
    rig.post(1, WRITE, 5 * MTU);
    assert_eq!(rig.sent(), [0, 1, 2, 3, 4, 5]);
    let nak = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
    assert_eq!(rig.answer(3, nak), ResponseOutcome::Repeating);
    assert_eq!(rig.completed(), [0]);
    let packet = rig.requester.next_packet(rig.now).expect("again");
    assert_eq!(packet.headers.opcode, Opcode::WRITE_MIDDLE);
    assert_eq!(packet.payload.offset_bytes, 2 * MTU);
    assert_eq!(rig.sent(), [4, 5]);
    rig.acknowledge(5);
    assert_eq!(rig.completed(), [1]);
}

#[test]
fn one_loss_takes_one_retry_however_often_it_is_told() {
    let nak = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
    let config = RequesterConfig {
        retry_limit: 1,
        ..config()
    };
    let mut rig = TimedRequester::new(&config);
    rig.post(0, READ, 8);
    rig.post(1, READ, 8);
    assert_eq!(rig.sent(), [0, 1]);
    assert_eq!(rig.answer(0, nak), ResponseOutcome::Repeating);
    // the wire repeats the NAK, before and after the request has left again
    assert_eq!(rig.answer(0, nak), IGNORED(IgnoredResponse::AfterGap));
    assert_eq!(rig.sent(), [0, 1]);
    assert_eq!(rig.answer(0, nak), IGNORED(IgnoredResponse::AfterGap));
    // and the second response overtakes the first
    let overtaken = rig.read_response(1, Opcode::READ_RESPONSE_ONLY, 8);
    assert_eq!(overtaken, IGNORED(IgnoredResponse::AfterGap));
    rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 8);
    assert_eq!(rig.completed(), [0]);
    // what comes at the next place is another loss
    assert_eq!(rig.answer(1, nak), ResponseOutcome::Repeating);
    assert_eq!(rig.sent(), [1]);
    let end = rig.wait(TIMEOUT).expect_err("one retry was allowed");
    assert_eq!(end.reason, RequesterFaultReason::RetriesExhausted);
}

/// A peer that answers more slowly than the time-out: its late answers do not change the number of
/// retries, one time-out each.
#[test]
fn answers_that_come_late_take_no_retry_beside_the_time_out() {
    let mut rig = TimedRequester::new(&config());
    for token in 0..3 {
        rig.post(token, READ, 8);
    }
    assert_eq!(rig.sent(), [0, 1], "two reads may be outstanding");
    // the first response is lost, and the second is late, time after time
    for retry in 0..3 {
        assert_eq!(rig.wait(TIMEOUT), Ok(()), "retry {retry}");
        let late = rig.read_response(1, Opcode::READ_RESPONSE_ONLY, 8);
        assert_eq!(late, IGNORED(IgnoredResponse::AfterGap), "retry {retry}");
        assert_eq!(rig.sent(), [0, 1]);
        let late = rig.read_response(1, Opcode::READ_RESPONSE_ONLY, 8);
        assert_eq!(late, IGNORED(IgnoredResponse::AfterGap), "retry {retry}");
    }
    assert_eq!(rig.requester.statistics().timeouts, 3);
    rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 8);
    rig.read_response(1, Opcode::READ_RESPONSE_ONLY, 8);
    assert_eq!(rig.completed(), [0, 1]);
    // with progress the count starts again, and a gap is noticed again
    assert_eq!(rig.sent(), [2]);
    let nak = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
    assert_eq!(rig.answer(2, nak), ResponseOutcome::Repeating);
    assert_eq!(rig.requester.statistics().sequence_errors, 1);
}

/// A NAK that follows a time-out is obeyed at once, and the time-out's retry pays for it.
#[test]
fn a_nak_after_a_time_out_repeats_once_without_another_retry() {
    let nak = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
    let config = RequesterConfig {
        retry_limit: 1,
        ..config()
    };
    let mut rig = TimedRequester::new(&config);
    rig.post_writes(2);
    assert_eq!(rig.sent(), [0, 1]);
    rig.wait(TIMEOUT).expect("one retry is allowed");
    assert_eq!(rig.sent(), [0, 1]);
    assert_eq!(rig.answer(0, nak), ResponseOutcome::Repeating);
    assert_eq!(rig.sent(), [0, 1]);
    assert_eq!(rig.answer(0, nak), IGNORED(IgnoredResponse::AfterGap));
    let end = rig.wait(TIMEOUT).expect_err("one retry was allowed");
    assert_eq!(end.reason, RequesterFaultReason::RetriesExhausted);
}

#[test]
fn a_copy_of_a_not_ready_answer_takes_no_second_retry() {
    let config = RequesterConfig {
        not_ready_retry_limit: 1,
        ..config()
    };
    let mut rig = TimedRequester::new(&config);
    rig.post_writes(1);
    rig.sent();
    let not_ready = Syndrome::ReceiverNotReady { timer: 1 };
    assert_eq!(rig.answer(0, not_ready), ResponseOutcome::Repeating);
    let copy = rig.answer(0, not_ready);
    assert_eq!(copy, IGNORED(IgnoredResponse::NotReadyAgain));
    rig.wait(receiver_not_ready_wait(1)).expect("no time-out");
    assert_eq!(rig.sent(), [0]);
    assert_eq!(rig.acknowledge(0), ResponseOutcome::Acknowledged);
}

#[test]
fn silence_repeats_from_the_oldest_and_then_gives_up() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(3);
    assert_eq!(rig.sent(), [0, 1, 2]);
    assert_eq!(rig.wait(TIMEOUT - Duration::from_nanos(1)), Ok(()));
    assert_eq!(rig.sent(), [0u32; 0]);
    rig.now = rig.now.plus(Duration::from_nanos(1));
    for _ in 0..3 {
        assert_eq!(rig.requester.deadline(), Some(rig.now));
        assert_eq!(rig.requester.on_time(rig.now), Ok(()));
        assert_eq!(rig.sent(), [0, 1, 2]);
        rig.now = rig.now.plus(TIMEOUT);
    }
    let fault = rig
        .requester
        .on_time(rig.now)
        .expect_err("the fourth is too many");
    let reason = RequesterFaultReason::RetriesExhausted;
    assert_eq!(fault, RequesterFault { token: 0, reason });
    assert!(rig.requester.is_stopped());
    assert_eq!((rig.sent(), rig.requester.deadline()), (vec![], None));
    assert_eq!(rig.wait(10 * TIMEOUT), Ok(()), "a fault is given out once");
}

#[test]
fn progress_starts_the_count_of_retries_again() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(8);
    for offset in 0..8 {
        for _ in 0..3 {
            rig.sent();
            assert_eq!(rig.wait(TIMEOUT), Ok(()));
        }
        rig.sent();
        assert_eq!(rig.acknowledge(offset), ResponseOutcome::Acknowledged);
    }
    assert_eq!(rig.completed().len(), 8);
}

#[test]
fn retries_and_waits_for_a_receiver_are_counted_by_themselves_and_since_the_last_answer() {
    let config = RequesterConfig {
        not_ready_retry_limit: 1,
        ..config()
    };
    let mut rig = TimedRequester::new(&config);
    rig.post_writes(2);
    let not_ready = Syndrome::ReceiverNotReady { timer: 1 };
    for offset in 0..2 {
        // All retries of a loss, before and after a receiver that is not ready.
        for _ in 0..2 {
            for _ in 0..3 {
                rig.sent();
                rig.wait(TIMEOUT).expect("three retries");
            }
            rig.sent();
            if rig.requester.statistics().receiver_not_ready <= u64::from(offset) {
                assert_eq!(rig.answer(offset, not_ready), ResponseOutcome::Repeating);
                rig.wait(receiver_not_ready_wait(1)).expect("no time-out");
            }
        }
        assert_eq!(rig.acknowledge(offset), ResponseOutcome::Acknowledged);
    }
    assert_eq!(rig.completed(), [0, 1]);
}

#[test]
fn a_requester_that_has_nothing_to_send_again_asks_for_no_time() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(1);
    rig.sent();
    let not_ready = Syndrome::ReceiverNotReady { timer: 1 };
    assert_eq!(rig.answer(0, not_ready), ResponseOutcome::Repeating);
    assert!(rig.requester.deadline().is_some());
    // The packet arrived all the same.
    assert_eq!(rig.acknowledge(0), ResponseOutcome::Acknowledged);
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn packets_that_are_sent_again_are_counted_of_writes_and_of_reads() {
    for (operation, answer) in [(WRITE, 3), (READ, 1)] {
        let mut rig = TimedRequester::new(&config());
        rig.post(0, operation, 3 * MTU);
        assert_eq!(rig.sent().len(), answer);
        rig.wait(TIMEOUT).expect("retries left");
        assert_eq!(rig.sent().len(), answer);
        let statistics = rig.requester.statistics();
        let counted = (statistics.packets_sent, statistics.packets_repeated);
        assert_eq!(counted, (2 * answer as u64, answer as u64));
    }
}

#[test]
fn a_late_acknowledgement_spares_the_repetition() {
    let mut rig = TimedRequester::new(&config());
    rig.post(0, WRITE, 4 * MTU);
    rig.post(1, WRITE, 2 * MTU);
    assert_eq!(rig.sent().len(), 6);
    rig.wait(TIMEOUT).expect("retries left");
    rig.acknowledge(4);
    assert_eq!(rig.completed(), [0]);
    assert_eq!(rig.sent(), [5]);
}

/// A receiver that was not ready for a packet reports the one behind it as out of order.
#[test]
fn a_sequence_error_behind_a_not_ready_answer_takes_no_retry() {
    let mut rig = TimedRequester::new(&RequesterConfig {
        retry_limit: 0,
        not_ready_retry_limit: RETRY_FOREVER,
        ..config()
    });
    rig.post_writes(2);
    assert_eq!(rig.sent(), [0, 1]);
    let not_ready = Syndrome::ReceiverNotReady { timer: 1 };
    assert_eq!(rig.answer(0, not_ready), ResponseOutcome::Repeating);
    let missing = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
    assert_eq!(rig.answer(0, missing), IGNORED(IgnoredResponse::AfterGap));
    assert_eq!(rig.sent(), [], "it waits as it was told");
    rig.wait(receiver_not_ready_wait(1)).expect("no time-out");
    assert_eq!(rig.sent(), [0, 1]);
    // Now a loss is one, and there are no retries.
    assert!(matches!(rig.answer(0, missing), ResponseOutcome::Fault(_)));
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(2);
    rig.sent();
    let outcome = rig.answer(0, Syndrome::ReceiverNotReady { timer: 12 });
    assert_eq!(outcome, ResponseOutcome::Repeating);
    let wait = receiver_not_ready_wait(12);
    assert_eq!(wait, Duration::from_micros(640));
    assert_eq!(rig.requester.deadline(), Some(rig.now.plus(wait)));
    rig.wait(wait - Duration::from_nanos(1)).expect("no fault");
    assert_eq!(rig.sent(), [0u32; 0]);
    rig.wait(Duration::from_nanos(1)).expect("no fault");
    assert_eq!(rig.sent(), [0, 1]);
}

#[test]
fn a_receiver_that_is_never_ready_ends_at_its_limit_unless_that_is_seven() {
    for (limit, rounds) in [(0, 1), (2, 3), (6, 7)] {
        let config = RequesterConfig {
            not_ready_retry_limit: limit,
            ..config()
        };
        let mut rig = TimedRequester::new(&config);
        rig.post_writes(1);
        let mut outcome = ResponseOutcome::Repeating;
        for _ in 0..rounds {
            assert_eq!(outcome, ResponseOutcome::Repeating);
            rig.wait(receiver_not_ready_wait(1)).expect("no timeout");
            rig.sent();
            outcome = rig.answer(0, Syndrome::ReceiverNotReady { timer: 1 });
        }
        let reason = RequesterFaultReason::NotReadyRetriesExhausted;
        let fault = RequesterFault { token: 0, reason };
        assert_eq!(outcome, ResponseOutcome::Fault(fault), "limit {limit}");
    }
    let config = RequesterConfig {
        not_ready_retry_limit: RETRY_FOREVER,
        ..config()
    };
    let mut rig = TimedRequester::new(&config);
    rig.post_writes(1);
    for _ in 0..1000 {
        rig.wait(receiver_not_ready_wait(1)).expect("no timeout");
        assert_eq!(rig.sent(), [0]);
        let outcome = rig.answer(0, Syndrome::ReceiverNotReady { timer: 1 });
        assert_eq!(outcome, ResponseOutcome::Repeating);
    }
}

#[test]
fn a_refusal_stops_at_the_request_that_it_names() {
    use RequesterFaultReason as R;
    let table = [
        (NegativeCode::INVALID_REQUEST, R::RemoteInvalidRequest),
        (NegativeCode::REMOTE_ACCESS, R::RemoteAccess),
        (NegativeCode::REMOTE_OPERATION, R::RemoteOperation),
        (NegativeCode(17), R::RemoteOperation),
    ];
    for (code, reason) in table {
        let mut rig = TimedRequester::new(&config());
        rig.post_writes(4);
        rig.sent();
        let outcome = rig.answer(2, Syndrome::Negative(code));
        let fault = RequesterFault { token: 2, reason };
        assert_eq!(outcome, ResponseOutcome::Fault(fault));
        assert_eq!(rig.completed(), [0, 1], "those before are done");
        assert_eq!(rig.requester.oldest(), Some(2), "a flush starts there");
        assert_eq!(rig.acknowledge(3), IGNORED(IgnoredResponse::Stopped));
        let work = WorkRequest {
            token: 9,
            operation: WRITE,
            length_bytes: 8,
            solicited: false,
        };
        assert_eq!(rig.requester.post(work), Err(PostError::Stopped));
    }
}

/// The peer has answered the read and refused the write behind it; the response is late. The read
/// is not blamed for the refusal: it is asked for again, and completes if its response comes.
#[test]
fn a_refusal_that_passes_over_a_read_asks_for_it_again() {
    for code in [NegativeCode::REMOTE_ACCESS, NegativeCode::INVALID_REQUEST] {
        let mut rig = TimedRequester::new(&config());
        rig.post(1, READ, 8);
        rig.post(2, READ, 8);
        rig.post(3, WRITE, 8);
        assert_eq!(rig.sent(), [0, 1, 2]);
        // the second response overtakes the first, the refusal both
        let overtaking = rig.read_response(1, Opcode::READ_RESPONSE_ONLY, 8);
        assert_eq!(overtaking, ResponseOutcome::Repeating);
        let refusal = rig.answer(2, Syndrome::Negative(code));
        assert_eq!(refusal, IGNORED(IgnoredResponse::AfterGap));
        rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 8);
        assert_eq!(rig.completed(), [1]);
        let refusal = rig.answer(2, Syndrome::Negative(code));
        assert_eq!(refusal, ResponseOutcome::Repeating);
        // the peer has stopped and says nothing more
        let mut end = Ok(());
        while end.is_ok() {
            rig.sent();
            end = rig.wait(TIMEOUT);
        }
        let reason = RequesterFaultReason::RetriesExhausted;
        assert_eq!(end, Err(RequesterFault { token: 2, reason }));
    }
}

#[test]
fn a_read_takes_the_numbers_of_its_responses_and_places_each() {
    let mut rig = TimedRequester::new(&config());
    rig.post(1, READ, 2 * MTU + 5);
    rig.post(2, WRITE, 8);
    assert_eq!(rig.sent(), [0, 3]);
    let table = [
        (0, Opcode::READ_RESPONSE_FIRST, MTU),
        (1, Opcode::READ_RESPONSE_MIDDLE, MTU),
        (2, Opcode::READ_RESPONSE_LAST, 5),
    ];
    for (offset, opcode, length_bytes) in table {
        assert_eq!(rig.completed(), [0u32; 0]);
        let outcome = rig.read_response(offset, opcode, length_bytes);
        let bytes = MessageBytes {
            token: 1,
            offset_bytes: offset * MTU,
            length_bytes,
        };
        assert_eq!(outcome, ResponseOutcome::Place(bytes));
    }
    assert_eq!(rig.completed(), [1]);
    assert_eq!(rig.requester.open_reads(), 0);
    rig.acknowledge(3);
    assert_eq!(rig.completed(), [2]);
}

#[test]
fn a_read_that_the_host_cannot_place_is_the_oldest_that_is_not_complete() {
    for (last, opcode) in [
        (false, Opcode::READ_RESPONSE_FIRST),
        (true, Opcode::READ_RESPONSE_ONLY),
    ] {
        let mut rig = TimedRequester::new(&config());
        rig.post(1, WRITE, 8);
        rig.post(2, READ, if last { 5 } else { MTU + 5 });
        rig.post(3, Operation::Local, 0);
        rig.sent();
        rig.acknowledge(0);
        let bytes = if last { 5 } else { MTU };
        let outcome = rig.read_response(1, opcode, bytes);
        assert!(matches!(outcome, ResponseOutcome::Place(_)), "{outcome:?}");
        rig.requester.refuse_placement(2);
        assert_eq!(rig.requester.oldest(), Some(2));
        assert_eq!(rig.completed(), [1]);
        assert!(rig.requester.is_stopped());
    }
}

#[test]
fn a_missing_read_response_is_asked_for_from_the_middle_once() {
    let mut rig = TimedRequester::new(&config());
    rig.post(1, READ, 4 * MTU);
    rig.post(2, WRITE, 8);
    rig.sent();
    rig.read_response(0, Opcode::READ_RESPONSE_FIRST, MTU);
    let overtaken = rig.read_response(2, Opcode::READ_RESPONSE_MIDDLE, MTU);
    assert_eq!(overtaken, ResponseOutcome::Repeating);
    let again = rig.requester.next_packet(rig.now).expect("the read again");
    assert_eq!(again.headers.psn, Psn::new(START).plus(1));
    let remote = RemoteBuffer {
        address: 0x2000 + 1024,
        key: 6,
        length_bytes: 3 * MTU,
    };
    assert_eq!(again.headers.extension, Extension::Remote(remote));
    assert_eq!(rig.sent(), [4]);
    let later = rig.read_response(3, Opcode::READ_RESPONSE_LAST, MTU);
    assert_eq!(later, IGNORED(IgnoredResponse::AfterGap));
    assert_eq!(rig.acknowledge(4), IGNORED(IgnoredResponse::AfterGap));
    assert_eq!(rig.sent(), [0u32; 0]);
    rig.read_response(1, Opcode::READ_RESPONSE_FIRST, MTU);
    rig.read_response(2, Opcode::READ_RESPONSE_MIDDLE, MTU);
    rig.read_response(3, Opcode::READ_RESPONSE_LAST, MTU);
    assert_eq!(rig.completed(), [1]);
    assert_eq!(rig.requester.statistics().missing_read_responses, 1);
}

#[test]
fn no_more_reads_are_outstanding_than_allowed() {
    let mut rig = TimedRequester::new(&config());
    for token in 0..4 {
        rig.post(token, READ, 8);
    }
    assert_eq!(rig.requester.open_reads(), 4);
    assert_eq!(rig.sent(), [0, 1]);
    rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 8);
    assert_eq!(rig.sent(), [2]);
    // going back does not forget those that are asked for again
    rig.wait(TIMEOUT).expect("retries left");
    assert_eq!(rig.sent(), [1, 2]);
    let config = RequesterConfig {
        outstanding_reads: 0,
        ..config()
    };
    let work = WorkRequest {
        token: 0,
        operation: READ,
        length_bytes: 8,
        solicited: false,
    };
    let refused = TimedRequester::new(&config).requester.post(work);
    assert_eq!(refused, Err(PostError::ReadsNotAllowed));
}

#[test]
fn read_responses_that_contradict_the_request_stop_it() {
    use RequesterFaultReason as R;
    let long = R::ResponseLength {
        expected: MTU,
        found: MTU - 1,
    };
    let table = [
        (Opcode::READ_RESPONSE_FIRST, MTU - 1, long),
        (Opcode::READ_RESPONSE_ONLY, MTU, R::ResponseOpcode),
        (Opcode::READ_RESPONSE_LAST, MTU, R::ResponseOpcode),
    ];
    for (opcode, length, reason) in table {
        let mut rig = TimedRequester::new(&config());
        rig.post(1, READ, 2 * MTU);
        rig.sent();
        let outcome = rig.read_response(0, opcode, length);
        let fault = RequesterFault { token: 1, reason };
        assert_eq!(outcome, ResponseOutcome::Fault(fault));
    }
}

#[test]
fn a_read_response_with_a_negative_syndrome_is_no_success() {
    let syndromes = [
        Syndrome::Negative(NegativeCode::REMOTE_ACCESS),
        Syndrome::ReceiverNotReady { timer: 1 },
        Syndrome::Reserved(0x40),
    ];
    for syndrome in syndromes {
        let mut rig = TimedRequester::new(&config());
        rig.post(1, READ, 8);
        rig.sent();
        let answer = Acknowledgement {
            syndrome,
            message_sequence_number: 0,
        };
        let extension = Extension::Acknowledge(answer);
        let outcome = rig.respond(0, Opcode::READ_RESPONSE_ONLY, extension, 8);
        let fault = RequesterFault {
            token: 1,
            reason: RequesterFaultReason::ResponseOpcode,
        };
        assert_eq!(outcome, ResponseOutcome::Fault(fault), "{syndrome:?}");
    }
}

#[test]
fn an_empty_read_completes_without_placement() {
    let mut rig = TimedRequester::new(&config());
    rig.post(1, READ, 0);
    rig.sent();
    let outcome = rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 0);
    assert_eq!(outcome, ResponseOutcome::Acknowledged);
    assert_eq!(rig.completed(), [1]);
}

#[test]
fn the_longest_read_spans_half_of_all_numbers_and_keeps_others_waiting() {
    let mut config = config();
    config.path_mtu = PathMtu::Bytes256;
    let mut rig = TimedRequester::new(&config);
    rig.post(1, READ, MAX_MESSAGE_BYTES);
    rig.post(2, WRITE, 8);
    assert_eq!(rig.sent(), [0]);
    let first = rig.read_response(0, Opcode::READ_RESPONSE_FIRST, 256);
    assert!(matches!(first, ResponseOutcome::Place(_)));
    let next = rig
        .requester
        .next_packet(rig.now)
        .expect("room for one number");
    assert_eq!(next.headers.psn, Psn::new(START).plus(1 << 23));
    let work = WorkRequest {
        length_bytes: MAX_MESSAGE_BYTES + 1,
        ..WORK
    };
    let length_bytes = work.length_bytes;
    assert_eq!(
        rig.requester.post(work),
        Err(PostError::TooLong { length_bytes })
    );
}

const WORK: WorkRequest = WorkRequest {
    token: 0,
    operation: WRITE,
    length_bytes: 8,
    solicited: false,
};

#[test]
fn local_work_completes_in_its_place() {
    let mut rig = TimedRequester::new(&config());
    rig.post(0, Operation::Local, 0);
    assert_eq!(rig.completed(), [0]);
    rig.post(1, WRITE, 8);
    rig.post(2, Operation::Local, 0);
    rig.post(3, Operation::Local, 0);
    rig.post(4, WRITE, 8);
    assert_eq!(rig.sent(), [0, 1]);
    assert_eq!(rig.completed(), [0u32; 0]);
    rig.wait(TIMEOUT).expect("retries left");
    rig.acknowledge(0);
    assert_eq!(rig.completed(), [1, 2, 3]);
    assert_eq!(rig.sent(), [1]);
    rig.acknowledge(1);
    assert_eq!(rig.completed(), [4]);
}

#[test]
fn room_comes_back_with_the_completion_that_is_taken() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(8);
    assert_eq!(
        rig.requester.post(WORK),
        Err(PostError::Full { capacity: 8 })
    );
    rig.sent();
    rig.acknowledge(7);
    assert_eq!(rig.requester.room(), 0);
    assert!(rig.requester.next_completion().is_some());
    assert_eq!(rig.requester.room(), 1);
}

/// Every state x every response: what it does to the number of completions and to sending.
#[test]
fn each_response_means_what_the_state_allows() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Idle,
        WriteSent,
        ReadSent,
        Waiting,
        Stopped,
    }
    use State::{Idle, ReadSent, Stopped, Waiting, WriteSent};
    let build = |state| {
        let mut rig = TimedRequester::new(&config());
        match state {
            Idle => {}
            WriteSent | Waiting => rig.post(1, WRITE, 8),
            ReadSent | Stopped => rig.post(1, READ, 8),
        }
        rig.sent();
        match state {
            Waiting => drop(rig.answer(0, Syndrome::ReceiverNotReady { timer: 12 })),
            Stopped => rig.requester.stop(),
            _ => {}
        }
        rig
    };
    let acknowledge = |rig: &mut TimedRequester| rig.acknowledge(0);
    let sequence =
        |rig: &mut TimedRequester| rig.answer(0, Syndrome::Negative(NegativeCode::SEQUENCE_ERROR));
    let refusal =
        |rig: &mut TimedRequester| rig.answer(0, Syndrome::Negative(NegativeCode::REMOTE_ACCESS));
    let not_ready =
        |rig: &mut TimedRequester| rig.answer(0, Syndrome::ReceiverNotReady { timer: 1 });
    let reserved = |rig: &mut TimedRequester| rig.answer(0, Syndrome::Reserved(0x40));
    let response = |rig: &mut TimedRequester| rig.read_response(0, Opcode::READ_RESPONSE_ONLY, 8);
    let request = |rig: &mut TimedRequester| rig.respond(0, Opcode::SEND_ONLY, Extension::None, 8);
    type Event<'a> = (
        &'a str,
        &'a dyn Fn(&mut TimedRequester) -> ResponseOutcome,
        [char; 5],
    );
    // a acknowledged, r repeating, p place, f fault, i ignored; states in the order of the enum
    let events: [Event<'_>; 7] = [
        ("acknowledge", &acknowledge, ['i', 'a', 'r', 'a', 'i']),
        ("sequence error", &sequence, ['i', 'r', 'r', 'i', 'i']),
        ("refusal", &refusal, ['i', 'f', 'f', 'f', 'i']),
        ("not ready", &not_ready, ['i', 'r', 'r', 'i', 'i']),
        ("reserved", &reserved, ['i', 'i', 'i', 'i', 'i']),
        ("read response", &response, ['i', 'i', 'p', 'i', 'i']),
        ("request", &request, ['i', 'i', 'i', 'i', 'i']),
    ];
    for (name, event, expected) in events {
        for (state, expected) in [Idle, WriteSent, ReadSent, Waiting, Stopped]
            .into_iter()
            .zip(expected)
        {
            let mut rig = build(state);
            let outcome = event(&mut rig);
            let found = match outcome {
                ResponseOutcome::Acknowledged => 'a',
                ResponseOutcome::Repeating => 'r',
                ResponseOutcome::Place(_) => 'p',
                ResponseOutcome::Fault(_) => 'f',
                ResponseOutcome::Ignored(_) => 'i',
            };
            assert_eq!(found, expected, "{name} in {state:?}: {outcome:?}");
            let completions = usize::from(matches!(found, 'a' | 'p'));
            assert_eq!(rig.completed().len(), completions, "{name} in {state:?}");
            let stopped = found == 'f' || state == Stopped;
            assert_eq!(rig.requester.is_stopped(), stopped, "{name} in {state:?}");
        }
    }
}

#[test]
fn random_responses_never_panic_and_complete_nothing_twice() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = RequesterConfig {
            retry_limit: 63,
            not_ready_retry_limit: 7,
            ..config()
        };
        let mut rig = TimedRequester::new(&config);
        let mut next = 0;
        let mut done = Vec::new();
        for _ in 0..300 {
            while rig.requester.room() > 0 && rng.random() {
                let operation = match rng.random_range(0..4) {
                    0 => READ,
                    1 => Operation::Local,
                    2 => Operation::Send,
                    _ => WRITE,
                };
                let length_bytes = rng.random_range(0..5000);
                let work = WorkRequest {
                    token: next,
                    operation,
                    length_bytes,
                    solicited: false,
                };
                if rig.requester.post(work).is_err() {
                    break;
                }
                next += 1;
            }
            rig.sent();
            let (_, oldest) = rig.requester.sequence_numbers();
            let near = oldest.distance_from(Psn::new(START)) as u32;
            let offset = near.wrapping_add(rng.random_range(0..12)).wrapping_sub(2);
            match rng.random_range(0..5) {
                0 | 1 => drop(rig.acknowledge(offset)),
                2 => drop(rig.answer(offset, Syndrome::from_byte(rng.random_range(0..0x61)))),
                3 => {
                    let opcode = Opcode(rng.random_range(0x0D..0x12));
                    let length = if rng.random() {
                        MTU
                    } else {
                        rng.random_range(0..1100)
                    };
                    rig.read_response(offset, opcode, length);
                }
                _ => drop(rig.wait(Duration::from_micros(rng.random_range(0..1500)))),
            }
            done.extend(rig.completed());
        }
        let in_order: Vec<u32> = (0..done.len() as u32).collect();
        assert_eq!(done, in_order, "seed {seed}");
    }
}

/// Packets as they leave one by one, or cut from the runs in which they leave.
fn headers_of(messages: &[(Operation, u32)], run_bytes: u32) -> Vec<TransportHeaders> {
    let mut config = config();
    config.window_packets = 100;
    let mut rig = TimedRequester::new(&config);
    for (token, &(operation, length_bytes)) in messages.iter().enumerate() {
        rig.post(token as u32, operation, length_bytes);
    }
    let mut found = Vec::new();
    while let Some(packet) = rig.requester.next_run(rig.now, run_bytes) {
        assert!(packet.payload.length_bytes <= run_bytes.max(MTU));
        for index in 0..packet.packets {
            found.push(packet.headers.of_run(index, packet.packets));
        }
    }
    found
}

#[test]
fn packets_of_a_run_are_those_that_leave_one_by_one() {
    let read = Operation::Read { address: 0, key: 1 };
    let messages = [
        (WRITE, 40 * MTU),
        (Operation::SendWithImmediate(9), 7 * MTU + 1),
        (read, 3 * MTU),
        (Operation::Send, MTU),
        (Operation::SendWithInvalidate(4), 0),
        (WRITE, 90 * MTU + 3),
    ];
    let apart = headers_of(&messages, 0);
    for run_bytes in [MTU, 3 * MTU + 5, 1 << 16] {
        let together = headers_of(&messages, run_bytes);
        assert_eq!(together.len(), apart.len());
        for (one, other) in together.iter().zip(&apart) {
            let unasked = |headers: &TransportHeaders| TransportHeaders {
                acknowledge_request: false,
                ..*headers
            };
            assert_eq!(unasked(one), unasked(other));
        }
        let asks =
            |all: &[TransportHeaders]| all.last().is_some_and(|last| last.acknowledge_request);
        assert!(
            asks(&apart) && asks(&together),
            "the window is full: an answer is asked for"
        );
    }
    assert_eq!(headers_of(&messages, MTU), apart, "runs of one packet");
}

#[test]
fn other_retries_count_from_the_next_packet_on() {
    let mut rig = TimedRequester::new(&config());
    rig.post_writes(1);
    assert_eq!(rig.sent(), [0]);
    rig.requester.set_retries(1, 0, 5 * TIMEOUT);
    assert_eq!(rig.wait(TIMEOUT), Ok(()), "the wait that had begun");
    assert_eq!(rig.sent(), [0]);
    assert_eq!(rig.wait(5 * TIMEOUT - Duration::from_nanos(1)), Ok(()));
    let fault = rig.wait(Duration::from_nanos(1)).expect_err("one retry");
    assert_eq!(fault.reason, RequesterFaultReason::RetriesExhausted);
}
