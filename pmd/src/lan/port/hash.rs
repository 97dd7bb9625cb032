//! Fields of packets that the hash is made of.
//!
//! Each kind of flow has a profile and a row of the match memory. The profile names words of the
//! packet. The row leads packets of the kind to the profile.
//! Source: ice `ice_flow.c`, `ice_add_rss_cfg_sync`.

use super::hashing::{Hashing, Membership};
use super::kinds::{FlowKind, HashField, Programmed};
use super::shared::PortShared;
use super::tables::Block;
use super::{PortError, Vsi};
use crate::admin::AdminQueue;
use crate::admin::commands::Section;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::package::VECTOR_WORDS;
use ringside_spec::lan::registers::filters::{
    HASH_CONTROL, HASH_MASK_SELECT, HASH_SYMMETRY, HashControl, WordChoice,
};
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

impl Vsi {
    /// Sets the fields from which the hash of a kind of packets is computed, in the order of
    /// [`HashField`]; one that is named twice counts once. Without fields all packets of the kind
    /// have the hash of no bytes, and go to one queue.
    ///
    /// A port of several queues begins with all fields of each kind. Packets that arrive during the
    /// change are hashed by the old or the new fields. Changes from several threads take turns.
    ///
    /// Control path. Errors: a field that the kind does not have, or a refusal of the firmware; the
    /// kind keeps its fields.
    pub fn set_hash_fields(&self, kind: FlowKind, fields: &[HashField]) -> Result<(), PortError> {
        for field in fields {
            if kind.place(*field).is_none() {
                return Err(PortError::Invalid {
                    what: "hash field",
                    value: format!("{field} of {kind}"),
                    remedy: "choose fields that packets of the kind have",
                });
            }
        }
        // As the device takes them: in its order, and each once.
        let fields: BTreeSet<HashField> = fields.iter().copied().collect();
        let fields: Vec<HashField> = fields.into_iter().collect();
        let mut hashing = self.shared.hashing();
        self.shared.hash_all(&mut hashing)?;
        let admin = self.shared.admin()?;
        self.shared.program_hash(&mut hashing, admin, kind, &fields)
    }

    /// If `wanted`, both directions of a flow have the same hash. The device first combines each
    /// word of an address or a port with that of the other end; fields without the other end stay
    /// as they are. [`SymmetricToeplitz`](ringside_lan::SymmetricToeplitz) predicts the hash of all
    /// fields.
    ///
    /// Control path. Errors: a refusal of the firmware, or a register that could not be written.
    pub fn set_symmetric_hash(&self, wanted: bool) -> Result<(), PortError> {
        let mut hashing = self.shared.hashing();
        self.shared.hash_all(&mut hashing)?;
        self.shared.admin()?;
        for (kind, programmed) in &hashing.programmed {
            self.shared.write_symmetry(wanted, *kind, programmed)?;
        }
        self.shared.write_scheme(wanted)?;
        hashing.is_symmetric = wanted;
        Ok(())
    }

    /// True if both directions of a flow have the same hash ([`Vsi::set_symmetric_hash`]).
    #[must_use]
    pub fn has_symmetric_hash(&self) -> bool {
        self.shared.hashing().is_symmetric
    }

    /// The fields of a kind; `None` on a port of one queue before the first
    /// [`Vsi::set_hash_fields`].
    #[must_use]
    pub fn hash_fields(&self, kind: FlowKind) -> Option<Vec<HashField>> {
        let hashing = self.shared.hashing();
        let programmed = hashing.programmed.get(&kind);
        programmed.map(|programmed| programmed.fields.clone())
    }
}

impl PortShared {
    /// The group of VSIs that this one is in, alone. Groups carry the number of their function in
    /// bits 13 to 15. Source: ice `ICE_VSIG_VALUE`.
    pub(super) fn group_number(&self) -> u16 {
        let further = self.further.as_ref();
        let place = further.map_or(0, |further| further.taken.place);
        (1 + place) | (u16::from(self.function) & 7) << 13
    }

    /// Locks the state of the hash, also after a thread panicked with the lock held.
    pub(super) fn hashing(&self) -> MutexGuard<'_, Hashing> {
        self.hashing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every kind hashed by all of its fields, unless that was done. Without it the device of
    /// a package alone hashes nothing: all packets go to the first queue.
    pub(super) fn hash_all(&self, hashing: &mut Hashing) -> Result<(), PortError> {
        if hashing.membership == Membership::Own {
            return Ok(());
        }
        let admin = self.admin()?;
        for kind in FlowKind::ALL {
            self.program_hash(hashing, admin, kind, &kind.fields())?;
        }
        hashing.membership = Membership::Requested;
        // Last of all: the VSI's packets are looked up once all kinds have a row.
        admin.update_tables(&[self.vsi_group(true)])?;
        hashing.membership = Membership::Own;
        Ok(())
    }

