//! The access control list: tables of ternary keys with actions.
//!
//! A table is made of slices of [`SLICE_ENTRIES`] keys of [`KEY_BYTES`] bytes; wider keys take
//! slices side by side, deeper tables slices one below the other. Source: DPDK 25.11
//! `ice_adminq_cmd.h`, `ice_aqc_acl_*`, and `ice_acl_ctrl.c`.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters of [`AllocateAccessTable`](super::Opcode::AllocateAccessTable); the buffer of the
    /// answer holds [`AccessTable`].
    pub struct AllocateAccessTable "ice_aqc_acl_alloc_table" {
        /// bits of a key
        key_bits "table_width": U16,
        /// entries
        entries "table_depth": U16,
        /// pairs of actions of an entry
        action_pairs "act_pairs_per_entry": u8,
        /// zero: no other table is consulted at the same time
        kind "table_type": u8,
        /// zero
        reserved "reserved": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of commands about one object: its number, or the scenario's that the answer
    /// names.
    pub struct AccessObject "ice_aqc_acl_tbl_actpair" {
        /// number
        number "alloc_id": U16,
        /// zero
        reserved "reserved": [u8; 6],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of commands about one profile: the buffer of
    /// [`ProgramAccessProfile`](super::Opcode::ProgramAccessProfile) and
    /// [`QueryAccessProfile`](super::Opcode::QueryAccessProfile) has [`PROFILE_BYTES`], that of
    /// [`ProgramAccessRanges`](super::Opcode::ProgramAccessRanges) and
    /// [`QueryAccessRanges`](super::Opcode::QueryAccessRanges) [`RANGES_BYTES`].
    pub struct AccessProfile "ice_aqc_acl_profile" {
        /// profile
        profile "profile_id": u8,
        /// zero
        reserved "reserved": [u8; 7],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`ProgramAccessEntry`](super::Opcode::ProgramAccessEntry), whose buffer holds
    /// [`AccessKey`], and of [`ProgramAccessActions`](super::Opcode::ProgramAccessActions).
    pub struct AccessEntry "ice_aqc_acl_entry" {
        /// slice, or memory of actions
        slice "tcam_index": u8,
        /// zero
        reserved_1 "reserved": u8,
        /// entry
        entry "entry_index": U16,
        /// zero
        reserved_2 "reserved2": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// A table that was allocated, or one that was freed.
    pub struct AccessTable "ice_aqc_acl_generic": 28 {
        /// number, from [`FIRST_TABLE`] on
        number "alloc_id": U16,
        /// first slice
        first_slice "ops.table.first_tcam": u8,
        /// last slice
        last_slice "ops.table.last_tcam": u8,
        /// first entry of each slice
        first_entry "first_entry": U16,
        /// last entry of each slice
        last_entry "last_entry": U16,
        /// memories of actions, [`NO_MEMORY`] where there is none
        action_memories "act_mem": [u8; 20],
    }
    /// Key of an entry in one slice. Bits that are clear in both halves match nothing.
    pub struct AccessKey "ice_aqc_acl_data": 10 {
        /// bits that may be 0
        key "entry_key": [u8; 5],
        /// bits that may be 1
        inverse "entry_key_invert": [u8; 5],
    }
}

/// Bytes of the fields that a profile extracts from a packet, and of the scenario of each function.
/// Source: `ice_aqc_acl_prof_generic_frmt`.
pub const PROFILE_BYTES: usize = 85;
/// Bytes of the ranges of a profile. Source: `ice_aqc_acl_profile_ranges`.
pub const RANGES_BYTES: usize = 48;
/// Bytes of a scenario: the fields that each slice compares, and the entries whose actions apply.
/// Source: `ice_aqc_acl_scen`.
pub const SCENARIO_BYTES: usize = 132;
/// Entries of a slice.
pub const SLICE_ENTRIES: u16 = 512;
/// Bytes of a key in one slice.
pub const KEY_BYTES: u16 = 5;
/// Slices of the device.
pub const SLICES: u16 = 16;
/// Memories of actions of the device.
pub const ACTION_MEMORIES: usize = 20;
/// Smallest number of a table; a smaller one in an answer means that none was left.
pub const FIRST_TABLE: u16 = 0x1000;
/// No memory of actions.
pub const NO_MEMORY: u8 = 0xFF;
/// Scenarios of the device.
pub const SCENARIOS: u16 = 63;
