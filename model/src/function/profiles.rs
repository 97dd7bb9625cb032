//! Profiles of the LAN engine: the firmware's tables with the masks and pairs of the registers.

use super::register_file::RegisterFile;
use crate::chip::{Block, Profiles, Word};
use crate::lan::Scheme;
use crate::lan::switching::{Tables, Vsi};
use crate::lan::words::{ByType, FilterProfile, FilterWord, HashProfile, HashWord, is_used};
use ringside_spec::lan::package::{UNUSED_WORD, VECTOR_WORDS};
use ringside_spec::lan::registers::filters::{
    FLOW_DIRECTOR_INPUT, FLOW_DIRECTOR_MASK, FLOW_DIRECTOR_MASK_SELECT, FLOW_DIRECTOR_SWAP,
    FieldMask, HASH_CONTROL, HASH_MASK, HASH_MASK_SELECT, HASH_SYMMETRY, HashControl, WordChoice,
};
use ringside_spec::lan::{RegisterArray, RegisterGrid};

/// A word that the parser finds in no packet: the header of number 0.
const UNFILLED_WORD: Word = (0, 0);

/// Registers of masks.
const MASKS: u32 = 32;

/// True for registers on which profiles depend.
pub(super) fn is_of_profiles(offset: u64) -> bool {
    let arrays = [
        HASH_CONTROL,
        HASH_MASK,
        HASH_MASK_SELECT,
        FLOW_DIRECTOR_MASK,
        FLOW_DIRECTOR_MASK_SELECT,
    ];
    let grids = [HASH_SYMMETRY, FLOW_DIRECTOR_INPUT, FLOW_DIRECTOR_SWAP];
    arrays.iter().any(|array| array.index_of(offset).is_some())
        || grids.iter().any(|grid| grid.position_of(offset).is_some())
}

/// Number of the header of an outer tag in vectors. Only the parser of double VLAN mode fills it.
/// Source: ice `ice_switch.c`, ice_prot_id_tbl and ice_change_proto_id_to_dvm.
const OUTER_TAG: u8 = 16;

/// Sets the profiles and the hash scheme of each VSI.
pub(super) fn add(
    tables: &mut Tables,
    profiles: &Profiles,
    registers: &RegisterFile,
    double_vlan: bool,
) {
    let filled = |words: &[Word; VECTOR_WORDS]| {
        words.map(|word| match word {
            (OUTER_TAG, _) if !double_vlan => UNFILLED_WORD,
            known => known,
        })
    };
    for vsi in &mut tables.vsis {
        let number = vsi.number;
        if let Some(spreading) = &mut vsi.spreading {
            let control = HashControl(registers.get(HASH_CONTROL.at(number.into())));
            let register = Scheme::from_code(control.scheme() as u8);
            spreading.scheme = spreading.scheme.or_of_register(register);
        }
        if profiles.hash.knows(number) {
            vsi.hashed = Some(hashed(vsi, &profiles.hash, registers));
        }
        vsi.filters = ByType::of(&profiles.flow_director, number, |profile, words| {
            filter_profile(profile, &filled(words), registers)
        });
    }
}

/// The byte of a grid that is for a word of a profile: four words a register.
fn choice(grid: &RegisterGrid, profile: u8, word: usize, registers: &RegisterFile) -> WordChoice {
    let register = registers.get(grid.at(word as u32 / 4, profile.into()));
    let bytes = register.to_le_bytes();
    WordChoice(bytes.get(word % 4).copied().unwrap_or(0))
}

/// The bits of a word that count.
fn mask(
    masks: &RegisterArray,
    select: &RegisterArray,
    (profile, word): (u8, usize),
    registers: &RegisterFile,
) -> u16 {
    let chosen = registers.get(select.at(profile.into()));
    let counts = (0..MASKS).filter(|index| chosen >> index & 1 != 0);
    counts
        .map(|index| FieldMask(registers.get(masks.at(index))))
        .filter(|mask| mask.word() as usize == word)
        .fold(u16::MAX, |all, mask| all & mask.bits() as u16)
}

fn hashed(vsi: &Vsi, block: &Block, registers: &RegisterFile) -> ByType<HashProfile> {
    let scheme = vsi.spreading.as_ref().map(|spreading| spreading.scheme);
    let symmetric = scheme == Some(Scheme::Symmetric);
    ByType::of(block, vsi.number, |profile, words| {
        let word = |index: usize| -> HashWord {
            let own = words.get(index).copied().unwrap_or(UNUSED_WORD);
            let pair = choice(&HASH_SYMMETRY, profile, index, registers);
            let partner = words.get(usize::from(pair.word())).copied();
            HashWord {
                word: own,
                mask: mask(&HASH_MASK, &HASH_MASK_SELECT, (profile, index), registers),
                partner: partner.filter(|_| symmetric && pair.enable() && is_used(own)),
            }
        };
        let lowest = words.iter().position(|word| is_used(*word));
        // Words are filled from the last one down, and hashed in that order.
        let used = lowest.map_or(0..0, |lowest| lowest..VECTOR_WORDS);
        HashProfile(used.rev().map(word).collect())
    })
}

fn filter_profile(
    number: u8,
    words: &[Word; VECTOR_WORDS],
    registers: &RegisterFile,
) -> FilterProfile {
    let used = words.iter().enumerate().filter(|(index, _)| {
        let input = choice(&FLOW_DIRECTOR_INPUT, number, *index, registers);
        input.enable()
    });
    let words = used
        .map(|(index, received)| {
            let swap = choice(&FLOW_DIRECTOR_SWAP, number, index, registers);
            let programmed = words.get(usize::from(swap.word())).copied();
            FilterWord {
                received: *received,
                programmed: programmed.unwrap_or(UNUSED_WORD),
                mask: mask(
                    &FLOW_DIRECTOR_MASK,
                    &FLOW_DIRECTOR_MASK_SELECT,
                    (number, index),
                    registers,
                ),
            }
        })
        .collect();
    FilterProfile { number, words }
}
