//! Addresses that come and go, resolution, and the frames that the port lets in for them.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{ANSWER, is_arp, question, sent};
use ringside_config::Within;
use ringside_model::Fault;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind};
use ringside_spec::lan::admin::Opcode;
use ringside_stack::{
    LocalAddress, NeighbourState, ResolveError, Stack, StackError, StackSettings, StackThread,
};
use std::net::IpAddr;
use std::time::Duration;

/// Real time after which a stack without a core would have got one.
const PATIENCE: Duration = Duration::from_secs(60);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn promiscuous() -> PortSettings {
    PortSettings {
        promiscuous: true,
        ..settings()
    }
}

/// Runs both stacks until `a` has resolved `address` or given up.
fn resolve(
    bed: &Bed,
    a: &mut Stack,
    b: &mut Stack,
    address: IpAddr,
) -> Result<[u8; 6], ResolveError> {
    for _ in 0..5000 {
        let now = bed.world.clock().now();
        if let Some(found) = a.lookup(address, Within::All, now)? {
            return Ok(found.mac);
        }
        a.poll(now);
        b.poll(now);
        bed.pass();
    }
    panic!("no end: {address}");
}

#[test]
fn neighbours_are_resolved_by_arp_and_by_discovery_also_on_a_vlan() {
    let bed = Bed::new();
    let near = [
        "192.0.2.1/24",
        "2001:db8::1/64",
        "10.1.0.1/24@100",
        "fd01::1/64@100",
    ];
    let far = [
        "192.0.2.2/24",
        "2001:db8::2/64",
        "10.1.0.2/24@100",
        "fd01::2/64@100",
    ];
    let (device_a, mut a) = bed.stack(0, &config(&near));
    let (device_b, mut b) = bed.stack(1, &config(&far));
    let mac = b.port().mac();
    let link_local = ringside_pmd::rdma::address::link_local(mac);
    let known = ["192.0.2.2", "2001:db8::2", "10.1.0.2", "fd01::2"].map(ip);
    for address in known.into_iter().chain([IpAddr::V6(link_local)]) {
        assert_eq!(resolve(&bed, &mut a, &mut b, address), Ok(mac), "{address}");
    }
    let now = bed.world.clock().now();
    for (address, vlan_tag) in known.into_iter().zip([None, None, Some(100), Some(100)]) {
        let found = a
            .lookup(address, Within::All, now)
            .unwrap()
            .expect("it is known");
        assert_eq!(found.vlan_tag, vlan_tag, "{address}");
    }
    // One question for each, no more; and each end has learnt the other.
    assert_eq!(a.counters().questions, 5);
    let learnt = b.neighbours(bed.world.clock().now());
    let own = NeighbourState::Reachable(a.port().mac());
    assert!(learnt.iter().all(|one| one.state == own), "{learnt:?}");
    assert_eq!(learnt.len(), 5);
    // Those that need no question.
    let own = a.port().mac();
    assert_eq!(resolve(&bed, &mut a, &mut b, ip("192.0.2.1")), Ok(own));
    let group = Ok([0x01, 0, 0x5E, 1, 2, 3]);
    assert_eq!(resolve(&bed, &mut a, &mut b, ip("239.1.2.3")), group);
    assert_eq!(a.counters().questions, 5);
    drop((a, b));
    bed.finish([device_a, device_b]);
}

