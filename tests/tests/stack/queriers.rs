//! Answers to queriers of multicast listener discovery and of VLANs, and the sources of reports.

use crate::bed::{Bed, Raw, config};
use crate::dhcp_server;
use crate::frames::{sent, tagged};
use crate::membership::{GROUP, LEAVES, OWN, REPORT, member, messages, promiscuous, query};
use ringside_config::Within;
use ringside_pmd::Device;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::rdma::address::link_local;
use ringside_pmd::rdma::{QueuePairConfig, RdmaError};
use ringside_stack::{Stack, StackThread};
use smoltcp::wire::Icmpv6Packet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const QUERIER: Ipv6Addr = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0x99);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
const NARROW: Ipv6Addr = Ipv6Addr::new(0xFF05, 0, 0, 0, 0, 0, 0, 0x77);

/// A query for all groups, of version 1 with 24 bytes and of version 2 with 28, from `source` with
/// this many hops. The answers are expected in 4 s.
fn general(bytes: usize, source: Ipv6Addr, hops: u8) -> Vec<u8> {
    let mut message = vec![0; bytes];
    message[0] = 130;
    message[4..6].copy_from_slice(&4000_u16.to_be_bytes());
    let mut packet = Icmpv6Packet::new_unchecked(&mut message[..]);
    packet.fill_checksum(&source, &ALL_NODES);
    let mut frame = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x99, 0x86, 0xDD];
    frame.extend([0x60, 0, 0, 0, 0, 8 + bytes as u8, 0, hops]);
    frame.extend(source.octets());
    frame.extend(ALL_NODES.octets());
    // A router alert in front of ICMPv6.
    frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    frame.extend(message);
    frame
}

/// Messages of listener discovery among these frames: type, type of the record if it has one,
/// source, group.
fn heard(frames: &[Vec<u8>]) -> Vec<(u8, u8, Ipv6Addr, Ipv6Addr)> {
    let address = |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap());
    let is_ours = |frame: &&Vec<u8>| frame[12..14] == [0x86, 0xDD] && frame[20] == 0;
    let messages = frames.iter().filter(is_ours).map(|frame| {
        let (record, group) = match frame[62] {
            143 => (frame[70], address(&frame[74..90])),
            _ => (0, address(&frame[70..86])),
        };
        (frame[62], record, address(&frame[22..38]), group)
    });
    messages.collect()
}

/// The frames of VLAN 5, without their tag.
fn of_vlan(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let ours = frames
        .into_iter()
        .filter(|frame| frame[12..16] == [0x81, 0, 0, 5]);
    ours.map(|frame| [&frame[..12], &frame[16..]].concat())
        .collect()
}

fn solicited(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | u16::from(a), low)
}

/// A stack, a member of groups on its device, and a station that hears all frames. What follows a
/// join is over.
struct Network {
    bed: Bed,
    near: Device,
    stack: Stack,
    far: Raw,
}

impl Network {
    fn new(own: &[&str]) -> Self {
        let bed = Bed::new();
        let far = Raw::new(&bed, 1, &promiscuous());
        let (near, mut stack) = bed.stack(0, &config(own));
        stack.report_groups_of(near.multicast_groups().unwrap());
        Self {
            bed,
            near,
            stack,
            far,
        }
    }

    /// The frames of this many seconds.
    fn seconds(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..count {
            self.bed.world.clock().pause(Duration::from_secs(1));
            frames.extend(sent(&self.bed, &mut self.stack, &mut self.far, 20));
        }
        frames
    }

    /// The answers to a query, in its time.
    fn answers(&mut self, query: &[u8]) -> Vec<Vec<u8>> {
        self.far.send(query);
        let mut frames = sent(&self.bed, &mut self.stack, &mut self.far, 20);
        frames.extend(self.seconds(3));
        frames
    }

    fn finish(self) {
        drop(self.stack);
        self.bed.finish([self.near, self.far.into_device()]);
    }
}

