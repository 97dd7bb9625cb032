//! The requester of a reliable connection, which receives any answers at any time.
//!
//! Checked: work requests complete in the order of posting, each once; payload of a read is placed
//! inside the read that waits for it and nowhere else; the window is respected; a stopped requester
//! sends nothing more and names the oldest incomplete request; without answers it stops after its
//! retries.

use crate::source::Source;
use ringside_bus::Instant;
use ringside_model::packet::{
    Acknowledgement, Extension, NegativeCode, Opcode, Psn, QpNumber, Syndrome, TransportHeaders,
};
use ringside_model::roce::{
    MessageBytes, Operation, PathMtu, Requester, RequesterConfig, ResponseOutcome, WorkRequest,
};
use std::collections::VecDeque;
use std::time::Duration;

const MTU: u32 = 256;
const WINDOW: u32 = 8;
const START: u32 = Psn::MODULUS - 5;
const RETRIES: u32 = 3;

struct CheckedRequester {
    requester: Requester,
    now: Instant,
    /// Posted and not complete.
    open: VecDeque<WorkRequest>,
    next_token: u32,
    stopped: bool,
}

impl CheckedRequester {
    fn post(&mut self, source: &mut Source) {
        let [kind, size] = source.array();
        let operation = match kind % 7 {
            0 => Operation::Send,
            1 => Operation::SendWithImmediate(7),
            2 => Operation::SendWithInvalidate(9),
            3 => Operation::Write {
                address: 64,
                key: 1,
            },
            4 => Operation::WriteWithImmediate {
                address: 64,
                key: 1,
                immediate: 3,
            },
            5 => Operation::Read {
                address: 64,
                key: 1,
            },
            _ => Operation::Local,
        };
        let request = WorkRequest {
            token: self.next_token,
            operation,
            length_bytes: u32::from(size) * 16,
            solicited: kind & 128 != 0,
        };
        if self.requester.post(request).is_ok() {
            assert!(!self.stopped);
            self.open.push_back(request);
            self.next_token += 1;
        }
    }

    fn send(&mut self) {
        // a burst is bounded by window and reads
        for _ in 0..64 {
            let Some(packet) = self.requester.next_packet(self.now) else {
                return;
            };
            assert!(!self.stopped, "a requester that stopped sends");
            let MessageBytes {
                token,
                offset_bytes,
                length_bytes,
            } = packet.payload;
            let request = self.open.iter().find(|request| request.token == token);
            let request = request.expect("sent is what is posted and not complete");
            assert!(length_bytes <= MTU);
            assert!(offset_bytes + length_bytes <= request.length_bytes.max(offset_bytes));
            assert_ne!(request.operation, Operation::Local);
        }
        panic!("sends without end");
    }

    fn complete(&mut self) {
        while let Some(done) = self.requester.next_completion() {
            let oldest = self.open.pop_front().expect("complete is what was posted");
            assert_eq!(
                (done.token, done.length_bytes),
                (oldest.token, oldest.length_bytes)
            );
        }
    }

