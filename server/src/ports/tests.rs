//! Wires to far ends that are absent, late, removed, full or hostile.

use super::*;
use ringside_model::packet::pcap::PcapWriter;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A switch with two external ports: a wire, and one that the test controls.
pub(in crate::ports) struct Side {
    pub(in crate::ports) switch: Switch,
    pub(in crate::ports) ports: Ports,
    pub(in crate::ports) other: usize,
}

impl Side {
    pub(in crate::ports) fn new(wire: impl Wire + 'static) -> Self {
        let mut switch = Switch::new(0, false);
        let mut ports = Ports::default();
        ports.attach(&mut switch, Box::new(wire));
        let other = switch.add_port();
        Self {
            switch,
            ports,
            other,
        }
    }

    fn datagrams(local: &Path, far: &Path) -> Self {
        Self::new(DatagramWire::bind(local, far).unwrap())
    }

    pub(in crate::ports) fn send(&mut self, frame: &[u8]) {
        self.switch.inject_frame(self.other, frame).unwrap();
        self.turn();
    }

    pub(in crate::ports) fn turn(&mut self) {
        self.ports.pump(&mut self.switch);
        while self.switch.step(&mut [], &[], Instant(0)) {}
        self.ports.pump(&mut self.switch);
    }

    pub(in crate::ports) fn counters(&self) -> WireCounters {
        self.ports.report().wires()[0].1
    }
}

fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    frame.resize(length, 0x5A);
    frame
}

#[test]
fn far_end_may_come_late_and_go_and_come_back() {
    let folder = Folder::new();
    let (local, far) = (folder.join("local"), folder.join("far"));
    let mut rig = Side::datagrams(&local, &far);
    rig.send(&frame(60));
    assert_eq!(rig.counters().no_peer, 1);
    for round in 1..=3u64 {
        let peer = UnixDatagram::bind(&far).unwrap();
        peer.set_nonblocking(true).unwrap();
        let mut received = vec![0; 2000];
        rig.send(&frame(1514));
        assert_eq!(peer.recv(&mut received).unwrap(), 1514);
        assert_eq!(received[..1514], frame(1514)[..]);
        peer.send_to(&frame(100), &local).unwrap();
        rig.turn();
        assert_eq!(rig.switch.take_outgoing(rig.other), Some(frame(100)));
        drop(peer);
        rig.send(&frame(60));
        assert_eq!(rig.counters().no_peer, 2 * round, "a socket without owner");
        std::fs::remove_file(&far).unwrap();
        rig.send(&frame(60));
        assert_eq!(rig.counters().no_peer, 2 * round + 1, "no socket");
    }
    let counters = rig.counters();
    assert_eq!((counters.sent, counters.sent_bytes), (3, 3 * 1514));
    assert_eq!((counters.received, counters.received_bytes), (3, 300));
}

#[test]
fn hostile_datagrams_are_counted_and_harm_nothing() {
    let folder = Folder::new();
    let (local, far) = (folder.join("local"), folder.join("far"));
    let mut rig = Side::datagrams(&local, &far);
    let peer = UnixDatagram::bind(&far).unwrap();
    for length in [0, 1, 13] {
        peer.send_to(&vec![0xFF; length], &local).unwrap();
        rig.turn();
    }
    for length in [MAX_BYTES_ON_PORT + 1, MAX_BYTES_ON_PORT + 2, 65_536] {
        peer.send_to(&vec![0xFF; length], &local).unwrap();
        rig.turn();
    }
    assert_eq!(rig.switch.outgoing(rig.other), None);
    peer.send_to(&frame(MAX_BYTES_ON_PORT), &local).unwrap();
    rig.turn();
    let longest = rig.switch.take_outgoing(rig.other);
    assert_eq!(longest, Some(frame(MAX_BYTES_ON_PORT)));
    let mut state = 1u32;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(1500)
    .collect();
    for length in 14..300 {
        peer.send_to(&garbage[length..2 * length], &local).unwrap();
        rig.turn();
    }
    let counters = rig.counters();
    assert_eq!((counters.too_short, counters.too_long), (3, 3));
    assert_eq!(counters.received, 1 + 286);
    assert_eq!(counters.read_failures, 0);
}

#[test]
fn far_end_that_does_not_read_holds_frames_up_and_nothing_else() {
    let folder = Folder::new();
    let (local, far) = (folder.join("local"), folder.join("far"));
    let mut rig = Side::datagrams(&local, &far);
    let peer = UnixDatagram::bind(&far).unwrap();
    peer.set_nonblocking(true).unwrap();
    for _ in 0..5000 {
        rig.send(&frame(64));
    }
    let lost = rig.switch.counters().no_room;
    let sent = rig.counters().sent;
    assert!(
        lost > 0 && sent > 0 && sent < 5000,
        "{lost} lost, {sent} sent"
    );
    let mut arrived = 0;
    let mut buffer = [0; 100];
    for _ in 0..10_000 {
        while peer.recv(&mut buffer).is_ok() {
            arrived += 1;
        }
        rig.turn();
    }
    assert_eq!(arrived + lost, 5000, "each frame arrived or was counted");
}

