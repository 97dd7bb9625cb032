//! Reports of the groups that queue pairs are in.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ipv4, sent, tagged};
use ringside_model::Fault;
use ringside_pmd::Device;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::rdma::{DatagramReady, QueuePair, QueuePairConfig};
use ringside_spec::lan::admin::Opcode;
use ringside_stack::Stack;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) const REPORT: u8 = 0x16;
pub(crate) const LEAVES: u8 = 0x17;
const QUERY: u8 = 0x11;
pub(crate) const OWN: [u8; 4] = [192, 0, 2, 1];
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);

pub(crate) fn promiscuous() -> PortSettings {
    PortSettings {
        promiscuous: true,
        ..settings()
    }
}

pub(crate) fn member(device: &Device) -> QueuePair<DatagramReady> {
    let domain = device.protection_domain().unwrap();
    let completions = device.completion_queue(16).unwrap();
    let made = domain.datagram_queue_pair(QueuePairConfig::datagram(&completions));
    made.unwrap().ready(7).unwrap()
}

/// The messages of IGMP among these frames: type, group, source. Each must be in a packet with a
/// router alert and one hop, to its group or to the routers.
pub(crate) fn messages(frames: &[Vec<u8>]) -> Vec<(u8, Ipv4Addr, [u8; 4])> {
    let igmp = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 2;
    let found = frames.iter().filter(igmp).map(|frame| {
        assert_eq!((frame[14], frame[22]), (0x46, 1));
        let group = Ipv4Addr::from(<[u8; 4]>::try_from(&frame[42..46]).unwrap());
        let to = Ipv4Addr::from(<[u8; 4]>::try_from(&frame[30..34]).unwrap());
        let expected = match frame[38] {
            LEAVES => Ipv4Addr::new(224, 0, 0, 2),
            _ => group,
        };
        assert_eq!(to, expected);
        (frame[38], group, frame[26..30].try_into().unwrap())
    });
    found.collect()
}

/// A query of a router; for all groups if `group` is unspecified.
pub(crate) fn query(router: [u8; 6], group: Ipv4Addr) -> Vec<u8> {
    let to = match group.is_unspecified() {
        true => Ipv4Addr::new(224, 0, 0, 1),
        false => group,
    };
    let [_, b, c, d] = to.octets();
    let [w, x, y, z] = group.octets();
    let words = [(QUERY, 100), (w, x), (y, z)].map(|(high, low)| u16::from_be_bytes([high, low]));
    let sum: u32 = words.iter().map(|word| u32::from(*word)).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    let [high, low] = sum.to_be_bytes();
    let message = [QUERY, 100, high, low, w, x, y, z];
    // A switch that asks without an address of its own has the unspecified one.
    let ends = ([0; 4], to.octets());
    ipv4(([1, 0, 0x5E, b & 0x7F, c, d], router), 2, ends, &message)
}

fn joins_are_reported(of: impl FnOnce(&Bed) -> (Device, Stack)) {
    let bed = Bed::new();
    let (near, mut stack) = of(&bed);
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let router = far.port.mac();
    stack.report_groups_of(near.multicast_groups().unwrap());
    let mut reports = |stack: &mut Stack, asked: Option<Ipv4Addr>| {
        if let Some(group) = asked {
            // The groups that were joined have been reported twice.
            bed.world.clock().pause(Duration::from_secs(2));
            sent(&bed, stack, &mut far, 60);
            bed.world.clock().pause(Duration::from_secs(1));
            far.send(&query(router, group));
            let heard = sent(&bed, stack, &mut far, 60);
            // The answers come in three quarters of 10 s.
            bed.world.clock().pause(Duration::from_millis(7500));
            let late = sent(&bed, stack, &mut far, 60);
            assert!(messages(&heard).len() < 2, "not all at once");
            let mut answers = messages(&[heard, late].concat());
            answers.sort_unstable();
            return answers;
        }
        messages(&sent(&bed, stack, &mut far, 60))
    };
    let all = Ipv4Addr::UNSPECIFIED;
    assert_eq!(reports(&mut stack, Some(all)), [], "no group");
    let (first, second) = (member(&near), member(&near));
    first.join(GROUP.into()).unwrap();
    assert_eq!(reports(&mut stack, None), [(REPORT, GROUP, OWN)]);
    second.join(GROUP.into()).unwrap();
    assert_eq!(reports(&mut stack, None), [], "the port is in the group");
    second.join(OTHER.into()).unwrap();
    assert_eq!(reports(&mut stack, None), [(REPORT, OTHER, OWN)]);
    let both = [(REPORT, GROUP, OWN), (REPORT, OTHER, OWN)];
    assert_eq!(reports(&mut stack, Some(all)), both);
    assert_eq!(reports(&mut stack, Some(OTHER)), both[1..]);
    let foreign = Ipv4Addr::new(239, 9, 9, 9);
    assert_eq!(reports(&mut stack, Some(foreign)), []);
    first.leave(GROUP.into()).unwrap();
    assert_eq!(reports(&mut stack, None), [], "the other is in the group");
    drop(second);
    let mut left = reports(&mut stack, None);
    left.sort_unstable();
    assert_eq!(left, [(LEAVES, GROUP, OWN), (LEAVES, OTHER, OWN)]);
    assert_eq!(reports(&mut stack, Some(all)), []);
    drop((first, stack));
    bed.finish([near, far.into_device()]);
}

