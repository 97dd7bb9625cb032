//! The state of a function's flow director: the rules of its VSIs and their resources.
//!
//! The port's own VSI owns it. The device looks up a rule's profile for the VSI that programs the
//! rule, which is the port's own, so all VSIs with rules are in one group of profiles.

use super::rules::{Field, FlowRule, PacketKind, RuleNumber};
use crate::admin::commands::COUNTERS_PER_BLOCK;
use ringside_bus::Doorbell;
use ringside_lan::FilterQueue;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::registers::filters::{FLOW_DIRECTOR_MASK, FieldMask};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Entries of the device for rules: kind, amount, and the number that the firmware gave with them.
pub(super) type Entries = (Resource, u16, u16);

/// Registers of masks that a function may use: an equal part for each function of the device.
/// Source: ice `ice_flex_pipe.c`, `ice_init_prof_masks`.
pub(super) fn masks_of(function: u8, functions: u32) -> Range<u32> {
    let function = u32::from(function);
    // A function that its device does not count still has a part.
    let each = FLOW_DIRECTOR_MASK.count / functions.max(function + 1);
    function * each..(function + 1) * each
}

/// A profile of a kind of packets: all rules of the kind compare the same fields.
#[derive(Clone, Debug)]
pub(super) struct KindProfile {
    pub(super) profile: u16,
    pub(super) rows: Vec<u16>,
    pub(super) fields: BTreeSet<Field>,
}

/// A rule that the device has.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// the VSI whose packets it is for
    pub(super) vsi: u16,
    pub(super) rule: FlowRule,
    pub(super) counter: Option<u16>,
    /// kinds for which it was programmed
    pub(super) kinds: Vec<PacketKind>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Director {
    /// none before the first rule
    pub(super) queue: Option<FilterQueue>,
    /// of its queue for sending, and of the one for reports, made at the first attempt
    pub(super) bells: Option<[Doorbell; 2]>,
    pub(super) rules: BTreeMap<RuleNumber, Installed>,
    /// further VSIs that were told to look for rules; true where all steps succeeded
    pub(super) joined: BTreeMap<u16, bool>,
    pub(super) profiles: BTreeMap<PacketKind, KindProfile>,
    /// masks by register, with the profiles that use each
    pub(super) masks: BTreeMap<u32, (FieldMask, BTreeSet<u16>)>,
    /// entries that were allocated for the function
    pub(super) entries: Vec<Entries>,
    /// first number of the block of counters
    pub(super) counters: Option<u16>,
    pub(super) last: u32,
}

impl Director {
    /// A counter that no rule has, counted from the block's first.
    pub(super) fn free_counter(&self) -> Option<u16> {
        let used: BTreeSet<u16> = self.rules.values().filter_map(|one| one.counter).collect();
        let first = self.counters?;
        (first..first + COUNTERS_PER_BLOCK).find(|counter| !used.contains(counter))
    }

    /// The rules of a VSI, oldest first.
    pub(super) fn of(&self, vsi: u16) -> impl Iterator<Item = (RuleNumber, &Installed)> {
        let all = self.rules.iter();
        all.filter(move |(_, one)| one.vsi == vsi)
            .map(|(number, one)| (*number, one))
    }

    /// True if a rule of the kind is installed.
    pub(super) fn is_used(&self, kind: PacketKind) -> bool {
        self.rules.values().any(|one| one.kinds.contains(&kind))
    }
}

#[cfg(test)]
mod tests;
