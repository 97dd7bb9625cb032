//! Fields of the hash, chosen for each kind of flow: the hash that software computes from them
//! equals the one that the device reports, and selects the queue.

use crate::rig::{Flow, Rig, ip_frame, settings};
use ringside_lan::{SymmetricToeplitz, Toeplitz};
use ringside_pmd::lan::PortSettings;
use ringside_pmd::lan::port::{DEFAULT_KEY, FlowKind, HashField, Spreading};

const QUEUES: usize = 4;

fn rig() -> Rig {
    let receiver = PortSettings {
        receive_queues: QUEUES,
        ..settings()
    };
    Rig::with(&settings(), &receiver)
}

/// Hash and queue of a datagram or segment with these ports.
fn arrives(rig: &mut Rig, v6: bool, protocol: u8, ports: (u16, u16)) -> (Option<u32>, usize) {
    let flow = Flow {
        v6,
        protocol,
        ports,
    };
    let frame = ip_frame(rig.b.mac(), rig.a.mac(), flow, b"x");
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    let found = rig.wait_b(1);
    (found[0].1.hash(), found[0].0)
}

/// The bytes of the fields, as in the rig's frames.
fn bytes(v6: bool, ports: (u16, u16), fields: &[HashField]) -> Vec<u8> {
    let address = |last: u8| match v6 {
        true => [&[0xFD][..], &[0; 14], &[last]].concat(),
        false => vec![10, 0, 0, last],
    };
    let bytes = |field: &HashField| match field {
        HashField::SourceAddress => address(1),
        HashField::DestinationAddress => address(2),
        HashField::SourcePort => ports.0.to_be_bytes().to_vec(),
        HashField::DestinationPort => ports.1.to_be_bytes().to_vec(),
    };
    fields.iter().flat_map(bytes).collect()
}

#[test]
fn the_hash_is_that_of_the_chosen_fields_and_of_no_others() {
    use HashField::{DestinationAddress, DestinationPort, SourceAddress, SourcePort};
    let mut rig = rig();
    let toeplitz = Toeplitz::new(DEFAULT_KEY);
    let entries = rig.b.open.port.hash_table_entries();
    let kinds = [
        (FlowKind::UdpV4, false, 17),
        (FlowKind::TcpV4, false, 6),
        (FlowKind::UdpV6, true, 17),
        (FlowKind::TcpV6, true, 6),
    ];
    let choices: [&[HashField]; 6] = [
        &[SourceAddress, DestinationAddress],
        &[SourcePort],
        &[DestinationPort],
        &[DestinationAddress, DestinationPort],
        &[SourceAddress, SourcePort, DestinationPort],
        &[
            SourceAddress,
            DestinationAddress,
            SourcePort,
            DestinationPort,
        ],
    ];
    for (kind, v6, protocol) in kinds {
        for fields in choices {
            rig.b.open.port.set_hash_fields(kind, fields).unwrap();
            assert_eq!(rig.b.open.port.hash_fields(kind).as_deref(), Some(fields));
            for ports in [(1000, 2000), (1001, 2000), (1000, 2001)] {
                let hash = toeplitz.hash_bytes(bytes(v6, ports, fields));
                let expected = (Some(hash), hash as usize % entries % QUEUES);
                let found = arrives(&mut rig, v6, protocol, ports);
                assert_eq!(found, expected, "{kind:?} {fields:?} {ports:?}");
            }
        }
    }
    rig.finish();
}

#[test]
fn a_change_of_one_kind_leaves_the_others_as_they_are() {
    let mut rig = rig();
    let all = HashField::SourceAddress;
    let before = arrives(&mut rig, false, 6, (1, 2));
    rig.b
        .open
        .port
        .set_hash_fields(FlowKind::UdpV4, &[all])
        .unwrap();
    assert_eq!(arrives(&mut rig, false, 6, (1, 2)), before);
    let udp = arrives(&mut rig, false, 17, (1, 2));
    assert_eq!(arrives(&mut rig, false, 17, (3, 4)), udp);
    assert_ne!(arrives(&mut rig, false, 6, (3, 4)).0, before.0);
    rig.finish();
}

#[test]
fn a_field_that_a_kind_does_not_have_is_refused_by_name() {
    let rig = rig();
    let port = &rig.b.open.port;
    for kind in [FlowKind::OtherV4, FlowKind::FragmentV6] {
        let error = port.set_hash_fields(kind, &[HashField::SourcePort]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&format!("source port of {kind}:")), "{text}");
    }
    rig.finish();
}

