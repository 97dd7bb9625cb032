//! Ping: the driver's stack answers another one, and pings made by hand.

use crate::bed::{Bed, MTU, Raw, config, open, settings, stack_settings};
use crate::frames::{checksum, echo, ipv4, question, sent};
use ringside_config::Within;
use ringside_lan::Burst;
use ringside_pmd::Device;
use ringside_pmd::lan::PortSettings;
use ringside_stack::{QueueDevice, ResolveError, Stack, StackSettings};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device as _, TxToken as _};
use smoltcp::socket::icmp;
use smoltcp::wire::{
    EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpCidr,
};

/// Rounds of 20 us that a test waits.
const ROUNDS: usize = 2000;
const IDENT: u16 = 0x1234;

/// Pings `target` from smoltcp at `own` until it answers; the payload that came back.
fn ping(
    bed: &Bed,
    (device, mac): (&mut QueueDevice, [u8; 6]),
    own: IpCidr,
    target: IpAddress,
    stack: &mut Stack,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut interface = Interface::new(Config::new(EthernetAddress(mac).into()), device, bed.now());
    interface.update_ip_addrs(|list| list.push(own).unwrap());
    let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 32768]);
    let mut socket = icmp::Socket::new(buffer(), buffer());
    socket.bind(icmp::Endpoint::Ident(IDENT)).unwrap();
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);
    let checks = ChecksumCapabilities::default();
    let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
    let (ident, seq_no) = (IDENT, 1);
    match (own.address(), target) {
        (IpAddress::Ipv4(_), _) => {
            let data = payload;
            let echo = Icmpv4Repr::EchoRequest {
                ident,
                seq_no,
                data,
            };
            let place = socket.send(echo.buffer_len(), target).unwrap();
            echo.emit(&mut Icmpv4Packet::new_unchecked(place), &checks);
        }
        (IpAddress::Ipv6(own), IpAddress::Ipv6(to)) => {
            let data = payload;
            let echo = Icmpv6Repr::EchoRequest {
                ident,
                seq_no,
                data,
            };
            let place = socket.send(echo.buffer_len(), target).unwrap();
            let mut packet = Icmpv6Packet::new_unchecked(place);
            echo.emit(&own, &to, &mut packet, &checks);
        }
        _ => unreachable!("addresses of one version"),
    }
    for _ in 0..ROUNDS {
        interface.poll(bed.now(), device, &mut sockets);
        stack.poll(bed.world.clock().now());
        let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
        if let Ok((bytes, from)) = socket.recv() {
            assert_eq!(from, target);
            // Behind type, code, checksum, identifier, number.
            return Some(bytes[8..].to_vec());
        }
        bed.pass();
    }
    None
}

/// Pings from several addresses: the hash would spread them over the queues.
#[test]
fn a_stack_beside_three_other_queues_gets_its_packets_and_they_get_none_of_them() {
    const QUEUE: u16 = 2;
    for (v6, length) in [(false, 56), (true, 56), (false, 4000)] {
        let bed = Bed::new();
        let own = config(&["192.0.2.1/24", "2001:db8::1/64"]);
        let (near, mut stack, mut others) = bed.stack_beside(0, &own, (4, QUEUE));
        let (far, port, mut queues) = bed.smoltcp(1);
        port.set_all_multicast(true).unwrap();
        let mac = port.mac();
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        for last in 2..10 {
            let (peer, target) = match v6 {
                true => (format!("2001:db8::{last}/64"), "2001:db8::1"),
                false => (format!("192.0.2.{last}/24"), "192.0.2.1"),
            };
            let (peer, target) = (peer.parse().unwrap(), target.parse().unwrap());
            let answer = ping(&bed, (&mut queues, mac), peer, target, &mut stack, &payload);
            assert_eq!(answer.as_deref(), Some(&payload[..]), "{peer}");
        }
        for queue in &mut others {
            let mut burst = Burst::default();
            assert_eq!(queue.receive(&mut burst), 0, "{burst:?}");
        }
        drop((stack, others, queues, port));
        bed.finish([near, far]);
    }
}

