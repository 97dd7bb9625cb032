//! Virtual station interfaces.

use super::command::{Command, Outcome};
use super::generic::QUEUES as RECEIVE_QUEUES;
use super::switch::{FIRMWARE_VSI, SWITCH_ID};
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::vsi::{
    self, ClassMapping, InnerVlanFlags, KEEP_ALLOCATED, QUEUES_CONTIGUOUS, RDMA_FILTERS_ENABLED,
    SwitchFlags2, VsiAnswer, VsiCommand, VsiNumber, VsiProperties, VsiSections, VsiType,
    vlan_receive, vlan_transmit,
};
use ringside_spec::lan::identity::VSI_COUNT;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Number of the first VSI that a driver gets; not zero, so that a forgotten number shows.
const FIRST_VSI: u16 = 16;

/// Most receive queues of a VSI.
const MAX_QUEUES: u16 = 2048;

/// Most entries of a map that lists its queues.
const MAX_LISTED: usize = 16;

/// One VSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vsi {
    kind: u16,
    /// `None`: freed, but its number is kept.
    properties: Option<VsiProperties>,
}

/// The VSIs that exist, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vsis {
    all: BTreeMap<u16, Vsi>,
    /// those that were freed since the LAN engine was told
    freed: Vec<u16>,
    /// properties of [`FIRMWARE_VSI`]
    firmware: VsiProperties,
}

