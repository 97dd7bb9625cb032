//! Every state of a responder with every packet that can come.
//!
//! The expected results are those of the InfiniBand Architecture Specification volume 1, not of the
//! code: 9.7.4.1.2 (order of opcodes: first, middle, last and only; what a message may not
//! contain), 9.7.4.1.3 (partition key), 9.7.4.1.5 to 9.7.4.1.7 (lengths, receive requests, requests
//! beyond what was agreed), 9.7.1 and 9.7.5.1.2 (packets that come again), 9.7.5.1.1 (one NAK for a
//! gap), 9.7.5.2.8 (receiver not ready), 9.7.5.2.4 to 9.7.5.2.6 (refusals and their codes),
//! 10.3.1.7 (in the error state everything is dropped silently). Atomic operations, which the E810
//! does not have, are requests that make no sense: 9.7.4.1.4. A pair that is missing does not
//! compile.

use super::{FORBIDDEN, MTU, ResponderWithHost, START, headers, write};
use crate::packet::{AtomicRequest, RemoteBuffer};
use crate::responder::*;
use strum::VariantArray;

/// The current transaction of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum State {
    BetweenMessages,
    InSend,
    InWrite,
    AfterGap,
    AfterNotReady,
    ReadsFull,
    Stopped,
}

/// The arriving packet. With the expected number, unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum Arrival {
    SendFirst,
    SendMiddle,
    SendLast,
    SendLastImmediate,
    SendLastInvalidate,
    SendOnly,
    SendOnlyImmediate,
    SendOnlyInvalidate,
    WriteFirst,
    WriteMiddle,
    WriteLast,
    WriteLastImmediate,
    WriteOnly,
    WriteOnlyImmediate,
    ReadRequest,
    CompareSwap,
    FetchAdd,
    SendOnlyWithoutReceive,
    SendOnlyTooLong,
    SendFirstShort,
    SendLastEmpty,
    WriteOnlyForbidden,
    ReadForbidden,
    SendOnlyInvalidateForbidden,
    Ahead,
    WriteAgain,
    ReadAgain,
    TooOld,
    OtherPartition,
    Response,
}

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Carried out; acknowledged.
    Taken,
    /// Carried out, and a receive request is complete; acknowledged.
    Received,
    /// A response is due, in order.
    Answered,
    /// Not carried out; acknowledged again.
    Again,
    /// Not taken; one NAK "sequence error".
    Gap,
    /// Not taken and not answered: the NAK for what is missing has been sent.
    StillGap,
    /// Not taken; RNR NAK.
    NotReady,
    /// Dropped silently.
    Silence,
    /// NAK "invalid request", and the end.
    Invalid,
    /// NAK "remote access", and the end.
    Access,
}

fn expected(state: State, arrival: Arrival) -> Expected {
    match state {
        State::BetweenMessages | State::AfterGap | State::AfterNotReady | State::ReadsFull => {
            between_messages(state, arrival)
        }
        State::InSend => in_send(arrival),
        State::InWrite => in_write(arrival),
        State::Stopped => Expected::Silence,
    }
}

/// Between messages. The missing packet closes an open gap, and a receiver that was not ready is
/// queried again.
fn between_messages(state: State, arrival: Arrival) -> Expected {
    use Arrival as A;
    use Expected as E;
    use State as S;
    match arrival {
        A::SendFirst | A::WriteFirst | A::WriteOnly => E::Taken,
        A::SendOnly | A::SendOnlyImmediate | A::SendOnlyInvalidate | A::WriteOnlyImmediate => {
            E::Received
        }
        A::SendMiddle
        | A::SendLast
        | A::SendLastImmediate
        | A::SendLastInvalidate
        | A::WriteMiddle
        | A::WriteLast
        | A::WriteLastImmediate
        | A::CompareSwap
        | A::FetchAdd
        | A::SendOnlyTooLong
        | A::SendFirstShort
        | A::SendLastEmpty => E::Invalid,
        // more reads than were agreed
        A::ReadRequest | A::ReadForbidden if state == S::ReadsFull => E::Invalid,
        A::ReadRequest => E::Answered,
        A::SendOnlyWithoutReceive => E::NotReady,
        A::WriteOnlyForbidden | A::SendOnlyInvalidateForbidden | A::ReadForbidden => E::Access,
        A::Ahead if matches!(state, S::AfterGap | S::AfterNotReady) => E::StillGap,
        A::Ahead => E::Gap,
        A::WriteAgain => E::Again,
        A::ReadAgain => E::Answered,
        A::TooOld | A::OtherPartition | A::Response => E::Silence,
    }
}

