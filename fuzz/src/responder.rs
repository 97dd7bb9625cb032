//! The responder of a reliable connection, which receives any packets.
//!
//! Checked: bytes are placed only in granted memory or inside a receive request; each receive
//! request is completed at most once and only after it was taken; answers are in order; a stopped
//! responder accepts nothing more, and its last packet is one NAK.

use crate::source::Source;
use ringside_model::packet::{
    AtomicRequest, Extension, Opcode, Psn, QpNumber, RemoteBuffer, Syndrome, TransportHeaders,
};
use ringside_model::roce::{
    AccessFault, PathMtu, Placement, Receive, RemoteRight, RequestOutcome, Responder,
    ResponderConfig, ResponderHost,
};
use std::collections::BTreeMap;

const MTU: u32 = 256;
const START: u32 = Psn::MODULUS - 3;
/// Longest message that the host grants: a response stays short.
const MAX_BYTES: u32 = 16 * MTU;
const READS: u16 = 4;

/// A grant: proof of one access check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    key: u32,
    address: u64,
    length_bytes: u32,
    right: RemoteRight,
}

struct Host {
    /// The fuzzer's answers to access checks.
    mood: u8,
    next_token: u32,
    /// Receive requests that were taken and are not complete, with their lengths.
    taken: BTreeMap<u32, u32>,
}

impl ResponderHost for Host {
    type Grant = Grant;

    fn allows(&self, right: RemoteRight) -> bool {
        self.mood & 0xC0 != 0xC0 || right == RemoteRight::Write
    }

    fn grant(
        &mut self,
        key: u32,
        address: u64,
        length_bytes: u32,
        right: RemoteRight,
    ) -> Result<Grant, AccessFault> {
        assert_ne!(length_bytes, 0, "never asked for nothing");
        if address.checked_add(length_bytes.into()).is_none() {
            return Err(AccessFault::Wrap);
        }
        if self.mood & 1 == 1 || length_bytes > MAX_BYTES {
            return Err(AccessFault::Bounds);
        }
        Ok(Grant {
            key,
            address,
            length_bytes,
            right,
        })
    }

    fn take_receive(&mut self) -> Receive {
        match self.mood >> 1 & 3 {
            0 => Receive::Empty,
            1 if self.mood & 8 != 0 => Receive::Malformed { code: 0x020C },
            _ => {
                let token = self.next_token;
                self.next_token += 1;
                let capacity_bytes = u32::from(self.mood >> 4) * 100;
                self.taken.insert(token, capacity_bytes);
                Receive::Ready {
                    token,
                    capacity_bytes,
                }
            }
        }
    }

    fn may_invalidate(&mut self, _: u32) -> Result<(), AccessFault> {
        match self.mood & 1 {
            0 => Ok(()),
            _ => Err(AccessFault::BadKeyIndex),
        }
    }
}

/// Any headers, in most cases close to the expected sequence number.
fn headers(source: &mut Source, expected: Psn) -> TransportHeaders {
    let [opcode, distance, flags] = source.array();
    let opcode = match flags & 1 {
        0 => Opcode(opcode % 0x18),
        _ => Opcode(opcode),
    };
    let psn = match flags & 2 {
        0 => expected,
        _ => expected.plus(u32::from(distance).wrapping_sub(128) % Psn::MODULUS),
    };
    let psn = if flags & 64 == 0 {
        psn
    } else {
        Psn::new(source.number())
    };
    let mut remote = || RemoteBuffer {
        address: source.word(),
        key: source.half().into(),
        length_bytes: source.number() >> (flags & 16),
    };
    let extension = match opcode {
        Opcode::WRITE_FIRST | Opcode::WRITE_ONLY | Opcode::READ_REQUEST => {
            Extension::Remote(remote())
        }
        Opcode::WRITE_ONLY_WITH_IMMEDIATE => Extension::RemoteImmediate(remote(), 7),
        Opcode::SEND_LAST_WITH_INVALIDATE | Opcode::SEND_ONLY_WITH_INVALIDATE => {
            Extension::Invalidate(9)
        }
        Opcode::COMPARE_SWAP | Opcode::FETCH_ADD => Extension::Atomic(AtomicRequest {
            address: 0,
            key: 1,
            swap_or_add: 2,
            compare: 3,
        }),
        Opcode::SEND_LAST_WITH_IMMEDIATE
        | Opcode::SEND_ONLY_WITH_IMMEDIATE
        | Opcode::WRITE_LAST_WITH_IMMEDIATE => Extension::Immediate(5),
        _ => Extension::None,
    };
    TransportHeaders {
        opcode,
        solicited: flags & 4 != 0,
        migrated: true,
        partition_key: if flags & 0x88 == 0x88 { 5 } else { 0xFFFF },
        forward_congestion: false,
        backward_congestion: false,
        destination_qp: QpNumber::new(1),
        acknowledge_request: flags & 32 != 0,
        psn,
        extension,
    }
}

