//! TCP over the port's own queues: two stacks, and a station whose segments are made by hand.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{echo, question};
use ringside_bus::Clock;
use ringside_config::Within;
use ringside_model::Fault;
use ringside_pmd::Device;
use ringside_pmd::recovery::Supervision;
use ringside_stack::{Stack, TcpConnection, TcpError, TcpListener};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol,
    Ipv4Address, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
    TcpTimestampRepr,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// No wait: the test itself lets the stacks work.
pub(crate) const NOW: Duration = Duration::ZERO;
/// Rounds of a test. A round without frames takes 1 ms of virtual time.
const ROUNDS: usize = 200_000;
pub(crate) const PORT: u16 = 7000;

/// Two stacks and their devices.
struct Two {
    bed: Bed,
    devices: [Device; 2],
    stacks: [Stack; 2],
    clock: Arc<dyn Clock>,
}

impl Two {
    fn new(addresses: [&[&str]; 2]) -> Self {
        let bed = Bed::new();
        let (device_a, a) = bed.stack(0, &config(addresses[0]));
        let (device_b, b) = bed.stack(1, &config(addresses[1]));
        let clock = bed.world.clock();
        Self {
            bed,
            devices: [device_a, device_b],
            stacks: [a, b],
            clock,
        }
    }

    fn v4() -> Self {
        Self::new([&["192.0.2.1/24"], &["192.0.2.2/24"]])
    }

    /// Lets both stacks work once.
    fn turn(&mut self) {
        let moved: usize = self
            .stacks
            .iter_mut()
            .map(|one| one.poll(self.clock.now()))
            .sum();
        self.bed.pass();
        if moved == 0 {
            self.bed.world.jump(Duration::from_millis(1));
        }
    }

    /// Lets both work until `done` returns something.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..ROUNDS {
            if let Some(found) = done(self) {
                return found;
            }
            self.turn();
        }
        panic!("not in {ROUNDS} rounds: {:?}", self.stacks);
    }

    /// Connects the first to a listener of the second at `address`.
    fn connect(&mut self, address: SocketAddr) -> (TcpConnection, TcpConnection) {
        let clock = Arc::clone(&self.clock);
        let listener = self.stacks[1].listen_tcp(address, 4, &clock).unwrap();
        let near = self.stacks[0].connect_tcp(address, &clock).unwrap();
        let far = self.until(|_| match listener.accept(NOW) {
            Ok(far) => Some(far),
            Err(TcpError::NoPeer { .. }) => None,
            Err(other) => panic!("{other}"),
        });
        self.until(|_| near.wait_until_open(NOW).ok());
        assert_eq!((near.local(), near.peer()), (far.peer(), far.local()));
        assert_eq!(near.peer(), address);
        (near, far)
    }

    fn finish(self) {
        drop(self.stacks);
        self.bed.finish(self.devices);
    }
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// Bytes without a period that a segment has.
fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// One end that writes `rest` and reads into `read` as far as it gets, without waiting.
struct Talk<'c> {
    connection: &'c mut TcpConnection,
    rest: &'c [u8],
    read: Vec<u8>,
    ended: bool,
}

impl<'c> Talk<'c> {
    fn new(connection: &'c mut TcpConnection, rest: &'c [u8]) -> Self {
        Self {
            connection,
            rest,
            read: Vec::new(),
            ended: false,
        }
    }

