//! Datagrams, address handles and multicast groups.

use super::rig::{BASE, Cq, DOMAIN, QUANTA, Qp, Rig};
use crate::chip::FunctionSettings;
use crate::packet::{Extension, MacAddress, Network, UdpChecksum};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_spec::verbs::send::{DatagramDestination, DatagramHeader, ImmediateWord};
use ringside_spec::verbs::{Fragment, QueueSide, SendOpcode};

const QUEUE_KEY: u32 = 0x0123_4567;
const OWN_KEY: u32 = 0x8001_0000;
const HANDLE: u32 = 6;
const ROUTE_HEADER: usize = 40;
const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5E, 0x01, 0x02, 0x03];
const GROUP_IP: u128 = 0xEF01_0203;
const GROUP_QP: u32 = 0xFF_FFFF;

/// Queue pair 5 of each side, ready, with an address handle that leads to the other side.
struct Scene {
    rig: Rig,
    qps: Vec<Qp>,
    cqs: Vec<Cq>,
    from: u64,
    to: u64,
    local: u32,
    buffers: u32,
}

fn handle(side: usize) -> CreateAddressHandle {
    CreateAddressHandle {
        source_mac: FunctionSettings::numbered(side as u16).mac,
        traffic_class: 0x20,
        protection_domain: DOMAIN,
        flow_label: 0x5_4321,
        hop_limit: 7,
        arp_index: 3,
        ah_number: HANDLE,
        ipv4: true,
        destination_ip: 0x0A00_0002 - side as u128,
        source_ip: 0x0A00_0001 + side as u128,
        ..CreateAddressHandle::ZERO
    }
}

impl Scene {
    fn new() -> Self {
        Self::with(handle(0))
    }

    /// The first side's address handle is `handle`.
    fn with(handle: CreateAddressHandle) -> Self {
        let mut rig = Rig::new();
        let cqs: Vec<_> = (0..2).map(|side| rig.cq(side, 3, 16)).collect();
        let qps = (0..2)
            .map(|side| datagram_qp(&mut rig, side, 5, &cqs[side]))
            .collect();
        for side in 0..2 {
            arp(
                &mut rig,
                side,
                3,
                FunctionSettings::numbered(1 - side as u16).mac,
            );
        }
        rig.done(0, handle);
        let (from, to) = (rig.data(0, 8192), rig.data(1, 8192));
        let (local, buffers) = (rig.region(0, 1, from, 8192), rig.region(1, 2, to, 8192));
        Self {
            rig,
            qps,
            cqs,
            from,
            to,
            local,
            buffers,
        }
    }

    fn offer(&mut self, offset: u64, length_bytes: u32) {
        let piece = Fragment {
            address: BASE + self.to + offset,
            length_bytes,
            steering_tag: self.buffers,
        };
        self.rig.post_receive(1, &mut self.qps[1], piece);
    }

    fn source(&self, length_bytes: u32) -> Fragment {
        Fragment {
            address: BASE + self.from,
            length_bytes,
            steering_tag: self.local,
        }
    }

    /// Posts one datagram of one fragment.
    fn send(&mut self, to: u32, queue_key: u32, length_bytes: u32, immediate: Option<u32>) -> u32 {
        let polarity = Rig::polarity(self.qps[0].head);
        let [address, key] = self.source(length_bytes).encode(polarity);
        let destination = DatagramDestination::ZERO
            .with_queue_key(queue_key.into())
            .with_queue_pair(to.into());
        let header = DatagramHeader::ZERO
            .with_opcode(SendOpcode::Send.code().into())
            .with_address_handle(HANDLE.into())
            .with_signalled(true)
            .with_valid(polarity);
        let mut words = vec![address, key, destination.0, header.0];
        if let Some(value) = immediate {
            let [pad_address, pad_key] = Fragment::default().encode(polarity);
            words = vec![
                ImmediateWord::ZERO.with_immediate(value.into()).0,
                u64::MAX,
                destination.0,
                header.with_immediate(true).with_further_fragments(2).0,
                address,
                key,
                pad_address,
                pad_key,
            ];
        }
        self.rig.post(0, &mut self.qps[0], &words)
    }