impl Vsis {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            freed: Vec::new(),
            firmware: firmware_properties(),
        }
    }

    /// True for a VSI that a driver has added, and for that of the firmware until then.
    pub(super) fn exists(&self, number: u16) -> bool {
        self.is_added(number) || number == FIRMWARE_VSI && self.all.is_empty()
    }

    fn is_added(&self, number: u16) -> bool {
        self.all
            .get(&number)
            .is_some_and(|vsi| vsi.properties.is_some())
    }

    /// True if RDMA gets the packets of this VSI.
    pub(super) fn lets_rdma_in(&self, number: u16) -> bool {
        let properties = self
            .all
            .get(&number)
            .and_then(|vsi| vsi.properties.as_ref());
        properties.is_some_and(|all| all.queue_option_flags & RDMA_FILTERS_ENABLED != 0)
    }

    /// The kind of a VSI that a driver has added.
    pub(super) fn kind(&self, number: u16) -> Option<u16> {
        self.all.get(&number).map(|vsi| vsi.kind)
    }

    /// The first VSI of the physical function.
    pub(super) fn of_function(&self) -> Option<u16> {
        let own = |vsi: &Vsi| vsi.kind == vsi::kind::PHYSICAL_FUNCTION && vsi.properties.is_some();
        self.all
            .iter()
            .find(|(_, vsi)| own(vsi))
            .map(|(number, _)| *number)
    }

    fn added(&self) -> impl Iterator<Item = (u16, &VsiProperties)> {
        let all = self.all.iter();
        all.filter_map(|(number, vsi)| Some((*number, vsi.properties.as_ref()?)))
    }

    /// The VSIs that have properties.
    pub(super) fn with_properties(&self) -> impl Iterator<Item = (u16, &VsiProperties)> {
        let added = self.added();
        let firmware = self
            .all
            .is_empty()
            .then_some((FIRMWARE_VSI, &self.firmware));
        added.chain(firmware)
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.freed.clear();
    }

    /// The VSIs that were freed since this was asked last.
    pub(super) fn take_freed(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.freed)
    }

    /// Refuses receive queues that the function does not have, and counts those that another VSI
    /// has too.
    fn check_queues(
        &self,
        number: u16,
        new: &VsiProperties,
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let own = QueueMap::of(new);
        if own.end() > RECEIVE_QUEUES.into() {
            let kind = "VSI with a receive queue that the function does not have";
            let ledger = &mut context.ledger;
            ledger.breach(kind, || format!("VSI {number}: {own:?}"));
            return Err(ReturnCode::Invalid);
        }
        for (other, properties) in self.added() {
            let theirs = QueueMap::of(properties);
            if other != number && own.overlaps(&theirs) {
                context
                    .ledger
                    .breach("VSI with a receive queue of another VSI", || {
                        format!("VSI {number}: {own:?}, VSI {other}: {theirs:?}")
                    });
            }
        }
        Ok(())
    }

    /// Every VSI: number, kind, properties.
    pub(super) fn list(&self) -> Vec<(u16, u16, Option<Vec<u8>>)> {
        let bytes = |all: &VsiProperties| all.as_bytes().to_vec();
        let entries = self.all.iter();
        entries
            .map(|(number, vsi)| (*number, vsi.kind, vsi.properties.as_ref().map(bytes)))
            .collect()
    }

    fn answer(&self, command: &Command, number: u16) -> Outcome {
        let used = self.all.len() as u16;
        let answer = VsiAnswer {
            number: VsiNumber::ZERO
                .with_number(number)
                .with_valid(true)
                .0
                .into(),
            used: used.into(),
            free: VSI_COUNT.saturating_sub(used).into(),
            ..VsiAnswer::zeroed()
        };
        command.answer(&answer)
    }

    pub(super) fn add(&mut self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: VsiCommand = command.parameters();
        let number = VsiNumber(asked.number.get());
        let properties: VsiProperties = command.item(0)?;
        check_switch(&properties, context);
        let number = if number.valid() {
            number.number()
        } else {
            let free = (FIRST_VSI..VSI_COUNT).find(|number| !self.all.contains_key(number));
            free.ok_or(ReturnCode::NoSpace)?
        };
        if number >= VSI_COUNT {
            return Err(ReturnCode::Invalid);
        }
        if self.is_added(number) {
            context
                .ledger
                .breach("VSI added under a number in use", || {
                    format!("VSI {number}")
                });
            return Err(ReturnCode::Exists);
        }
        let kind = VsiType(asked.vsi_flags.get()).kind();
        self.check_queues(number, &properties, context)?;
        self.all.insert(
            number,
            Vsi {
                kind,
                properties: Some(properties),
            },
        );
        self.answer(command, number)
    }

    fn existing(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Result<u16, ReturnCode> {
        let asked: VsiCommand = command.parameters();
        let number = VsiNumber(asked.number.get());
        if !number.valid() || !self.is_added(number.number()) {
            context
                .ledger
                .breach("VSI command for a VSI that does not exist", || {
                    format!(
                        "opcode {:#06x}, {number:?}",
                        command.descriptor.opcode.get()
                    )
                });
            return Err(ReturnCode::NoEntry);
        }
        Ok(number.number())
    }

    pub(super) fn update(&mut self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let number = self.existing(command, context)?;
        let new: VsiProperties = command.item(0)?;
        let sections = VsiSections(new.valid_sections.get());
        if sections.switch() {
            check_switch(&new, context);
        }
        if sections.receive_queue_map() {
            self.check_queues(number, &new, context)?;
        }
        if let Some(Vsi {
            properties: Some(properties),
            ..
        }) = self.all.get_mut(&number)
        {
            apply_sections(properties, &new);
        }
        self.answer(command, number)
    }

    pub(super) fn get(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        let number = self.existing(command, context)?;
        if let Some(Vsi {
            properties: Some(properties),
            ..
        }) = self.all.get(&number)
        {
            let properties = *properties;
            command.put(0, &properties)?;
        }
        self.answer(command, number)
    }

    /// Frees a VSI. `sends`: it has transmit queues.
    pub(super) fn free(
        &mut self,
        command: &Command,
        sends: impl Fn(u16) -> bool,
        context: &mut Context<'_>,
    ) -> Outcome {
        let number = self.existing(command, context)?;
        if sends(number) {
            context
                .ledger
                .breach("VSI freed while it has transmit queues", || {
                    format!("VSI {number}")
                });
            return Err(ReturnCode::Busy);
        }
        self.freed.push(number);
        let asked: VsiCommand = command.parameters();
        if asked.flags.get() & KEEP_ALLOCATED == 0 {
            self.all.remove(&number);
        } else if let Some(vsi) = self.all.get_mut(&number) {
            vsi.properties = None;
        }
        self.answer(command, number)
    }
}

/// Counts a switch section that names another switch than the one of the function. An update
/// replaces the section as a whole: one without the number moves the VSI to switch 0.
fn check_switch(properties: &VsiProperties, context: &mut Context<'_>) {
    if properties.switch_id != SWITCH_ID {
        let kind = "VSI on a switch that does not exist";
        context.ledger.breach(kind, || {
            format!("switch {}, there is {SWITCH_ID}", properties.switch_id)
        });
    }
}

/// The properties of [`FIRMWARE_VSI`].
fn firmware_properties() -> VsiProperties {
    let vlan = InnerVlanFlags::ZERO
        .with_transmit_mode(vlan_transmit::ALL)
        .with_receive_mode(vlan_receive::NOTHING);
    let mut properties = VsiProperties {
        switch_id: SWITCH_ID,
        switch_flags_2: SwitchFlags2::ZERO.with_lan_enable(true).0,
        inner_vlan_flags: vlan.0,
        ..VsiProperties::zeroed()
    };
    let [_, count, ..] = &mut properties.queue_mapping;
    *count = 1.into();
    properties
}

/// The receive queues that a VSI's properties name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueMap {
    /// As many from the first one on.
    Contiguous { first: u16, count: u16 },
    /// So many entries of the list: those up to the last one of a class.
    Listed {
        queues: [u16; MAX_LISTED],
        count: usize,
    },
}

