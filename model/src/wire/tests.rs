//! The switch between functions that let everything, something or nothing in.

use super::frame::tests::packet;
use super::*;
use crate::firmware::tests::client::Client;
use crate::function::FunctionSettings;
use std::sync::mpsc;

const STRANGER: usize = usize::MAX;

fn ports(count: u16) -> (Vec<FunctionModel>, Vec<DmaSpace>) {
    let functions = (0..count)
        .map(|number| FunctionModel::new(number.into(), &FunctionSettings::numbered(number)));
    (
        functions.collect(),
        (0..count).map(|_| DmaSpace::new()).collect(),
    )
}

fn bytes(source: u8, destination: u8) -> Vec<u8> {
    let (source, destination) = (MacAddress([source; 6]), MacAddress([destination; 6]));
    let mut bytes = Vec::new();
    crate::packet::emit(&packet(source, destination), &[1, 2, 3, 4], &mut bytes).unwrap();
    bytes
}

fn send(
    switch: &mut Switch,
    ports: &mut (Vec<FunctionModel>, Vec<DmaSpace>),
    from: usize,
    frame: &[u8],
) {
    switch.inject_frame(from, frame).unwrap();
    assert!(switch.step(&mut ports.0, &ports.1, Instant(0)));
}

fn seen(ports: &(Vec<FunctionModel>, Vec<DmaSpace>)) -> Vec<u64> {
    ports
        .0
        .iter()
        .map(FunctionModel::frames_not_for_us)
        .collect()
}

#[test]
fn unknown_addresses_flood_and_known_ones_do_not() {
    let mut switch = Switch::new(3, false);
    let mut ports = ports(3);
    send(&mut switch, &mut ports, 0, &bytes(2, 4));
    assert_eq!(seen(&ports), [0, 1, 1]);
    send(&mut switch, &mut ports, 1, &bytes(4, 2));
    assert_eq!(
        seen(&ports),
        [1, 1, 1],
        "the address was learned from its first frame"
    );
    send(&mut switch, &mut ports, 0, &bytes(2, 4));
    assert_eq!(seen(&ports), [1, 2, 1]);
    send(&mut switch, &mut ports, 0, &bytes(2, 0xFF));
    assert_eq!(seen(&ports), [1, 3, 2], "broadcasts go to all others");
    let counters = switch.counters();
    assert_eq!((counters.flooded, counters.delivered), (2, 6));
}

#[test]
fn address_that_moves_is_found_at_its_new_port() {
    let mut switch = Switch::new(3, false);
    let mut ports = ports(3);
    send(&mut switch, &mut ports, 0, &bytes(2, 0xFF));
    send(&mut switch, &mut ports, 2, &bytes(2, 0xFF));
    let before = seen(&ports);
    send(&mut switch, &mut ports, 1, &bytes(6, 2));
    assert_eq!(seen(&ports)[2], before[2] + 1);
    assert_eq!(seen(&ports)[0], before[0]);
}

#[test]
fn tap_sees_the_bytes_that_were_sent() {
    for as_bytes in [false, true] {
        let mut switch = Switch::new(2, as_bytes);
        let mut ports = ports(2);
        let (sender, receiver) = mpsc::channel();
        switch.set_tap(Some(Box::new(move |at, port, bytes| {
            sender.send((at, port, bytes.to_vec())).unwrap();
        })));
        send(&mut switch, &mut ports, 1, &bytes(2, 4));
        assert_eq!(receiver.try_recv().unwrap(), (Instant(0), 1, bytes(2, 4)));
        assert_eq!(seen(&ports), [1, 0]);
    }
}

#[test]
fn losses_follow_their_seed() {
    let lost = |seed, per_million| {
        let mut switch = Switch::new(2, false);
        let mut ports = ports(2);
        switch.inject(Fault::DropFrames { per_million, seed });
        for _ in 0..2000 {
            send(&mut switch, &mut ports, STRANGER, &bytes(2, 4));
        }
        switch.counters().dropped
    };
    assert_eq!(lost(7, 100_000), lost(7, 100_000));
    assert!(
        (120..280).contains(&lost(7, 100_000)),
        "about a tenth: {}",
        lost(7, 100_000)
    );
    assert_eq!((lost(1, 0), lost(1, 1_000_000)), (0, 2000));
}

#[test]
fn damaged_frames_are_refused_at_the_edge() {
    let mut switch = Switch::new(2, false);
    let mut damaged = bytes(2, 4);
    damaged[50] ^= 1;
    assert!(switch.inject_frame(0, &damaged).is_err());
    assert!(switch.inject_frame(0, &damaged[..20]).is_err());
}

#[test]
fn function_without_link_receives_nothing() {
    let mut switch = Switch::new(2, false);
    let mut ports = ports(2);
    ports.0[1].inject(Fault::LinkDown);
    send(&mut switch, &mut ports, 0, &bytes(2, 4));
    assert_eq!(seen(&ports), [0, 0]);
}

#[test]
fn port_counters_count_what_arrives() {
    use ringside_spec::lan::registers::statistics as counters;
    let client = Client::claimed();
    let frame = bytes(2, 4);
    client
        .world
        .with(|world| world.switch().inject_frame(STRANGER, &frame))
        .unwrap();
    client.pass(std::time::Duration::from_micros(1));
    let read =
        |counter: counters::Counter| client.function.read64(0, counter.registers.at(0)).unwrap();
    assert_eq!(read(counters::PORT_RECEIVE_UNICAST), 1);
    assert_eq!(
        read(counters::PORT_RECEIVE_BYTES),
        (frame.len() as u64 + 4).max(64)
    );
    assert_eq!(read(counters::PORT_RECEIVE_127), 1, "66 bytes");
    assert_eq!(read(counters::PORT_RECEIVE_64), 0);
    assert_eq!(
        client
            .world
            .with(|world| world.function(0).unwrap().frames_not_for_us()),
        1
    );
}
