//! Rules of the flow director: software predicts the queue of each packet, and packets tell whether
//! the device does the same.

use crate::rig::{Flow, Rig, ip_frame, plain_frame, settings};
use ringside_lan::{Packet, Toeplitz};
use ringside_model::Fault;
use ringside_pmd::lan::port::{
    DEFAULT_KEY, FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind, RuleNumber,
};
use ringside_pmd::lan::{OpenPort, PortSettings};
use ringside_spec::lan::admin::Opcode;
use std::net::IpAddr;

const QUEUES: usize = 4;

fn four_queues() -> PortSettings {
    PortSettings {
        receive_queues: QUEUES,
        ..settings()
    }
}

fn rig() -> Rig {
    Rig::with(&settings(), &four_queues())
}

/// The queue of a frame, and the packet.
fn arrives(rig: &mut Rig, frame: &[u8], vlan: Option<u16>) -> (usize, Packet) {
    let mut packet = rig.a.packet(frame);
    packet.set_vlan(vlan);
    rig.a.send([packet]);
    rig.wait_b(1).remove(0)
}

fn frame(rig: &Rig, flow: Flow) -> Vec<u8> {
    ip_frame(rig.b.mac(), rig.a.mac(), flow, b"payload")
}

fn address(v6: bool, last: u8) -> IpAddr {
    match v6 {
        true => IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, u16::from(last)]),
        false => IpAddr::from([10, 0, 0, last]),
    }
}

/// The queue that the hash of all fields chooses: those of the rig's frames.
fn hashed(rig: &Rig, flow: Flow) -> usize {
    let octets = |last| match address(flow.v6, last) {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (source, destination) = flow.ports;
    let mut bytes = [octets(1), octets(2)].concat();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    let hash = Toeplitz::new(DEFAULT_KEY).hash_bytes(bytes);
    hash as usize % rig.b.open.port.hash_table_entries() % QUEUES
}

fn to_queue(packets: FlowMatch, queue: u16) -> FlowRule {
    FlowRule {
        packets,
        target: FlowTarget::Queue(queue),
        mark: None,
        count: false,
    }
}

/// The fields of a flow that `chosen` names: a bit each for source address, destination address,
/// source port, destination port.
fn matching(kind: FlowKind, flow: Flow, chosen: u8) -> FlowMatch {
    let has = |bit: u8| chosen >> bit & 1 != 0;
    FlowMatch {
        source: has(0).then(|| address(flow.v6, 1)),
        destination: has(1).then(|| address(flow.v6, 2)),
        source_port: has(2).then_some(flow.ports.0),
        destination_port: has(3).then_some(flow.ports.1),
        ..FlowMatch::of(RuleKind::Flow(kind))
    }
}

/// A queue that is not the one that the hash chooses.
fn another(queue: usize) -> u16 {
    (queue as u16 + 1) % QUEUES as u16
}

#[test]
fn a_rule_of_any_fields_steers_the_packets_that_have_them_and_no_others() {
    let mut rig = rig();
    let kinds = [
        (FlowKind::TcpV4, false, 6),
        (FlowKind::UdpV4, false, 17),
        (FlowKind::SctpV4, false, 132),
        (FlowKind::TcpV6, true, 6),
        (FlowKind::UdpV6, true, 17),
        (FlowKind::SctpV6, true, 132),
    ];
    for (kind, v6, protocol) in kinds {
        let flow = |ports| Flow {
            v6,
            protocol,
            ports,
        };
        for chosen in 1..16 {
            let own = flow((1000, 2000));
            let wanted = another(hashed(&rig, own));
            let rule = to_queue(matching(kind, own, chosen), wanted);
            let port = rig.b.open.port.clone();
            let number = port.add_rule(&rule).expect("programmed");
            for ports in [(1000, 2000), (1001, 2000), (1000, 2001)] {
                let other = flow(ports);
                let matches =
                    (chosen & 4 == 0 || ports.0 == 1000) && (chosen & 8 == 0 || ports.1 == 2000);
                let expected = match matches {
                    true => wanted.into(),
                    false => hashed(&rig, other),
                };
                let bytes = frame(&rig, other);
                let found = arrives(&mut rig, &bytes, None).0;
                assert_eq!(found, expected, "{kind:?} {chosen:#06b} {ports:?}");
            }
            assert_eq!(port.remove_rule(number), Ok(true));
            assert_eq!(port.remove_rule(number), Ok(false));
            let bytes = frame(&rig, own);
            let found = arrives(&mut rig, &bytes, None).0;
            assert_eq!(found, hashed(&rig, own), "{kind:?}: the rule is gone");
        }
    }
    rig.finish();
}

/// Addresses that differ from the rule's: source and destination must not be mistaken for each
/// other.
#[test]
fn a_rule_does_not_fit_packets_of_the_opposite_direction() {
    let mut rig = rig();
    for (kind, v6) in [(FlowKind::UdpV4, false), (FlowKind::UdpV6, true)] {
        let flow = Flow {
            v6,
            protocol: 17,
            ports: (7, 9),
        };
        let queue = another(hashed(&rig, flow));
        let packets = FlowMatch {
            source: Some(address(v6, 2)),
            destination: Some(address(v6, 1)),
            source_port: Some(9),
            destination_port: Some(7),
            ..FlowMatch::of(RuleKind::Flow(kind))
        };
        rig.b
            .open
            .port
            .add_rule(&to_queue(packets, queue))
            .expect("programmed");
        let bytes = frame(&rig, flow);
        assert_eq!(arrives(&mut rig, &bytes, None).0, hashed(&rig, flow));
    }
    rig.finish();
}

#[test]
fn groups_drops_marks_and_counts_do_what_they_say() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    let flow = |destination| Flow {
        v6: false,
        protocol: 17,
        ports: (5000, destination),
    };
    let rule = |destination, target, mark, count| FlowRule {
        packets: matching(FlowKind::UdpV4, flow(destination), 8),
        target,
        mark,
        count,
    };
    let group = FlowTarget::Group { first: 2, count: 2 };
    port.add_rule(&rule(1, group, None, false)).expect("group");
    let dropped = port
        .add_rule(&rule(2, FlowTarget::Drop, None, true))
        .expect("drop");
    let marked = rule(3, FlowTarget::Queue(3), Some(0x1234), true);
    let marked = port.add_rule(&marked).expect("mark and count");
    let counted = rule(4, FlowTarget::Spread, Some(7), true);
    let counted = port.add_rule(&counted).expect("mark and count alone");
    assert_eq!(port.rules().len(), 4);
    for source in 0..16u16 {
        let own = Flow {
            ports: (source, 1),
            ..flow(1)
        };
        let bytes = frame(&rig, own);
        let (queue, packet) = arrives(&mut rig, &bytes, None);
        let hash = packet.hash().expect("a hash") as usize;
        assert_eq!(queue, 2 + (hash & 1), "within the group, by the hash");
        assert_eq!(packet.mark(), None);
    }
    let bytes = frame(&rig, flow(2));
    let packets: Vec<_> = (0..5).map(|_| rig.a.packet(&bytes)).collect();
    rig.a.send(packets);
    rig.silent_b();
    assert_eq!(port.rule_hits(dropped), Ok(Some(5)));
    for _ in 0..3 {
        let bytes = frame(&rig, flow(3));
        let (queue, packet) = arrives(&mut rig, &bytes, None);
        assert_eq!((queue, packet.mark()), (3, Some(0x1234)));
    }
    assert_eq!(port.rule_hits(marked), Ok(Some(3)));
    let bytes = frame(&rig, flow(4));
    let (queue, packet) = arrives(&mut rig, &bytes, None);
    assert_eq!((queue, packet.mark()), (hashed(&rig, flow(4)), Some(7)));
    assert_eq!(port.rule_hits(counted), Ok(Some(1)));
    assert_eq!(port.rule_hits(RuleNumber(99)), Ok(None));
    drop(packet);
    drop(port);
    rig.finish();
}

