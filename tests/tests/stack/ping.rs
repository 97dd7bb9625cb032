//! Ping: the driver's stack answers another one, over frames with and without tags.

use crate::bed::{Bed, MTU, Raw, config, settings};
use ringside_lan::Burst;
use ringside_pmd::lan::VlanStripping;
use ringside_stack::{QueueDevice, ResolveError, Stack};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
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
        let mut frame = [to, from].concat();
        frame.extend([0x08, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 1, 0, 0]);
        frame.extend(source);
        frame.extend([192, 0, 2, 1]);
        let sum = !internet_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        // A request of an echo, with identifier and number.
        frame.extend([8, 0, 0xE5, 0xCA, 0x12, 0x34, 0, 1]);
        frame.resize(60, 0);
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
        let refused = stack.lookup(address, bed.world.clock().now());
        assert_eq!(refused, Err(ResolveError::Loopback(address)));
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// The sum of RFC 1071.
fn internet_sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    sum as u16
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
        let mut frame = [to, from].concat();
        frame.extend([0x08, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([192, 0, 2, 2, 192, 0, 2, 1]);
        frame.extend(source.to_be_bytes());
        frame.extend([0x12, 0xB7, 0, 8, 0, 0]);
        frame.resize(60, 0);
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

/// An ARP request with a tag, by hand.
fn tagged_request(own: [u8; 6], tag: u16, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let tag = tag.to_be_bytes();
    [
        [0xFF; 6].as_slice(),
        &own,
        &[0x81, 0x00],
        &tag,
        &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1],
        &own,
        &from,
        &[0; 6],
        &to,
    ]
    .concat()
}

#[test]
fn a_vlan_is_answered_with_its_tag_whether_the_device_strips_tags_or_not() {
    for stripping in [VlanStripping::Off, VlanStripping::On] {
        let bed = Bed::new();
        let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24", "10.1.0.1/24@100"]));
        stack.port().strip_vlan(stripping).unwrap();
        let mut far = Raw::new(&bed, 1, &settings());
        let mac = far.port.mac();
        let peer = [10, 1, 0, 2];
        // Without a tag, with that of another VLAN, with its own and a priority.
        let request = |tag| tagged_request(mac, tag, peer, [10, 1, 0, 1]);
        let mut untagged = request(0);
        untagged.drain(12..16);
        for frame in [untagged, request(101), request(0x6000 | 100)] {
            far.send(&frame);
        }
        let mut answers = Vec::new();
        for _ in 0..200 {
            stack.poll(bed.world.clock().now());
            answers.extend(far.poll());
            bed.pass();
        }
        // Each address is announced on its VLAN.
        let (announced, answers): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|frame| frame[..6] == [0xFF; 6]);
        let [untagged, tagged] = announced.as_slice() else {
            panic!("{stripping:?}: {announced:x?}");
        };
        assert_eq!(untagged[12..14], [0x08, 0x06]);
        assert_eq!(tagged[12..18], [0x81, 0, 0, 100, 0x08, 0x06]);
        let [answer] = answers.as_slice() else {
            panic!("{stripping:?}: {answers:x?}");
        };
        assert_eq!(answer[..6], mac);
        assert_eq!(answer[12..18], [0x81, 0, 0, 100, 0x08, 0x06]);
        assert_eq!(
            answer[26..36],
            [stack.port().mac().as_slice(), &[10, 1, 0, 1]].concat()
        );
        assert_eq!(stack.counters().no_link, 1, "VLAN 101");
        drop(stack);
        bed.finish([near, far.into_device()]);
    }
}
