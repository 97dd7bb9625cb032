//! Programming of rules: the queue that does it, profiles of the kinds of packets, and the rules.

use super::control::{ReceiveControl, TransmitControl};
use super::director::{COUNTERS_PER_BLOCK, Director, Installed, KindProfile, MASKS_PER_FUNCTION};
use super::rules::{FlowMatch, FlowRule, FlowTarget, InputSet, PacketKind, RuleNumber, packet};
use super::shared::PortShared;
use super::tables::{Block, free};
use super::{MAX_QUEUES, PortError, Vsi};
use crate::admin::AdminQueue;
use ringside_lan::{
    FILTER_PACKETS_BYTES, FILTER_RING_ENTRIES, FilterError, FilterMemory, FilterQueue,
    QueueControl, ReceiveSettings, TransmitSettings,
};
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::vsi::{
    FlowDirectorOptions, FlowDirectorReport, VsiProperties, VsiSections,
};
use ringside_spec::lan::receive::profile;
use ringside_spec::lan::registers::filters::{
    FLOW_DIRECTOR_ENABLE, FLOW_DIRECTOR_INPUT, FLOW_DIRECTOR_MASK, FLOW_DIRECTOR_MASK_SELECT,
    FLOW_DIRECTOR_SWAP, FUNCTION_FLOW_DIRECTOR_SIZE, FlowDirectorSize,
};
use ringside_spec::lan::registers::queues::{RECEIVE_QUEUE_TAIL, TRANSMIT_QUEUE_DOORBELL};
use ringside_spec::lan::registers::statistics::{
    FLOW_DIRECTOR_MATCHES, FLOW_DIRECTOR_MATCHES_HIGH,
};
use ringside_spec::lan::transmit::{FilterAction, FilterIdentity, filter_report, kind};
use std::sync::{Arc, MutexGuard, PoisonError};

/// Bytes of a buffer and of a frame of the queue for reports. It gets no buffers, but the device
/// requires valid sizes. Source: DPDK ice `ice_fdir_program_hw_rx_queue`.
const REPORT_BUFFER_BYTES: u16 = 1024;
const REPORT_FRAME_BYTES: u16 = 1518;
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
    /// Adds a rule for packets that this VSI receives: the device sends them to one of its queues or a
    /// group of them, drops, marks or counts them.
    ///
    /// The first rule of a function takes one more receive and one more transmit queue. All rules of a
    /// kind of packets name the same fields, those of other VSIs too; that is the device's limit. A
    /// rule whose packets another rule of the VSI has already is refused.
    ///
    /// Control path. Errors: [`PortError`]; nothing of the rule is left then.
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
    pub fn remove_rule(&self, number: RuleNumber) -> Result<bool, PortError> {
        let admin = self.shared.admin()?;
        let home = self.shared.home();
        let mut director = home.director();
        let own = director.rules.get(&number);
        let Some(installed) = own.filter(|one| one.vsi == self.number()).cloned() else {
            return Ok(false);
        };
        for kind in installed.kinds.clone() {
            home.program(&mut director, &installed, kind, true)?;
            if let Some(left) = director.rules.get_mut(&number) {
                left.kinds.retain(|one| *one != kind);
            }
            home.drop_profile(admin, &mut director, kind);
        }
        director.rules.remove(&number);
        Ok(true)
    }

    /// The rules of the VSI, oldest first. They can be read after a failure of the device, too.
    #[must_use]
    pub fn rules(&self) -> Vec<(RuleNumber, FlowRule)> {
        let director = self.shared.home().director();
        let own = director.of(self.number());
        own.map(|(number, one)| (number, one.rule.clone()))
            .collect()
    }

    /// Packets that a rule of the VSI has counted; `None` if it has no rule of that number, or the rule
    /// does not count.
    pub fn rule_hits(&self, number: RuleNumber) -> Result<Option<u64>, PortError> {
        self.shared.admin()?;
        let director = self.shared.home().director();
        let mut own = director.of(self.number());
        let found = own.find(|(one, _)| *one == number);
        let Some(counter) = found.and_then(|(_, one)| one.counter) else {
            return Ok(None);
        };
        // The low half first: reading it holds the high one.
        let registers = &self.shared.registers;
        let low = registers.read_quietly(FLOW_DIRECTOR_MATCHES.at(counter.into()))?;
        let high = registers.read_quietly(FLOW_DIRECTOR_MATCHES_HIGH.at(counter.into()))?;
        Ok(Some(u64::from(high) << 32 | u64::from(low)))
    }
}

