//! Commands of drivers that are not ours, as numbers: what driver and model share is not used.

use super::client::Client;
use ringside_spec::lan::admin::{Descriptor, Opcode, ReturnCode};

const BUFFER: u64 = 0x10_4000;
/// Flags of a command whose buffer the firmware fills, and of one whose buffer it reads.
const FILLED: u16 = 0x1000;

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

#[test]
fn the_module_answers_at_the_seven_bits_of_its_address() {
    let mut client = Client::ready();
    let mut read = |bus: u16| {
        let [low, high] = bus.to_le_bytes();
        let asked = command(0x06EE, FILLED, [0, 1, low, high, 0, 0, 0, 0], 8);
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
