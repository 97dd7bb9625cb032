//! The board: cage, module, lanes, and counters of forward error correction.

use super::client::Client;
use ringside_spec::lan::admin::board::{
    CAGE_QSFP28, EQUALIZER_SCRIPT, EqualizerRequest, EqualizerValue, RunScript,
};
use ringside_spec::lan::admin::link::{
    GetLinkTopology, ModuleEeprom, TopologyAddress, TopologyParameters,
};
use ringside_spec::lan::admin::neighbour::{NeighbourRequest, READ_BYTES, operation};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::correction;
use zerocopy::IntoBytes;

/// Asks for a node by kind, context and index, as Linux's ice writes them.
fn node(client: &mut Client, kind: u8, index: u8) -> Result<GetLinkTopology, ReturnCode> {
    let parameters = TopologyParameters {
        kind,
        index,
        ..TopologyParameters::zeroed()
    };
    let asked = GetLinkTopology {
        address: TopologyAddress {
            parameters,
            ..TopologyAddress::zeroed()
        },
        ..GetLinkTopology::zeroed()
    };
    let answer = client.direct(Opcode::GetLinkTopology, &asked).descriptor;
    match answer.return_code() {
        ReturnCode::Ok => Ok(answer.parameters()),
        code => Err(code),
    }
}

#[test]
fn the_port_has_a_cage_for_qsfp28_and_no_other_node() {
    let mut client = Client::ready();
    let cage = node(&mut client, 0x26, 0).unwrap();
    assert_eq!(cage.part_number, CAGE_QSFP28);
    // A second cage, a cage of the board, and the PHY of the port.
    for (kind, index) in [(0x26, 1), (0x16, 0), (0x20, 0)] {
        let refused = node(&mut client, kind, index).err();
        assert_eq!(refused, Some(ReturnCode::NoEntry), "{kind:#x} {index}");
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

fn run(client: &mut Client, script: u16, lane: u16) -> Result<EqualizerValue, ReturnCode> {
    let asked = RunScript {
        script: script.into(),
        ..RunScript::zeroed()
    };
    let request = EqualizerRequest {
        setting: 0x1000.into(),
        lane: lane.into(),
        ..EqualizerRequest::zeroed()
    };
    let answer = client.give(Opcode::RunScript, &asked, request.as_bytes());
    match answer.descriptor.return_code() {
        ReturnCode::Ok => Ok(answer.item(0)),
        code => Err(code),
    }
}

#[test]
fn equalizers_of_lanes_are_neutral_and_other_scripts_are_not_run() {
    let mut client = Client::ready();
    // Lane 3: receiver and transmitter.
    for lane in [0x93, 0x103] {
        let value = run(&mut client, EQUALIZER_SCRIPT, lane).unwrap();
        assert_eq!(value, EqualizerValue::zeroed());
    }
    let other = run(&mut client, 0x1128, 0x93);
    assert_eq!(other, Err(ReturnCode::NotImplemented));
    assert_eq!(client.breach_names(), [""; 0]);
    let neither = run(&mut client, EQUALIZER_SCRIPT, 0x83);
    assert_eq!(neither, Err(ReturnCode::Invalid));
    let expected = ["equalizer of neither receiver nor transmitter"];
    assert_eq!(client.breach_names(), expected);
}

#[test]
fn correction_counters_can_be_read_without_a_timer_and_not_written() {
    let mut client = Client::ready();
    for port in 0..correction::PORTS {
        let register = correction::first(port).unwrap() + 4;
        let message = NeighbourRequest::to_phy(operation::READ, register, 0);
        let value = client.ask_neighbour(&message.as_bytes()[..READ_BYTES]);
        assert_eq!(value, Ok(0), "{port}");
    }
    let message = NeighbourRequest::to_phy(operation::WRITE, 0x0330_0008, 1);
    let refused = client.ask_neighbour(message.as_bytes());
    assert_eq!(refused, Err(ReturnCode::Invalid));
    let expected = ["message to the PHY that is not possible"];
    assert_eq!(client.breach_names(), expected);
}

#[test]
fn the_module_names_its_link_and_its_checksums_are_right() {
    let mut client = Client::ready();
    let mut memory = Vec::new();
    for at in (0..256).step_by(16) {
        let asked = ModuleEeprom {
            bus_address: 0x50.into(),
            memory_address: at.into(),
            ..ModuleEeprom::zeroed()
        };
        let answer = client.give(Opcode::ModuleEeprom, &asked, &[0; 16]).ok();
        memory.extend_from_slice(&answer.bytes[..16]);
    }
    // SFF-8636: connector MPO, encoding 64B/66B, 100GBASE-SR4.
    assert_eq!((memory[130], memory[139], memory[192]), (0x0C, 5, 2));
    for (first, checksum) in [(128, 191), (192, 223)] {
        let sum = memory[first..checksum]
            .iter()
            .fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum, memory[checksum], "bytes {first} to {checksum}");
    }
    assert_eq!(client.breach_names(), [""; 0]);
}
