use super::held::MAX_HELD;
use super::{
    Accept, Action, Connect, ConnectionId, EventKind, Identity, LISTENER_WAIT, ListenError,
    Manager, Refused, RequestError, Resolve, ServiceAnswer, ServiceKind, StateName,
};
use crate::ListenAt;
use crate::address::{Gid, PortSpace, ServiceId};
use crate::gsi::{self, Arrived, Discard};
use crate::mad::{Mad, Message};
use crate::message::{
    ConnectionReply, DisconnectReply, DisconnectRequest, LoadAlternatePath, MessageReceipt,
    ReadyToUse, Rejection, ServiceReply,
};
use crate::reason::{Reason, ServiceStatus};
use std::net::IpAddr;
use std::time::Duration;

mod agreed;
mod exchange;
mod refused;
mod state_table;
mod vlans;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const TCP: ServiceId = ServiceId::of(PortSpace::Tcp, 7471);
const UDP: ServiceId = ServiceId::of(PortSpace::Udp, 7174);
const OWN_QP: u32 = 77;
const PEER_QP: u32 = 99;
const PEER_GUID: u64 = 0xBBBB;
const START: Duration = Duration::from_secs(1);

fn manager(own: IpAddr, guid: u64) -> Manager {
    let mut manager = Manager::new(Identity::of(guid, guid ^ 0x5EED));
    manager.add_address(own, None);
    manager
}

fn connect_to(local: IpAddr, remote: IpAddr, queue_pair: u32) -> Connect {
    Connect {
        local,
        vlan: None,
        remote,
        service: TCP,
        source_port: 40_000,
        queue_pair,
        shared_receive_queue: false,
        responder_resources: 8,
        initiator_depth: 4,
        flow_control: true,
        retry_count: 5,
        rnr_retry_count: 3,
        path_mtu: 3,
        traffic_class: 0,
        ack_timeout: None,
        private_data: b"hello".to_vec(),
    }
}

fn accept_with(queue_pair: u32) -> Accept {
    Accept {
        queue_pair,
        shared_receive_queue: false,
        responder_resources: 4,
        initiator_depth: 8,
        flow_control: true,
        rnr_retry_count: 7,
        private_data: b"welcome".to_vec(),
    }
}

/// Takes the MADs and events of a manager since the last call.
fn actions(manager: &mut Manager) -> (Vec<Mad>, Vec<(ConnectionId, EventKind)>) {
    let (mut sent, mut told) = (Vec::new(), Vec::new());
    while let Some(action) = manager.next_action() {
        match action {
            Action::Send(mad) => sent.push(Mad::decode(&*mad.payload).expect("own MAD")),
            Action::Event(event) => told.push((event.id, event.kind)),
        }
    }
    (sent, told)
}

fn give(manager: &mut Manager, now: Duration, from: IpAddr, to: IpAddr, mad: &Mad) {
    let payload = mad.encode();
    let arrived = arrived(from, to, &payload);
    manager.receive(now, &arrived).expect("a MAD for this node");
}

fn arrived(from: IpAddr, to: IpAddr, payload: &[u8]) -> Arrived<'_> {
    Arrived {
        source: from.into(),
        destination: to.into(),
        vlan: None,
        traffic_class: 0,
        partition_key: gsi::PARTITION_KEY,
        destination_qp: gsi::QUEUE_PAIR,
        queue_key: gsi::QUEUE_KEY,
        payload,
    }
}

const fn mad(message: Message) -> Mad {
    Mad {
        transaction_id: 5,
        attribute_modifier: 0,
        message,
    }
}

const fn event_name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Request { .. } => "Request",
        EventKind::Reply { .. } => "Reply",
        EventKind::Established => "Established",
        EventKind::Rejected { .. } => "Rejected",
        EventKind::Unreachable => "Unreachable",
        EventKind::Disconnected { by_peer: true } => "Disconnected",
        EventKind::Disconnected { by_peer: false } => "Disconnected without answer",
        EventKind::DeviceFailed => "DeviceFailed",
        EventKind::TimeWaitOver => "TimeWaitOver",
        EventKind::ServiceRequest { .. } => "ServiceRequest",
        EventKind::ServiceReply { .. } => "ServiceReply",
    }
}

