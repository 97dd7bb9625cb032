//! Values of messages and of queue pairs that both sides agree on.

use super::super::active::MAX_ACK_TIMEOUT;
use super::*;
use crate::message::{ConnectionRequest, ServiceRequest};
use crate::timing::of_code;

/// The peer's communication id.
pub(super) const PEER_ID: u32 = 0xA1;

/// A request of a peer, made by a manager of its own and given the fixed id.
pub(super) fn request() -> ConnectionRequest {
    let mut peer = manager(PEER, PEER_GUID);
    peer.connect(START, &connect_to(PEER, OWN, PEER_QP))
        .expect("connect");
    let (sent, _) = actions(&mut peer);
    let Message::Request(mut request) = sent[0].message else {
        panic!("a request");
    };
    request.local_comm_id = PEER_ID;
    request
}

/// A question of a peer, with this number.
pub(super) fn question(service: ServiceId, request_id: u32) -> ServiceRequest {
    let mut peer = manager(PEER, PEER_GUID);
    let resolve = Resolve {
        local: PEER,
        vlan: None,
        remote: OWN,
        service,
        source_port: 50_000,
        traffic_class: 0,
        private_data: Vec::new(),
    };
    peer.resolve(START, &resolve).expect("resolve");
    let (sent, _) = actions(&mut peer);
    let Message::ServiceRequest(mut request) = sent[0].message else {
        panic!("a question");
    };
    request.request_id = request_id;
    request
}

/// The peer's answer to a request.
pub(super) fn reply(own: ConnectionId) -> ConnectionReply {
    ConnectionReply {
        local_comm_id: PEER_ID,
        remote_comm_id: own.0,
        local_q_key: 0,
        local_qpn: PEER_QP,
        vendor_id_high: 0,
        local_ee_context: 0,
        vendor_id_middle: 0,
        starting_psn: 7,
        vendor_id_low: 0,
        responder_resources: 3,
        initiator_depth: 6,
        target_ack_delay: 0,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: 2,
        srq: false,
        local_ca_guid: PEER_GUID,
        private_data: [0; 196],
    }
}

/// A manager that listens on both services, and the request that it has read.
fn asked(asked: ConnectionRequest) -> (Manager, ConnectionId) {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    give(&mut one, START, PEER, OWN, &mad(Message::Request(asked)));
    let (_, told) = actions(&mut one);
    let [(id, EventKind::Request { .. })] = told[..] else {
        panic!("{told:?}");
    };
    (one, id)
}

#[test]
fn a_chosen_acknowledge_timeout_goes_to_the_peer_and_to_the_queue_pair() {
    let mut one = manager(OWN, 1);
    let connect = Connect {
        ack_timeout: Some(3),
        ..connect_to(OWN, PEER, OWN_QP)
    };
    let id = one.connect(START, &connect).expect("connect");
    let (sent, _) = actions(&mut one);
    let Message::Request(sent) = sent[0].message else {
        panic!("a request");
    };
    assert_eq!(sent.primary_local_ack_timeout, 3);
    give(&mut one, START, PEER, OWN, &mad(Message::Reply(reply(id))));
    assert_eq!(one.parameters(id).expect("it is there").ack_timeout, 3);
}

#[test]
fn a_reply_sets_what_the_peer_can_do_and_no_endless_timeout() {
    let mut one = manager(OWN, 1);
    let id = one
        .connect(START, &connect_to(OWN, PEER, OWN_QP))
        .expect("connect");
    let slow = ConnectionReply {
        target_ack_delay: 31,
        initiator_depth: 12,
        responder_resources: 9,
        ..reply(id)
    };
    give(&mut one, START, PEER, OWN, &mad(Message::Reply(slow)));
    let agreed = one.parameters(id).expect("it is there");
    assert_eq!(agreed.ack_timeout, MAX_ACK_TIMEOUT);
    // It asked for 8 and 4, and the peer has 12 under way and answers 9.
    let reads = (agreed.responder_resources, agreed.initiator_depth);
    assert_eq!((reads, agreed.rnr_retry_count), ((12, 9), 2));
}

