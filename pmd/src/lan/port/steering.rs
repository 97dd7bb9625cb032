//! Programming of rules: profiles of the kinds of packets, and the rules.

mod start;

use super::director::{Director, Installed, KindProfile, masks_of};
use super::rules::{
    FlowMatch, FlowRule, FlowTarget, InputSet, PacketKind, RuleNumber, names, packet,
};
use super::shared::PortShared;
use super::tables::Block;
use super::{PortError, Vsi};
use crate::admin::AdminQueue;
use crate::admin::commands::{COUNTERS_PER_BLOCK, plain};
use ringside_lan::FilterError;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::registers::filters::{
    FLOW_DIRECTOR_INPUT, FLOW_DIRECTOR_MASK, FLOW_DIRECTOR_MASK_SELECT, FLOW_DIRECTOR_SWAP,
};
use ringside_spec::lan::registers::statistics::{
    FLOW_DIRECTOR_MATCHES, FLOW_DIRECTOR_MATCHES_HIGH,
};
use ringside_spec::lan::transmit::{FilterAction, FilterIdentity, filter_report, kind};
use std::sync::{Arc, MutexGuard, PoisonError};

/// Values that drivers write into each descriptor. Source: reference e810-lan-data, section 3.1.
mod written {
    pub(super) const PROFILE: u64 = 1;
    pub(super) const PROFILE_PRIORITY: u64 = 3;
    /// guaranteed entries, then those that are shared
    pub(super) const SPACE: u64 = 2;
    pub(super) const QUEUE_PRIORITY: u64 = 3;
    pub(super) const MARK_PRIORITY: u64 = 1;
    pub(super) const MARK_NUMBER: u64 = 5;
    /// count packets
    pub(super) const COUNT: u64 = 1;
}

impl Vsi {
    /// Adds a rule for packets that this VSI receives: the device sends them to one of its queues
    /// or a group of them, drops, marks or counts them.
    ///
    /// The first rule of a function takes one more receive and one more transmit queue. All rules
    /// of a kind of packets name the same fields, those of other VSIs too; that is the device's
    /// limit. A rule whose packets another rule of the VSI has already is refused.
    ///
    /// Control path. Errors: [`PortError`]; nothing of the rule is left then, unless the device did
    /// not report whether it has the rule ([`FilterError::NotReported`]).
    pub fn add_rule(&self, rule: &FlowRule) -> Result<RuleNumber, PortError> {
        rule.check(self.shared.queues.0 as u16)?;
        let admin = self.shared.admin()?;
        let home = self.shared.home();
        let mut director = home.director();
        home.open_director(admin, &mut director)?;
        check_beside(rule, self.number(), &director)?;
        self.shared.join_director(admin, &mut director)?;
        let counter = match rule.count {
            true => Some(home.take_counter(admin, &mut director)?),
            false => None,
        };
        let number = RuleNumber(director.last + 1);
        let mut installed = Installed {
            vsi: self.number(),
            rule: rule.clone(),
            counter,
            kinds: Vec::new(),
        };
        for kind in rule.packets.kinds() {
            let done = home
                .ensure_profile(admin, &mut director, kind, &rule.packets)
                .and_then(|()| home.program(&mut director, &installed, kind, false));
            if let Err(error) = done {
                home.take_back(admin, &mut director, installed);
                return Err(error);
            }
            installed.kinds.push(kind);
        }
        director.last = number.0;
        director.rules.insert(number, installed);
        Ok(number)
    }

    /// Takes a rule back; false if this VSI has none of that number.
    ///
    /// Errors: [`PortError`] of the first part that the device did not remove. The other parts are
    /// removed, the rule stays in [`Vsi::rules`], and a further call tries what is left.
    pub fn remove_rule(&self, number: RuleNumber) -> Result<bool, PortError> {
        let admin = self.shared.admin()?;
        let home = self.shared.home();
        let mut director = home.director();
        let own = director.rules.get(&number);
        let Some(installed) = own.filter(|one| one.vsi == self.number()).cloned() else {
            return Ok(false);
        };
        let (left, removed) = remove_each(&installed.kinds, |kind| {
            home.program(&mut director, &installed, kind, true)
        });
        if left.is_empty() {
            director.rules.remove(&number);
        } else if let Some(recorded) = director.rules.get_mut(&number) {
            recorded.kinds.clone_from(&left);
        }
        for kind in installed.kinds {
            home.drop_profile(admin, &mut director, kind);
        }
        removed.map(|()| true)
    }

