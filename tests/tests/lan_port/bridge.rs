//! A network interface of the host over the queues of a port.

use crate::rig::{Rig, settings};
use ringside_bus::tap::Tap;
use ringside_lan::Packet;
use ringside_pmd::lan::PortSettings;
use ringside_spec::lan::registers::interrupts::{VECTOR_CONTROL, VectorControl};
use ringside_stack::host::{Bridge, BridgeSettings, PacketObserver};
use ringside_testkit::{in_namespaces, ip};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More than the transmit queue has descriptors.
const FRAMES: u64 = 200;
const MTU: u16 = 1500;

/// The kernel keeps frames while the card cannot take them.
#[test]
fn frames_of_the_host_wait_while_the_transmit_queue_is_full() {
    if !in_namespaces("bridge::frames_of_the_host_wait_while_the_transmit_queue_is_full") {
        return;
    }
    let few = PortSettings {
        transmit_descriptors: 64,
        ..settings()
    };
    let mut rig = Rig::with(&few, &settings());
    let mut bridge = bridge_of(&mut rig);
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut given = 0;
    // The device sends nothing meanwhile.
    for _ in 0..10 {
        while given < FRAMES && socket.send_to(&[7; 64], "10.9.0.2:9").is_ok() {
            given += 1;
        }
        bridge.round().unwrap();
    }
    assert!(given > 100, "{given}");
    assert_eq!(bridge.counters().to_wire.dropped, 0);
    // Nothing wakes it when there is room again.
    let began = Instant::now();
    bridge.sleep(Duration::from_secs(60), None);
    assert!(began.elapsed() < Duration::from_secs(30));
    for _ in 0..2000 {
        rig.pass();
        bridge.round().unwrap();
    }
    let counters = bridge.counters().to_wire;
    assert!(counters.packets >= given, "{counters:?} of {given}");
    assert_eq!(counters.dropped, 0);
    drop(bridge);
    rig.finish();
}

/// A host that sends keeps the bridge awake: an armed queue would get packets late.
#[test]
fn frames_of_the_host_that_end_a_sleep_end_the_arming() {
    if !in_namespaces("bridge::frames_of_the_host_that_end_a_sleep_end_the_arming") {
        return;
    }
    let mut rig = Rig::with(&settings(), &settings());
    let interrupt = rig.a.open.port.receive_interrupt(&[0]).unwrap();
    let vector = VECTOR_CONTROL.at(interrupt.vector().into());
    let mut bridge = bridge_of(&mut rig);
    bridge.set_interrupt(Some(interrupt));
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    let is_armed = |rig: &Rig| {
        let control = rig.a.device.registers().read(vector).unwrap();
        VectorControl(control).enable()
    };
    // The first arming may end at once: the device reports what it could have missed.
    let began = Instant::now();
    while !is_armed(&rig) {
        bridge.sleep(Duration::from_millis(1), None);
        rig.pass();
        assert!(began.elapsed() < Duration::from_secs(30), "not armed");
    }
    socket.send_to(&[7; 64], "10.9.0.2:9").unwrap();
    while bridge.round().unwrap() == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "no frame");
    }
    rig.pass();
    assert!(!is_armed(&rig));
    drop(bridge);
    rig.finish();
}

/// Lengths of the packets that a transmit queue sent.
#[derive(Clone, Default)]
struct Seen {
    offered: Vec<usize>,
    sent: Arc<Mutex<Vec<usize>>>,
}

impl PacketObserver for Seen {
    fn received(&mut self, _: &[Packet]) {}

    fn offered(&mut self, packets: &[Packet]) {
        self.offered = packets.iter().map(Packet::length).collect();
    }

    fn sent(&mut self, count: usize, dropped: u64) {
        let places = self.offered.iter().take(count).enumerate();
        let sent = places.filter(|(place, _)| dropped >> place & 1 == 0);
        self.sent
            .lock()
            .unwrap()
            .extend(sent.map(|(_, length)| length));
    }
}

/// An observer of a bridge, such as a capture, sees what leaves, and nothing instead of what the
/// queue drops.
#[test]
fn frames_that_the_transmit_queue_drops_are_not_seen_as_sent() {
    if !in_namespaces("bridge::frames_that_the_transmit_queue_drops_are_not_seen_as_sent") {
        return;
    }
    let mut rig = Rig::with(&settings(), &settings());
    let seen = Seen::default();
    // The card sends no frame that is longer than 9728 bytes.
    let mut bridge = observed_bridge_of(&mut rig, 12_000, seen.clone());
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for length in [100, 11_000, 200] {
        socket.send_to(&vec![7; length], "10.9.0.2:9").unwrap();
    }
    let headers = 14 + 20 + 8;
    let expected = [100, 200].map(|length| length + headers);
    let began = Instant::now();
    let of_test = || {
        let all = seen.sent.lock().unwrap();
        let of_test = all
            .iter()
            .filter(|length| **length == expected[0] || **length >= expected[1]);
        of_test.copied().collect::<Vec<_>>()
    };
    while of_test().len() < 2 {
        bridge.round().unwrap();
        rig.pass();
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", seen.sent);
    }
    assert_eq!(of_test(), expected);
    assert_eq!(bridge.counters().to_wire.dropped, 1);
    drop(bridge);
    rig.finish();
}

/// A bridge of the first device to an interface with an address and a neighbour.
fn bridge_of(rig: &mut Rig) -> Bridge<()> {
    observed_bridge_of(rig, MTU, ())
}

fn observed_bridge_of<O: PacketObserver>(rig: &mut Rig, mtu: u16, observer: O) -> Bridge<O> {
    let queues = (
        rig.a.open.receive.pop().unwrap(),
        rig.a.open.transmit.pop().unwrap(),
    );
    let tap = Arc::new(Tap::open("ring0").unwrap());
    tap.configure(rig.a.mac(), mtu).unwrap();
    let bridge_settings = BridgeSettings { mtu, vlan: None };
    let mut bridge = Bridge::new(tap, queues, bridge_settings, observer);
    bridge.set_carrier(true);
    ip("addr add 10.9.0.1/24 dev ring0");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev ring0");
    bridge
}