#[test]
fn queriers_of_each_version_are_answered_in_their_words_and_others_not_at_all() {
    let mut network = Network::new(&["2001:db8::1:7/64"]);
    let member = member(&network.near);
    member.join(NARROW.into()).unwrap();
    network.seconds(3);
    let own = link_local(network.stack.port().mac());
    let groups = [
        NARROW,
        solicited(own),
        solicited("2001:db8::1:7".parse().unwrap()),
    ];
    let all =
        |kind, record| -> BTreeSet<_> { groups.map(|group| (kind, record, own, group)).into() };
    let is = |frames: &[Vec<u8>], expected: BTreeSet<_>| {
        let heard = heard(frames);
        assert_eq!(heard.len(), expected.len(), "{heard:?}");
        assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
    };
    is(&network.answers(&general(28, QUERIER, 1)), all(143, 2));
    for (bytes, source, hops) in [
        (26, QUERIER, 1),
        (28, QUERIER, 2),
        (28, "2001:db8::9".parse().unwrap(), 1),
    ] {
        is(
            &network.answers(&general(bytes, source, hops)),
            BTreeSet::new(),
        );
    }
    is(&network.answers(&general(24, QUERIER, 1)), all(131, 0));
    member.leave(NARROW.into()).unwrap();
    is(&network.seconds(1), [(132, 0, own, NARROW)].into());
    drop(member);
    network.finish();
}

/// RFC 3810, section 5.2.13: routers discard reports without a link-local source.
#[test]
fn reports_on_a_vlan_come_from_a_link_local_address_that_is_answered_for() {
    let mut network = Network::new(&["2001:db8::1:7/64@5"]);
    let own = link_local(network.stack.port().mac());
    let member = member(&network.near);
    member.join_on(NARROW.into(), Some(5)).unwrap();
    let reports = heard(&of_vlan(network.seconds(1)));
    let joined: BTreeSet<_> = reports.iter().map(|one| one.3).collect();
    let wide = solicited("2001:db8::1:7".parse().unwrap());
    assert_eq!(joined, [NARROW, wide, solicited(own)].into());
    assert!(reports.iter().all(|one| one.2 == own), "{reports:?}");
    // A solicitation on the VLAN, without the option of its source.
    let to = solicited(own);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(own.octets());
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&QUERIER, &to);
    let [.., a, b, c] = own.octets();
    let mut frame = vec![0x33, 0x33, 0xFF, a, b, c, 2, 0, 0, 0, 0, 0x99, 0x86, 0xDD];
    frame.extend([0x60, 0, 0, 0, 0, 24, 58, 255]);
    frame.extend(QUERIER.octets());
    frame.extend(to.octets());
    frame.extend(message);
    network.far.send(&tagged(frame, 5));
    let frames = of_vlan(sent(&network.bed, &mut network.stack, &mut network.far, 50));
    let is_answer = |frame: &Vec<u8>| frame[20] == 58 && frame[54] == 136;
    assert!(frames.iter().any(is_answer), "{frames:x?}");
    let reached = network
        .stack
        .addresses()
        .iter()
        .any(|one| one.vlan == Some(5) && one.address == IpAddr::V6(own));
    assert!(!reached, "it is none for RDMA");
    drop(member);
    network.finish();
}

/// A router drops what comes from another network than its own.
#[test]
fn reports_come_from_the_lease_and_not_from_the_automatic_address() {
    let bed = Bed::new();
    let mut config = config(&["fd00::1/64"]);
    config.network.dhcp = true;
    let (near, mut stack) = bed.stack(0, &config);
    stack.report_groups_of(near.multicast_groups().unwrap());
    let mut server = Raw::new(&bed, 1, &promiscuous());
    dhcp_server::lease(&bed, &mut stack, &mut server);
    let leased = stack.leased().expect("a lease").address;
    let member = member(&near);
    member.join(GROUP.into()).unwrap();
    let reports = messages(&sent(&bed, &mut stack, &mut server, 60));
    let source = |octets: [u8; 4]| IpAddr::from(octets);
    let sources: Vec<_> = reports.into_iter().map(|one| source(one.2)).collect();
    assert_eq!(sources, [leased]);
    drop((member, stack));
    bed.finish([near, server.into_device()]);
}

