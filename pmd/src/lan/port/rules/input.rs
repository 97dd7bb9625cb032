//! The words that a profile of the flow director compares, and the registers that select them.
//!
//! A rule's packet has the layout of a packet that is sent: what a received packet has as its
//! source is the destination there. So each word of an address or a port is compared with the word
//! of the opposite field. Source: reference e810-lan-data, sections 3.4 and 3.5; ice
//! `ice_flex_pipe.c`, `ice_update_fd_swap`.

use super::{Field, PacketKind};
use crate::lan::port::tables::Word;
use ringside_spec::lan::package::VECTOR_WORDS;
use ringside_spec::lan::registers::filters::{FieldMask, WordChoice};
use std::collections::BTreeSet;

/// Words of a grid of registers: four to a register.
type Choices = [u8; VECTOR_WORDS];
/// Value of a word that is compared: drivers write all bits of the number.
const COMPARED: u8 = 0x9F;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lan::port) struct InputSet {
    /// Words of the vector, from its last place down.
    pub(in crate::lan::port) words: Vec<Word>,
    input: Choices,
    swap: Choices,
    /// Words of which not all bits count.
    pub(in crate::lan::port) masks: Vec<FieldMask>,
}

impl InputSet {
    /// The set of fields of a kind; fields that the kind does not have are left out.
    pub(in crate::lan::port) fn of(kind: PacketKind, fields: &BTreeSet<Field>) -> Self {
        // Fields that are compared, then those that are only the other half of one.
        let halves = fields.iter().filter_map(|field| field.opposite());
        let halves = halves.filter(|half| !fields.contains(half));
        let all: Vec<Field> = fields.iter().copied().chain(halves).collect();
        let mut words = Vec::new();
        let mut starts = Vec::new();
        for field in &all {
            starts.push((*field, words.len()));
            if let Some(place) = kind.place(*field) {
                let (protocol, offset) = place.first;
                words.extend((0..place.words).map(|word| (protocol, offset + 2 * word)));
            }
        }
        let start_of = |wanted: Field| {
            let found = starts.iter().find(|(field, _)| *field == wanted);
            found.map_or(0, |(_, start)| *start)
        };
        let mut set = Self {
            input: [COMPARED; VECTOR_WORDS],
            swap: std::array::from_fn(choice),
            masks: Vec::new(),
            words,
        };
        for field in all {
            let Some(place) = kind.place(field) else {
                continue;
            };
            let own = start_of(field);
            let opposite = start_of(field.opposite().unwrap_or(field));
            for word in 0..usize::from(place.words) {
                let number = VECTOR_WORDS - 1 - (own + word);
                let compared = fields.contains(&field);
                let from = VECTOR_WORDS - 1 - (opposite + word);
                set.input[number] = if compared { COMPARED } else { 0 };
                set.swap[number] = if compared { choice(from) } else { 0 };
                if place.mask != u16::MAX {
                    let mask = FieldMask::ZERO.with_word(number as u32);
                    set.masks.push(mask.with_bits(place.mask.into()));
                }
            }
        }
        set
    }

    /// Values of the registers that select the words to compare, and of those that select their
    /// counterparts.
    pub(in crate::lan::port) fn registers(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let values = |choices: &Choices, register: usize| {
            let bytes = std::array::from_fn(|byte| choices[4 * register + byte]);
            u32::from_le_bytes(bytes)
        };
        (0..VECTOR_WORDS / 4).map(move |register| {
            let input = values(&self.input, register);
            (register as u32, input, values(&self.swap, register))
        })
    }
}

const fn choice(word: usize) -> u8 {
    WordChoice::ZERO.with_word(word as u8).with_enable(true).0
}