    /// True once all is written, and the peer's end was read.
    fn go_on(&mut self) -> bool {
        match self.connection.write(self.rest, NOW) {
            Ok(0) => self.connection.finish(),
            Ok(count) => self.rest = &self.rest[count..],
            Err(TcpError::Stalled { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        let mut piece = [0; 3000];
        while !self.ended {
            match self.connection.read(&mut piece, NOW) {
                Ok(0) => self.ended = true,
                Ok(count) => self.read.extend_from_slice(&piece[..count]),
                Err(TcpError::Silent { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        self.ended && self.rest.is_empty()
    }
}

/// `length` bytes each way, both ends.
fn talks(two: &mut Two, address: SocketAddr, length: usize) {
    let (mut near, mut far) = two.connect(address);
    let (there, back) = (pattern(length, 3), pattern(length, 5));
    let mut first = Talk::new(&mut near, &there);
    let mut second = Talk::new(&mut far, &back);
    two.until(|_| {
        let both = [first.go_on(), second.go_on()];
        (both == [true; 2]).then_some(())
    });
    assert!(first.read == back, "{} bytes", first.read.len());
    assert!(second.read == there, "{} bytes", second.read.len());
}

#[test]
fn bytes_arrive_whole_both_ways_over_each_version_of_ip_and_a_vlan() {
    for (addresses, to) in [
        (["192.0.2.1/24", "192.0.2.2/24"], "192.0.2.2"),
        (["2001:db8::1/64", "2001:db8::2/64"], "2001:db8::2"),
        (["192.0.2.1/24@9", "192.0.2.2/24@9"], "192.0.2.2"),
    ] {
        let mut two = Two::new([&addresses[..1], &addresses[1..]]);
        talks(&mut two, at(to, PORT), 150_000);
        two.finish();
    }
}

#[test]
fn bytes_arrive_whole_over_a_wire_that_loses_repeats_reorders_and_changes_frames() {
    const SEED: u64 = 11;
    let mut two = Two::v4();
    two.bed.world.with(|world| {
        let (per_million, seed) = (20_000, SEED);
        let switch = world.switch();
        switch.inject(Fault::DropFrames { per_million, seed });
        switch.inject(Fault::DuplicateFrames { per_million, seed });
        switch.inject(Fault::CorruptFrames { per_million, seed });
        switch.inject(Fault::ReorderFrames {
            per_million,
            seed,
            behind: 2,
        });
    });
    talks(&mut two, at("192.0.2.2", PORT), 150_000);
    let lost = two
        .bed
        .world
        .with(|world| world.switch().counters().dropped);
    assert!(lost > 0, "the wire lost nothing; seed {SEED}");
    two.finish();
}

#[test]
fn a_listener_of_all_addresses_takes_connections_to_each() {
    let mut two = Two::new([
        &["192.0.2.1/24", "2001:db8::1/64", "10.9.0.1/24@5"],
        &["192.0.2.2/24", "2001:db8::2/64", "10.9.0.2/24@5"],
    ]);
    let clock = Arc::clone(&two.clock);
    let listener = two.stacks[1]
        .listen_tcp(at("0.0.0.0", 0), 4, &clock)
        .unwrap();
    let port = listener.address().port();
    assert_ne!(port, 0);
    let mut ends = Vec::new();
    for address in ["192.0.2.2", "2001:db8::2", "10.9.0.2"] {
        let near = two.stacks[0]
            .connect_tcp(at(address, port), &clock)
            .unwrap();
        let far = two.until(|_| listener.accept(NOW).ok());
        assert_eq!(far.local(), at(address, port));
        ends.push((near, far));
    }
    let same = two.stacks[1].listen_tcp(at("192.0.2.2", port), 1, &clock);
    assert!(matches!(same, Err(TcpError::InUse(_))), "{same:?}");
    drop((listener, ends));
    two.turn();
    drop(
        two.stacks[1]
            .listen_tcp(at("192.0.2.2", port), 1, &clock)
            .unwrap(),
    );
    two.finish();
}

#[test]
fn listeners_of_all_addresses_on_many_vlans_leave_room_for_connections() {
    let vlans = (1..=40).map(|vlan| format!("10.9.{vlan}.2/24@{vlan}"));
    let all: Vec<String> = ["192.0.2.2/24".to_owned()]
        .into_iter()
        .chain(vlans)
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut two = Two::new([&["192.0.2.1/24", "10.9.40.1/24@40"], &all]);
    let clock = Arc::clone(&two.clock);
    let listeners = [1, 2, 3].map(|port| {
        let listened = two.stacks[1].listen_tcp(at("0.0.0.0", port), 4, &clock);
        listened.unwrap()
    });
    for address in ["192.0.2.2", "10.9.40.2"] {
        for listener in &listeners {
            let to = at(address, listener.address().port());
            let near = two.stacks[0].connect_tcp(to, &clock).unwrap();
            two.until(|_| near.wait_until_open(NOW).ok());
        }
    }
    let own = two.stacks[1].connect_tcp(at("192.0.2.1", PORT), &clock);
    assert!(own.is_ok(), "{own:?}");
    drop((own, listeners));
    two.finish();
}

#[test]
fn a_port_without_a_listener_refuses_and_so_does_a_full_backlog() {
    let mut two = Two::v4();
    let clock = Arc::clone(&two.clock);
    let refused = |two: &mut Two| {
        let asked = two.stacks[0]
            .connect_tcp(at("192.0.2.2", PORT), &clock)
            .unwrap();
        two.until(|_| match asked.wait_until_open(NOW) {
            Err(TcpError::Unanswered { .. }) => None,
            ended => Some(ended),
        })
    };
    assert_eq!(
        refused(&mut two),
        Err(TcpError::Refused(at("192.0.2.2", PORT)))
    );
    let listener = two.stacks[1]
        .listen_tcp(at("192.0.2.2", PORT), 1, &clock)
        .unwrap();
    let first = two.stacks[0]
        .connect_tcp(at("192.0.2.2", PORT), &clock)
        .unwrap();
    two.until(|_| first.wait_until_open(NOW).ok());
    assert_eq!(
        refused(&mut two),
        Err(TcpError::Refused(at("192.0.2.2", PORT)))
    );
    // One that is taken leaves its place.
    let taken = two.until(|_| listener.accept(NOW).ok());
    two.turn();
    assert_eq!(refused(&mut two), Ok(()));
    drop((taken, first, listener));
    two.turn();
    assert_eq!(
        refused(&mut two),
        Err(TcpError::Refused(at("192.0.2.2", PORT)))
    );
    two.finish();
}

#[test]
fn addresses_that_cannot_be_used_are_refused_by_name() {
    let mut two = Two::v4();
    let clock = Arc::clone(&two.clock);
    let stack = &mut two.stacks[0];
    let error = stack
        .listen_tcp(at("192.0.2.9", PORT), 1, &clock)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the port has the addresses 192.0.2.1"),
        "{error}"
    );
    for backlog in [0, 65] {
        let error = stack
            .listen_tcp(at("192.0.2.1", PORT), backlog, &clock)
            .unwrap_err();
        assert!(matches!(error, TcpError::Backlog { .. }), "{error}");
    }
    for peer in ["192.0.2.1", "224.0.0.7", "0.0.0.0"] {
        let error = stack.connect_tcp(at(peer, PORT), &clock).unwrap_err();
        assert_eq!(error, TcpError::NotPeer(at(peer, PORT)));
    }
    let error = stack
        .connect_tcp(at("203.0.113.1", PORT), &clock)
        .unwrap_err();
    assert!(
        error.to_string().contains("no way to 203.0.113.1"),
        "{error}"
    );
    two.finish();
}

#[test]
fn the_port_of_a_listener_is_free_as_soon_as_it_is_dropped() {
    let mut two = Two::v4();
    let (clock, address) = (Arc::clone(&two.clock), at("192.0.2.1", PORT));
    let stack = &mut two.stacks[0];
    let listener = stack.listen_tcp(address, 1, &clock).unwrap();
    let refused = stack.listen_tcp(address, 1, &clock).unwrap_err();
    assert_eq!(refused, TcpError::InUse(address));
    drop(listener);
    stack.listen_tcp(address, 1, &clock).expect("it is free");
    two.finish();
}

#[test]
fn what_was_written_is_delivered_after_the_connection_was_dropped() {
    let mut two = Two::v4();
    let (mut near, mut far) = two.connect(at("192.0.2.2", PORT));
    let bytes = pattern(16 << 10, 9);
    assert_eq!(near.write(&bytes, NOW), Ok(bytes.len()));
    drop(near);
    let mut talk = Talk::new(&mut far, &[]);
    two.until(|_| talk.go_on().then_some(()));
    assert!(talk.read == bytes);
    two.finish();
}

/// Bytes that were there when the connection was dropped, and bytes that come later; the written
/// ones arrive in any case.
#[test]
fn a_connection_that_was_dropped_is_reset_if_its_bytes_were_not_read() {
    for is_before in [true, false] {
        let mut two = Two::v4();
        let (mut near, mut far) = two.connect(at("192.0.2.2", PORT));
        let bytes = pattern(16 << 10, 9);
        assert_eq!(near.write(&bytes, NOW), Ok(bytes.len()));
        if is_before {
            assert_eq!(far.write(b"not read", NOW), Ok(8));
            for _ in 0..100 {
                two.turn();
            }
        }
        drop(near);
        if !is_before {
            for _ in 0..100 {
                two.turn();
            }
            assert_eq!(far.write(b"not read", NOW), Ok(8));
        }
        let mut read = Vec::new();
        let end = two.until(|_| {
            let mut some = [0; 4096];
            match far.read(&mut some, NOW) {
                Ok(0) => Some(None),
                Ok(count) => {
                    read.extend_from_slice(&some[..count]);
                    None
                }
                Err(TcpError::Silent { .. }) => None,
                Err(error) => Some(Some(error)),
            }
        });
        // The end of the own side is no end of the peer's.
        assert!(read == bytes, "{} bytes", read.len());
        let broken = TcpError::Broken(far.peer());
        match is_before {
            true => assert_eq!(end, Some(broken)),
            false => assert!(end.is_none() || end == Some(broken.clone()), "{end:?}"),
        }
        two.until(|_| far.write(b"lost", NOW).err());
        let ended = far.close(NOW).expect_err("bytes are lost");
        assert!(matches!(ended, TcpError::Broken(_)), "{ended}");
        two.finish();
    }
}

/// A peer that answers each probe of its closed window, and reads nothing.
#[test]
fn a_connection_that_was_dropped_is_reset_after_ten_seconds_if_its_peer_does_not_read() {
    let mut two = Two::v4();
    let (mut near, mut far) = two.connect(at("192.0.2.2", PORT));
    for _ in 0..100 {
        let _ = near.write(&[7; 4096], NOW);
        two.turn();
    }
    drop(near);
    let mut pass = |tenths: u32| {
        for _ in 0..tenths {
            two.bed.world.jump(Duration::from_millis(100));
            for _ in 0..4 {
                two.turn();
            }
        }
    };
    pass(80);
    assert_eq!(far.write(b"x", NOW), Ok(1), "its bytes may still arrive");
    pass(40);
    assert_eq!(far.write(b"x", NOW), Err(TcpError::Broken(far.peer())));
    drop(far);
    two.finish();
}

/// The second end reads nothing until the connection has ended in both stacks, and long after.
#[test]
fn bytes_and_the_end_wait_for_a_reader_that_comes_after_the_connection() {
    let mut two = Two::v4();
    let (mut near, mut far) = two.connect(at("192.0.2.2", PORT));
    let bytes = pattern(30_000, 4);
    let mut rest = &bytes[..];
    two.until(|_| {
        rest = &rest[near.write(rest, NOW).unwrap_or(0)..];
        rest.is_empty().then_some(())
    });
    near.finish();
    far.finish();
    for _ in 0..30_000 {
        two.turn();
    }
    let mut talk = Talk::new(&mut far, &[]);
    two.until(|_| talk.go_on().then_some(()));
    assert!(talk.read == bytes, "{} bytes", talk.read.len());
    two.finish();
}

#[test]
fn a_peer_that_does_not_read_stops_the_writer_and_memory_stays_bounded() {
    let mut two = Two::v4();
    let (mut near, mut far) = two.connect(at("192.0.2.2", PORT));
    let mut written = 0;
    for _ in 0..3000 {
        match near.write(&[7; 4096], NOW) {
            Ok(count) => written += count,
            Err(TcpError::Stalled { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        two.turn();
    }
    // Both pipes and both windows.
    assert_eq!(written, 4 * (16 << 10));
    let mut piece = [0; 10];
    assert_eq!(far.peek(&mut piece, NOW), Ok(10));
    // Longer than the time between two probes of the closed window, several times.
    for _ in 0..2500 {
        two.bed.world.jump(Duration::from_millis(100));
        // A probe, and its answer.
        for _ in 0..4 {
            two.turn();
        }
    }
    let stalled = near.write(&[7; 4096], NOW);
    assert!(
        matches!(stalled, Err(TcpError::Stalled { .. })),
        "{stalled:?}"
    );
    near.finish();
    let mut talk = Talk::new(&mut far, &[]);
    two.until(|_| talk.go_on().then_some(()));
    assert_eq!(talk.read, vec![7; written]);
    drop((near, far));
    two.finish();
}

#[test]
fn a_stack_has_a_limit_of_connections_and_ends_its_handles_with_it() {
    let mut two = Two::v4();
    let (mut near, _far) = two.connect(at("192.0.2.2", PORT));
    let clock = Arc::clone(&two.clock);
    let mut asked = Vec::new();
    let error = loop {
        match two.stacks[0].connect_tcp(at("192.0.2.3", PORT), &clock) {
            Ok(connection) => asked.push(connection),
            Err(error) => break error,
        }
    };
    assert_eq!(error, TcpError::TooMany { limit: 64 });
    assert_eq!(asked.len(), 63);
    drop(asked);
    two.until(|two| {
        two.stacks[0]
            .connect_tcp(at("192.0.2.3", PORT), &clock)
            .ok()
    });
    drop(two.stacks);
    assert_eq!(near.write(b"x", NOW), Err(TcpError::Ended));
    assert_eq!(
        near.read(&mut [0], Duration::from_secs(1)),
        Err(TcpError::Ended)
    );
    two.bed.finish(two.devices);
}

#[test]
fn a_stack_beside_other_queues_gets_the_segments_of_its_connections() {
    let bed = Bed::new();
    let (device_a, a) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (device_b, b, mut others) = bed.stack_beside(1, &config(&["192.0.2.2/24"]), (4, 2));
    let clock = bed.world.clock();
    let mut two = Two {
        bed,
        devices: [device_a, device_b],
        stacks: [a, b],
        clock,
    };
    talks(&mut two, at("192.0.2.2", PORT), 20_000);
    two.stacks.swap(0, 1);
    talks(&mut two, at("192.0.2.1", PORT), 20_000);
    two.stacks.swap(0, 1);
    let mut burst = ringside_lan::Burst::default();
    let count: usize = others
        .iter_mut()
        .map(|queue| queue.receive(&mut burst))
        .sum();
    assert_eq!(count, 0, "the other queues got nothing");
    drop((burst, others));
    two.finish();
}

#[test]
fn a_connection_whose_own_address_is_removed_says_so() {
    let mut two = Two::v4();
    let address = at("192.0.2.2", PORT);
    let (mut near, mut far) = two.connect(address);
    let own: IpAddr = address.ip();
    two.stacks[1].remove_address(own, None).unwrap();
    let error = two.until(|_| far.read(&mut [0; 8], NOW).err().filter(is_end));
    assert_eq!(error, TcpError::AddressRemoved(own));
    assert!(error.to_string().contains("192.0.2.2"), "{error}");
    let error = far.write(b"late", NOW).unwrap_err();
    assert_eq!(error, TcpError::AddressRemoved(own));
    // The peer learns nothing of it, as from Linux.
    let error = near.read(&mut [0; 8], NOW).unwrap_err();
    assert!(!is_end(&error), "{error}");
    drop((near, far));
    two.finish();
}

/// smoltcp forgets all neighbours of a link whose addresses change, and asks for one in a second.
#[test]
fn connections_go_on_at_once_after_a_change_of_the_addresses() {
    let peers = [
        "192.0.2.2",
        "192.0.2.3",
        "192.0.2.4",
        "192.0.2.5",
        "2001:db8::2",
    ];
    let mut two = Two::new([
        &["192.0.2.1/24", "2001:db8::1/64"],
        &[
            "192.0.2.2/24",
            "192.0.2.3/24",
            "192.0.2.4/24",
            "192.0.2.5/24",
            "2001:db8::2/64",
        ],
    ]);
    let clock = Arc::clone(&two.clock);
    let mut pairs: Vec<_> = peers
        .iter()
        .map(|peer| {
            // As `Resolver::connect_tcp` does first.
            two.until(|two| {
                let found = two.stacks[0].lookup(at(peer, 0).ip(), Within::All, clock.now());
                found.expect("a neighbour")
            });
            two.connect(at(peer, PORT))
        })
        .collect();
    // On another VLAN, and on that of the connections.
    for added in ["10.9.0.1/24@9", "192.0.2.9/24"] {
        two.stacks[0]
            .add_address(added.parse().unwrap(), clock.now())
            .unwrap();
        let limit = clock.now().plus(Duration::from_millis(100));
        for (near, far) in &mut pairs {
            assert_eq!(near.write(b"bytes", NOW), Ok(5));
            let mut read = [0; 5];
            let count = two.until(|_| far.read(&mut read, NOW).ok());
            assert_eq!(read[..count], b"bytes"[..count]);
            assert!(clock.now() < limit, "{added}: {}", near.peer());
        }
    }
    drop(pairs);
    two.finish();
}

/// True if the error is no wait that was too short.
fn is_end(error: &TcpError) -> bool {
    !matches!(error, TcpError::Silent { .. } | TcpError::Stalled { .. })
}

#[test]
fn a_device_that_fails_ends_connections_and_listeners_at_once() {
    let mut two = Two::v4();
    let (mut near, _far) = two.connect(at("192.0.2.2", PORT));
    let clock = Arc::clone(&two.clock);
    let listener = two.stacks[0]
        .listen_tcp(at("192.0.2.1", PORT), 1, &clock)
        .unwrap();
    two.bed
        .world
        .with(|world| world.inject(0, Fault::FunctionDead));
    let mut events = Vec::new();
    let _ = two.devices[0].poll_events(&mut events);
    let mut supervision = Supervision::new(Duration::from_millis(1), Duration::from_secs(1));
    two.bed.world.jump(Duration::from_secs(2));
    let seen = two.devices[0].observe(&mut supervision, &mut events);
    assert!(two.devices[0].failure().is_some(), "{seen:?} {events:?}");
    let long = Duration::from_secs(1000);
    let failed = two.until(|_| match near.read(&mut [0], NOW) {
        Err(TcpError::Silent { .. }) => None,
        other => Some(other),
    });
    assert_eq!(failed, Err(TcpError::OutOfService));
    assert_eq!(near.write(b"x", long), Err(TcpError::OutOfService));
    assert_eq!(listener.accept(long).unwrap_err(), TcpError::OutOfService);
    let asked = two.stacks[0].connect_tcp(at("192.0.2.2", PORT), &clock);
    assert_eq!(asked.unwrap_err(), TcpError::OutOfService);
}

/// A station at 192.0.2.9 whose segments are made by hand.
pub(crate) struct Station {
    raw: Raw,
    to: [u8; 6],
    /// of the stack
    pub(crate) to_port: u16,
}

const OWN: Ipv4Address = Ipv4Address::new(192, 0, 2, 9);
const PEER: Ipv4Address = Ipv4Address::new(192, 0, 2, 2);

impl Station {
    pub(crate) fn send(
        &mut self,
        port: u16,
        control: TcpControl,
        numbers: (i32, Option<TcpSeqNumber>),
    ) {
        self.send_from((OWN, port), control, numbers);
    }

    /// The same as from another host.
    pub(crate) fn send_from(
        &mut self,
        (own, port): (Ipv4Address, u16),
        control: TcpControl,
        (seq, ack): (i32, Option<TcpSeqNumber>),
    ) {
        let segment = TcpRepr {
            src_port: port,
            dst_port: self.to_port,
            control,
            seq_number: TcpSeqNumber(seq),
            ack_number: ack,
            window_len: 1000,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None, None, None],
            timestamp: None::<TcpTimestampRepr>,
            payload: &[],
        };
        let packet = Ipv4Repr {
            src_addr: own,
            dst_addr: PEER,
            next_header: IpProtocol::Tcp,
            payload_len: segment.buffer_len(),
            hop_limit: 64,
        };
        let header = EthernetRepr {
            src_addr: EthernetAddress(self.raw.port.mac()),
            dst_addr: EthernetAddress(self.to),
            ethertype: EthernetProtocol::Ipv4,
        };
        let checks = ChecksumCapabilities::default();
        let mut frame = vec![0; 14 + 20 + segment.buffer_len()];
        header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..14]));
        packet.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..34]), &checks);
        let (own, peer) = (IpAddress::from(own), IpAddress::from(PEER));
        let mut place = TcpPacket::new_unchecked(&mut frame[34..]);
        segment.emit(&mut place, &own, &peer, &checks);
        self.raw.send(&frame);
    }

    /// The segments that came: port, flags SYN and RST, sequence number.
    fn heard(&mut self) -> Vec<(u16, bool, bool, TcpSeqNumber)> {
        let frames = self.raw.poll();
        let of_tcp = frames
            .iter()
            .filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6);
        let segments = of_tcp.map(|frame| {
            let segment = TcpPacket::new_unchecked(&frame[34..]);
            (
                segment.dst_port(),
                segment.syn(),
                segment.rst(),
                segment.seq_number(),
            )
        });
        segments.collect()
    }
}

/// A stack at 192.0.2.2, and a station beside it whose segments are made by hand.
pub(crate) struct ByHand {
    pub(crate) bed: Bed,
    pub(crate) station: Station,
}

impl ByHand {
    /// The stack knows the station's MAC address after the first exchange.
    fn new() -> (Self, Device, Stack) {
        let bed = Bed::new();
        let (device, stack) = bed.stack(1, &config(&["192.0.2.2/24"]));
        let to = stack.port().mac();
        let mut raw = Raw::new(&bed, 0, &settings());
        let own = raw.port.mac();
        // A question, from which the stack learns the address of the one that asks.
        raw.send(&question(own, OWN.octets(), PEER.octets()));
        let station = Station {
            raw,
            to,
            to_port: PORT,
        };
        (Self { bed, station }, device, stack)
    }