struct CheckedResponder {
    responder: Responder<Grant>,
    host: Host,
    /// Set once it stopped: the number of NAKs that may still be sent.
    naks_left: Option<u32>,
}

impl CheckedResponder {
    fn place(&self, placement: &Placement<Grant>) {
        match *placement {
            Placement::Remote {
                grant,
                address,
                length_bytes,
            } => {
                let offset = address.wrapping_sub(grant.address);
                assert_eq!(grant.right, RemoteRight::Write);
                assert!((1..=MTU).contains(&length_bytes));
                assert!(offset + u64::from(length_bytes) <= u64::from(grant.length_bytes));
            }
            Placement::Receive {
                token,
                offset_bytes,
                length_bytes,
            } => {
                let holds = self.host.taken.get(&token).expect("taken and not complete");
                assert!((1..=MTU).contains(&length_bytes));
                assert!(offset_bytes + length_bytes <= *holds);
            }
        }
    }

    fn take(&mut self, source: &mut Source) {
        self.host.mood = source.byte();
        let headers = headers(source, self.responder.expected_psn());
        let payload = match source.byte() {
            byte @ 0..=127 => u32::from(byte) * 2,
            128..=191 => MTU,
            byte => u32::from(byte) * 64,
        };
        let stopped = self.responder.is_stopped();
        let before = self.responder.expected_psn();
        let outcome = self.responder.on_request(&headers, payload, &mut self.host);
        let after = self.responder.expected_psn();
        if let RequestOutcome::Accepted {
            placement,
            received,
        } = &outcome
        {
            assert!(!stopped);
            assert_eq!(headers.psn, before, "taken in order only");
            assert_ne!(after, before);
            placement.iter().for_each(|placement| self.place(placement));
            if let Some(received) = received {
                let holds = self.host.taken.remove(&received.token);
                let holds = holds.expect("a receive request that was taken, once");
                let is_write = received.immediate.is_some() && received.length_bytes > holds;
                assert!(received.length_bytes <= holds || is_write);
            }
        } else {
            assert_eq!(after, before, "{outcome:?}");
        }
        if matches!(outcome, RequestOutcome::Fault(_)) {
            assert!(!stopped, "a fault is given out once");
            assert!(self.responder.is_stopped());
            self.naks_left = Some(1);
        }
    }

    /// Takes up to `count` answers.
    fn answer(&mut self, count: u32) {
        for _ in 0..count {
            let Some(packet) = self.responder.next_packet() else {
                assert!(!self.responder.has_packet());
                return;
            };
            if let Some(bytes) = packet.payload {
                let offset = bytes.address.wrapping_sub(bytes.grant.address);
                assert_eq!(bytes.grant.right, RemoteRight::Read);
                assert!((1..=MTU).contains(&bytes.length_bytes));
                assert!(
                    offset + u64::from(bytes.length_bytes) <= u64::from(bytes.grant.length_bytes)
                );
            }
            let negative = matches!(
                packet.headers.extension,
                Extension::Acknowledge(answer) if matches!(answer.syndrome, Syndrome::Negative(code) if code.0 != 0)
            );
            if negative {
                let left = self.naks_left.expect("no refusal without a fault");
                self.naks_left = Some(left.checked_sub(1).expect("one refusal only"));
            }
        }
    }
}

/// The responder of a reliable connection.
pub fn responder(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut config = ResponderConfig::new(QpNumber::new(7), PathMtu::Bytes256, Psn::new(START));
    config.inbound_reads = READS;
    let mut checked = CheckedResponder {
        responder: Responder::new(&config),
        host: Host {
            mood: 0,
            next_token: 0,
            taken: BTreeMap::new(),
        },
        naks_left: None,
    };
    while !source.is_empty() {
        match source.byte() {
            byte @ 0..=15 => checked.answer(byte.into()),
            16 => {
                checked.responder.stop();
                assert!(!checked.responder.has_packet());
            }
            _ => checked.take(&mut source),
        }
    }
    // every response that can be pending, and one acknowledgement
    checked.answer(u32::from(READS) * MAX_BYTES / MTU + 2);
    assert!(!checked.responder.has_packet(), "the answers end");
}
