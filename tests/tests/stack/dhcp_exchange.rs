//! The messages that a stack exchanges with DHCP servers: the answers that count, renewals, and
//! searches when the link comes up.

use crate::bed::Raw;
use crate::dhcp_server::{
    GRANT, Grant, OFFERED, OTHER_SERVER, SERVER, answer, in_two, is_answered, lease, lease_of,
    request, searching, serve_by,
};
use crate::frames::{QUESTION, is_arp, question, sent};
use ringside_stack::Stack;
use smoltcp::wire::DhcpMessageType;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A second server or relay hears the same requests, and every station hears broadcasts.
#[test]
fn answers_that_no_request_waits_for_change_no_lease() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let mut heard = Vec::new();
    for _ in 0..2000 {
        if stack.leased().is_some() {
            break;
        }
        heard.extend(serve_by(&bed, &mut stack, &mut server, |kind| match kind {
            DhcpMessageType::Discover => vec![(DhcpMessageType::Offer, GRANT)],
            _ => vec![(DhcpMessageType::Ack, GRANT)],
        }));
        bed.pass();
    }
    let id = heard.last().expect("a request").1;
    let (client, mac) = (stack.port().mac(), server.port.mac());
    let elsewhere = Grant {
        address: Ipv4Addr::new(198, 51, 100, 99),
        ..GRANT
    };
    for of in [GRANT.server, OTHER_SERVER] {
        for (kind, grant) in [
            (DhcpMessageType::Nak, GRANT),
            (DhcpMessageType::Ack, elsewhere),
            (DhcpMessageType::Offer, elsewhere),
        ] {
            let grant = Grant {
                server: of,
                ..grant
            };
            let message = answer(kind, id, (client, grant), mac);
            server.send(&message);
            for part in in_two(&message) {
                server.send(&part);
            }
            sent(&bed, &mut stack, &mut server, 20);
            let leased = stack.leased().map(|leased| leased.address);
            assert_eq!(leased, Some(IpAddr::V4(OFFERED)), "{kind:?} of {of}");
        }
    }
    assert!(is_answered(&bed, &mut stack, &mut server));
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The stack with a lease of two minutes, up to the request that `answers` is called for: the
/// renewal a minute later, or the rebinding, if it answers nothing to that. The address that is
/// leased after `seconds`.
fn renewed_by(
    seconds: u64,
    answers: impl Fn(usize) -> Vec<(DhcpMessageType, Grant)>,
) -> Option<IpAddr> {
    address_and_routers_after(seconds, answers).0
}

/// The same, with the stack's routers.
fn address_and_routers_after(
    seconds: u64,
    answers: impl Fn(usize) -> Vec<(DhcpMessageType, Grant)>,
) -> (Option<IpAddr>, Vec<IpAddr>) {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let grant = Grant {
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    let (clock, mac) = (bed.world.clock(), server.port.mac());
    let mut requests = 0;
    for _ in 0..seconds {
        clock.pause(Duration::from_secs(1));
        // The stack asks this server alone, whose MAC address it has to know.
        server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
        for _ in 0..10 {
            let heard = serve_by(&bed, &mut stack, &mut server, |kind| match kind {
                DhcpMessageType::Request => answers(requests),
                _ => Vec::new(),
            });
            requests += heard.len();
            bed.pass();
        }
    }
    let leased = stack.leased().map(|leased| leased.address);
    let routers = stack.gateways().to_vec();
    drop(stack);
    bed.finish([near, server.into_device()]);
    (leased, routers)
}

#[test]
fn a_renewal_is_refused_by_the_server_of_the_lease_and_by_no_other() {
    let refused_by = |server| vec![(DhcpMessageType::Nak, Grant { server, ..GRANT })];
    let leased = renewed_by(70, |_| refused_by(OTHER_SERVER));
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)));
    assert_eq!(renewed_by(70, |_| refused_by(SERVER)), None);
}

