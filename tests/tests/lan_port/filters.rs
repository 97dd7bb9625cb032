//! Which frames come in.

use crate::rig::{Rig, plain_frame, settings};
use ringside_pmd::lan::PortSettings;

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
    try_address(&mut rig, GROUP, false);
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
