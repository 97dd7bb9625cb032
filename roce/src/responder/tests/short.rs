//! A short write without its packet leaves a responder as the packet would.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

fn packet(expected: u32, random: &mut SmallRng) -> (TransportHeaders, u32) {
    let opcode = match random.random_range(0..16) {
        0 => Opcode::WRITE_FIRST,
        1 => Opcode::WRITE_LAST,
        2 => Opcode::SEND_ONLY,
        3 => Opcode::READ_REQUEST,
        4 => Opcode::SEND_FIRST,
        5 => Opcode::SEND_LAST,
        _ => Opcode::WRITE_ONLY,
    };
    let length = [8, 1, 128, MTU, MTU + 1][random.random_range(0..40) % 5];
    let length = if length > MTU && random.random_range(0..20) > 0 {
        8
    } else {
        length
    };
    let psn = match random.random_range(0..10) {
        0 => expected + 1,
        1 => expected - 1,
        _ => expected,
    };
    let (all, payload) = match opcode {
        Opcode::WRITE_FIRST => (MTU + 8, MTU),
        Opcode::WRITE_LAST | Opcode::SEND_LAST => (MTU + 8, 8),
        Opcode::SEND_FIRST => (MTU, MTU),
        Opcode::READ_REQUEST => (length, 0),
        _ => (length, length),
    };
    let mut headers = write(psn, opcode, all);
    if random.random_range(0..30) == 0 {
        headers.partition_key = 0x1234;
    }
    (headers, payload)
}

#[test]
fn a_short_write_leaves_the_responder_as_its_packet_does() {
    let mut without = 0;
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut short, mut framed) = (ResponderWithHost::new(), ResponderWithHost::new());
        short.host.receives = 3;
        framed.host.receives = 3;
        for step in 0..100 {
            let expected = framed.responder.expected_psn().value();
            let (headers, payload) = packet(expected, &mut random);
            let is_short = headers.opcode == Opcode::WRITE_ONLY && payload > 0;
            let outcome = framed.take(headers, payload);
            let key = headers.partition_key;
            if is_short && short.responder.takes_short_write(key, headers.psn, payload) {
                let Extension::Remote(remote) = headers.extension else {
                    panic!("a write names memory");
                };
                let placement = Placement::Remote {
                    grant: remote.key,
                    address: remote.address,
                    length_bytes: payload,
                };
                let accepted = RequestOutcome::Accepted {
                    placement: Some(placement),
                    received: None,
                };
                assert_eq!(outcome, accepted, "seed {seed}, step {step}");
                short.responder.took_short_write();
                without += 1;
            } else {
                assert_eq!(short.take(headers, payload), outcome);
            }
            let acknowledges = short.responder.acknowledges();
            if random.random_range(0..3) == 0 {
                // What a carrier without packets takes is what the packet says.
                let taken = match random.random_range(0..2) {
                    0 => short.responder.take_acknowledgement(),
                    _ => None,
                };
                let next = framed.responder.next_packet();
                match taken {
                    Some((psn, key)) => {
                        let headers = next.map(|packet| packet.headers);
                        let expected = headers.map(|one| (one.psn, one.partition_key));
                        assert_eq!(expected, Some((psn, key)), "seed {seed}, step {step}");
                    }
                    None => assert_eq!(next, short.responder.next_packet()),
                }
                let is_acknowledgement = next.is_some_and(|packet| {
                    let Extension::Acknowledge(answer) = packet.headers.extension else {
                        return false;
                    };
                    packet.headers.opcode == Opcode::ACKNOWLEDGE
                        && matches!(answer.syndrome, Syndrome::Acknowledge { .. })
                });
                assert_eq!(acknowledges, is_acknowledgement, "seed {seed}, step {step}");
            }
            assert_eq!(
                format!("{:?}", short.responder),
                format!("{:?}", framed.responder),
                "seed {seed}, step {step}"
            );
        }
    }
    assert!(without > 500, "{without} writes went without a packet");
}
