//! The frames that a port receives by address, tag and promiscuous mode.

use crate::rig::{Rig, plain_frame, settings};
use ringside_pmd::lan::port::PortSetup;
use ringside_pmd::lan::{PortSettings, VlanStripping};
use ringside_pmd::rdma::QueuePairConfig;
use ringside_testkit::world_settings;

const STRANGER: [u8; 6] = [0x02, 1, 2, 3, 4, 5];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 9];
const EVERYBODY: [u8; 6] = [0xFF; 6];

fn try_address(rig: &mut Rig, to: [u8; 6], comes: bool) {
    let frame = plain_frame(to, rig.a.mac(), 100, 1);
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    if comes {
        assert_eq!(rig.wait_b(1)[0].1.to_vec(), frame);
    } else {
        rig.silent_b();
    }
}

fn try_vlan(rig: &mut Rig, vlan: Option<u16>, comes: bool) {
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 100, 1);
    let mut packet = rig.a.packet(&frame);
    packet.set_vlan(vlan);
    rig.a.send([packet]);
    if comes {
        assert_eq!(rig.wait_b(1).len(), 1, "VLAN {vlan:?}");
    } else {
        rig.silent_b();
    }
}

#[test]
fn unicast_multicast_and_promiscuous_frames_arrive_as_configured() {
    let mut rig = Rig::new();
    try_address(&mut rig, EVERYBODY, true);
    try_address(&mut rig, STRANGER, false);
    try_address(&mut rig, GROUP, false);
    rig.b.open.port.add_address(STRANGER).expect("added");
    try_address(&mut rig, STRANGER, true);
    rig.b.open.port.set_all_multicast(true).expect("set");
    try_address(&mut rig, GROUP, true);
    assert_eq!(rig.b.open.port.remove_address(STRANGER), Ok(true));
    assert_eq!(rig.b.open.port.remove_address(STRANGER), Ok(false));
    try_address(&mut rig, STRANGER, false);
    rig.b.open.port.set_promiscuous(true).expect("set");
    try_address(&mut rig, STRANGER, true);
    rig.b.open.port.set_promiscuous(false).expect("set");
    try_address(&mut rig, STRANGER, false);
    try_address(&mut rig, GROUP, true);
    rig.b.open.port.set_all_multicast(false).expect("set");
    try_address(&mut rig, GROUP, false);
    rig.finish();
}

#[test]
fn promiscuous_mode_and_all_groups_are_independent_requests() {
    let mut rig = Rig::new();
    let port = rig.b.open.port.clone();
    let setup = |promiscuous, all_multicast| {
        let now = port.setup().vsi;
        assert_eq!(
            (now.promiscuous, now.all_multicast),
            (promiscuous, all_multicast)
        );
        now
    };
    port.set_promiscuous(true).expect("set");
    setup(true, false);
    try_address(&mut rig, GROUP, true);
    port.set_all_multicast(true).expect("set");
    port.set_all_multicast(false).expect("set");
    try_address(&mut rig, GROUP, true);
    port.set_all_multicast(true).expect("set");
    let both = setup(true, true);
    port.set_promiscuous(false).expect("set");
    let groups = setup(false, true);
    try_address(&mut rig, STRANGER, false);
    try_address(&mut rig, GROUP, true);
    // After a recovery the port asks for what it had.
    port.restore(&PortSetup::default()).expect("restored");
    try_address(&mut rig, GROUP, false);
    for (vsi, strangers) in [(groups, false), (both, true)] {
        let before = PortSetup { vsi, address: None };
        port.restore(&before).expect("restored");
        try_address(&mut rig, STRANGER, strangers);
        try_address(&mut rig, GROUP, true);
        port.set_promiscuous(false).expect("set");
        try_address(&mut rig, STRANGER, false);
        try_address(&mut rig, GROUP, true);
    }
    drop(port);
    rig.finish();
}

#[test]
fn the_zero_address_is_refused() {
    let rig = Rig::new();
    let error = rig.b.open.port.add_address([0; 6]).expect_err("refused");
    let text = "MAC address 00:00:00:00:00:00: choose the address of a station or of a group";
    assert_eq!(error.to_string(), text);
    assert_eq!(rig.b.open.port.setup().vsi.addresses, [[0; 6]; 0]);
    rig.finish();
}