    /// The same with a listener, which takes `backlog` requests.
    pub(crate) fn listening(backlog: usize) -> (Self, Device, Stack, TcpListener) {
        let (mut by_hand, device, mut stack) = Self::new();
        let clock = by_hand.bed.world.clock();
        let listener = stack.listen_tcp(at("192.0.2.2", PORT), backlog, &clock);
        by_hand.exchange(&mut stack);
        (by_hand, device, stack, listener.unwrap())
    }

    /// Lets the stack work, and returns its segments.
    pub(crate) fn exchange(&mut self, stack: &mut Stack) -> Vec<(u16, bool, bool, TcpSeqNumber)> {
        for _ in 0..20 {
            self.bed.pass();
            stack.poll(self.bed.world.clock().now());
        }
        self.station.heard()
    }

    pub(crate) fn finish(self, device: Device) {
        self.bed.finish([self.station.raw.into_device(), device]);
    }
}

/// A request that comes twice, because its answer was lost, is of one connection, whichever socket
/// of the stack waits for the next one.
#[test]
fn a_repeated_request_makes_no_second_connection() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(8);
    let mut accepted = Vec::new();
    // The sockets of earlier connections are free again, in front of those that are in use.
    for port in [1, 2, 3] {
        by_hand.station.send(port, TcpControl::Syn, (100, None));
        let answers = by_hand.exchange(&mut stack);
        let (_, syn, _, seq) = answers[0];
        assert!(syn, "{answers:?}");
        if port == 3 {
            by_hand.station.send(port, TcpControl::Syn, (100, None));
            let again = by_hand.exchange(&mut stack);
            assert!(
                again.iter().all(|one| one.3 == seq || one.3 == seq + 1),
                "{again:?} {seq}"
            );
        }
        by_hand
            .station
            .send(port, TcpControl::None, (101, Some(seq + 1)));
        by_hand.exchange(&mut stack);
        accepted.push(listener.accept(NOW).expect("established"));
        if port == 2 {
            by_hand.station.send(1, TcpControl::Rst, (101, None));
            by_hand.exchange(&mut stack);
            assert_eq!(
                accepted[0].read(&mut [0], NOW),
                Err(TcpError::Broken(at("192.0.2.9", 1)))
            );
        }
    }
    assert!(matches!(listener.accept(NOW), Err(TcpError::NoPeer { .. })));
    drop((accepted, listener, stack));
    by_hand.finish(device);
}

