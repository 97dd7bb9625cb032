//! An address from a DHCP server, which is made by hand.

use crate::bed::{Bed, Raw, config, settings};
use crate::dhcp_server::{
    GRANT, Grant, OFFERED, SERVER, answer, is_answered, lease, lease_of, request, searching, serve,
};
use crate::frames::{ANSWER, QUESTION, echo, is_arp, question, sent, tagged};
use ringside_config::Within;
use ringside_pmd::Device;
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind};
use ringside_stack::{LeasedGid, Stack};
use smoltcp::wire::{DhcpMessageType, Ipv4Address};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

#[test]
fn a_granted_address_is_used_and_its_router_is_the_gateway() {
    granted((1, 0));
}

/// Each queue in turn is the stack's: the hash brings the answers to one of them only.
#[test]
fn a_server_s_answers_come_to_the_stack_s_queue_whichever_it_is() {
    for number in 0..4 {
        granted((4, number));
    }
}

#[test]
fn the_first_of_a_server_s_routers_is_the_gateway() {
    let second = Ipv4Addr::new(198, 51, 100, 2);
    let grant = Grant {
        second_router: Some(second),
        ..GRANT
    };
    assert_eq!(gateways_of(grant), [IpAddr::V4(SERVER)]);
}

/// A packet to its network asked for the MAC address of a group, which ended the stack.
#[test]
fn a_router_that_no_station_can_be_is_no_gateway() {
    for router in ["224.0.0.5", "255.255.255.255", "192.0.0.0"] {
        let grant = Grant {
            router: router.parse().unwrap(),
            mask: Some(Ipv4Addr::new(192, 0, 0, 0)),
            ..GRANT
        };
        assert_eq!(gateways_of(grant), [IpAddr::V4(SERVER); 0], "{router}");
    }
}

/// The gateways of a stack with this lease, which a host of another network has pinged.
fn gateways_of(grant: Grant) -> Vec<IpAddr> {
    let (bed, near, mut stack, mut server) = searching(&[]);
    lease_of(grant, &bed, &mut stack, &mut server);
    assert!(stack.leased().is_some(), "no lease");
    let stations = (stack.port().mac(), server.port.mac());
    server.send(&echo(stations, ([8, 8, 8, 8], OFFERED.octets()), b"far"));
    sent(&bed, &mut stack, &mut server, 20);
    let gateways = stack.gateways().to_vec();
    drop(stack);
    bed.finish([near, server.into_device()]);
    gateways
}

