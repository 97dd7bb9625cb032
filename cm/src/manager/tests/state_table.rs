//! Every state against every event: next state, messages sent, events reported.

use super::agreed::{self, PEER_ID};
use super::*;

const STATES: [StateName; 13] = [
    StateName::Idle,
    StateName::RequestSent,
    StateName::RequestAcknowledged,
    StateName::ReplyReceived,
    StateName::RequestReceived,
    StateName::ReplySent,
    StateName::ReplyAcknowledged,
    StateName::Established,
    StateName::DisconnectSent,
    StateName::DisconnectReceived,
    StateName::TimeWait,
    StateName::ServiceSent,
    StateName::ServiceReceived,
];

const STIMULI: [&str; 21] = [
    "REQ",
    "REP",
    "RTU",
    "MRA of REQ",
    "MRA of REP",
    "REJ of REQ",
    "REJ of other",
    "REJ stale",
    "DREQ",
    "DREQ wrong QP",
    "DREP",
    "LAP",
    "SIDR_REP",
    "time",
    "accept",
    "reject",
    "ready",
    "disconnect",
    "answer",
    "device failure",
    "destroy",
];

fn reply(own: u32) -> Mad {
    mad(Message::Reply(ConnectionReply {
        responder_resources: 255,
        initiator_depth: 255,
        target_ack_delay: 15,
        rnr_retry_count: 7,
        ..agreed::reply(ConnectionId(own))
    }))
}

fn request() -> Mad {
    mad(Message::Request(agreed::request()))
}

fn receipt(own: u32, about: u8) -> Mad {
    mad(Message::Receipt(MessageReceipt {
        local_comm_id: PEER_ID,
        remote_comm_id: own,
        message_mraed: about,
        service_timeout: 18,
        private_data: [0; 222],
    }))
}

fn rejection(own: u32, about: u8, reason: Reason) -> Mad {
    mad(Message::Reject(Rejection {
        local_comm_id: if about == 0 { 0 } else { PEER_ID },
        remote_comm_id: own,
        message_rejected: about,
        rejected_info_length: 0,
        reason: reason.0,
        additional_info: [0; 72],
        private_data: [0; 148],
    }))
}

fn disconnect_request(own: u32, queue_pair: u32) -> Mad {
    mad(Message::Disconnect(DisconnectRequest {
        local_comm_id: PEER_ID,
        remote_comm_id: own,
        remote_qpn: queue_pair,
        private_data: [0; 220],
    }))
}

fn disconnect_reply(own: u32) -> Mad {
    mad(Message::DisconnectReply(DisconnectReply {
        local_comm_id: PEER_ID,
        remote_comm_id: own,
        private_data: [0; 224],
    }))
}

fn ready(own: u32) -> Mad {
    mad(Message::Ready(ReadyToUse {
        local_comm_id: PEER_ID,
        remote_comm_id: own,
        private_data: [0; 224],
    }))
}

fn alternate_path(own: u32) -> Mad {
    mad(Message::LoadAlternatePath(LoadAlternatePath {
        local_comm_id: PEER_ID,
        remote_comm_id: own,
        remote_qpn: OWN_QP,
        remote_cm_response_timeout: 20,
        alternate_local_lid: 1,
        alternate_remote_lid: 1,
        alternate_local_gid: Gid::from(PEER),
        alternate_remote_gid: Gid::from(OWN),
        alternate_flow_label: 0,
        alternate_traffic_class: 0,
        alternate_hop_limit: 64,
        alternate_packet_rate: 0,
        alternate_sl: 0,
        alternate_subnet_local: false,
        alternate_local_ack_timeout: 17,
        private_data: [0; 168],
    }))
}

fn service_reply(own: u32) -> Mad {
    mad(Message::ServiceReply(ServiceReply {
        request_id: own,
        status: 0,
        additional_info_length: 0,
        vendor_id_high: 0,
        qpn: PEER_QP,
        vendor_id_low: 0,
        service_id: UDP.0,
        q_key: 0x0123_4567,
        additional_info: [0; 72],
        private_data: [0; 136],
    }))
}

fn resolve(local: IpAddr, remote: IpAddr) -> Resolve {
    Resolve {
        local,
        vlan: None,
        remote,
        service: UDP,
        source_port: 40_000,
        traffic_class: 0,
        private_data: Vec::new(),
    }
}

