mod short;
mod table;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::RETRY_FOREVER;
use crate::packet::{AtomicRequest, QpNumber, RemoteBuffer};

pub(super) const START: u32 = 100;
pub(super) const MTU: u32 = 1024;

/// Grants everything except one key, and has a given number of receive requests.
pub(super) struct Host {
    pub(super) receives: u32,
    pub(super) capacity_bytes: u32,
    grants: u32,
    malformed: bool,
    forbids: Option<RemoteRight>,
}

pub(super) const FORBIDDEN: u32 = 0xBAD;

impl ResponderHost for Host {
    type Grant = u32;

    fn allows(&self, right: RemoteRight) -> bool {
        self.forbids != Some(right)
    }

    fn grant(&mut self, key: u32, _: u64, _: u32, _: RemoteRight) -> Result<u32, AccessFault> {
        self.grants += 1;
        if key == FORBIDDEN {
            Err(AccessFault::Rights)
        } else {
            Ok(key)
        }
    }

    fn take_receive(&mut self) -> Receive {
        if self.malformed {
            return Receive::Malformed { code: 0x020C };
        }
        match self.receives.checked_sub(1) {
            Some(left) => {
                self.receives = left;
                Receive::Ready {
                    token: left,
                    capacity_bytes: self.capacity_bytes,
                }
            }
            None => Receive::Empty,
        }
    }

    fn may_invalidate(&mut self, key: u32) -> Result<(), AccessFault> {
        if key == FORBIDDEN {
            Err(AccessFault::BadProtectionDomain)
        } else {
            Ok(())
        }
    }
}

pub(super) struct ResponderWithHost {
    pub(super) responder: Responder<u32>,
    pub(super) host: Host,
}

impl ResponderWithHost {
    pub(super) fn new() -> Self {
        let mut config =
            ResponderConfig::new(QpNumber::new(7), PathMtu::Bytes1024, Psn::new(START));
        config.inbound_reads = 2;
        Self {
            responder: Responder::new(&config),
            host: Host {
                receives: 10,
                capacity_bytes: 4096,
                grants: 0,
                malformed: false,
                forbids: None,
            },
        }
    }

    pub(super) fn take(
        &mut self,
        headers: TransportHeaders,
        payload_bytes: u32,
    ) -> RequestOutcome<u32> {
        self.responder
            .on_request(&headers, payload_bytes, &mut self.host)
    }

    /// The answers that are due: PSN, opcode and syndrome.
    pub(super) fn answers(&mut self) -> Vec<(u32, Opcode, Option<Syndrome>)> {
        std::iter::from_fn(|| self.responder.next_packet())
            .map(|packet| {
                let syndrome = match packet.headers.extension {
                    Extension::Acknowledge(answer) => Some(answer.syndrome),
                    _ => None,
                };
                (packet.headers.psn.value(), packet.headers.opcode, syndrome)
            })
            .collect()
    }
}

pub(super) fn headers(psn: u32, opcode: Opcode, extension: Extension) -> TransportHeaders {
    TransportHeaders {
        opcode,
        solicited: false,
        migrated: true,
        partition_key: 0xFFFF,
        forward_congestion: false,
        backward_congestion: false,
        destination_qp: QpNumber::new(1),
        acknowledge_request: true,
        psn: Psn::new(psn),
        extension,
    }
}

pub(super) fn write(psn: u32, opcode: Opcode, length_bytes: u32) -> TransportHeaders {
    let extension = match opcode.extension_kind() {
        crate::packet::ExtensionKind::Remote => Extension::Remote(RemoteBuffer {
            address: 0x1000,
            key: 5,
            length_bytes,
        }),
        crate::packet::ExtensionKind::RemoteImmediate => Extension::RemoteImmediate(
            RemoteBuffer {
                address: 0x1000,
                key: 5,
                length_bytes,
            },
            9,
        ),
        crate::packet::ExtensionKind::Immediate => Extension::Immediate(9),
        _ => Extension::None,
    };
    headers(psn, opcode, extension)
}

fn read(psn: u32, length_bytes: u32) -> TransportHeaders {
    write(psn, Opcode::READ_REQUEST, length_bytes)
}

const ACKNOWLEDGED: Option<Syndrome> = Some(Syndrome::Acknowledge { credits: 31 });

fn negative(code: NegativeCode) -> Option<Syndrome> {
    Some(Syndrome::Negative(code))
}

