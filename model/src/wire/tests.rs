//! The switch between functions that let everything, something or nothing in.

use super::*;
use crate::chip::FunctionSettings;
use crate::firmware::tests::client::Client;
use crate::frame::tests::packet;
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
fn damaged_packets_reach_ports_outside_and_no_rdma_engine() {
    let mut switch = Switch::new(3, false);
    let mut ports = ports(3);
    ports.0[1].open_for_rdma(MacAddress([4; 6]));
    let outside = switch.add_port();
    let mut damaged = bytes(2, 4);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    send(&mut switch, &mut ports, 0, &damaged);
    // The function without RDMA judges it as any datagram.
    assert_eq!(seen(&ports), [0, 0, 1]);
    assert_eq!(switch.take_outgoing(outside), Some(damaged));
    let counters = switch.counters();
    assert_eq!((counters.damaged, counters.delivered), (1, 2));
}

#[test]
fn frames_of_impossible_lengths_are_refused_at_the_edge() {
    let mut switch = Switch::new(2, false);
    let frame = vec![0xFF; MAX_BYTES_ON_PORT + 1];
    for length in [0, 1, 13] {
        let refused = Err(InjectError::TooShort { bytes: length });
        assert_eq!(switch.inject_frame(0, &frame[..length]), refused);
    }
    let bytes = MAX_BYTES_ON_PORT + 1;
    assert_eq!(
        switch.inject_frame(0, &frame),
        Err(InjectError::TooLong { bytes })
    );
    assert_eq!(switch.inject_frame(0, &frame[..14]), Ok(()));
    assert_eq!(switch.inject_frame(0, &frame[..MAX_BYTES_ON_PORT]), Ok(()));
}

#[test]
fn queues_have_an_end_on_both_sides() {
    let mut switch = Switch::new(1, false);
    let mut ports = ports(1);
    let outside = switch.add_port();
    let frame = bytes(2, 0xFF);
    for _ in 0..MAX_INJECTED {
        switch.inject_frame(0, &frame).unwrap();
    }
    assert_eq!(switch.room_inside(), 0);
    assert_eq!(switch.inject_frame(0, &frame), Err(InjectError::Full));
    while switch.step(&mut ports.0, &ports.1, Instant(0)) {}
    send(&mut switch, &mut ports, 0, &frame);
    assert_eq!(switch.counters().no_room, 1, "the first 1024 fill the port");
    assert!(switch.take_outgoing(outside).is_some());
    send(&mut switch, &mut ports, 0, &frame);
    assert_eq!(switch.counters().no_room, 1);
}

/// An ARP-like frame that is not padded.
fn plain(source: u8, destination: u8) -> Vec<u8> {
    let mut bytes = [[destination; 6], [source; 6]].concat();
    bytes.extend([0x08, 0x06]);
    bytes.extend([7; 28]);
    bytes
}

#[test]
fn frames_of_other_protocols_are_learned_and_flooded_and_padded() {
    let mut switch = Switch::new(2, false);
    let mut ports = ports(2);
    let outside = switch.add_port();
    send(&mut switch, &mut ports, outside, &plain(2, 0xFF));
    assert_eq!(seen(&ports), [1, 1]);
    assert_eq!(
        switch.outgoing(outside),
        None,
        "not back to where it came from"
    );
    send(&mut switch, &mut ports, 0, &plain(4, 2));
    assert_eq!(seen(&ports), [1, 1], "the address was learned");
    let mut padded = plain(4, 2);
    padded.resize(60, 0);
    assert_eq!(switch.outgoing(outside), Some(&padded[..]));
    assert_eq!(switch.take_outgoing(outside), Some(padded));
    assert_eq!(switch.take_outgoing(outside), None);
    assert_eq!(switch.take_outgoing(0), None, "a function is not outside");
    assert_eq!(switch.take_outgoing(99), None);
}