    fn respond(&mut self, source: &mut Source) {
        let [what, distance, flags, size] = source.array();
        let (next, unanswered) = self.requester.sequence_numbers();
        let psn = match flags & 3 {
            0 => unanswered.plus(u32::from(distance % 16)),
            1 => unanswered,
            2 => next.plus(Psn::MODULUS - 1),
            _ => Psn::new(source.number()),
        };
        let syndrome = match what >> 4 {
            0..=7 => Syndrome::Acknowledge { credits: 31 },
            8..=9 => Syndrome::ReceiverNotReady { timer: flags >> 3 },
            10..=13 => Syndrome::Negative(NegativeCode(flags >> 6)),
            14 => Syndrome::Negative(NegativeCode(flags >> 3)),
            _ => Syndrome::Reserved(flags),
        };
        let opcode = match what & 7 {
            0..=2 => Opcode::ACKNOWLEDGE,
            3 => Opcode::READ_RESPONSE_FIRST,
            4 => Opcode::READ_RESPONSE_MIDDLE,
            5 => Opcode::READ_RESPONSE_LAST,
            6 => Opcode::READ_RESPONSE_ONLY,
            _ => Opcode(flags),
        };
        let extension = match opcode {
            Opcode::READ_RESPONSE_MIDDLE => Extension::None,
            _ => Extension::Acknowledge(Acknowledgement {
                syndrome,
                message_sequence_number: 0,
            }),
        };
        let payload = if what & 8 == 0 {
            MTU
        } else {
            u32::from(size) * 16
        };
        let headers = TransportHeaders {
            opcode,
            solicited: false,
            migrated: true,
            partition_key: if flags == 0xFF { 7 } else { 0xFFFF },
            forward_congestion: false,
            backward_congestion: false,
            destination_qp: QpNumber::new(1),
            acknowledge_request: false,
            psn,
            extension,
        };
        self.answer(&headers, payload);
    }

    fn answer(&mut self, headers: &TransportHeaders, payload: u32) {
        let before = self.stopped;
        match self.requester.on_response(self.now, headers, payload) {
            ResponseOutcome::Place(bytes) => {
                assert!(!before);
                let request = self.open.iter().find(|open| open.token == bytes.token);
                let request = request.expect("placed is what is posted and not complete");
                assert!(matches!(request.operation, Operation::Read { .. }));
                assert_eq!(bytes.length_bytes, payload);
                assert!(bytes.offset_bytes + bytes.length_bytes <= request.length_bytes);
            }
            ResponseOutcome::Fault(fault) => {
                assert!(!before, "a fault is given out once");
                assert!(self.requester.is_stopped());
                self.stopped = true;
                self.complete();
                let oldest = self.open.front().map(|request| request.token);
                assert_eq!(Some(fault.token), oldest, "{fault}");
                assert_eq!(self.requester.oldest(), oldest);
            }
            ResponseOutcome::Acknowledged
            | ResponseOutcome::Repeating
            | ResponseOutcome::Ignored(_) => {}
        }
        self.complete();
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        if let Err(fault) = self.requester.on_time(self.now) {
            assert!(!self.stopped);
            self.stopped = true;
            self.complete();
            assert_eq!(Some(fault.token), self.open.front().map(|open| open.token));
        }
    }

    /// Gives no more answers and checks that the requester ends.
    fn finish(&mut self) {
        for _ in 0..2 * RETRIES + 4 {
            self.send();
            match self.requester.deadline() {
                Some(at) => self.wait(at.since(self.now)),
                None => break,
            }
        }
        self.complete();
        assert!(
            self.stopped || self.open.is_empty(),
            "{} requests wait without end: {:?}",
            self.open.len(),
            self.requester
        );
        assert_eq!(self.requester.is_stopped(), self.stopped);
    }
}

/// The requester of a reliable connection.
pub fn requester(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut config = RequesterConfig::new(QpNumber::new(7), PathMtu::Bytes256, Psn::new(START));
    config.window_packets = WINDOW;
    config.outstanding_reads = 3;
    config.retry_limit = RETRIES as u8;
    config.not_ready_retry_limit = source.byte() % 8;
    config.capacity = 16;
    let mut checked = CheckedRequester {
        requester: Requester::new(&config),
        now: Instant(1),
        open: VecDeque::new(),
        next_token: 0,
        stopped: false,
    };
    while !source.is_empty() {
        match source.byte() {
            0..=79 => checked.post(&mut source),
            80..=119 => checked.send(),
            120..=139 => checked.wait(Duration::from_micros(source.half().into())),
            140..=143 => checked.wait(config.retransmit_after),
            144 => {
                checked.requester.stop();
                checked.stopped = true;
            }
            _ => checked.respond(&mut source),
        }
        checked.complete();
    }
    checked.finish();
}