impl QueueMap {
    pub(super) fn of(properties: &VsiProperties) -> Self {
        let queues = properties.queue_mapping.map(|entry| entry.get());
        let [first, count, ..] = queues;
        if properties.mapping_flags.get() == QUEUES_CONTIGUOUS {
            let count = count.min(MAX_QUEUES);
            return Self::Contiguous { first, count };
        }
        let ends = properties.class_mapping.map(|mapping| {
            let mapping = ClassMapping(mapping.get());
            usize::from(mapping.offset()) + (1 << mapping.count_log2())
        });
        let count = ends.into_iter().max().unwrap_or(0).min(MAX_LISTED);
        Self::Listed { queues, count }
    }

    /// The queues in order.
    pub(super) fn all(&self) -> Vec<u16> {
        match self {
            Self::Contiguous { first, count } => {
                let wanted = 0..*count;
                wanted.map(|queue| first.saturating_add(queue)).collect()
            }
            Self::Listed { .. } => self.listed().to_vec(),
        }
    }

    /// The number behind the highest queue; 0 of none.
    fn end(&self) -> u32 {
        match self {
            Self::Contiguous { count: 0, .. } => 0,
            Self::Contiguous { first, count } => u32::from(*first) + u32::from(*count),
            Self::Listed { .. } => {
                let ends = self.listed().iter().map(|queue| u32::from(*queue) + 1);
                ends.max().unwrap_or(0)
            }
        }
    }

    /// The queues of a list; none of an interval.
    fn listed(&self) -> &[u16] {
        match self {
            Self::Contiguous { .. } => &[],
            Self::Listed { queues, count } => queues.get(..*count).unwrap_or(queues),
        }
    }

    fn contains(&self, queue: u16) -> bool {
        match self {
            Self::Contiguous { first, count } => queue >= *first && queue - first < *count,
            Self::Listed { .. } => self.listed().contains(&queue),
        }
    }

    /// True if both name a queue. Of two intervals only the ends are compared: there are hundreds
    /// of VSIs with thousands of queues each, and the thread of a server carries this out.
    fn overlaps(&self, other: &Self) -> bool {
        if let (
            Self::Contiguous { first, count },
            Self::Contiguous {
                first: theirs,
                count: their_count,
            },
        ) = (self, other)
        {
            let both = *count > 0 && *their_count > 0;
            return both && (self.contains(*theirs) || other.contains(*first));
        }
        let named_twice = |own: &Self, other: &Self| {
            let mut listed = own.listed().iter();
            listed.any(|queue| other.contains(*queue))
        };
        named_twice(self, other) || named_twice(other, self)
    }
}

/// Takes over the sections that are marked valid, each as a whole.
fn apply_sections(old: &mut VsiProperties, new: &VsiProperties) {
    let sections = VsiSections(new.valid_sections.get());
    old.valid_sections = new.valid_sections;
    if sections.switch() {
        old.switch_id = new.switch_id;
        old.switch_flags = new.switch_flags;
        old.switch_flags_2 = new.switch_flags_2;
        old.veb_statistics = new.veb_statistics;
    }
    if sections.security() {
        old.security_flags = new.security_flags;
    }
    if sections.vlan() {
        old.inner_port_vlan = new.inner_port_vlan;
        old.inner_vlan_flags = new.inner_vlan_flags;
    }
    if sections.outer_tag() {
        old.outer_port_vlan = new.outer_port_vlan;
        old.outer_vlan_flags = new.outer_vlan_flags;
    }
    if sections.ingress_priority() {
        old.ingress_table = new.ingress_table;
    }
    if sections.egress_priority() {
        old.egress_table = new.egress_table;
    }
    if sections.receive_queue_map() {
        old.mapping_flags = new.mapping_flags;
        old.queue_mapping = new.queue_mapping;
        old.class_mapping = new.class_mapping;
    }
    if sections.queue_option() {
        old.queue_option_rss = new.queue_option_rss;
        old.queue_option_class = new.queue_option_class;
        old.queue_option_flags = new.queue_option_flags;
    }
    if sections.outer_priority() {
        old.outer_priority_table = new.outer_priority_table;
    }
    if sections.flow_director() {
        old.flow_director_options = new.flow_director_options;
        old.flow_director_dedicated = new.flow_director_dedicated;
        old.flow_director_shared = new.flow_director_shared;
        old.flow_director_default = new.flow_director_default;
        old.flow_director_report = new.flow_director_report;
    }
    if sections.process_address_space() {
        old.process_address_space = new.process_address_space;
    }
}

#[cfg(test)]
mod tests;