#[test]
fn types_of_ethernet_payload_and_vlans_are_steered() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    let of_type = |ether_type| FlowMatch {
        ether_type: Some(ether_type),
        ..FlowMatch::of(RuleKind::Ethernet)
    };
    let arp = port.add_rule(&to_queue(of_type(0x0806), 2)).expect("ARP");
    port.add_rule(&to_queue(of_type(0x88B5), 3))
        .expect("experiments");
    let (to, from) = (rig.b.mac(), rig.a.mac());
    let mut request = plain_frame(to, from, 60, 1);
    request[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(arrives(&mut rig, &request, None).0, 2);
    let plain = plain_frame(to, from, 60, 1);
    assert_eq!(arrives(&mut rig, &plain, None).0, 3);
    assert_eq!(port.remove_rule(arp), Ok(true));
    assert_eq!(arrives(&mut rig, &request, None).0, 0);
    // Rules of the VLAN alone name other fields than those of the type.
    for (number, _) in port.rules() {
        assert_eq!(port.remove_rule(number), Ok(true));
    }
    let vlan = |vlan| FlowMatch {
        vlan: Some(vlan),
        ..FlowMatch::of(RuleKind::All)
    };
    port.add_rule(&to_queue(vlan(100), 3)).expect("VLAN 100");
    port.add_rule(&to_queue(vlan(101), 2)).expect("VLAN 101");
    for (v6, protocol) in [(false, 6), (false, 17), (false, 132), (true, 6), (true, 17)] {
        let flow = Flow {
            v6,
            protocol,
            ports: (1, 2),
        };
        let bytes = frame(&rig, flow);
        // Priority bits are no part of the VLAN.
        assert_eq!(arrives(&mut rig, &bytes, Some(100)).0, 3);
        assert_eq!(arrives(&mut rig, &bytes, Some(5 << 13 | 101)).0, 2);
        assert_eq!(arrives(&mut rig, &bytes, None).0, hashed(&rig, flow));
    }
    assert_eq!(arrives(&mut rig, &plain, Some(100)).0, 3);
    // Where a tag would have its VLAN, a packet of IPv4 begins with 0x4500.
    for number in [0x500, 0] {
        let untagged = port.add_rule(&to_queue(vlan(number), 3)).expect("a VLAN");
        let flow = Flow {
            v6: false,
            protocol: 17,
            ports: (1, 3),
        };
        let bytes = frame(&rig, flow);
        assert_ne!(hashed(&rig, flow), 3);
        assert_eq!(arrives(&mut rig, &bytes, None).0, hashed(&rig, flow));
        assert_eq!(arrives(&mut rig, &bytes, Some(number)).0, 3);
        assert_eq!(port.remove_rule(untagged), Ok(true));
    }
    drop(port);
    rig.finish();
}

