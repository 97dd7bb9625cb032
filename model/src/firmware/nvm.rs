//! Flash and shadow RAM: an image that never changes, the same for all functions.

use super::command::{Command, Outcome};
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::nvm::{
    CHECKSUM_CORRECT, FLAT, NvmChecksum, NvmCommand, NvmFlags, SECTOR_BYTES, shadow_ram,
};
use std::sync::LazyLock;

const SHADOW_RAM_BYTES: usize = 64 << 10;
const FLASH_BYTES: usize = 1 << 20;
const UNIT_BYTES: usize = 4096;

/// Units of 4 KiB where the banks begin, and how many each takes. The second bank follows the
/// first.
const FIRMWARE_BANK: (u16, u16) = (0x10, 0x40);
const ROM_BANK: (u16, u16) = (0x90, 0x01);
const NETLIST_BANK: (u16, u16) = (0xA0, 0x01);

const IN_UNITS: u16 = 1 << 15;
const IMAGE_VERSION: u16 = 0x4020;
const TRACK_ID: (u16, u16) = (0x7784, 0x8001);
const PRESERVED_FIELDS_AT: u16 = 0x0200;

/// Dwords of the header that precedes the firmware's copy of the shadow RAM.
const HEADER_DWORDS: u16 = 88;
/// Words after that header and before the copy, which starts at a multiple of 32 words.
const HEADER_EXTRA_WORDS: usize = 8;
const COPY_ALIGNMENT_WORDS: usize = 32;

/// Magic number of the option ROM's version block, and the version.
const ROM_MAGIC: [u8; 4] = *b"$CIV";
const ROM_VERSION: u32 = 0x01_0B_B8_00;
const NETLIST_MODULE: u16 = 0x011B;
const NETLIST_WORDS: u16 = 0x40;
/// Words of the netlist before its identification: two of a header and four that name no nodes.
const NETLIST_IDENTIFICATION_AT: usize = 6;
/// Words of the identification that are not zero: version 4.4, type 4000.1, revision 20, and the
/// end of the digest. Source: ice `ice_nvm.c`, `ice_get_netlist_info`; `ice_type.h`,
/// `ICE_NETLIST_ID_BLK_MAJOR_VER_LOW` and those after it.
const NETLIST_IDENTIFICATION: [(usize, u16); 6] = [
    (0x02, 4),
    (0x04, 4),
    (0x06, 1),
    (0x07, 0x4000),
    (0x08, 0x14),
    (0x18, 1),
];

/// Shadow RAM, 16-bit words.
static SHADOW_RAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut words = vec![0u16; SHADOW_RAM_BYTES / 2];
    let mut set = |at: u16, value: u16| {
        if let Some(word) = words.get_mut(usize::from(at)) {
            *word = value;
        }
    };
    set(shadow_ram::CONTROL, shadow_ram::CONTROL_VALID);
    set(shadow_ram::VERSION, IMAGE_VERSION);
    set(shadow_ram::TRACK_ID_LOW, TRACK_ID.0);
    set(shadow_ram::TRACK_ID_HIGH, TRACK_ID.1);
    let banks = [
        (
            shadow_ram::FIRMWARE_BANK,
            shadow_ram::FIRMWARE_BANK_SIZE,
            FIRMWARE_BANK,
        ),
        (shadow_ram::ROM_BANK, shadow_ram::ROM_BANK_SIZE, ROM_BANK),
        (
            shadow_ram::NETLIST_BANK,
            shadow_ram::NETLIST_BANK_SIZE,
            NETLIST_BANK,
        ),
    ];
    for (pointer, size, (first, units)) in banks {
        set(pointer, IN_UNITS | first);
        set(size, units);
    }
    set(shadow_ram::PRESERVED_FIELDS, PRESERVED_FIELDS_AT);
    // An area without fields: its size word and one closing word.
    set(PRESERVED_FIELDS_AT, 2);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
});

static FLASH: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut flash = vec![0u8; FLASH_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = flash.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let firmware = usize::from(FIRMWARE_BANK.0) * UNIT_BYTES;
    put(0, &SHADOW_RAM);
    put(firmware + 4, &HEADER_DWORDS.to_le_bytes());
    let header_words = usize::from(HEADER_DWORDS) * 2 + HEADER_EXTRA_WORDS;
    let copy_words = header_words.next_multiple_of(COPY_ALIGNMENT_WORDS);
    put(firmware + copy_words * 2, &SHADOW_RAM);
    put(usize::from(ROM_BANK.0) * UNIT_BYTES, &rom_version_block());
    let netlist = usize::from(NETLIST_BANK.0) * UNIT_BYTES;
    put(netlist, &NETLIST_MODULE.to_le_bytes());
    put(netlist + 4, &NETLIST_WORDS.to_le_bytes());
    for (word, value) in NETLIST_IDENTIFICATION {
        let at = netlist + (NETLIST_IDENTIFICATION_AT + word) * 2;
        put(at, &value.to_le_bytes());
    }
    flash
});

/// Magic, a byte that makes the sum of the first twelve bytes zero, and the version.
fn rom_version_block() -> [u8; 12] {
    let [m0, m1, m2, m3] = ROM_MAGIC;
    let [v0, v1, v2, v3] = ROM_VERSION.to_le_bytes();
    let mut block = [m0, m1, m2, m3, 0, v0, v1, v2, v3, 0, 0, 0];
    let sum = block.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let [_, _, _, _, check, ..] = &mut block;
    *check = sum.wrapping_neg();
    block
}

/// Carries out a read; `locked` is true if the driver owns the flash.
pub(super) fn read(command: &mut Command, locked: bool, context: &mut Context<'_>) -> Outcome {
    let asked: NvmCommand = command.parameters();
    let (offset, length) = (asked.offset(), u32::from(asked.length_bytes.get()));
    if !locked {
        context
            .ledger
            .breach("flash read without owning the flash", || {
                format!("offset {offset:#x}")
            });
    }
    if asked.module.get() != FLAT || length == 0 || length as usize > command.buffer.len() {
        return Err(ReturnCode::Invalid);
    }
    if offset / SECTOR_BYTES != (offset + length - 1) / SECTOR_BYTES {
        context.ledger.breach("flash read across a sector", || {
            format!("{length} bytes at {offset:#x}")
        });
        return Err(ReturnCode::Invalid);
    }
    let image = if NvmFlags(asked.flags).flash_only() {
        &FLASH
    } else {
        &SHADOW_RAM
    };
    let range = offset as usize..(offset + length) as usize;
    // Drivers find the size of the flash by this very code.
    let bytes = image.get(range).ok_or(ReturnCode::Invalid)?;
    command.put_bytes(0, bytes)?;
    command.answer_with(&asked, bytes.len())
}

pub(super) fn checksum(command: &Command) -> Outcome {
    let asked: NvmChecksum = command.parameters();
    command.answer(&NvmChecksum {
        checksum: CHECKSUM_CORRECT.into(),
        ..asked
    })
}
