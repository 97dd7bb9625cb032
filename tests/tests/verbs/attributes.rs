//! The attributes that verbs set on a queue pair, and its reset.

use ringside_config::LocalAddress;
use ringside_pmd::rdma::{
    Access, Connected, ConnectionChange, Destination, Endpoint, Flags, Initialised, QueuePair,
    QueuePairConfig, QueuePairStage, RdmaError, ReceiveAttributes, SendAttributes,
    SharedReceiveConfig, Status, timer_steps,
};
use ringside_testkit::Pair;
use std::time::Duration;

fn connect_in_steps(
    qp: QueuePair<Initialised>,
    peer: &QueuePair<Initialised>,
    send: &SendAttributes,
) -> QueuePair<Connected> {
    let peer = peer.endpoint();
    let mut path = Destination::from(&peer);
    path.traffic_class = 0xB8;
    path.hop_limit = 9;
    let receiving = qp
        .receive_from(&ReceiveAttributes {
            path,
            queue_pair: peer.queue_pair,
            psn: peer.start_psn,
            path_mtu: 512,
            inbound_reads: 4,
        })
        .expect("to receive");
    let report = receiving.query().expect("an answer");
    assert_eq!(report.stage, QueuePairStage::ReadyToReceive);
    receiving.send_from(send).expect("to send")
}

#[test]
fn what_is_set_on_the_way_to_sending_is_what_a_query_gives_back() {
    let pair = Pair::new();
    let (qp, peer) = (
        pair.a
            .queue_pair(pair.a.config().remote_access(Access::REMOTE_READ)),
        pair.b.queue_pair(pair.b.config()),
    );
    let send = SendAttributes {
        psn: qp.endpoint().start_psn,
        retries: 2,
        acknowledge_timeout: 17,
        receiver_not_ready_retries: 5,
        outbound_reads: 3,
    };
    let qp = connect_in_steps(qp, &peer, &send);
    let report = qp.query().expect("an answer");
    assert_eq!(report.stage, QueuePairStage::ReadyToSend);
    assert_eq!((report.retries, report.receiver_not_ready_retries), (2, 5));
    assert_eq!(report.retransmission_timeout, timer_steps(17));
    assert_eq!((report.outbound_reads, report.inbound_reads), (3, 4));
    assert_eq!((report.traffic_class, report.hop_limit), (0xB8, 9));
    assert_eq!((report.path_mtu, report.partition_key), (512, 0xFFFF));
    assert!(report.reads_allowed && !report.writes_allowed);
    drop((qp, peer));
    pair.finish();
}

#[test]
fn values_that_the_card_does_not_take_are_refused_by_name() {
    let pair = Pair::new();
    let refused = |config: QueuePairConfig| {
        let refused = pair.a.domain.queue_pair(config).expect_err("out of range");
        refused.to_string()
    };
    let text = refused(pair.a.config().partition_key_index(1));
    assert!(
        text.contains("partition key") && text.contains('1'),
        "{text}"
    );
    let (qp, peer) = (
        pair.a.queue_pair(pair.a.config()),
        pair.b.queue_pair(pair.b.config()),
    );
    let endpoint = peer.endpoint();
    let receiving = qp.receive_from(&ReceiveAttributes {
        path: Destination::from(&endpoint),
        queue_pair: endpoint.queue_pair,
        psn: endpoint.start_psn,
        path_mtu: 1024,
        inbound_reads: 4,
    });
    let refused = receiving.expect("to receive").send_from(&SendAttributes {
        psn: 0,
        retries: 7,
        acknowledge_timeout: 32,
        receiver_not_ready_retries: 7,
        outbound_reads: 1,
    });
    let text = refused.expect_err("32 is no code").to_string();
    assert!(text.contains("acknowledge timeout"), "{text}");
    drop(peer);
    pair.finish();
}

/// The time until a write to a peer that does not respond fails, without retries.
fn time_to_fail(code: u8) -> Duration {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, peer) = pair.connect(|config| config.retries(0).acknowledge_timeout(code));
    drop(peer);
    let clock = pair.world.clock();
    let before = clock.now();
    let pieces = [from.slice(0..8).unwrap()];
    qp.write(1, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    while !pair
        .a
        .events()
        .iter()
        .any(|event| matches!(event, ringside_pmd::rdma::Event::QueuePairFailed { .. }))
    {
        pair.pass();
        assert!(clock.now().since(before) < Duration::from_secs(60));
    }
    let took = clock.now().since(before);
    assert_eq!(pair.wait_a(1)[0].status(), Status::RetryExceeded);
    drop((qp, from, to));
    pair.finish();
    took
}

