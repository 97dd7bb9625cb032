//! Receive side scaling: key and lookup table.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters of [`SetRssKey`](super::Opcode::SetRssKey) and
    /// [`GetRssKey`](super::Opcode::GetRssKey); the buffer holds [`RssKey`].
    pub struct RssKeyCommand "ice_aqc_get_set_rss_key" {
        /// see [`RssVsi`]
        vsi "vsi_id": U16,
        /// zero
        reserved "reserved": [u8; 6],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetRssTable`](super::Opcode::SetRssTable) and
    /// [`GetRssTable`](super::Opcode::GetRssTable); the buffer holds a byte for each entry: a
    /// queue, counted from the first of the VSI.
    pub struct RssTableCommand "ice_aqc_get_set_rss_lut" {
        /// see [`RssVsi`]
        vsi "vsi_id": U16,
        /// see [`RssTableFlags`]
        flags "flags": U16,
        /// zero
        reserved "reserved": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// The hash key.
    pub struct RssKey "ice_aqc_get_set_rss_keys": 52 {
        /// the key of the Toeplitz hash
        standard "standard_rss_key": [u8; 40],
        /// its continuation for long inputs
        extended "extended_hash_key": [u8; 12],
    }
}

/// Values of [`RssTableFlags::kind`] and sizes of the tables.
pub mod table {
    /// table of the VSI
    pub const VSI: u16 = 0;
    /// table of the function
    pub const FUNCTION: u16 = 1;
    /// a global table
    pub const GLOBAL: u16 = 2;
    /// entries of the VSI's table
    pub const VSI_ENTRIES: usize = 64;
    /// entries of the function's table
    pub const FUNCTION_ENTRIES: usize = 2048;
    /// entries of a global table
    pub const GLOBAL_ENTRIES: usize = 512;
    /// [`RssTableFlags::size`](super::RssTableFlags::size) of 64 or 128 entries
    pub const SIZE_128: u16 = 0;
    /// [`RssTableFlags::size`](super::RssTableFlags::size) of 512 entries
    pub const SIZE_512: u16 = 1;
    /// [`RssTableFlags::size`](super::RssTableFlags::size) of 2048 entries
    pub const SIZE_2048: u16 = 2;
}

crate::words! {
    /// VSI of a command. Source: ice `ICE_AQC_RSS_VSI_VALID`.
    pub struct RssVsi: u16 {
        /// number in the device
        number: [9:0],
        /// the number counts
        valid: [15],
    }
    /// The kind of table. Source: ice `ICE_LUT_*`, `ICE_AQC_LUT_*`.
    pub struct RssTableFlags: u16 {
        /// see [`table`]
        kind: [1:0],
        /// see [`table`]
        size: [3:2],
        /// the number of the global table
        global_index: [7:4],
    }
}