/// The GID table of RDMA accepts it: the VLAN is part of an address.
#[test]
fn one_address_on_two_vlans_is_answered_for_on_each_until_it_is_removed_there() {
    let bed = Bed::new();
    let twice = ["192.0.2.1/24@5", "192.0.2.1/24@6"];
    let (device_b, mut b) = bed.stack(1, &config(&twice));
    let own = ip("192.0.2.1");
    let mac = b.port().mac();
    let asks = |b: &mut Stack, vlan: u16, wanted: bool| {
        let far = format!("192.0.2.2/24@{vlan}");
        let (device_a, mut a) = bed.stack(0, &config(&[&far]));
        let found = resolve(&bed, &mut a, b, own);
        assert_eq!(found.is_ok_and(|found| found == mac), wanted, "VLAN {vlan}");
        drop(a);
        let report = device_a.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
    };
    asks(&mut b, 5, true);
    asks(&mut b, 6, true);
    let now = bed.world.clock().now();
    let again = "192.0.2.1/24@6".parse().unwrap();
    assert_eq!(b.add_address(again, now), Err(StackError::Duplicate(again)));
    b.remove_address(own, Some(6)).unwrap();
    let unknown = StackError::Unknown {
        address: own,
        vlan: Some(6),
    };
    assert_eq!(b.remove_address(own, Some(6)), Err(unknown));
    asks(&mut b, 5, true);
    asks(&mut b, 6, false);
    drop(b);
    bed.finish([device_b]);
}

#[test]
fn an_address_without_host_fails_after_all_requests_and_one_without_way_at_once() {
    let bed = Bed::new();
    let (device_a, mut a) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (device_b, mut b) = bed.stack(1, &config(&["192.0.2.2/24"]));
    let error = resolve(&bed, &mut a, &mut b, ip("192.0.2.9")).unwrap_err();
    let ResolveError::NoAnswer {
        next_hop,
        probes,
        waited,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((next_hop, probes), (ip("192.0.2.9"), 3));
    assert_eq!(waited.as_millis(), 6, "three intervals of 2 ms");
    let far = ip("198.51.100.1");
    assert_eq!(
        resolve(&bed, &mut a, &mut b, far),
        Err(ResolveError::NoRoute(far))
    );
    // Through a gateway, whose MAC address it is.
    assert_eq!(
        a.set_gateway(ip("203.0.113.1")),
        Err(StackError::FarGateway(ip("203.0.113.1")))
    );
    let own = a.addresses()[0].address;
    assert_eq!(a.set_gateway(own), Err(StackError::OwnGateway(own)));
    for of_none in ["192.0.2.0", "192.0.2.255", "224.0.0.1", "255.255.255.255"].map(ip) {
        let refused = StackError::GatewayOfNone(of_none);
        assert_eq!(a.set_gateway(of_none), Err(refused));
    }
    a.set_gateway(ip("192.0.2.2")).unwrap();
    assert_eq!(resolve(&bed, &mut a, &mut b, far), Ok(b.port().mac()));
    drop((a, b));
    bed.finish([device_a, device_b]);
}

#[test]
fn addresses_come_and_go_at_run_time_with_their_filters() {
    let bed = Bed::new();
    let (device_a, mut a) = bed.stack(0, &config(&["2001:db8::1/64"]));
    let (device_b, mut b) = bed.stack(1, &config(&["2001:db8::2/64"]));
    let added = ip("2001:db8::77:8899");
    let error = resolve(&bed, &mut a, &mut b, added).unwrap_err();
    assert!(matches!(error, ResolveError::NoAnswer { .. }), "{error}");
    let now = bed.world.clock().now();
    // It has its own multicast group, which the port must accept.
    b.add_address("2001:db8::77:8899/64".parse().unwrap(), now)
        .unwrap();
    assert!(a.forget(added, None));
    assert_eq!(resolve(&bed, &mut a, &mut b, added), Ok(b.port().mac()));
    let again = "2001:db8::77:8899/64".parse().unwrap();
    assert_eq!(b.add_address(again, now), Err(StackError::Duplicate(again)));
    // The announcement of the address is under way.
    for _ in 0..10 {
        a.poll(bed.world.clock().now());
        bed.pass();
    }
    b.remove_address(added, None).unwrap();
    let unknown = StackError::Unknown {
        address: added,
        vlan: None,
    };
    assert_eq!(b.remove_address(added, None), Err(unknown));
    assert!(a.forget(added, None));
    assert!(resolve(&bed, &mut a, &mut b, added).is_err());
    drop((a, b));
    bed.finish([device_a, device_b]);
}

/// A station that has asked already needs no second question.
#[test]
fn a_new_address_is_announced_to_all_stations() {
    let bed = Bed::new();
    let (device_a, mut a) = bed.stack(0, &config(&["192.0.2.1/24", "2001:db8::1/64"]));
    let (device_b, mut b) = bed.stack(1, &config(&["192.0.2.2/24", "2001:db8::2/64@9"]));
    let clock = bed.world.clock();
    b.poll(clock.now());
    // With the link-local address.
    assert_eq!(b.counters().announcements, 3);
    for text in ["192.0.2.3/24", "2001:db8::3/64"] {
        let added: ringside_config::LocalAddress = text.parse().unwrap();
        let before = a.counters().questions;
        let limit = clock.now().plus(Duration::from_micros(1500));
        assert_eq!(a.lookup(added.address, Within::All, clock.now()), Ok(None));
        let found = loop {
            assert!(clock.now() < limit, "{text}: no announcement");
            a.poll(clock.now());
            b.poll(clock.now());
            bed.pass();
            if a.counters().questions > before && !b.addresses().contains(&added) {
                b.add_address(added, clock.now()).unwrap();
            }
            if let Some(found) = a.lookup(added.address, Within::All, clock.now()).unwrap() {
                break found;
            }
        };
        assert_eq!(found.mac, b.port().mac());
        assert_eq!(a.counters().questions - before, 1);
    }
    drop((a, b));
    bed.finish([device_a, device_b]);
}

/// RFC 5227 for stations without an address; Linux queries from any of its addresses.
#[test]
fn arp_requests_without_address_and_from_another_network_are_answered_once() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let (own, mac) = (stack.port().mac(), far.port.mac());
    for from in [[0, 0, 0, 0], [198, 51, 100, 7], [192, 0, 2, 9]] {
        far.send(&question(mac, from, [192, 0, 2, 1]));
        let mut answers = sent(&bed, &mut stack, &mut far, 20);
        // Without announcements and reports of multicast groups.
        answers.retain(|frame| is_arp(frame, ANSWER) && frame[..6] != [0xFF; 6]);
        let [answer] = &answers[..] else {
            panic!("{from:?}: {answers:x?}");
        };
        let expected = [
            &mac[..],
            &own,
            &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2],
            &own,
            &[192, 0, 2, 1],
            &mac,
            &from,
        ];
        assert_eq!(answer[..42], expected.concat());
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}

