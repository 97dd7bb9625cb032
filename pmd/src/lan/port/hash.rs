//! Fields of packets that the hash is made of.
//!
//! Each kind of flow has a profile, which names words of the packet, and a row of the match memory,
//! which leads packets of the kind to the profile. Source: ice `ice_flow.c`, `ice_add_rss_cfg_sync`.

use super::kinds::{FlowKind, HashField, Programmed};
use super::shared::PortShared;
use super::{Port, PortError};
use crate::admin::AdminQueue;
use crate::admin::commands::Section;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::package::section::{self, block};
use ringside_spec::lan::package::{
    FieldVectorWord, ProfileEntry, UNUSED_WORD, VECTOR_WORDS, VectorSection, VsiGroupSection,
};
use ringside_spec::lan::registers::filters::{HASH_MASK_SELECT, HASH_SYMMETRY};
use zerocopy::IntoBytes;

impl Port {
    /// Has the hash of packets of a kind made of these fields, in the order of
    /// [`HashField`]; without fields the hash of all of them is that of no bytes: one queue.
    ///
    /// A port of several queues begins with all fields of each kind. Packets that arrive meanwhile
    /// go by the old fields or the new.
    ///
    /// Control path. Errors: a field that the kind does not have, or what the firmware says.
    pub fn set_hash_fields(&self, kind: FlowKind, fields: &[HashField]) -> Result<(), PortError> {
        for field in fields {
            if kind.place(*field).is_none() {
                return Err(PortError::Invalid {
                    what: "hash field",
                    value: format!("{field:?} of {kind:?}"),
                    remedy: "choose fields that packets of the kind have",
                });
            }
        }
        self.shared.hash_all()?;
        let admin = self.shared.admin()?;
        self.shared.program_hash(admin, kind, fields)
    }

    /// The fields of a kind; `None` on a port of one queue before the first
    /// [`Port::set_hash_fields`].
    #[must_use]
    pub fn hash_fields(&self, kind: FlowKind) -> Option<Vec<HashField>> {
        let configured = self.shared.configured();
        let programmed = configured.hashes.get(&kind);
        programmed.map(|programmed| programmed.fields.clone())
    }
}

impl PortShared {
    /// The group of VSIs that the port's own is in, alone. Groups carry the number of their function
    /// in bits 13 to 15. Source: ice `ICE_VSIG_VALUE`.
    const fn group_number(&self) -> u16 {
        1 | (self.function as u16 & 7) << 13
    }

    /// Has every kind hashed by all of its fields, unless that was done. Without it the device of
    /// a package alone hashes nothing: all packets go to the first queue.
    pub(super) fn hash_all(&self) -> Result<(), PortError> {
        if self.configured().is_hashed {
            return Ok(());
        }
        let admin = self.admin()?;
        for kind in FlowKind::ALL {
            self.program_hash(admin, kind, &kind.fields())?;
        }
        // Recorded first. Last of all: the VSI's packets are looked up once all kinds have a row.
        self.configured().is_hashed = true;
        Ok(admin.update_tables(&[self.vsi_group(true)])?)
    }

    /// The section that puts the VSI into its group, or into the default one.
    fn vsi_group(&self, own: bool) -> Section {
        let group = if own { self.group_number() } else { 0 };
        let head = VsiGroupSection {
            count: 1.into(),
            first: self.vsi.into(),
        };
        Section {
            kind: section::HASH + block::VSI_GROUPS,
            bytes: [head.as_bytes(), &group.to_le_bytes()].concat(),
        }
    }

    /// Gives a kind a profile with these fields; the one that it had is freed.
    fn program_hash(
        &self,
        admin: &AdminQueue,
        kind: FlowKind,
        fields: &[HashField],
    ) -> Result<(), PortError> {
        let Some(group) = kind.group(&self.hash_groups) else {
            return Err(PortError::Invalid {
                what: "kind of flow",
                value: format!("{kind:?}"),
                remedy: "install a package that knows its packet type",
            });
        };
        let before = self.configured().hashes.get(&kind).cloned();
        let profile = admin.allocate_table_entry(Resource::HashProfile)?;
        let row = match &before {
            Some(before) => Ok(before.row),
            None => admin.allocate_table_entry(Resource::HashTcam),
        };
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                free(admin, Resource::HashProfile, profile);
                return Err(error.into());
            }
        };
        let programmed = Programmed {
            profile,
            row,
            fields: fields.to_vec(),
        };
        // Recorded before the tables change: whatever becomes of the rest, both are freed.
        self.configured().hashes.insert(kind, programmed);
        if let Some(before) = &before {
            self.configured().freed_profiles.push(before.profile);
        }
        let number = u32::from(profile);
        for word in 0..6 {
            self.registers.write(HASH_SYMMETRY.at(word, number), 0)?;
        }
        self.registers.write(HASH_MASK_SELECT.at(number), 0)?;
        let words = kind.words(fields);
        let entry = self.row_of(row, group, profile);
        admin.update_tables(&[vector(profile, &words), entry])?;
        let unused = std::mem::take(&mut self.configured().freed_profiles);
        for profile in unused {
            free(admin, Resource::HashProfile, profile);
        }
        Ok(())
    }

    /// The section with the row that leads packets of a group to a profile: any flags.
    fn row_of(&self, row: u16, group: u8, profile: u16) -> Section {
        let [low, high] = self.group_number().to_le_bytes();
        let entry = ProfileEntry {
            row: row.into(),
            key: [0xFF, 0xFF, !group, !low, !high],
            inverse: [0xFF, 0xFF, group, low, high],
            profile: profile as u8,
        };
        Section {
            kind: section::HASH + block::PROFILE_TCAM,
            bytes: [&1u16.to_le_bytes(), entry.as_bytes()].concat(),
        }
    }

    /// Frees all rows and profiles.
    pub(super) fn remove_hashes(&self) {
        let Ok(admin) = self.admin() else {
            return;
        };
        let mut configured = self.configured();
        let hashes = std::mem::take(&mut configured.hashes);
        let unused = std::mem::take(&mut configured.freed_profiles);
        let is_hashed = std::mem::take(&mut configured.is_hashed);
        drop(configured);
        if is_hashed && let Err(error) = admin.update_tables(&[self.vsi_group(false)]) {
            tracing::warn!(%error, "the VSI stays in its group of hash profiles");
        }
        for Programmed { profile, row, .. } in hashes.into_values() {
            free(admin, Resource::HashTcam, row);
            free(admin, Resource::HashProfile, profile);
        }
        for profile in unused {
            free(admin, Resource::HashProfile, profile);
        }
    }
}

fn free(admin: &AdminQueue, resource: Resource, number: u16) {
    if let Err(error) = admin.free_table_entry(resource, number) {
        tracing::warn!(%error, ?resource, number, "a table entry stays until the next reset");
    }
}

/// The section with the words of a profile: from the last place of the vector down.
fn vector(profile: u16, words: &[(u8, u16)]) -> Section {
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
        kind: section::HASH + block::FIELD_VECTORS,
        bytes,
    }
}