#[test]
fn groups_of_queue_pairs_are_reported_when_they_change_and_when_a_router_asks() {
    joins_are_reported(|bed| bed.stack(0, &config(&["192.0.2.1/24"])));
}

#[test]
fn a_stack_beside_other_queues_hears_the_queries_of_routers() {
    let mut kept = Vec::new();
    joins_are_reported(|bed| {
        let own = config(&["192.0.2.1/24"]);
        let (device, stack, others) = bed.stack_beside(0, &own, (4, 2));
        kept.push(others);
        (device, stack)
    });
}

/// The group of all systems, and the rules that bring queries to the stack's queue.
#[test]
fn the_filters_for_queries_go_with_the_last_group_and_all_if_one_is_refused() {
    let bed = Bed::new();
    let (near, mut stack, others) = bed.stack_beside(0, &config(&["192.0.2.1/24"]), (2, 1));
    let far = Raw::new(&bed, 1, &settings());
    let port = stack.port().clone();
    stack.report_groups_of(near.multicast_groups().unwrap());
    let mut filters = || {
        stack.poll(bed.world.clock().now());
        (bed.switch_rules(), port.rules().len())
    };
    let member = member(&near);
    let without = filters();
    member.join(GROUP.into()).unwrap();
    let with_one = filters();
    // That of the group itself is the device's.
    assert_eq!(with_one, (without.0 + 2, without.1 + 2));
    member.join(OTHER.into()).unwrap();
    assert_eq!(filters(), (with_one.0 + 1, with_one.1 + 1));
    member.leave(GROUP.into()).unwrap();
    assert_eq!(filters(), with_one);
    member.leave(OTHER.into()).unwrap();
    assert_eq!(filters(), without);

    // The rules are there when the group of all systems is refused.
    member.join(GROUP.into()).unwrap();
    let refusal = Fault::AdminCommandFails {
        opcode: Opcode::AddSwitchRules.code(),
        code: 5,
    };
    bed.world.with(|world| world.inject(0, refusal));
    assert_eq!(filters(), (without.0 + 1, without.1));
    bed.world.with(|world| world.clear_faults(0));
    member.leave(GROUP.into()).unwrap();
    assert_eq!(filters(), without);
    drop((member, stack, others, port));
    bed.finish([near, far.into_device()]);
}

/// A switch forgets a group of which it hears nothing for some minutes.
#[test]
fn groups_that_no_router_asks_for_are_reported_each_minute() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut far = Raw::new(&bed, 1, &promiscuous());
    stack.report_groups_of(near.multicast_groups().unwrap());
    let member = member(&near);
    let narrow: IpAddr = "ff05::1:3".parse().unwrap();
    member.join_on(GROUP.into(), None).unwrap();
    member.join_on(narrow, Some(5)).unwrap();
    let mut heard = |stack: &mut Stack, seconds| {
        let mut frames = Vec::new();
        for _ in 0..seconds {
            bed.world.clock().pause(Duration::from_secs(1));
            frames.extend(sent(&bed, stack, &mut far, 2));
        }
        // Of listener discovery on VLAN 5: options of each hop, message 143.
        let is_report = |frame: &&Vec<u8>| {
            let start = &tagged(vec![0; 12], 5)[12..];
            &frame[12..16] == start && frame[24] == 0 && frame[66] == 143
        };
        let groups = frames.iter().filter(is_report).map(|frame| &frame[78..94]);
        let is_ours = |group: &&[u8]| IpAddr::from(<[u8; 16]>::try_from(*group).unwrap()) == narrow;
        (messages(&frames).len(), groups.filter(is_ours).count())
    };
    assert_eq!(heard(&mut stack, 5), (2, 2));
    assert_eq!(heard(&mut stack, 50), (0, 0));
    assert_eq!(heard(&mut stack, 10), (1, 1));
    assert_eq!(heard(&mut stack, 60), (1, 1));
    drop((member, stack));
    bed.finish([near, far.into_device()]);
}