/// Requests that are reset before they are established, as a scan of ports makes them.
#[test]
fn requests_that_are_reset_leave_no_sockets_behind() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(64);
    for port in 1..=100 {
        by_hand.station.send(port, TcpControl::Syn, (100, None));
        let answers = by_hand.exchange(&mut stack);
        assert!(answers.iter().any(|one| one.1), "port {port}: {answers:?}");
        by_hand.station.send(port, TcpControl::Rst, (101, None));
        by_hand.exchange(&mut stack);
    }
    // As many as a stack has, but for the one that waits.
    let clock = by_hand.bed.world.clock();
    let asked: Vec<_> = (0..63)
        .map(|_| stack.connect_tcp(at("192.0.2.9", PORT), &clock))
        .collect();
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    drop((asked, listener, stack));
    by_hand.finish(device);
}

/// The peer has finished, and resets the connection instead of confirming the last bytes.
#[test]
fn bytes_that_the_peer_has_not_confirmed_are_not_delivered() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(8);
    by_hand.station.send(1, TcpControl::Syn, (100, None));
    let seq = by_hand.exchange(&mut stack)[0].3;
    by_hand
        .station
        .send(1, TcpControl::None, (101, Some(seq + 1)));
    by_hand.exchange(&mut stack);
    let mut connection = listener.accept(NOW).expect("established");
    by_hand
        .station
        .send(1, TcpControl::Fin, (101, Some(seq + 1)));
    by_hand.exchange(&mut stack);
    assert_eq!(connection.write(b"last", NOW), Ok(4));
    connection.finish();
    by_hand.exchange(&mut stack);
    by_hand.station.send(1, TcpControl::Rst, (102, None));
    by_hand.exchange(&mut stack);
    assert_eq!(
        connection.close(NOW),
        Err(TcpError::Broken(at("192.0.2.9", 1)))
    );
    drop((listener, stack));
    by_hand.finish(device);
}

