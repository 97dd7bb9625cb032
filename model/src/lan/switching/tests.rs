//! The receivers of a frame, and its way out.

use super::*;

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const GROUP: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);

fn vsi(number: u16) -> Vsi {
    Vsi {
        number,
        lan: true,
        sends_tagged: true,
        sends_untagged: true,
        ..Vsi::default()
    }
}

fn rule(what: Match, targets: &[u16]) -> Forward {
    Forward {
        what,
        sender: None,
        targets: targets.into(),
        drop: false,
        loopback: false,
        lan: false,
    }
}

fn key(destination: MacAddress, vlan: u16) -> Key {
    Key {
        destination,
        source: OTHER,
        vlan,
        tagged: vlan != 0,
        service: false,
        ether_type: 0x0800,
    }
}

fn receivers(tables: &Tables, key: &Key) -> Vec<u16> {
    let mut found = vec![99];
    tables.receivers(key, &mut found);
    found
}

fn tables(forwards: Vec<Forward>) -> Tables {
    Tables {
        vsis: vec![vsi(1), vsi(2)],
        forwards,
        ..Tables::default()
    }
}

#[test]
fn address_rules_count_whichever_direction_they_were_made_for() {
    let mut own = rule(Match::Address(OWN), &[1]);
    own.sender = Some(1);
    let tables = tables(vec![own, rule(Match::AddressVlan(OTHER, 5), &[2])]);
    assert_eq!(receivers(&tables, &key(OWN, 0)), [1]);
    assert_eq!(receivers(&tables, &key(OTHER, 5)), [2]);
    assert_eq!(receivers(&tables, &key(OTHER, 6)), [0u16; 0]);
    assert_eq!(receivers(&tables, &key(GROUP, 0)), [0u16; 0]);
}

#[test]
fn promiscuous_and_default_rules_count_only_for_what_is_received() {
    let mut sent = rule(Match::Promiscuous(Cast::Unicast), &[1]);
    sent.sender = Some(1);
    let mut default = rule(Match::Default, &[1]);
    default.sender = Some(1);
    assert_eq!(
        receivers(&tables(vec![sent, default]), &key(OTHER, 0)),
        [0u16; 0]
    );
    let all = tables(vec![
        rule(Match::Promiscuous(Cast::Multicast), &[1, 2]),
        rule(Match::PromiscuousVlan(Cast::Unicast, 7), &[2]),
        rule(Match::Default, &[1]),
    ]);
    assert_eq!(receivers(&all, &key(GROUP, 0)), [1, 2]);
    assert_eq!(receivers(&all, &key(OWN, 7)), [2]);
    assert_eq!(receivers(&all, &key(OWN, 8)), [1], "no other VSI wants it");
}

#[test]
fn each_vsi_gets_a_frame_once_and_a_drop_is_for_all() {
    let mut all = tables(vec![
        rule(Match::Address(GROUP), &[1, 2]),
        rule(Match::Promiscuous(Cast::Multicast), &[1]),
    ]);
    assert_eq!(receivers(&all, &key(GROUP, 0)), [1, 2]);
    let mut drop = rule(Match::EtherType(0x0800), &[]);
    drop.drop = true;
    all.forwards.push(drop);
    assert_eq!(receivers(&all, &key(GROUP, 0)), [0u16; 0]);
}

#[test]
fn a_vsi_that_prunes_gets_only_its_vlans() {
    let mut all = tables(vec![rule(Match::Address(OWN), &[1, 2])]);
    all.vsis[0].receive_vlan_prune = true;
    all.vlans.push(VlanMembers {
        vlan: 5,
        ingress: true,
        egress: false,
        lan: true,
        members: [1].into(),
    });
    assert_eq!(receivers(&all, &key(OWN, 5)), [1, 2]);
    assert_eq!(receivers(&all, &key(OWN, 6)), [2]);
    assert_eq!(receivers(&all, &key(OWN, UNTAGGED)), [2]);
}

#[test]
fn frames_leave_unless_a_rule_or_the_vsi_forbids_it() {
    let all = tables(Vec::new());
    let wire = Route {
        wire: true,
        local: Vec::new(),
    };
    assert_eq!(
        all.route(&vsi(1), &key(OWN, 0), Destination::Switch),
        Ok(wire)
    );
    let inside = Vsi {
        lan: false,
        ..vsi(1)
    };
    let nowhere = Ok(Route::default());
    assert_eq!(
        all.route(&inside, &key(OWN, 0), Destination::Switch),
        nowhere
    );

    let mut drop = rule(Match::EtherType(0x0800), &[]);
    drop.drop = true;
    drop.sender = Some(1);
    let all = tables(vec![drop]);
    let route = |number| all.route(&vsi(number), &key(OWN, 0), Destination::Switch);
    assert_eq!(route(1), Err(Refused::ByRule));
    assert!(route(2).is_ok(), "the rule is for the other one");
}