/// Eight addresses are possible, and two more are there in any case.
#[test]
fn a_stack_whose_addresses_leave_no_room_for_the_automatic_ones_works() {
    let bed = Bed::new();
    let own: Vec<String> = (1..=8).map(|at| format!("2001:db8::{at}/64")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let (device_a, mut a) = bed.stack(0, &config(&own));
    let (device_b, mut b) = bed.stack(1, &config(&["2001:db8::99/64"]));
    assert_eq!(a.addresses().len(), 8);
    let mac = a.port().mac();
    assert_eq!(resolve(&bed, &mut b, &mut a, ip("2001:db8::8")), Ok(mac));
    drop((a, b));
    bed.finish([device_a, device_b]);
}

#[test]
fn addresses_that_no_station_has_are_refused() {
    let bed = Bed::new();
    let (device_a, mut a) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (device_b, b) = bed.stack(1, &config(&[]));
    let now = bed.world.clock().now();
    for wrong in ["255.255.255.255", "0.0.0.0", "224.0.0.1", "::", "ff02::1"] {
        let address = ringside_stack::LocalAddress::new(ip(wrong), 24);
        let refused = Err(StackError::NotUnicast(ip(wrong)));
        assert_eq!(a.add_address(address, now), refused, "{wrong}");
    }
    drop((a, b));
    bed.finish([device_a, device_b]);
}

#[test]
fn prefixes_vlans_and_mtus_that_do_not_exist_are_refused_by_name() {
    let bed = Bed::new();
    let (device_a, mut a) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (device_b, b) = bed.stack(1, &config(&[]));
    let now = bed.world.clock().now();
    let new = ringside_stack::LocalAddress::new;
    let (v4, v6) = (ip("10.5.0.1"), ip("fd00::5"));
    let wrong = [
        (new(v4, 0), "10.5.0.1/0: its prefix has 1 to 32 bits"),
        (new(v4, 99), "10.5.0.1/99: its prefix has 1 to 32 bits"),
        (new(v6, 129), "fd00::5/129: its prefix has 1 to 128 bits"),
        (new(v4, 24).on_vlan(0), "10.5.0.1/24@0: a VLAN is 1 to 4094"),
        (
            new(v4, 24).on_vlan(4095),
            "10.5.0.1/24@4095: a VLAN is 1 to 4094",
        ),
    ];
    for (address, said) in wrong {
        let error = a.add_address(address, now).expect_err("refused");
        let text = format!("no port has the address {said}");
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(a.add_address(new(v4, 32), now), Ok(()));
    let sound = crate::bed::stack_settings(&config(&[]), b.port().mac());
    drop((a, b));
    let with = |address| StackSettings {
        addresses: vec![address],
        ..sound.clone()
    };
    let mut all: Vec<StackSettings> = wrong.iter().map(|(address, _)| with(*address)).collect();
    all.push(StackSettings {
        mtu: 67,
        dhcp: true,
        ..sound.clone()
    });
    for one in all {
        let (port, queues) = crate::bed::open(&device_b, &settings());
        let error = Stack::new(port, queues, &one, now).expect_err("refused");
        let named = match error {
            StackError::Mtu { given } => given == one.mtu,
            StackError::Address { address, .. } => one.addresses == [address],
            _ => false,
        };
        assert!(named, "{error}");
    }
    bed.finish([device_a, device_b]);
}

/// The groups of its addresses, which the program itself may have added before.
#[test]
fn a_stack_that_ends_or_does_not_start_removes_its_filters_and_no_others() {
    let bed = Bed::new();
    let (near, stack) = bed.stack(0, &config(&["2001:db8::77/64"]));
    let far = Raw::new(&bed, 1, &settings());
    let port = stack.port().clone();
    let nodes = [0x33, 0x33, 0, 0, 0, 1];
    let rules = || bed.switch_rules();
    let with_stack = rules();
    port.add_address(nodes).unwrap();
    assert_eq!(rules(), with_stack, "the stack has the group already");
    let (receive, transmit) = stack.into_queues();
    assert_eq!(rules(), with_stack - 2, "two solicited-node groups");
    assert_eq!(port.setup().vsi.addresses, [nodes]);
    let own = |addresses: &[&str]| crate::bed::stack_settings(&config(addresses), port.mac());
    let now = bed.world.clock().now();
    // A duplicate is found after the groups of the first were opened.
    let twice = own(&["2001:db8::77/64", "2001:db8::77/65"]);
    let error = Stack::new(port.clone(), (receive, transmit), &twice, now).unwrap_err();
    assert_eq!(
        error,
        StackError::Duplicate("2001:db8::77/65".parse().unwrap())
    );
    assert_eq!(rules(), with_stack - 2);
    assert_eq!(port.remove_address(nodes), Ok(true));
    assert_eq!(rules(), with_stack - 3);
    drop(port);
    bed.finish([near, far.into_device()]);
}

#[test]
fn an_address_whose_filters_are_refused_leaves_no_filter_and_comes_later() {
    let bed = Bed::new();
    let (near, mut stack, others) = bed.stack_beside(0, &config(&["192.0.2.1/24"]), (2, 1));
    let far = Raw::new(&bed, 1, &settings());
    let port = stack.port().clone();
    let filters = || (bed.switch_rules(), port.rules().len());
    let now = bed.world.clock().now();
    let (before, known) = (filters(), stack.addresses().to_vec());

    // The group of its solicitations.
    let refusal = Fault::AdminCommandFails {
        opcode: Opcode::AddSwitchRules.code(),
        code: 5,
    };
    bed.world.with(|world| world.inject(0, refusal));
    let six = "2001:db8::77/64".parse::<LocalAddress>().unwrap();
    stack.add_address(six, now).expect_err("refused");
    bed.world.with(|world| world.clear_faults(0));
    assert_eq!(filters(), before);
    assert_eq!(stack.addresses(), known);

    // The last of its rules: the program has one for the same packets.
    let four = "192.0.2.9/24".parse::<LocalAddress>().unwrap();
    let rule = FlowRule {
        packets: FlowMatch {
            destination: Some(four.address),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::FragmentV4))
        },
        target: FlowTarget::Queue(0),
        mark: None,
        count: false,
    };
    let own = port.add_rule(&rule).expect("a rule");
    let error = stack.add_address(four, now).expect_err("refused");
    assert!(matches!(error, StackError::Port(_)), "{error}");
    port.remove_rule(own).expect("the rule");
    assert_eq!(filters(), before);

    for address in [six, four] {
        stack.add_address(address, now).expect("no fault");
        stack.remove_address(address.address, None).expect("added");
    }
    assert_eq!(filters(), before);
    // The group of all nodes goes with the last address that needs it.
    let link_local = IpAddr::V6(ringside_pmd::rdma::address::link_local(port.mac()));
    stack.remove_address(link_local, None).unwrap();
    assert_eq!(filters().0, before.0 - 2);
    drop((stack, others, port));
    bed.finish([near, far.into_device()]);
}