#[test]
fn rules_that_do_not_fit_beside_others_are_refused_by_name() {
    let rig = rig();
    let port = &rig.b.open.port;
    let flow = Flow {
        v6: false,
        protocol: 6,
        ports: (1, 80),
    };
    let first = to_queue(matching(FlowKind::TcpV4, flow, 8), 1);
    let number = port.add_rule(&first).expect("programmed");
    let other_fields = to_queue(matching(FlowKind::TcpV4, flow, 4), 1);
    let text = port
        .add_rule(&other_fields)
        .expect_err("other fields")
        .to_string();
    assert!(
        text.contains("of tcp4 compare destination port, this one source port"),
        "{text}"
    );
    let same = to_queue(matching(FlowKind::TcpV4, flow, 8), 2);
    let text = port
        .add_rule(&same)
        .expect_err("the same packets")
        .to_string();
    assert!(text.contains("same packets: Queue(1)"), "{text}");
    let beyond = to_queue(matching(FlowKind::UdpV4, flow, 8), 4);
    let text = port.add_rule(&beyond).expect_err("no queue 4").to_string();
    assert!(text.contains("queue 4"), "{text}");
    // A rule of all kinds fits only if each kind has room for it: nothing of it is left.
    let vlan = FlowMatch {
        vlan: Some(5),
        ..FlowMatch::of(RuleKind::All)
    };
    assert!(port.add_rule(&to_queue(vlan.clone(), 1)).is_err());
    assert_eq!(port.rules().len(), 1);
    assert_eq!(port.remove_rule(number), Ok(true));
    port.add_rule(&to_queue(vlan, 1)).expect("room for it now");
    rig.finish();
}

/// A rule of all kinds has the packets of each kind: the device would give them to the later rule
/// and forget both when that one is removed.
#[test]
fn a_rule_of_one_kind_and_one_of_all_kinds_do_not_share_packets() {
    let rig = rig();
    let port = &rig.b.open.port;
    let of = |kind, vlan| FlowMatch {
        vlan: Some(vlan),
        ..FlowMatch::of(kind)
    };
    let one_kind = [RuleKind::Flow(FlowKind::UdpV4), RuleKind::Ethernet];
    for kind in one_kind {
        for (first, second) in [(RuleKind::All, kind), (kind, RuleKind::All)] {
            let number = port
                .add_rule(&to_queue(of(first, 5), 3))
                .unwrap_or_else(|error| panic!("{first:?}: {error}"));
            let text = port
                .add_rule(&to_queue(of(second, 5), 2))
                .expect_err("the same packets")
                .to_string();
            assert!(text.contains("same packets: Queue(3)"), "{text}");
            let other = port
                .add_rule(&to_queue(of(second, 6), 2))
                .expect("another VLAN");
            assert_eq!(port.remove_rule(number), Ok(true));
            assert_eq!(port.remove_rule(other), Ok(true));
            assert_eq!(port.rules().len(), 0);
        }
    }
    rig.finish();
}

/// Each kind's rules take a profile, rows and masks: those of removed rules must come back.
#[test]
fn removed_rules_leave_nothing_taken() {
    let rig = rig();
    let port = &rig.b.open.port;
    for round in 0..200 {
        let flow = Flow {
            v6: false,
            protocol: 6,
            ports: (1, round),
        };
        let chosen = 1 + (round % 15) as u8;
        let packets = FlowMatch {
            vlan: (round % 2 == 0).then_some(7),
            ..matching(FlowKind::TcpV4, flow, chosen)
        };
        let rule = FlowRule {
            count: true,
            ..to_queue(packets, 1)
        };
        let number = port
            .add_rule(&rule)
            .unwrap_or_else(|error| panic!("{round}: {error}"));
        assert_eq!(port.remove_rule(number), Ok(true));
    }
    rig.finish();
}