#[test]
fn responder_sends_one_nak_per_gap() {
    let mut rig = ResponderWithHost::new();
    for psn in START + 1..START + 20 {
        assert_eq!(
            rig.take(write(psn, Opcode::WRITE_ONLY, 8), 8),
            RequestOutcome::Gap
        );
        let expected = if psn == START + 1 {
            vec![(
                START,
                Opcode::ACKNOWLEDGE,
                negative(NegativeCode::SEQUENCE_ERROR),
            )]
        } else {
            vec![]
        };
        assert_eq!(rig.answers(), expected, "psn {psn}");
    }
    let filled = rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    assert!(matches!(filled, RequestOutcome::Accepted { .. }));
    assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, ACKNOWLEDGED)]);
    rig.take(write(START + 5, Opcode::WRITE_ONLY, 8), 8);
    let next_gap = (
        START + 1,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::SEQUENCE_ERROR),
    );
    assert_eq!(rig.answers(), [next_gap]);
    assert_eq!(rig.responder.statistics().gaps, 2);
}

#[test]
fn a_nak_that_has_not_left_is_void_once_the_gap_is_filled() {
    let mut rig = ResponderWithHost::new();
    rig.take(write(START + 1, Opcode::WRITE_ONLY, 8), 8);
    let mut unasked = write(START, Opcode::WRITE_ONLY, 8);
    unasked.acknowledge_request = false;
    rig.take(unasked, 8);
    assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, ACKNOWLEDGED)]);
}

#[test]
fn a_duplicate_does_not_take_the_place_of_a_nak() {
    let mut rig = ResponderWithHost::new();
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    rig.answers();
    rig.take(write(START + 2, Opcode::WRITE_ONLY, 8), 8);
    let outcome = rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    assert_eq!(outcome, RequestOutcome::Duplicate);
    let nak = negative(NegativeCode::SEQUENCE_ERROR);
    assert_eq!(rig.answers(), [(START + 1, Opcode::ACKNOWLEDGE, nak)]);
}

#[test]
fn the_number_of_messages_has_24_bits() {
    let mut rig = ResponderWithHost::new();
    rig.responder.message_sequence_number = Psn::MODULUS - 1;
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    let packet = rig.responder.next_packet().expect("an acknowledgement");
    let Extension::Acknowledge(answer) = packet.headers.extension else {
        panic!("{packet:?}");
    };
    assert_eq!(answer.message_sequence_number, 0);
}

#[test]
fn a_read_that_fills_the_gap_voids_the_nak_too() {
    let mut rig = ResponderWithHost::new();
    rig.take(write(START + 1, Opcode::WRITE_ONLY, 8), 8);
    rig.take(read(START, 8), 0);
    let response = (START, Opcode::READ_RESPONSE_ONLY, ACKNOWLEDGED);
    assert_eq!(rig.answers(), [response]);
}

#[test]
fn acknowledgements_of_a_burst_are_one() {
    let mut rig = ResponderWithHost::new();
    for psn in START..START + 32 {
        rig.take(write(psn, Opcode::WRITE_ONLY, 8), 8);
    }
    let packet = rig.responder.next_packet().expect("an acknowledgement");
    let Extension::Acknowledge(answer) = packet.headers.extension else {
        panic!("no AETH")
    };
    assert_eq!(packet.headers.psn.value(), START + 31);
    assert_eq!(answer.message_sequence_number, 32);
    assert_eq!(rig.answers(), []);
}

#[test]
fn packets_that_ask_for_no_acknowledgement_get_none() {
    let mut rig = ResponderWithHost::new();
    let mut first = write(START, Opcode::WRITE_FIRST, 3 * MTU);
    first.acknowledge_request = false;
    rig.take(first, MTU);
    assert_eq!(rig.answers(), []);
}

#[test]
fn a_write_lands_piece_by_piece_after_one_check() {
    let mut rig = ResponderWithHost::new();
    let pieces = [
        (Opcode::WRITE_FIRST, MTU),
        (Opcode::WRITE_MIDDLE, MTU),
        (Opcode::WRITE_LAST_WITH_IMMEDIATE, 17),
    ];
    let total = 2 * MTU + 17;
    for (index, (opcode, length_bytes)) in pieces.into_iter().enumerate() {
        let index = index as u32;
        let outcome = rig.take(write(START + index, opcode, total), length_bytes);
        let address = 0x1000 + u64::from(index * MTU);
        let received = (index == 2).then_some(Received {
            token: 9,
            length_bytes: total,
            opcode,
            immediate: Some(9),
            invalidated: None,
            solicited: false,
        });
        let placement = Some(Placement::Remote {
            grant: 5,
            address,
            length_bytes,
        });
        assert_eq!(
            outcome,
            RequestOutcome::Accepted {
                placement,
                received
            }
        );
    }
    assert_eq!(rig.host.grants, 1);
}

#[test]
fn a_duplicate_is_acknowledged_again_and_not_carried_out_again() {
    let mut rig = ResponderWithHost::new();
    for psn in START..START + 3 {
        rig.take(write(psn, Opcode::SEND_ONLY, 8), 8);
    }
    rig.answers();
    let (receives, grants) = (rig.host.receives, rig.host.grants);
    let outcome = rig.take(write(START, Opcode::SEND_ONLY, 8), 8);
    assert_eq!(outcome, RequestOutcome::Duplicate);
    assert_eq!(
        rig.answers(),
        [(START + 2, Opcode::ACKNOWLEDGE, ACKNOWLEDGED)]
    );
    assert_eq!((rig.host.receives, rig.host.grants), (receives, grants));
}

