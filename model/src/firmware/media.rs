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