/// Each driver lets the frames of its rules for VLANs out.
#[test]
fn frames_of_a_vlan_stay_inside_if_its_rule_does_not_let_them_out() {
    let mut all = tables(Vec::new());
    let of = |vlan, egress, lan| VlanMembers {
        vlan,
        ingress: true,
        egress,
        lan,
        members: [1].into(),
    };
    all.vlans = vec![
        of(5, true, false),
        of(6, true, true),
        of(7, false, false),
        of(UNTAGGED, true, false),
    ];
    let leaves = |number, vlan| {
        let route = all.route(&vsi(number), &key(OWN, vlan), Destination::Switch);
        route.expect("allowed").wire
    };
    let found = [5, 6, 7, UNTAGGED, 8].map(|vlan| leaves(1, vlan));
    assert_eq!(found, [false, true, true, false, true]);
    assert!(leaves(2, 5), "the rule is for the other one");
}

#[test]
fn descriptors_name_a_destination_only_if_they_may() {
    let mut drop = rule(Match::EtherType(0x0800), &[]);
    drop.drop = true;
    drop.sender = Some(1);
    let all = tables(vec![drop]);
    let may = Vsi {
        destination_override: true,
        ..vsi(1)
    };
    let route = |sender: &Vsi, wanted| all.route(sender, &key(OWN, 0), wanted);
    assert_eq!(route(&vsi(1), Destination::Uplink), Err(Refused::Override));
    assert_eq!(
        route(&may, Destination::Uplink).map(|route| route.wire),
        Ok(true)
    );
    let to_one = Route {
        wire: false,
        local: vec![2],
    };
    assert_eq!(route(&may, Destination::Vsi(2)), Ok(to_one));
}

#[test]
fn neighbours_on_one_function_reach_each_other_without_the_wire() {
    let mut unicast = rule(Match::Address(OWN), &[2]);
    unicast.sender = Some(2);
    unicast.loopback = true;
    let mut broadcast = rule(Match::Address(GROUP), &[1, 2]);
    broadcast.sender = Some(1);
    broadcast.loopback = true;
    broadcast.lan = true;
    let all = tables(vec![unicast, broadcast]);
    let sender = Vsi {
        loopback: true,
        source_prune: true,
        ..vsi(1)
    };
    let route = |sender: &Vsi, to| all.route(sender, &key(to, 0), Destination::Switch).unwrap();
    assert_eq!(
        route(&sender, OWN),
        Route {
            wire: false,
            local: vec![2]
        }
    );
    assert_eq!(
        route(&sender, GROUP),
        Route {
            wire: true,
            local: vec![2]
        }
    );
    let alone = Route {
        wire: true,
        local: vec![],
    };
    assert_eq!(route(&vsi(1), OWN), alone, "loopback is not allowed");
}

#[test]
fn spoofed_untagged_and_pruned_frames_do_not_get_out() {
    let all = tables(vec![rule(Match::Address(OTHER), &[1])]);
    let refused = |sender: &Vsi, vlan| {
        all.route(sender, &key(OWN, vlan), Destination::Switch)
            .err()
    };
    let honest = Vsi {
        anti_spoof: true,
        ..vsi(1)
    };
    assert_eq!(refused(&honest, 0), None, "its own address");
    let spoofing = Vsi {
        anti_spoof: true,
        ..vsi(2)
    };
    assert_eq!(refused(&spoofing, 0), Some(Refused::Spoofed));
    let tagged_only = Vsi {
        sends_untagged: false,
        ..vsi(1)
    };
    assert_eq!(refused(&tagged_only, 0), Some(Refused::TagMode));
    assert_eq!(refused(&tagged_only, 5), None);
    let pruned = Vsi {
        transmit_vlan_prune: true,
        ..vsi(1)
    };
    assert_eq!(refused(&pruned, 5), Some(Refused::Pruned));
}

#[test]
fn promiscuity_for_broadcast_lets_no_multicast_in_and_the_other_way_round() {
    let all = MacAddress([0xFF; 6]);
    for (cast, wanted) in [
        (Cast::Unicast, [true, false, false]),
        (Cast::Multicast, [false, true, false]),
        (Cast::Broadcast, [false, false, true]),
    ] {
        for what in [Match::Promiscuous(cast), Match::PromiscuousVlan(cast, 5)] {
            let tables = tables(vec![rule(what, &[1])]);
            let got = [OTHER, GROUP, all].map(|to| !receivers(&tables, &key(to, 5)).is_empty());
            assert_eq!(got, wanted, "{what:?}");
        }
    }
}

#[test]
fn a_service_tag_counts_in_double_vlan_mode_only() {
    let mut pruned = tables(vec![rule(Match::Address(OWN), &[1])]);
    pruned.vsis[0].receive_vlan_prune = true;
    pruned.vlans = vec![VlanMembers {
        vlan: UNTAGGED,
        ingress: true,
        egress: true,
        lan: true,
        members: [1].into(),
    }];
    let service = Key {
        service: true,
        ..key(OWN, 20)
    };
    assert_eq!(receivers(&pruned, &key(OWN, 20)), [0; 0]);
    assert_eq!(receivers(&pruned, &service), [1]);
    assert!(pruned.overlooks_tag(&service) && !pruned.overlooks_tag(&key(OWN, 20)));
    pruned.service_tags = true;
    assert_eq!(receivers(&pruned, &service), [0; 0]);
    assert!(!pruned.overlooks_tag(&service));
}