/// Refuses a rule of a VSI that the rules of the function leave no place for.
fn check_beside(rule: &FlowRule, vsi: u16, director: &Director) -> Result<(), PortError> {
    let refuse = |reason: String, remedy| {
        Err(PortError::Rule {
            rule: format!("{:?}", rule.packets.kind),
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
                "rules of {kind:?} compare {:?}, this one {fields:?}",
                profile.fields
            );
            return refuse(reason, "name the same fields, or remove those rules first");
        }
    }
    let mut own = director.of(vsi);
    match own.find(|(_, one)| one.rule.packets == rule.packets) {
        Some((_, other)) => refuse(
            format!("another rule has the same packets: {:?}", other.rule.target),
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

    /// Has a further VSI look for rules: in the group of the port, whose profiles its rules use.
    fn join_director(&self, admin: &AdminQueue, director: &mut Director) -> Result<(), PortError> {
        let Some(further) = &self.further else {
            return Ok(());
        };
        // Recorded first: the end of the VSI takes it out again.
        if !director.joined.insert(self.vsi) {
            return Ok(());
        }
        let size = FlowDirectorSize(self.registers.read(FUNCTION_FLOW_DIRECTOR_SIZE)?);
        let group = Block::FlowDirector.vsi_group(self.vsi, further.port.group_number());
        let joined = admin
            .update_vsi(self.vsi, &filtering(Some(Filtering::Found(size))))
            .and_then(|()| admin.update_tables(&[group]));
        if joined.is_err() {
            director.joined.remove(&self.vsi);
        }
        Ok(joined?)
    }

    /// Makes the queues that program rules, unless that was done, and lets the VSI use them.
    fn open_director(
        self: &Arc<Self>,
        admin: &AdminQueue,
        director: &mut Director,
    ) -> Result<(), PortError> {
        if director.queue.is_some() {
            return Ok(());
        }
        let (receive, transmit) = self.queues;
        let limits = [
            (
                "receive queues (one for reports of rules)",
                receive + 1,
                self.queues_max.0,
            ),
            (
                "transmit queues (one for rules)",
                transmit + 1,
                self.queues_max.1.min(MAX_QUEUES),
            ),
        ];
        for (what, wanted, limit) in limits {
            if wanted > limit {
                return Err(PortError::TooMany {
                    what,
                    wanted,
                    limit,
                });
            }
        }
        let size = FlowDirectorSize(self.registers.read(FUNCTION_FLOW_DIRECTOR_SIZE)?);
        if size.guaranteed() + size.best_effort() == 0 {
            return Err(PortError::Invalid {
                what: "flow director",
                value: "without entries for this function".to_owned(),
                remedy: "give the function entries in the device's configuration",
            });
        }
        // Queues of an earlier attempt that did not stop then.
        self.disable_receive(receive as u16)?;
        self.disable_transmit(transmit as u16)?;
        self.registers.write(FLOW_DIRECTOR_ENABLE, 1)?;
        let queue = self.start_director(admin, size)?;
        queue.start();
        director.queue = Some(queue);
        Ok(())
    }

    /// Starts the queues for rules, behind those of the port, and lets the VSI use them.
    ///
    /// Errors: [`PortError`]; all steps are undone.
    fn start_director(
        self: &Arc<Self>,
        admin: &AdminQueue,
        size: FlowDirectorSize,
    ) -> Result<FilterQueue, PortError> {
        let (receive, transmit) = (self.queues.0 as u16, self.queues.1 as u16);
        let (queue, sends, reports) = self.filter_queue(receive, transmit)?;
        let started = sends
            .enable()
            .and_then(|()| reports.configure())
            .and_then(|()| reports.enable())
            .map_err(PortError::from);
        let failed = match started.and_then(|()| self.admit_reports(admin, size)) {
            Ok(()) => return Ok(queue),
            Err(error) => error,
        };
        let stopped = self
            .disable_receive(receive)
            .and_then(|()| self.disable_transmit(transmit));
        match stopped {
            Ok(()) => queue.free(),
            // Its memory is kept until the device confirms, or a reset.
            Err(error) => tracing::warn!(%error, "a queue for rules did not stop"),
        }
        Err(failed)
    }

    /// Gives the VSI the queue for reports, its entries and its group of profiles.
    ///
    /// Errors: [`PortError`]; the VSI is as before.
    fn admit_reports(&self, admin: &AdminQueue, size: FlowDirectorSize) -> Result<(), PortError> {
        let (receive, _) = self.queues;
        let admitted = self.map_queues(receive + 1).and_then(|()| {
            let programs = Filtering::Programmed(size, receive as u16);
            admin.update_vsi(self.vsi, &filtering(Some(programs)))?;
            let group = Block::FlowDirector.vsi_group(self.vsi, self.group_number());
            Ok(admin.update_tables(&[group])?)
        });
        if admitted.is_err() {
            let off = admin.update_vsi(self.vsi, &filtering(None));
            if let Err(error) = off.map_err(PortError::from).and(self.map_queues(receive)) {
                tracing::warn!(%error, "the VSI keeps the queue for reports of rules");
            }
        }
        admitted
    }

    /// One receive and one transmit queue of these numbers for rules, which the device does not use
    /// yet.
    fn filter_queue(
        self: &Arc<Self>,
        receive: u16,
        transmit: u16,
    ) -> Result<(FilterQueue, TransmitControl, ReceiveControl), PortError> {
        let entries = usize::from(FILTER_RING_ENTRIES);
        let memory = FilterMemory {
            ring: self.pool.allocate(entries * 16, 4096)?,
            reports: self.pool.allocate(entries * 32, 4096)?,
            packets: self.pool.allocate(FILTER_PACKETS_BYTES, 4096)?,
        };
        let sends = TransmitControl {
            port: Arc::clone(self),
            number: transmit,
            ring: memory.ring.iova().0,
            settings: TransmitSettings {
                descriptors: FILTER_RING_ENTRIES,
                path: None,
            },
        };
        let reports = ReceiveControl {
            port: Arc::clone(self),
            number: receive,
            ring: memory.reports.iova().0,
            settings: ReceiveSettings {
                descriptors: FILTER_RING_ENTRIES,
                frame_bytes_max: REPORT_FRAME_BYTES,
                path: None,
            },
            buffer_bytes: REPORT_BUFFER_BYTES,
            profile: profile::LEGACY_32,
        };
        let bell = self.doorbell(TRANSMIT_QUEUE_DOORBELL.at(transmit.into()))?;
        let tail = self.doorbell(RECEIVE_QUEUE_TAIL.at(receive.into()))?;
        let queue = FilterQueue::new(memory, bell, tail, Arc::clone(&self.service))?;
        Ok((queue, sends, reports))
    }

    /// A counter that starts at zero.
    fn take_counter(&self, admin: &AdminQueue, director: &mut Director) -> Result<u16, PortError> {
        if director.counters.is_none() {
            let block = admin.allocate_counter_block()?;
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
                value: format!("{kind:?}"),
                remedy: "install a package with its packet types",
            });
        };
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
        let first = u32::from(self.function) * MASKS_PER_FUNCTION;
        let mut chosen = 0u32;
        for mask in &input.masks {
            let own = first..first + MASKS_PER_FUNCTION;
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
                    limit: MASKS_PER_FUNCTION as usize,
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
            free(admin, Block::FlowDirector.row(), row);
        }
        free(admin, Block::FlowDirector.profile(), unused.profile);
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
        if director.queue.is_none() {
            return;
        }
        // One by one: a kind's profile stays until its last rule is removed.
        let numbers: Vec<RuleNumber> = director.of(self.vsi).map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(installed) = director.rules.remove(&number) {
                home.take_back(admin, &mut director, installed);
            }
        }
        if self.further.is_some() && !director.joined.remove(&self.vsi) {
            return;
        }
        let group = Block::FlowDirector.vsi_group(self.vsi, 0);
        if let Err(error) = admin.update_tables(&[group]) {
            tracing::warn!(%error, "the VSI stays in its group of filter profiles");
        }
        if let Err(error) = admin.update_vsi(self.vsi, &filtering(None)) {
            tracing::warn!(%error, "the VSI continues to look for rules");
        }
        if self.further.is_none()
            && let Some(first) = director.counters.take()
        {
            let block = first / COUNTERS_PER_BLOCK;
            free(admin, Resource::FlowDirectorCounters, block);
        }
    }
}

/// A VSI's use of the flow director.
#[derive(Clone, Copy)]
enum Filtering {
    /// It looks for rules.
    Found(FlowDirectorSize),
    /// It also programs them, and has the queue for reports.
    Programmed(FlowDirectorSize, u16),
}

/// The section of the flow director: with entries and the queue for reports, or off.
fn filtering(on: Option<Filtering>) -> VsiProperties {
    let sections = VsiSections::ZERO.with_flow_director(true);
    let off = VsiProperties {
        valid_sections: sections.0.into(),
        ..VsiProperties::zeroed()
    };
    let (size, reports, programs) = match on {
        None => return off,
        Some(Filtering::Found(size)) => (size, 0, false),
        Some(Filtering::Programmed(size, reports)) => (size, reports, true),
    };
    let options = FlowDirectorOptions::ZERO
        .with_enable(true)
        .with_program(programs);
    VsiProperties {
        flow_director_options: options.0.into(),
        flow_director_dedicated: (size.guaranteed() as u16).into(),
        flow_director_shared: (size.best_effort() as u16).into(),
        flow_director_report: FlowDirectorReport::ZERO.with_queue(reports).0.into(),
        ..off
    }
}

#[cfg(test)]
mod tests;
