use super::*;
use crate::ports::tests::Side;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant as Clock};

/// Two ends on a loopback address that no other process and no other test uses; the kernel gives
/// the ports to no socket that names none.
fn places() -> (SocketAddrV4, SocketAddrV4) {
    static TESTS: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let test = TESTS.fetch_add(1, Ordering::Relaxed);
    let address = [127, 1 + high % 200, low, test].into();
    let place = |port| SocketAddrV4::new(address, port);
    (place(20_000), place(20_001))
}

fn ends(peer: SocketAddrV4, own: SocketAddrV4) -> UdpEnds {
    format!("{peer}@{own}").parse().unwrap()
}

impl Side {
    /// The next frame from the wire; nothing after a while.
    fn next(&mut self) -> Option<Vec<u8>> {
        let limit = Clock::now() + Duration::from_secs(60);
        while Clock::now() < limit {
            self.turn();
            if let Some(frame) = self.switch.take_outgoing(self.other) {
                return Some(frame);
            }
        }
        None
    }
}

fn pair() -> (Side, Side, SocketAddrV4, SocketAddrV4) {
    let (a, b) = places();
    let one = Side::new(UdpWire::open(&ends(b, a)).unwrap());
    let two = Side::new(UdpWire::open(&ends(a, b)).unwrap());
    (one, two, a, b)
}

fn frame(source: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, source, 0x88, 0xB5]);
    frame.resize(length, source);
    frame
}

#[test]
fn frames_of_any_length_reach_the_peer_unchanged_and_in_order() {
    let (mut one, mut two, ..) = pair();
    for length in [60, 1514, 4000, 9000, 9724] {
        one.send(&frame(1, length));
        assert_eq!(two.next(), Some(frame(1, length)), "{length} bytes");
        two.send(&frame(2, length));
        assert_eq!(one.next(), Some(frame(2, length)), "{length} bytes back");
    }
    assert_eq!((one.counters().sent, one.counters().received), (5, 5));
}

/// Frames between the MTU of the path and that of the own link arrive, whatever firewalls do with
/// ICMP.
#[test]
fn routers_may_cut_datagrams() {
    let (a, b) = places();
    let wire = UdpWire::open(&ends(b, a)).unwrap();
    let found = sockopt::ip_mtu_discover(&wire.socket).unwrap();
    assert_eq!(found, Ipv4PathMtuDiscovery::DONT);
}

#[test]
fn only_the_peer_may_speak() {
    let (mut one, mut two, a, _) = pair();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&frame(3, 60), a).unwrap();
    let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
    elsewhere.send_to(&frame(4, 60), a).unwrap();
    // What comes behind is from the peer: the strangers' would have come first.
    two.send(&frame(5, 60));
    assert_eq!(one.next(), Some(frame(5, 60)));
    assert_eq!(one.counters().received, 1);
}

#[test]
fn a_peer_may_come_late_and_its_absence_ends_nothing() {
    let (a, b) = places();
    let mut one = Side::new(UdpWire::open(&ends(b, a)).unwrap());
    for _ in 0..20 {
        one.send(&frame(1, 60));
        std::thread::sleep(Duration::from_millis(1));
    }
    // The kernel says afterwards that no one listened; a read or the next write gets that.
    let lost = one.counters();
    assert_eq!(lost.sent + lost.no_peer, 20, "{lost:?}");
    assert_eq!((lost.read_failures, lost.refused), (0, 0), "{lost:?}");
    let mut two = Side::new(UdpWire::open(&ends(a, b)).unwrap());
    // The first one may meet the answer to an earlier frame.
    one.send(&frame(1, 60));
    one.send(&frame(1, 60));
    assert!(two.next().is_some());
    two.send(&frame(2, 61));
    assert_eq!(one.next(), Some(frame(2, 61)));
}

#[test]
fn a_far_end_with_the_same_addresses_is_refused() {
    let (mut one, mut two, ..) = pair();
    for side in [&mut one, &mut two] {
        side.ports.refuse_from(vec![[2, 0, 0, 0, 0, 7]]);
    }
    two.send(&frame(7, 60));
    two.send(&frame(7, 61));
    two.send(&frame(8, 60));
    assert_eq!(one.next(), Some(frame(8, 60)));
    // Some of them are returned, so that the sender has seen one too.
    one.send(&frame(9, 60));
    assert_eq!(two.next(), Some(frame(9, 60)));
    assert_eq!(two.counters().own_address, 2);
    // And not for ever: of frames that go to and fro, some of the others' come first.
    for _ in 0..20 {
        two.send(&frame(10, 60));
        assert_eq!(one.next(), Some(frame(10, 60)));
        one.send(&frame(9, 60));
        assert_eq!(two.next(), Some(frame(9, 60)));
    }
    let counts = [&one, &two].map(|side| side.counters().own_address);
    assert_eq!(counts, [4, 3]);
}

