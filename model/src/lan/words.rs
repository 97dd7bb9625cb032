//! Words of packets that profiles of the hash and of the flow director read.

use super::bytes::be16;
use super::headers::Parsed;
use crate::chip::{Block, Word};
use ringside_spec::lan::package::{UNUSED_WORD, VECTOR_WORDS};
use ringside_spec::lan::receive::packet_type;
use std::collections::BTreeMap;

/// Packet types that the parser finds.
const PACKET_TYPES: [u16; 16] = [
    packet_type::LAYER_2,
    packet_type::TIME_SYNC,
    packet_type::LLDP,
    packet_type::ARP,
    packet_type::IPV4_FRAGMENT,
    packet_type::IPV4,
    packet_type::IPV4_UDP,
    packet_type::IPV4_TCP,
    packet_type::IPV4_SCTP,
    packet_type::IPV4_ICMP,
    packet_type::IPV6_FRAGMENT,
    packet_type::IPV6,
    packet_type::IPV6_UDP,
    packet_type::IPV6_TCP,
    packet_type::IPV6_SCTP,
    packet_type::IPV6_ICMP,
];

/// Profiles of one VSI, by packet type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByType<P>(BTreeMap<u16, P>);

// Not derived: a profile need have no default.
impl<P> Default for ByType<P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P> ByType<P> {
    /// The profiles of a VSI in a block of tables; `describe` makes each from its number and words.
    pub(crate) fn of(
        block: &Block,
        vsi: u16,
        describe: impl Fn(u8, &[Word; VECTOR_WORDS]) -> P,
    ) -> Self {
        let known = PACKET_TYPES.into_iter().filter_map(|kind| {
            let (number, words) = block.profile(kind, vsi)?;
            Some((kind, describe(number, words)))
        });
        Self(known.collect())
    }

    /// The profile of a packet.
    pub(super) fn of_packet(&self, parsed: &Parsed) -> Option<&P> {
        self.0.get(&parsed.packet_type)
    }
}

/// The word of a packet; 0 if the packet does not have it.
fn word(frame: &[u8], parsed: &Parsed, (protocol, offset): Word) -> u16 {
    let header = parsed.layers.start_of(protocol);
    let at = header.map(|header| header + usize::from(offset));
    at.and_then(|at| be16(frame, at)).unwrap_or(0)
}

/// A word of a hash profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashWord {
    pub(crate) word: Word,
    pub(crate) mask: u16,
    /// Symmetric hashing: the word at the other end of the flow.
    pub(crate) partner: Option<Word>,
}

/// Words that packets are hashed by, in the order of the hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashProfile(pub(crate) Vec<HashWord>);

impl HashProfile {
    /// The bytes that are hashed.
    pub(super) fn input(&self, frame: &[u8], parsed: &Parsed) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(move |hashed| {
            let own = word(frame, parsed, hashed.word);
            let other = hashed
                .partner
                .map_or(0, |partner| word(frame, parsed, partner));
            ((own ^ other) & hashed.mask).to_be_bytes()
        })
    }
}

/// A word of a flow director profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterWord {
    /// Its place in a received packet.
    pub(crate) received: Word,
    /// Its place in the packet of a programming descriptor, which has the layout of a sent packet.
    pub(crate) programmed: Word,
    pub(crate) mask: u16,
}

/// Words that packets are filtered by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterProfile {
    pub(crate) number: u8,
    pub(crate) words: Vec<FilterWord>,
}

impl FilterProfile {
    /// The key of a packet that is received.
    pub(super) fn key(&self, frame: &[u8], parsed: &Parsed) -> Vec<u16> {
        let words = self.words.iter();
        words
            .map(|filter| word(frame, parsed, filter.received) & filter.mask)
            .collect()
    }

    /// The key of the packet of a programming descriptor.
    pub(super) fn programmed_key(&self, frame: &[u8], parsed: &Parsed) -> Vec<u16> {
        let words = self.words.iter();
        words
            .map(|filter| word(frame, parsed, filter.programmed) & filter.mask)
            .collect()
    }
}

/// True for a word that names a field.
pub(crate) fn is_used(word: Word) -> bool {
    word != UNUSED_WORD
}

#[cfg(test)]
mod tests;
