//! Calls that the firmware refuses in the middle: device and setup are as before.

use crate::rig::{Rig, close, plain_frame, settings};
use crate::vsis::snapshot;
use ringside_lan::Toeplitz;
use ringside_model::Fault;
use ringside_pmd::lan::port::{
    FlowKind, FlowMatch, FlowRule, FlowTarget, HashField, RuleKind, Spreading,
};
use ringside_pmd::lan::{Port, PortError, PortSettings, VsiSettings};
use ringside_spec::lan::admin::Opcode;

const ONE: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 1];
const TWO: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 2];
const STRANGER: [u8; 6] = [0x02, 1, 2, 3, 4, 5];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 9];

/// Makes the firmware of `b` refuse a command, and demands that the call fails and changes nothing.
fn refuse<T>(rig: &Rig, opcode: Opcode, call: impl FnOnce(&Port) -> Result<T, PortError>) {
    let port = &rig.b.open.port;
    let (before, mac) = (port.setup(), port.mac());
    let fault = Fault::AdminCommandFails {
        opcode: opcode.code(),
        code: 12,
    };
    rig.world.with(|world| world.inject(1, fault));
    let refused = call(port).map(|_| ()).expect_err("refused");
    rig.world.with(|world| world.clear_faults(1));
    assert_eq!((port.setup(), port.mac()), (before, mac), "{refused}");
}

/// True if a frame to this address, on this VLAN, arrives.
fn comes(rig: &mut Rig, to: [u8; 6], vlan: Option<u16>) -> bool {
    let mut packet = rig.a.packet(&plain_frame(to, rig.a.mac(), 100, 1));
    packet.set_vlan(vlan);
    rig.a.send([packet]);
    for _ in 0..100 {
        rig.pass();
    }
    !rig.b.poll().is_empty()
}

#[test]
fn a_vlan_that_is_refused_leaves_the_vlans_as_they_were() {
    let mut rig = Rig::new();
    let own = rig.b.mac();
    for opcode in [Opcode::AddSwitchRules, Opcode::UpdateVsi] {
        refuse(&rig, opcode, |port| port.add_vlan(5));
        assert!(comes(&mut rig, own, Some(5)) && comes(&mut rig, own, Some(7)));
    }
    rig.b.open.port.add_vlan(5).expect("added");
    for opcode in [Opcode::AddSwitchRules, Opcode::UpdateVsi] {
        refuse(&rig, opcode, |port| port.add_vlan(6));
        assert!(comes(&mut rig, own, Some(5)) && !comes(&mut rig, own, Some(6)));
    }
    for opcode in [Opcode::RemoveSwitchRules, Opcode::UpdateVsi] {
        refuse(&rig, opcode, |port| port.remove_vlan(5));
        assert!(comes(&mut rig, own, Some(5)) && !comes(&mut rig, own, Some(7)));
    }
    assert_eq!(rig.b.open.port.remove_vlan(5), Ok(true));
    assert!(comes(&mut rig, own, Some(7)));
    rig.finish();
}

#[test]
fn a_mode_that_is_refused_leaves_the_modes_as_they_were() {
    let mut rig = Rig::new();
    // The rule for groups is there already: that for single stations is the only one to fail.
    rig.b.open.port.set_all_multicast(true).expect("set");
    refuse(&rig, Opcode::AddSwitchRules, |port| {
        port.set_promiscuous(true)
    });
    assert!(!comes(&mut rig, STRANGER, None) && comes(&mut rig, GROUP, None));
    rig.b.open.port.set_promiscuous(true).expect("set");
    refuse(&rig, Opcode::RemoveSwitchRules, |port| {
        port.set_promiscuous(false)
    });
    assert!(comes(&mut rig, STRANGER, None));
    rig.finish();
}

/// The rules of a table that has room for one: promiscuous mode needs a second one, for groups.
#[test]
fn a_mode_whose_second_rule_has_no_room_is_undone() {
    let mut rig = Rig::new();
    let port = rig.b.open.port.clone();
    let address = |number: u16| {
        let [high, low] = number.to_be_bytes();
        [0x02, 0xBB, 0, 0, high, low]
    };
    let full = (0..u16::MAX).find(|number| port.add_address(address(*number)).is_err());
    let full = full.expect("the table is full");
    assert_eq!(port.remove_address(address(0)), Ok(true));
    let before = port.setup();
    port.set_promiscuous(true)
        .expect_err("there is room for one rule");
    assert_eq!(port.setup(), before);
    assert!(!comes(&mut rig, STRANGER, None) && !comes(&mut rig, GROUP, None));
    assert_eq!(port.remove_address(address(1)), Ok(true));
    port.set_promiscuous(true).expect("there is room for two");
    assert!(comes(&mut rig, STRANGER, None) && comes(&mut rig, GROUP, None));
    assert!((2..full).all(|number| port.remove_address(address(number)) == Ok(true)));
    drop(port);
    rig.finish();
}

