//! The tables that turn packets into keys: packet type and VSI lead to a profile, the profile
//! names words of the packet. They come with the package and change with its updates.
//!
//! The flow director and the hash have one block of tables each. Source: reference
//! e810-lan-data, sections 4.1 and 4.2; ice `ice_flex_pipe.c`.

use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::package::section::{self, block};
use ringside_spec::lan::package::{
    FieldVectorWord, PacketGroupSection, ProfileEntry, RedirectSection, UNUSED_WORD, VECTOR_WORDS,
    VectorSection, VsiGroupSection,
};
use ringside_spec::lan::receive::packet_type;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// Profiles of a block.
const PROFILES: u16 = 128;

/// Rows of a profile match memory.
const ROWS: u16 = 512;

/// Protocol and offset of a word of a packet.
pub(crate) type Word = (u8, u16);

/// Groups of packet types in a device to which no package was downloaded.
/// Source: section 42 of Intel's package 1.3.41.0.
const DEFAULT_GROUPS: [(u16, u8); 12] = [
    (packet_type::IPV4_FRAGMENT, 4),
    (packet_type::IPV4, 5),
    (packet_type::IPV4_UDP, 2),
    (packet_type::IPV4_TCP, 1),
    (packet_type::IPV4_SCTP, 3),
    (packet_type::IPV4_ICMP, 5),
    (packet_type::IPV6_FRAGMENT, 9),
    (packet_type::IPV6, 10),
    (packet_type::IPV6_UDP, 7),
    (packet_type::IPV6_TCP, 6),
    (packet_type::IPV6_SCTP, 8),
    (packet_type::IPV6_ICMP, 10),
];

/// A row of the match memory: see [`ProfileEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    key: [u8; 5],
    inverse: [u8; 5],
    profile: u8,
}

impl Row {
    fn fits(&self, value: [u8; 5]) -> bool {
        let halves = self.key.iter().zip(&self.inverse).zip(value);
        // A bit of the value that is clear needs the key's, one that is set the inverse's.
        halves
            .into_iter()
            .all(|((key, inverse), value)| key & !value | inverse & value == 0xFF)
    }
}

/// The tables of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    groups: BTreeMap<u16, u8>,
    vsis: BTreeMap<u16, u16>,
    rows: BTreeMap<u16, Row>,
    redirect: BTreeMap<u8, u8>,
    vectors: BTreeMap<u16, [Word; VECTOR_WORDS]>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profiles {
    pub(crate) flow_director: Block,
    pub(crate) hash: Block,
}

impl Block {
    /// True once a driver or a package has assigned the VSI to a group.
    pub(crate) fn knows(&self, vsi: u16) -> bool {
        self.vsis.contains_key(&vsi)
    }

    /// The group of a packet type.
    fn group_of(&self, packet_type: u16) -> u8 {
        let default = || DEFAULT_GROUPS.iter().find(|(kind, _)| *kind == packet_type);
        match self.groups.get(&packet_type) {
            Some(group) => *group,
            None if self.groups.is_empty() => default().map_or(0, |(_, group)| *group),
            None => 0,
        }
    }

    /// Profile of packets of a type in a VSI, and its words.
    pub(crate) fn profile(
        &self,
        packet_type: u16,
        vsi: u16,
    ) -> Option<(u8, &[Word; VECTOR_WORDS])> {
        let group = self.group_of(packet_type);
        let [low, high] = self.vsis.get(&vsi).copied().unwrap_or(0).to_le_bytes();
        // No flag is set: a row never depends on a flag that the model's parser sets.
        let value = [0, 0, group, low, high];
        let row = self.rows.values().find(|row| row.fits(value))?;
        let profile = *self.redirect.get(&row.profile).unwrap_or(&row.profile);
        Some((profile, self.vectors.get(&profile.into())?))
    }

    /// Frees a row: it matches nothing from now on.
    fn remove_row(&mut self, row: u16) {
        self.rows.remove(&row);
    }

    /// Takes over one section; `table` counts from the first section of the block.
    fn apply(&mut self, table: u32, bytes: &[u8]) -> Option<()> {
        match table {
            block::PACKET_GROUPS => {
                let (head, rest) = PacketGroupSection::read_from_prefix(bytes).ok()?;
                let groups = rest.get(..head.count.get().into())?;
                let numbered = (head.first.get()..=u16::MAX).zip(groups);
                self.groups.extend(numbered.map(|(at, group)| (at, *group)));
            }
            block::VSI_GROUPS => {
                let (head, rest) = VsiGroupSection::read_from_prefix(bytes).ok()?;
                let groups = rest.get(..2 * usize::from(head.count.get()))?;
                let (pairs, _) = groups.as_chunks::<2>();
                let numbered = (head.first.get()..=u16::MAX).zip(pairs);
                self.vsis
                    .extend(numbered.map(|(vsi, group)| (vsi, u16::from_le_bytes(*group))));
            }
            block::PROFILE_TCAM => self.apply_rows(bytes)?,
            block::REDIRECT => {
                let (head, rest) = RedirectSection::read_from_prefix(bytes).ok()?;
                let profiles = rest.get(..head.count.get().into())?;
                let numbered = (u8::try_from(head.first.get()).ok()?..=u8::MAX).zip(profiles);
                self.redirect.extend(numbered.map(|(at, to)| (at, *to)));
            }
            block::FIELD_VECTORS => self.apply_vectors(bytes)?,
            _ => {}
        }
        Some(())
    }