/// Both addresses have one solicited-node group, and all nodes is a group of each IPv6 address.
#[test]
fn an_address_takes_its_filters_with_it_and_no_filter_of_another() {
    let bed = Bed::new();
    let (near, mut stack, others) = bed.stack_beside(0, &config(&["192.0.2.1/24"]), (2, 1));
    let far = Raw::new(&bed, 1, &settings());
    let port = stack.port().clone();
    let filters = || (bed.switch_rules(), port.rules().len());
    let link_local = IpAddr::V6(ringside_pmd::rdma::address::link_local(port.mac()));
    stack.remove_address(link_local, None).unwrap();
    let without = filters();
    let now = bed.world.clock().now();
    let [first, second] = ["2001:db8:1::77/64", "2001:db8:2::77/64"]
        .map(|text| text.parse::<ringside_stack::LocalAddress>().unwrap());
    stack.add_address(first, now).unwrap();
    let with_one = filters();
    assert!(with_one.0 >= without.0 + 2 && with_one.1 > without.1);
    stack.add_address(second, now).unwrap();
    assert!(filters().1 > with_one.1);
    stack.remove_address(first.address, None).unwrap();
    assert_eq!(filters(), with_one);
    stack.remove_address(second.address, None).unwrap();
    assert_eq!(filters(), without);
    drop((stack, others, port));
    bed.finish([near, far.into_device()]);
}

