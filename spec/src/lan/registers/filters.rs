//! Receive side scaling (RSS) and flow director.

use crate::lan::identity::VSI_COUNT;
use crate::lan::wire::registers;
use crate::lan::{RegisterArray, RegisterGrid};

registers! {
    /// Bit 0: flow director enabled for the function.
    FLOW_DIRECTOR_ENABLE "PFQF_FD_ENA" = 0x43_A000;
    /// Flow director entries of the device; see [`FlowDirectorSize`].
    FLOW_DIRECTOR_SIZE "GLQF_FD_SIZE" = 0x46_0010;
    /// Flow director entries of the device in use; see [`FlowDirectorSize`].
    FLOW_DIRECTOR_COUNT "GLQF_FD_CNT" = 0x46_0018;
    /// Flow director entries of the function; see [`FlowDirectorSize`].
    FUNCTION_FLOW_DIRECTOR_SIZE "PFQF_FD_SIZE" = 0x46_0100;
}

const VSIS: u32 = VSI_COUNT as u32;

/// The hash settings of a VSI; see [`HashControl`].
pub const HASH_CONTROL: RegisterArray = RegisterArray::new("VSIQF_HASH_CTL", 0x40_D000, 4, VSIS);
/// Hash key of a VSI, row = dword 0..13.
pub const HASH_KEY: RegisterGrid =
    RegisterGrid::new("VSIQF_HKEY", 0x40_0000, (0x1000, 13), (4, VSIS));
/// Lookup table of a VSI, row = dword 0..16, four entries of four bits each.
pub const HASH_LOOKUP: RegisterGrid =
    RegisterGrid::new("VSIQF_HLUT", 0x42_0000, (0x1000, 16), (4, VSIS));
/// Hash regions of a VSI's traffic classes, row = dword 0..4.
pub const CLASS_REGION: RegisterGrid =
    RegisterGrid::new("VSIQF_TC_REGION", 0x44_8000, (0x1000, 4), (4, VSIS));
/// Masks of hashed fields.
pub const HASH_MASK: RegisterArray = RegisterArray::new("GLQF_HMASK", 0x40_FC00, 4, 32);
/// The masks of a hash profile.
pub const HASH_MASK_SELECT: RegisterArray = RegisterArray::new("GLQF_HMASK_SEL", 0x41_0000, 4, 128);
/// Pairs of words of symmetric hashing, row = word 0..6, index = profile.
pub const HASH_SYMMETRY: RegisterGrid =
    RegisterGrid::new("GLQF_HSYMM", 0x40_F000, (0x200, 6), (4, 128));
/// Masks of flow director fields.
pub const FLOW_DIRECTOR_MASK: RegisterArray = RegisterArray::new("GLQF_FDMASK", 0x41_0800, 4, 32);
/// The masks of a flow director profile.
pub const FLOW_DIRECTOR_MASK_SELECT: RegisterArray =
    RegisterArray::new("GLQF_FDMASK_SEL", 0x41_0400, 4, 128);
/// Input set of a flow director profile, row = word 0..6, index = profile.
pub const FLOW_DIRECTOR_INPUT: RegisterGrid =
    RegisterGrid::new("GLQF_FDINSET", 0x41_2000, (0x200, 6), (4, 128));
/// Swapped words of a flow director profile, row = word 0..6, index = profile.
pub const FLOW_DIRECTOR_SWAP: RegisterGrid =
    RegisterGrid::new("GLQF_FDSWAP", 0x41_3000, (0x200, 6), (4, 128));
/// Flow director entries of a VSI; see [`VsiFlowDirectorSize`].
pub const VSI_FLOW_DIRECTOR_SIZE: RegisterArray =
    RegisterArray::new("VSIQF_FD_SIZE", 0x46_2000, 4, VSIS);
/// Flow director entries of a VSI in use; see [`VsiFlowDirectorSize`].
pub const VSI_FLOW_DIRECTOR_COUNT: RegisterArray =
    RegisterArray::new("VSIQF_FD_CNT", 0x46_4000, 4, VSIS);

/// All arrays of this module.
pub const ARRAYS: &[RegisterArray] = &[
    HASH_CONTROL,
    HASH_MASK,
    HASH_MASK_SELECT,
    FLOW_DIRECTOR_MASK,
    FLOW_DIRECTOR_MASK_SELECT,
    VSI_FLOW_DIRECTOR_SIZE,
    VSI_FLOW_DIRECTOR_COUNT,
];
/// All grids of this module.
pub const GRIDS: &[RegisterGrid] = &[
    HASH_KEY,
    HASH_LOOKUP,
    CLASS_REGION,
    HASH_SYMMETRY,
    FLOW_DIRECTOR_INPUT,
    FLOW_DIRECTOR_SWAP,
];

crate::words! {
    /// The hash settings of a VSI. Source: `VSIQF_HASH_CTL`.
    pub struct HashControl: u32 {
        /// 0 the VSI's table, 2 the function's, 3 a global one
        table: [1:0],
        /// index of the global table
        global_table: [5:2],
        /// 0 Toeplitz, 1 symmetric Toeplitz, 2 exclusive or
        scheme: [7:6],
        /// traffic class that overrides
        class_override: [12:8],
        /// the override applies
        class_override_enable: [15],
    }
    /// A mask of fields. Source: `GLQF_HMASK`, `GLQF_FDMASK`.
    pub struct FieldMask: u32 {
        /// word of the field vector
        word: [4:0],
        /// bits of the word that count
        bits: [31:16],
    }
    /// One of the four words of a register of [`HASH_SYMMETRY`], [`FLOW_DIRECTOR_INPUT`] or
    /// [`FLOW_DIRECTOR_SWAP`]. Source: `GLQF_HSYMM`, `GLQF_FDINSET`, `GLQF_FDSWAP`.
    pub struct WordChoice: u8 {
        /// word of the field vector
        word: [4:0],
        /// it counts
        enable: [7],
    }
    /// Flow director entries. Source: `GLQF_FD_SIZE`.
    pub struct FlowDirectorSize: u32 {
        /// guaranteed entries
        guaranteed: [14:0],
        /// entries that are shared
        best_effort: [30:16],
    }
    /// Flow director entries of a VSI. Source: `VSIQF_FD_SIZE`.
    pub struct VsiFlowDirectorSize: u32 {
        /// guaranteed entries
        guaranteed: [13:0],
        /// entries that are shared
        best_effort: [29:16],
    }
}
