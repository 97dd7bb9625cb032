//! Requests and questions that are refused, dropped, or kept apart.

use super::super::{ABOUT_OTHER, MAX_CONNECTIONS};
use super::agreed::{question, request};
use super::*;
use crate::address::AddressHeader;
use crate::message::ConnectionRequest;

/// The reason for which a listener of two addresses refuses a request from `from`, and the
/// additional information; `None` if it takes the request.
fn refusal(from: IpAddr, request: ConnectionRequest) -> Option<(Reason, Vec<u8>)> {
    let mut one = manager(OWN, 1);
    one.add_address("10.0.0.7".parse().expect("an address"), None);
    one.listen(TCP, None, 4).expect("listen");
    give(&mut one, START, from, OWN, &mad(Message::Request(request)));
    let (sent, told) = actions(&mut one);
    match (&sent[..], &told[..]) {
        ([], [(_, EventKind::Request { .. })]) => None,
        ([answer], []) => {
            let Message::Reject(rejection) = answer.message else {
                panic!("{answer:?}");
            };
            let length = usize::from(rejection.rejected_info_length);
            let information = rejection.additional_info[..length].to_vec();
            Some((Reason(rejection.reason), information))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_that_do_not_lead_here_are_refused_with_an_address_that_does() {
    let good = request();
    assert_eq!(refusal(PEER, good), None);
    let limited = ConnectionRequest {
        partition_key: 0x7FFF,
        ..good
    };
    assert_eq!(refusal(PEER, limited), None, "a limited member");
    let own = Gid::from(OWN).0.to_vec();
    let wrong_path = Some((Reason::PRIMARY_REMOTE_GID, own.clone()));
    let foreign = ConnectionRequest {
        partition_key: 0x1234,
        ..good
    };
    assert_eq!(refusal(PEER, foreign), wrong_path, "another partition");
    let six: IpAddr = "fd00::2".parse().expect("an address");
    assert_eq!(refusal(six, good), wrong_path, "another IP version");
    let elsewhere = ConnectionRequest {
        primary_remote_gid: Gid::from(PEER),
        ..good
    };
    assert_eq!(refusal(PEER, elsewhere), wrong_path, "another node");
    let two_paths = ConnectionRequest {
        alternate_local_lid: 0xFFFF,
        ..good
    };
    let no_second = Some((Reason::ALTERNATE_REMOTE_GID, own));
    assert_eq!(refusal(PEER, two_paths), no_second);
}

#[test]
fn requests_of_another_kind_or_for_another_node_find_no_listener() {
    let good = request();
    let refused = Some((Reason::CONSUMER, Vec::new()));
    let unreliable = ConnectionRequest {
        transport_service_type: 1,
        ..good
    };
    assert_eq!(refusal(PEER, unreliable), refused);
    let extended = ConnectionRequest {
        extended_transport_type: 1,
        ..good
    };
    assert_eq!(refusal(PEER, extended), refused);
    let header = AddressHeader {
        source_port: 1,
        source: PEER,
        destination: "10.0.0.9".parse().expect("an address"),
    };
    let mut elsewhere = good;
    elsewhere.private_data[..36].copy_from_slice(&header.encode());
    assert_eq!(refusal(PEER, elsewhere), refused);
}

#[test]
fn a_manager_with_all_its_connections_takes_no_request_and_no_question() {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    one.listen(UDP, None, 4).expect("listen");
    let connect = connect_to(OWN, PEER, OWN_QP);
    for _ in 0..MAX_CONNECTIONS {
        one.connect(START, &connect).expect("connect");
        one.next_action();
    }
    let maximum = MAX_CONNECTIONS;
    assert_eq!(
        one.connect(START, &connect),
        Err(RequestError::Full { maximum })
    );
    for message in [
        Message::Request(request()),
        Message::ServiceRequest(question(UDP, 1)),
    ] {
        give(&mut one, START, PEER, OWN, &mad(message));
        assert_eq!(one.next_action(), None);
        assert_eq!(one.connections(), maximum);
    }
}

#[test]
fn a_request_that_its_peer_gives_up_is_withdrawn() {
    let mut peer = manager(PEER, PEER_GUID);
    let given_up = peer
        .connect(START, &connect_to(PEER, OWN, PEER_QP))
        .expect("connect");
    let (asked, _) = actions(&mut peer);
    peer.destroy(START, given_up);
    let (farewell, _) = actions(&mut peer);
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    give(&mut one, START, PEER, OWN, &asked[0]);
    let (_, told) = actions(&mut one);
    // Of another node with the same communication id.
    let Message::Reject(mut other) = farewell[0].message else {
        panic!("{farewell:?}");
    };
    assert_eq!(other.message_rejected, ABOUT_OTHER);
    other.additional_info[0] ^= 1;
    give(&mut one, START, PEER, OWN, &mad(Message::Reject(other)));
    assert!(actions(&mut one).1.is_empty());
    give(&mut one, START, PEER, OWN, &farewell[0]);
    let (_, ended) = actions(&mut one);
    let [(id, EventKind::Rejected { reason, .. })] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!((*id, *reason), (told[0].0, Reason::TIMEOUT));
}

/// A client that gives up, and tries again, while the server starts.
#[test]
fn a_request_that_its_peer_gives_up_reaches_no_later_listener() {
    let mut peer = manager(PEER, PEER_GUID);
    let mut one = manager(OWN, 1);
    let mut asked = Vec::new();
    for number in 0..2 {
        let id = peer
            .connect(START, &connect_to(PEER, OWN, PEER_QP + number))
            .expect("connect");
        let (sent, _) = actions(&mut peer);
        give(&mut one, START, PEER, OWN, &sent[0]);
        asked.push(id);
    }
    peer.destroy(START, asked[0]);
    give(&mut one, START, PEER, OWN, &actions(&mut peer).0[0]);
    one.listen(TCP, None, 4).expect("listen");
    let (_, told) = actions(&mut one);
    let [(_, EventKind::Request { parameters, .. })] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(parameters.queue_pair, PEER_QP + 1);
}

/// The peer asks for a connection by this id, from the same queue pair each time.
fn ask(one: &mut Manager, local_comm_id: u32) -> (Vec<Mad>, Vec<(ConnectionId, EventKind)>) {
    let again = ConnectionRequest {
        local_comm_id,
        ..request()
    };
    give(one, START, PEER, OWN, &mad(Message::Request(again)));
    actions(one)
}

/// A manager with a connection of the peer's id 0xB1, which the peer has just ended.
fn ended_by_its_peer() -> (Manager, ConnectionId) {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    let former = ask(&mut one, 0xB1).1[0].0;
    one.accept(START, former, &accept_with(OWN_QP))
        .expect("accept");
    one.packet_arrived(former);
    let end = mad(Message::Disconnect(DisconnectRequest {
        local_comm_id: 0xB1,
        remote_comm_id: former.0,
        remote_qpn: OWN_QP,
        private_data: [0; 220],
    }));
    give(&mut one, START, PEER, OWN, &end);
    (one, former)
}

/// The program may take its time with the end of a connection: an idle socket is not looked at.
#[test]
fn a_queue_pair_whose_connection_the_peer_has_ended_is_not_stale() {
    let (mut one, former) = ended_by_its_peer();
    actions(&mut one);
    let (_, told) = ask(&mut one, 0xB2);
    assert!(
        matches!(told[..], [(_, EventKind::Request { .. })]),
        "{told:?}"
    );
    // A copy of the former request is no new one.
    assert!(ask(&mut one, 0xB1).1.is_empty());
    one.disconnect(START, former).expect("confirmed");
}

#[test]
fn a_later_connection_with_a_queue_pair_of_before_outlives_its_timewait() {
    let (mut one, former) = ended_by_its_peer();
    one.disconnect(START, former).expect("confirmed");
    actions(&mut one);
    let later = ask(&mut one, 0xB2).1[0].0;
    let over = one.deadline().expect("a timewait");
    one.tick(over);
    assert_eq!(actions(&mut one).1, [(former, EventKind::TimeWaitOver)]);
    // The queue pair is that of the later one, and so is the communication id.
    let (sent, told) = ask(&mut one, 0xB3);
    let Message::Reject(stale) = sent[0].message else {
        panic!("{sent:?}");
    };
    assert_eq!((stale.reason, told.len()), (Reason::STALE_CONNECTION.0, 0));
    let (sent, told) = ask(&mut one, 0xB2);
    assert!(matches!(sent[0].message, Message::Receipt(_)), "a repeat");
    assert_eq!(
        (told.len(), one.state(later)),
        (0, Some(StateName::RequestReceived))
    );
}

#[test]
fn messages_of_a_connection_do_not_find_a_question() {
    let mut one = manager(OWN, 1);
    one.listen(UDP, None, 4).expect("listen");
    let asked = mad(Message::ServiceRequest(question(UDP, 9)));
    give(&mut one, START, PEER, OWN, &asked);
    let (_, told) = actions(&mut one);
    let end = mad(Message::Disconnect(DisconnectRequest {
        local_comm_id: 9,
        remote_comm_id: told[0].0.0,
        remote_qpn: 0,
        private_data: [0; 220],
    }));
    give(&mut one, START, PEER, OWN, &end);
    let (sent, _) = actions(&mut one);
    assert!(
        matches!(
            sent[..],
            [Mad {
                message: Message::DisconnectReply(_),
                ..
            }]
        ),
        "as of a connection that is unknown: {sent:?}"
    );
}

#[test]
fn questions_are_refused_without_a_queue_pair() {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 4).expect("listen");
    let listener = one.listen(UDP, None, 4).expect("listen");
    // A service of connections has no queue pair to tell.
    let asked = mad(Message::ServiceRequest(question(TCP, 1)));
    give(&mut one, START, PEER, OWN, &asked);
    let rejected = |sent: &[Mad], told: &[(ConnectionId, EventKind)]| {
        let Message::ServiceReply(reply) = sent[0].message else {
            panic!("{sent:?}");
        };
        assert_eq!((sent.len(), told.len()), (1, 0));
        assert_eq!(reply.status, ServiceStatus::REJECTED.0);
        assert_eq!((reply.qpn, reply.q_key), (0, 0));
        reply.request_id
    };
    let (sent, told) = actions(&mut one);
    assert_eq!(rejected(&sent, &told), 1);
    // The program's refusal.
    let asked = mad(Message::ServiceRequest(question(UDP, 2)));
    give(&mut one, START, PEER, OWN, &asked);
    let (_, told) = actions(&mut one);
    let refusal = ServiceAnswer {
        status: ServiceStatus::REJECTED,
        queue_pair: OWN_QP,
        queue_key: 0x1234,
        private_data: Vec::new(),
    };
    one.answer(told[0].0, &refusal).expect("answer");
    let (sent, told) = actions(&mut one);
    assert_eq!(rejected(&sent, &told), 2);
    // The end of the listener.
    let asked = mad(Message::ServiceRequest(question(UDP, 3)));
    give(&mut one, START, PEER, OWN, &asked);
    actions(&mut one);
    one.unlisten(START, listener);
    let (sent, told) = actions(&mut one);
    assert_eq!(rejected(&sent, &told), 3);
}

#[test]
fn a_service_of_either_kind_takes_the_requests_of_its_listener_only() {
    let service = ServiceId::of(PortSpace::InfiniBand, 7471);
    let asked = ConnectionRequest {
        service_id: service.0,
        ..request()
    };
    let requests = [
        Message::Request(asked),
        Message::ServiceRequest(question(service, 1)),
    ];
    let kinds = [ServiceKind::Connections, ServiceKind::Datagrams];
    for (taken, kind) in kinds.into_iter().enumerate() {
        let mut one = manager(OWN, 1);
        one.listen_for(kind, service, None, 4).expect("listen");
        for (number, message) in requests.iter().enumerate() {
            give(&mut one, START, PEER, OWN, &mad(*message));
            let (sent, told) = actions(&mut one);
            let refusal = sent.first().map(|mad| match &mad.message {
                Message::Reject(refusal) => refusal.reason,
                Message::ServiceReply(refusal) => refusal.status.into(),
                other => panic!("{other:?}"),
            });
            let expected = match (number == taken, number) {
                (true, _) => None,
                (false, 0) => Some(Reason::CONSUMER.0),
                (false, _) => Some(ServiceStatus::REJECTED.0.into()),
            };
            assert_eq!((refusal, told.len()), (expected, (number == taken).into()));
        }
    }
    let mut one = manager(OWN, 1);
    one.listen(service, None, 4).expect("connections");
    give(&mut one, START, PEER, OWN, &mad(requests[0]));
    assert_eq!(actions(&mut one).1.len(), 1);
}

#[test]
fn requests_that_waited_are_taken_in_their_order_and_of_each_node() {
    let mut one = manager(OWN, 1);
    for number in 1..=3 {
        let asked = ConnectionRequest {
            local_comm_id: number,
            local_qpn: number,
            ..request()
        };
        give(&mut one, START, PEER, OWN, &mad(Message::Request(asked)));
    }
    one.listen(TCP, None, 4).expect("listen");
    let (_, told) = actions(&mut one);
    let pairs = told.iter().map(|(_, kind)| match kind {
        EventKind::Request { parameters, .. } => parameters.queue_pair,
        other => panic!("{other:?}"),
    });
    assert_eq!(pairs.collect::<Vec<_>>(), [1, 2, 3]);
    // Two nodes give their questions the same number.
    let other: IpAddr = "10.0.0.3".parse().expect("an address");
    let asked = mad(Message::ServiceRequest(question(UDP, 1)));
    for from in [PEER, other, PEER] {
        give(&mut one, START, from, OWN, &asked);
    }
    one.listen(UDP, None, 4).expect("listen");
    assert_eq!(actions(&mut one).1.len(), 2);
}

#[test]
fn a_backlog_of_zero_takes_one_request_and_an_address_that_is_gone_none() {
    let mut one = manager(OWN, 1);
    one.listen(TCP, None, 0).expect("listen");
    for (number, taken) in [(1, 1), (2, 0)] {
        let asked = ConnectionRequest {
            local_comm_id: number,
            local_qpn: number,
            ..request()
        };
        give(&mut one, START, PEER, OWN, &mad(Message::Request(asked)));
        assert_eq!(actions(&mut one).1.len(), taken);
    }
    one.remove_address(OWN, None);
    let payload = mad(Message::Request(request())).encode();
    assert_eq!(
        one.receive(START, &arrived(PEER, OWN, &payload)),
        Err(Discard::Destination(OWN.into()))
    );
}