    /// The section that puts the VSI into its group, or into the default one.
    fn vsi_group(&self, own: bool) -> Section {
        Block::Hash.vsi_group(self.vsi, if own { self.group_number() } else { 0 })
    }

    /// Sets a profile with these fields for a kind; its earlier profile is freed.
    ///
    /// Errors: [`PortError`]; a kind that had a profile keeps it.
    fn program_hash(
        &self,
        hashing: &mut Hashing,
        admin: &AdminQueue,
        kind: FlowKind,
        fields: &[HashField],
    ) -> Result<(), PortError> {
        let Some(group) = kind.group(&self.hash_groups) else {
            return Err(PortError::Invalid {
                what: "kind of flow",
                value: kind.to_string(),
                remedy: "install a package with its packet type",
            });
        };
        self.free_remaining(admin)?;
        let before = hashing.programmed.get(&kind).cloned();
        let profile = admin.allocate_table_entry(Resource::HashProfile)?;
        let row = match &before {
            Some(before) => Ok(before.row),
            None => admin.allocate_table_entry(Resource::HashTcam),
        };
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                self.free_entry(admin, Resource::HashProfile, profile);
                return Err(error.into());
            }
        };
        let programmed = Programmed {
            profile,
            row,
            fields: fields.to_vec(),
        };
        // Recorded before the tables change: both are freed even if a later step fails.
        match &before {
            Some(_) => hashing.replaced.push(profile),
            None => {
                hashing.programmed.insert(kind, programmed.clone());
            }
        }
        self.write_symmetry(hashing.is_symmetric, kind, &programmed)?;
        self.registers
            .write(HASH_MASK_SELECT.at(profile.into()), 0)?;
        let words = kind.words(fields);
        let entry = Block::Hash.row_of(row, group, self.group_number(), profile);
        admin.update_tables(&[Block::Hash.vector(profile, &words), entry])?;
        hashing.programmed.insert(kind, programmed);
        let unused = std::mem::take(&mut hashing.replaced).into_iter();
        let before = before.map(|before| before.profile);
        for unused in unused.filter(|other| *other != profile).chain(before) {
            self.free_entry(admin, Resource::HashProfile, unused);
        }
        Ok(())
    }

    /// Pairs the words of a profile with those of the other end, if the hash is symmetric.
    fn write_symmetry(
        &self,
        wanted: bool,
        kind: FlowKind,
        programmed: &Programmed,
    ) -> Result<(), PortError> {
        let mut choices = [0; VECTOR_WORDS];
        if wanted {
            for (word, partner) in kind.pairs(&programmed.fields) {
                let [own, other] = [word, partner].map(|word| VECTOR_WORDS - 1 - word);
                let choice = WordChoice::ZERO.with_word(other as u8).with_enable(true);
                if let Some(place) = choices.get_mut(own) {
                    *place = choice.0;
                }
            }
        }
        let (registers, _) = choices.as_chunks::<4>();
        for (register, bytes) in (0..).zip(registers) {
            let value = u32::from_le_bytes(*bytes);
            self.registers
                .write(HASH_SYMMETRY.at(register, programmed.profile.into()), value)?;
        }
        Ok(())
    }

    fn write_scheme(&self, symmetric: bool) -> Result<(), PortError> {
        let register = HASH_CONTROL.at(self.vsi.into());
        // Its other fields choose the table.
        let control = HashControl(self.registers.read(register)?).with_scheme(symmetric.into());
        Ok(self.registers.write(register, control.0)?)
    }

    /// Frees all rows and profiles.
    pub(super) fn remove_hashes(&self) {
        let Ok(admin) = self.admin() else {
            return;
        };
        let Hashing {
            programmed,
            replaced,
            membership,
            is_symmetric,
        } = std::mem::take(&mut *self.hashing());
        if is_symmetric && let Err(error) = self.write_scheme(false) {
            tracing::warn!(%error, "the VSI continues to hash both directions alike");
        }
        if membership != Membership::Default
            && let Err(error) = admin.update_tables(&[self.vsi_group(false)])
        {
            tracing::warn!(%error, "the VSI stays in its group of hash profiles");
        }
        for Programmed { profile, row, .. } in programmed.into_values() {
            self.free_entry(admin, Resource::HashTcam, row);
            self.free_entry(admin, Resource::HashProfile, profile);
        }
        for profile in replaced {
            self.free_entry(admin, Resource::HashProfile, profile);
        }
    }
}