fn in_send(arrival: Arrival) -> Expected {
    use Arrival as A;
    use Expected as E;
    match arrival {
        A::SendMiddle => E::Taken,
        A::SendLast | A::SendLastImmediate | A::SendLastInvalidate => E::Received,
        A::SendFirst
        | A::SendOnly
        | A::SendOnlyImmediate
        | A::SendOnlyInvalidate
        | A::WriteFirst
        | A::WriteMiddle
        | A::WriteLast
        | A::WriteLastImmediate
        | A::WriteOnly
        | A::WriteOnlyImmediate
        | A::ReadRequest
        | A::CompareSwap
        | A::FetchAdd
        | A::SendOnlyWithoutReceive
        | A::SendOnlyTooLong
        | A::SendFirstShort
        | A::SendLastEmpty
        | A::WriteOnlyForbidden
        | A::ReadForbidden
        | A::SendOnlyInvalidateForbidden => E::Invalid,
        A::Ahead => E::Gap,
        A::WriteAgain => E::Again,
        A::ReadAgain => E::Answered,
        A::TooOld | A::OtherPartition | A::Response => E::Silence,
    }
}

fn in_write(arrival: Arrival) -> Expected {
    use Arrival as A;
    use Expected as E;
    match arrival {
        A::WriteMiddle | A::WriteLast => E::Taken,
        A::WriteLastImmediate => E::Received,
        A::SendFirst
        | A::SendMiddle
        | A::SendLast
        | A::SendLastImmediate
        | A::SendLastInvalidate
        | A::SendOnly
        | A::SendOnlyImmediate
        | A::SendOnlyInvalidate
        | A::WriteFirst
        | A::WriteOnly
        | A::WriteOnlyImmediate
        | A::ReadRequest
        | A::CompareSwap
        | A::FetchAdd
        | A::SendOnlyWithoutReceive
        | A::SendOnlyTooLong
        | A::SendFirstShort
        | A::SendLastEmpty
        | A::WriteOnlyForbidden
        | A::ReadForbidden
        | A::SendOnlyInvalidateForbidden => E::Invalid,
        A::Ahead => E::Gap,
        A::WriteAgain => E::Again,
        A::ReadAgain => E::Answered,
        A::TooOld | A::OtherPartition | A::Response => E::Silence,
    }
}

/// A connection that took a write and answered a read, and then came to be in `state`.
fn responder_in(state: State, arrival: Arrival) -> ResponderWithHost {
    let mut rig = ResponderWithHost::new();
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    rig.take(write(START + 1, Opcode::READ_REQUEST, 8), 0);
    rig.answers();
    let next = START + 2;
    match state {
        State::BetweenMessages => {}
        State::InSend => {
            rig.take(write(next, Opcode::SEND_FIRST, 0), MTU);
        }
        State::InWrite => {
            // one more packet is missing, or two
            let middle = arrival == Arrival::WriteMiddle;
            let length = if middle { 3 * MTU } else { MTU + 8 };
            rig.take(write(next, Opcode::WRITE_FIRST, length), MTU);
        }
        State::AfterGap => {
            rig.take(write(next + 1, Opcode::WRITE_ONLY, 8), 8);
        }
        State::AfterNotReady => {
            let receives = std::mem::take(&mut rig.host.receives);
            rig.take(write(next, Opcode::SEND_ONLY, 0), 8);
            rig.host.receives = receives;
        }
        State::ReadsFull => {
            rig.take(write(next, Opcode::READ_REQUEST, 8), 0);
            rig.take(write(next + 1, Opcode::READ_REQUEST, 8), 0);
            return rig;
        }
        State::Stopped => rig.responder.stop(),
    }
    rig.answers();
    rig
}