/// Both ends ask for the same connection at once: RFC 9293, section 3.5.
#[test]
fn a_request_that_meets_the_own_one_opens_nothing_before_it_is_confirmed() {
    let (mut by_hand, device, mut stack) = ByHand::new();
    let clock: Arc<dyn Clock> = by_hand.bed.world.clock();
    by_hand.exchange(&mut stack);
    let near = stack.connect_tcp(at("192.0.2.9", PORT), &clock).unwrap();
    by_hand.station.to_port = near.local().port();
    let (_, is_request, _, seq) = by_hand.exchange(&mut stack)[0];
    assert!(is_request);
    by_hand.station.send(PORT, TcpControl::Syn, (100, None));
    by_hand.exchange(&mut stack);
    let open = near.wait_until_open(NOW);
    assert!(matches!(open, Err(TcpError::Unanswered { .. })), "{open:?}");
    by_hand
        .station
        .send(PORT, TcpControl::None, (101, Some(seq + 1)));
    by_hand.exchange(&mut stack);
    assert_eq!(near.wait_until_open(NOW), Ok(()));
    drop((near, stack));
    by_hand.finish(device);
}

/// Written, finished and dropped before the peer has answered the request.
#[test]
fn a_connection_that_is_finished_before_it_is_open_is_no_refusal_and_delivers() {
    for (bytes, is_dropped) in [(&b"early"[..], false), (b"early", true), (b"", false)] {
        let mut two = Two::v4();
        let clock = Arc::clone(&two.clock);
        let address = at("192.0.2.2", PORT);
        let listener = two.stacks[1].listen_tcp(address, 4, &clock).unwrap();
        let mut near = two.stacks[0].connect_tcp(address, &clock).unwrap();
        assert_eq!(near.write(bytes, NOW), Ok(bytes.len()));
        near.finish();
        let near = (!is_dropped).then_some(near);
        let mut far = two.until(|_| listener.accept(NOW).ok());
        let mut read = [0; 8];
        if !bytes.is_empty() {
            let count = two.until(|_| far.read(&mut read, NOW).ok());
            assert_eq!(&read[..count], bytes);
        }
        assert_eq!(two.until(|_| far.read(&mut read, NOW).ok()), 0, "the end");
        far.finish();
        if let Some(near) = near {
            assert_eq!(near.wait_until_open(NOW), Ok(()));
        }
        drop((far, listener));
        two.finish();
    }
}

