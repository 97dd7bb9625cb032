//! A network interface of the host over the queues of a port.

use crate::rig::{Rig, settings};
use ringside_bus::tap::Tap;
use ringside_pmd::lan::PortSettings;
use ringside_spec::lan::registers::interrupts::{VECTOR_CONTROL, VectorControl};
use ringside_stack::host::{Bridge, BridgeSettings};
use ringside_testkit::{in_namespaces, ip};
use std::net::UdpSocket;
use std::sync::Arc;
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

/// A bridge of the first device to an interface with an address and a neighbour.
fn bridge_of(rig: &mut Rig) -> Bridge<()> {
    let queues = (
        rig.a.open.receive.pop().unwrap(),
        rig.a.open.transmit.pop().unwrap(),
    );
    let tap = Arc::new(Tap::open("ring0").unwrap());
    tap.configure(rig.a.mac(), MTU).unwrap();
    let bridge_settings = BridgeSettings {
        mtu: MTU,
        vlan: None,
    };
    let mut bridge = Bridge::new(tap, queues, bridge_settings, ());
    bridge.set_carrier(true);
    ip("addr add 10.9.0.1/24 dev ring0");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev ring0");
    bridge
}