/// The firmware takes the new address and keeps the former one's rule: the port gets its former
/// address back.
#[test]
fn an_address_whose_former_one_stays_is_refused() {
    let mut rig = Rig::new();
    rig.b.open.port.set_address(ONE).expect("possible");
    refuse(&rig, Opcode::RemoveSwitchRules, |port| {
        // The rule of the refused address stays for the same reason.
        let refused = port.set_address(TWO);
        assert_eq!(port.mac(), ONE);
        rig.world.with(|world| world.clear_faults(1));
        assert_eq!(port.remove_address(TWO), Ok(true), "it is in the setup");
        refused
    });
    assert!(comes(&mut rig, ONE, None) && !comes(&mut rig, TWO, None));
    rig.b.open.port.set_address(TWO).expect("possible");
    assert!(!comes(&mut rig, ONE, None) && comes(&mut rig, TWO, None));
    rig.finish();
}

/// The key is written before the table.
#[test]
fn a_table_that_is_refused_leaves_key_and_table() {
    let receiver = PortSettings {
        receive_queues: 2,
        ..settings()
    };
    let mut rig = Rig::with(&settings(), &receiver);
    let spreading = |byte| Spreading {
        key: [byte; 52],
        table: vec![0, 1],
    };
    rig.b.open.port.spread(&spreading(1)).expect("possible");
    refuse(&rig, Opcode::SetRssTable, |port| port.spread(&spreading(2)));
    let flow = crate::rig::Flow {
        v6: false,
        protocol: 17,
        ports: (7, 9),
    };
    let frame = crate::rig::ip_frame(rig.b.mac(), rig.a.mac(), flow, b"x");
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9];
    let expected = Toeplitz::new([1; 52]).hash_bytes(bytes);
    assert_eq!(rig.wait_b(1)[0].1.hash(), Some(expected));
    rig.finish();
}

#[test]
fn a_field_that_is_named_twice_counts_once_and_in_the_order_of_the_device() {
    use HashField::{DestinationPort, SourceAddress};
    let rig = Rig::new();
    let port = &rig.b.open.port;
    let named = [DestinationPort, SourceAddress, DestinationPort];
    port.set_hash_fields(FlowKind::UdpV4, &named).expect("set");
    let fields = vec![SourceAddress, DestinationPort];
    assert_eq!(port.hash_fields(FlowKind::UdpV4), Some(fields.clone()));
    let setup = port.setup().vsi.hash_fields;
    assert_eq!(setup.get(&FlowKind::UdpV4), Some(&fields));
    rig.finish();
}

/// The group for the transmit queues is made before the VSI.
#[test]
fn a_vsi_that_is_refused_leaves_nothing_in_the_device() {
    let rig = Rig::new();
    let before = snapshot(&rig);
    let wanted = VsiSettings {
        queues: settings(),
        ..VsiSettings::new(ONE)
    };
    for opcode in [
        Opcode::AddSchedulerElements,
        Opcode::AddVsi,
        Opcode::AddSwitchRules,
    ] {
        refuse(&rig, opcode, |port| port.add_vsi(&wanted));
        assert_eq!(snapshot(&rig), before, "{opcode:?}");
    }
    close(rig.b.open.port.add_vsi(&wanted).expect("possible"));
    rig.finish();
}

/// A profile and rows are taken for a kind before its tables are written.
#[test]
fn a_rule_of_another_kind_that_is_refused_leaves_nothing_in_the_device() {
    let rig = Rig::new();
    let rule = |kind| FlowRule {
        packets: FlowMatch {
            destination_port: Some(9),
            ..FlowMatch::of(RuleKind::Flow(kind))
        },
        target: FlowTarget::Queue(0),
        mark: None,
        count: false,
    };
    let port = rig.b.open.port.clone();
    port.add_rule(&rule(FlowKind::UdpV4)).expect("programmed");
    let before = snapshot(&rig);
    for opcode in [Opcode::AllocateResource, Opcode::UpdatePackage] {
        refuse(&rig, opcode, |port| port.add_rule(&rule(FlowKind::TcpV4)));
        assert_eq!(snapshot(&rig).resources, before.resources, "{opcode:?}");
    }
    // Other fields than those of the refused rule: nothing of it is left in the driver either.
    let mut other = rule(FlowKind::TcpV4);
    other.packets.source_port = Some(7);
    port.add_rule(&other).expect("programmed");
    drop(port);
    rig.finish();
}

#[test]
fn a_rule_of_fields_that_its_kind_does_not_compare_is_refused_by_name() {
    let rig = Rig::new();
    // UDP has a kind of its own.
    let rule = FlowRule {
        packets: FlowMatch {
            protocol: Some(17),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::OtherV4))
        },
        target: FlowTarget::Drop,
        mark: None,
        count: false,
    };
    let refused = rig.b.open.port.add_rule(&rule).expect_err("udp4");
    let PortError::Invalid { what, remedy, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(what, "protocol");
    assert!(remedy.contains("udp4"), "{remedy}");
    rig.finish();
}
