//! Every state of a requester with every answer, time and call.
//!
//! The expected results are those of the InfiniBand Architecture Specification volume 1, not of the
//! code: 9.7.3 and 9.7.5.1.2 (an answer acknowledges everything before it), 9.7.5.1.3 and 9.7.5.1.4
//! (answers to nothing, and those that come again, are dropped), 9.7.5.2.1 to 9.7.5.2.8 (NAKs, RNR
//! NAKs and their retries), 9.7.6.1 (time), 9.9.2.1 (an acknowledgement that passes over a read
//! means that its response was lost), 9.9.2.3 (responses of the wrong kind or length end the queue
//! pair). A NAK code that a reliable connection does not have counts as "remote operation". A pair
//! that is missing does not compile.

use super::{MTU, START, TIMEOUT, TimedRequester, config};
use crate::packet::{Acknowledgement, NegativeCode, Syndrome};
use crate::requester::*;
use strum::VariantArray;

/// The current transaction of the connection; numbers count packets from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum State {
    /// nothing was posted
    Idle,
    /// a write of three packets, two of them sent: the window is full
    Sending,
    /// two writes of one packet each
    Sent,
    /// a read of two packets was asked for
    ReadSent,
    /// the first of them is here
    ReadPartly,
    /// two writes; the receiver was not ready at the first
    NotReady,
    /// two writes, to be sent again from the first
    Repeating,
    /// two writes, sent as often as they may be
    LastTry,
    /// two writes, given up
    Stopped,
}

/// The effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum Happening {
    AckFirst,
    AckSecond,
    AckUnsent,
    AckOld,
    AckOtherPartition,
    SequenceErrorAtFirst,
    SequenceErrorAtSecond,
    InvalidAtFirst,
    AccessAtFirst,
    OperationAtFirst,
    UnknownNakAtFirst,
    NotReadyAtFirst,
    ReservedSyndrome,
    ReadFirstAtFirst,
    ReadOnlyAtFirst,
    ReadLastAtSecond,
    ReadLastShortAtSecond,
    AtomicAcknowledge,
    Request,
    TimeIsUp,
    TimeIsNotUp,
    Post,
    NextPacket,
}

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Nothing, and the state is what it was.
    Nothing,
    /// Progress; so many work requests complete.
    Completes(u32),
    /// Progress by so many completions, and packets go out again.
    Repeats(u32),
    /// Bytes are placed, and so many complete.
    Places(u32),
    /// The end, for this reason.
    Ends(RequesterFaultReason),
    /// A work request is taken.
    Takes,
    /// This packet leaves.
    Sends(u32),
    /// Never expected: it says that nothing changed, and something did.
    Contradicts,
}

const INVALID: Expected = Expected::Ends(RequesterFaultReason::RemoteInvalidRequest);
const ACCESS: Expected = Expected::Ends(RequesterFaultReason::RemoteAccess);
const OPERATION: Expected = Expected::Ends(RequesterFaultReason::RemoteOperation);
const TRIED_ENOUGH: Expected = Expected::Ends(RequesterFaultReason::RetriesExhausted);
const WRONG_KIND: Expected = Expected::Ends(RequesterFaultReason::ResponseOpcode);
const WRONG_LENGTH: Expected = Expected::Ends(RequesterFaultReason::ResponseLength {
    expected: MTU,
    found: MTU - 4,
});

fn expected(state: State, happening: Happening) -> Expected {
    match state {
        State::Idle => match happening {
            Happening::Post => Expected::Takes,
            _ => Expected::Nothing,
        },
        State::Stopped => Expected::Nothing,
        State::ReadSent => read_sent(happening),
        State::ReadPartly => read_partly(happening),
        State::Sending | State::Sent | State::NotReady | State::Repeating | State::LastTry => {
            writes(state, happening)
        }
    }
}

