//! Listeners beside hosts that ask for connections and confirm none.

use crate::tcp::{ByHand, NOW, PORT, at};
use ringside_stack::{Stack, TcpError};
use smoltcp::wire::{Ipv4Address, TcpControl, TcpSeqNumber};
use std::time::Duration;

/// Asks for a connection from a port of a host that confirms none.
fn ask_in_vain(by_hand: &mut ByHand, stack: &mut Stack, port: u16) {
    let missing = Ipv4Address::new(192, 0, 2, 100);
    let station = &mut by_hand.station;
    station.send_from((missing, port), TcpControl::Syn, (100, None));
    by_hand.exchange(stack);
}

/// Asks from the station; returns the number of the answer.
fn ask(by_hand: &mut ByHand, stack: &mut Stack, port: u16) -> Option<TcpSeqNumber> {
    by_hand.station.send(port, TcpControl::Syn, (100, None));
    let heard = by_hand.exchange(stack);
    let mut answers = heard.into_iter().filter(|one| one.0 == port && one.1);
    answers.next().map(|(_, _, _, seq)| seq)
}

fn confirm(by_hand: &mut ByHand, port: u16, seq: TcpSeqNumber) {
    let station = &mut by_hand.station;
    station.send(port, TcpControl::None, (101, Some(seq + 1)));
}

#[test]
fn a_host_that_confirms_no_connection_keeps_no_other_out() {
    for requests in [1, 100] {
        let (mut by_hand, device, mut stack, listener) = ByHand::listening(1);
        for port in 1..=requests {
            ask_in_vain(&mut by_hand, &mut stack, port);
        }
        let seq = ask(&mut by_hand, &mut stack, 7);
        confirm(&mut by_hand, 7, seq.expect("an answer"));
        by_hand.exchange(&mut stack);
        let accepted = listener.accept(NOW).expect("established");
        assert_eq!(accepted.peer(), at("192.0.2.9", 7));
        drop((accepted, listener, stack));
        by_hand.finish(device);
    }
}

#[test]
fn requests_that_no_host_confirms_leave_the_stack_its_own_connections() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(64);
    for port in 1..=200 {
        ask_in_vain(&mut by_hand, &mut stack, port);
    }
    let clock = by_hand.bed.world.clock();
    let asked: Vec<_> = (0..60)
        .map(|_| stack.connect_tcp(at("192.0.2.9", PORT), &clock))
        .collect();
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    assert!(ask(&mut by_hand, &mut stack, 7).is_some());
    drop((asked, listener, stack));
    by_hand.finish(device);
}

/// Three hosts ask before the first of them is confirmed; the listener takes one at a time.
#[test]
fn connections_beyond_a_full_listener_wait_and_further_requests_are_refused() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(1);
    let ports = [1, 2, 3];
    let answers = ports.map(|port| ask(&mut by_hand, &mut stack, port).expect("an answer"));
    for (port, seq) in ports.into_iter().zip(answers) {
        confirm(&mut by_hand, port, seq);
    }
    // In the same burst as the confirmations.
    by_hand.station.send(4, TcpControl::Syn, (100, None));
    let heard = by_hand.exchange(&mut stack);
    assert!(
        heard.iter().any(|one| (one.0, one.2) == (4, true)),
        "{heard:?}"
    );
    // Longer than a request may take.
    by_hand.bed.world.clock().pause(Duration::from_secs(11));
    let heard = by_hand.exchange(&mut stack);
    assert!(!heard.iter().any(|one| one.2), "none is reset: {heard:?}");
    for port in ports {
        let accepted = listener.accept(NOW).expect("established");
        assert_eq!(accepted.peer(), at("192.0.2.9", port));
        by_hand.exchange(&mut stack);
    }
    assert!(matches!(listener.accept(NOW), Err(TcpError::NoPeer { .. })));
    assert!(ask(&mut by_hand, &mut stack, 5).is_some(), "it has room");
    by_hand.bed.world.clock().pause(Duration::from_secs(11));
    drop((listener, stack));
    by_hand.finish(device);
}

#[test]
fn the_last_connection_of_a_stack_is_taken_and_further_requests_are_refused() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(4);
    let clock = by_hand.bed.world.clock();
    let asked: Vec<_> = (0..63)
        .map(|_| stack.connect_tcp(at("192.0.2.9", PORT), &clock))
        .collect();
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    // The station reads a burst at a time.
    while !by_hand.exchange(&mut stack).is_empty() {}
    let seq = ask(&mut by_hand, &mut stack, 7).expect("an answer");
    confirm(&mut by_hand, 7, seq);
    by_hand.exchange(&mut stack);
    let last = listener.accept(NOW).expect("established");
    by_hand.station.send(8, TcpControl::Syn, (100, None));
    let heard = by_hand.exchange(&mut stack);
    assert!(
        heard.iter().any(|one| (one.0, one.2) == (8, true)),
        "{heard:?}"
    );
    let more = stack.connect_tcp(at("192.0.2.9", PORT), &clock);
    assert_eq!(more.unwrap_err(), TcpError::TooMany { limit: 64 });
    drop((asked, last, listener, stack));
    by_hand.finish(device);
}
