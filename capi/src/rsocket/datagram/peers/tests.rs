use super::{MAX_PEERS, MAX_WAITING, PATIENCE, PAUSE, Peers, REFRESH, Room};
use crate::cm::datagrams::Service;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn address(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, 1].into(), port)
}

fn service(queue_pair: u32) -> Service {
    Service {
        queue_pair,
        queue_key: 0x5253_0000,
    }
}

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_queue_pair_is_asked_for_once_and_datagrams_wait_for_it_in_order() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    let first = peers.plan(address(1), now);
    assert!(first.asks && first.service.is_none());
    for byte in 0..3 {
        let kept = peers.keep(address(1), now, || vec![byte]);
        assert_eq!(kept, Room::Taken);
        assert!(!peers.plan(address(1), now + SOON).asks);
    }
    assert!(peers.ready().is_empty());
    peers.settle(address(1), Some(service(7)), now + SOON);
    assert_eq!(peers.ready(), [(address(1), service(7))]);
    // A later datagram must not overtake those that wait.
    assert_eq!(peers.plan(address(1), now + SOON).service, None);
    for byte in 0..3 {
        assert_eq!(peers.first(address(1)), Some(&[byte][..]));
        peers.remove_first(address(1));
    }
    assert_eq!(peers.waiting(), 0);
    let known = peers.plan(address(1), now + SOON);
    assert_eq!((known.service, known.asks), (Some(service(7)), false));
}

#[test]
fn a_queue_pair_that_is_not_heard_of_is_used_and_asked_for_again() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.plan(address(1), now);
    peers.settle(address(1), Some(service(7)), now);
    assert!(!peers.plan(address(1), now + REFRESH - SOON).asks);
    let stale = peers.plan(address(1), now + REFRESH);
    assert_eq!((stale.service, stale.asks), (Some(service(7)), true));
    peers.settle(address(1), Some(service(8)), now + REFRESH);
    let fresh = peers.plan(address(1), now + REFRESH + SOON);
    assert_eq!((fresh.service, fresh.asks), (Some(service(8)), false));
}

#[test]
fn a_datagram_tells_the_queue_pair_of_its_sender() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.heard(address(1), service(7), now);
    let known = peers.plan(address(1), now + REFRESH - SOON);
    assert_eq!((known.service, known.asks), (Some(service(7)), false));
    peers.heard(address(1), service(7), now + REFRESH);
    let later = peers.plan(address(1), now + REFRESH + SOON);
    assert_eq!((later.service, later.asks), (Some(service(7)), false));
}

/// Of two sockets that had an address in turn, a datagram of the first may be read last.
#[test]
fn datagrams_wait_for_an_answer_where_two_queue_pairs_were_named() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.settle(address(1), Some(service(8)), now);
    peers.heard(address(1), service(8), now);
    peers.heard(address(1), service(7), now);
    peers.heard(address(1), service(7), now + SOON);
    let contested = peers.plan(address(1), now + SOON);
    assert_eq!((contested.service, contested.asks), (None, true));
    assert_eq!(peers.keep(address(1), now + SOON, Vec::new), Room::Taken);
    assert!(peers.ready().is_empty());
    peers.settle(address(1), Some(service(8)), now + SOON);
    assert_eq!(peers.ready(), [(address(1), service(8))]);
    peers.heard(address(1), service(8), now + SOON);
    assert_eq!(peers.ready().len(), 1);
}

#[test]
fn senders_do_not_wait_for_a_peer_that_has_refused() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    for _ in 0..MAX_WAITING {
        assert_eq!(peers.keep(address(1), now, Vec::new), Room::Taken);
    }
    assert!(!peers.takes(address(1), now) && peers.takes(address(2), now));
    assert_eq!(peers.keep(address(1), now, Vec::new), Room::Full);
    assert_eq!(peers.keep(address(2), now, Vec::new), Room::Taken);
    peers.settle(address(1), None, now);
    assert!(peers.takes(address(1), now));
    assert_eq!(peers.waiting(), 1);
    for _ in 0..2 * MAX_WAITING {
        assert_eq!(peers.keep(address(1), now + SOON, Vec::new), Room::Taken);
    }
    assert_eq!(peers.waiting(), 1 + MAX_WAITING);
    assert!(peers.plan(address(1), now + SOON).asks);
}