    /// The rules of the VSI, oldest first. They can be read after a failure of the device, too.
    #[must_use]
    pub fn rules(&self) -> Vec<(RuleNumber, FlowRule)> {
        let director = self.shared.home().director();
        let own = director.of(self.number());
        own.map(|(number, one)| (number, one.rule.clone()))
            .collect()
    }

    /// Packets that a rule of the VSI has counted; `None` if it has no rule of that number, or the
    /// rule does not count.
    pub fn rule_hits(&self, number: RuleNumber) -> Result<Option<u64>, PortError> {
        self.shared.admin()?;
        let director = self.shared.home().director();
        let mut own = director.of(self.number());
        let found = own.find(|(one, _)| *one == number);
        let Some(counter) = found.and_then(|(_, one)| one.counter) else {
            return Ok(None);
        };
        // Both halves at once: between two reads the low one could wrap.
        // Source: ice `ice_controlq.h` and `ice_common.c`, `ice_stat_update40`.
        let at = FLOW_DIRECTOR_MATCHES.at(counter.into());
        Ok(Some(self.shared.registers.read64_quietly(at)?))
    }
}

/// Removes the parts of a rule by `remove`; returns those that may still be in the device, and the
/// first failure.
///
/// A part that the device does not have is removed: a device refuses a removal for that reason
/// only.
fn remove_each(
    kinds: &[PacketKind],
    mut remove: impl FnMut(PacketKind) -> Result<(), PortError>,
) -> (Vec<PacketKind>, Result<(), PortError>) {
    let mut left = Vec::new();
    let mut first = Ok(());
    for kind in kinds {
        match remove(*kind) {
            Ok(()) | Err(PortError::Filter(FilterError::Refused)) => {}
            Err(error) => {
                left.push(*kind);
                first = first.and(Err(error));
            }
        }
    }
    (left, first)
}

/// Refuses a rule of a VSI that the rules of the function leave no place for.
fn check_beside(rule: &FlowRule, vsi: u16, director: &Director) -> Result<(), PortError> {
    let refuse = |reason: String, remedy| {
        Err(PortError::Rule {
            rule: rule.packets.kind.to_string(),
            reason,
            remedy,
        })
    };
    let fields = rule.packets.fields();
    for kind in rule.packets.kinds() {
        let Some(profile) = director.profiles.get(&kind) else {
            continue;
        };
        if profile.fields != fields {
            let reason = format!(
                "rules of {kind} compare {}, this one {}",
                names(&profile.fields),
                names(&fields)
            );
            return refuse(reason, "name the same fields, or remove those rules first");
        }
    }
    // The device has one entry for each kind and values: a rule of all kinds has one of every kind.
    let kinds = rule.packets.kinds();
    let taken = director.of(vsi).find(|(_, one)| {
        one.rule.packets.has_values_of(&rule.packets)
            && one.kinds.iter().any(|kind| kinds.contains(kind))
    });
    match taken {
        Some((_, other)) => refuse(
            format!(
                "another rule has the same packets: {:?}, of {}",
                other.rule.target, other.rule.packets.kind
            ),
            "remove that rule first",
        ),
        None => Ok(()),
    }
}

fn action(rule: &FlowRule, counter: Option<u16>) -> FilterAction {
    let base = FilterAction::ZERO
        .with_report(filter_report::ALWAYS)
        .with_space(written::SPACE);
    let base = match counter {
        Some(counter) => base.with_count(written::COUNT).with_counter(counter.into()),
        None => base,
    };
    let steers = base.with_queue_priority(written::QUEUE_PRIORITY);
    match rule.target {
        FlowTarget::Queue(queue) => steers.with_queue(queue.into()),
        FlowTarget::Group { first, count } => steers
            .with_queue(first.into())
            .with_group_log2(count.trailing_zeros().into()),
        FlowTarget::Drop => steers.with_drop(true),
        FlowTarget::Spread => base,
    }
}

