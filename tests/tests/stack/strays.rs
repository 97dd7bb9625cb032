//! Segments that neither ask for a connection nor belong to one, as scans of ports send them.

use crate::tcp::{ByHand, NOW, PORT, at};
use ringside_stack::{Stack, TcpListener};
use smoltcp::wire::{TcpControl, TcpSeqNumber};

const STRAYS: [TcpControl; 3] = [TcpControl::None, TcpControl::Fin, TcpControl::Psh];

/// True if the stack answers this segment with a reset, and nothing else.
fn is_reset(
    (by_hand, stack): (&mut ByHand, &mut Stack),
    from: u16,
    control: TcpControl,
    ack: Option<TcpSeqNumber>,
) -> bool {
    by_hand.station.send(from, control, (101, ack));
    let heard = by_hand.exchange(stack);
    assert!(heard.iter().all(|one| one.2), "{heard:?}");
    !heard.is_empty()
}

/// RFC 9293, section 3.10.7.2: in the state LISTEN they are dropped, and one with ACK is reset.
/// Section 3.10.7.1: without a listener each is reset.
#[test]
fn a_listener_drops_segments_without_syn_and_ack_and_a_closed_port_resets_them() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(1);
    for control in STRAYS {
        let both = (&mut by_hand, &mut stack);
        assert!(
            !is_reset(both, 7, control, None),
            "{control:?} to a listener"
        );
        let ack = Some(TcpSeqNumber(5));
        let both = (&mut by_hand, &mut stack);
        assert!(is_reset(both, 7, control, ack), "{control:?} with ACK");
        by_hand.station.to_port = PORT + 1;
        let both = (&mut by_hand, &mut stack);
        assert!(
            is_reset(both, 7, control, None),
            "{control:?} to a closed port"
        );
        by_hand.station.to_port = PORT;
    }
    go_on(&mut by_hand, &mut stack, &listener);
    drop((listener, stack));
    by_hand.finish(device);
}

/// A connection opens, and ends by the FIN of its peer.
fn go_on(by_hand: &mut ByHand, stack: &mut Stack, listener: &TcpListener) {
    by_hand.station.send(9, TcpControl::Syn, (100, None));
    let heard = by_hand.exchange(stack);
    let seq = heard.first().expect("an answer").3 + 1;
    by_hand.station.send(9, TcpControl::None, (101, Some(seq)));
    by_hand.exchange(stack);
    let mut accepted = listener.accept(NOW).expect("established");
    assert_eq!(accepted.peer(), at("192.0.2.9", 9));
    for control in STRAYS {
        let both = (&mut *by_hand, &mut *stack);
        assert!(!is_reset(both, 9, control, None), "{control:?}");
    }
    by_hand.station.send(9, TcpControl::Fin, (101, Some(seq)));
    by_hand.exchange(stack);
    assert_eq!(accepted.read(&mut [0], NOW), Ok(0), "the end");
}