/// Groups of RDMA and the packet path let the same address in, independently of each other.
#[test]
fn an_address_of_a_multicast_group_stays_until_its_last_user_is_gone() {
    const NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
    let mut rig = Rig::new();
    let domain = rig.b.device.protection_domain().expect("a domain");
    let queue = rig.b.device.completion_queue(64).expect("a queue");
    let pair = domain.datagram_queue_pair(QueuePairConfig::datagram(&queue));
    let pair = pair.expect("a queue pair");
    try_address(&mut rig, NODES, false);
    for group in ["ff0e::1", "ff0e:0:2:c985::1"] {
        pair.join(group.parse().unwrap()).expect("joined");
    }
    rig.b.open.port.add_address(NODES).expect("added");
    try_address(&mut rig, NODES, true);
    pair.destroy().expect("destroyed, and out of both groups");
    try_address(&mut rig, NODES, true);
    assert_eq!(rig.b.open.port.remove_address(NODES), Ok(true));
    try_address(&mut rig, NODES, false);
    rig.b.open.port.add_address(NODES).expect("added again");
    try_address(&mut rig, NODES, true);
    drop((queue, domain));
    rig.finish();
}

#[test]
fn vlans_that_were_not_added_stay_out_once_one_was() {
    let mut rig = Rig::new();
    try_vlan(&mut rig, Some(7), true);
    rig.b.open.port.add_vlan(5).expect("added");
    try_vlan(&mut rig, Some(5), true);
    try_vlan(&mut rig, Some(7), false);
    try_vlan(&mut rig, None, true);
    rig.b.open.port.add_vlan(7).expect("added");
    try_vlan(&mut rig, Some(7), true);
    assert_eq!(rig.b.open.port.remove_vlan(5), Ok(true));
    try_vlan(&mut rig, Some(5), false);
    assert_eq!(rig.b.open.port.remove_vlan(7), Ok(true));
    try_vlan(&mut rig, Some(5), true);
    rig.finish();
}

/// The rule of a VLAN is for both directions: it lets the packets that the VSI sends out, too.
#[test]
fn packets_of_an_added_vlan_still_leave() {
    let mut rig = Rig::new();
    rig.b.open.port.add_vlan(5).expect("added");
    for vlan in [Some(5), None, Some(7)] {
        let frame = plain_frame(rig.a.mac(), rig.b.mac(), 100, 1);
        let mut packet = rig.b.packet(&frame);
        packet.set_vlan(vlan);
        rig.b.send([packet]);
        for _ in 0..100 {
            rig.pass();
        }
        assert_eq!(rig.a.poll().len(), 1, "VLAN {vlan:?}");
    }
    rig.finish();
}

/// Two ports of a card in a VLAN mode, and a frame from the first to the second.
fn in_mode(double_vlan: bool) -> (Rig, Vec<u8>) {
    let mut world = world_settings(2);
    for function in &mut world.functions {
        function.double_vlan = double_vlan;
    }
    let rig = Rig::on(&world, &settings(), &settings());
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 100, 1);
    (rig, frame)
}

/// The driver of another port of the card loaded the package and chose the mode: the tag of a
/// packet is the outer one there, and the VSI's outer section decides what happens to it.
#[test]
fn tags_are_kept_taken_and_sent_in_both_modes_of_the_card() {
    for double_vlan in [false, true] {
        let (mut rig, frame) = in_mode(double_vlan);
        let tag = [0x81, 0, 0, 5];
        for stripping in [VlanStripping::Off, VlanStripping::On, VlanStripping::Off] {
            rig.b.open.port.strip_vlan(stripping).expect("set");
            let mut packet = rig.a.packet(&frame);
            packet.set_vlan(Some(5));
            rig.a.send([packet]);
            let (_, found) = rig.wait_b(1).remove(0);
            if stripping == VlanStripping::On {
                assert_eq!((found.vlan(), found.to_vec()), (Some(5), frame.clone()));
                continue;
            }
            let whole = [&frame[..12], &tag, &frame[12..]].concat();
            assert_eq!((found.vlan(), found.to_vec()), (None, whole));
        }
        rig.b.open.port.add_vlan(6).expect("added");
        try_vlan(&mut rig, Some(5), false);
        try_vlan(&mut rig, Some(6), true);
        rig.finish();
    }
}

