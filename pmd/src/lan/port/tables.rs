//! Tables of the packet pipeline, as updates of the package change them: groups of VSIs, rows of
//! the match memory, words of profiles. The hash and the flow director have a block of tables each.
//! Source: reference e810-lan-data, sections 4.1 and 4.2.

use crate::admin::commands::Section;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::package::section::{self, block};
use ringside_spec::lan::package::{
    FieldVectorWord, ProfileEntry, UNUSED_WORD, VECTOR_WORDS, VectorSection, VsiGroupSection,
};
use zerocopy::IntoBytes;

/// Protocol and offset of a word of a packet.
pub(super) type Word = (u8, u16);

/// One of the two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Spreading over queues.
    Hash,
    /// Rules.
    FlowDirector,
}

impl Block {
    const fn section(self, table: u32) -> u32 {
        let first = match self {
            Self::Hash => section::HASH,
            Self::FlowDirector => section::FLOW_DIRECTOR,
        };
        first + table
    }

    /// The resource that its profiles are.
    pub(super) const fn profile(self) -> Resource {
        match self {
            Self::Hash => Resource::HashProfile,
            Self::FlowDirector => Resource::FlowDirectorProfile,
        }
    }

    /// The resource that its rows are.
    pub(super) const fn row(self) -> Resource {
        match self {
            Self::Hash => Resource::HashTcam,
            Self::FlowDirector => Resource::FlowDirectorTcam,
        }
    }

    /// The section that puts a VSI into a group; group 0 is the default one.
    pub(super) fn vsi_group(self, vsi: u16, group: u16) -> Section {
        let head = VsiGroupSection {
            count: 1.into(),
            first: vsi.into(),
        };
        Section {
            kind: self.section(block::VSI_GROUPS),
            bytes: [head.as_bytes(), &group.to_le_bytes()].concat(),
        }
    }

    /// The section with the row that leads packets of a packet type group, in VSIs of a group, to a
    /// profile: any flags.
    pub(super) fn row_of(self, row: u16, packets: u8, vsis: u16, profile: u16) -> Section {
        let [low, high] = vsis.to_le_bytes();
        let entry = ProfileEntry {
            row: row.into(),
            key: [0xFF, 0xFF, !packets, !low, !high],
            inverse: [0xFF, 0xFF, packets, low, high],
            profile: profile as u8,
        };
        Section {
            kind: self.section(block::PROFILE_TCAM),
            bytes: [&1u16.to_le_bytes(), entry.as_bytes()].concat(),
        }
    }

    /// The section with the words of a profile: from the last place of the vector down.
    pub(super) fn vector(self, profile: u16, words: &[Word]) -> Section {
        let head = VectorSection {
            count: 1.into(),
            first: profile.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for place in (0..VECTOR_WORDS).rev() {
            let (protocol, offset) = words.get(place).copied().unwrap_or(UNUSED_WORD);
            let word = FieldVectorWord {
                protocol,
                offset: offset.into(),
                reserved: 0,
            };
            bytes.extend_from_slice(word.as_bytes());
        }
        Section {
            kind: self.section(block::FIELD_VECTORS),
            bytes,
        }
    }
}

#[cfg(test)]
mod tests;