/// A first rule starts two queues: one that fails later stops them again.
#[test]
fn a_first_rule_that_the_device_refuses_leaves_nothing_and_succeeds_later() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (5000, 9),
    };
    let queue = another(hashed(&rig, flow));
    let rule = to_queue(matching(FlowKind::UdpV4, flow, 8), queue);
    let pool = rig.b.device.pool().expect("memory").clone();
    let used = pool.usage().used_bytes;
    for opcode in [
        Opcode::UpdatePackage,
        Opcode::UpdateVsi,
        Opcode::AddTransmitQueues,
    ] {
        let fault = Fault::AdminCommandFails {
            opcode: opcode.code(),
            code: 12,
        };
        for _ in 0..3 {
            rig.world.with(|world| world.inject(1, fault));
            let error = port.add_rule(&rule).expect_err("refused").to_string();
            assert!(error.contains("ebusy (12)"), "{opcode:?}: {error}");
            rig.world.with(|world| world.clear_faults(1));
        }
        assert_eq!(pool.usage().used_bytes, used, "{opcode:?}");
    }
    let number = port.add_rule(&rule).expect("programmed");
    let bytes = frame(&rig, flow);
    assert_eq!(arrives(&mut rig, &bytes, None).0, usize::from(queue));
    assert_eq!(port.remove_rule(number), Ok(true));
    drop((port, pool));
    rig.finish();
}

/// A row that stays leads the packets of its kind to a profile of former rules.
#[test]
fn entries_that_the_firmware_does_not_take_back_are_freed_before_the_next_rule() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (5000, 9),
    };
    let refusal = Fault::AdminCommandFails {
        opcode: Opcode::FreeResource.code(),
        code: 12,
    };
    let wanted = another(hashed(&rig, flow));
    let [by_source, by_destination] =
        [4, 8].map(|chosen| to_queue(matching(FlowKind::UdpV4, flow, chosen), wanted));
    let first = port.add_rule(&by_source).expect("programmed");
    rig.world.with(|world| world.inject(1, refusal));
    assert_eq!(port.remove_rule(first), Ok(true));
    let error = port
        .add_rule(&by_destination)
        .expect_err("it would do nothing");
    assert!(error.to_string().contains("ebusy (12)"), "{error}");
    rig.world.with(|world| world.clear_faults(1));
    port.add_rule(&by_destination).expect("programmed");
    let bytes = frame(&rig, flow);
    assert_eq!(arrives(&mut rig, &bytes, None).0, usize::from(wanted));
    drop(port);
    rig.finish();
}

#[test]
fn rules_and_filters_are_restored_after_a_recovery() {
    let mut rig = rig();
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (1, 2),
    };
    let wanted = another(hashed(&rig, flow));
    let port = &rig.b.open.port;
    port.add_rule(&to_queue(matching(FlowKind::UdpV4, flow, 15), wanted))
        .expect("a rule");
    port.add_address([2, 1, 2, 3, 4, 5]).expect("an address");
    port.set_all_multicast(true).expect("groups");
    let before = port.setup();
    rig.b.device.give_up().expect("in service");
    assert_eq!(
        rig.b.open.port.setup(),
        before,
        "known when the device is down"
    );
    rig.b.device.recover().expect("back in service");
    let new = rig.b.device.open_port(&four_queues()).expect("open");
    let OpenPort {
        port,
        receive,
        transmit,
        pool,
    } = std::mem::replace(&mut rig.b.open, new);
    let setup = port.setup();
    drop((port, receive, transmit, pool));
    let bytes = frame(&rig, flow);
    assert_eq!(
        arrives(&mut rig, &bytes, None).0,
        hashed(&rig, flow),
        "no rule yet"
    );
    rig.b.open.port.restore(&setup).expect("restored");
    assert_eq!(rig.b.open.port.setup(), before);
    assert_eq!(arrives(&mut rig, &bytes, None).0, usize::from(wanted));
    rig.finish();
}

#[test]
fn a_device_that_fails_with_rules_gives_all_memory_back() {
    let mut rig = rig();
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (1, 2),
    };
    let rule = to_queue(matching(FlowKind::UdpV4, flow, 15), 1);
    rig.b.open.port.add_rule(&rule).expect("a rule");
    rig.b.device.give_up().expect("in service");
    let text = rig
        .b
        .open
        .port
        .add_rule(&rule)
        .expect_err("down")
        .to_string();
    assert!(text.contains("out of service"), "{text}");
    rig.b.device.recover().expect("back in service");
    rig.finish();
}
