//! Refused addresses, the order of routers, tags with a priority alone, and frames longer than a
//! buffer.

use crate::bed::{Bed, Raw, config, open, settings, stack_settings};
use crate::dhcp::lease;
use ringside_model::Fault;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind, VlanStripping};
use ringside_spec::lan::admin::Opcode;
use ringside_stack::{LocalAddress, ResolveError, Stack, StackError, StackSettings};
use smoltcp::phy::{Device as _, RxToken as _};
use std::net::{IpAddr, Ipv4Addr};

fn address(text: &str) -> LocalAddress {
    text.parse().expect("an address")
}

/// An echo request in a frame, with `data` behind its header.
fn echo(to: [u8; 6], from: [u8; 6], source: [u8; 4], target: [u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(28 + data.len())
        .expect("a packet")
        .to_be_bytes();
    let mut packet = [0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 1, 0, 0].to_vec();
    packet.extend(source);
    packet.extend(target);
    let sum = sum_of(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend(data);
    let sum = sum_of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut frame = [to.as_slice(), &from, &[0x08, 0], &packet, &message].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The checksum of RFC 1071.
fn sum_of(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into());
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}

/// The frames that the stack sends within a while.
fn sent(bed: &Bed, stack: &mut Stack, far: &mut Raw) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..200 {
        stack.poll(bed.world.clock().now());
        frames.extend(far.poll());
        bed.pass();
    }
    frames
}

#[test]
fn an_address_whose_filters_are_refused_leaves_no_filter_and_comes_later() {
    let bed = Bed::new();
    let (near, mut stack, others) = bed.stack_beside(0, &config(&["192.0.2.1/24"]), (2, 1));
    let far = Raw::new(&bed, 1, &settings());
    let port = stack.port().clone();
    let filters = || (bed.switch_rules(), port.rules().len());
    let now = bed.world.clock().now();
    let (before, known) = (filters(), stack.addresses().to_vec());

    // The group of its solicitations.
    let refusal = Fault::AdminCommandFails {
        opcode: Opcode::AddSwitchRules.code(),
        code: 5,
    };
    bed.world.with(|world| world.inject(0, refusal));
    let six = address("2001:db8::77/64");
    stack.add_address(six, now).expect_err("refused");
    bed.world.with(|world| world.clear_faults(0));
    assert_eq!(filters(), before);
    assert_eq!(stack.addresses(), known);

    // The last of its rules: the program has one for the same packets.
    let four = address("192.0.2.9/24");
    let rule = FlowRule {
        packets: FlowMatch {
            destination: Some(four.address),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::FragmentV4))
        },
        target: FlowTarget::Queue(0),
        mark: None,
        count: false,
    };
    let own = port.add_rule(&rule).expect("a rule");
    let error = stack.add_address(four, now).expect_err("refused");
    assert!(matches!(error, StackError::Port(_)), "{error}");
    port.remove_rule(own).expect("the rule");
    assert_eq!(filters(), before);

    for address in [six, four] {
        stack.add_address(address, now).expect("no fault");
        stack.remove_address(address.address, None).expect("added");
    }
    assert_eq!(filters(), before);
    // The group of all nodes goes with the last address that needs it.
    let link_local = IpAddr::V6(ringside_pmd::rdma::address::link_local(port.mac()));
    stack.remove_address(link_local, None).unwrap();
    assert_eq!(filters().0, before.0 - 2);
    drop((stack, others, port));
    bed.finish([near, far.into_device()]);
}

#[test]
fn packets_to_other_networks_go_to_the_router_of_the_lease() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let configured = Ipv4Addr::new(192, 0, 2, 254);
    config.network.gateways = vec![configured.into()];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    lease(&bed, &mut stack, &mut server);
    let Some(IpAddr::V4(own)) = stack.leased().map(|leased| leased.address) else {
        panic!("no lease");
    };
    let Some(IpAddr::V4(router)) = stack.gateways().first().copied() else {
        panic!("no router");
    };
    let (to, from) = (stack.port().mac(), server.port.mac());
    server.send(&echo(to, from, [203, 0, 113, 5], own.octets(), b"far"));
    let frames = sent(&bed, &mut stack, &mut server);
    let asked = |frame: &Vec<u8>| {
        let is_question = frame[12..14] == [8, 6] && frame[20..22] == [0, 1];
        let target = Ipv4Addr::new(frame[38], frame[39], frame[40], frame[41]);
        // Announcements ask for the own address.
        (is_question && frame[28..32] != target.octets()).then_some(target)
    };
    let asked: Vec<Ipv4Addr> = frames.iter().filter_map(asked).collect();
    assert!(
        !asked.is_empty() && asked.iter().all(|target| *target == router),
        "{asked:?}"
    );
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// VLAN 0 is none: IEEE 802.1Q, table 9-2.
#[test]
fn a_tag_with_a_priority_alone_counts_as_none() {
    for stripping in [VlanStripping::Off, VlanStripping::On] {
        let bed = Bed::new();
        let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
        stack.port().strip_vlan(stripping).unwrap();
        let mut far = Raw::new(&bed, 1, &settings());
        let (to, from) = (stack.port().mac(), far.port.mac());
        let mut frame = echo(to, from, [192, 0, 2, 7], [192, 0, 2, 1], b"tagged");
        frame.splice(12..12, [0x81, 0, 0x60, 0]);
        far.send(&frame);
        sent(&bed, &mut stack, &mut far);
        let counters = stack.counters();
        assert_eq!(
            (counters.received, counters.no_link),
            (1, 0),
            "{stripping:?}"
        );
        drop(stack);
        bed.finish([near, far.into_device()]);
    }
}