fn identity(rule: &FlowRule, vsi: u16, remove: bool) -> FilterIdentity {
    let base = FilterIdentity::ZERO
        .with_kind(kind::FILTER)
        .with_remove(remove)
        .with_profile_priority(written::PROFILE_PRIORITY)
        .with_profile(written::PROFILE)
        .with_vsi(vsi.into())
        .with_id_number(written::MARK_NUMBER);
    match rule.mark {
        Some(mark) => base
            .with_id_priority(written::MARK_PRIORITY)
            .with_id(mark.into()),
        None => base,
    }
}

impl PortShared {
    /// The port, which has the flow director of all its VSIs.
    fn home(self: &Arc<Self>) -> &Arc<Self> {
        let further = self.further.as_ref();
        further.map_or(self, |further| &further.port)
    }

    fn director(&self) -> MutexGuard<'_, Director> {
        self.director.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A counter that starts at zero.
    fn take_counter(&self, admin: &AdminQueue, director: &mut Director) -> Result<u16, PortError> {
        if director.counters.is_none() {
            // Source: ice `ice_alloc_fd_res_cntr`.
            let block = admin.allocate_resource(plain(Resource::FlowDirectorCounters), 1)?;
            director.counters = Some(block.saturating_mul(COUNTERS_PER_BLOCK));
        }
        let Some(counter) = director.free_counter() else {
            return Err(PortError::TooMany {
                what: "rules that count",
                wanted: usize::from(COUNTERS_PER_BLOCK) + 1,
                limit: COUNTERS_PER_BLOCK.into(),
            });
        };
        let number = counter.into();
        self.registers
            .write(FLOW_DIRECTOR_MATCHES_HIGH.at(number), 0)?;
        self.registers.write(FLOW_DIRECTOR_MATCHES.at(number), 0)?;
        Ok(counter)
    }

    /// Programs a rule for one kind, or removes it.
    fn program(
        &self,
        director: &mut Director,
        installed: &Installed,
        kind: PacketKind,
        remove: bool,
    ) -> Result<(), PortError> {
        let queue = director.queue.as_mut().ok_or(FilterError::OutOfService)?;
        let action = action(&installed.rule, installed.counter);
        let identity = identity(&installed.rule, installed.vsi, remove);
        let packet = packet(kind, &installed.rule.packets);
        let clock = self.registers.clock();
        Ok(queue.program(action, identity, &packet, &**clock, self.quiesce)?)
    }

    /// Makes the profile of a kind, unless it exists.
    fn ensure_profile(
        &self,
        admin: &AdminQueue,
        director: &mut Director,
        kind: PacketKind,
        packets: &FlowMatch,
    ) -> Result<(), PortError> {
        if director.profiles.contains_key(&kind) {
            return Ok(());
        }
        let Some(groups) = kind.groups(&self.filter_groups) else {
            return Err(PortError::Invalid {
                what: "kind of packets",
                value: kind.to_string(),
                remedy: "install a package with its packet types",
            });
        };
        // A row of an earlier rule would still lead packets to its profile.
        self.free_remaining(admin)?;
        let fields = packets.fields();
        let input = InputSet::of(kind, &fields);
        let profile = admin.allocate_table_entry(Block::FlowDirector.profile())?;
        // Recorded before the tables change: all of it is freed even if a later step fails.
        director.profiles.insert(
            kind,
            KindProfile {
                profile,
                rows: Vec::new(),
                fields,
            },
        );
        let made = self.write_profile(admin, director, kind, profile, &input, &groups);
        if made.is_err() {
            self.drop_profile(admin, director, kind);
        }
        made
    }

    fn write_profile(
        &self,
        admin: &AdminQueue,
        director: &mut Director,
        kind: PacketKind,
        profile: u16,
        input: &InputSet,
        groups: &std::collections::BTreeSet<u8>,
    ) -> Result<(), PortError> {
        self.write_masks(director, profile, input)?;
        for (register, compared, swap) in input.registers() {
            let number = profile.into();
            self.registers
                .write(FLOW_DIRECTOR_INPUT.at(register, number), compared)?;
            self.registers
                .write(FLOW_DIRECTOR_SWAP.at(register, number), swap)?;
        }
        let mut sections = vec![Block::FlowDirector.vector(profile, &input.words)];
        for group in groups {
            let row = admin.allocate_table_entry(Block::FlowDirector.row())?;
            if let Some(recorded) = director.profiles.get_mut(&kind) {
                recorded.rows.push(row);
            }
            let vsis = self.group_number();
            sections.push(Block::FlowDirector.row_of(row, *group, vsis, profile));
        }
        Ok(admin.update_tables(&sections)?)
    }