#[test]
fn an_address_that_was_removed_is_announced_no_more() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let clock = bed.world.clock();
    stack.poll(clock.now());
    assert_eq!(stack.counters().announcements, 2, "with the link-local one");
    let added = "192.0.2.9/24".parse::<LocalAddress>().unwrap();
    stack.add_address(added, clock.now()).expect("room");
    stack.remove_address(added.address, None).expect("added");
    stack.poll(clock.now());
    assert_eq!(stack.counters().announcements, 2);
    drop(stack);
    bed.finish([near]);
}

#[test]
fn an_announcement_that_goes_on_begins_anew_and_is_not_made_beside_it() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let far = Raw::new(&bed, 1, &settings());
    let clock = bed.world.clock();
    let announced = |stack: &mut Stack| {
        stack.poll(clock.now());
        stack.counters().announcements
    };
    // With the link-local address; each twice.
    assert_eq!(announced(&mut stack), 2);
    stack.announce_again(clock.now());
    assert_eq!(announced(&mut stack), 4);
    for _ in 0..3 {
        let limit = clock.now().plus(Duration::from_secs(2));
        while clock.now() < limit {
            clock.pause(Duration::from_secs(1));
        }
        assert_eq!(announced(&mut stack), 6);
    }
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn a_solicitation_to_this_station_alone_is_answered() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["2001:db8::1/64"]));
    let (far, mut peer) = bed.stack(1, &config(&["2001:db8::2/64"]));
    let mac = stack.port().mac();
    assert_eq!(
        resolve(&bed, &mut peer, &mut stack, ip("2001:db8::1")),
        Ok(mac)
    );
    // Half a minute later the peer queries the known station.
    for _ in 0..31 {
        bed.world.clock().pause(Duration::from_secs(1));
    }
    let before = peer.counters().questions;
    assert_eq!(
        resolve(&bed, &mut peer, &mut stack, ip("2001:db8::1")),
        Ok(mac)
    );
    assert_eq!(peer.counters().questions - before, 1);
    drop((stack, peer));
    bed.finish([near, far]);
}