/// In double VLAN mode the outer tag is of the type that the VSIs of both ports name. The VSI
/// removes it, and the inner one stays. In single VLAN mode it is a service tag, which is payload:
/// both stay.
#[test]
fn two_tags_are_sent_and_received_in_both_modes_of_the_card() {
    for double_vlan in [false, true] {
        let (mut rig, frame) = in_mode(double_vlan);
        let outer = match double_vlan {
            true => [0x81, 0, 0x20, 6],
            false => [0x88, 0xA8, 0x20, 6],
        };
        let inner = [0x81, 0, 0, 5];
        for stripping in [VlanStripping::Off, VlanStripping::On] {
            rig.b.open.port.strip_vlan(stripping).expect("set");
            let mut packet = rig.a.packet(&frame);
            packet.set_vlan(Some(5));
            packet.set_outer_vlan(Some(0x2006));
            rig.a.send([packet]);
            let (_, found) = rig.wait_b(1).remove(0);
            let (tag, kept) = match stripping {
                VlanStripping::On if double_vlan => (Some(0x2006), inner.to_vec()),
                VlanStripping::On | VlanStripping::Off => (None, [outer, inner].concat()),
            };
            let whole = [&frame[..12], &kept, &frame[12..]].concat();
            assert_eq!(
                (found.vlan(), found.to_vec()),
                (tag, whole),
                "double: {double_vlan}"
            );
            assert_eq!(found.outer_vlan(), None);
        }
        // An outer tag alone is one that a card in single VLAN mode does not insert.
        let mut packet = rig.a.packet(&frame);
        packet.set_outer_vlan(Some(6));
        rig.a.send([packet]);
        let refused = rig.a.open.transmit[0].drops().outer_tag_alone;
        assert_eq!(refused, u64::from(!double_vlan));
        if double_vlan {
            let (_, found) = rig.wait_b(1).remove(0);
            assert_eq!((found.vlan(), found.to_vec()), (Some(6), frame));
        } else {
            rig.silent_b();
        }
        rig.finish();
    }
}

/// Packets without a tag are always in: the first VLAN must be one that shuts the others out.
#[test]
fn vlan_0_is_refused_and_changes_nothing() {
    let mut rig = Rig::new();
    let port = rig.b.open.port.clone();
    for wrong in [0, 4095] {
        let error = port.add_vlan(wrong).expect_err("no VLAN").to_string();
        assert!(error.contains("1 to 4094"), "{error}");
    }
    assert_eq!(port.remove_vlan(0), Ok(false));
    try_vlan(&mut rig, Some(7), true);
    port.add_vlan(5).expect("added");
    assert_eq!(port.setup().vsi.vlans, [5]);
    assert_eq!(port.remove_vlan(0), Ok(false));
    try_vlan(&mut rig, None, true);
    try_vlan(&mut rig, Some(7), false);
    assert_eq!(port.remove_vlan(5), Ok(true));
    try_vlan(&mut rig, Some(7), true);
    drop(port);
    rig.finish();
}

/// A program and its stack use the same group, and each may end first.
#[test]
fn a_group_that_is_held_and_added_comes_until_both_have_given_it_back() {
    let mut rig = Rig::new();
    let port = rig.b.open.port.clone();
    for program_first in [true, false] {
        for program_ends_first in [true, false] {
            if program_first {
                port.add_address(GROUP).expect("added");
            }
            port.hold_group(GROUP).expect("held");
            port.hold_group(GROUP).expect("held twice");
            if !program_first {
                assert!(port.setup().vsi.addresses.is_empty());
                assert_eq!(port.remove_address(GROUP), Ok(false), "the holder's");
                port.add_address(GROUP).expect("added");
            }
            assert_eq!(port.setup().vsi.addresses, [GROUP]);
            assert_eq!(port.release_group(GROUP), Ok(true));
            match program_ends_first {
                true => assert_eq!(port.remove_address(GROUP), Ok(true)),
                false => assert_eq!(port.release_group(GROUP), Ok(true)),
            }
            try_address(&mut rig, GROUP, true);
            match program_ends_first {
                true => assert_eq!(port.release_group(GROUP), Ok(true)),
                false => assert_eq!(port.remove_address(GROUP), Ok(true)),
            }
            try_address(&mut rig, GROUP, false);
            assert_eq!(port.release_group(GROUP), Ok(false));
            assert_eq!(port.remove_address(GROUP), Ok(false));
        }
    }
    assert!(port.hold_group(STRANGER).is_err());
    // Still held when the port goes.
    port.hold_group(GROUP).expect("held");
    drop(port);
    rig.finish();
}

#[test]
fn a_port_that_is_dropped_leaves_no_rule_behind() {
    let all = PortSettings {
        promiscuous: true,
        ..settings()
    };
    let rig = Rig::with(&settings(), &all);
    rig.b.open.port.add_vlan(5).expect("added");
    rig.b.open.port.add_address(STRANGER).expect("added");
    rig.finish();
}