/// A read waits for its first response.
fn read_sent(happening: Happening) -> Expected {
    use Expected as E;
    use Happening as H;
    match happening {
        // its response was lost
        H::AckFirst | H::AckSecond | H::ReadLastAtSecond | H::ReadLastShortAtSecond => {
            E::Repeats(0)
        }
        H::SequenceErrorAtFirst | H::SequenceErrorAtSecond => E::Repeats(0),
        H::NotReadyAtFirst | H::TimeIsUp => E::Repeats(0),
        H::InvalidAtFirst => INVALID,
        H::AccessAtFirst => ACCESS,
        H::OperationAtFirst | H::UnknownNakAtFirst => OPERATION,
        H::ReadFirstAtFirst => E::Places(0),
        H::ReadOnlyAtFirst => WRONG_KIND,
        H::Post => E::Takes,
        H::AckUnsent
        | H::AckOld
        | H::AckOtherPartition
        | H::ReservedSyndrome
        | H::AtomicAcknowledge
        | H::Request
        | H::TimeIsNotUp
        | H::NextPacket => E::Nothing,
    }
}

/// The first of two responses has arrived.
fn read_partly(happening: Happening) -> Expected {
    use Expected as E;
    use Happening as H;
    match happening {
        // the first number has been answered
        H::AckFirst
        | H::SequenceErrorAtFirst
        | H::InvalidAtFirst
        | H::AccessAtFirst
        | H::OperationAtFirst
        | H::UnknownNakAtFirst
        | H::NotReadyAtFirst
        | H::ReadFirstAtFirst
        | H::ReadOnlyAtFirst => E::Nothing,
        H::AckSecond | H::SequenceErrorAtSecond | H::TimeIsUp => E::Repeats(0),
        H::ReadLastAtSecond => E::Places(1),
        H::ReadLastShortAtSecond => WRONG_LENGTH,
        H::Post => E::Takes,
        H::AckUnsent
        | H::AckOld
        | H::AckOtherPartition
        | H::ReservedSyndrome
        | H::AtomicAcknowledge
        | H::Request
        | H::TimeIsNotUp
        | H::NextPacket => E::Nothing,
    }
}

/// Writes are under way: one of three packets with two sent, or two of one packet each.
fn writes(state: State, happening: Happening) -> Expected {
    use Expected as E;
    use Happening as H;
    use State as S;
    match happening {
        // one message of three packets
        H::AckFirst | H::AckSecond if state == S::Sending => E::Completes(0),
        H::SequenceErrorAtSecond if state == S::Sending => E::Repeats(0),
        H::AckFirst => E::Completes(1),
        H::AckSecond => E::Completes(2),

        // it goes back for this very loss already
        H::SequenceErrorAtFirst if state == S::Repeating => E::Nothing,
        // the packet behind the one that waits was out of order
        H::SequenceErrorAtFirst if state == S::NotReady => E::Nothing,
        // with the last try: the retry that the time-out took is the one for this loss
        H::SequenceErrorAtFirst => E::Repeats(0),
        // the packets before it arrived: that is progress, and the retries count from zero again
        H::SequenceErrorAtSecond => E::Repeats(1),
        H::InvalidAtFirst => INVALID,
        H::AccessAtFirst => ACCESS,
        H::OperationAtFirst | H::UnknownNakAtFirst => OPERATION,
        // nothing was sent since the first of them: it is a copy
        H::NotReadyAtFirst if state == S::NotReady => E::Nothing,
        // its retries have a count of their own
        H::NotReadyAtFirst => E::Repeats(0),

        // no read waits for them
        H::ReadFirstAtFirst
        | H::ReadOnlyAtFirst
        | H::ReadLastAtSecond
        | H::ReadLastShortAtSecond => E::Nothing,

        H::TimeIsUp if state == S::LastTry => TRIED_ENOUGH,
        // nothing was sent again yet, so there is nothing to wait for
        H::TimeIsUp if matches!(state, S::NotReady | S::Repeating) => E::Nothing,
        H::TimeIsUp => E::Repeats(0),

        H::Post => E::Takes,
        H::NextPacket if state == S::Repeating => E::Sends(0),
        H::AckUnsent
        | H::AckOld
        | H::AckOtherPartition
        | H::ReservedSyndrome
        | H::AtomicAcknowledge
        | H::Request
        | H::TimeIsNotUp
        | H::NextPacket => E::Nothing,
    }
}

