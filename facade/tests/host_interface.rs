//! A network interface of the host beside RDMA and the IP stack of one port, in namespaces of its
//! own: `network.host_interface`.

use ringside::OpenError;
use ringside::bus::tap::TapError;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::stack::host::{HostError, HostReport, host_address};
use ringside_testkit::{in_namespaces, ip};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod pair;

const WAIT: Duration = Duration::from_secs(30);
const PORT: u16 = 7000;
/// The addresses of the stack of the device, of the other device, and of the host.
const OWN: [u8; 4] = [10, 40, 0, 1];
const FAR: [u8; 4] = [10, 40, 0, 2];
const HOST: [u8; 4] = [10, 40, 0, 3];
/// Addresses of the stack and of the host.
const OWN_V6: &str = "2001:db8:5::1";
const HOST_V6: &str = "2001:db8:5::11";
/// Bytes that cross each connection.
const BYTES: usize = 200_000;

fn config(last: u8, interface: Option<&str>) -> Config {
    let mut config = Config::default();
    config.network.addresses = vec![format!("10.40.0.{last}/24").parse().unwrap()];
    config.network.host_interface = interface.map(str::to_owned);
    config
}

/// Two devices, the first one with an interface of the host that has an address.
fn open() -> [Device; 2] {
    let near = ringside::open("model:0", &config(1, Some("ring0"))).unwrap();
    let far = ringside::open("model:1", &config(2, None)).unwrap();
    ip("link set lo up");
    ip("addr add 10.40.0.3/24 dev ring0");
    [near, far]
}

/// The output of `ip link show dev ring0`, and whether there is such an interface.
fn shown() -> (String, bool) {
    let mut command = Command::new("ip");
    let output = command.args(["link", "show", "dev", "ring0"]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.success())
}

fn at(address: [u8; 4]) -> SocketAddr {
    SocketAddr::new(IpAddr::from(address), PORT)
}

fn report(device: &Device) -> HostReport {
    device.host_interface().expect("an interface")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "not so after {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at as u8).wrapping_mul(29) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// Bytes from the host over its interface to a stack, which returns them.
fn host_talks_to(device: &Device, address: [u8; 4]) {
    let listener = device.listen_tcp(at(address), 4).unwrap();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut stream = TcpStream::connect_timeout(&at(address), WAIT).unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let mut writer = stream.try_clone().unwrap();
            scope.spawn(move || writer.write_all(&pattern(address[3])).unwrap());
            let mut echoed = vec![0; BYTES];
            stream.read_exact(&mut echoed).unwrap();
            assert!(echoed == pattern(address[3]), "bytes differ");
        });
        let mut connection = listener.accept(WAIT).unwrap();
        let mut piece = vec![0; 4096];
        let mut moved = 0;
        while moved < BYTES {
            let count = connection.read(&mut piece, WAIT).unwrap();
            assert!(count > 0, "an end after {moved} bytes");
            connection.write_all(&piece[..count], WAIT).unwrap();
            moved += count;
        }
        host.join().unwrap();
    });
}

/// The stack of a device connects to a server of the host.
fn talks_to_host(device: &Device) {
    let listener = TcpListener::bind(at(HOST)).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut text = [0; 5];
        stream.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
    });
    let mut connection = device.connect_tcp(at(HOST), WAIT).unwrap();
    connection.write_all(b"hello", WAIT).unwrap();
    server.join().unwrap();
}

/// Ends the writes, also if the test fails: it would wait for them.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes from one region to another, and compares bytes, until `stop`; adds the writes to `count`.
fn write_until(
    (queue_pair, completions): (&mut QueuePair<Connected>, &mut CompletionQueue),
    [source, target]: [&MemoryRegion; 2],
    (count, stop): (&AtomicU64, &AtomicBool),
) {
    let mut batch = [Completion::EMPTY; 1];
    let mut arrived = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let count = count.fetch_add(1, Ordering::Relaxed);
        let bytes = [count as u8 | 1; 4096];
        assert!(source.write(0, &bytes));
        let slice = source.slice(0..4096).unwrap();
        let remote = target.remote().at(0);
        let posted = queue_pair.write(count, &[slice], remote, Flags::SIGNALLED);
        posted.unwrap();
        queue_pair.ring();
        wait_until("a write completes", || {
            let done = completions.poll(&mut batch).first();
            done.inspect(|done| assert!(done.is_success())).is_some()
        });
        assert!(target.read(0, &mut arrived));
        assert_eq!(arrived, bytes);
    }
}

#[test]
fn the_host_talks_beside_rdma_and_the_stack_of_one_port() {
    if !in_namespaces("the_host_talks_beside_rdma_and_the_stack_of_one_port") {
        return;
    }
    let [near, far] = open();
    let mac = near.driver().facts().mac().unwrap();
    assert_eq!(report(&near).mac, Some(host_address(mac)));
    assert_ne!(host_address(mac), mac);
    let (text, _) = shown();
    let octets: Vec<_> = host_address(mac).map(|octet| format!("{octet:02x}")).into();
    assert!(text.contains(&octets.join(":")), "{text}");
    let [mut near, far] = pair::connect([near, far]);
    let [source, target] = [&near, &far].map(|end| end.region(4096));
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let queues = (&mut near.queue_pair, &mut near.completions);
        let writes = scope.spawn(|| write_until(queues, [&source, &target], (&count, &stop)));
        let at_end = StopAtEnd(&stop);
        let (near, far) = (&near.device, &far.device);
        // Until RDMA went on meanwhile, however few turns the scheduler gives it.
        wait_until("ten writes beside the host's connections", || {
            // Over the wire, inside the card's switch, and the other way.
            host_talks_to(far, FAR);
            host_talks_to(near, OWN);
            talks_to_host(far);
            talks_to_host(near);
            writes.is_finished() || count.load(Ordering::Relaxed) > 10
        });
        drop(at_end);
        writes.join().unwrap();
        let counters = report(near).counters;
        assert!(counters.to_wire.bytes > 2 * BYTES as u64, "{counters:?}");
        assert!(counters.to_host.bytes > 2 * BYTES as u64, "{counters:?}");
    });
}