#[test]
fn frames_that_are_cut_or_hostile_change_nothing() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24", "2001:db8::1/64"]));
    let mut far = Raw::new(&bed, 1, &promiscuous());
    let (own, mac) = (stack.port().mac(), far.port.mac());
    let header = |ethertype: [u8; 2]| [own.as_slice(), &mac, &ethertype].concat();
    let kinds = [
        [0x08, 0x00],
        [0x86, 0xDD],
        [0x08, 0x06],
        [0x81, 0x00],
        [0, 8],
    ];
    let mut state = 1u64;
    for round in 0..300 {
        let mut frame = header(kinds[round % kinds.len()]);
        for _ in 0..(round % 90) + 4 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            frame.push((state >> 56) as u8);
        }
        // Plausible beginnings.
        match round % 5 {
            0 => frame[14] = 0x45,
            1 => frame[14] = 0x60,
            _ => {}
        }
        far.send(&frame);
        stack.poll(bed.world.clock().now());
        bed.pass();
    }
    for _ in 0..100 {
        stack.poll(bed.world.clock().now());
        bed.pass();
    }
    assert_eq!(stack.counters().received, 300);
    assert!(stack.neighbours(bed.world.clock().now()).is_empty());
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn a_stack_whose_device_has_failed_says_so() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let peer = IpAddr::from([192, 0, 2, 7]);
    let now = bed.world.clock().now();
    assert_eq!(stack.lookup(peer, Within::All, now), Ok(None));
    near.give_up().expect("in service");
    assert_eq!(
        stack.lookup(peer, Within::All, now),
        Err(ResolveError::OutOfService)
    );
    drop(stack);
    bed.finish([near]);
}

#[test]
fn a_stack_on_a_thread_of_its_own_resolves_for_other_threads() {
    let bed = Bed::new();
    let (device_a, a) = bed.stack(0, &config(&["192.0.2.1/24"]));
    let (device_b, b) = bed.stack(1, &config(&["192.0.2.2/24"]));
    let (own, mac) = (a.port().mac(), b.port().mac());
    let clock: std::sync::Arc<dyn ringside_bus::Clock> = bed.world.clock();
    let [a, b] = [a, b].map(|stack| StackThread::start(stack, clock.clone()).unwrap());
    let resolvers = [a.resolver(), b.resolver()];
    std::thread::scope(|scope| {
        let asks = [("192.0.2.2", mac), ("192.0.2.1", own)];
        for (resolver, (address, expected)) in resolvers.iter().zip(asks) {
            let clock = &clock;
            scope.spawn(move || {
                // Threads that wait move the clock: without a core for the other stack's thread,
                // seconds pass before it can answer.
                let begin = std::time::Instant::now();
                let found = loop {
                    match resolver.resolve(ip(address), Within::All, clock) {
                        Ok(found) => break found,
                        Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
                    }
                };
                assert_eq!(found.mac, expected);
                let none = resolver
                    .resolve(ip("192.0.2.99"), Within::All, clock)
                    .unwrap_err();
                assert!(
                    matches!(none, ResolveError::NoAnswer { probes: 3, .. }),
                    "{none}"
                );
            });
        }
    });
    let known = resolvers[0].with(|stack| stack.addresses().len()).unwrap();
    assert_eq!(known, 2, "the configured one and the link-local one");
    let stack = a.stop().expect("the stack");
    assert_eq!(
        resolvers[0].resolve(ip("192.0.2.2"), Within::All, &clock),
        Err(ResolveError::Ended)
    );
    drop((stack, b));
    bed.finish([device_a, device_b]);
}