/// Two networks of one port may have the same addresses.
#[test]
fn a_packet_from_the_own_address_of_another_vlan_is_one_of_another_station() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24", "10.1.0.1/24@100"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    far.send(&echo(to, from, [10, 1, 0, 1], [192, 0, 2, 1], b"untagged"));
    sent(&bed, &mut stack, &mut far);
    let counters = stack.counters();
    assert_eq!((counters.received, counters.martians), (1, 0));
    far.send(&echo(to, from, [192, 0, 2, 1], [192, 0, 2, 1], b"own"));
    sent(&bed, &mut stack, &mut far);
    assert_eq!(stack.counters().martians, 1);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn an_answer_longer_than_a_buffer_is_sent_in_several() {
    const MTU: u16 = 4000;
    let bed = Bed::new();
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
    let mut stack = Stack::new(port, pair, &settings, now).expect("a stack");
    let mut far = Raw::new(&bed, 1, &jumbo);
    let (to, from) = (stack.port().mac(), far.port.mac());
    // The stack learns the station by its question.
    let question = [
        [0xFF; 6].as_slice(),
        &from,
        &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1],
        &from,
        &[192, 0, 2, 7],
        &[0; 6],
        &[192, 0, 2, 1],
    ]
    .concat();
    far.send(&question);
    sent(&bed, &mut stack, &mut far);
    let data: Vec<u8> = (0..3000_u32).map(|index| index as u8).collect();
    far.send(&echo(to, from, [192, 0, 2, 7], [192, 0, 2, 1], &data));
    let frames = sent(&bed, &mut stack, &mut far);
    let answer = frames.iter().find(|frame| frame.len() > 3000);
    let answer = answer.expect("an answer");
    assert_eq!(answer[34..36], [0, 0], "an answer of an echo");
    assert_eq!(answer[42..42 + data.len()], data[..]);
    assert_eq!(stack.counters().unsent, 0);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn a_device_of_smoltcp_takes_no_frame_whose_tag_was_removed() {
    let bed = Bed::new();
    let (near, port, mut device) = bed.smoltcp(0);
    port.strip_vlan(VlanStripping::On).unwrap();
    let mut far = Raw::new(&bed, 1, &settings());
    let mut frames = Vec::new();
    for number in 1..=2 {
        let mut frame = [port.mac(), far.port.mac()].concat();
        frame.extend([0x88, 0xB5, number]);
        frame.resize(60, 0);
        frames.push(frame);
    }
    frames[0].splice(12..12, [0x81, 0, 0, 100]);
    for frame in &frames {
        far.send(frame);
        bed.pass();
    }
    let mut taken = Vec::new();
    for _ in 0..200 {
        if let Some((received, _)) = device.receive(bed.now()) {
            taken.push(received.consume(|bytes| bytes[14]));
        }
        bed.pass();
    }
    assert_eq!(taken, [2]);
    drop((device, port));
    bed.finish([near, far.into_device()]);
}

#[test]
fn frames_that_find_no_buffer_are_counted() {
    let bed = Bed::new();
    let own = config(&["192.0.2.1/24"]);
    let near = bed.device(0, &own);
    let mut open = near.open_port(&settings()).expect("a port");
    let pool = open.pool.clone();
    let settings = stack_settings(&own, open.port.mac());
    let pair = (open.receive.remove(0), open.transmit.remove(0));
    let now = bed.world.clock().now();
    let mut stack = Stack::new(open.port.clone(), pair, &settings, now).expect("a stack");
    let held: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
    assert!(!held.is_empty());
    stack.poll(now);
    let counters = stack.counters();
    assert_eq!(counters.announcements, 2);
    assert!(counters.unsent >= 2, "{counters:?}");
    drop((held, stack, open, pool));
    bed.finish([near]);
}

#[test]
fn an_address_that_was_removed_is_announced_no_more() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let clock = bed.world.clock();
    stack.poll(clock.now());
    assert_eq!(stack.counters().announcements, 2, "with the link-local one");
    let added = address("192.0.2.9/24");
    stack.add_address(added, clock.now()).expect("room");
    stack.remove_address(added.address, None).expect("added");
    stack.poll(clock.now());
    assert_eq!(stack.counters().announcements, 2);
    drop(stack);
    bed.finish([near]);
}

#[test]
fn a_stack_whose_device_has_failed_says_so() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let peer = IpAddr::from([192, 0, 2, 7]);
    let now = bed.world.clock().now();
    assert_eq!(stack.lookup(peer, now), Ok(None));
    near.give_up().expect("in service");
    assert_eq!(stack.lookup(peer, now), Err(ResolveError::OutOfService));
    drop(stack);
    bed.finish([near]);
}