#[test]
fn an_acknowledge_timeout_decides_when_a_silent_peer_is_given_up() {
    let (short, long) = (time_to_fail(14), time_to_fail(17));
    assert!(short >= Duration::from_millis(67), "{short:?}");
    assert!(long >= Duration::from_millis(536), "{long:?}");
    assert!(long > 4 * short, "{short:?}, {long:?}");
}

#[test]
fn without_the_right_of_the_queue_pair_a_peer_s_read_is_refused() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let a = pair.a.queue_pair(pair.a.config());
    let mut b = pair.b.queue_pair(pair.b.config());
    b.set_remote_access(Access::REMOTE_WRITE);
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut a, b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    let pieces = [from.slice(0..8).unwrap()];
    a.write(1, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert!(pair.wait_a(1)[0].is_success());
    a.read(2, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    for _ in 0..100 {
        pair.pass();
        pair.a.events();
        pair.b.events();
    }
    assert_eq!(pair.wait_a(1)[0].status(), Status::RemoteInvalidRequest);
    drop((a, b, from, to));
    pair.finish();
}

/// Connects two queue pairs and has the first write to the second's side.
fn write_once(pair: &mut Pair, a: QueuePair, b: QueuePair) -> [QueuePair<Connected>; 2] {
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut a, b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    assert!(from.write(0, b"once"));
    let pieces = [from.slice(0..4).unwrap()];
    a.write(9, &pieces, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let done = pair.wait_a(1);
    assert_eq!((done[0].id, done[0].status()), (9, Status::Success));
    let mut arrived = [0; 4];
    assert!(to.read(0, &mut arrived));
    assert_eq!(&arrived, b"once");
    [a, b]
}

#[test]
fn a_queue_pair_begins_again_from_every_state_under_its_number() {
    let mut pair = Pair::new();
    let (a, b) = (
        pair.a.queue_pair(pair.a.config().retries(3)),
        pair.b.queue_pair(pair.b.config()),
    );
    let numbers = (a.number(), b.number());
    let spare = pair.a.region(64);
    // From INIT, with receives posted.
    let mut a = a;
    a.receive(1, &[spare.slice(0..8).unwrap()]).unwrap();
    let (a, b) = (a.reset().unwrap(), b.reset().unwrap());
    assert_eq!(a.receives_outstanding(), 0);
    // From RTS, with a receive posted that nothing will use.
    let [mut a, b] = write_once(&mut pair, a, b);
    a.receive(2, &[spare.slice(0..8).unwrap()]).unwrap();
    let (a, b) = (a.reset().unwrap(), b.reset().unwrap());
    // From SQD, and from the error state.
    let [a, mut b] = write_once(&mut pair, a, b);
    let a = a.drain().unwrap().reset().unwrap();
    b.fail().unwrap();
    let b = b.reset().unwrap();
    assert_eq!((a.number(), b.number()), numbers);
    let report = a.query().unwrap();
    assert_eq!(report.stage, QueuePairStage::Initialised);
    assert_eq!(report.retries, 3, "what it was made with");
    let [a, b] = write_once(&mut pair, a, b);
    // Nothing of the earlier lives is reported.
    pair.pass();
    let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 8];
    assert!(pair.a.completions.poll(&mut batch).is_empty());
    let usage = pair.a.device.object_usage().unwrap();
    assert_eq!(usage.queue_pairs.used, 1);
    drop((a, b, spare));
    pair.finish();
}

#[test]
fn a_datagram_queue_pair_begins_again_and_takes_another_key() {
    let pair = Pair::new();
    let made = pair.a.domain.datagram_queue_pair(pair.a.config()).unwrap();
    let number = made.number();
    let ready = made.ready(7).unwrap();
    let again = ready.reset().unwrap().ready(8).unwrap();
    assert_eq!((again.number(), again.queue_key()), (number, 8));
    assert_eq!(again.query().unwrap().queue_key, 8);
    drop(again);
    pair.finish();
}

#[test]
fn a_fed_queue_pair_is_not_reset_and_comes_back() {
    let pair = Pair::new();
    let mut shared = pair
        .a
        .domain
        .shared_receive_queue(&SharedReceiveConfig::default())
        .unwrap();
    let mut qp = pair.a.queue_pair(pair.a.config());
    shared.attach(&mut qp).unwrap();
    let refused = qp.reset().unwrap_err();
    assert!(matches!(refused.error, RdmaError::Fed { .. }), "{refused}");
    let qp = refused.into_queue_pair().expect("as it was");
    shared.destroy(qp).unwrap();
    drop(shared);
    pair.finish();
}

#[test]
fn a_service_level_is_the_priority_of_the_vlan_wherever_the_vlan_comes_from() {
    let pair = Pair::new();
    let address = LocalAddress {
        vlan: Some(100),
        ..LocalAddress::new("10.9.0.1".parse().unwrap(), 24)
    };
    let gid = pair.a.device.add_address(address).unwrap();
    let made = |config: QueuePairConfig| pair.a.domain.queue_pair(config);
    let config = || pair.a.config();
    for config in [
        config().gid_index(gid.index).service_level(5),
        config().service_level(5).gid_index(gid.index),
        config().vlan_tag(0x2064).service_level(5),
        config().service_level(5).vlan_tag(100),
    ] {
        assert_eq!(made(config).unwrap().vlan_tag(), Some(0xA064));
    }
    assert_eq!(made(config().service_level(5)).unwrap().vlan_tag(), None);
    for (config, what) in [
        (config().service_level(8), "service level"),
        (config().vlan_tag(100).service_level(255), "service level"),
        (config().vlan_tag(4095), "VLAN"),
        (config().vlan_tag(0xFFFF), "VLAN"),
        (config().hop_limit(0), "hop limit"),
        (config().acknowledge_timeout(32), "acknowledge timeout"),
    ] {
        let error = made(config).unwrap_err();
        assert!(matches!(error, RdmaError::OutOfRange { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    pair.finish();
}

#[test]
fn a_peer_that_is_no_single_station_is_refused_by_its_address() {
    let pair = Pair::new();
    let peer = pair.b.queue_pair(pair.b.config());
    for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        let address = address.parse().unwrap();
        let endpoint = Endpoint {
            address,
            ..peer.endpoint()
        };
        let queue_pair = pair.a.queue_pair(pair.a.config());
        let refused = queue_pair.connect(&endpoint).unwrap_err();
        assert_eq!(refused.error, RdmaError::NotUnicast { address });
    }
    for address in ["0.0.0.0", "239.1.1.1", "255.255.255.255", "127.0.0.1"] {
        let address = address.parse().unwrap();
        let refused = Err(RdmaError::NotUnicast { address });
        let config = pair.a.config().local_address(address);
        assert_eq!(pair.a.domain.queue_pair(config).map(drop), refused);
        let from = Destination {
            local_address: Some(address),
            ..Destination::from(&peer.endpoint())
        };
        assert_eq!(pair.a.domain.address_handle(&from).map(drop), refused);
    }
    let destination = Destination::from(&peer.endpoint());
    let zero = Destination {
        address: "0.0.0.0".parse().unwrap(),
        ..destination
    };
    for (wrong, what) in [
        (zero, "unicast"),
        (destination.service_level(8), "service level"),
        (
            Destination {
                vlan_tag: Some(4095),
                ..destination
            },
            "VLAN",
        ),
        (
            Destination {
                hop_limit: 0,
                ..destination
            },
            "hop limit",
        ),
    ] {
        let error = pair.a.domain.address_handle(&wrong).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    drop(peer);
    pair.finish();
}

#[test]
fn what_a_configuration_sets_is_what_a_query_gives_back() {
    let pair = Pair::new();
    let (qp, peer) = pair.connect(|config| {
        config
            .receive_requests(900)
            .outbound_reads(3)
            .inbound_reads(5)
            .flow_label(0xABCDE)
            .hop_limit(7)
            .traffic_class(0x28)
    });
    let report = qp.query().expect("an answer");
    assert_eq!((report.outbound_reads, report.inbound_reads), (3, 5));
    assert_eq!((report.hop_limit, report.traffic_class), (7, 0x28));
    assert_eq!(report.flow_label, 0xABCDE);
    assert!((900..1800).contains(&report.receives), "{report:?}");
    drop((qp, peer));
    pair.finish();
}

#[test]
fn what_is_set_while_it_only_receives_holds_once_it_sends() {
    let pair = Pair::new();
    let (qp, peer) = (
        pair.a.queue_pair(pair.a.config()),
        pair.b.queue_pair(pair.b.config()),
    );
    let send = SendAttributes {
        psn: qp.endpoint().start_psn,
        retries: 2,
        acknowledge_timeout: 17,
        receiver_not_ready_retries: 5,
        outbound_reads: 1,
    };
    let endpoint = peer.endpoint();
    let mut path = Destination::from(&endpoint);
    path.vlan_tag = Some(0x2064);
    path.flow_label = 0x12345;
    let mut receiving = qp
        .receive_from(&ReceiveAttributes {
            path,
            queue_pair: endpoint.queue_pair,
            psn: endpoint.start_psn,
            path_mtu: 1024,
            inbound_reads: 4,
        })
        .expect("to receive");
    receiving.set_remote_access(Access::REMOTE_READ);
    let qp = receiving.send_from(&send).expect("to send");
    let report = qp.query().expect("an answer");
    assert!(report.reads_allowed && !report.writes_allowed);
    assert_eq!(report.vlan_tag, Some(0x2064));
    assert_eq!(report.flow_label, 0x12345);
    drop((qp, peer));
    pair.finish();
}

#[test]
fn the_timeout_that_is_set_last_counts() {
    let pair = Pair::new();
    let timeout = |change: fn(QueuePairConfig) -> QueuePairConfig| {
        let (qp, peer) = pair.connect(change);
        let report = qp.query().expect("an answer");
        drop((qp, peer));
        report.retransmission_timeout
    };
    assert_eq!(timeout(|config| config.retransmission_timeout(9)), 9);
    let last = timeout(|config| config.acknowledge_timeout(17).retransmission_timeout(9));
    assert_eq!(last, 9);
    let last = timeout(|config| config.retransmission_timeout(9).acknowledge_timeout(17));
    assert_eq!(last, timer_steps(17));
    pair.finish();
}

#[test]
fn what_a_queue_pair_may_not_receive_with_is_refused_by_name() {
    let pair = Pair::new();
    let peer = pair.b.queue_pair(pair.b.config());
    let endpoint = peer.endpoint();
    let right = ReceiveAttributes {
        path: Destination::from(&endpoint),
        queue_pair: endpoint.queue_pair,
        psn: endpoint.start_psn,
        path_mtu: 1024,
        inbound_reads: 4,
    };
    let wrong = [
        (
            ReceiveAttributes {
                path_mtu: 1000,
                ..right
            },
            "MTU",
        ),
        (
            ReceiveAttributes {
                inbound_reads: 128,
                ..right
            },
            "inbound reads",
        ),
    ];
    for (wanted, named) in wrong {
        let qp = pair.a.queue_pair(pair.a.config());
        let refused = qp.receive_from(&wanted).expect_err("out of range");
        let text = refused.to_string();
        assert!(text.contains(named), "{text}");
    }
    drop(peer);
    pair.finish();
}

#[test]
fn a_connection_in_use_takes_other_rights_and_refuses_retries_out_of_range() {
    let pair = Pair::new();
    let (mut qp, peer) = pair.connect(|config| config.remote_access(Access::REMOTE_READ));
    let rights = |qp: &QueuePair<Connected>| {
        let report = qp.query().expect("an answer");
        (report.reads_allowed, report.writes_allowed)
    };
    assert_eq!(rights(&qp), (true, false));
    for (retries, not_ready) in [(Some(8), None), (None, Some(8))] {
        let refused = qp.change(&ConnectionChange {
            retries,
            receiver_not_ready_retries: not_ready,
            remote_access: Some(Access::ALL),
            ..ConnectionChange::default()
        });
        let text = refused.expect_err("7 at most").to_string();
        assert!(text.contains("retry count"), "{text}");
        assert_eq!(rights(&qp), (true, false), "the old values stay");
    }
    qp.change(&ConnectionChange {
        remote_access: Some(Access::ALL),
        ..ConnectionChange::default()
    })
    .expect("possible");
    assert_eq!(rights(&qp), (true, true));
    drop((qp, peer));
    pair.finish();
}