#[test]
fn packets_from_before_the_connection_are_dropped() {
    let mut rig = ResponderWithHost::new();
    let stale = rig.take(write(START - 1, Opcode::WRITE_ONLY, 8), 8);
    assert_eq!(stale, RequestOutcome::Dropped(DropReason::OutOfWindow));
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    let stale = rig.take(write(START - 1, Opcode::WRITE_ONLY, 8), 8);
    assert_eq!(stale, RequestOutcome::Dropped(DropReason::OutOfWindow));
    assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, ACKNOWLEDGED)]);
}

#[test]
fn reads_are_answered_in_order_before_the_acknowledgement_of_what_follows() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 2 * MTU + 1), 0);
    rig.take(read(START + 3, 0), 0);
    rig.take(write(START + 4, Opcode::WRITE_ONLY, 8), 8);
    let expected = [
        (START, Opcode::READ_RESPONSE_FIRST, ACKNOWLEDGED),
        (START + 1, Opcode::READ_RESPONSE_MIDDLE, None),
        (START + 2, Opcode::READ_RESPONSE_LAST, ACKNOWLEDGED),
        (START + 3, Opcode::READ_RESPONSE_ONLY, ACKNOWLEDGED),
        (START + 4, Opcode::ACKNOWLEDGE, ACKNOWLEDGED),
    ];
    assert_eq!(rig.answers(), expected);
}

#[test]
fn a_read_is_answered_again_from_its_middle() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 4 * MTU), 0);
    assert_eq!(rig.answers().len(), 4);
    let mut again = read(START + 2, 2 * MTU);
    again.extension = Extension::Remote(RemoteBuffer {
        address: 0x1000 + 2048,
        key: 5,
        length_bytes: 2 * MTU,
    });
    assert_eq!(rig.take(again, 0), RequestOutcome::Duplicate);
    let first = rig.responder.next_packet().expect("the response");
    assert_eq!(first.headers.opcode, Opcode::READ_RESPONSE_FIRST);
    let bytes = RemoteBytes {
        grant: 5,
        address: 0x1000 + 2048,
        length_bytes: MTU,
    };
    assert_eq!(first.payload, Some(bytes));
    assert_eq!(
        rig.answers(),
        [(START + 3, Opcode::READ_RESPONSE_LAST, ACKNOWLEDGED)]
    );
    assert_eq!(rig.responder.expected_psn(), Psn::new(START + 4));
}

#[test]
fn a_duplicate_read_whose_response_is_still_to_come_changes_nothing() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 2 * MTU), 0);
    assert_eq!(rig.take(read(START, 2 * MTU), 0), RequestOutcome::Duplicate);
    assert_eq!(rig.answers().len(), 2);
}

#[test]
fn a_duplicate_read_is_answered_before_later_reads_that_wait() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, MTU), 0);
    rig.answers();
    rig.take(read(START + 1, MTU), 0);
    rig.take(read(START, MTU), 0);
    let psns: Vec<u32> = rig.answers().iter().map(|answer| answer.0).collect();
    assert_eq!(psns, [START, START + 1]);
}

/// Takes the answers to reads from their own numbers on, each once.
fn assert_read_answers(rig: &mut ResponderWithHost, psns: std::ops::Range<u32>) {
    let sent: Vec<u32> = rig.answers().iter().map(|answer| answer.0).collect();
    assert_eq!(sent, psns.collect::<Vec<_>>());
}

#[test]
fn a_response_that_goes_back_takes_no_place_of_a_further_read() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 8 * MTU), 0);
    for _ in 0..4 {
        rig.responder.next_packet().expect("a response");
    }
    // The second packet was lost; the peer has one read outstanding, and may have two.
    for _ in 0..3 {
        let again = rig.take(read(START + 1, 7 * MTU), 0);
        assert_eq!(again, RequestOutcome::Duplicate);
    }
    let second = rig.take(read(START + 8, MTU), 0);
    assert!(
        matches!(second, RequestOutcome::Accepted { .. }),
        "{second:?}"
    );
    assert_read_answers(&mut rig, START + 1..START + 9);
    assert_eq!(rig.responder.statistics().duplicates, 3);
}