    /// Writes the entries that a section of a table names into it.
    fn fill(&self, table: u32, bytes: &mut [u8]) -> Option<()> {
        if table == block::PROFILE_TCAM {
            return self.fill_rows(bytes);
        }
        // The heads of the other sections are alike.
        let (head, rest) = PacketGroupSection::read_from_prefix(bytes).ok()?;
        let entry_bytes = match table {
            block::VSI_GROUPS => 2,
            block::FIELD_VECTORS => VECTOR_WORDS * FieldVectorWord::SIZE,
            _ => 1,
        };
        let length = entry_bytes * usize::from(head.count.get());
        let start = bytes.len() - rest.len();
        let entries = bytes.get_mut(start..)?.get_mut(..length)?;
        for (at, entry) in (head.first.get()..=u16::MAX).zip(entries.chunks_exact_mut(entry_bytes))
        {
            match table {
                block::PACKET_GROUPS => entry.fill(self.group_of(at)),
                block::VSI_GROUPS => {
                    let group = self.vsis.get(&at).copied().unwrap_or(0);
                    entry.copy_from_slice(&group.to_le_bytes());
                }
                block::REDIRECT => {
                    let own = u8::try_from(at).ok()?;
                    entry.fill(*self.redirect.get(&own).unwrap_or(&own));
                }
                _ => {
                    let unused = [UNUSED_WORD; VECTOR_WORDS];
                    let words = self.vectors.get(&at).unwrap_or(&unused);
                    for (place, word) in entry.chunks_exact_mut(FieldVectorWord::SIZE).zip(words) {
                        let word = FieldVectorWord {
                            protocol: word.0,
                            offset: word.1.into(),
                            reserved: 0,
                        };
                        word.write_to(place).ok()?;
                    }
                }
            }
        }
        Some(())
    }

    /// The same for rows, each of which has its number. A row that is free matches nothing.
    fn fill_rows(&self, bytes: &mut [u8]) -> Option<()> {
        let (count, rest) = bytes.split_first_chunk_mut::<2>()?;
        let length = ProfileEntry::SIZE * usize::from(u16::from_le_bytes(*count));
        let entries = rest.get_mut(..length)?;
        for place in entries.chunks_exact_mut(ProfileEntry::SIZE) {
            let asked = ProfileEntry::read_from_bytes(place).ok()?;
            let row = self.rows.get(&asked.row.get());
            let entry = ProfileEntry {
                row: asked.row,
                key: row.map_or([0; 5], |row| row.key),
                inverse: row.map_or([0; 5], |row| row.inverse),
                profile: row.map_or(0, |row| row.profile),
            };
            entry.write_to(place).ok()?;
        }
        Some(())
    }

    fn apply_rows(&mut self, bytes: &[u8]) -> Option<()> {
        let (count, mut rest) = bytes.split_first_chunk::<2>()?;
        for _ in 0..u16::from_le_bytes(*count) {
            let (entry, after) = ProfileEntry::read_from_prefix(rest).ok()?;
            rest = after;
            if entry.row.get() >= ROWS {
                return None;
            }
            let row = Row {
                key: entry.key,
                inverse: entry.inverse,
                profile: entry.profile,
            };
            self.rows.insert(entry.row.get(), row);
        }
        Some(())
    }

    fn apply_vectors(&mut self, bytes: &[u8]) -> Option<()> {
        let (head, mut rest) = VectorSection::read_from_prefix(bytes).ok()?;
        for index in 0..head.count.get() {
            let mut words = [(0, 0); VECTOR_WORDS];
            for word in &mut words {
                let (read, after) = FieldVectorWord::read_from_prefix(rest).ok()?;
                rest = after;
                *word = (read.protocol, read.offset.get());
            }
            let profile = head.first.get().checked_add(index)?;
            if profile >= PROFILES {
                return None;
            }
            self.vectors.insert(profile, words);
        }
        Some(())
    }
}

impl Profiles {
    /// Writes the entries that a section names into it. False: the model has no table of that kind.
    ///
    /// Errors: the section is shorter than its header says.
    pub(crate) fn fill(&self, kind: u32, bytes: &mut [u8]) -> Result<bool, ReturnCode> {
        let tables = block::PACKET_GROUPS..=block::FIELD_VECTORS;
        let blocks = [
            (section::FLOW_DIRECTOR, &self.flow_director),
            (section::HASH, &self.hash),
        ];
        for (first, block) in blocks {
            let table = kind.wrapping_sub(first);
            if tables.contains(&table) {
                block.fill(table, bytes).ok_or(ReturnCode::BadBuffer)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes over a section of a package or of an update, if it is one of these tables.
    ///
    /// Errors: it is shorter than its header says, or names an entry that does not exist.
    pub(crate) fn apply(&mut self, kind: u32, bytes: &[u8]) -> Result<(), ReturnCode> {
        let tables = block::PACKET_GROUPS..=block::FIELD_VECTORS;
        let blocks = [
            (section::FLOW_DIRECTOR, &mut self.flow_director),
            (section::HASH, &mut self.hash),
        ];
        for (first, block) in blocks {
            let table = kind.wrapping_sub(first);
            if tables.contains(&table) {
                return block.apply(table, bytes).ok_or(ReturnCode::BadBuffer);
            }
        }
        Ok(())
    }

    /// Frees a row of the flow director's match memory.
    pub(crate) fn free_filter_row(&mut self, row: u16) {
        self.flow_director.remove_row(row);
    }

    /// Frees a row of the hash's match memory.
    pub(crate) fn free_hash_row(&mut self, row: u16) {
        self.hash.remove_row(row);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