/// Removes the lease by hand: the server's router goes with it.
#[test]
fn a_lease_hides_the_configured_router_and_its_end_brings_that_one_back() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let configured: IpAddr = "192.0.2.254".parse().expect("an address");
    config.network.gateways = vec![configured];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    assert_eq!(stack.gateways(), [configured]);
    lease(&bed, &mut stack, &mut server);
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER), configured]);
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.leased(), None);
    assert_eq!(stack.gateways(), [configured]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// As after a recovery of the device, or where the configuration has the address, too.
#[test]
fn a_lease_of_an_address_that_the_port_has_with_another_prefix_ends_with_it() {
    let (bed, near, mut stack, mut server) = searching(&["198.51.100.77/16"]);
    lease(&bed, &mut stack, &mut server);
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.leased(), None);
    assert!(stack.gateways().is_empty(), "{:?}", stack.gateways());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// Answers no more until the lease ends, within some minutes.
fn let_end(bed: &Bed, stack: &mut Stack, server: &mut Raw) {
    for _ in 0..300 {
        bed.world.clock().pause(Duration::from_secs(1));
        sent(bed, stack, server, 1);
        if stack.leased().is_none() {
            return;
        }
    }
    panic!("the lease does not end");
}

/// `program` is called during the lease; the address is answered for after it if `stays`.
fn ends_with_the_lease(own: &str, program: impl FnOnce(&mut Stack), stays: bool) {
    let (bed, near, mut stack, mut server) = searching(&[own]);
    let grant = Grant {
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    program(&mut stack);
    assert!(is_answered(&bed, &mut stack, &mut server), "leased");
    let_end(&bed, &mut stack, &mut server);
    assert!(stack.gateways().is_empty(), "{:?}", stack.gateways());
    assert_eq!(is_answered(&bed, &mut stack, &mut server), stays);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

#[test]
fn the_end_of_a_lease_leaves_the_same_address_of_the_configuration() {
    ends_with_the_lease("198.51.100.77/24", |_| {}, true);
}

#[test]
fn an_address_that_the_program_leaves_to_a_lease_ends_with_it() {
    let leave = |stack: &mut Stack| {
        assert!(!stack.leave_to_lease(IpAddr::V4(SERVER), None));
        assert!(!stack.leave_to_lease(IpAddr::V4(OFFERED), Some(5)));
        assert!(stack.leave_to_lease(IpAddr::V4(OFFERED), None));
    };
    ends_with_the_lease("198.51.100.77/24", leave, false);
}

#[test]
fn a_leased_address_ends_with_its_lease() {
    ends_with_the_lease("192.0.2.1/24", |_| {}, false);
}

#[test]
fn a_router_that_is_set_during_a_lease_replaces_the_lease_s_one_of_its_kind() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24", "2001:db8::1/64"]);
    lease(&bed, &mut stack, &mut server);
    let [v4, v6] = ["192.0.2.254", "2001:db8::fe"].map(|text| text.parse::<IpAddr>().unwrap());
    stack.set_gateway(v6).expect("a neighbour");
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER), v6]);
    stack.set_gateway(v4).expect("a neighbour");
    assert_eq!(stack.gateways(), [v6, v4]);
    // It stays when the lease ends.
    stack
        .remove_address(IpAddr::V4(OFFERED), None)
        .expect("leased");
    assert_eq!(stack.gateways(), [v6, v4]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The addresses that ARP questions among these frames ask for, without announcements.
fn asked(frames: &[Vec<u8>]) -> Vec<Ipv4Addr> {
    let asked = |frame: &Vec<u8>| {
        let is_question = is_arp(frame, QUESTION);
        let target = Ipv4Addr::new(frame[38], frame[39], frame[40], frame[41]);
        // Announcements ask for the own address.
        (is_question && frame[28..32] != target.octets()).then_some(target)
    };
    frames.iter().filter_map(asked).collect()
}

#[test]
fn packets_to_other_networks_go_to_the_router_of_the_lease() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let configured = Ipv4Addr::new(192, 0, 2, 254);
    config.network.gateways = vec![configured.into()];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    lease(&bed, &mut stack, &mut server);
    let (to, from) = (stack.port().mac(), server.port.mac());
    let addresses = ([203, 0, 113, 5], OFFERED.octets());
    server.send(&echo((to, from), addresses, b"far"));
    let asked = asked(&sent(&bed, &mut stack, &mut server, 200));
    assert!(
        !asked.is_empty() && asked.iter().all(|target| *target == SERVER),
        "{asked:?}"
    );
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The port's automatic address has a prefix of 8 bits: 10.5.6.7 is no neighbour for that.
#[test]
fn hosts_of_10_0_0_0_are_behind_the_router_of_a_lease_there() {
    let (bed, near, mut stack, mut server) = searching(&["fd00::1/64"]);
    let (far, router) = (Ipv4Addr::new(10, 5, 6, 7), Ipv4Addr::new(10, 1, 2, 1));
    let now = || bed.world.clock().now();
    let own = Ipv4Addr::new(10, 1, 2, 3);
    let grant = Grant {
        address: own,
        router,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    let (to, from) = (stack.port().mac(), server.port.mac());
    server.send(&echo((to, from), (far.octets(), own.octets()), b"far"));
    let frames = sent(&bed, &mut stack, &mut server, 200);
    assert_eq!(asked(&frames), [router], "the answer of the echo");
    assert_eq!(stack.lookup(far.into(), Within::All, now()), Ok(None));
    let frames = sent(&bed, &mut stack, &mut server, 10);
    assert_eq!(asked(&frames), [router], "the look-up");
    server.send(&question(from, router.octets(), own.octets()));
    sent(&bed, &mut stack, &mut server, 20);
    let found = stack.lookup(far.into(), Within::All, now());
    let found = found.expect("a route").expect("the router has asked");
    assert_eq!(found.local_address, Some(own.into()));
    assert_eq!(found.mac, from);

    // Without the lease it is a neighbour.
    stack.remove_address(own.into(), None).expect("leased");
    assert_eq!(stack.lookup(far.into(), Within::All, now()), Ok(None));
    let after = asked(&sent(&bed, &mut stack, &mut server, 10));
    assert_eq!(after, [far]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

#[test]
fn a_lease_leaves_the_router_of_a_vlan_to_that_vlan() {
    let bed = Bed::new();
    let mut config = config(&["10.1.0.1/24@7"]);
    config.network.dhcp = true;
    let router: IpAddr = "10.1.0.254".parse().expect("an address");
    config.network.gateways = vec![router];
    let (near, mut stack) = bed.stack(0, &config);
    let mut server = Raw::new(&bed, 1, &settings());
    let far: IpAddr = "203.0.113.5".parse().expect("an address");
    let asks = |stack: &mut Stack| {
        let now = bed.world.clock().now();
        let found = stack.lookup(far, Within::Vlan(Some(7)), now);
        assert_eq!(found, Ok(None));
        assert!(stack.forget(router, Some(7)), "it was asked for");
    };
    asks(&mut stack);
    lease(&bed, &mut stack, &mut server);
    asks(&mut stack);
    // The interface of the VLAN has it, too.
    let (to, from) = (stack.port().mac(), server.port.mac());
    let addresses = ([203, 0, 113, 5], [10, 1, 0, 1]);
    server.send(&tagged(echo((to, from), addresses, b"far"), 7));
    let frames = sent(&bed, &mut stack, &mut server, 200);
    let untagged = |frame: Vec<u8>| [&frame[..12], &frame[16..]].concat();
    let of_vlan = frames
        .into_iter()
        .filter(|frame| frame[12..16] == [0x81, 0, 0, 7]);
    let frames: Vec<_> = of_vlan.map(untagged).collect();
    let asked: Vec<IpAddr> = asked(&frames).into_iter().map(IpAddr::V4).collect();
    assert_eq!(asked, [router]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// One that asks for a lease, and has as many addresses without a VLAN as it answers for: eight.
fn stack_without_room(bed: &Bed) -> (Device, Stack) {
    let own: Vec<String> = (1..=8).map(|last| format!("192.0.2.{last}/24")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let mut config = config(&own);
    config.network.dhcp = true;
    bed.stack(0, &config)
}

#[test]
fn a_lease_without_room_is_used_once_an_address_is_removed() {
    let bed = Bed::new();
    let (near, mut stack) = stack_without_room(&bed);
    let mut server = Raw::new(&bed, 1, &settings());
    let heard = lease(&bed, &mut stack, &mut server);
    assert_eq!(heard, [DhcpMessageType::Discover, DhcpMessageType::Request]);
    assert_eq!(stack.leased(), None);
    let removed = "192.0.2.8".parse().expect("an address");
    stack.remove_address(removed, None).expect("configured");
    stack.poll(bed.world.clock().now());
    let leased = stack.leased().map(|leased| leased.address);
    assert_eq!(leased, Some(IpAddr::V4(OFFERED)));
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The server may have granted the address to another station since.
#[test]
fn a_lease_without_room_that_has_ended_is_not_used_any_more() {
    let bed = Bed::new();
    let (near, mut stack) = stack_without_room(&bed);
    let mut server = Raw::new(&bed, 1, &settings());
    let grant = Grant {
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    // The server is silent from now on.
    for _ in 0..130 {
        bed.world.clock().pause(Duration::from_secs(1));
        sent(&bed, &mut stack, &mut server, 1);
    }
    let removed = "192.0.2.8".parse().expect("an address");
    stack.remove_address(removed, None).expect("configured");
    for _ in 0..2 {
        stack.poll(bed.world.clock().now());
        assert_eq!(stack.leased(), None);
        bed.world.clock().pause(Duration::from_secs(1));
    }
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The program has a rule for packets that the stack needs a rule for.
#[test]
fn a_lease_that_the_port_refuses_is_tried_again_each_second() {
    let bed = Bed::new();
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let (near, mut stack, others) = bed.stack_beside(0, &config, (2, 1));
    let mut server = Raw::new(&bed, 1, &settings());
    let rule = FlowRule {
        packets: FlowMatch {
            destination: Some(OFFERED.into()),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::FragmentV4))
        },
        target: FlowTarget::Queue(0),
        mark: None,
        count: false,
    };
    let port = stack.port().clone();
    let own = port.add_rule(&rule).expect("a rule");
    lease(&bed, &mut stack, &mut server);
    assert_eq!(stack.leased(), None);
    port.remove_rule(own).expect("the rule");
    for expected in [None, Some(IpAddr::V4(OFFERED))] {
        stack.poll(bed.world.clock().now());
        let leased = stack.leased().map(|leased| leased.address);
        assert_eq!(leased, expected);
        bed.world.clock().pause(Duration::from_secs(1));
    }
    drop((stack, others, port));
    bed.finish([near, server.into_device()]);
}

/// The server names another router when the stack asks for a longer time.
#[test]
fn a_lease_that_changes_its_router_only_keeps_its_address() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let mut grant = Grant {
        seconds: 120,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    let (clock, mac) = (bed.world.clock(), server.port.mac());
    for _ in 0..5 {
        clock.pause(Duration::from_secs(1));
        stack.poll(clock.now());
    }
    let announced = stack.counters().announcements;
    assert_eq!(announced, 6, "each address twice");
    grant.router = Ipv4Addr::new(198, 51, 100, 9);
    let mut heard = Vec::new();
    for _ in 0..90 {
        clock.pause(Duration::from_secs(1));
        // The stack asks this server alone, whose MAC address it has to know.
        server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
        for _ in 0..10 {
            heard.extend(serve(grant, &bed, &mut stack, &mut server));
            bed.pass();
        }
    }
    assert_eq!(heard, [DhcpMessageType::Request]);
    assert_eq!(stack.gateways(), [IpAddr::V4(grant.router)]);
    assert_eq!(stack.counters().announcements, announced);
    drop(stack);
    bed.finish([near, server.into_device()]);
}

fn granted(place: (usize, u16)) {
    let bed = Bed::new();
    let mut config = config(&["fd00::1/64"]);
    config.network.dhcp = true;
    let (near, mut stack, others) = bed.stack_beside(0, &config, place);
    let mut server = Raw::new(&bed, 1, &settings());
    let mac = server.port.mac();
    let heard = lease(&bed, &mut stack, &mut server);
    assert_eq!(heard, [DhcpMessageType::Discover, DhcpMessageType::Request]);
    let leased = stack.leased().expect("a lease").to_string();
    assert_eq!(leased, "198.51.100.77/24");
    assert_eq!(stack.gateways(), [IpAddr::V4(SERVER)]);
    assert!(
        stack
            .addresses()
            .iter()
            .any(|one| one.address == IpAddr::V4(OFFERED))
    );
    // And it is answered for.
    server.send(&question(mac, SERVER.octets(), OFFERED.octets()));
    let frames = sent(&bed, &mut stack, &mut server, 100);
    let answered = frames.iter().any(|frame| is_arp(frame, ANSWER));
    assert!(answered, "{frames:x?}");
    drop((stack, others));
    bed.finish([near, server.into_device()]);
}

#[test]
fn a_lease_of_another_address_after_a_recovery_replaces_the_former_one() {
    granted_again(Ipv4Addr::new(198, 51, 100, 78));
}

#[test]
fn a_lease_of_the_same_address_after_a_recovery_keeps_it_and_its_end_removes_it() {
    granted_again(OFFERED);
}

/// The addresses of the server's network in the GID table.
fn leased_gids(device: &Device) -> Vec<IpAddr> {
    let gids = device.gids().expect("in service");
    let own = gids.iter().map(|gid| gid.address.address);
    own.filter(|own| matches!(own, IpAddr::V4(own) if own.octets()[..3] == SERVER.octets()[..3]))
        .collect()
}

/// A device that was recovered after its stack had got [`OFFERED`]; its GID table follows the
/// lease.
fn recovered(bed: &Bed) -> (Device, Raw, LeasedGid, Stack) {
    let mut config = config(&["192.0.2.1/24"]);
    config.network.dhcp = true;
    let mut near = bed.device(0, &config);
    let mut server = Raw::new(bed, 1, &settings());
    let mut gid = LeasedGid::default();
    let mut stack = Stack::of_device_following(&near, &mut gid).expect("a stack");
    lease(bed, &mut stack, &mut server);
    gid.follow(stack.leased(), &near, bed.world.clock().now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    drop(stack);
    near.recover().expect("back in service");
    let stack = Stack::of_device_following(&near, &mut gid).expect("a stack");
    (near, server, gid, stack)
}

fn granted_again(second: Ipv4Address) {
    let bed = Bed::new();
    let now = || bed.world.clock().now();
    let (near, mut server, mut gid, mut stack) = recovered(&bed);
    let index = near.gids().expect("in service").len();
    let is_own = |stack: &Stack, one| stack.addresses().iter().any(|own| own.address == one);
    assert!(!is_own(&stack, IpAddr::V4(OFFERED)), "not granted yet");
    gid.follow(stack.leased(), &near, now());
    assert_eq!(
        leased_gids(&near),
        [IpAddr::V4(OFFERED)],
        "it may be granted again"
    );
    let grant = Grant {
        address: second,
        ..GRANT
    };
    lease_of(grant, &bed, &mut stack, &mut server);
    gid.follow(stack.leased(), &near, now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(second)]);
    assert_eq!(near.gids().expect("in service").len(), index);
    assert_eq!(is_own(&stack, IpAddr::V4(OFFERED)), second == OFFERED);

    stack
        .remove_address(IpAddr::V4(second), None)
        .expect("leased");
    gid.follow(stack.leased(), &near, now());
    assert!(leased_gids(&near).is_empty());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// A server that is gone: the address of the former stack does not stay for ever.
#[test]
fn a_lease_that_is_not_granted_again_after_a_recovery_leaves_the_gid_table() {
    let bed = Bed::new();
    let (near, server, mut gid, stack) = recovered(&bed);
    gid.follow(None, &near, bed.world.clock().now());
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    let later = bed.world.clock().now().plus(Duration::from_secs(31));
    gid.follow(None, &near, later);
    assert!(leased_gids(&near).is_empty());
    drop(stack);
    bed.finish([near, server.into_device()]);
}

/// The configuration has the address, too: the end of the lease does not take it.
#[test]
fn a_lease_of_an_address_of_the_configuration_leaves_it_in_the_gid_table() {
    let bed = Bed::new();
    let mut config = config(&["198.51.100.77/24"]);
    config.network.dhcp = true;
    let near = bed.device(0, &config);
    let mut gid = LeasedGid::default();
    let own = config.network.addresses[0];
    let now = bed.world.clock().now();
    gid.follow(Some(own), &near, now);
    assert_eq!(gid.added(), None);
    gid.follow(None, &near, now);
    assert_eq!(leased_gids(&near), [IpAddr::V4(OFFERED)]);
    bed.finish([near]);
}

/// Half a minute with a server that answers each message at once, and a request by `answer_to`;
/// returns the messages of the stack.
fn half_a_minute(grant: Grant, answer_to: DhcpMessageType) -> Vec<DhcpMessageType> {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let (client, mac) = (stack.port().mac(), server.port.mac());
    let mut heard = Vec::new();
    for _ in 0..300 {
        for frame in sent(&bed, &mut stack, &mut server, 3) {
            let Some((kind, id, _)) = request(&frame) else {
                continue;
            };
            // Headers of 14, 20 and 8 bytes.
            assert!(frame.len() >= 342, "{kind:?} of {} bytes", frame.len());
            heard.push(kind);
            let kind = match kind {
                DhcpMessageType::Discover => DhcpMessageType::Offer,
                _ => answer_to,
            };
            server.send(&answer(kind, id, (client, grant), mac));
        }
        bed.world.clock().pause(Duration::from_millis(100));
    }
    drop(stack);
    bed.finish([near, server.into_device()]);
    heard
}

/// A server that refuses what it has offered, and one whose lease has no time.
#[test]
fn searches_for_servers_are_ten_seconds_apart_and_messages_have_300_bytes() {
    let lease_without_time = Grant {
        seconds: 0,
        ..GRANT
    };
    for (grant, answer_to) in [
        (GRANT, DhcpMessageType::Nak),
        (lease_without_time, DhcpMessageType::Ack),
    ] {
        let heard = half_a_minute(grant, answer_to);
        let searches = heard
            .iter()
            .filter(|kind| **kind == DhcpMessageType::Discover);
        assert!((3..=4).contains(&searches.count()), "{heard:?}");
        assert!(heard.len() <= 8, "{heard:?}");
    }
}

/// The address that the stack takes of a grant, in 0.2 s.
fn taken(grant: Grant) -> Option<String> {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    for _ in 0..200 {
        serve(grant, &bed, &mut stack, &mut server);
        bed.pass();
    }
    let leased = stack.leased().map(|leased| leased.to_string());
    drop(stack);
    bed.finish([near, server.into_device()]);
    leased
}

#[test]
fn a_lease_without_a_mask_has_that_of_its_class() {
    for (address, expected) in [
        ([10, 9, 8, 7], "10.9.8.7/8"),
        ([172, 16, 0, 9], "172.16.0.9/16"),
        ([198, 51, 100, 77], "198.51.100.77/24"),
    ] {
        let grant = Grant {
            address: address.into(),
            mask: None,
            ..GRANT
        };
        assert_eq!(taken(grant).as_deref(), Some(expected));
    }
}

#[test]
fn leases_of_addresses_that_no_host_has_are_not_taken() {
    assert!(taken(GRANT).is_some());
    for address in [
        [198, 51, 100, 0],
        [198, 51, 100, 255],
        [240, 0, 0, 1],
        [127, 0, 0, 9],
        [0, 0, 0, 9],
    ] {
        let address = address.into();
        assert_eq!(taken(Grant { address, ..GRANT }), None, "{address}");
    }
}
