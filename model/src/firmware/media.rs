//! The module in the port: a QSFP28 for short-range fibre, with its memory.

use super::command::{Command, Outcome};
use super::link::{check_own_port, has_media};
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::link::{ModuleBus, ModuleEeprom, page_mode};
use ringside_spec::lan::module::{BUS_ADDRESS, MAX_READ_BYTES, PAGE_BYTES, identifier, places};

const VENDOR: &[u8; 16] = b"ringside        ";
const PART_NUMBER: &[u8; 16] = b"MODEL-100G-SR4  ";
const SERIAL_NUMBER: &[u8; 16] = b"0001            ";
/// 35.5 degrees Celsius.
const TEMPERATURE: i16 = 35 * 256 + 128;
/// 3.3 volts.
const SUPPLY: u16 = 33_000;
/// Status, byte 2: the module has no further upper pages. Source: SFF-8636, table 6-2.
const FLAT: u8 = 1 << 2;
/// First byte of the upper page: the identifier again.
const UPPER: usize = 128;

/// Bytes that describe a short-range module of 100 Gb/s, by position. Source: SFF-8636, tables 6-1,
/// 6-9 and 6-14; SFF-8024, tables 4-1 to 4-4.
const CLAIMS: &[(usize, &[u8])] = &[
    // Received light and current of each laser: 0.5 mW and 7 mA. Sent light: 1 mW.
    (34, &[0x13, 0x88, 0x13, 0x88, 0x13, 0x88, 0x13, 0x88]),
    (42, &[0x0D, 0xAC, 0x0D, 0xAC, 0x0D, 0xAC, 0x0D, 0xAC]),
    (50, &[0x27, 0x10, 0x27, 0x10, 0x27, 0x10, 0x27, 0x10]),
    // Up to 3.5 W; connector MPO 1x12; the kind of link is in the extended codes.
    (129, &[0xC0, 0x0C, 0x80]),
    // 64B/66B; 25.5 Gb/s or more, see byte 222.
    (139, &[0x05, 0xFF]),
    // 70 m of OM3, 100 m of OM4, in units of two metres; a laser of 850 nm without cooling.
    (143, &[35, 0, 0, 50, 0]),
    // 850 nm within 10 nm, up to 70 degrees Celsius.
    (186, &[0x42, 0x68, 0x07, 0xD0, 70]),
    // 100GBASE-SR4.
    (192, &[0x02]),
    // Manufactured on 1 January 2026.
    (212, b"260101  "),
    // All monitors are there, received light is an average.
    (220, &[0x3C]),
    // 25.75 Gb/s in units of 250 Mb/s.
    (222, &[103]),
];

/// Position of a checksum, and of the first byte that it covers: all up to itself.
const CHECKSUMS: [(usize, usize); 2] = [(191, 128), (223, 192)];

/// The low eight bits of a sum.
fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Lower page and first upper page.
fn memory() -> [u8; PAGE_BYTES] {
    let mut memory = [0; PAGE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = memory.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &[identifier::QSFP28, 8, FLAT]);
    put(UPPER, &[identifier::QSFP28]);
    if let Some(places) = places(identifier::QSFP28) {
        put(places.vendor, VENDOR);
        put(places.part_number, PART_NUMBER);
        put(places.serial_number, SERIAL_NUMBER);
        if let (Some(temperature), Some(supply)) = (places.temperature, places.supply) {
            put(temperature, &TEMPERATURE.to_be_bytes());
            put(supply, &SUPPLY.to_be_bytes());
        }
    }
    for (at, bytes) in CLAIMS {
        put(*at, bytes);
    }
    for (at, first) in CHECKSUMS {
        let sum = sum(memory.get(first..at).unwrap_or_default());
        if let Some(place) = memory.get_mut(at) {
            *place = sum;
        }
    }
    memory
}

/// Reads the memory; upper pages but the first read as zeros. Nothing can be written. Without a
/// page mode the page of the command means nothing: the module never leaves its first one.
pub(super) fn read(command: &mut Command, context: &mut Context<'_>) -> Outcome {
    let asked: ModuleEeprom = command.parameters();
    let bus = ModuleBus(asked.bus_address.get());
    check_own_port(asked.port, asked.port_valid, context);
    let length = command.buffer.len();
    if !(1..=MAX_READ_BYTES).contains(&length) {
        context
            .ledger
            .breach("module read of more than 16 bytes, or of none", || {
                format!("{length} bytes")
            });
        return Err(ReturnCode::Invalid);
    }
    if !has_media(context.faults) {
        return Err(ReturnCode::NoEntry);
    }
    if bus.write() {
        return Err(ReturnCode::NotPermitted);
    }
    if bus.ten_bit_address() || bus.address() != BUS_ADDRESS {
        return Err(ReturnCode::NoEntry);
    }
    let mut memory = memory();
    if bus.page_mode() != page_mode::KEEP
        && asked.page.get() != 0
        && let Some(upper) = memory.get_mut(UPPER..)
    {
        upper.fill(0);
    }
    let from = usize::from(asked.memory_address.get());
    let bytes = memory.get(from..from + length).ok_or(ReturnCode::Invalid)?;
    command.put_bytes(0, bytes)?;
    command.done()
}
