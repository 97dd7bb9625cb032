//! Flash and shadow RAM.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters and answer of [`NvmRead`](super::Opcode::NvmRead) and its neighbours.
    pub struct NvmCommand "ice_aqc_nvm" {
        /// low half of the offset in bytes
        offset_low "offset_low": U16,
        /// bits `[23:16]` of the offset
        offset_high "offset_high": u8,
        /// see [`NvmFlags`]
        flags "cmd_flags": u8,
        /// module, [`FLAT`] for the whole
        module "module_typeid": U16,
        /// bytes; in an answer those that were read
        length_bytes "length": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`NvmChecksum`](super::Opcode::NvmChecksum).
    pub struct NvmChecksum "ice_aqc_nvm_checksum" {
        /// see [`ChecksumFlags`]
        flags "flags": u8,
        /// zero
        reserved "rsvd": u8,
        /// answer: [`CHECKSUM_CORRECT`] if it is
        checksum "checksum": U16,
        /// zero
        reserved_2 "rsvd2": [u8; 12],
    }
}

wire! {
    /// One TLV of the preserved fields area: type and length in words; data follow.
    pub struct PreservedField "ice shadow RAM, PFA TLV": 4 {
        /// type
        kind "type": U16,
        /// words that follow
        length_words "length": U16,
    }
}

/// [`NvmCommand::module`] of the whole flash or shadow RAM.
pub const FLAT: u16 = 0;
/// Highest offset that a command can name.
pub const MAX_OFFSET: u32 = 0xFF_FFFF;
/// No read crosses a multiple of this many bytes.
pub const SECTOR_BYTES: u32 = 4096;
/// [`NvmChecksum::checksum`] of a good image.
pub const CHECKSUM_CORRECT: u16 = 0xBABA;

/// Word offsets in the shadow RAM. Source: ice `ice_type.h`, `ICE_SR_*`.
pub mod shadow_ram {
    /// control word: bits `[7:6]` = 1 valid, bit 3 ROM, bit 4 netlist, bit 5 firmware in bank 1
    pub const CONTROL: u16 = 0x00;
    /// pointer to the board's part number
    pub const PART_NUMBER: u16 = 0x16;
    /// version of the image: major in `[15:12]`, minor in `[7:0]`
    pub const VERSION: u16 = 0x18;
    /// wake-up configuration
    pub const WAKE_UP: u16 = 0x19;
    /// tracking id of the image, low half
    pub const TRACK_ID_LOW: u16 = 0x2D;
    /// tracking id of the image, high half
    pub const TRACK_ID_HIGH: u16 = 0x2E;
    /// pointer to the preserved fields area
    pub const PRESERVED_FIELDS: u16 = 0x40;
    /// bank of the firmware: pointer, see [`super::BankPointer`]
    pub const FIRMWARE_BANK: u16 = 0x42;
    /// size of the firmware's bank in 4 KiB
    pub const FIRMWARE_BANK_SIZE: u16 = 0x43;
    /// bank of the option ROM: pointer
    pub const ROM_BANK: u16 = 0x44;
    /// size of the option ROM's bank in 4 KiB
    pub const ROM_BANK_SIZE: u16 = 0x45;
    /// bank of the netlist: pointer
    pub const NETLIST_BANK: u16 = 0x46;
    /// size of the netlist's bank in 4 KiB
    pub const NETLIST_BANK_SIZE: u16 = 0x47;
    /// type of the link override in the preserved fields area
    pub const LINK_OVERRIDE_TYPE: u16 = 0x134;
    /// value of [`CONTROL`] for a valid image in the first banks
    pub const CONTROL_VALID: u16 = 0x0040;
}

crate::words! {
    /// Source: ice `ICE_AQC_NVM_LAST_CMD` and neighbours.
    pub struct NvmFlags: u8 {
        /// last command of a sequence
        last: [0],
        /// settings to preserve: 0 none, 1 all, 3 selected fields
        preservation: [2:1],
        /// the firmware's bank is chosen
        select_firmware: [3],
        /// the option ROM's bank is chosen
        select_rom: [4],
        /// the netlist's bank is chosen
        select_netlist: [5],
        /// special update, or return to the last activation
        special: [6],
        /// the offset is in the flash, not in the shadow RAM
        flash_only: [7],
    }
    /// Source: ice `ICE_AQC_NVM_CHECKSUM_*`.
    pub struct ChecksumFlags: u8 {
        /// verify
        verify: [0],
        /// calculate again
        recalculate: [1],
    }
    /// The position of a bank. Source: ice `ICE_SR_NVM_PTR_4KB_UNITS`.
    pub struct BankPointer: u16 {
        /// offset in words or in 4 KiB
        offset: [14:0],
        /// the offset counts 4 KiB
        four_kib_units: [15],
    }
    /// Image control. Source: ice `ICE_SR_CTRL_WORD_*`, `ICE_SR_NVM_CTRL_WORD`.
    pub struct ControlWord: u16 {
        /// the option ROM is in its second bank
        rom_second_bank: [3],
        /// the netlist is in its second bank
        netlist_second_bank: [4],
        /// the firmware is in its second bank
        firmware_second_bank: [5],
        /// 1: the image is valid
        validity: [7:6],
    }
}

impl NvmCommand {
    /// Offset in bytes.
    #[must_use]
    pub fn offset(&self) -> u32 {
        u32::from(self.offset_high) << 16 | u32::from(self.offset_low.get())
    }

    /// The command for `length_bytes` at `offset`, of which the low 24 bits count.
    #[must_use]
    pub fn at(offset: u32, length_bytes: u16, flags: NvmFlags) -> Self {
        let [low, middle, high, _] = offset.to_le_bytes();
        Self {
            offset_low: U16::from_bytes([low, middle]),
            offset_high: high,
            flags: flags.0,
            length_bytes: length_bytes.into(),
            ..Self::zeroed()
        }
    }
}

impl BankPointer {
    /// Offset of the bank in bytes.
    #[must_use]
    pub const fn offset_bytes(self) -> u32 {
        let unit = if self.four_kib_units() { 4096 } else { 2 };
        self.offset() as u32 * unit
    }
}