#[test]
fn packets_reach_ports_outside_byte_for_byte() {
    let mut switch = Switch::new(1, false);
    let mut ports = ports(1);
    let (left, right) = (switch.add_port(), switch.add_port());
    let mut tagged = bytes(2, 4);
    tagged.splice(12..12, [0x81, 0, 0x60, 5]);
    for frame in [bytes(2, 4), tagged] {
        send(&mut switch, &mut ports, left, &frame);
        assert_eq!(switch.take_outgoing(right), Some(frame));
    }
}

/// Sends 2000 frames to a port outside and returns those that arrive. Their last byte but four
/// distinguishes them.
fn impaired(fault: Fault) -> (Vec<Vec<u8>>, SwitchCounters) {
    let mut switch = Switch::new(0, false);
    let mut ports = ports(0);
    let (left, right) = (switch.add_port(), switch.add_port());
    switch.inject(fault);
    let mut arrived = Vec::new();
    for number in 0..2000u32 {
        let mut frame = plain(2, 4);
        frame.extend(number.to_be_bytes());
        frame.resize(64, 0);
        switch.inject_frame(left, &frame).unwrap();
        let now = Instant(u64::from(number) * 1000);
        while switch.step(&mut ports.0, &ports.1, now) {}
        arrived.extend(switch.take_outgoing(right));
    }
    while let Some(due) = switch.next_timer() {
        while switch.step(&mut ports.0, &ports.1, due) {}
    }
    arrived.extend(std::iter::from_fn(|| switch.take_outgoing(right)));
    (arrived, switch.counters())
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

#[test]
fn each_impairment_does_what_its_name_says_about_as_often_as_asked() {
    let (per_million, seed) = (100_000, 5);
    let about = |count: u64| assert!((140..260).contains(&count), "about 200 of 2000: {count}");

    let (frames, counters) = impaired(Fault::DuplicateFrames { per_million, seed });
    about(counters.duplicated);
    assert_eq!(frames.len() as u64, 2000 + counters.duplicated);
    assert!(frames.is_sorted_by_key(|frame| number(frame)));

    let behind = 3;
    let (frames, counters) = impaired(Fault::ReorderFrames {
        per_million,
        seed,
        behind,
    });
    about(counters.held);
    assert_eq!(frames.len(), 2000);
    let late = frames
        .windows(2)
        .filter(|two| number(&two[1]) < number(&two[0]));
    assert!(late.count() > 100);
    let moved = frames.iter().zip(0u32..);
    let farthest = moved.map(|(frame, place)| place.saturating_sub(number(frame)));
    assert_eq!(farthest.max(), Some(behind), "no frame is more than 3 late");

    let by = std::time::Duration::from_micros(50);
    let (frames, counters) = impaired(Fault::DelayFrames {
        per_million,
        seed,
        by,
    });
    about(counters.held);
    assert_eq!(frames.len(), 2000);
    let moved = frames.iter().zip(0u32..);
    let farthest = moved.map(|(frame, place)| place.abs_diff(number(frame)));
    let farthest = farthest.max().unwrap();
    assert!(
        (40..60).contains(&farthest),
        "a frame a microsecond: {farthest}"
    );

    let (frames, counters) = impaired(Fault::CorruptFrames { per_million, seed });
    about(counters.corrupted);
    assert_eq!(frames.len(), 2000);
    let mut changed = 0;
    for (frame, number) in frames.iter().zip(0u32..) {
        let mut sent = plain(2, 4);
        sent.extend(number.to_be_bytes());
        sent.resize(64, 0);
        let bits = frame.iter().zip(&sent).map(|(a, b)| (a ^ b).count_ones());
        let bits: u32 = bits.sum();
        assert!(bits <= 1);
        changed += u64::from(bits);
    }
    assert_eq!(changed, counters.corrupted);
}

#[test]
fn impairments_follow_their_seed_and_end_when_cleared() {
    let fault = |seed| Fault::ReorderFrames {
        per_million: 300_000,
        seed,
        behind: 2,
    };
    assert_eq!(impaired(fault(7)), impaired(fault(7)));
    assert_ne!(impaired(fault(7)).0, impaired(fault(8)).0);

    let mut switch = Switch::new(0, false);
    let mut ports = ports(0);
    let (left, right) = (switch.add_port(), switch.add_port());
    switch.inject(Fault::DropFrames {
        per_million: 1_000_000,
        seed: 1,
    });
    send(&mut switch, &mut ports, left, &plain(2, 4));
    assert_eq!(switch.take_outgoing(right), None);
    switch.clear_faults();
    send(&mut switch, &mut ports, left, &plain(2, 4));
    assert!(switch.take_outgoing(right).is_some());
}

/// The second fault takes the place of the first one.
#[test]
fn frames_that_are_held_arrive_when_they_are_due_after_the_faults_are_cleared() {
    let mut switch = Switch::new(0, false);
    let mut ports = ports(0);
    let (left, right) = (switch.add_port(), switch.add_port());
    let delay = |micros| Fault::DelayFrames {
        per_million: 1_000_000,
        seed: 1,
        by: std::time::Duration::from_micros(micros),
    };
    switch.inject(delay(50));
    switch.inject(delay(20));
    assert_eq!(switch.faults(), [delay(20)]);
    send(&mut switch, &mut ports, left, &plain(2, 4));
    switch.clear_faults();
    assert_eq!(switch.faults(), []);
    assert_eq!(switch.take_outgoing(right), None);
    let due = switch.next_timer();
    assert_eq!(due, Some(Instant(20_000)));
    switch.step(&mut ports.0, &ports.1, Instant(20_000));
    assert!(switch.take_outgoing(right).is_some());
}

#[test]
fn corrupted_packets_of_functions_are_caught_by_their_invariant_crc() {
    let mut switch = Switch::new(2, false);
    let mut ports = ports(2);
    ports.0[1].open_for_rdma(MacAddress([4; 6]));
    let seed = 3;
    switch.inject(Fault::CorruptFrames {
        per_million: 1_000_000,
        seed,
    });
    let sent = 500;
    for _ in 0..sent {
        let frame = Frame::parse(&bytes(2, 4)).unwrap();
        switch.forward(0, &frame, &mut ports.0, &ports.1, Instant(0));
    }
    // Some bits are in fields that the CRC leaves out: those arrive.
    let counters = switch.counters();
    assert_eq!(counters.corrupted, sent);
    assert_eq!(counters.damaged + counters.delivered, sent);
    assert!(counters.damaged > sent / 3, "{counters:?}");
}

#[test]
fn marks_are_for_senders_that_know_them_and_leave_checksums_right() {
    use crate::packet::{self, Ipv4, Ipv6, Network};
    let congestion = |class: u8, marked: u8, six: bool| {
        let mut packet = packet(MacAddress([2; 6]), MacAddress([4; 6]));
        packet.path.network = if six {
            Network::V6(Ipv6 {
                source: [1; 16].into(),
                destination: [2; 16].into(),
                traffic_class: class,
                flow_label: 0xABCDE,
                hop_limit: 9,
            })
        } else {
            Network::V4(Ipv4 {
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                type_of_service: class,
                time_to_live: 64,
                identification: 0x1234,
                do_not_fragment: true,
            })
        };
        let mut frame = Vec::new();
        packet::emit(&packet, &[1, 2, 3, 4], &mut frame).unwrap();
        assert_eq!(packet::mark_congestion(&mut frame), marked != class);
        let (after, _) = packet::parse(&frame).expect("checksum and invariant CRC hold");
        let found = match after.path.network {
            Network::V4(ip) => ip.type_of_service,
            Network::V6(ip) => ip.traffic_class,
        };
        assert_eq!(found, marked);
    };
    for six in [false, true] {
        congestion(0b1010_1000, 0b1010_1000, six);
        congestion(0b1010_1001, 0b1010_1011, six);
        congestion(0b1010_1010, 0b1010_1011, six);
        congestion(0b0000_0010, 0b0000_0011, six);
    }
    let mut other = plain(2, 4);
    assert!(!packet::mark_congestion(&mut other));
    for length in 0..40 {
        let mut cut = bytes(2, 4);
        cut.truncate(length);
        packet::mark_congestion(&mut cut);
    }
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