#[test]
fn any_server_answers_a_station_that_hears_no_more_of_the_one_of_its_lease() {
    let other = Grant {
        server: OTHER_SERVER,
        ..GRANT
    };
    let leased = renewed_by(150, |before| match before {
        0 => Vec::new(),
        _ => vec![(DhcpMessageType::Ack, other)],
    });
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)));
    assert_eq!(renewed_by(150, |_| Vec::new()), None, "its time is over");
}

/// The former server is back, without its table: the stack asks it first, a minute after the
/// rebinding.
#[test]
fn after_a_rebinding_the_lease_and_the_router_are_those_of_the_server_that_granted_it() {
    let other = Grant {
        server: OTHER_SERVER,
        router: OTHER_SERVER,
        seconds: 120,
        ..GRANT
    };
    let requests = Cell::new(0);
    let (leased, routers) = address_and_routers_after(215, |before| {
        requests.set(before + 1);
        match before {
            0 => Vec::new(),
            2 => vec![(DhcpMessageType::Nak, GRANT)],
            _ => vec![(DhcpMessageType::Ack, other)],
        }
    });
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)));
    assert_eq!(routers, [IpAddr::V4(OTHER_SERVER)]);
    assert_eq!(requests.get(), 4, "two renewals and two rebindings");
}