const WRITE: Operation = Operation::Write {
    address: 64,
    key: 1,
};
const READ: Operation = Operation::Read {
    address: 64,
    key: 1,
};

fn acknowledge(rig: &mut TimedRequester, position: u32, syndrome: Syndrome) -> ResponseOutcome {
    respond(rig, position, Opcode::ACKNOWLEDGE, Some(syndrome), 0)
}

fn respond(
    rig: &mut TimedRequester,
    position: u32,
    opcode: Opcode,
    syndrome: Option<Syndrome>,
    payload_bytes: u32,
) -> ResponseOutcome {
    let extension = match syndrome {
        Some(syndrome) => Extension::Acknowledge(Acknowledgement {
            syndrome,
            message_sequence_number: 0,
        }),
        None => Extension::None,
    };
    let headers = TransportHeaders {
        opcode,
        extension,
        psn: Psn::new(START).plus(position),
        ..rig.requester.settings.template
    };
    let now = rig.now;
    rig.requester.on_response(now, &headers, payload_bytes)
}

const POSITIVE: Syndrome = Syndrome::Acknowledge { credits: 31 };

fn requester_in(state: State) -> TimedRequester {
    let mut config = config();
    config.window_packets = 2;
    config.retry_limit = if state == State::LastTry { 1 } else { 3 };
    let mut rig = TimedRequester::new(&config);
    match state {
        State::Idle => return rig,
        State::Sending => rig.post(0, WRITE, 3 * MTU),
        State::ReadSent | State::ReadPartly => rig.post(0, READ, 2 * MTU),
        State::Sent | State::NotReady | State::Repeating | State::LastTry | State::Stopped => {
            rig.post_writes(2);
        }
    }
    rig.sent();
    let first = Opcode::READ_RESPONSE_FIRST;
    match state {
        State::Idle | State::Sending | State::Sent | State::ReadSent => {}
        State::ReadPartly => drop(respond(&mut rig, 0, first, Some(POSITIVE), MTU)),
        State::NotReady => {
            acknowledge(&mut rig, 0, Syndrome::ReceiverNotReady { timer: 12 });
        }
        State::Repeating => {
            let missing = Syndrome::Negative(NegativeCode::SEQUENCE_ERROR);
            acknowledge(&mut rig, 0, missing);
        }
        State::LastTry => {
            rig.now = rig.now.plus(TIMEOUT);
            assert_eq!(rig.requester.on_time(rig.now), Ok(()));
            rig.sent();
        }
        State::Stopped => rig.requester.stop(),
    }
    rig
}

/// The outside view of a requester.
fn seen(requester: &Requester) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        requester.sequence_numbers(),
        requester.room(),
        requester.oldest(),
        requester.open_reads(),
        requester.deadline(),
        requester.is_stopped(),
    )
}