/// The packet, and its payload's length.
fn packet(arrival: Arrival, state: State, expected: u32) -> (TransportHeaders, u32) {
    use Arrival as A;
    // after the first packet of a write 8 bytes are missing, or two packets
    let last = if state == State::InWrite { 8 } else { MTU };
    let plain = |opcode, length| (write(expected, opcode, length), length);
    let forbidden = |opcode, length_bytes| {
        let remote = RemoteBuffer {
            address: 0,
            key: FORBIDDEN,
            length_bytes,
        };
        headers(expected, opcode, Extension::Remote(remote))
    };
    let invalidating = |opcode, key| headers(expected, opcode, Extension::Invalidate(key));
    let atomic = Extension::Atomic(AtomicRequest {
        address: 0,
        key: 5,
        swap_or_add: 1,
        compare: 2,
    });
    match arrival {
        A::SendFirst => plain(Opcode::SEND_FIRST, MTU),
        A::SendMiddle => plain(Opcode::SEND_MIDDLE, MTU),
        A::SendLast => plain(Opcode::SEND_LAST, 8),
        A::SendLastImmediate => plain(Opcode::SEND_LAST_WITH_IMMEDIATE, 8),
        A::SendLastInvalidate => (invalidating(Opcode::SEND_LAST_WITH_INVALIDATE, 5), 8),
        A::SendOnly | A::SendOnlyWithoutReceive => plain(Opcode::SEND_ONLY, 8),
        A::SendOnlyTooLong => plain(Opcode::SEND_ONLY, 200),
        A::SendFirstShort => plain(Opcode::SEND_FIRST, MTU - 4),
        A::SendLastEmpty => plain(Opcode::SEND_LAST, 0),
        A::SendOnlyImmediate => plain(Opcode::SEND_ONLY_WITH_IMMEDIATE, 8),
        A::SendOnlyInvalidate => (invalidating(Opcode::SEND_ONLY_WITH_INVALIDATE, 5), 8),
        A::SendOnlyInvalidateForbidden => (
            invalidating(Opcode::SEND_ONLY_WITH_INVALIDATE, FORBIDDEN),
            8,
        ),
        A::WriteFirst => (write(expected, Opcode::WRITE_FIRST, 2 * MTU), MTU),
        A::WriteMiddle => plain(Opcode::WRITE_MIDDLE, MTU),
        A::WriteLast => plain(Opcode::WRITE_LAST, last),
        A::WriteLastImmediate => plain(Opcode::WRITE_LAST_WITH_IMMEDIATE, last),
        A::WriteOnly => plain(Opcode::WRITE_ONLY, 8),
        A::WriteOnlyImmediate => plain(Opcode::WRITE_ONLY_WITH_IMMEDIATE, 8),
        A::WriteOnlyForbidden => (forbidden(Opcode::WRITE_ONLY, 8), 8),
        A::ReadRequest => (write(expected, Opcode::READ_REQUEST, 8), 0),
        A::ReadForbidden => (forbidden(Opcode::READ_REQUEST, 8), 0),
        A::CompareSwap => (headers(expected, Opcode::COMPARE_SWAP, atomic), 0),
        A::FetchAdd => (headers(expected, Opcode::FETCH_ADD, atomic), 0),
        A::Ahead => (write(expected + 1, Opcode::WRITE_ONLY, 8), 8),
        A::WriteAgain => (write(START, Opcode::WRITE_ONLY, 8), 8),
        A::ReadAgain => (write(START + 1, Opcode::READ_REQUEST, 8), 0),
        A::TooOld => (write(START - 10, Opcode::WRITE_ONLY, 8), 8),
        A::OtherPartition => {
            let (mut headers, payload) = plain(Opcode::WRITE_ONLY, 8);
            headers.partition_key = 0x8001;
            (headers, payload)
        }
        A::Response => plain(Opcode::READ_RESPONSE_MIDDLE, MTU),
    }
}