#[test]
fn paths_are_refused_with_the_reason() {
    let folder = Folder::new();
    let (one, two) = (folder.join("one"), folder.join("two"));
    let refused = DatagramWire::bind(&one, &one).unwrap_err();
    assert!(matches!(refused, DatagramError::ToItself { .. }));
    let wire = DatagramWire::bind(&one, &two).unwrap();
    let refused = DatagramWire::bind(&one, &two).unwrap_err();
    assert!(
        matches!(&refused, DatagramError::Path(SocketPathError::InUse { .. })),
        "{refused}"
    );
    drop(wire);
    assert!(!one.exists(), "its socket goes with it");
    drop(UnixDatagram::bind(&one).unwrap());
    assert!(one.exists());
    drop(DatagramWire::bind(&one, &two).expect("a dead process's socket is replaced"));
    std::fs::write(&one, "precious").unwrap();
    let refused = DatagramWire::bind(&one, &two).unwrap_err();
    assert!(matches!(
        &refused,
        DatagramError::Path(SocketPathError::NotASocket { .. })
    ));
    assert_eq!(std::fs::read(&one).unwrap(), b"precious");
    let long = folder.join(&"x".repeat(120));
    let refused = DatagramWire::bind(&two, &long).unwrap_err();
    assert!(
        matches!(refused, DatagramError::FarPath { .. }),
        "{refused}"
    );
    let refused = DatagramWire::bind(&folder.join("none/one"), &two).unwrap_err();
    assert!(matches!(
        refused,
        DatagramError::Path(SocketPathError::System { .. })
    ));
}

/// A wire whose reads fail.
struct Broken(UnixDatagram, u32);

impl Wire for Broken {
    fn name(&self) -> String {
        "broken".into()
    }

    fn receive(&mut self, _buffer: &mut [u8]) -> Received {
        self.1 += 1;
        Received::Failed
    }

    fn send(&mut self, _frame: &[u8]) -> Sent {
        Sent::Refused
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

#[test]
fn wire_that_only_fails_is_given_up_and_no_longer_awaited() {
    let mut switch = Switch::new(0, false);
    let mut ports = Ports::default();
    let broken = Broken(UnixDatagram::unbound().unwrap(), 0);
    ports.attach(&mut switch, Box::new(broken));
    for _ in 0..100 {
        ports.pump(&mut switch);
    }
    let failures = u64::from(MAX_FAILURES);
    assert_eq!(ports.report().wires()[0].1.read_failures, failures);
    let mut awaited = Vec::new();
    ports.descriptors(&mut awaited);
    assert!(awaited.is_empty());
    assert!(!ports.pump(&mut switch), "no work, so that a server rests");
}

/// A wire with frames that wait, of which each second read fails first.
struct Waiting {
    socket: UnixDatagram,
    frames: usize,
    fails: Option<bool>,
}

impl Wire for Waiting {
    fn name(&self) -> String {
        "waiting".into()
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        if self.frames == 0 {
            return Received::Nothing;
        }
        self.fails = self.fails.map(|fails| !fails);
        if self.fails == Some(false) {
            return Received::Failed;
        }
        self.frames -= 1;
        buffer[..60].copy_from_slice(&frame(60));
        Received::Frame(60)
    }

    fn send(&mut self, _frame: &[u8]) -> Sent {
        Sent::Gone
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }
}

fn waiting(frames: usize, fails: Option<bool>) -> Side {
    let socket = UnixDatagram::unbound().unwrap();
    Side::new(Waiting {
        socket,
        frames,
        fails,
    })
}

#[test]
fn a_wire_whose_reads_fail_now_and_then_is_read_on() {
    let frames = u64::from(MAX_FAILURES) * 2;
    let mut rig = waiting(frames as usize, Some(true));
    for _ in 0..frames * 2 {
        rig.turn();
    }
    let counters = rig.counters();
    assert_eq!(
        (counters.received, counters.read_failures),
        (frames, frames)
    );
}

#[test]
fn frames_wait_in_the_wire_while_the_switch_has_no_room() {
    let frames = BURST + 1;
    let mut rig = waiting(frames, None);
    while rig.switch.room_inside() > 1 {
        rig.switch.inject_frame(rig.other, &frame(60)).unwrap();
    }
    rig.ports.pump(&mut rig.switch);
    assert_eq!(rig.counters().received, 1);
    for _ in 0..3 {
        rig.turn();
    }
    assert_eq!(rig.counters().received, frames as u64);
}

#[test]
fn a_socket_that_another_process_has_put_in_its_place_stays() {
    let folder = Folder::new();
    let path = folder.join("socket");
    let make = || SocketFile::make(&path, |path| UnixDatagram::bind(path)).unwrap();
    let first = make();
    std::fs::remove_file(&path).unwrap();
    let second = make();
    drop(first.1);
    assert!(path.exists());
    drop(second.1);
    assert!(!path.exists());
}

#[test]
fn capture_holds_every_frame_in_the_format_of_pcap() {
    let folder = Folder::new();
    let path = folder.join("wire.pcap");
    let capture = Capture::create(&path).unwrap();
    let mut tap = capture.tap();
    let mut expected = PcapWriter::new(Vec::new()).unwrap();
    for number in 0..100 {
        let at = Instant(number * 1_000_000_001);
        tap(at, 0, &frame(60 + number as usize));
        expected
            .write_frame(at, &frame(60 + number as usize))
            .unwrap();
    }
    let expected = expected.finish().unwrap();
    assert_eq!(capture.flush().unwrap(), 100);
    assert_eq!(std::fs::read(&path).unwrap(), expected, "after a flush");
    assert_eq!(capture.finish().unwrap(), 100);
    assert_eq!(std::fs::read(&path).unwrap(), expected);
    let refused = Capture::create(&folder.join("none/wire.pcap")).unwrap_err();
    assert_eq!(refused.operation, "creating");
}

#[test]
fn full_disk_is_reported_when_the_capture_ends() {
    let full = Path::new("/dev/full");
    let capture = Capture::create(full).unwrap();
    let mut tap = capture.tap();
    tap(Instant(0), 0, &frame(60));
    for _ in 0..2 {
        let refused = capture.flush().unwrap_err();
        assert_eq!(refused.operation, "writing");
    }
    let refused = capture.finish().unwrap_err();
    assert_eq!(refused.operation, "writing");
}