#[test]
fn datagrams_do_not_wait_for_ever() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.plan(address(1), now);
    peers.keep(address(1), now, Vec::new);
    peers.keep(address(2), now + SOON, Vec::new);
    assert!(!peers.expire(now + PATIENCE - SOON));
    assert!(peers.expire(now + PATIENCE));
    assert_eq!(peers.waiting(), 1);
    assert!(peers.plan(address(1), now + PATIENCE).asks);
}

#[test]
fn a_question_without_an_answer_is_asked_again() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    assert!(peers.plan(address(1), now).asks);
    peers.keep(address(1), now, Vec::new);
    assert!(!peers.plan(address(1), now + PAUSE - SOON).asks);
    assert!(peers.overdue(now + PAUSE - SOON).is_empty());
    assert_eq!(peers.overdue(now + PAUSE), [address(1)]);
    assert!(!peers.plan(address(1), now + PAUSE).asks);
    assert!(peers.plan(address(1), now + 2 * PAUSE).asks);
    peers.not_asked(address(1));
    assert!(peers.plan(address(1), now + 2 * PAUSE).asks);
    peers.settle(address(1), Some(service(7)), now + 2 * PAUSE);
    assert!(peers.overdue(now + 9 * PAUSE).is_empty());
}

#[test]
fn the_peer_that_was_not_used_for_longest_is_forgotten() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.keep(address(1), now, Vec::new);
    for port in 2..=MAX_PEERS as u16 {
        peers.plan(address(port), now + SOON * u32::from(port));
    }
    peers.heard(address(5000), service(7), now + SOON * 5000);
    assert_eq!(peers.all.len(), MAX_PEERS);
    assert!(!peers.all.contains_key(&address(2)));
    assert!(peers.all.contains_key(&address(1)), "a datagram waits");
}

#[test]
fn a_peer_has_one_open_question_however_often_it_is_asked() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    for round in 0..100 {
        assert!(peers.plan(address(1), now + PAUSE * round).asks);
        let obsolete = peers.take_obsolete();
        assert_eq!(obsolete, Vec::from_iter(round.checked_sub(1)));
        peers.asked(address(1), round);
    }
    let now = now + PAUSE * 100;
    peers.keep(address(1), now, Vec::new);
    assert_eq!(peers.overdue(now), [address(1)]);
    assert_eq!(peers.take_obsolete(), [99]);
    peers.asked(address(1), 100);
    assert!(peers.expire(now + PATIENCE));
    assert_eq!(peers.take_obsolete(), [100]);
    assert!(!peers.expire(now + PATIENCE) && peers.take_obsolete().is_empty());
}

/// A former one may end after the peer has come back.
#[test]
fn only_the_answer_of_the_last_question_counts() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    peers.plan(address(1), now);
    peers.asked(address(1), 1);
    peers.plan(address(1), now + PAUSE);
    assert!(!peers.answered((address(1), 1), None, now + PAUSE));
    peers.asked(address(1), 2);
    assert!(!peers.answered((address(1), 1), None, now + PAUSE));
    assert!(peers.answered((address(1), 2), Some(service(7)), now + PAUSE));
    assert!(!peers.answered((address(1), 1), None, now + PAUSE));
    assert!(!peers.answered((address(1), 2), None, now + PAUSE));
    let known = peers.plan(address(1), now + PAUSE);
    assert_eq!((known.service, known.asks), (Some(service(7)), false));
    assert_eq!(peers.take_obsolete(), [1], "the answered one has ended");
}

#[test]
fn the_question_of_a_peer_that_is_forgotten_ends() {
    let (mut peers, now) = (Peers::<u32>::new(), Instant::now());
    for port in 1..=MAX_PEERS as u16 + 1 {
        peers.plan(address(port), now + SOON * u32::from(port));
        peers.asked(address(port), port.into());
    }
    assert_eq!(peers.take_obsolete(), [1]);
    assert!(!peers.answered((address(1), 1), None, now));
}