/// An answer to it would reach no station, or the port itself.
#[test]
fn a_ping_from_an_address_that_no_station_has_is_dropped() {
    let bed = Bed::new();
    let own = config(&["192.0.2.1/24"]);
    let (near, mut stack) = bed.stack(0, &own);
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    let sources = [
        [127, 0, 0, 1],
        [192, 0, 2, 1],
        [192, 0, 2, 255],
        [224, 0, 0, 9],
        [0, 0, 0, 0],
        [192, 0, 2, 7],
    ];
    for source in sources {
        let frame = echo((to, from), (source, [192, 0, 2, 1]), b"");
        far.send(&frame);
        let mut received = 0;
        for _ in 0..ROUNDS {
            bed.pass();
            received += stack.poll(bed.world.clock().now());
            if received > 0 {
                break;
            }
        }
        assert_eq!(received, 1, "{source:?}");
    }
    assert_eq!(stack.counters().martians, 5);
    assert_eq!(stack.counters().received, 6);
    for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let address = loopback.parse().unwrap();
        let refused = stack.lookup(address, Within::All, bed.world.clock().now());
        assert_eq!(refused, Err(ResolveError::Loopback(address)));
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// Datagrams and segments to the same address are the program's: the hash spreads them.
#[test]
fn a_stack_beside_other_queues_gets_no_datagrams_but_those_of_dhcp() {
    let bed = Bed::new();
    let own = config(&["192.0.2.1/24"]);
    let (near, mut stack, mut others) = bed.stack_beside(0, &own, (4, 2));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    for source in 0..32u16 {
        let [high, low] = source.to_be_bytes();
        // To port 5000: RoCEv2 has 4791.
        let datagram = [high, low, 0x13, 0x88, 0, 8, 0, 0];
        let addresses = ([192, 0, 2, 2], [192, 0, 2, 1]);
        let frame = ipv4((to, from), 17, addresses, &datagram);
        far.send(&frame);
    }
    let mut spread = [0; 3];
    for _ in 0..200 {
        stack.poll(bed.world.clock().now());
        for (count, queue) in spread.iter_mut().zip(&mut others) {
            let mut burst = Burst::default();
            *count += queue.receive(&mut burst);
        }
        bed.pass();
    }
    let seen = stack.counters().received as usize;
    assert_eq!(spread.iter().sum::<usize>() + seen, 32);
    assert!(
        spread.iter().all(|count| *count > 0),
        "{spread:?} and {seen}"
    );
    drop((stack, others));
    bed.finish([near, far.into_device()]);
}

fn pings(own: &str, peer: &str, target: &str, payload: &[u8]) -> Option<Vec<u8>> {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&[own]));
    let (far, port, mut queues) = bed.smoltcp(1);
    // As any user of smoltcp on plain queues does: solicitations come to groups.
    port.set_all_multicast(true).unwrap();
    let mac = port.mac();
    let (peer, target) = (peer.parse().unwrap(), target.parse().unwrap());
    let answer = ping(&bed, (&mut queues, mac), peer, target, &mut stack, payload);
    drop((stack, queues, port));
    bed.finish([near, far]);
    answer
}

#[test]
fn a_ping_over_ipv4_is_answered_after_arp() {
    let payload: Vec<u8> = (0..56).collect();
    let answer = pings("192.0.2.1/24", "192.0.2.2/24", "192.0.2.1", &payload);
    assert_eq!(answer, Some(payload));
}

#[test]
fn a_ping_over_ipv6_is_answered_after_neighbour_discovery() {
    let payload: Vec<u8> = (0..=255).collect();
    let answer = pings("2001:db8::1/64", "2001:db8::2/64", "2001:db8::1", &payload);
    assert_eq!(answer, Some(payload));
}

#[test]
fn a_ping_as_large_as_a_frame_is_answered_and_so_is_one_in_fragments() {
    for length in [usize::from(MTU) - 28, 4000] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let answer = pings("192.0.2.1/24", "192.0.2.2/24", "192.0.2.1", &payload);
        assert_eq!(answer, Some(payload), "{length} bytes");
    }
}