    fn go(&mut self) {
        self.rig.ring(0, &self.qps[0]);
        self.rig.run();
    }

    fn sent(&mut self) -> bool {
        let polled = self.rig.poll(0, &mut self.cqs[0]);
        polled.is_some_and(|(element, _)| element.side == QueueSide::Send && !element.error)
    }

    fn nothing_received(&mut self) -> bool {
        self.rig.poll(1, &mut self.cqs[1]).is_none() && self.rig.event(1).is_none()
    }
}

fn arp(rig: &mut Rig, side: usize, arp_index: u16, mac_address: [u8; 6]) {
    rig.done(
        side,
        ManageArp {
            mac_address,
            arp_index,
            entry_valid: true,
            permanent: true,
            ..ManageArp::ZERO
        },
    );
}

fn datagram_qp(rig: &mut Rig, side: usize, number: u32, cq: &Cq) -> Qp {
    let (qp, command) = rig.describe_qp(side, number, cq.number);
    let context = RoceQueuePairContext::decode(&rig.get(side, qp.context_at));
    let context = RoceQueuePairContext {
        q_key: QUEUE_KEY,
        destination_qp: 0,
        ipv4: false,
        local_ip: 0,
        destination_ip: 0,
        ttl: 0,
        source_port: 0xC000,
        arp_index: 0,
        remote_endpoint_index: 0,
        ..context
    };
    rig.put(side, qp.context_at, &context.encode());
    let qp_type = QueuePairType::RoceUnreliableDatagram;
    rig.done(side, CreateQueuePair { qp_type, ..command });
    for state in [
        QueuePairState::Idle,
        QueuePairState::ReadyToReceive,
        QueuePairState::ReadyToSend,
    ] {
        let command = ModifyQueuePair {
            qp_type,
            ..rig.modify(&qp, state)
        };
        rig.done(side, command);
    }
    qp
}

fn group(rig: &mut Rig, side: usize, members: &[u32]) -> CreateMulticastGroup {
    let mut list = [0; MULTICAST_GROUP_MEMBERS];
    for (word, member) in list.iter_mut().zip(members) {
        let member = MulticastMember {
            qp_number: *member,
            valid: true,
            ..MulticastMember::ZERO
        };
        *word = member.encode()[0];
    }
    let at = rig.ring_memory(side, 64);
    rig.put(side, at, &list);
    CreateMulticastGroup {
        group_mac: GROUP_MAC,
        member_list_address: BASE + at,
        group_index: 9,
        ipv4: true,
        group_ip: GROUP_IP,
        queue_set_handle: Rig::QUEUE_SET,
        ..CreateMulticastGroup::ZERO
    }
}

/// An address handle to the group.
fn to_group(loopback: bool) -> CreateAddressHandle {
    CreateAddressHandle {
        arp_index: 4,
        destination_ip: GROUP_IP,
        loopback,
        ..handle(0)
    }
}