#[test]
fn repetitions_of_finished_reads_take_no_place_of_further_reads() {
    let mut rig = ResponderWithHost::new();
    for psn in START..START + 3 {
        rig.take(read(psn, MTU), 0);
        rig.answers();
    }
    // The wire was slow with copies of all three; two wait, as many as reads may be outstanding.
    let outcomes = [0, 1, 2].map(|later| rig.take(read(START + later, MTU), 0));
    let too_many = RequestOutcome::Dropped(DropReason::DuplicateRead);
    assert_eq!(
        outcomes,
        [
            RequestOutcome::Duplicate,
            RequestOutcome::Duplicate,
            too_many
        ]
    );
    for psn in START + 3..START + 5 {
        let next = rig.take(read(psn, MTU), 0);
        assert!(matches!(next, RequestOutcome::Accepted { .. }), "{next:?}");
    }
    let third = rig.take(read(START + 5, MTU), 0);
    assert_eq!(third, RequestOutcome::Fault(ResponderFault::TooManyReads));
}

#[test]
fn the_places_of_repetitions_are_free_once_they_were_answered() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, MTU), 0);
    rig.answers();
    for _ in 0..5 {
        for _ in 0..2 {
            assert_eq!(rig.take(read(START, MTU), 0), RequestOutcome::Duplicate);
        }
        assert_read_answers(&mut rig, START..START + 1);
    }
}

#[test]
fn a_duplicate_read_is_checked_again_and_may_not_reach_further_than_the_first() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, MTU), 0);
    rig.answers();
    let longer = rig.take(read(START, 2 * MTU), 0);
    assert_eq!(longer, RequestOutcome::Dropped(DropReason::OutOfWindow));
    let mut foreign = read(START, MTU);
    foreign.extension = Extension::Remote(RemoteBuffer {
        address: 0,
        key: FORBIDDEN,
        length_bytes: MTU,
    });
    let refused = rig.take(foreign, 0);
    assert_eq!(refused, RequestOutcome::Dropped(DropReason::DuplicateRead));
    assert_eq!(rig.answers(), []);
    assert!(!rig.responder.is_stopped());
}

#[test]
fn a_send_without_receive_request_is_asked_to_wait_once_and_is_taken_later() {
    let mut rig = ResponderWithHost::new();
    rig.host.receives = 0;
    let outcome = rig.take(write(START, Opcode::SEND_ONLY, 8), 8);
    assert_eq!(outcome, RequestOutcome::NotReady);
    rig.take(write(START + 1, Opcode::SEND_ONLY, 8), 8);
    let not_ready = Some(Syndrome::ReceiverNotReady { timer: 12 });
    assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, not_ready)]);
    rig.host.receives = 1;
    let outcome = rig.take(write(START, Opcode::SEND_ONLY, 8), 8);
    assert!(matches!(
        outcome,
        RequestOutcome::Accepted {
            received: Some(_),
            ..
        }
    ));
    assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, ACKNOWLEDGED)]);
}

#[test]
fn a_write_with_immediate_waits_for_its_receive_request_at_the_last_packet() {
    let mut rig = ResponderWithHost::new();
    rig.host.receives = 0;
    rig.take(write(START, Opcode::WRITE_FIRST, MTU + 1), MTU);
    let last = write(START + 1, Opcode::WRITE_LAST_WITH_IMMEDIATE, 0);
    assert_eq!(rig.take(last, 1), RequestOutcome::NotReady);
    rig.host.receives = 1;
    let outcome = rig.take(last, 1);
    assert!(matches!(
        outcome,
        RequestOutcome::Accepted {
            received: Some(_),
            ..
        }
    ));
}