/// The result: the outcome, and the last answer to the peer.
fn found(rig: &mut ResponderWithHost, arrival: Arrival, state: State) -> Expected {
    let next = rig.responder.expected_psn().value();
    let (headers, payload) = packet(arrival, state, next);
    match arrival {
        Arrival::SendOnlyWithoutReceive => rig.host.receives = 0,
        Arrival::SendOnlyTooLong => rig.host.capacity_bytes = 100,
        _ => {}
    }
    let waiting = rig.responder.statistics().read_responses_sent;
    let outcome = rig.take(headers, payload);
    let answers = rig.answers();
    let responses = rig.responder.statistics().read_responses_sent - waiting;
    let due = if state == State::ReadsFull { 2 } else { 0 };
    let told = answers.last().and_then(|(_, opcode, syndrome)| {
        (*opcode == Opcode::ACKNOWLEDGE)
            .then_some(*syndrome)
            .flatten()
    });
    match (outcome, told) {
        (RequestOutcome::Accepted { received: None, .. }, None) if responses == due + 1 => {
            Expected::Answered
        }
        (RequestOutcome::Duplicate, None) if responses == due + 1 => Expected::Answered,
        (RequestOutcome::Accepted { received, .. }, Some(Syndrome::Acknowledge { .. })) => {
            match received {
                None => Expected::Taken,
                Some(_) => Expected::Received,
            }
        }
        (RequestOutcome::Duplicate, Some(Syndrome::Acknowledge { .. })) => Expected::Again,
        (RequestOutcome::Gap, Some(Syndrome::Negative(NegativeCode::SEQUENCE_ERROR))) => {
            Expected::Gap
        }
        (RequestOutcome::Gap, None) => Expected::StillGap,
        (RequestOutcome::NotReady, Some(Syndrome::ReceiverNotReady { .. })) => Expected::NotReady,
        (RequestOutcome::Dropped(_), None) => Expected::Silence,
        (RequestOutcome::Fault(_), Some(Syndrome::Negative(NegativeCode::INVALID_REQUEST))) => {
            Expected::Invalid
        }
        (RequestOutcome::Fault(_), Some(Syndrome::Negative(NegativeCode::REMOTE_ACCESS))) => {
            Expected::Access
        }
        other => panic!("{state:?}, {arrival:?}: {other:?}, {answers:?}"),
    }
}

#[test]
fn every_packet_in_every_state_is_answered_as_the_specification_says() {
    for &state in State::VARIANTS {
        for &arrival in Arrival::VARIANTS {
            let mut rig = responder_in(state, arrival);
            let before = rig.responder.expected_psn();
            let wanted = expected(state, arrival);
            assert_eq!(
                found(&mut rig, arrival, state),
                wanted,
                "{state:?}, {arrival:?}"
            );
            let moves = matches!(wanted, Expected::Taken | Expected::Received)
                || (wanted == Expected::Answered && arrival == Arrival::ReadRequest);
            let moved = rig.responder.expected_psn() != before;
            assert_eq!(moved, moves, "{state:?}, {arrival:?}");
            let ends = matches!(wanted, Expected::Invalid | Expected::Access);
            let stopped = rig.responder.is_stopped();
            assert_eq!(
                stopped,
                ends || state == State::Stopped,
                "{state:?}, {arrival:?}"
            );
        }
    }
}