#[test]
fn a_request_without_a_timeout_gets_the_shortest_one() {
    let (one, id) = asked(ConnectionRequest {
        primary_local_ack_timeout: 0,
        ..request()
    });
    assert_eq!(one.parameters(id).expect("it is there").ack_timeout, 1);
}

#[test]
fn an_accept_sets_the_reads_and_tells_the_delay_of_acknowledgements() {
    let mut one = Manager::new(Identity {
        ack_delay: 15,
        ..Identity::of(1, 2)
    });
    one.add_address(OWN, None);
    one.listen(TCP, None, 4).expect("listen");
    let request = mad(Message::Request(request()));
    give(&mut one, START, PEER, OWN, &request);
    let (_, told) = actions(&mut one);
    let accept = Accept {
        responder_resources: 2,
        initiator_depth: 1,
        ..accept_with(OWN_QP)
    };
    one.accept(START, told[0].0, &accept).expect("accept");
    let (sent, _) = actions(&mut one);
    let Message::Reply(sent) = sent[0].message else {
        panic!("a reply");
    };
    assert_eq!(sent.target_ack_delay, 15);
    let agreed = one.parameters(told[0].0).expect("it is there");
    let reads = (agreed.responder_resources, agreed.initiator_depth);
    assert_eq!(reads, (2, 1));
}

#[test]
fn a_reply_is_repeated_as_often_as_the_caller_asked() {
    let (mut one, id) = asked(ConnectionRequest {
        max_cm_retries: 2,
        ..request()
    });
    one.accept(START, id, &accept_with(OWN_QP)).expect("accept");
    let mut replies = 0;
    while let Some(next) = one.deadline() {
        let (sent, told) = actions(&mut one);
        replies += sent.len();
        assert!(told.is_empty(), "{told:?}");
        one.tick(next);
    }
    assert_eq!(replies, 3);
    let (sent, told) = actions(&mut one);
    assert_eq!((sent.len(), told), (0, vec![(id, EventKind::Unreachable)]));
}

#[test]
fn a_receipt_extends_the_wait_by_the_service_and_the_way() {
    let mut one = manager(OWN, 1);
    let id = one
        .connect(START, &connect_to(OWN, PEER, OWN_QP))
        .expect("connect");
    let timeout = one.parameters(id).expect("it is there").ack_timeout;
    let receipt = mad(Message::Receipt(MessageReceipt {
        local_comm_id: PEER_ID,
        remote_comm_id: id.0,
        message_mraed: 0,
        service_timeout: 18,
        private_data: [0; 222],
    }));
    give(&mut one, START, PEER, OWN, &receipt);
    let wait = of_code(18) + of_code(timeout);
    assert_eq!(one.deadline(), Some(START + wait));
    assert!(of_code(timeout) > Duration::from_millis(100));
}

#[test]
fn answers_to_a_request_go_to_the_address_that_it_names() {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    let relay: IpAddr = "10.0.0.3".parse().expect("an address");
    let request = mad(Message::Request(request()));
    give(&mut one, START, relay, OWN, &request);
    let Some(Action::Event(event)) = one.next_action() else {
        panic!("a request");
    };
    let refusal = Refused::because(Reason::CONSUMER);
    one.reject(event.id, &refusal).expect("reject");
    let Some(Action::Send(sent)) = one.next_action() else {
        panic!("a rejection");
    };
    assert_eq!(sent.destination, Gid::from(PEER));
    let sent = Mad::decode(&*sent.payload).expect("own MAD");
    assert_eq!(sent.transaction_id, request.transaction_id);
}

#[test]
fn data_of_the_peer_establishes_a_connection_whose_ready_message_is_lost() {
    let (mut one, id) = asked(request());
    one.packet_arrived(id);
    assert_eq!(one.state(id), Some(StateName::RequestReceived));
    one.accept(START, id, &accept_with(OWN_QP)).expect("accept");
    actions(&mut one);
    one.packet_arrived(id);
    assert_eq!(one.state(id), Some(StateName::Established));
    let (sent, told) = actions(&mut one);
    assert_eq!((sent.len(), told), (0, vec![(id, EventKind::Established)]));
    assert_eq!(one.deadline(), None, "the reply is not repeated");
}

