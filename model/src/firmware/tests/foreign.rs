//! Commands of drivers that are not ours, as numbers: what driver and model share is not used.

use super::client::{Client, none};
use super::switching::{add_mac_rule, mac_rule};
use crate::faults::Fault;
use ringside_spec::lan::admin::link::{GetLinkStatus, link_events};
use ringside_spec::lan::admin::switch::SwitchRules;
use ringside_spec::lan::admin::vsi::{VsiCommand, VsiProperties, kind};
use ringside_spec::lan::admin::{Descriptor, Opcode, ReturnCode};
use ringside_spec::lan::registers::reset;
use std::time::Duration;
use zerocopy::IntoBytes;

const BUFFER: u64 = 0x10_4000;
/// Flags of a command whose buffer the firmware fills.
const FILLED: u16 = 0x1000;
/// The same of a command with data for the firmware.
const GIVEN: u16 = 0x1400;

/// A command with these parameters and a buffer of `length` bytes.
fn command(opcode: u16, flags: u16, parameters: [u8; 8], length: u16) -> Descriptor {
    let mut all = [0; 16];
    all[..8].copy_from_slice(&parameters);
    let descriptor = Descriptor {
        flags: flags.into(),
        opcode: opcode.into(),
        data_length: length.into(),
        parameters: all,
        ..Descriptor::zeroed()
    };
    if length == 0 {
        descriptor
    } else {
        descriptor.with_buffer_address(BUFFER)
    }
}

fn add_vsi(client: &mut Client) {
    let asked = VsiCommand {
        vsi_flags: kind::PHYSICAL_FUNCTION.into(),
        ..VsiCommand::zeroed()
    };
    let properties = VsiProperties {
        switch_id: 1,
        ..VsiProperties::zeroed()
    };
    client
        .give(Opcode::AddVsi, &asked, properties.as_bytes())
        .ok();
}

#[test]
fn the_module_answers_at_the_seven_bits_of_its_address() {
    let mut client = Client::ready();
    let mut read = |bus: u16| {
        let [low, high] = bus.to_le_bytes();
        let asked = command(0x06EE, GIVEN, [0, 0, low, high, 0, 0, 0, 0], 8);
        let answer = client.send(&asked, &[]).expect("an answer");
        (answer.descriptor.return_code(), answer.bytes)
    };
    // Linux and DPDK: 0xA0 >> 1, also with a change of the page on a mismatch.
    for bus in [0x50, 0x50 | 1 << 11] {
        let (code, bytes) = read(bus);
        assert_eq!((code, bytes[0]), (ReturnCode::Ok, 0x11), "{bus:#x}");
    }
    for bus in [0xA0, 0x51, 0x50 | 1 << 10] {
        assert_eq!(read(bus).0, ReturnCode::NoEntry, "{bus:#x}");
    }
    assert_eq!(client.breach_names(), [""; 0]);
    assert_eq!(Opcode::ModuleEeprom.code(), 0x06EE);
}

#[test]
fn a_module_is_read_with_the_flag_of_data_by_at_most_16_bytes_and_without_a_port() {
    let mut client = Client::ready();
    let mut read = |flags: u16, port: u8, length: u16| {
        let asked = command(0x06EE, flags, [0, port, 0x50, 0, 0, 0, 0, 0], length);
        let answer = client.send(&asked, &[]).expect("an answer");
        answer.descriptor.return_code()
    };
    assert_eq!(read(FILLED, 0, 8), ReturnCode::Invalid);
    assert_eq!(read(GIVEN, 0, 17), ReturnCode::Invalid);
    assert_eq!(read(GIVEN, 1, 16), ReturnCode::Ok);
    let expected = [
        "admin command without the data that it needs",
        "command for LED or module that names a port",
        "module read of more than 16 bytes, or of none",
    ];
    assert_eq!(client.breach_names(), expected);
    client.inject(Fault::ModuleAbsent);
    let asked = command(0x06EE, GIVEN, [0, 0, 0x50, 0, 0, 0, 0, 0], 1);
    let answer = client.send(&asked, &[]).expect("an answer").descriptor;
    assert_eq!(answer.return_code(), ReturnCode::NoEntry);
}