#[test]
fn messages_of_no_bytes_are_messages() {
    let mut rig = ResponderWithHost::new();
    let opcodes = [
        Opcode::SEND_ONLY,
        Opcode::WRITE_ONLY,
        Opcode::WRITE_ONLY_WITH_IMMEDIATE,
    ];
    for (index, opcode) in opcodes.into_iter().enumerate() {
        let outcome = rig.take(write(START + index as u32, opcode, 0), 0);
        let RequestOutcome::Accepted {
            placement: None,
            received,
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!(received.is_some(), opcode != Opcode::WRITE_ONLY);
    }
    assert_eq!(rig.host.grants, 0, "an empty message needs no key");
}

/// The faults that stop it, with the answer to the peer and the report.
#[test]
fn every_malformed_request_is_refused_with_its_nak_and_fault() {
    use NegativeCode as N;
    use ResponderFault as F;
    let forbidden = |opcode| {
        let extension = Extension::Remote(RemoteBuffer {
            address: 0,
            key: FORBIDDEN,
            length_bytes: 8,
        });
        headers(START, opcode, extension)
    };
    let atomic = Extension::Atomic(AtomicRequest {
        address: 0,
        key: 5,
        swap_or_add: 0,
        compare: 0,
    });
    let invalidate = headers(
        START,
        Opcode::SEND_ONLY_WITH_INVALIDATE,
        Extension::Invalidate(FORBIDDEN),
    );
    let first = |opcode, total| write(START, opcode, total);
    let huge = first(Opcode::WRITE_FIRST, u32::MAX);
    let table = [
        (
            first(Opcode::WRITE_MIDDLE, 0),
            MTU,
            N::INVALID_REQUEST,
            F::BadOpcode,
        ),
        (
            first(Opcode::WRITE_LAST, 0),
            1,
            N::INVALID_REQUEST,
            F::BadOpcode,
        ),
        (
            first(Opcode::SEND_MIDDLE, 0),
            MTU,
            N::INVALID_REQUEST,
            F::BadOpcode,
        ),
        (
            first(Opcode::SEND_LAST, 0),
            1,
            N::INVALID_REQUEST,
            F::BadOpcode,
        ),
        (
            first(Opcode::SEND_FIRST, 0),
            MTU - 1,
            N::INVALID_REQUEST,
            F::BadLength { found: MTU - 1 },
        ),
        (
            first(Opcode::SEND_ONLY, 0),
            MTU + 1,
            N::INVALID_REQUEST,
            F::BadLength { found: MTU + 1 },
        ),
        (
            first(Opcode::WRITE_ONLY, 9),
            8,
            N::INVALID_REQUEST,
            F::BadWriteLength,
        ),
        (
            first(Opcode::WRITE_FIRST, MTU),
            MTU,
            N::INVALID_REQUEST,
            F::BadWriteLength,
        ),
        (huge, MTU, N::INVALID_REQUEST, F::BadWriteLength),
        (
            forbidden(Opcode::WRITE_ONLY),
            8,
            N::REMOTE_ACCESS,
            F::RemoteAccess(AccessFault::Rights),
        ),
        (
            forbidden(Opcode::READ_REQUEST),
            0,
            N::REMOTE_ACCESS,
            F::RemoteAccess(AccessFault::Rights),
        ),
        (read(START, 8), 1, N::INVALID_REQUEST, F::BadReadRequest),
        (
            read(START, u32::MAX),
            0,
            N::INVALID_REQUEST,
            F::BadReadRequest,
        ),
        (
            headers(START, Opcode::FETCH_ADD, atomic),
            0,
            N::INVALID_REQUEST,
            F::BadOpcode,
        ),
        (
            invalidate,
            8,
            N::REMOTE_ACCESS,
            F::Invalidate(AccessFault::BadProtectionDomain),
        ),
    ];
    for (request, payload_bytes, code, expected) in table {
        let mut rig = ResponderWithHost::new();
        let outcome = rig.take(request, payload_bytes);
        let RequestOutcome::Fault(fault) = outcome else {
            panic!("{request:?}: {outcome:?}")
        };
        assert_eq!(fault, expected, "{request:?}");
        let nak = (START, Opcode::ACKNOWLEDGE, negative(code));
        assert_eq!(rig.answers(), [nak], "{request:?}");
        let after = rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
        assert_eq!(after, RequestOutcome::Dropped(DropReason::Stopped));
    }
}

/// Source: InfiniBand Architecture Specification volume 1, 9.7.4.1: the opcode is checked before
/// length and key; a request that the queue pair does not take is an invalid one.
#[test]
fn a_request_that_the_queue_pair_does_not_take_is_invalid_whatever_its_length_and_key() {
    for length in [0, 8] {
        for (request, payload, right) in [
            (
                write(START, Opcode::WRITE_ONLY, length),
                length,
                RemoteRight::Write,
            ),
            (read(START, length), 0, RemoteRight::Read),
        ] {
            let mut rig = ResponderWithHost::new();
            rig.host.forbids = Some(right);
            let outcome = rig.take(request, payload);
            let fault = RequestOutcome::Fault(ResponderFault::BadOpcode);
            assert_eq!(outcome, fault, "{request:?}");
            let refusal = negative(NegativeCode::INVALID_REQUEST);
            assert_eq!(rig.answers(), [(START, Opcode::ACKNOWLEDGE, refusal)]);
            assert_eq!(rig.host.grants, 0, "the key is not looked at");
        }
    }
}

#[test]
fn a_message_that_outgrows_its_receive_request_is_refused() {
    let mut rig = ResponderWithHost::new();
    rig.host.capacity_bytes = MTU + 5;
    rig.take(write(START, Opcode::SEND_FIRST, 0), MTU);
    let outcome = rig.take(write(START + 1, Opcode::SEND_LAST, 0), 6);
    let fault = ResponderFault::MessageTooLong {
        capacity_bytes: MTU + 5,
    };
    assert_eq!(outcome, RequestOutcome::Fault(fault));
    assert_eq!(
        rig.responder.open_receive(),
        Some(9),
        "a flush starts there"
    );
    assert_eq!(rig.responder.take_open_receive(), Some(9));
    assert_eq!(
        rig.responder.take_open_receive(),
        None,
        "a flush names it once"
    );
    let nak = (
        START + 1,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::INVALID_REQUEST),
    );
    assert_eq!(rig.answers(), [nak]);
}