/// As routers and hosts do whose address another machine or network card takes over.
#[test]
fn segments_go_to_the_mac_address_that_a_known_station_announces() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(8);
    let raw = &mut by_hand.station.raw;
    raw.port.set_promiscuous(true).expect("the device");
    let former = raw.port.mac();
    let answered = |by_hand: &mut ByHand, stack: &mut Stack, port| {
        by_hand.station.send(port, TcpControl::Syn, (100, None));
        for _ in 0..20 {
            by_hand.bed.pass();
            stack.poll(by_hand.bed.world.clock().now());
        }
        let frames = by_hand.station.raw.poll();
        let mut segments = frames.iter().filter(|frame| frame[12..14] == [8, 0]);
        let segment = segments.next().expect("an answer");
        <[u8; 6]>::try_from(&segment[..6]).expect("a header")
    };
    assert_eq!(answered(&mut by_hand, &mut stack, 1), former);
    let (next, third) = ([2, 0, 0, 2, 0, 0x63], [2, 0, 0, 3, 0, 0x63]);
    let raw = &mut by_hand.station.raw;
    raw.send(&question(next, OWN.octets(), OWN.octets()));
    assert_eq!(answered(&mut by_hand, &mut stack, 2), next);
    // An announcement may be a reply, too.
    let mut reply = question(third, OWN.octets(), OWN.octets());
    reply[21] = 2;
    by_hand.station.raw.send(&reply);
    assert_eq!(answered(&mut by_hand, &mut stack, 3), third);
    // The stack asks for it and has no answer, and smoltcp knows it still.
    let clock = by_hand.bed.world.clock();
    let station = OWN.into();
    let mut found = stack.lookup(station, Within::All, clock.now());
    let end = clock.now().plus(Duration::from_secs(33));
    while found.is_ok() && clock.now() < end {
        clock.pause(Duration::from_millis(100));
        stack.poll(clock.now());
        found = stack.lookup(station, Within::All, clock.now());
    }
    assert!(found.is_err(), "{found:?}");
    // Answers that were repeated meanwhile.
    while !by_hand.station.raw.poll().is_empty() {}
    let fourth = [2, 0, 0, 4, 0, 0x63];
    let raw = &mut by_hand.station.raw;
    raw.send(&question(fourth, OWN.octets(), OWN.octets()));
    assert_eq!(answered(&mut by_hand, &mut stack, 4), fourth);
    // A station that the stack does not know is not taken.
    let known = stack.neighbours(by_hand.bed.world.clock().now()).len();
    by_hand
        .station
        .raw
        .send(&question(next, [192, 0, 2, 77], [192, 0, 2, 77]));
    by_hand.exchange(&mut stack);
    let after = stack.neighbours(by_hand.bed.world.clock().now()).len();
    assert_eq!(after, known);
    drop((listener, stack));
    by_hand.finish(device);
}