#[test]
fn ends_are_read_and_wrong_ones_refused() {
    for (text, whole) in [
        ("192.0.2.7", "192.0.2.7:4795@:4795"),
        ("192.0.2.7:6000", "192.0.2.7:6000@:4795"),
        ("192.0.2.7@:6001", "192.0.2.7:4795@:6001"),
        ("192.0.2.7@192.0.2.8:6001", "192.0.2.7:4795@192.0.2.8:6001"),
        ("peer.example:80", "peer.example:80@:4795"),
        ("fd00::7", "[fd00::7]:4795@:4795"),
        ("[fd00::7]:1@[::1]:2", "[fd00::7]:1@[::1]:2"),
    ] {
        let ends: UdpEnds = text.parse().unwrap();
        assert_eq!(ends.to_string(), whole);
        assert_eq!(whole.parse(), Ok(ends));
    }
    for text in [
        "",
        "@",
        "a:0",
        "a:70000",
        "[::1",
        "[::1]x",
        "a@nowhere",
        "/run/a.sock",
    ] {
        assert!(text.parse::<UdpEnds>().is_err(), "{text}");
    }
}

#[test]
fn ends_that_cannot_meet_are_refused_with_the_reason() {
    let (place, peer) = places();
    let error = UdpWire::open(&ends(place, place)).unwrap_err().to_string();
    assert!(error.contains("both ends of the wire"), "{error}");
    let _other = UdpSocket::bind(place).unwrap();
    let error = UdpWire::open(&ends(peer, place)).unwrap_err().to_string();
    assert!(error.contains("another process uses the port"), "{error}");
    for peer in ["0.0.0.0", "255.255.255.255", "239.1.2.3", "::", "ff02::1"] {
        let error = UdpWire::open(&peer.parse().unwrap()).unwrap_err();
        assert!(matches!(error, UdpError::NotUnicast { .. }), "{error}");
    }
    let other = "127.0.0.1@203.0.113.9".parse().unwrap();
    let error = UdpWire::open(&other).unwrap_err().to_string();
    assert!(error.contains("no interface of this machine"), "{error}");
    let mixed = "192.0.2.7@[::1]:5".parse().unwrap();
    let error = UdpWire::open(&mixed).unwrap_err().to_string();
    assert!(error.contains("of this family"), "{error}");
    let of_a_link = ["[fe80::1]:4795", "[fe80::1%7]:4795", "[fd00::1]:4795"];
    let of_a_link = of_a_link.map(|peer| match peer.parse().unwrap() {
        SocketAddr::V6(peer) => is_of_a_link(peer),
        SocketAddr::V4(_) => false,
    });
    assert_eq!(of_a_link, [true, false, false]);
}

#[test]
fn no_word_of_the_network_or_of_a_firewall_ends_a_wire() {
    let error = |errno: Errno| std::io::Error::from(errno);
    let of_firewalls = [Errno::ACCESS, Errno::PERM, Errno::NOPROTOOPT];
    let of_networks = [
        Errno::CONNREFUSED,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::NETDOWN,
        Errno::HOSTDOWN,
        Errno::NONET,
    ];
    for errno in of_firewalls.into_iter().chain(of_networks) {
        assert_eq!(failed_read(&error(errno)), Received::Nothing, "{errno}");
        assert_eq!(failed_write(&error(errno)), Sent::NoPeer, "{errno}");
    }
    for errno in [Errno::AGAIN, Errno::INTR] {
        assert_eq!(failed_read(&error(errno)), Received::Nothing, "{errno}");
        assert_eq!(failed_write(&error(errno)), Sent::NoRoom, "{errno}");
    }
    for errno in [Errno::MSGSIZE, Errno::NOBUFS, Errno::IO] {
        assert_eq!(failed_read(&error(errno)), Received::Nothing, "{errno}");
        assert_eq!(failed_write(&error(errno)), Sent::Refused, "{errno}");
    }
    for errno in [Errno::BADF, Errno::NOTSOCK, Errno::FAULT] {
        assert_eq!(failed_read(&error(errno)), Received::Failed, "{errno}");
    }
}