/// A manager with one connection, brought into a state by what brings it there on a wire.
fn in_state(state: StateName) -> (Manager, ConnectionId) {
    let mut one = manager(OWN, 0xAAAA);
    one.listen(TCP, None, 4).expect("listen");
    one.listen(UDP, None, 4).expect("listen");
    let passive = matches!(
        state,
        StateName::RequestReceived | StateName::ReplySent | StateName::ReplyAcknowledged
    );
    let id = if state == StateName::ServiceSent {
        one.resolve(START, &resolve(OWN, PEER)).expect("resolve")
    } else if state == StateName::ServiceReceived {
        let mut peer = manager(PEER, PEER_GUID);
        peer.resolve(START, &resolve(PEER, OWN)).expect("resolve");
        let (sent, _) = actions(&mut peer);
        give(&mut one, START, PEER, OWN, &sent[0]);
        actions(&mut one).1[0].0
    } else if passive {
        give(&mut one, START, PEER, OWN, &request());
        actions(&mut one).1[0].0
    } else {
        one.connect(START, &connect_to(OWN, PEER, OWN_QP))
            .expect("connect")
    };
    let own = id.number();
    let mut take = |mad: &Mad| give(&mut one, START, PEER, OWN, mad);
    match state {
        StateName::Idle => take(&rejection(own, 0, Reason::CONSUMER)),
        StateName::RequestAcknowledged => take(&receipt(own, 0)),
        StateName::ReplySent | StateName::ReplyAcknowledged => {
            one.accept(START, id, &accept_with(OWN_QP)).expect("accept");
            if state == StateName::ReplyAcknowledged {
                give(&mut one, START, PEER, OWN, &receipt(own, 1));
            }
        }
        StateName::ReplyReceived
        | StateName::Established
        | StateName::DisconnectSent
        | StateName::DisconnectReceived
        | StateName::TimeWait => {
            take(&reply(own));
            establish_and(&mut one, id, state);
        }
        _ => {}
    }
    actions(&mut one);
    assert_eq!(one.state(id), Some(state));
    (one, id)
}

fn establish_and(one: &mut Manager, id: ConnectionId, state: StateName) {
    if state == StateName::ReplyReceived {
        return;
    }
    one.ready(id, &[]).expect("ready");
    match state {
        StateName::DisconnectSent => one.disconnect(START, id).expect("disconnect"),
        StateName::DisconnectReceived | StateName::TimeWait => {
            give(
                one,
                START,
                PEER,
                OWN,
                &disconnect_request(id.number(), OWN_QP),
            );
            if state == StateName::TimeWait {
                one.disconnect(START, id).expect("confirm");
            }
        }
        _ => {}
    }
}

#[test]
fn a_connection_that_is_rejected_ends_without_news_of_its_timewait() {
    let long = Duration::from_secs(1000);
    for (ends_by, expected) in [
        ("REJ", vec!["Rejected"]),
        ("DREQ", vec!["Disconnected", "TimeWaitOver"]),
    ] {
        let (mut one, id) = in_state(StateName::Established);
        let own = id.number();
        match ends_by {
            "REJ" => give(
                &mut one,
                START,
                PEER,
                OWN,
                &rejection(own, 2, Reason::CONSUMER),
            ),
            _ => {
                give(&mut one, START, PEER, OWN, &disconnect_request(own, OWN_QP));
                one.disconnect(START, id).expect("confirm");
            }
        }
        assert_eq!(one.state(id), Some(StateName::TimeWait));
        one.tick(START + long);
        let (_, told) = actions(&mut one);
        let told: Vec<_> = told.iter().map(|(_, kind)| event_name(kind)).collect();
        assert_eq!(told, expected, "{ends_by}");
        assert_eq!(one.state(id), Some(StateName::Idle));
    }
}

/// Applies a stimulus; says whether the program's call was refused.
fn apply(one: &mut Manager, id: ConnectionId, stimulus: &str) -> Result<(), RequestError> {
    let own = id.number();
    let consumer = Refused::because(Reason::CONSUMER);
    let mad = match stimulus {
        "REQ" => request(),
        "REP" => reply(own),
        "RTU" => ready(own),
        "MRA of REQ" => receipt(own, 0),
        "MRA of REP" => receipt(own, 1),
        "REJ of REQ" => rejection(own, 0, Reason::CONSUMER),
        "REJ of other" => rejection(own, 2, Reason::CONSUMER),
        "REJ stale" => rejection(own, 2, Reason::STALE_CONNECTION),
        "DREQ" => disconnect_request(own, OWN_QP),
        "DREQ wrong QP" => disconnect_request(own, OWN_QP + 1),
        "DREP" => disconnect_reply(own),
        "LAP" => alternate_path(own),
        "SIDR_REP" => service_reply(own),
        "time" => {
            one.tick(START + Duration::from_secs(10));
            return Ok(());
        }
        "accept" => return one.accept(START, id, &accept_with(OWN_QP)),
        "reject" => return one.reject(id, &consumer),
        "ready" => return one.ready(id, &[]),
        "disconnect" => return one.disconnect(START, id),
        "answer" => {
            let answer = ServiceAnswer {
                status: ServiceStatus::VALID,
                queue_pair: OWN_QP,
                queue_key: 0x0123_4567,
                private_data: Vec::new(),
            };
            return one.answer(id, &answer);
        }
        "device failure" => {
            one.lose_device();
            return Ok(());
        }
        "destroy" => {
            one.destroy(START, id);
            return Ok(());
        }
        other => panic!("no stimulus {other}"),
    };
    give(one, START, PEER, OWN, &mad);
    Ok(())
}

