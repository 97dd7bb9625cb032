//! Two managers on a wire that loses, repeats and delays.

use super::super::ABOUT_REQUEST;
use super::super::active::REPEATS;
use super::*;

/// Both ends and the virtual time.
struct Pair {
    ends: [(Manager, IpAddr); 2],
    told: [Vec<(ConnectionId, EventKind)>; 2],
    now: Duration,
    /// numbers of the MADs that the wire loses and repeats, in order of sending
    lost: Vec<usize>,
    repeated: Vec<usize>,
    sent: Vec<&'static str>,
    /// the passive program decides by itself
    accepts: bool,
}

impl Pair {
    fn new() -> Self {
        let mut server = manager(PEER, PEER_GUID);
        server.listen(TCP, None, 4).expect("listen");
        Self {
            ends: [(manager(OWN, 0xAAAA), OWN), (server, PEER)],
            told: [Vec::new(), Vec::new()],
            now: START,
            lost: Vec::new(),
            repeated: Vec::new(),
            sent: Vec::new(),
            accepts: true,
        }
    }

    /// Moves MADs until both ends are quiet.
    fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                while let Some(action) = self.ends[from].0.next_action() {
                    moved = true;
                    match action {
                        Action::Send(mad) => self.carry(from, &*mad.payload),
                        Action::Event(event) => self.program(from, event.id, event.kind),
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn carry(&mut self, from: usize, payload: &[u8]) {
        let number = self.sent.len();
        let mad = Mad::decode(payload).expect("own MAD");
        self.sent.push(mad.message.abbreviation());
        let copies = match (self.lost.contains(&number), self.repeated.contains(&number)) {
            (true, _) => 0,
            (_, true) => 2,
            _ => 1,
        };
        let source = self.ends[from].1;
        let (to, address) = &mut self.ends[1 - from];
        for _ in 0..copies {
            to.receive(self.now, &arrived(source, *address, payload))
                .expect("taken");
        }
    }

    /// Acts as a program: accept, make ready, confirm the end.
    fn program(&mut self, end: usize, id: ConnectionId, kind: EventKind) {
        let (manager, _) = &mut self.ends[end];
        match &kind {
            EventKind::Request { .. } if self.accepts => {
                manager
                    .accept(self.now, id, &accept_with(PEER_QP))
                    .expect("accept");
            }
            EventKind::Reply { .. } => manager.ready(id, b"go").expect("ready"),
            // Both sides may have asked at once; then there is nothing left to confirm.
            EventKind::Disconnected { by_peer: true } => {
                let _ = manager.disconnect(self.now, id);
            }
            _ => {}
        }
        self.told[end].push((id, kind));
    }

    fn run(&mut self, until: Duration) {
        self.exchange();
        while let Some(next) = self.ends.iter().filter_map(|(end, _)| end.deadline()).min()
            && next <= until
        {
            self.now = next;
            for (end, _) in &mut self.ends {
                end.tick(next);
            }
            self.exchange();
        }
        self.now = until;
    }

    fn names(&self, end: usize) -> Vec<&'static str> {
        self.told[end]
            .iter()
            .map(|(_, kind)| event_name(kind))
            .collect()
    }

    fn connect(&mut self) -> ConnectionId {
        let now = self.now;
        let (client, _) = &mut self.ends[0];
        client
            .connect(now, &connect_to(OWN, PEER, OWN_QP))
            .expect("connect")
    }
}

const LATER: Duration = Duration::from_secs(40);

#[test]
fn a_connection_is_made_and_both_sides_know_each_others_queue_pair() {
    let mut pair = Pair::new();
    let id = pair.connect();
    pair.run(START);
    assert_eq!(pair.sent, ["REQ", "REP", "RTU"]);
    assert_eq!(pair.names(0), ["Reply"]);
    assert_eq!(pair.names(1), ["Request", "Established"]);
    let active = pair.ends[0].0.parameters(id).expect("active");
    let passive = pair.ends[1]
        .0
        .parameters(pair.told[1][0].0)
        .expect("passive");
    assert_eq!((active.queue_pair, passive.queue_pair), (PEER_QP, OWN_QP));
    assert_eq!(
        (active.send_psn, active.receive_psn),
        (passive.receive_psn, passive.send_psn)
    );
    assert_eq!((active.initiator_depth, active.responder_resources), (4, 8));
    assert_eq!(
        (passive.initiator_depth, passive.responder_resources),
        (8, 4)
    );
    assert_eq!((active.rnr_retry_count, passive.rnr_retry_count), (7, 3));
    assert_eq!((active.retry_count, passive.retry_count), (5, 5));
    assert_eq!(active.flow_label, passive.flow_label);
    let (
        _,
        EventKind::Request {
            private_data,
            header,
            ..
        },
    ) = &pair.told[1][0]
    else {
        panic!("a request");
    };
    assert_eq!(
        (private_data.len(), &private_data[..6]),
        (56, b"hello\0".as_slice())
    );
    assert_eq!((header.source, header.source_port), (OWN, 40_000));
}

/// Numbers of the MADs of a clean exchange: 0 REQ, 1 REP, 2 RTU, 3 DREQ, 4 DREP.
#[test]
fn losing_or_repeating_any_one_message_changes_nothing_in_the_end() {
    for number in 0..5 {
        for repeated in [false, true] {
            let mut pair = Pair::new();
            let list = if repeated {
                &mut pair.repeated
            } else {
                &mut pair.lost
            };
            list.push(number);
            let id = pair.connect();
            pair.run(LATER);
            let now = pair.now;
            // Losing an early message moves the numbers of the later ones: they are not lost.
            if number >= 3 {
                assert_eq!(pair.sent.len(), 3);
            }
            pair.ends[0].0.disconnect(now, id).expect("disconnect");
            pair.run(LATER * 2);
            let what = format!("message {number} repeated {repeated}: {:?}", pair.sent);
            assert_eq!(
                pair.names(0),
                ["Reply", "Disconnected", "TimeWaitOver"],
                "{what}"
            );
            let passive = ["Request", "Established", "Disconnected", "TimeWaitOver"];
            assert_eq!(pair.names(1), passive, "{what}");
        }
    }
}

#[test]
fn a_peer_that_never_answers_is_asked_sixteen_times() {
    let mut pair = Pair::new();
    pair.lost = (0..100).collect();
    pair.connect();
    pair.run(START + Duration::from_secs(73));
    assert_eq!(pair.sent.len(), 16);
    assert!(pair.told[0].is_empty());
    pair.run(START + Duration::from_secs(75));
    assert_eq!(pair.names(0), ["Unreachable"]);
    assert_eq!(pair.sent.len(), 16);
}

#[test]
fn a_slow_program_makes_the_caller_wait_instead_of_giving_up() {
    let mut pair = Pair::new();
    pair.accepts = false;
    pair.connect();
    pair.run(START + Duration::from_secs(12));
    assert_eq!(
        pair.sent,
        ["REQ", "REQ", "MRA"],
        "repeats stop after the receipt"
    );
    let (id, now) = (pair.told[1][0].0, pair.now);
    pair.ends[1]
        .0
        .accept(now, id, &accept_with(PEER_QP))
        .expect("accept");
    pair.run(LATER);
    assert_eq!(pair.names(1), ["Request", "Established"]);
}

#[test]
fn disconnects_that_cross_end_both_sides_once() {
    let mut pair = Pair::new();
    let id = pair.connect();
    pair.run(START);
    let passive = pair.told[1][0].0;
    pair.ends[0].0.disconnect(START, id).expect("active");
    pair.ends[1].0.disconnect(START, passive).expect("passive");
    pair.run(LATER);
    assert_eq!(pair.names(0), ["Reply", "Disconnected", "TimeWaitOver"]);
    let passive = ["Request", "Established", "Disconnected", "TimeWaitOver"];
    assert_eq!(pair.names(1), passive);
}

#[test]
fn a_node_that_restarted_ends_its_stale_connection_and_gets_a_new_one() {
    let mut pair = Pair::new();
    pair.connect();
    pair.run(START);
    // The client's node restarts under the same GUID and address, with other ids, and happens to
    // use the same queue pair number.
    let mut restarted = Manager::new(Identity::of(0xAAAA, 0xD1FF));
    restarted.add_address(OWN, None);
    pair.ends[0].0 = restarted;
    pair.told[0].clear();
    pair.connect();
    pair.run(pair.now);
    // The peer ends the old connection; the request is repeated soon, and not the program's matter.
    assert_eq!(pair.names(0), [""; 0]);
    assert_eq!(pair.names(1), ["Request", "Established", "Disconnected"]);
    pair.run(pair.now + Duration::from_millis(100));
    assert_eq!(pair.names(0), ["Reply"]);
    let after = ["Request", "Established"];
    assert_eq!(pair.names(1)[3..], after);
}

#[test]
fn a_request_that_stays_stale_is_refused_after_its_repeats() {
    let mut one = manager(OWN, 0xAAAA);
    let connect = connect_to(OWN, PEER, OWN_QP);
    let id = one.connect(START, &connect).expect("connect");
    let mut now = START;
    for sent in 0..=REPEATS {
        let (mads, told) = actions(&mut one);
        assert_eq!((mads.len(), told.len()), (1, 0), "after {sent} repeats");
        let stale = mad(Message::Reject(Rejection {
            local_comm_id: 0,
            remote_comm_id: id.0,
            message_rejected: ABOUT_REQUEST,
            rejected_info_length: 0,
            reason: Reason::STALE_CONNECTION.0,
            additional_info: [0; 72],
            private_data: [0; 148],
        }));
        give(&mut one, now, PEER, OWN, &stale);
        now += Duration::from_millis(50);
        one.tick(now);
    }
    let (mads, told) = actions(&mut one);
    assert!(mads.is_empty());
    let [(_, EventKind::Rejected { reason, .. })] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(*reason, Reason::STALE_CONNECTION);
}

#[test]
fn requests_beyond_the_backlog_are_forgotten_and_repeats_succeed() {
    let mut pair = Pair::new();
    pair.accepts = false;
    for queue_pair in 0..5 {
        let connect = connect_to(OWN, PEER, OWN_QP + queue_pair);
        pair.ends[0].0.connect(START, &connect).expect("connect");
    }
    pair.run(START);
    assert_eq!(pair.names(1), ["Request"; 4]);
    let id = pair.told[1][0].0;
    pair.ends[1]
        .0
        .accept(START, id, &accept_with(PEER_QP))
        .expect("accept");
    pair.run(START + Duration::from_secs(6));
    let requests = pair
        .names(1)
        .iter()
        .filter(|name| **name == "Request")
        .count();
    assert_eq!(requests, 5);
}

#[test]
fn requests_that_were_read_do_not_count_for_the_backlog_and_outlive_their_listener() {
    let mut pair = Pair::new();
    pair.accepts = false;
    let mut read = Vec::new();
    for queue_pair in 0..9 {
        let connect = connect_to(OWN, PEER, OWN_QP + queue_pair);
        pair.ends[0].0.connect(START, &connect).expect("connect");
        pair.run(START);
        let (id, EventKind::Request { listener, .. }) = pair.told[1][read.len()].clone() else {
            panic!("a request");
        };
        pair.ends[1].0.request_read(id);
        read.push((id, listener));
    }
    pair.ends[1].0.unlisten(START, read[0].1);
    for (id, _) in read {
        let accepted = pair.ends[1].0.accept(START, id, &accept_with(PEER_QP));
        assert_eq!(accepted, Ok(()));
    }
}

#[test]
fn a_listener_that_ends_rejects_what_waits() {
    let mut pair = Pair::new();
    pair.accepts = false;
    pair.connect();
    pair.run(START);
    let (_, EventKind::Request { listener, .. }) = pair.told[1][0].clone() else {
        panic!("a request");
    };
    pair.ends[1].0.unlisten(START, listener);
    pair.run(START);
    assert_eq!(pair.names(0), ["Rejected"]);
    assert_eq!(pair.ends[1].0.connections(), 0);
    pair.connect();
    pair.run(START + LISTENER_WAIT);
    let (_, EventKind::Rejected { reason, .. }) = &pair.told[0][1] else {
        panic!("rejected");
    };
    assert_eq!(*reason, Reason::INVALID_SERVICE_ID);
}

/// A pair whose passive end does not listen.
fn pair_without_listener() -> Pair {
    let mut pair = Pair::new();
    pair.ends[1].0 = manager(PEER, PEER_GUID);
    pair
}

#[test]
fn a_request_waits_for_a_listener_that_is_late() {
    let mut pair = pair_without_listener();
    pair.connect();
    let late = START + LISTENER_WAIT - Duration::from_millis(1);
    pair.run(late);
    assert_eq!(pair.sent, ["REQ"], "no rejection yet");
    pair.ends[1].0.listen(TCP, None, 4).expect("listen");
    pair.run(late);
    assert_eq!(pair.names(1), ["Request", "Established"]);
    assert_eq!(pair.names(0), ["Reply"]);
    pair.run(LATER);
    assert!(!pair.sent.contains(&"REJ"), "{:?}", pair.sent);
}

#[test]
fn a_request_without_listener_is_rejected_once_when_its_time_is_over() {
    let mut pair = pair_without_listener();
    pair.repeated = vec![0];
    pair.connect();
    let other = ServiceId::of(PortSpace::Tcp, 1);
    pair.run(START);
    pair.ends[1].0.listen(other, None, 4).expect("listen");
    pair.run(START + LISTENER_WAIT - Duration::from_millis(1));
    assert_eq!(pair.sent, ["REQ"]);
    pair.run(START + LISTENER_WAIT);
    assert_eq!(pair.sent, ["REQ", "REJ"]);
    assert_eq!(pair.names(0), ["Rejected"]);
    assert_eq!(pair.ends[1].0.deadline(), None, "nothing is left");
}

#[test]
fn a_question_for_a_service_waits_for_a_listener_too() {
    let mut pair = pair_without_listener();
    let question = |port| Resolve {
        local: OWN,
        vlan: None,
        remote: PEER,
        service: ServiceId::of(PortSpace::Udp, port),
        source_port: 40_000,
        traffic_class: 0,
        private_data: Vec::new(),
    };
    for port in [7174, 7175] {
        let (client, _) = &mut pair.ends[0];
        client.resolve(START, &question(port)).expect("resolve");
    }
    pair.run(START);
    assert_eq!(pair.sent, ["SIDR_REQ", "SIDR_REQ"]);
    pair.ends[1].0.listen(UDP, None, 4).expect("listen");
    pair.run(START);
    assert_eq!(pair.names(1), ["ServiceRequest"]);
    assert!(pair.names(0).is_empty());
    pair.run(START + LISTENER_WAIT);
    assert_eq!(
        pair.names(0),
        ["ServiceReply"],
        "of the service without listener"
    );
}

#[test]
fn requests_beyond_those_that_may_wait_are_rejected_at_once() {
    let mut pair = pair_without_listener();
    let (client, _) = &mut pair.ends[0];
    for number in 0..=MAX_HELD as u32 {
        client
            .connect(START, &connect_to(OWN, PEER, OWN_QP + number))
            .expect("connect");
    }
    pair.run(START);
    let rejections = pair.sent.iter().filter(|name| **name == "REJ").count();
    assert_eq!(rejections, 1);
}

#[test]
fn request_and_reply_carry_all_of_their_private_data() {
    let mut pair = Pair::new();
    pair.accepts = false;
    let pattern = |length: u8| -> Vec<u8> { (1..=length).collect() };
    let asked = Connect {
        private_data: pattern(56),
        ..connect_to(OWN, PEER, OWN_QP)
    };
    pair.ends[0].0.connect(START, &asked).expect("connect");
    pair.run(START);
    let (id, EventKind::Request { private_data, .. }) = &pair.told[1][0] else {
        panic!("{:?}", pair.told[1]);
    };
    assert_eq!(*private_data, pattern(56));
    let answer = Accept {
        private_data: pattern(196),
        ..accept_with(PEER_QP)
    };
    pair.ends[1].0.accept(START, *id, &answer).expect("accept");
    pair.run(START);
    let (_, EventKind::Reply { private_data, .. }) = &pair.told[0][0] else {
        panic!("{:?}", pair.told[0]);
    };
    assert_eq!(*private_data, pattern(196));
}

#[test]
fn a_reply_with_the_queue_pair_of_another_connection_is_refused_as_stale() {
    let mut pair = Pair::new();
    let old = pair.connect();
    pair.run(START);
    // The passive program answers with the queue pair of the first connection again.
    let again = connect_to(OWN, PEER, OWN_QP + 1);
    let new = pair.ends[0].0.connect(START, &again).expect("connect");
    pair.run(START);
    let told = |id: ConnectionId| -> Vec<&'static str> {
        let own = pair.told[0].iter().filter(|(whose, _)| *whose == id);
        own.map(|(_, kind)| event_name(kind)).collect()
    };
    assert_eq!(told(new), Vec::<&str>::new(), "no reply is taken");
    assert_eq!(told(old), ["Reply", "Disconnected"], "the old one ends");
    assert!(pair.sent.contains(&"REJ"), "{:?}", pair.sent);
    let reasons = pair.told[1].iter().filter_map(|(_, kind)| match kind {
        EventKind::Rejected { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [Reason::STALE_CONNECTION]);
}

#[test]
fn a_rejection_carries_all_of_its_private_data() {
    let mut pair = Pair::new();
    pair.accepts = false;
    pair.connect();
    pair.run(START);
    let refusal = Refused {
        reason: Reason::CONSUMER,
        additional_information: vec![1, 2, 3],
        private_data: vec![9; 148],
    };
    pair.ends[1]
        .0
        .reject(pair.told[1][0].0, &refusal)
        .expect("reject");
    pair.run(START);
    let (_, told) = &pair.told[0][0];
    let expected = EventKind::Rejected {
        reason: Reason::CONSUMER,
        additional_information: vec![1, 2, 3],
        private_data: vec![9; 148],
    };
    assert_eq!(*told, expected);
}

#[test]
fn a_datagram_service_is_resolved_once_however_often_the_question_comes() {
    let mut pair = Pair::new();
    pair.ends[1].0.listen(UDP, None, 4).expect("listen");
    pair.repeated.push(0);
    let resolve = Resolve {
        local: OWN,
        vlan: None,
        remote: PEER,
        service: UDP,
        source_port: 50_000,
        traffic_class: 0,
        private_data: vec![3; 180],
    };
    pair.ends[0].0.resolve(START, &resolve).expect("resolve");
    pair.run(START);
    assert_eq!(pair.names(1), ["ServiceRequest"]);
    let answer = ServiceAnswer {
        status: ServiceStatus::VALID,
        queue_pair: PEER_QP,
        queue_key: 0x0123_4567,
        private_data: vec![4; 136],
    };
    pair.ends[1]
        .0
        .answer(pair.told[1][0].0, &answer)
        .expect("answer");
    pair.run(START);
    let (_, told) = &pair.told[0][0];
    let expected = EventKind::ServiceReply {
        status: ServiceStatus::VALID,
        queue_pair: PEER_QP,
        queue_key: 0x0123_4567,
        private_data: vec![4; 136],
    };
    assert_eq!(*told, expected);
    assert_eq!(pair.sent, ["SIDR_REQ", "SIDR_REP"]);
}