#[test]
fn a_malformed_receive_request_stops_it() {
    let mut rig = ResponderWithHost::new();
    rig.host.malformed = true;
    let outcome = rig.take(write(START, Opcode::SEND_ONLY, 8), 8);
    let RequestOutcome::Fault(fault) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(fault, ResponderFault::BadReceiveRequest { code: 0x020C });
}

#[test]
fn more_reads_than_allowed_are_refused_after_the_others_were_answered() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 1), 0);
    rig.take(read(START + 1, 1), 0);
    let outcome = rig.take(read(START + 2, 1), 0);
    assert_eq!(outcome, RequestOutcome::Fault(ResponderFault::TooManyReads));
    let answers = rig.answers();
    assert_eq!(answers.len(), 3);
    let nak = (
        START + 2,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::INVALID_REQUEST),
    );
    assert_eq!(answers[2], nak);
}

fn placement(outcome: &RequestOutcome<u32>) -> Placement<u32> {
    match *outcome {
        RequestOutcome::Accepted {
            placement: Some(placement),
            ..
        } => placement,
        _ => panic!("{outcome:?}"),
    }
}

/// A driver reads the event and fails the queue pair before the NAK has left: the peer would wait
/// for it until its retries are used up.
#[test]
fn a_refusal_outlives_the_end_of_its_responder() {
    let forbidden = RemoteBuffer {
        address: 0,
        key: FORBIDDEN,
        length_bytes: 8,
    };
    let refused = |at| headers(at, Opcode::READ_REQUEST, Extension::Remote(forbidden));
    let nak = |at| {
        (
            at,
            Opcode::ACKNOWLEDGE,
            negative(NegativeCode::REMOTE_ACCESS),
        )
    };
    let mut rig = ResponderWithHost::new();
    rig.take(refused(START), 0);
    rig.responder.stop();
    assert_eq!(rig.answers(), [nak(START)]);
    assert!(!rig.responder.has_packet(), "it leaves once");
    // the read before it is answered first
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 1), 0);
    rig.take(refused(START + 1), 0);
    rig.responder.stop();
    assert_eq!(
        rig.responder.take_last_answer(),
        None,
        "a response is ahead"
    );
    let answers = rig.answers();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1], nak(START + 1));
    // any other answer ends with it
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 1), 0);
    rig.take(write(START + 1, Opcode::WRITE_ONLY, 8), 8);
    rig.responder.stop();
    assert_eq!(rig.answers(), []);
    // and where it is destroyed, the refusal is taken out
    let mut rig = ResponderWithHost::new();
    rig.take(refused(START), 0);
    let last = rig.responder.take_last_answer().expect("a refusal");
    assert_eq!(last.headers.psn, Psn::new(START));
    assert_eq!(rig.responder.take_last_answer(), None);
}

/// A program that has the last message of a conversation destroys its queue pair at once. Its peer
/// would repeat the message until its retries are used up.
#[test]
fn an_acknowledgement_outlives_the_end_of_its_responder() {
    let acknowledged = |rig: &mut ResponderWithHost| {
        let answers = rig.answers();
        matches!(answers[..], [(START, Opcode::ACKNOWLEDGE, _)])
    };
    let mut rig = ResponderWithHost::new();
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    rig.responder.stop();
    assert!(acknowledged(&mut rig));
    assert!(!rig.responder.has_packet(), "it leaves once");
    let mut rig = ResponderWithHost::new();
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    let last = rig.responder.take_last_answer();
    let last = last.expect("an acknowledgement");
    assert_eq!(last.headers.psn, Psn::new(START));
    assert_eq!(rig.responder.take_last_answer(), None);
}

#[test]
fn a_placement_that_fails_is_refused_in_the_packets_name() {
    let mut rig = ResponderWithHost::new();
    rig.take(write(START, Opcode::WRITE_ONLY, 8), 8);
    let place = placement(&rig.take(write(START + 1, Opcode::WRITE_ONLY, 8), 8));
    let access = AccessFault::InvalidKey;
    let fault = rig.responder.refuse_placement(&place, None, access);
    assert_eq!(fault, ResponderFault::RemoteAccess(access));
    let nak = (
        START + 1,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::REMOTE_ACCESS),
    );
    assert_eq!(rig.answers(), [nak]);
    let mut rig = ResponderWithHost::new();
    let outcome = rig.take(write(START, Opcode::SEND_ONLY, 8), 8);
    let place = placement(&outcome);
    let RequestOutcome::Accepted {
        received: Some(received),
        ..
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    let access = AccessFault::Bounds;
    let fault = rig
        .responder
        .refuse_placement(&place, Some(&received), access);
    assert_eq!(fault, ResponderFault::ReceiveAccess(access));
    assert_eq!(rig.responder.open_receive(), Some(received.token));
    let nak = (
        START,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::REMOTE_OPERATION),
    );
    assert_eq!(rig.answers(), [nak]);
}