fn outcome(state: StateName, stimulus: &str) -> String {
    let (mut one, id) = in_state(state);
    if let Err(error) = apply(&mut one, id, stimulus) {
        assert_eq!(error, RequestError::State { state });
        assert!(one.next_action().is_none(), "a refused call has no effect");
        return "refused".to_owned();
    }
    let (sent, told) = actions(&mut one);
    let next = one
        .state(id)
        .map_or("gone".to_owned(), |next| format!("{next:?}"));
    let mut line = if next == format!("{state:?}") {
        "stays".to_owned()
    } else {
        next
    };
    for mad in sent {
        line += &format!(", sends {}", mad.message.abbreviation());
        if let Message::Reject(rejection) = mad.message {
            line += &format!(" {} of {}", rejection.reason, rejection.message_rejected);
        }
    }
    for (about, kind) in told {
        let whose = if about == id { "" } else { " of another" };
        line += &format!(", tells {}{whose}", event_name(&kind));
    }
    line
}

#[test]
fn the_farewell_of_each_state_is_what_destroy_sends() {
    for state in STATES {
        let (mut one, id) = in_state(state);
        let farewell = one.farewell(id);
        one.destroy(START, id);
        let mut sent = std::iter::from_fn(|| one.next_action()).filter_map(|action| match action {
            Action::Send(mad) => Some(mad),
            Action::Event(_) => None,
        });
        if state == StateName::ServiceReceived {
            // The peer repeats its request, and learns from its own limit that no program is there.
            assert_eq!(farewell, None);
            continue;
        }
        assert_eq!(sent.next(), farewell, "{state:?}");
        assert_eq!(sent.next(), None, "{state:?}");
        assert_eq!(one.farewell(id), None, "{state:?}");
    }
}

#[test]
fn each_change_of_state_is_noted_for_who_watches() {
    let mut one = manager(OWN, 0xAAAA);
    one.watch_changes();
    let id = one.connect(START, &connect_to(OWN, PEER, OWN_QP));
    let id = id.expect("connect");
    assert_eq!((one.next_changed(), one.next_changed()), (Some(id), None));
    give(&mut one, START, PEER, OWN, &reply(id.number()));
    assert_eq!((one.next_changed(), one.next_changed()), (Some(id), None));
    one.ready(id, &[]).expect("ready");
    assert_eq!((one.next_changed(), one.next_changed()), (Some(id), None));
    one.destroy(START, id);
    assert_eq!((one.next_changed(), one.next_changed()), (Some(id), None));
    assert_eq!(one.farewell(id), None);
}

/// The table was reviewed line by line against the standard and what Linux does.
#[test]
fn every_state_answers_every_event_as_the_table_says() {
    let mut table = String::new();
    for state in STATES {
        for stimulus in STIMULI {
            let outcome = outcome(state, stimulus);
            if outcome != "stays" && outcome != "refused" {
                table += &format!("{state:?} | {stimulus} | {outcome}\n");
            }
        }
    }
    if let Some(path) = std::env::var_os("RINGSIDE_WRITE_TABLE") {
        std::fs::write(path, &table).expect("the table");
    }
    let expected = include_str!("state_table.txt");
    for (ours, reviewed) in table.lines().zip(expected.lines()) {
        assert_eq!(ours, reviewed);
    }
    assert_eq!(table.lines().count(), expected.lines().count(), "\n{table}");
}

/// Calls that do not fit a state are refused without effect: exactly these are not.
#[test]
fn calls_are_refused_in_every_other_state() {
    let allowed = [
        ("accept", vec![StateName::RequestReceived]),
        (
            "reject",
            vec![
                StateName::RequestReceived,
                StateName::ReplyReceived,
                StateName::ReplySent,
                StateName::ReplyAcknowledged,
            ],
        ),
        ("ready", vec![StateName::ReplyReceived]),
        (
            "disconnect",
            vec![StateName::Established, StateName::DisconnectReceived],
        ),
        ("answer", vec![StateName::ServiceReceived]),
    ];
    for (call, states) in allowed {
        for state in STATES {
            let refused = outcome(state, call) == "refused";
            assert_eq!(refused, !states.contains(&state), "{call} in {state:?}");
        }
    }
}
