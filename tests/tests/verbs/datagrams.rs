//! Datagram queue pairs, address handles, multicast groups.

use ringside_model::Fault;
use ringside_pmd::rdma::{
    AddressHandle, DatagramReady, Destination, Flags, PostError, QueuePair, QueuePairConfig,
    RdmaError, To,
};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{End, Pair};
use std::net::IpAddr;

pub(crate) const KEY: u32 = 0x1234_5678;

pub(crate) fn ready(end: &End) -> QueuePair<DatagramReady> {
    let config = QueuePairConfig::datagram(&end.completions);
    let made = end.domain.datagram_queue_pair(config);
    made.expect("a queue pair").ready(KEY).expect("ready")
}

pub(crate) fn handle_to(from: &End, to: &QueuePair<DatagramReady>) -> AddressHandle {
    let destination = Destination::from(&to.endpoint());
    from.domain.address_handle(&destination).expect("a handle")
}

#[test]
fn an_invalid_datagram_is_refused_when_it_is_posted() {
    let pair = Pair::new();
    let mut qp = ready(&pair.a);
    let peer = ready(&pair.b);
    let region = pair.a.region(8192);
    let handle = handle_to(&pair.a, &peer);
    let to = To {
        handle: &handle,
        queue_pair: peer.number(),
        queue_key: KEY,
    };
    let long = [region.slice(0..4097).unwrap()];
    let error = qp
        .post_send_to(1, &to, &long, None, Flags::NONE)
        .unwrap_err();
    let expected = PostError::DatagramTooLong {
        length_bytes: 4097,
        most: 4096,
    };
    assert_eq!(error, expected);
    let other = pair.a.device.protection_domain().unwrap();
    let destination = *handle.destination();
    let foreign = other.address_handle(&destination).unwrap();
    let to = To {
        handle: &foreign,
        ..to
    };
    let short = [region.slice(0..8).unwrap()];
    let error = qp
        .post_send_to(1, &to, &short, None, Flags::NONE)
        .unwrap_err();
    assert!(
        matches!(error, PostError::ForeignAddressHandle { .. }),
        "{error}"
    );
    drop((qp, peer, region, handle, foreign, other));
    pair.finish();
}

#[test]
fn handles_are_freed_and_their_quota_is_reported() {
    let mut config = ringside_testkit::config();
    config.rdma.address_handles = 3;
    let pair = Pair::with(&config);
    let before = pair.a.device.object_usage().unwrap();
    let peer = ready(&pair.b);
    for _ in 0..20 {
        let handles: Vec<_> = (0..3).map(|_| handle_to(&pair.a, &peer)).collect();
        let destination = Destination::from(&peer.endpoint());
        let error = pair.a.domain.address_handle(&destination).unwrap_err();
        assert!(
            error.to_string().contains("rdma.address_handles"),
            "{error}"
        );
        drop(handles);
    }
    assert_eq!(pair.a.device.object_usage().unwrap(), before);
    let family = Destination {
        local_address: Some("fe80::1".parse().unwrap()),
        ..Destination::from(&peer.endpoint())
    };
    let error = pair.a.domain.address_handle(&family).unwrap_err();
    assert!(matches!(error, RdmaError::AddressFamily { .. }), "{error}");
    drop(peer);
    pair.finish();
}

#[test]
fn a_group_takes_eight_queue_pairs_and_goes_with_the_last() {
    let pair = Pair::new();
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let members: Vec<_> = (0..9).map(|_| ready(&pair.a)).collect();
    for member in &members[..8] {
        member.join(group).unwrap();
        member.join(group).unwrap();
    }
    let error = members[8].join(group).unwrap_err();
    assert!(
        matches!(error, RdmaError::GroupFull { members: 8, .. }),
        "{error}"
    );
    let error = members[8].leave(group).unwrap_err();
    assert!(matches!(error, RdmaError::NotInGroup { .. }), "{error}");
    let error = members[8].join("10.0.0.9".parse().unwrap()).unwrap_err();
    assert!(matches!(error, RdmaError::NotMulticast { .. }), "{error}");
    members[0].leave(group).unwrap();
    members[8].join(group).unwrap();
    let used = |pair: &Pair| pair.a.device.object_usage().unwrap().multicast_groups.used;
    assert_eq!(used(&pair), 1);
    drop(members);
    assert_eq!(used(&pair), 0);
    pair.finish();
}

#[test]
fn a_device_has_as_many_next_hops_and_groups_as_its_configuration_says() {
    for number in [1, 2, 6] {
        let mut config = ringside_testkit::config();
        config.rdma.arp_entries = u32::from(number);
        config.rdma.multicast_groups = u32::from(number);
        let pair = Pair::with(&config);
        let (local, peer) = (ready(&pair.a), ready(&pair.b));
        let handles: Vec<_> = (0..number)
            .map(|last| {
                let mut destination = Destination::from(&peer.endpoint());
                destination.mac = [2, 0, 0, 0, 0, last];
                pair.a.domain.address_handle(&destination).unwrap()
            })
            .collect();
        for last in 0..number {
            local.join(IpAddr::from([239, 1, 2, last])).unwrap();
        }
        drop((handles, local, peer));
        pair.finish();
    }
}

#[test]
fn an_entry_that_the_device_refuses_for_an_address_is_free_again() {
    let mut config = ringside_testkit::config();
    config.rdma.arp_entries = 8;
    let pair = Pair::with(&config);
    let peer = ready(&pair.b);
    let destination = Destination::from(&peer.endpoint());
    let to = |last| Destination {
        mac: [2, 0, 0, 0, 0, last],
        ..destination
    };
    let fault = Fault::ControlCommandFails {
        opcode: Opcode::ManageArp.code(),
        major: 0x1234,
        minor: 0x5678,
    };
    pair.world.with(|world| world.inject(0, fault));
    for last in 0..20 {
        let refused = pair.a.domain.address_handle(&to(last)).unwrap_err();
        assert!(matches!(refused, RdmaError::Control(_)), "{refused}");
    }
    pair.world.with(|world| world.clear_faults(0));
    let handles = [1, 2, 3, 4].map(|last| pair.a.domain.address_handle(&to(last)));
    assert!(handles.iter().all(Result::is_ok), "{handles:?}");
    drop((handles, peer));
    pair.finish();
}