#[test]
fn an_address_that_the_stack_does_not_have_is_not_answered() {
    assert_eq!(
        pings("192.0.2.1/24", "192.0.2.2/24", "192.0.2.3", b"x"),
        None
    );
}

/// A stack at 192.0.2.1 and a station, for frames that are longer than a buffer of their ports.
fn with_long_frames(bed: &Bed) -> (Device, Stack, Raw) {
    const MTU: u16 = 4000;
    let mut own = config(&["192.0.2.1/24"]);
    own.link.mtu = MTU.into();
    let jumbo = PortSettings {
        mtu: MTU,
        ..settings()
    };
    let near = bed.device(0, &own);
    let (port, pair) = open(&near, &jumbo);
    let settings = StackSettings {
        mtu: MTU,
        ..stack_settings(&own, port.mac())
    };
    let now = bed.world.clock().now();
    let stack = Stack::new(port, pair, &settings, now).expect("a stack");
    (near, stack, Raw::new(bed, 1, &jumbo))
}

#[test]
fn an_answer_longer_than_a_buffer_is_sent_in_several() {
    let bed = Bed::new();
    let (near, mut stack, mut far) = with_long_frames(&bed);
    let (to, from) = (stack.port().mac(), far.port.mac());
    // The stack learns the station by its question.
    far.send(&question(from, [192, 0, 2, 7], [192, 0, 2, 1]));
    sent(&bed, &mut stack, &mut far, 200);
    let data: Vec<u8> = (0..3000_u32).map(|index| index as u8).collect();
    far.send(&echo((to, from), ([192, 0, 2, 7], [192, 0, 2, 1]), &data));
    let frames = sent(&bed, &mut stack, &mut far, 200);
    let answer = frames.iter().find(|frame| frame.len() > 3000);
    let answer = answer.expect("an answer");
    assert_eq!(answer[34..36], [0, 0], "an answer of an echo");
    assert_eq!(answer[42..42 + data.len()], data[..]);
    assert_eq!(stack.counters().unsent, 0);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn a_ping_in_several_buffers_from_an_address_that_no_station_has_is_dropped() {
    let bed = Bed::new();
    let (near, mut stack, mut far) = with_long_frames(&bed);
    let (to, from) = (stack.port().mac(), far.port.mac());
    far.send(&question(from, [192, 0, 2, 7], [192, 0, 2, 1]));
    sent(&bed, &mut stack, &mut far, 200);
    let data = [7; 3000];
    let sources = [
        [127, 0, 0, 1],
        [192, 0, 2, 1],
        [192, 0, 2, 255],
        [224, 0, 0, 9],
    ];
    for source in sources {
        far.send(&echo((to, from), (source, [192, 0, 2, 1]), &data));
    }
    let frames = sent(&bed, &mut stack, &mut far, 200);
    assert!(frames.is_empty(), "{frames:x?}");
    let counters = stack.counters();
    assert_eq!((counters.received, counters.martians), (5, 4));
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// A station that knew the port before, as after a restart of the program: it queries nothing.
#[test]
fn the_first_ping_of_a_station_that_the_stack_does_not_know_is_answered() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    // More than smoltcp remembers.
    for last in 100..180 {
        far.send(&echo(
            (to, from),
            ([192, 0, 2, last], [192, 0, 2, 1]),
            b"data",
        ));
        let frames = sent(&bed, &mut stack, &mut far, 20);
        let is_reply =
            |frame: &Vec<u8>| frame[..6] == from && frame[12..14] == [8, 0] && frame[34] == 0;
        assert!(frames.iter().any(is_reply), "{last}: {frames:02x?}");
    }
    // One of another network has no answer without a gateway.
    far.send(&echo((to, from), ([198, 51, 100, 9], [192, 0, 2, 1]), b""));
    let frames = sent(&bed, &mut stack, &mut far, 20);
    assert!(
        frames.iter().all(|frame| frame[12..14] != [8, 0]),
        "{frames:02x?}"
    );
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// The first fragment of a packet whose others never come.
#[test]
fn a_ping_in_fragments_is_answered_beside_packets_that_are_not_complete() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (far, port, mut queues) = bed.smoltcp(1);
    let stations = (stack.port().mac(), port.mac());
    for number in 0..7 {
        let source = [192, 0, 2, 100 + number];
        let mut frame = ipv4(stations, 1, (source, [192, 0, 2, 1]), &[0; 64]);
        // More fragments follow.
        frame[20] = 0x20;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
        let token = queues.transmit(bed.now()).expect("room");
        token.consume(frame.len(), |bytes| bytes.copy_from_slice(&frame));
        bed.pass();
        stack.poll(bed.world.clock().now());
    }
    let payload = [7; 4000];
    let (own, target) = (
        "192.0.2.9/24".parse().unwrap(),
        "192.0.2.1".parse().unwrap(),
    );
    let peer = (&mut queues, stations.1);
    let answer = ping(&bed, peer, own, target, &mut stack, &payload);
    assert_eq!(answer.as_deref(), Some(&payload[..]));
    drop((stack, queues, port));
    bed.finish([near, far]);
}

/// Padding only, and an option that a station skips which does not know it.
#[test]
fn a_ping_over_ipv6_behind_destination_options_is_answered() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["2001:db8::1/64"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    let own: std::net::Ipv6Addr = "2001:db8::9".parse().unwrap();
    let peer: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
    let echo = Icmpv6Repr::EchoRequest {
        ident: IDENT,
        seq_no: 1,
        data: b"data",
    };
    let mut message = vec![0; echo.buffer_len()];
    let mut place = Icmpv6Packet::new_unchecked(&mut message[..]);
    echo.emit(&own, &peer, &mut place, &ChecksumCapabilities::default());
    for options in [[58, 0, 1, 4, 0, 0, 0, 0], [58, 0, 0x3E, 4, 9, 9, 9, 9]] {
        let length = (options.len() + message.len()) as u8;
        let mut frame = [
            &to[..],
            &from,
            &[0x86, 0xDD, 0x60, 0, 0, 0, 0, length, 60, 64],
        ]
        .concat();
        frame.extend(own.octets());
        frame.extend(peer.octets());
        frame.extend(options);
        frame.extend(&message);
        far.send(&frame);
        let frames = sent(&bed, &mut stack, &mut far, 20);
        // Next header and type.
        let is_reply = |frame: &Vec<u8>| frame[12] == 0x86 && (frame[20], frame[54]) == (58, 129);
        assert!(frames.iter().any(is_reply), "{frames:02x?}");
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn the_ends_of_a_network_are_asked_for_by_no_frame() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let now = bed.world.clock().now();
    for end in ["192.0.2.0", "192.0.2.255"] {
        let address = end.parse().unwrap();
        let found = stack.lookup(address, Within::All, now);
        assert_eq!(found, Err(ResolveError::NotUnicast(address)));
    }
    let host = stack.lookup("192.0.2.254".parse().unwrap(), Within::All, now);
    assert_eq!(host, Ok(None));
    drop(stack);
    bed.finish([near]);
}

/// The answer to one of them was cut off by that to the next one.
#[test]
fn pings_in_fragments_that_arrive_at_once_are_all_answered() {
    const DATA_BYTES: usize = 8000;
    const FRAGMENT_BYTES: usize = 1480;
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let stations = (stack.port().mac(), far.port.mac());
    let own = [192, 0, 2, 1];
    for host in 10..14 {
        far.send(&question(stations.1, [192, 0, 2, host], own));
    }
    sent(&bed, &mut stack, &mut far, 100);
    let data: Vec<u8> = (0..DATA_BYTES).map(|at| at as u8).collect();
    for host in 10..14 {
        let whole = echo(stations, ([192, 0, 2, host], own), &data);
        let parts = whole[34..].chunks(FRAGMENT_BYTES);
        let last = parts.len() - 1;
        for (number, part) in parts.enumerate() {
            let mut frame = ipv4(stations, 1, ([192, 0, 2, host], own), part);
            // More fragments follow; the place in units of 8 bytes.
            let place = (number * FRAGMENT_BYTES / 8) as u16;
            let more = if number < last { 0x2000 } else { 0 };
            frame[20..22].copy_from_slice(&(place | more).to_be_bytes());
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]).to_be_bytes();
            frame[24..26].copy_from_slice(&sum);
            far.send(&frame);
        }
    }
    let frames = sent(&bed, &mut stack, &mut far, 400);
    for host in 10..14 {
        let to_host = |frame: &&Vec<u8>| {
            frame[12..14] == [8, 0] && frame[23] == 1 && frame[30..34] == [192, 0, 2, host]
        };
        let length = |frame: &Vec<u8>| usize::from(u16::from_be_bytes([frame[16], frame[17]])) - 20;
        let bytes: usize = frames.iter().filter(to_host).map(length).sum();
        assert_eq!(bytes, 8 + DATA_BYTES, "to {host}");
    }
    assert_eq!(stack.counters().unsent, 0);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// A switch floods packets to stations that it does not know.
#[test]
fn options_of_packets_to_another_station_are_not_answered() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["2001:db8::1/64"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    let peer: std::net::Ipv6Addr = "2001:db8::9".parse().unwrap();
    let echo = Icmpv6Repr::EchoRequest {
        ident: IDENT,
        seq_no: 1,
        data: b"data",
    };
    // The second has an option of each hop that a station must know.
    let options = [58, 0, 0x81, 4, 9, 9, 9, 9];
    let types = [
        ("2001:db8::1", &[][..]),
        ("2001:db8::1", &options),
        ("2001:db8::55", &options),
    ]
    .map(|(target, options)| {
        let target: std::net::Ipv6Addr = target.parse().unwrap();
        let mut message = vec![0; echo.buffer_len()];
        let mut place = Icmpv6Packet::new_unchecked(&mut message[..]);
        echo.emit(&peer, &target, &mut place, &ChecksumCapabilities::default());
        let next = if options.is_empty() { 58 } else { 0 };
        let length = (options.len() + message.len()) as u8;
        let mut frame = [
            &to[..],
            &from,
            &[0x86, 0xDD, 0x60, 0, 0, 0, 0, length, next, 64],
        ]
        .concat();
        frame.extend(peer.octets());
        frame.extend(target.octets());
        frame.extend(options);
        frame.extend(&message);
        far.send(&frame);
        let frames = sent(&bed, &mut stack, &mut far, 20);
        let of_control = frames
            .iter()
            .filter(|frame| frame[12] == 0x86 && frame[20] == 58);
        of_control.map(|frame| frame[54]).collect::<Vec<u8>>()
    });
    // An answer, "parameter problem", and nothing.
    assert_eq!(types, [vec![129], vec![4], vec![]]);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// All stations would answer one of a forged source.
#[test]
fn pings_to_all_stations_are_not_answered() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    let source = [192, 0, 2, 7];
    far.send(&question(from, source, [192, 0, 2, 1]));
    sent(&bed, &mut stack, &mut far, 100);
    for (to, target, answers) in [
        ([0xFF; 6], [255; 4], 0),
        ([0xFF; 6], [192, 0, 2, 255], 0),
        (to, [192, 0, 2, 255], 0),
        ([1, 0, 0x5E, 0, 0, 1], [224, 0, 0, 1], 0),
        ([0xFF; 6], [192, 0, 2, 1], 1),
        (to, [192, 0, 2, 1], 1),
    ] {
        far.send(&echo((to, from), (source, target), b"data"));
        let frames = sent(&bed, &mut stack, &mut far, 20);
        let is_answer = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[34] == 0;
        assert_eq!(
            frames.iter().filter(is_answer).count(),
            answers,
            "{target:?}"
        );
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}