#[test]
fn a_response_that_cannot_be_read_is_refused_in_its_place() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 3 * MTU), 0);
    rig.responder.next_packet().expect("the first response");
    let second = rig.responder.next_packet().expect("the second response");
    rig.responder
        .refuse_response(&second, AccessFault::InvalidKey);
    let nak = (
        START + 1,
        Opcode::ACKNOWLEDGE,
        negative(NegativeCode::REMOTE_ACCESS),
    );
    assert_eq!(rig.answers(), [nak]);
}

#[test]
fn a_repeated_response_that_cannot_be_read_is_left_out() {
    let mut rig = ResponderWithHost::new();
    rig.take(read(START, 3 * MTU), 0);
    rig.responder.next_packet().expect("the first response");
    rig.responder.next_packet().expect("the second response");
    // The peer misses the second one: the response goes back to it.
    rig.take(read(START + 1, 2 * MTU), 0);
    let repeated = std::iter::from_fn(|| rig.responder.next_packet());
    let marks: Vec<_> = repeated
        .map(|packet| (packet.headers.psn.value(), packet.repeated))
        .collect();
    assert_eq!(marks, [(START + 1, false), (START + 2, false)]);
    // The whole response is asked for after its last packet.
    rig.take(read(START, 3 * MTU), 0);
    while let Some(packet) = rig.responder.next_packet() {
        assert!(packet.repeated);
        let fault = rig
            .responder
            .refuse_response(&packet, AccessFault::InvalidKey);
        assert_eq!(fault, None);
    }
    assert!(!rig.responder.is_stopped());
    let next = rig.take(read(START + 3, MTU), 0);
    assert!(matches!(next, RequestOutcome::Accepted { .. }), "{next:?}");
    assert_eq!(rig.answers().len(), 1);
}

#[test]
fn partition_keys_must_match_and_one_side_be_full_member() {
    let table = [
        (0xFFFF, 0xFFFF, true),
        (0x7FFF, 0xFFFF, true),
        (0x7FFF, 0x7FFF, false),
    ];
    for (theirs, ours, taken) in table.into_iter().chain([(0x8001, 0x8002, false)]) {
        let mut config =
            ResponderConfig::new(QpNumber::new(7), PathMtu::Bytes1024, Psn::new(START));
        config.partition_key = ours;
        let mut rig = ResponderWithHost {
            responder: Responder::new(&config),
            ..ResponderWithHost::new()
        };
        let mut request = write(START, Opcode::WRITE_ONLY, 8);
        request.partition_key = theirs;
        let outcome = rig.take(request, 8);
        assert_eq!(
            matches!(outcome, RequestOutcome::Accepted { .. }),
            taken,
            "{theirs:#x}"
        );
        let dropped = outcome == RequestOutcome::Dropped(DropReason::PartitionKey);
        assert_eq!(dropped, !taken);
    }
}

#[test]
fn an_atomic_behind_a_gap_is_a_gap_and_one_of_the_past_is_dropped() {
    let atomic = Extension::Atomic(AtomicRequest {
        address: 0,
        key: 0,
        swap_or_add: 0,
        compare: 0,
    });
    for opcode in [Opcode::FETCH_ADD, Opcode::COMPARE_SWAP] {
        let mut rig = ResponderWithHost::new();
        let outcome = rig.take(headers(START + 1, opcode, atomic), 0);
        assert_eq!(outcome, RequestOutcome::Gap, "{opcode:?}");
        let nak = (
            START,
            Opcode::ACKNOWLEDGE,
            negative(NegativeCode::SEQUENCE_ERROR),
        );
        assert_eq!(rig.answers(), [nak]);
        let outcome = rig.take(headers(START - 1, opcode, atomic), 0);
        let late = RequestOutcome::Dropped(DropReason::OutOfWindow);
        assert_eq!(outcome, late, "{opcode:?}");
    }
}

#[test]
fn the_number_of_reads_changes_while_reads_are_outstanding() {
    let mut rig = ResponderWithHost::new();
    rig.responder.set_reads(1);
    rig.take(read(START, 8), 0);
    rig.responder.set_reads(3);
    for number in 1..3 {
        let outcome = rig.take(read(START + number, 8), 0);
        assert!(
            matches!(outcome, RequestOutcome::Accepted { .. }),
            "{outcome:?}"
        );
    }
    let refused = rig.take(read(START + 3, 8), 0);
    assert_eq!(refused, RequestOutcome::Fault(ResponderFault::TooManyReads));
    let answered: Vec<_> = rig.answers().iter().map(|(psn, ..)| *psn).collect();
    assert_eq!(answered, [START, START + 1, START + 2, START + 3]);
}