#[test]
fn a_priority_in_the_tag_of_a_queue_pair_makes_no_other_group() {
    let mut network = Network::new(&["192.0.2.1/24@5"]);
    let domain = network.near.protection_domain().unwrap();
    let completions = network.near.completion_queue(16).unwrap();
    let made = |tag| {
        let config = QueuePairConfig::datagram(&completions).vlan_tag(tag);
        domain
            .datagram_queue_pair(config)
            .unwrap()
            .ready(7)
            .unwrap()
    };
    let (first, second) = (made(0xA005), made(5));
    first.join(GROUP.into()).unwrap();
    second.join(GROUP.into()).unwrap();
    let refused = first.join_on(GROUP.into(), Some(4095));
    assert!(
        matches!(refused, Err(RdmaError::OutOfRange { .. })),
        "{refused:?}"
    );
    let once = [(REPORT, GROUP, OWN)];
    let join = of_vlan(sent(&network.bed, &mut network.stack, &mut network.far, 60));
    assert_eq!(messages(&join), once);
    network.seconds(3);
    let asked = tagged(query([2, 0, 0, 0, 0, 0x99], Ipv4Addr::UNSPECIFIED), 0x6005);
    network.far.send(&asked);
    assert_eq!(messages(&of_vlan(network.seconds(8))), once);
    first.leave(GROUP.into()).unwrap();
    assert_eq!(
        messages(&of_vlan(network.seconds(1))),
        [],
        "the other is in it"
    );
    second.leave_on(GROUP.into(), Some(0x2005)).unwrap();
    let left = [(LEAVES, GROUP, OWN)];
    assert_eq!(messages(&of_vlan(network.seconds(1))), left);
    drop((first, second, completions, domain));
    network.finish();
}

#[test]
fn a_group_is_sent_to_on_the_vlan_of_the_first_address_of_its_version() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24@5", "10.9.0.1/24@9"]));
    let now = bed.world.clock().now();
    let mut way = |within| {
        let found = stack.lookup(GROUP.into(), within, now).unwrap().unwrap();
        (found.local_address, found.vlan_tag, found.hop_limit)
    };
    let own = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(way(Within::All), (own("192.0.2.1"), Some(5), 1));
    assert_eq!(way(Within::Vlan(Some(9))), (own("10.9.0.1"), Some(9), 1));
    assert_eq!(way(Within::Vlan(Some(7))), (None, None, 1));
    let narrow = stack
        .lookup(NARROW.into(), Within::All, now)
        .unwrap()
        .unwrap();
    let automatic = link_local(stack.port().mac());
    assert_eq!(
        (narrow.local_address, narrow.vlan_tag),
        (Some(automatic.into()), None)
    );
    drop(stack);
    bed.finish([near]);
}

/// A stack on a thread of its own, whose member has left one group and is in another one.
fn ends(
    end: impl FnOnce(StackThread, &Arc<dyn ringside_bus::Clock>),
) -> Vec<(u8, Ipv4Addr, [u8; 4])> {
    let bed = Bed::new();
    let mut far = Raw::new(
        &bed,
        1,
        &PortSettings {
            receive_descriptors: 512,
            ..promiscuous()
        },
    );
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let groups = near.multicast_groups().unwrap();
    stack.report_groups_of(groups);
    let member = member(&near);
    let other = Ipv4Addr::new(239, 1, 2, 4);
    member.join(GROUP.into()).unwrap();
    member.join(other.into()).unwrap();
    sent(&bed, &mut stack, &mut far, 60);
    member.leave(other.into()).unwrap();
    let clock: Arc<dyn ringside_bus::Clock> = bed.world.clock();
    let thread = StackThread::start(stack, Arc::clone(&clock)).unwrap();
    end(thread, &clock);
    let mut left = messages(&far.poll());
    left.retain(|one| one.0 == LEAVES);
    left.sort_unstable();
    left.dedup();
    drop(member);
    bed.finish([near, far.into_device()]);
    left
}

#[test]
fn a_stack_that_ends_has_left_its_groups() {
    let other = Ipv4Addr::new(239, 1, 2, 4);
    let all = [(LEAVES, GROUP, OWN), (LEAVES, other, OWN)];
    assert_eq!(ends(|thread, _| drop(thread)), all);
    let by_request = |thread: StackThread, clock: &Arc<dyn ringside_bus::Clock>| {
        thread.resolver().leave_groups(clock);
        // It reports nothing more.
        drop(thread.stop());
    };
    assert_eq!(ends(by_request), all);
}