#[test]
fn replies_of_strangers_change_no_connection() {
    let mut one = manager(OWN, 1);
    let mut connect = |queue_pair| {
        let connect = connect_to(OWN, PEER, queue_pair);
        one.connect(START, &connect).expect("connect")
    };
    let (first, second) = (connect(OWN_QP), connect(OWN_QP + 1));
    give(
        &mut one,
        START,
        PEER,
        OWN,
        &mad(Message::Reply(reply(first))),
    );
    one.ready(first, &[]).expect("ready");
    actions(&mut one);
    // The established one answers its own peer only.
    let stranger = ConnectionReply {
        local_comm_id: PEER_ID + 1,
        local_qpn: PEER_QP + 1,
        ..reply(first)
    };
    for (from, answers) in [(stranger, 0), (reply(first), 1)] {
        give(&mut one, START, PEER, OWN, &mad(Message::Reply(from)));
        assert_eq!(actions(&mut one).0.len(), answers);
    }
    // The peer's id is that of the first connection.
    let twice = ConnectionReply {
        local_qpn: PEER_QP + 1,
        ..reply(second)
    };
    give(&mut one, START, PEER, OWN, &mad(Message::Reply(twice)));
    assert_eq!(one.state(second), Some(StateName::RequestSent));
    assert!(actions(&mut one).1.is_empty());
}

#[test]
fn a_peer_that_does_not_confirm_the_end_leaves_the_connection_in_timewait() {
    let (mut one, id) = asked(request());
    one.accept(START, id, &accept_with(OWN_QP)).expect("accept");
    one.packet_arrived(id);
    one.disconnect(START, id).expect("disconnect");
    actions(&mut one);
    let mut told = Vec::new();
    while let Some(next) = one.deadline() {
        one.tick(next);
        let (_, now) = actions(&mut one);
        if now.contains(&(id, EventKind::Disconnected { by_peer: false })) {
            assert_eq!(one.state(id), Some(StateName::TimeWait));
        }
        told.extend(now.iter().map(|(_, kind)| event_name(kind)));
    }
    assert_eq!(told, ["Disconnected without answer", "TimeWaitOver"]);
}

/// A connection that `PEER` has asked for, established.
fn established() -> (Manager, ConnectionId) {
    let (mut one, id) = asked(request());
    one.accept(START, id, &accept_with(OWN_QP)).expect("accept");
    one.packet_arrived(id);
    actions(&mut one);
    (one, id)
}

#[test]
fn a_connection_of_a_removed_address_ends_at_once() {
    let (mut one, id) = established();
    one.remove_address(OWN, None);
    one.disconnect(START, id).expect("disconnect");
    let (sent, told) = actions(&mut one);
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!(told, [(id, EventKind::Disconnected { by_peer: false })]);
    assert_eq!(one.state(id), Some(StateName::TimeWait));

    // The address is back: the next connection ends by a message again.
    let (mut one, id) = established();
    one.remove_address(OWN, None);
    one.add_address(OWN, None);
    one.disconnect(START, id).expect("disconnect");
    assert_eq!(one.state(id), Some(StateName::DisconnectSent));

    let (mut one, id) = established();
    one.remove_address(OWN, None);
    one.destroy(START, id);
    let (sent, told) = actions(&mut one);
    assert!(sent.is_empty() && told.is_empty(), "{sent:?} {told:?}");
    assert_eq!(one.state(id), None);
}

#[test]
fn messages_of_a_removed_address_are_not_repeated() {
    let (mut one, id) = established();
    one.disconnect(START, id).expect("disconnect");
    let asking = one.connect(START, &connect_to(OWN, PEER, OWN_QP + 1));
    let asking = asking.expect("a request");
    actions(&mut one);
    one.remove_address(OWN, None);
    while let Some(next) = one.deadline() {
        one.tick(next);
        let (sent, told) = actions(&mut one);
        assert!(sent.is_empty(), "{sent:?}");
        if told.contains(&(asking, EventKind::Unreachable)) {
            assert!(next < START + Duration::from_secs(6), "{next:?}");
            one.destroy(next, asking);
        }
    }
    assert_eq!(one.state(asking), None, "told that the peer is not reached");
    assert_eq!(one.state(id), Some(StateName::Idle));
}