/// A ping does not prove that its sender has the address that it names.
#[test]
fn a_ping_leads_no_connection_to_another_station() {
    let (mut by_hand, device, mut stack, listener) = ByHand::listening(8);
    by_hand
        .station
        .raw
        .port
        .set_promiscuous(true)
        .expect("the device");
    let former = by_hand.station.raw.port.mac();
    by_hand.station.send(1, TcpControl::Syn, (100, None));
    let answers = by_hand.exchange(&mut stack);
    let next = Some(answers[0].3 + 1);
    by_hand.station.send(1, TcpControl::None, (101, next));
    by_hand.exchange(&mut stack);
    let mut near = listener.accept(NOW).expect("established");
    // The last answer of the station no longer counts; smoltcp still knows it.
    let clock = by_hand.bed.world.clock();
    let end = clock.now().plus(Duration::from_secs(31));
    while clock.now() < end {
        clock.pause(end.since(clock.now()));
    }
    let other = [2, 0, 0, 2, 0, 0x63];
    let to = (by_hand.station.to, other);
    let ping = echo(to, (OWN.octets(), PEER.octets()), b"data");
    by_hand.station.raw.send(&ping);
    by_hand.exchange(&mut stack);
    assert_eq!(near.write(b"x", NOW), Ok(1));
    for _ in 0..20 {
        by_hand.bed.pass();
        stack.poll(clock.now());
    }
    let frames = by_hand.station.raw.poll();
    let mut segments = frames
        .iter()
        .filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6);
    assert_eq!(segments.next().expect("a segment")[..6], former);
    drop((near, listener, stack));
    by_hand.finish(device);
}