fn found(rig: &mut TimedRequester, happening: Happening) -> Expected {
    use Happening as H;
    let before = seen(&rig.requester);
    let nak = |code| Syndrome::Negative(NegativeCode(code));
    let read = |rig: &mut TimedRequester, position, opcode, bytes| {
        respond(rig, position, opcode, Some(POSITIVE), bytes)
    };
    let outcome = match happening {
        H::AckFirst => acknowledge(rig, 0, POSITIVE),
        H::AckSecond => acknowledge(rig, 1, POSITIVE),
        H::AckUnsent => acknowledge(rig, 5, POSITIVE),
        H::AckOld => acknowledge(rig, Psn::MODULUS - 1, POSITIVE),
        H::AckOtherPartition => {
            let ours =
                std::mem::replace(&mut rig.requester.settings.template.partition_key, 0x8001);
            let headers = TransportHeaders {
                opcode: Opcode::ACKNOWLEDGE,
                extension: Extension::Acknowledge(Acknowledgement {
                    syndrome: POSITIVE,
                    message_sequence_number: 0,
                }),
                psn: Psn::new(START),
                ..rig.requester.settings.template
            };
            rig.requester.settings.template.partition_key = ours;
            rig.requester.on_response(rig.now, &headers, 0)
        }
        H::SequenceErrorAtFirst => acknowledge(rig, 0, nak(0)),
        H::SequenceErrorAtSecond => acknowledge(rig, 1, nak(0)),
        H::InvalidAtFirst => acknowledge(rig, 0, nak(1)),
        H::AccessAtFirst => acknowledge(rig, 0, nak(2)),
        H::OperationAtFirst => acknowledge(rig, 0, nak(3)),
        H::UnknownNakAtFirst => acknowledge(rig, 0, nak(9)),
        H::NotReadyAtFirst => acknowledge(rig, 0, Syndrome::ReceiverNotReady { timer: 12 }),
        H::ReservedSyndrome => acknowledge(rig, 0, Syndrome::Reserved(0xE0)),
        H::ReadFirstAtFirst => read(rig, 0, Opcode::READ_RESPONSE_FIRST, MTU),
        H::ReadOnlyAtFirst => read(rig, 0, Opcode::READ_RESPONSE_ONLY, MTU),
        H::ReadLastAtSecond => read(rig, 1, Opcode::READ_RESPONSE_LAST, MTU),
        H::ReadLastShortAtSecond => read(rig, 1, Opcode::READ_RESPONSE_LAST, MTU - 4),
        H::AtomicAcknowledge => read(rig, 0, Opcode::ATOMIC_ACKNOWLEDGE, 0),
        H::Request => respond(rig, 0, Opcode::SEND_ONLY, None, 8),
        H::TimeIsUp | H::TimeIsNotUp => return on_time(rig, happening),
        H::Post => {
            let work = WorkRequest {
                token: 7,
                operation: WRITE,
                length_bytes: 8,
                solicited: false,
            };
            return match rig.requester.post(work) {
                Ok(()) => Expected::Takes,
                Err(_) => Expected::Nothing,
            };
        }
        H::NextPacket => {
            return match rig.requester.next_packet(rig.now) {
                Some(packet) => {
                    Expected::Sends(packet.headers.psn.distance_from(Psn::new(START)) as u32)
                }
                None => Expected::Nothing,
            };
        }
    };
    let unchanged = seen(&rig.requester) == before;
    let completed = std::iter::from_fn(|| rig.requester.next_completion()).count() as u32;
    match outcome {
        ResponseOutcome::Ignored(_) => {
            if unchanged && completed == 0 {
                Expected::Nothing
            } else {
                Expected::Contradicts
            }
        }
        ResponseOutcome::Acknowledged => Expected::Completes(completed),
        ResponseOutcome::Repeating => Expected::Repeats(completed),
        ResponseOutcome::Place(_) => Expected::Places(completed),
        ResponseOutcome::Fault(fault) => {
            assert_eq!(completed, 0);
            Expected::Ends(fault.reason)
        }
    }
}

fn on_time(rig: &mut TimedRequester, happening: Happening) -> Expected {
    let before = rig.requester.statistics().timeouts;
    if happening == Happening::TimeIsUp
        && let Some(deadline) = rig.requester.deadline()
    {
        rig.now = deadline;
    }
    match rig.requester.on_time(rig.now) {
        Ok(()) if rig.requester.statistics().timeouts == before => Expected::Nothing,
        Ok(()) => Expected::Repeats(0),
        Err(fault) => Expected::Ends(fault.reason),
    }
}

#[test]
fn every_happening_in_every_state_ends_as_the_specification_says() {
    let mut wrong = Vec::new();
    for &state in State::VARIANTS {
        for &happening in Happening::VARIANTS {
            let mut rig = requester_in(state);
            let wanted = expected(state, happening);
            let outcome = found(&mut rig, happening);
            if outcome != wanted {
                wrong.push(format!(
                    "{state:?}, {happening:?}: {outcome:?}, not {wanted:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