#[test]
fn a_datagram_arrives_behind_its_route_header_and_names_its_sender() {
    let mut scene = Scene::new();
    let bytes: Vec<u8> = (0..1024).map(|index| (index * 7) as u8).collect();
    scene.rig.fill(0, scene.from, &bytes);
    for (length, immediate) in [
        (0u32, None),
        (1, Some(0xAABB_CCDD)),
        (128, None),
        (129, None),
        (1024, Some(3)),
    ] {
        scene.rig.fill(1, scene.to, &[0xEE; 2048]);
        scene.offer(0, 2048);
        scene.send(5, QUEUE_KEY, length, immediate);
        scene.go();
        assert!(scene.sent());
        let (element, extension) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
        let extension = extension.expect("where it came from");
        assert_eq!((element.side, element.error), (QueueSide::Receive, false));
        assert_eq!(
            element.payload_bytes as usize,
            ROUTE_HEADER + length as usize
        );
        assert_eq!(element.invalidated_or_source, 5);
        assert!(element.invalidated_or_ipv4);
        assert_eq!((extension.immediate, extension.vlan_tag), (immediate, None));
        let [a, b, c, d, e, f] = FunctionSettings::numbered(0).mac;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        assert_eq!(extension.source_mac, Some(mac));
        let whole = scene.rig.bytes(1, scene.to, 2048);
        let (route, rest) = whole.split_at(ROUTE_HEADER);
        assert_eq!(route[..20], [0; 20]);
        assert_eq!(
            route[20..22],
            [0x45, 0x20],
            "version, length, traffic class"
        );
        assert_eq!(route[28..30], [7, 17], "hop limit, UDP");
        assert_eq!(route[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        let udp = u16::from_be_bytes([route[22], route[23]]) as usize - 20;
        let immediate_bytes = if immediate.is_some() { 4 } else { 0 };
        let padded = (length as usize).next_multiple_of(4);
        assert_eq!(udp, 8 + 12 + 8 + immediate_bytes + padded + 4);
        assert_eq!(rest[..length as usize], bytes[..length as usize]);
        assert!(rest[length as usize..].iter().all(|byte| *byte == 0xEE));
    }
    scene.rig.assert_no_breach();
}

#[test]
fn an_ipv6_datagram_with_a_tag_keeps_both() {
    let mut scene = Scene::with(CreateAddressHandle {
        ipv4: false,
        source_ip: 0xFE80 << 112 | 1,
        destination_ip: 0xFE80 << 112 | 2,
        insert_vlan: true,
        vlan_tag: 0x6007,
        ..handle(0)
    });
    scene.offer(0, 512);
    scene.send(5, QUEUE_KEY, 10, None);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.with(0, |engine, context| engine.step(context));
    let frame = scene
        .rig
        .with(0, |engine, context| engine.next_frame(context));
    let mut frame = frame.expect("the datagram");
    let checksum = frame.packet.path.udp_checksum;
    assert_eq!(checksum, UdpChecksum::Absent, "as soft-RoCE sends it");
    // Of the queue pair; the flow label is that of the handle.
    assert_eq!(frame.packet.path.source_port, 0xC000);
    if let crate::frame::Payload::Memory { source, .. } = &mut frame.payload {
        *source = 0;
    }
    scene.rig.deliver(1, &frame);
    let (element, extension) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
    assert!(!element.invalidated_or_ipv4);
    assert_eq!(extension.and_then(|found| found.vlan_tag), Some(0x6007));
    let route = scene.rig.bytes(1, scene.to, ROUTE_HEADER);
    assert_eq!(
        route[..4],
        [0x62, 0x05, 0x43, 0x21],
        "version, class, label"
    );
    assert_eq!((route[8], route[23], route[39]), (0xFE, 1, 2));
    scene.rig.assert_no_breach();
}

#[test]
fn a_datagram_that_cannot_be_taken_is_dropped_without_a_word() {
    let mut scene = Scene::new();
    // no receive request; a wrong key; no such peer; a connection's number
    scene.send(5, QUEUE_KEY, 8, None);
    scene.go();
    scene.offer(0, 47);
    scene.send(5, QUEUE_KEY ^ 1, 8, None);
    scene.send(6, QUEUE_KEY, 8, None);
    scene.send(5000, QUEUE_KEY, 8, None);
    scene.go();
    assert!((0..4).all(|_| scene.sent()), "all left");
    assert!(scene.nothing_received());
    // one byte too long for the buffer; then one that fits the same buffer
    scene.send(5, QUEUE_KEY, 8, None);
    scene.go();
    assert!(scene.nothing_received());
    scene.send(5, QUEUE_KEY, 7, None);
    scene.go();
    let (element, _) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
    assert_eq!((element.payload_bytes, element.element_index), (47, 0));
    let counted = statistics(&mut scene.rig, 1);
    assert_eq!(
        (
            counted("IP4RXDISCARD"),
            counted("IP4RXPKTS"),
            counted("RDMARXSNDS")
        ),
        (5, 6, 1)
    );
    scene.rig.assert_no_breach();
}

#[test]
fn a_key_with_its_top_bit_set_stands_for_the_senders_own() {
    let mut scene = Scene::new();
    scene.offer(0, 100);
    scene.send(5, OWN_KEY, 4, None);
    scene.go();
    assert!(scene.rig.poll(1, &mut scene.cqs[1]).is_some());
    scene.rig.assert_no_breach();
}

/// Checks that a send that cannot be carried out raises the event `code`, and that the flush
/// names it.
fn fails_with(mut scene: Scene, length_bytes: u32, code: AeCode) {
    scene.offer(0, 8192);
    let bad = scene.send(5, QUEUE_KEY, length_bytes, None);
    scene.send(5, QUEUE_KEY, 4, None);
    scene.go();
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_none());
    let event = scene.rig.event(0).expect("an event");
    assert_eq!((event.ae_code, event.source), (code, AeSource::SendQueue));
    assert_eq!(u32::from(event.wqe_index), bad);
    let qp_type = QueuePairType::RoceUnreliableDatagram;
    let command = ModifyQueuePair {
        qp_type,
        ..scene.rig.modify(&scene.qps[0], QueuePairState::Error)
    };
    scene.rig.done(0, command);
    let completion = scene.rig.done(
        0,
        FlushWorkQueues {
            sq_minor_code: 4,
            sq_major_code: 1,
            qp_number: 5,
            use_given_codes: true,
            flush_sq: true,
            ..FlushWorkQueues::ZERO
        },
    );
    let result = FlushResult::from_minor_code(completion.minor_code);
    assert_eq!(result, FlushResult::SendQueue);
    let (flushed, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("flushed");
    assert_eq!((flushed.error, flushed.minor), (true, 4));
    assert_eq!(u32::from(flushed.element_index), bad);
    assert!(scene.nothing_received());
    scene.rig.assert_no_breach();
}

#[test]
fn a_send_through_a_bad_handle_or_of_too_many_bytes_has_its_event() {
    let other_domain = CreateAddressHandle {
        protection_domain: DOMAIN + 1,
        ..handle(0)
    };
    let code = AeCode::DatagramBadProtectionDomain;
    fails_with(Scene::with(other_domain), 4, code);
    let another = CreateAddressHandle {
        ah_number: HANDLE + 1,
        ..handle(0)
    };
    fails_with(Scene::with(another), 4, AeCode::InvalidAddressHandle);
    fails_with(Scene::new(), 1025, AeCode::DatagramTooLong);
}

/// Linux deletes the ARP entry of a neighbour that does not answer, and its connection manager
/// sends to it again on queue pair 1.
#[test]
fn a_datagram_without_arp_entry_is_complete_and_lost_and_its_queue_pair_goes_on() {
    let mut scene = Scene::new();
    let delete = ManageArp {
        arp_index: 3,
        ..ManageArp::ZERO
    };
    scene.rig.done(0, delete);
    scene.offer(0, 8192);
    for _ in 0..2 {
        let lost = scene.send(5, QUEUE_KEY, 4, None);
        scene.go();
        let (done, _) = scene.rig.poll(0, &mut scene.cqs[0]).expect("complete");
        assert!(!done.error);
        assert_eq!(u32::from(done.element_index), lost);
    }
    assert!(scene.rig.event(0).is_none());
    assert!(scene.nothing_received());
    let counters = &scene.rig.sides[0].engine.objects.counters;
    assert_eq!(counters.ipv4_no_route, 2);
    arp(&mut scene.rig, 0, 3, FunctionSettings::numbered(1).mac);
    scene.send(5, QUEUE_KEY, 4, None);
    scene.go();
    assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_some());
    assert!(scene.rig.poll(1, &mut scene.cqs[1]).is_some());
    scene.rig.assert_no_breach();
}

#[test]
fn a_changed_handle_leads_elsewhere_and_a_destroyed_one_nowhere() {
    let mut scene = Scene::new();
    let elsewhere = [2, 0, 0, 0, 0, 0x77];
    arp(&mut scene.rig, 0, 8, elsewhere);
    let change = ModifyAddressHandle {
        arp_index: 8,
        hop_limit: 3,
        ah_number: HANDLE,
        ipv4: true,
        protection_domain: DOMAIN,
        ..ModifyAddressHandle::ZERO
    };
    scene.rig.done(0, change);
    scene.send(5, QUEUE_KEY, 4, None);
    scene.rig.ring(0, &scene.qps[0]);
    scene.rig.with(0, |engine, context| engine.step(context));
    let frame = scene
        .rig
        .with(0, |engine, context| engine.next_frame(context));
    let frame = frame.expect("a datagram");
    assert_eq!(frame.packet.path.destination, MacAddress(elsewhere));
    assert!(matches!(frame.packet.path.network, Network::V4(ip) if ip.time_to_live == 3));
    assert!(matches!(
        frame.packet.transport.extension,
        Extension::Datagram(_)
    ));
    assert_eq!(
        scene.rig.sides[0].engine.snapshot().address_handles,
        [HANDLE]
    );
    let destroy = DestroyAddressHandle {
        ah_number: HANDLE,
        ..DestroyAddressHandle::ZERO
    };
    scene.rig.done(0, destroy);
    assert!(
        scene.rig.sides[0]
            .engine
            .snapshot()
            .address_handles
            .is_empty()
    );
    scene.rig.assert_no_breach();
    assert!(scene.rig.command(0, destroy).error);
    assert!(scene.rig.command(0, change).error);
    let kind = "a command for an object that does not exist";
    assert_eq!(scene.rig.kinds(0), [kind]);
}

#[test]
fn a_ring_of_datagrams_wraps_in_order() {
    let mut scene = Scene::new();
    for round in 0..3 * QUANTA {
        scene.rig.fill(0, scene.from, &round.to_le_bytes());
        scene.offer(0, 100);
        scene.send(5, QUEUE_KEY, 4, None);
        scene.go();
        assert!(scene.sent(), "round {round}");
        assert!(
            scene.rig.poll(1, &mut scene.cqs[1]).is_some(),
            "round {round}"
        );
        let bytes = scene.rig.bytes(1, scene.to + ROUTE_HEADER as u64, 4);
        assert_eq!(bytes, round.to_le_bytes());
    }
    scene.rig.assert_no_breach();
}

#[test]
fn a_group_hears_its_datagrams_and_each_member_once() {
    let mut scene = Scene::with(to_group(false));
    arp(&mut scene.rig, 0, 4, GROUP_MAC);
    let mut other = datagram_qp(&mut scene.rig, 1, 7, &scene.cqs[1]);
    let command = group(&mut scene.rig, 1, &[5, 7]);
    scene.rig.done(1, command);
    assert_eq!(scene.rig.sides[1].engine.snapshot().multicast_groups, [9]);
    scene.offer(0, 200);
    let piece = Fragment {
        address: BASE + scene.to + 1000,
        length_bytes: 200,
        steering_tag: scene.buffers,
    };
    scene.rig.post_receive(1, &mut other, piece);
    scene.rig.fill(0, scene.from, b"to all");
    scene.send(GROUP_QP, QUEUE_KEY, 6, None);
    scene.go();
    for (qp, at) in [(5, 0), (7, 1000)] {
        let (element, _) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
        assert_eq!((element.queue_pair, element.payload_bytes), (qp, 46));
        let bytes = scene.rig.bytes(1, scene.to + at + 40, 6);
        assert_eq!(bytes, b"to all");
    }
    // One leaves; then the group goes.
    let change = group(&mut scene.rig, 1, &[7]);
    let change = ModifyMulticastGroup {
        group_mac: change.group_mac,
        member_list_address: change.member_list_address,
        group_index: change.group_index,
        ipv4: true,
        group_ip: change.group_ip,
        queue_set_handle: change.queue_set_handle,
        ..ModifyMulticastGroup::ZERO
    };
    scene.rig.done(1, change);
    scene.offer(0, 200);
    scene.rig.post_receive(1, &mut other, piece);
    scene.send(GROUP_QP, QUEUE_KEY, 6, None);
    scene.go();
    let (element, _) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
    assert_eq!(element.queue_pair, 7);
    assert!(scene.nothing_received());
    let destroy = DestroyMulticastGroup {
        group_index: 9,
        ..DestroyMulticastGroup::ZERO
    };
    scene.rig.done(1, destroy);
    scene.send(GROUP_QP, QUEUE_KEY, 6, None);
    scene.go();
    assert!(scene.nothing_received());
    let (sent, received) = (statistics(&mut scene.rig, 0), statistics(&mut scene.rig, 1));
    assert_eq!((sent("IP4TXMCPKTS"), received("IP4RXMCPKTS")), (3, 3));
    assert_eq!(sent("IP4TXMCOCTS"), received("IP4RXMCOCTS"));
    scene.rig.assert_no_breach();
    assert!(scene.rig.command(1, destroy).error);
}

#[test]
fn the_sender_of_a_datagram_to_a_group_hears_it_if_its_handle_says_so() {
    for loopback in [false, true] {
        let mut scene = Scene::with(to_group(loopback));
        arp(&mut scene.rig, 0, 4, GROUP_MAC);
        let command = group(&mut scene.rig, 0, &[5]);
        scene.rig.done(0, command);
        let piece = Fragment {
            address: BASE + scene.from + 4096,
            length_bytes: 4096,
            steering_tag: scene.local,
        };
        scene.rig.post_receive(0, &mut scene.qps[0], piece);
        scene.send(GROUP_QP, QUEUE_KEY, 500, None);
        scene.go();
        assert!(scene.sent());
        let heard = scene.rig.poll(0, &mut scene.cqs[0]);
        let heard = heard.map(|(element, _)| (element.side, element.payload_bytes));
        assert_eq!(heard, loopback.then_some((QueueSide::Receive, 540)));
        scene.rig.assert_no_breach();
    }
}

#[test]
fn a_group_of_another_vlan_or_address_hears_nothing() {
    for change in 0..3 {
        let mut scene = Scene::with(to_group(false));
        arp(&mut scene.rig, 0, 4, GROUP_MAC);
        let mut command = group(&mut scene.rig, 1, &[5]);
        match change {
            0 => command.group_mac[5] ^= 1,
            1 => command.group_ip ^= 1,
            _ => (command.vlan_valid, command.vlan_id) = (true, 5),
        }
        scene.rig.done(1, command);
        scene.offer(0, 200);
        scene.send(GROUP_QP, QUEUE_KEY, 6, None);
        scene.go();
        assert!(scene.sent());
        assert!(scene.nothing_received(), "change {change}");
        scene.rig.assert_no_breach();
    }
}

/// Reads the statistics of a side by name.
fn statistics(rig: &mut Rig, side: usize) -> impl Fn(&str) -> u64 + use<> {
    use ringside_spec::rdma::statistics::{BUFFER_WORDS, Counter};
    let at = rig.ring_memory(side, 1024);
    rig.done(
        side,
        GatherStatistics {
            buffer_address: BASE + at,
            ..GatherStatistics::ZERO
        },
    );
    let words: [u64; BUFFER_WORDS] = rig.get(side, at);
    move |name| {
        Counter::named(name)
            .expect("a counter of this name")
            .read(&words)
    }
}

#[test]
fn multicast_groups_are_as_many_as_were_committed() {
    let mut rig = Rig::new();
    let last = CreateMulticastGroup {
        group_index: 63,
        ..group(&mut rig, 0, &[])
    };
    rig.done(0, last);
    let beyond = CreateMulticastGroup {
        group_index: 64,
        ..last
    };
    assert!(rig.command(0, beyond).error);
    let breach = "an object beyond those that were committed: multicast group 64";
    assert_eq!(rig.breaches(0), [breach]);
}