    /// Writes the masks of a profile. Profiles with the same mask share a register.
    fn write_masks(
        &self,
        director: &mut Director,
        profile: u16,
        input: &InputSet,
    ) -> Result<(), PortError> {
        let own = masks_of(self.function, self.capabilities.functions);
        let mut chosen = 0u32;
        for mask in &input.masks {
            let same = |register: &u32| {
                let used = director.masks.get(register);
                used.is_some_and(|(other, _)| other == mask)
            };
            let unused = |register: &u32| !director.masks.contains_key(register);
            let found = own.clone().find(same).or_else(|| own.clone().find(unused));
            let Some(register) = found else {
                return Err(PortError::TooMany {
                    what: "different masks of VLANs and protocols",
                    wanted: director.masks.len() + 1,
                    limit: own.len(),
                });
            };
            self.registers
                .write(FLOW_DIRECTOR_MASK.at(register), mask.0)?;
            let (_, users) = director.masks.entry(register).or_insert((*mask, [].into()));
            users.insert(profile);
            chosen |= 1 << register;
        }
        Ok(self
            .registers
            .write(FLOW_DIRECTOR_MASK_SELECT.at(profile.into()), chosen)?)
    }

    /// Frees the profile of a kind if no rule needs it any more.
    fn drop_profile(&self, admin: &AdminQueue, director: &mut Director, kind: PacketKind) {
        if director.is_used(kind) {
            return;
        }
        let Some(unused) = director.profiles.remove(&kind) else {
            return;
        };
        for row in unused.rows {
            self.free_entry(admin, Block::FlowDirector.row(), row);
        }
        self.free_entry(admin, Block::FlowDirector.profile(), unused.profile);
        let mut cleared = vec![FLOW_DIRECTOR_MASK_SELECT.at(unused.profile.into())];
        director.masks.retain(|register, (_, users)| {
            users.remove(&unused.profile);
            if users.is_empty() {
                cleared.push(FLOW_DIRECTOR_MASK.at(*register));
            }
            !users.is_empty()
        });
        for register in cleared {
            if let Err(error) = self.registers.write(register, 0) {
                tracing::warn!(%error, register, "a mask stays");
            }
        }
    }

    /// Removes the programmed parts of a rule that could not be programmed completely.
    fn take_back(&self, admin: &AdminQueue, director: &mut Director, installed: Installed) {
        for kind in installed.kinds.clone() {
            if let Err(error) = self.program(director, &installed, kind, true) {
                tracing::warn!(%error, ?kind, "a rule stays until the next reset");
            }
        }
        for kind in installed.rule.packets.kinds() {
            self.drop_profile(admin, director, kind);
        }
    }

    /// Removes the rules of this VSI and frees their resources; the queues stop with the others.
    pub(super) fn remove_rules(&self) {
        let Ok(admin) = self.admin() else {
            return;
        };
        let home = match &self.further {
            Some(further) => &*further.port,
            None => self,
        };
        let mut director = home.director();
        if director.queue.is_some() {
            self.leave(home, admin, &mut director);
        }
        if self.further.is_none() {
            if let Some(first) = director.counters.take() {
                let block = first / COUNTERS_PER_BLOCK;
                self.free_entry(admin, Resource::FlowDirectorCounters, block);
            }
            self.free_entries(admin, &mut director);
        }
    }

    /// Takes the rules of this VSI back, and its use of the director.
    fn leave(&self, home: &PortShared, admin: &AdminQueue, director: &mut Director) {
        // One by one: a kind's profile stays until its last rule is removed.
        let numbers: Vec<RuleNumber> = director.of(self.vsi).map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(installed) = director.rules.remove(&number) {
                home.take_back(admin, director, installed);
            }
        }
        if self.further.is_none() || director.joined.remove(&self.vsi).is_some() {
            self.leave_director(admin);
        }
    }
}

#[cfg(test)]
mod tests;
