//! Wires that lead out of the model: two servers joined by datagrams, and the host's own stack over
//! a TAP interface.

use ringside_bus::TscClock;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_model::wire::Switch;
use ringside_model::{Fault, FunctionSettings, World};
use ringside_pmd::Device;
use ringside_pmd::rdma::Flags;
use ringside_server::ports::{DatagramWire, Ports, TapWire, WireCounters, WireReport};
use ringside_server::vfio_user::{Server, ServerSettings};
use ringside_testkit::{ConnectedEnd, bring_up_function, config, connect, in_namespaces, ip};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A server of one function with a datagram wire, on its own thread.
struct Side {
    socket: PathBuf,
    wires: WireReport,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<World>>,
}

impl Side {
    fn start(folder: &Path, number: u16, faults: &[Fault]) -> Self {
        let wire = |number| folder.join(format!("wire{number}"));
        Self::joined(folder, number, faults, &wire(number), &wire(1 - number))
    }

    /// With a wire from `local` to `far`.
    fn joined(folder: &Path, number: u16, faults: &[Fault], local: &Path, far: &Path) -> Self {
        let socket = folder.join(format!("function{number}"));
        let mut settings = ServerSettings::new(vec![socket.clone()]);
        // Addresses that differ from the other side's.
        settings.world.functions = vec![FunctionSettings::numbered(number)];
        settings.doorbell_page = true;
        let mut server = Server::bind(&settings).unwrap();
        let wire = DatagramWire::bind(local, far).unwrap();
        let mut ports = Ports::default();
        ports.attach(server.world().switch(), Box::new(wire));
        let wires = ports.report();
        server.attach(Box::new(ports));
        for fault in faults {
            server.world().inject(0, *fault);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let inside = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            server.run(&inside, |_| {});
            server.into_world()
        });
        Self {
            socket,
            wires,
            stop,
            thread: Some(thread),
        }
    }

    fn bring_up(&self) -> Device {
        let clock = Arc::new(TscClock::new());
        let function = VfioUserFunction::connect(&self.socket, clock, ClientLimits::default());
        bring_up_function(Arc::new(function.unwrap()), 0, &config())
    }

    fn counters(&self) -> WireCounters {
        self.wires.wires()[0].1
    }

    /// Ends the server; gives its world.
    fn stop(mut self) -> World {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        thread.join().expect("the server panicked")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

const REGION_BYTES: usize = 256 << 10;

fn ends(devices: [&Device; 2]) -> [ConnectedEnd; 2] {
    connect(devices, REGION_BYTES, |config| {
        config.retransmission_timeout(5)
    })
}

/// Requests are repeated after a second: a busy machine may well take that long to move a window.
fn patiently(devices: [&Device; 2]) -> [ConnectedEnd; 2] {
    connect(devices, REGION_BYTES, |config| {
        config.retransmission_timeout(80)
    })
}

/// A write, a read and a send of each size, compared at the far end.
fn traffic(from: &mut ConnectedEnd, to: &mut ConnectedEnd, sizes: &[usize]) {
    for (round, size) in sizes.iter().copied().enumerate() {
        let pattern = |salt: usize| -> Vec<u8> {
            (0..size)
                .map(|at| (at * 7 + at / 251 + salt) as u8)
                .collect()
        };
        let id = round as u64;
        let piece = from.source.slice(0..size).unwrap();
        let remote = to.target.remote().at(0);
        let mut arrived = vec![0; size];

        assert!(from.source.write(0, &pattern(round)));
        from.queue_pair
            .write(id, &[piece], remote, Flags::SIGNALLED)
            .unwrap();
        from.queue_pair.ring();
        from.wait_one();
        assert!(to.target.read(0, &mut arrived));
        assert!(arrived == pattern(round), "write of {size}");

        assert!(from.source.write(0, &vec![0; size]));
        from.queue_pair
            .read(id, &[piece], remote, Flags::SIGNALLED)
            .unwrap();
        from.queue_pair.ring();
        from.wait_one();
        assert!(from.source.read(0, &mut arrived));
        assert!(arrived == pattern(round), "read of {size}");

        assert!(from.source.write(0, &pattern(round + 99)));
        let into = to.target.slice(0..REGION_BYTES).unwrap();
        to.queue_pair.receive(id, &[into]).unwrap();
        from.queue_pair
            .send(id, &[piece], Flags::SIGNALLED)
            .unwrap();
        from.queue_pair.ring();
        from.wait_one();
        assert_eq!(to.wait_one().byte_length() as usize, size);
        assert!(to.target.read(0, &mut arrived));
        assert!(arrived == pattern(round + 99), "send of {size}");
    }
}

/// Sends both ways between two servers; returns the worlds and the counters of the wires.
fn between_servers(faults: &[Fault], sizes: &[usize]) -> [(World, WireCounters); 2] {
    let folder = tempfile::tempdir().unwrap();
    let sides = [
        Side::start(folder.path(), 0, faults),
        Side::start(folder.path(), 1, &[]),
    ];
    let devices = sides.each_ref().map(Side::bring_up);
    {
        let [mut left, mut right] = ends(devices.each_ref());
        traffic(&mut left, &mut right, sizes);
        traffic(&mut right, &mut left, sizes);
    }
    for device in devices {
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    }
    sides.map(|side| {
        let counters = side.counters();
        let world = side.stop();
        assert_eq!(world.breaches(0), [], "the driver broke the interface");
        (world, counters)
    })
}

#[test]
fn two_servers_joined_by_datagrams_carry_reliable_traffic_both_ways() {
    let sizes = [1, 8, 128, 4097, 100_000];
    let [(mut left, first), (mut right, second)] = between_servers(&[], &sizes);
    // Each packet of a queue pair crosses as one datagram, and nothing else does.
    let least = 2 * sizes.iter().map(|size| size / 4096 + 1).sum::<usize>() as u64;
    for (counters, other) in [(first, second), (second, first)] {
        assert!(counters.sent >= least && counters.received >= least);
        assert_eq!(counters.received, other.sent);
        assert_eq!((counters.too_short, counters.too_long), (0, 0));
        assert_eq!((counters.no_peer, counters.refused), (0, 0));
    }
    for world in [&mut left, &mut right] {
        let counters = world.switch().counters();
        assert_eq!((counters.damaged, counters.malformed), (0, 0));
        assert_eq!((counters.dropped, counters.no_room), (0, 0));
    }
}

#[test]
fn wire_that_loses_repeats_reorders_and_damages_costs_time_and_no_data() {
    let (per_million, seed) = (20_000, 42);
    let faults = [
        Fault::DropFrames { per_million, seed },
        Fault::DuplicateFrames { per_million, seed },
        Fault::ReorderFrames {
            per_million,
            seed,
            behind: 3,
        },
        Fault::CorruptFrames { per_million, seed },
    ];
    let [(mut left, _), (mut right, _)] = between_servers(&faults, &[8, 70_000, 250_000, 250_000]);
    let counters = left.switch().counters();
    assert!(
        counters.dropped > 0 && counters.duplicated > 0,
        "{counters:?}"
    );
    assert!(counters.held > 0 && counters.corrupted > 0, "{counters:?}");
    let caught = counters.damaged + right.switch().counters().damaged;
    assert!(caught > 0, "a damaged packet was found by its CRC");
}

/// Passes datagrams from one socket on to another, no more than 128 in a millisecond.
fn slowly(from: UnixDatagram, to: &Path, stop: &AtomicBool) {
    let mut buffer = vec![0; 10_000];
    from.set_nonblocking(true).unwrap();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..128 {
            let Ok(length) = from.recv(&mut buffer) else {
                break;
            };
            from.set_nonblocking(false).unwrap();
            from.send_to(&buffer[..length], to).unwrap();
            from.set_nonblocking(true).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_slow_far_end_holds_the_sender_back_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let middle = UnixDatagram::bind(path("middle")).unwrap();
    let left = Side::joined(folder.path(), 0, &[], &path("left"), &path("middle"));
    let right = Side::joined(folder.path(), 1, &[], &path("right"), &path("left"));
    let devices = [left.bring_up(), right.bring_up()];
    let stop = Arc::new(AtomicBool::new(false));
    let (inside, far) = (Arc::clone(&stop), path("right"));
    let slow = std::thread::spawn(move || slowly(middle, &far, &inside));
    {
        // Four windows of 1024 packets each are far more than a port keeps.
        let mut pairs = [(); 4].map(|()| patiently(devices.each_ref()));
        for [from, to] in &mut pairs {
            let piece = from.source.slice(0..REGION_BYTES).unwrap();
            let remote = to.target.remote().at(0);
            for id in 0..8 {
                let posted = from
                    .queue_pair
                    .write(id, &[piece], remote, Flags::SIGNALLED);
                posted.unwrap();
            }
            from.queue_pair.ring();
        }
        for [from, _] in &mut pairs {
            from.wait(8);
        }
    }
    stop.store(true, Ordering::Relaxed);
    slow.join().unwrap();
    for device in devices {
        assert!(device.shutdown().failures.is_empty());
    }
    let mut world = left.stop();
    let counters = world.switch().counters();
    assert_eq!((counters.no_room, counters.dropped), (0, 0), "{counters:?}");
    drop(right);
}

#[test]
fn a_socket_of_this_host_talks_over_a_tap_interface() {
    if in_namespaces("outside::a_socket_of_this_host_talks_over_a_tap_interface") {
        talk_over_tap();
    }
}

/// The host sends datagrams to a station on the model's switch, which the test plays: it turns each
/// around, ends exchanged, and the host gets it back.
fn talk_over_tap() {
    let mut switch = Switch::new(0, false);
    let mut ports = Ports::default();
    let wire = TapWire::open("ringside0").unwrap();
    ports.attach(&mut switch, Box::new(wire));
    let station = switch.add_port();
    // Down at first: frames to it are lost, and that is counted.
    let mut frame = [[0xFF; 6], [2, 0, 0, 0, 0, 9]].concat();
    frame.extend([0x88, 0xB5]);
    frame.resize(60, 0);
    switch.inject_frame(station, &frame).unwrap();
    turn(&mut switch, &mut ports);
    let counters = |ports: &Ports| ports.report().wires()[0].1;
    assert_eq!(counters(&ports).no_peer, 1);

    ip("link set ringside0 mtu 9000 up");
    ip("addr add 10.99.0.1/24 dev ringside0");
    ip("neigh add 10.99.0.2 lladdr 02:00:00:00:00:09 dev ringside0 nud permanent");
    let socket = UdpSocket::bind("10.99.0.1:7000").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    for length in [0, 1, 100, 1472, 8972] {
        let sent: Vec<u8> = (0..length).map(|at| (at * 3 + length) as u8).collect();
        socket.send_to(&sent, "10.99.0.2:7001").unwrap();
        let mut received = vec![0; 10_000];
        let deadline = Instant::now() + LIMIT;
        let arrived = loop {
            assert!(
                Instant::now() < deadline,
                "{length} bytes did not come back"
            );
            turn(&mut switch, &mut ports);
            while let Some(frame) = switch.take_outgoing(station) {
                if let Some(back) = turned_around(&frame) {
                    switch.inject_frame(station, &back).unwrap();
                }
            }
            turn(&mut switch, &mut ports);
            if let Ok((arrived, from)) = socket.recv_from(&mut received) {
                assert_eq!(from.to_string(), "10.99.0.2:7001");
                break arrived;
            }
        };
        assert_eq!(received[..arrived], sent[..]);
    }
    let carried = counters(&ports);
    assert!(carried.sent >= 5 && carried.received >= 5, "{carried:?}");

    ip("link del ringside0");
    for _ in 0..100 {
        turn(&mut switch, &mut ports);
    }
    let failures = counters(&ports).read_failures;
    assert!(failures > 0 && failures < 100, "given up: {failures}");
}

fn turn(switch: &mut Switch, ports: &mut Ports) {
    ports.pump(switch);
    while switch.step(&mut [], &[], ringside_bus::Instant(0)) {}
    ports.pump(switch);
}

/// The frame of a UDP datagram to port 7001 with its ends exchanged, which leaves checksums right;
/// `None` for other frames.
fn turned_around(frame: &[u8]) -> Option<Vec<u8>> {
    let is_udp = frame.get(12..14)? == [0x08, 0] && *frame.get(23)? == 17;
    if !is_udp || frame.get(36..38)? != 7001u16.to_be_bytes() {
        return None;
    }
    let mut back = frame.to_vec();
    for (one, other, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        let (first, second) = back.split_at_mut(other);
        first[one..one + length].swap_with_slice(&mut second[..length]);
    }
    Some(back)
}
