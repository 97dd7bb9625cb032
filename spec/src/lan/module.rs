//! Memory of pluggable modules, as far as drivers read it.

/// Bytes of the lower and the first upper page.
pub const PAGE_BYTES: usize = 256;
/// Bytes that one command reads at most. Source: DPDK `ice_common.c`, `ice_aq_sff_eeprom`.
pub const MAX_READ_BYTES: usize = 16;
/// Bytes that one command of a driver reads. Source: Linux and DPDK, `SFF_READ_BLOCK_SIZE`.
pub const READ_BYTES: usize = 8;
/// Address of the memory on the module's bus, seven bits without the direction bit: documents of
/// modules write it as the byte 0xA0.
pub const BUS_ADDRESS: u16 = 0x50;
/// Bytes of a name.
pub const TEXT_BYTES: usize = 16;

/// First byte of the memory. Source: SFF-8024, table 4-1.
pub mod identifier {
    /// SFP, SFP+, SFP28
    pub const SFP: u8 = 0x03;
    /// QSFP
    pub const QSFP: u8 = 0x0C;
    /// QSFP+
    pub const QSFP_PLUS: u8 = 0x0D;
    /// QSFP28
    pub const QSFP28: u8 = 0x11;
}

/// Positions of fields in the memory, bytes from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// maker, [`TEXT_BYTES`]
    pub vendor: usize,
    /// part number, [`TEXT_BYTES`]
    pub part_number: usize,
    /// serial number, [`TEXT_BYTES`]
    pub serial_number: usize,
    /// degrees Celsius in 1/256, signed, big-endian; an SFP has it in another memory
    pub temperature: Option<usize>,
    /// volts in 1/10000, big-endian; the same
    pub supply: Option<usize>,
}

/// The positions in a kind of module; `None` if they are not known here.
///
/// Source: SFF-8636, tables 6-1 and 6-14; SFF-8472, table 4-1.
#[must_use]
pub const fn places(identifier: u8) -> Option<Places> {
    match identifier {
        identifier::SFP => Some(Places {
            vendor: 20,
            part_number: 40,
            serial_number: 68,
            temperature: None,
            supply: None,
        }),
        identifier::QSFP | identifier::QSFP_PLUS | identifier::QSFP28 => Some(Places {
            vendor: 148,
            part_number: 168,
            serial_number: 196,
            temperature: Some(22),
            supply: Some(26),
        }),
        _ => None,
    }
}