#[test]
fn listening_twice_or_on_an_address_of_another_node_is_refused() {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("first");
    assert_eq!(
        one.listen(TCP, Some(OWN), 4),
        Err(ListenError::InUse { service: TCP })
    );
    let other = ServiceId::of(PortSpace::Tcp, 7472);
    let address = PEER;
    assert_eq!(
        one.listen(other, Some(PEER), 4),
        Err(ListenError::AddressNotLocal { address })
    );
    let beside = ServiceId::of(PortSpace::IpOverInfiniBand, 7471);
    assert_eq!(one.listen(beside, None, 4), Err(ListenError::NotOnRoce));
    one.listen(UDP, None, 4).expect("another port space");
}

#[test]
fn listeners_of_one_service_have_addresses_apart() {
    let every = [
        ListenAt::Any,
        ListenAt::AnyIpv4,
        ListenAt::AnyIpv6,
        ListenAt::Address(OWN),
    ];
    // One row for each first listener: may the second one be beside it?
    let beside = [
        [false, false, false, false],
        [false, false, true, false],
        [false, true, false, true],
        [false, false, true, false],
    ];
    assert!(OWN.is_ipv4());
    for (first, row) in every.into_iter().zip(beside) {
        for (second, fits) in every.into_iter().zip(row) {
            let mut one = manager(OWN, 1);
            one.listen(TCP, first, 4).expect("first");
            let made = one.listen(TCP, second, 4);
            assert_eq!(made.is_ok(), fits, "{first:?}, then {second:?}: {made:?}");
        }
    }
    assert!(ListenAt::AnyIpv4.contains(OWN) && !ListenAt::AnyIpv6.contains(OWN));
}

#[test]
fn private_data_that_does_not_fit_is_refused_and_nothing_is_sent() {
    let mut one = manager(OWN, 1);
    let mut connect = connect_to(OWN, PEER, OWN_QP);
    connect.private_data = vec![1; 57];
    let refused = one.connect(START, &connect);
    let (length_bytes, maximum_bytes) = (57, 56);
    assert_eq!(
        refused,
        Err(RequestError::TooLong {
            length_bytes,
            maximum_bytes
        })
    );
    assert!(one.next_action().is_none());
    assert_eq!(one.connections(), 0);
    connect.private_data = vec![1; 56];
    one.connect(START, &connect).expect("56 bytes");
}

#[test]
fn queue_pair_1_takes_only_its_partition_its_key_and_full_mads() {
    let mut one = manager(OWN, 1);
    let payload = mad(Message::DisconnectReply(DisconnectReply {
        local_comm_id: 1,
        remote_comm_id: 2,
        private_data: [0; 224],
    }))
    .encode();
    let good = arrived(PEER, OWN, &payload);
    one.receive(START, &good).expect("good");
    let limited = Arrived {
        partition_key: 0x7FFF,
        ..good
    };
    one.receive(START, &limited).expect("limited member");
    let foreign = Arrived {
        partition_key: 0x1234,
        ..good
    };
    assert_eq!(
        one.receive(START, &foreign),
        Err(Discard::PartitionKey(0x1234))
    );
    let unkeyed = Arrived {
        queue_key: 1,
        ..good
    };
    assert_eq!(one.receive(START, &unkeyed), Err(Discard::QueueKey(1)));
    let elsewhere = Arrived {
        destination_qp: 2,
        ..good
    };
    assert_eq!(one.receive(START, &elsewhere), Err(Discard::QueuePair(2)));
    let foreign = Arrived {
        destination: PEER.into(),
        ..good
    };
    assert_eq!(
        one.receive(START, &foreign),
        Err(Discard::Destination(PEER.into()))
    );
    let short = Arrived {
        payload: &payload[..100],
        ..good
    };
    assert!(matches!(one.receive(START, &short), Err(Discard::Mad(_))));
    for (byte, value) in [(0, 2), (1, 4), (2, 1), (3, 1), (17, 0x20)] {
        let mut bad = payload;
        bad[byte] = value;
        let bad = Arrived {
            payload: &bad,
            ..good
        };
        assert!(
            matches!(one.receive(START, &bad), Err(Discard::Mad(_))),
            "byte {byte}"
        );
    }
    assert!(one.next_action().is_none(), "nothing is answered");
}