#[test]
fn reads_stay_outstanding_while_their_number_falls_and_rises() {
    let mut rig = ResponderWithHost::new();
    rig.responder.set_reads(32);
    for number in 0..20 {
        rig.take(read(START + number, 8), 0);
    }
    rig.responder.set_reads(2);
    rig.responder.set_reads(8);
    let answered = rig.answers();
    let psns: Vec<_> = answered.iter().map(|(psn, ..)| psn - START).collect();
    assert_eq!(psns, (0..20).collect::<Vec<_>>());
}

#[test]
fn responses_and_datagrams_are_no_requests() {
    let opcodes = [
        Opcode::ACKNOWLEDGE,
        Opcode::DATAGRAM,
        Opcode::READ_RESPONSE_ONLY,
        Opcode(0xEE),
    ];
    for (opcode, psn) in opcodes
        .into_iter()
        .flat_map(|opcode| [(opcode, 0), (opcode, 1)])
    {
        let mut rig = ResponderWithHost::new();
        let outcome = rig.take(headers(START + psn, opcode, Extension::None), 0);
        assert_eq!(
            outcome,
            RequestOutcome::Dropped(DropReason::NotARequest),
            "{opcode:?}"
        );
        assert_eq!(rig.answers(), []);
    }
}

/// Every state x every kind of request packet, in order: what is taken and what is refused.
#[test]
fn only_packets_that_continue_the_open_message_are_taken() {
    let states: [(&str, Option<TransportHeaders>); 3] = [
        ("none", None),
        ("send", Some(write(START, Opcode::SEND_FIRST, 0))),
        ("write", Some(write(START, Opcode::WRITE_FIRST, 2 * MTU))),
    ];
    // opcode, payload, taken in which states
    let events = [
        (Opcode::SEND_FIRST, MTU, ["none", ""]),
        (Opcode::SEND_MIDDLE, MTU, ["send", ""]),
        (Opcode::SEND_LAST, MTU, ["send", ""]),
        (Opcode::SEND_LAST_WITH_IMMEDIATE, MTU, ["send", ""]),
        (Opcode::SEND_ONLY, MTU, ["none", ""]),
        (Opcode::SEND_ONLY_WITH_IMMEDIATE, MTU, ["none", ""]),
        (Opcode::WRITE_FIRST, MTU, ["none", ""]),
        (Opcode::WRITE_MIDDLE, MTU, ["", ""]), // the write's second packet is its last
        (Opcode::WRITE_LAST, MTU, ["write", ""]),
        (Opcode::WRITE_LAST_WITH_IMMEDIATE, MTU, ["write", ""]),
        (Opcode::WRITE_ONLY, MTU, ["none", ""]),
        (Opcode::WRITE_ONLY_WITH_IMMEDIATE, MTU, ["none", ""]),
        (Opcode::READ_REQUEST, 0, ["none", ""]),
    ];
    for (state, opening) in states {
        for (opcode, payload_bytes, taken_in) in events {
            let mut rig = ResponderWithHost::new();
            let mut psn = START;
            if let Some(opening) = opening {
                let outcome = rig.take(opening, MTU);
                assert!(
                    matches!(outcome, RequestOutcome::Accepted { .. }),
                    "{state}"
                );
                psn += 1;
            }
            let total = if opcode == Opcode::WRITE_FIRST {
                2 * MTU
            } else {
                MTU
            };
            let outcome = rig.take(write(psn, opcode, total), payload_bytes);
            if taken_in.contains(&state) {
                assert!(
                    matches!(outcome, RequestOutcome::Accepted { .. }),
                    "{state} {opcode:?}"
                );
            } else {
                assert!(
                    matches!(outcome, RequestOutcome::Fault(_)),
                    "{state} {opcode:?}"
                );
            }
        }
    }
}

#[test]
fn random_packets_never_panic_and_answers_stay_bounded() {
    const { assert!(RETRY_FOREVER == 7) };
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut rig = ResponderWithHost::new();
        for _ in 0..300 {
            let opcode = Opcode::KNOWN[rng.random_range(0..Opcode::KNOWN.len())];
            let near = rig.responder.expected_psn().value();
            let psn = match rng.random_range(0..4) {
                0 => near.wrapping_add(rng.random_range(0..8)),
                1 => near.wrapping_sub(rng.random_range(0..8)),
                2 => near,
                _ => rng.random(),
            };
            let length_bytes = match rng.random_range(0..3) {
                0 => MTU,
                1 => rng.random_range(0..3000),
                _ => rng.random(),
            };
            let payload = if rng.random() {
                MTU
            } else {
                rng.random_range(0..70_000)
            };
            rig.host.receives = rng.random_range(0..3);
            rig.take(write(psn, opcode, length_bytes), payload);
            if rng.random() {
                for _ in 0..4 {
                    rig.responder.next_packet();
                }
            }
        }
    }
}
