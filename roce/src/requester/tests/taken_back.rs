//! Packets that the host could not send: [`Requester::take_back`].

use super::super::*;
use super::{MTU, START, TimedRequester, WRITE, config};

/// Local work, a message of three packets and local work, before and behind other messages.
fn posted() -> TimedRequester {
    let mut timed = TimedRequester::new(&config());
    timed.post(0, WRITE, 8);
    timed.post(1, Operation::Local, 0);
    timed.post(2, WRITE, 2 * MTU + 1);
    timed.post(3, Operation::Local, 0);
    timed.post(4, WRITE, 0);
    timed
}

#[test]
fn packets_taken_back_are_the_next_ones_again() {
    for run_bytes in [0, 1 << 16] {
        let mut timed = posted();
        let mut sent = 0;
        let mut tokens = Vec::new();
        loop {
            let before = (timed.requester.mark(), timed.requester.statistics());
            let Some(packet) = timed.requester.next_run(timed.now, run_bytes) else {
                break;
            };
            let token = packet.payload.token;
            let is_oldest = timed.requester.take_back(token, packet.packets, before.0);
            let after = (timed.requester.mark(), timed.requester.statistics());
            assert_eq!(after, before, "they count as not sent");
            assert_eq!(is_oldest, token == 0, "token {token}");
            let again = timed
                .requester
                .next_run(timed.now, run_bytes)
                .expect("again");
            assert_eq!(again, packet);
            assert_eq!(again.headers.psn, Psn::new(START).plus(sent));
            sent += packet.packets;
            tokens.push(token);
        }
        tokens.dedup();
        assert_eq!((tokens, sent), (vec![0, 2, 4], 5));
    }
}

#[test]
fn the_oldest_request_is_told_once_those_before_it_are_complete() {
    let mut timed = posted();
    let first = timed.requester.next_packet(timed.now).expect("the first");
    assert_eq!(first.payload.token, 0);
    let mark = timed.requester.mark();
    let second = timed.requester.next_packet(timed.now).expect("the second");
    assert!(!timed.requester.take_back(2, second.packets, mark));
    let early = timed.acknowledge(1);
    assert_eq!(
        early,
        ResponseOutcome::Ignored(IgnoredResponse::OutOfWindow)
    );
    timed.acknowledge(0);
    let again = timed.requester.next_packet(timed.now).expect("again");
    assert!(timed.requester.take_back(2, again.packets, mark));
    assert_eq!(timed.requester.oldest(), Some(2));
}
