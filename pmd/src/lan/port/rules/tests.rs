//! Against what DPDK's driver computes: `tests/vectors/lan_data.json`.

use super::*;
use ringside_spec::lan::package::{UNUSED_WORD, VECTOR_WORDS};
use ringside_spec::lan::registers::filters::{FLOW_DIRECTOR_INPUT, FLOW_DIRECTOR_SWAP};
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../../tests/vectors/lan_data.json");

fn vectors(kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("JSON");
    all.into_iter().filter(|one| one["kind"] == kind).collect()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hexadecimal digits");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The words of the first vector section of an update, from the last place down.
fn sent_words(update: &[u8]) -> Vec<Word> {
    let number = |at: usize| usize::from(u16::from_le_bytes([update[at], update[at + 1]]));
    let entry = (0..number(0)).map(|one| 4 + 8 * one);
    let at = entry
        .clone()
        .find(|at| update[*at] == 36)
        .map(|at| number(at + 4));
    let at = at.expect("a section of vectors") + 4;
    let word = |place: usize| (update[at + 4 * place], number(at + 4 * place + 1) as u16);
    (0..VECTOR_WORDS).rev().map(word).collect()
}

#[test]
fn profiles_are_those_that_a_known_driver_writes() {
    use Field::{DestinationAddress, DestinationPort, Protocol, SourceAddress, SourcePort};
    let flow = PacketKind::Flow;
    let cases: [(&str, PacketKind, &[Field]); 4] = [
        (
            "1_ipv4_udp_destination_port",
            flow(FlowKind::UdpV4),
            &[DestinationPort],
        ),
        (
            "2_ipv4_tcp_5_tuple",
            flow(FlowKind::TcpV4),
            &[
                SourceAddress,
                DestinationAddress,
                SourcePort,
                DestinationPort,
            ],
        ),
        (
            "3_ipv6_udp_destination_and_source_port",
            flow(FlowKind::UdpV6),
            &[DestinationAddress, SourcePort],
        ),
        (
            "4_ipv4_source_protocol_masked",
            flow(FlowKind::OtherV4),
            &[SourceAddress, Protocol],
        ),
    ];
    let vectors = vectors("fdir_profile_commands");
    for (name, kind, fields) in cases {
        let vector = vectors
            .iter()
            .find(|one| one["name"].as_str().unwrap().ends_with(name));
        let commands = vector.expect(name)["commands"].as_array().unwrap();
        let input = InputSet::of(kind, &fields.iter().copied().collect());
        let written = |register: u64| {
            let found = commands.iter().find(|one| one["register"] == register);
            // A register whose value is zero is not written.
            found.map_or(0, |one| one["value"].as_u64().unwrap() as u32)
        };
        let update = commands.iter().find(|one| one["opcode"] == 0x0C42);
        let mut words = sent_words(&bytes(&update.unwrap()["buffer"]));
        let unused = words.iter().rposition(|word| *word != UNUSED_WORD).unwrap() + 1;
        words.truncate(unused);
        assert_eq!(input.words, words, "{name}");
        let grid = FLOW_DIRECTOR_INPUT;
        let profile = (0..128)
            .find(|profile| written(grid.at(5, *profile)) != 0)
            .unwrap();
        for (register, compared, swap) in input.registers() {
            assert_eq!(
                compared,
                written(grid.at(register, profile)),
                "{name} {register}"
            );
            let expected = written(FLOW_DIRECTOR_SWAP.at(register, profile));
            assert_eq!(swap, expected, "{name} {register}");
        }
        let masks: Vec<u64> = input.masks.iter().map(|mask| mask.0.into()).collect();
        let sent: Vec<u64> = commands
            .iter()
            .filter(|one| (0x41_0800..0x41_0880).contains(&one["register"].as_u64().unwrap_or(0)))
            .map(|one| one["value"].as_u64().unwrap())
            .collect();
        assert_eq!(masks, sent, "{name}");
    }
}

#[test]
fn packets_are_those_that_a_known_driver_sends() {
    let cases = [
        ("ipv4_udp", FlowKind::UdpV4),
        ("ipv4_tcp", FlowKind::TcpV4),
        ("ipv4_sctp", FlowKind::SctpV4),
        ("ipv6_udp", FlowKind::UdpV6),
        ("ipv6_tcp", FlowKind::TcpV6),
        ("ipv6_sctp", FlowKind::SctpV6),
    ];
    let vectors = vectors("fdir_dummy_packet");
    for (name, kind) in cases {
        let full = format!("fdir_packet.{name}");
        let vector = vectors.iter().find(|one| one["name"] == full).expect(name);
        let v4 = name.starts_with("ipv4");
        let address = |last: u8| match v4 {
            true => IpAddr::from([10, 0, 0, last]),
            false => IpAddr::from([0x2001, 0x0DB8, 0, 0, 0, 0, 0, u16::from(last)]),
        };
        let packets = FlowMatch {
            source: Some(address(1)),
            destination: Some(address(2)),
            source_port: Some(4369),
            destination_port: Some(8738),
            ..FlowMatch::of(RuleKind::Flow(kind))
        };
        let mut expected = bytes(&vector["bytes"]);
        // The rules of the vectors name MAC addresses and a type of service as well.
        expected[..12].fill(0);
        match v4 {
            true => expected[15] = 0,
            false => expected[14..16].copy_from_slice(&[0x60, 0]),
        }
        let mut made = packet(PacketKind::Flow(kind), &packets);
        if v4 {
            // Identification and flags differ from kind to kind there; nothing compares them.
            made[18..22].fill(0);
            expected[18..22].fill(0);
        }
        assert_eq!(made, expected, "{name}");
    }
}

#[test]
fn a_tag_and_a_type_are_in_the_packet() {
    let packets = FlowMatch {
        vlan: Some(100),
        ether_type: Some(0x0806),
        ..FlowMatch::of(RuleKind::Ethernet)
    };
    let made = packet(PacketKind::Ethernet, &packets);
    assert_eq!(made[12..18], [0x81, 0, 0, 100, 8, 6]);
}

#[test]
fn the_vlan_is_compared_in_the_header_of_ethernet() {
    for kind in [PacketKind::Flow(FlowKind::UdpV4), PacketKind::Ethernet] {
        let packets = FlowMatch {
            vlan: Some(100),
            ..FlowMatch::of(RuleKind::All)
        };
        let input = InputSet::of(kind, &packets.fields());
        assert_eq!(input.words, [(1, 12), (1, 14)]);
        let masks: Vec<_> = input.masks.iter().map(|mask| mask.bits()).collect();
        assert_eq!(masks, [0x0FFF], "priority bits are no part of the VLAN");
        // As its words are in the packet that describes the rule.
        assert_eq!(packet(kind, &packets)[12..16], [0x81, 0, 0, 100]);
    }
}

#[test]
fn rules_that_no_device_can_do_are_refused_by_name() {
    use std::net::Ipv4Addr;
    let tcp = FlowMatch::of(RuleKind::Flow(FlowKind::TcpV4));
    let port = FlowMatch {
        destination_port: Some(80),
        ..tcp.clone()
    };
    let rule = |packets: &FlowMatch, target| FlowRule {
        packets: packets.clone(),
        target,
        mark: None,
        count: false,
    };
    let queue = FlowTarget::Queue(1);
    let ethernet = |ether_type| FlowMatch {
        ether_type: Some(ether_type),
        ..FlowMatch::of(RuleKind::Ethernet)
    };
    let other_version = FlowMatch {
        source: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..FlowMatch::of(RuleKind::Flow(FlowKind::TcpV6))
    };
    let wide_tag = FlowMatch {
        vlan: Some(4095),
        ..tcp.clone()
    };
    let typed = FlowMatch {
        ether_type: Some(0x0806),
        ..tcp.clone()
    };
    let group = |first, count| FlowTarget::Group { first, count };
    let marked = |mark| FlowRule {
        mark: Some(mark),
        ..rule(&port, queue)
    };
    let wrong = [
        (rule(&tcp, queue), "without fields"),
        (rule(&typed, queue), "EtherType of"),
        (rule(&wide_tag, queue), "VLAN 4095"),
        (rule(&ethernet(0x05DC), queue), "0x05dc"),
        (rule(&ethernet(0x0800), queue), "0x0800"),
        (rule(&other_version, queue), "127.0.0.1 of tcp6"),
        (rule(&port, FlowTarget::Queue(4)), "queue 4 to 4 of 4"),
        (rule(&port, group(0, 3)), "group of queues 3"),
        (rule(&port, group(3, 2)), "queue 3 to 4 of 4"),
        (rule(&port, FlowTarget::Spread), "does nothing"),
        (marked(0), "mark 0"),
        (marked(u32::MAX), "mark 0"),
    ];
    for (rule, text) in wrong {
        let error = rule.check(4).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
    rule(&port, group(2, 2)).check(4).expect("possible");
    rule(&port, FlowTarget::Drop).check(4).expect("possible");
}

fn refusal(packets: FlowMatch, target: FlowTarget) -> String {
    let rule = FlowRule {
        packets,
        target,
        mark: None,
        count: false,
    };
    let queues = 4;
    rule.check(queues)
        .map_or_else(|error| error.to_string(), |()| "taken".to_owned())
}

#[test]
fn queues_that_the_port_does_not_have_are_refused_up_to_the_highest_number() {
    let packets = || FlowMatch {
        vlan: Some(1),
        ..FlowMatch::of(RuleKind::All)
    };
    let group = |first, count| FlowTarget::Group { first, count };
    for (target, text) in [
        (FlowTarget::Queue(3), None),
        (FlowTarget::Queue(4), Some("4 to 4 of 4")),
        (FlowTarget::Queue(65535), Some("65535 to 65535 of 4")),
        (group(0, 4), None),
        (group(2, 4), Some("2 to 5 of 4")),
        (group(65530, 64), Some("65530 to 65593 of 4")),
    ] {
        let found = refusal(packets(), target);
        let wanted = text.map_or("taken".to_owned(), |text| {
            format!("queue {text}: choose receive queues that the port has")
        });
        assert_eq!(found, wanted, "{target:?}");
    }
}

#[test]
fn a_protocol_that_is_a_kind_of_its_own_is_refused_with_the_name_of_that_kind() {
    let (v4, v6) = (FlowKind::OtherV4, FlowKind::OtherV6);
    for (kind, protocol, remedy) in [
        (v4, 6, "the kind tcp4"),
        (v4, 17, "the kind udp4"),
        (v4, 132, "the kind sctp4"),
        (v6, 6, "the kind tcp6"),
        (v6, 17, "the kind udp6"),
        (v6, 132, "the kind sctp6"),
        (v6, 44, "the kind frag6"),
        (v6, 0, "extension header"),
        (v6, 43, "extension header"),
        (v6, 60, "extension header"),
        (v4, 0, "taken"),
        (v4, 1, "taken"),
        (v4, 44, "taken"),
        (v6, 58, "taken"),
    ] {
        let packets = FlowMatch {
            protocol: Some(protocol),
            ..FlowMatch::of(RuleKind::Flow(kind))
        };
        let found = refusal(packets, FlowTarget::Queue(0));
        assert!(found.contains(remedy), "{kind:?} {protocol}: {found}");
    }
}
