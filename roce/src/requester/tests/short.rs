//! A short write without its packet leaves a requester as the packet would.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Two requesters with the same work: one sends short writes without packets where it can.
struct Twins {
    short: TimedRequester,
    framed: TimedRequester,
    /// writes that went without a packet
    without: u32,
}

impl Twins {
    fn post(&mut self, request: WorkRequest) {
        let posted = self.short.requester.post(request);
        assert_eq!(posted, self.framed.requester.post(request));
    }

    /// Lets both send one packet.
    fn send(&mut self) {
        let (now, framed) = (self.framed.now, &mut self.framed.requester);
        let Some(write) = self.short.requester.short_write() else {
            assert_eq!(
                self.short.requester.next_packet(now),
                framed.next_packet(now)
            );
            return;
        };
        let packet = framed.next_packet(now).expect("a packet may leave");
        let remote = RemoteBuffer {
            address: write.address,
            key: write.key,
            length_bytes: write.length_bytes,
        };
        assert_eq!(packet.headers.opcode, Opcode::WRITE_ONLY);
        assert_eq!(packet.headers.extension, Extension::Remote(remote));
        assert_eq!(packet.headers.psn, write.psn);
        assert!(packet.headers.acknowledge_request);
        assert_eq!(
            (packet.payload.token, packet.payload.length_bytes),
            (write.token, write.length_bytes)
        );
        assert_eq!(
            (packet.headers.destination_qp, packet.headers.partition_key),
            self.short.requester.peer()
        );
        self.short.requester.sent_short_write(now);
        self.without += 1;
    }

    /// A response to one of the packets around the oldest without answer.
    fn answer(&mut self, random: &mut SmallRng) {
        let syndrome = match random.random_range(0..8) {
            0 => Syndrome::Negative(NegativeCode::SEQUENCE_ERROR),
            1 => Syndrome::ReceiverNotReady { timer: 1 },
            _ => Syndrome::Acknowledge { credits: 31 },
        };
        let (_, oldest) = self.framed.requester.sequence_numbers();
        let offset = oldest.distance_from(Psn::new(START)) as u32 + random.random_range(0..5);
        let outcome = match syndrome {
            Syndrome::Acknowledge { .. } => {
                let key = match random.random_range(0..16) {
                    0 => 0x1234,
                    _ => self.short.requester.peer().1,
                };
                let psn = Psn::new(START.wrapping_add(offset));
                let now = self.short.now;
                let headers = TransportHeaders {
                    opcode: Opcode::ACKNOWLEDGE,
                    partition_key: key,
                    psn,
                    extension: Extension::Acknowledge(Acknowledgement {
                        syndrome,
                        message_sequence_number: 0,
                    }),
                    ..self.framed.requester.settings.template
                };
                let outcome = self.short.requester.on_acknowledgement(now, psn, key);
                let framed = self.framed.requester.on_response(now, &headers, 0);
                assert_eq!(outcome, framed);
                return;
            }
            _ => self.short.answer(offset, syndrome),
        };
        assert_eq!(outcome, self.framed.answer(offset, syndrome));
    }

    fn wait(&mut self, time: Duration) {
        assert_eq!(self.short.wait(time), self.framed.wait(time));
    }
}

fn request(token: u32, random: &mut SmallRng) -> WorkRequest {
    let operation = match random.random_range(0..10) {
        0 => Operation::Send,
        1 => READ,
        2 => Operation::Local,
        3 => Operation::WriteWithImmediate {
            address: 0x1000,
            key: 5,
            immediate: 3,
        },
        _ => WRITE,
    };
    WorkRequest {
        token,
        operation,
        length_bytes: [0, 1, 8, 128, MTU, MTU + 1][random.random_range(0..6)],
        solicited: random.random_range(0..4) == 0,
    }
}

#[test]
fn a_short_write_leaves_the_requester_as_its_packet_does() {
    let mut without = 0;
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let config = RequesterConfig {
            window_packets: random.random_range(1..6),
            ..config()
        };
        let mut twins = Twins {
            short: TimedRequester::new(&config),
            framed: TimedRequester::new(&config),
            without: 0,
        };
        for step in 0..200 {
            match random.random_range(0..8) {
                0..3 if twins.framed.requester.room() > 0 => {
                    twins.post(request(step, &mut random));
                }
                0..6 => twins.send(),
                6 => twins.answer(&mut random),
                _ => twins.wait(TIMEOUT / random.random_range(1..6)),
            }
            assert_eq!(twins.short.completed(), twins.framed.completed());
            let (short, framed) = (&twins.short.requester, &twins.framed.requester);
            assert_eq!(
                format!("{short:?}"),
                format!("{framed:?}"),
                "seed {seed}, step {step}"
            );
        }
        without += twins.without;
    }
    assert!(without > 500, "{without} writes went without a packet");
}