#[test]
fn the_interface_outlives_recoveries_and_goes_with_the_device() {
    if !in_namespaces("the_interface_outlives_recoveries_and_goes_with_the_device") {
        return;
    }
    let [near, far] = open();
    host_talks_to(&far, FAR);
    let before = report(&near).counters;
    near.recover().unwrap();
    let model = near.model().expect("a model of this process");
    wait_until("it carries frames after a recovery", || {
        report(&near).is_carrying
    });
    host_talks_to(&far, FAR);
    talks_to_host(&near);
    let after = report(&near).counters;
    assert!(
        after.to_wire.bytes >= before.to_wire.bytes + BYTES as u64,
        "counts go on: {before:?}, {after:?}"
    );
    // A failure that the housekeeping thread notices and recovers from.
    let life = near.life();
    model.with(|world| world.inject(0, Fault::Reset(ResetKind::Core)));
    wait_until("the device is recovered", || near.life() > life);
    wait_until("it carries frames again", || report(&near).is_carrying);
    host_talks_to(&far, FAR);
    assert!(shown().1);
    assert!(near.shutdown().failures.is_empty());
    assert!(!shown().1, "the interface went with the device");
}

/// A device with an IPv6 address and an interface of the host, which carries frames.
fn open_v6() -> Device {
    let mut config = config(1, Some("ring0"));
    config
        .network
        .addresses
        .push(format!("{OWN_V6}/64").parse().unwrap());
    let device = ringside::open("model:0", &config).unwrap();
    wait_until("it carries frames", || report(&device).is_carrying);
    device
}

/// The port asks a group for the address: the host has sent nothing to it before.
#[test]
fn the_stack_finds_ipv6_addresses_of_the_host() {
    if !in_namespaces("the_stack_finds_ipv6_addresses_of_the_host") {
        return;
    }
    let device = open_v6();
    ip(&format!("addr add {HOST_V6}/64 dev ring0 nodad"));
    let own = device.driver().facts().mac().unwrap();
    for _ in 0..2 {
        let found = device.resolve(HOST_V6.parse().unwrap()).unwrap();
        assert_eq!(found.mac, host_address(own));
        // The stack and the attachment of a recovered device are new ones.
        device.recover().unwrap();
        wait_until("it carries frames again", || report(&device).is_carrying);
    }
    assert!(device.shutdown().failures.is_empty());
}

/// The host asks the group of the address, and the stack answers to all nodes.
#[test]
fn the_host_notices_that_the_port_has_an_ipv6_address() {
    if !in_namespaces("the_host_notices_that_the_port_has_an_ipv6_address") {
        return;
    }
    let device = open_v6();
    ip(&format!("addr add {OWN_V6}/64 dev ring0"));
    wait_until("the address is found to be a duplicate", || {
        let mut command = Command::new("ip");
        let shown = command
            .args(["-6", "addr", "show", "dev", "ring0"])
            .output();
        let shown = shown.unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("dadfailed")
    });
    assert!(device.shutdown().failures.is_empty());
}

#[test]
fn a_port_that_the_program_opens_takes_the_carrier_away() {
    if !in_namespaces("a_port_that_the_program_opens_takes_the_carrier_away") {
        return;
    }
    let [near, _far] = open();
    wait_until("it carries frames", || report(&near).is_carrying);
    let opened = near.driver().open_port(&Default::default()).unwrap();
    assert!(!report(&near).is_carrying);
    assert!(shown().0.contains("NO-CARRIER"), "{}", shown().0);
    drop(opened);
    near.serve_network().unwrap();
    wait_until("it carries frames again", || report(&near).is_carrying);
}

#[test]
fn a_removed_interface_leaves_rdma_and_the_stack_alone() {
    if !in_namespaces("a_removed_interface_leaves_rdma_and_the_stack_alone") {
        return;
    }
    let [near, far] = open();
    wait_until("it carries frames", || report(&near).is_carrying);
    ip("link del dev ring0");
    wait_until("the thread has noticed", || !report(&near).is_carrying);
    let listener = near.listen_tcp(at(OWN), 4).unwrap();
    far.connect_tcp(at(OWN), WAIT).unwrap();
    listener.accept(WAIT).unwrap();
    assert!(near.shutdown().failures.is_empty());
}

#[test]
fn an_interface_that_cannot_be_made_is_refused_before_the_device_is_claimed() {
    // The loopback interface is no TAP interface; a user without rights is refused for want of
    // them.
    let refused = ringside::open("model:0", &config(1, Some("lo"))).unwrap_err();
    let OpenError::HostInterface(HostError::Tap(error)) = &refused else {
        panic!("{refused}");
    };
    assert!(!matches!(error, TapError::BadName { .. }), "{refused}");
    assert!(refused.to_string().starts_with("network.host_interface: "));
    let claimed = ringside::open("model:0", &config(1, None));
    assert!(claimed.unwrap().shutdown().failures.is_empty());
}