#[test]
fn documented_commands_that_the_model_does_not_carry_out_are_no_breach() {
    let mut client = Client::ready();
    for (opcode, length) in [(0x0204, 512), (0x0260, 4), (0x0C34, 64), (0xFF08, 4096)] {
        let large = if length > 512 { 0x0200 } else { 0 };
        let asked = command(opcode, FILLED | large, [0; 8], length);
        let answer = client.send(&asked, &[]).expect("an answer").descriptor;
        assert_eq!(
            answer.return_code(),
            ReturnCode::NotImplemented,
            "{opcode:#x}"
        );
    }
    assert_eq!(client.breach_names(), [""; 0]);
    let remarks = client.world.with(|world| world.remarks(0));
    let [remark] = &remarks[..] else {
        panic!("{remarks:?}");
    };
    assert_eq!((remark.count, remark.further.len()), (4, 3));
    assert_eq!(remark.first, "0x0204 get_res_alloc");
    // An opcode that no driver's sources name.
    let unknown = command(0x0BAD, 0x2000, [0; 8], 0);
    client.send(&unknown, &[]).expect("an answer");
    assert_eq!(client.breach_names(), ["admin command that does not exist"]);
}

#[test]
fn a_large_buffer_without_its_flag_is_used_and_remarked() {
    let mut client = Client::ready();
    let asked = command(0x0400, FILLED, [0; 8], 4096);
    let answer = client.send(&asked, &[]).expect("an answer");
    assert_eq!(answer.descriptor.return_code(), ReturnCode::Ok);
    assert_eq!(client.breach_names(), [""; 0]);
    let remarks = client.world.with(|world| world.remarks(0));
    assert_eq!(
        remarks[0].kind,
        "admin descriptor with a large buffer without its flag"
    );
}

/// The switch's elements one by one, as iPXE asks for them, and a rule for the VSI among them.
#[test]
fn the_vsi_of_the_firmware_serves_a_driver_that_adds_none() {
    let mut client = Client::ready();
    let mut vsi = None;
    let mut next = [0, 0];
    loop {
        let asked = command(0x0200, FILLED, [0, 0, next[0], next[1], 0, 0, 0, 0], 6);
        let answer = client.send(&asked, &[]).expect("an answer").ok();
        let number = u16::from_le_bytes([answer.bytes[0], answer.bytes[1]]);
        if number & 0xC000 == 0x8000 {
            vsi = Some(number & 0x3FFF);
        }
        next = [
            answer.descriptor.parameters[2],
            answer.descriptor.parameters[3],
        ];
        if next == [0, 0] {
            break;
        }
    }
    let vsi = vsi.filter(|vsi| *vsi != 0).expect("a VSI");
    add_mac_rule(&mut client, vsi, [2, 7, 7, 7, 7, 7]);
    assert_eq!(client.breach_names(), [""; 0]);
    add_vsi(&mut client);
    let late = client.give(
        Opcode::AddSwitchRules,
        &SwitchRules {
            rule_count: 1.into(),
            ..SwitchRules::zeroed()
        },
        &mac_rule(vsi, [2, 8, 8, 8, 8, 8]),
    );
    assert_eq!(late.descriptor.return_code(), ReturnCode::NoEntry);
}

/// The next driver, after a crash or a kexec, finds the rings on: it resets the function and sets
/// them up without switching them off.
#[test]
fn rings_that_are_on_can_be_set_up_anew_after_a_reset() {
    let mut client = Client::ready();
    client.write(reset::FUNCTION_CONTROL, 1);
    client.pass(Duration::from_millis(1));
    client.restart_rings();
    client.direct(Opcode::GetVersion, &none()).ok();
    // The firmware's events as well.
    let link = GetLinkStatus {
        flags: link_events::ENABLE.into(),
        ..GetLinkStatus::zeroed()
    };
    client.ask(Opcode::GetLinkStatus, &link, 32).ok();
    client.inject(Fault::LinkDown);
    assert!(client.event().is_some());
    assert_eq!(client.breach_names(), [""; 0]);
}