#[test]
fn a_table_longer_than_the_devices_is_refused_with_the_sizes_that_are_possible() {
    let rig = rig();
    let port = &rig.b.open.port;
    let entries = port.hash_table_entries();
    let spreading = |count: usize| Spreading {
        key: DEFAULT_KEY,
        table: vec![0; count],
    };
    for wrong in [entries + 1, 5000] {
        let error = port.spread(&spreading(wrong)).expect_err("refused");
        let text = format!(
            "hash table of {wrong} entries: choose 1 to {entries} entries, which are repeated"
        );
        assert_eq!(error.to_string(), text);
        assert_eq!(port.setup().vsi.spreading, None);
    }
    port.spread(&spreading(entries)).expect("all entries");
    rig.finish();
}

/// Each change needs a profile, and there are 128: those that are replaced must come back.
#[test]
fn profiles_that_are_replaced_are_freed() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    for round in 0..300 {
        let fields = [HashField::SourcePort, HashField::DestinationPort];
        let fields = &fields[..1 + round % 2];
        port.set_hash_fields(FlowKind::UdpV4, fields)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    drop(port);
    let _ = arrives(&mut rig, false, 17, (1, 2));
    rig.finish();
}

#[test]
fn both_directions_of_a_flow_have_the_hash_that_software_predicts() {
    let mut rig = rig();
    let port = rig.b.open.port.clone();
    for (kind, v6, protocol) in [(FlowKind::UdpV4, false, 17), (FlowKind::TcpV6, true, 6)] {
        port.set_symmetric_hash(true).unwrap();
        let address = |last: u8| match v6 {
            true => std::net::IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, u16::from(last)]),
            false => [10, 0, 0, last].into(),
        };
        // The addresses stand in one direction; the ports in both.
        for ports in [(1000, 2000), (2000, 1000), (7, 9)] {
            let flow = ringside_lan::Flow {
                source: address(1),
                destination: address(2),
                ports: Some(ports),
            };
            let hash = SymmetricToeplitz(Toeplitz::new(DEFAULT_KEY)).hash(&flow);
            let back = ringside_lan::Flow {
                source: address(2),
                destination: address(1),
                ports: Some((ports.1, ports.0)),
            };
            assert_eq!(
                SymmetricToeplitz(Toeplitz::new(DEFAULT_KEY)).hash(&back),
                hash
            );
            assert_eq!(
                arrives(&mut rig, v6, protocol, ports).0,
                Some(hash),
                "{kind:?}"
            );
        }
        // A change of the fields keeps the form: ports alone, the same for both directions.
        let own = [HashField::SourcePort, HashField::DestinationPort];
        port.set_hash_fields(kind, &own).unwrap();
        let there = arrives(&mut rig, v6, protocol, (5, 6));
        assert_eq!(arrives(&mut rig, v6, protocol, (6, 5)), there);
        port.set_symmetric_hash(false).unwrap();
        assert_ne!(
            arrives(&mut rig, v6, protocol, (6, 5)).0,
            arrives(&mut rig, v6, protocol, (5, 6)).0
        );
    }
    drop(port);
    rig.finish();
}

#[test]
fn the_form_of_the_hash_is_restored_after_a_recovery() {
    let mut rig = rig();
    let fields = [HashField::SourcePort, HashField::DestinationPort];
    rig.b.open.port.set_symmetric_hash(true).unwrap();
    let changed = rig.b.open.port.set_hash_fields(FlowKind::UdpV4, &fields);
    changed.unwrap();
    let before = rig.b.open.port.setup();
    assert!(before.vsi.symmetric_hash);
    let there = arrives(&mut rig, false, 17, (5, 6));
    rig.b.device.give_up().unwrap();
    rig.b.device.recover().expect("back in service");
    let receiver = PortSettings {
        receive_queues: QUEUES,
        ..settings()
    };
    let new = rig.b.device.open_port(&receiver).expect("in service");
    drop(std::mem::replace(&mut rig.b.open, new));
    rig.b.open.port.restore(&before).expect("as before");
    assert_eq!(rig.b.open.port.setup(), before);
    assert_eq!(arrives(&mut rig, false, 17, (5, 6)), there);
    assert_eq!(arrives(&mut rig, false, 17, (6, 5)), there);
    rig.finish();
}