#[test]
fn a_lease_that_came_through_a_relay_is_renewed_at_its_server() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let grant = Grant {
        server: Ipv4Addr::new(203, 0, 113, 5),
        relay: Some(SERVER),
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    let (clock, mac) = (bed.world.clock(), server.port.mac());
    let mut renewed_at = Vec::new();
    for _ in 0..70 {
        clock.pause(Duration::from_secs(1));
        // The router, whose MAC address the stack has to know.
        server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
        let frames = sent(&bed, &mut stack, &mut server, 10);
        let requests = frames.iter().filter(|frame| request(frame).is_some());
        renewed_at
            .extend(requests.map(|frame| Ipv4Addr::from([30, 31, 32, 33].map(|at| frame[at]))));
    }
    assert_eq!(renewed_at, [grant.server]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// True for an announcement of the address of the lease.
fn is_announcement(frame: &[u8]) -> bool {
    is_arp(frame, QUESTION) && [&frame[28..32], &frame[38..42]] == [OFFERED.octets(); 2]
}

/// Searches that were sent before have left no port.
#[test]
fn a_server_is_searched_for_at_once_when_the_link_comes_up() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let silent = |stack: &mut Stack, server: &mut Raw| {
        let mut heard = Vec::new();
        for _ in 0..20 {
            heard.extend(serve_by(&bed, stack, server, |_| Vec::new()));
            bed.pass();
        }
        heard.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(silent(&mut stack, &mut server), [DhcpMessageType::Discover]);
    bed.world.clock().pause(Duration::from_secs(3));
    assert_eq!(silent(&mut stack, &mut server), []);
    stack.announce_again(bed.world.clock().now());
    assert_eq!(silent(&mut stack, &mut server), [DhcpMessageType::Discover]);
    lease(&bed, &mut stack, &mut server);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// A lease of two minutes, whose link comes up again; the addresses that are leased in each of the
/// next seconds, with a server that answers by `after`, and the announcements of the first lease.
fn leased_after_the_link_was_down(after: Option<Grant>) -> (Vec<Option<IpAddr>>, usize) {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let grant = Grant {
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    for _ in 0..30 {
        bed.world.clock().pause(Duration::from_secs(1));
        sent(&bed, &mut stack, &mut server, 2);
    }
    stack.announce_again(bed.world.clock().now());
    let (client, mac) = (stack.port().mac(), server.port.mac());
    let (mut leased, mut announcements) = (Vec::new(), 0);
    for _ in 0..100 {
        for frame in (0..5)
            .flat_map(|_| sent(&bed, &mut stack, &mut server, 2))
            .collect::<Vec<_>>()
        {
            announcements += usize::from(is_announcement(&frame));
            let Some(((kind, id, _), grant)) = request(&frame).zip(after) else {
                continue;
            };
            let kind = match kind {
                DhcpMessageType::Discover => DhcpMessageType::Offer,
                _ => DhcpMessageType::Ack,
            };
            server.send(&answer(kind, id, (client, grant), mac));
        }
        leased.push(stack.leased().map(|leased| leased.address));
        bed.world.clock().pause(Duration::from_secs(1));
    }
    drop(stack);
    bed.finish([near, server.into_device()]);
    (leased, announcements)
}

#[test]
fn a_lease_that_is_granted_again_after_the_link_was_down_stays_and_is_announced_then() {
    let (leased, announcements) = leased_after_the_link_was_down(Some(GRANT));
    assert_eq!(leased, [Some(IpAddr::V4(OFFERED)); 100]);
    assert_eq!(announcements, 2);
}

#[test]
fn another_network_s_server_replaces_the_lease_and_the_former_address_is_not_announced() {
    let there = Grant {
        server: Ipv4Addr::new(203, 0, 113, 1),
        router: Ipv4Addr::new(203, 0, 113, 1),
        address: Ipv4Addr::new(203, 0, 113, 9),
        ..GRANT
    };
    let (leased, announcements) = leased_after_the_link_was_down(Some(there));
    assert_eq!(leased[5..], [Some(IpAddr::V4(there.address)); 95]);
    assert_eq!(announcements, 0);
}

#[test]
fn a_lease_that_no_server_grants_again_after_the_link_was_down_lasts_for_its_time() {
    let (leased, announcements) = leased_after_the_link_was_down(None);
    assert_eq!(leased[..88], [Some(IpAddr::V4(OFFERED)); 88]);
    assert_eq!(leased[92..], [None; 8]);
    assert_eq!(announcements, 0);
}

/// The address that is leased after the link was down, and the server has refused the request for
/// this address, which it had offered.
fn leased_after_a_refusal_of(address: Ipv4Addr) -> Option<IpAddr> {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    lease(&bed, &mut stack, &mut server);
    bed.world.clock().pause(Duration::from_secs(11));
    stack.announce_again(bed.world.clock().now());
    let offer = Grant { address, ..GRANT };
    let mut heard = Vec::new();
    for _ in 0..100 {
        heard.extend(serve_by(&bed, &mut stack, &mut server, |kind| match kind {
            DhcpMessageType::Discover => vec![(DhcpMessageType::Offer, offer)],
            _ => vec![(DhcpMessageType::Nak, offer)],
        }));
        bed.pass();
    }
    let heard: Vec<_> = heard.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(heard, [DhcpMessageType::Discover, DhcpMessageType::Request]);
    let leased = stack.leased().map(|leased| leased.address);
    let is_own = is_answered(&bed, &mut stack, &mut server);
    assert_eq!(is_own, leased.is_some());
    drop(stack);
    bed.finish([near, server.into_device()]);
    leased
}

/// RFC 2131, section 3.2 (4): an address that is refused is not used.
#[test]
fn a_lease_ends_if_its_address_is_refused_after_the_link_was_down() {
    assert_eq!(leased_after_a_refusal_of(OFFERED), None);
    let another = Ipv4Addr::new(198, 51, 100, 78);
    let leased = leased_after_a_refusal_of(another);
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)), "of another address");
}

#[test]
fn the_server_whose_offer_is_taken_decides_on_it() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let other = Grant {
        server: OTHER_SERVER,
        address: Ipv4Addr::new(198, 51, 100, 99),
        ..GRANT
    };
    for _ in 0..200 {
        serve_by(&bed, &mut stack, &mut server, |kind| match kind {
            DhcpMessageType::Discover => vec![
                (DhcpMessageType::Offer, GRANT),
                (DhcpMessageType::Offer, other),
            ],
            _ => vec![
                (DhcpMessageType::Nak, other),
                (DhcpMessageType::Ack, other),
                (DhcpMessageType::Ack, GRANT),
                (DhcpMessageType::Nak, other),
            ],
        });
        bed.pass();
    }
    let leased = stack.leased().map(|leased| leased.address);
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)));
    drop(stack);
    bed.finish([near, server.into_device()]);
}
