//! The switch's elements, allocated resources, VLAN mode.

use super::command::{Command, Outcome};
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::switch::{
    AllocateResource, DOUBLE_VLAN_MODE, ElementFunction, ElementNumber, GetSwitchConfig,
    GetVlanMode, PortFlags, PortSwitch, Resource, ResourceElements, ResourceType,
    SetPortParameters, SwitchElement, element,
};
use std::collections::BTreeSet;

/// Number of the one switch.
pub(super) const SWITCH_ID: u8 = 1;

/// The firmware's own VSI of the function: with the first queue, and every tag of a frame kept. It
/// serves a driver that adds no VSI.
/// Source: iPXE `ice.c`, `ice_admin_switch`, which uses the VSI that 0x0200 lists after a reset;
/// Linux calls it the VSI of the firmware and skips it (`ice_get_initial_sw_cfg`).
pub(super) const FIRMWARE_VSI: u16 = 1;

pub(super) fn config(command: &mut Command, port: u8) -> Outcome {
    let asked: GetSwitchConfig = command.parameters();
    let elements = [
        (u16::from(port), element::PHYSICAL_PORT),
        (FIRMWARE_VSI, element::VSI),
    ];
    let first = usize::from(asked.element.get());
    let room = command.buffer.len() / SwitchElement::SIZE;
    let mut count = 0;
    for (number, kind) in elements.into_iter().skip(first).take(room) {
        let number = ElementNumber::ZERO.with_number(number).with_kind(kind);
        let element = SwitchElement {
            number: number.0.into(),
            switch_id: u16::from(SWITCH_ID).into(),
            function: ElementFunction::ZERO.with_number(port.into()).0.into(),
        };
        command.put(count * SwitchElement::SIZE, &element)?;
        count += 1;
    }
    if count == 0 {
        return Err(ReturnCode::Invalid);
    }
    let next = first + count;
    let next = if next < elements.len() { next } else { 0 };
    let answer = GetSwitchConfig {
        element: (next as u16).into(),
        element_count: (count as u16).into(),
        ..asked
    };
    command.answer_with(&answer, count * SwitchElement::SIZE)
}

/// `double`: the card is in double VLAN mode.
pub(super) fn port_parameters(
    command: &Command,
    double: bool,
    context: &mut Context<'_>,
) -> Outcome {
    let asked: SetPortParameters = command.parameters();
    if double && !PortFlags(asked.flags.get()).double_vlan() {
        let kind = "port parameters that end the double VLAN mode of the card";
        context.ledger.breach(kind, || format!("{asked:?}"));
    }
    let switch = PortSwitch(asked.switch_id.get());
    if switch.valid() && switch.id() != u16::from(SWITCH_ID) {
        context
            .ledger
            .breach("port parameters for a switch that does not exist", || {
                format!("{switch:?}")
            });
        return Err(ReturnCode::Invalid);
    }
    command.done()
}

/// The mode of the card: all zero is single VLAN mode.
pub(super) fn vlan_mode(command: &mut Command, double: bool) -> Outcome {
    let mode = GetVlanMode {
        mode: if double { DOUBLE_VLAN_MODE } else { 0 },
        ..GetVlanMode::zeroed()
    };
    command.put(0, &mode)?;
    command.done()
}

/// Resources that the function holds, by type and number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    held: BTreeSet<(u16, u16)>,
    /// Resources that a reset or a clearing of the configuration took. Linux's ice still frees the
    /// flow director's counters afterwards, which it does not allocate again: nothing is wrong
    /// then.
    taken: BTreeSet<(u16, u16)>,
    entries: FilterEntries,
}

/// Entries of the flow director that the function has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterEntries {
    /// entries of its own
    pub(crate) guaranteed: u16,
    /// entries that all functions share
    pub(crate) shared: u16,
}

impl FilterEntries {
    /// All entries of the device.
    pub(crate) const OF_DEVICE: Self = Self {
        guaranteed: 1024,
        shared: 14336,
    };

    /// The number of filters that fit.
    pub(crate) fn room(self) -> usize {
        usize::from(self.guaranteed) + usize::from(self.shared)
    }

    /// The entries of a kind of resource; `None` for another kind.
    fn of(&mut self, kind: Resource) -> Option<&mut u16> {
        match kind {
            Resource::FlowDirectorGuaranteed => Some(&mut self.guaranteed),
            Resource::FlowDirectorShared => Some(&mut self.shared),
            _ => None,
        }
    }
}

/// The number of resources of a type, and the first one: drivers use them as indexes, unchecked.
fn numbers(resource: Resource) -> std::ops::Range<u16> {
    match resource {
        // zero is not a valid list
        Resource::VsiListReplication | Resource::VsiListPrune => 1..1024,
        // the predefined ones are all that the switch executes
        Resource::Recipe => 0..0,
        Resource::FlowDirectorCounters | Resource::GlobalHash => 0..16,
        Resource::AccessTcam | Resource::FlowDirectorTcam | Resource::HashTcam => 0..512,
        _ => 0..128,
    }
}

/// True for a type of resource that a driver's sources name. Source: DPDK
/// `base/ice_adminq_cmd.h`, `ICE_AQC_RES_TYPE_*`.
const fn is_resource(kind: u16) -> bool {
    matches!(
        kind,
        0x00..=0x0C | 0x20..=0x23 | 0x30 | 0x48 | 0x49 | 0x50 | 0x51 | 0x58 | 0x59 | 0x60 | 0x61
            | 0x68 | 0x69
    )
}

impl Resources {
    pub(super) fn clear(&mut self) {
        self.taken.append(&mut self.held);
        self.take_entries();
    }

    /// The function was reset: it has no entries of the flow director. Source: ice `ice_main.c`,
    /// `ice_rebuild`, which allocates them again.
    pub(super) fn take_entries(&mut self) {
        self.entries = FilterEntries::default();
    }

    /// Entries of the flow director.
    pub(super) const fn entries(&self) -> FilterEntries {
        self.entries
    }

    /// True if the function has allocated this resource.
    pub(super) fn holds(&self, kind: Resource, number: u16) -> bool {
        self.held.contains(&(kind.code(), number))
    }

    /// All that are allocated: type and number; of entries of the flow director type and amount.
    pub(super) fn list(&self) -> Vec<(u16, u16)> {
        let FilterEntries { guaranteed, shared } = self.entries;
        let entries = [
            (Resource::FlowDirectorGuaranteed.code(), guaranteed),
            (Resource::FlowDirectorShared.code(), shared),
        ];
        let entries = entries.into_iter().filter(|(_, amount)| *amount > 0);
        self.held.iter().copied().chain(entries).collect()
    }

    /// Allocates so many more entries of a kind, or frees them: `None` for another kind.
    ///
    /// The list has one element for any amount. Source: ice `ice_fdir.c`,
    /// `ice_alloc_fd_guar_item`; DPDK `base/ice_fdir.c`.
    fn change_entries(
        &mut self,
        command: &Command,
        free: bool,
        context: &mut Context<'_>,
    ) -> Option<Outcome> {
        let head: ResourceElements = command.item(0).ok()?;
        let kind = Resource::from_code(ResourceType(head.resource_type.get()).resource());
        let mut all = FilterEntries::OF_DEVICE;
        let limit = *all.of(kind)?;
        let held = self.entries.of(kind)?;
        let amount = head.count.get();
        let new = match free {
            true => held.checked_sub(amount),
            false => held.checked_add(amount).filter(|new| *new <= limit),
        };
        if free && new.is_none() {
            context
                .ledger
                .breach("resource freed that was not allocated", || {
                    format!("{amount} entries of {kind:?}")
                });
        }
        let Some(new) = new else {
            return Some(Err(match free {
                true => ReturnCode::NoEntry,
                false => ReturnCode::NoSpace,
            }));
        };
        *held = new;
        Some(command.done())
    }

    fn head(
        command: &Command,
        context: &mut Context<'_>,
    ) -> Result<(ResourceType, usize), ReturnCode> {
        let asked: AllocateResource = command.parameters();
        if asked.entry_count.get() != 1 {
            context
                .ledger
                .breach("resource command without exactly one list", || {
                    format!("{} lists", asked.entry_count.get())
                });
            return Err(ReturnCode::Invalid);
        }
        let head: ResourceElements = command.item(0)?;
        let kind = ResourceType(head.resource_type.get());
        let room = (command.buffer.len() - ResourceElements::SIZE) / 2;
        Ok((kind, usize::from(head.count.get()).min(room)))
    }

    pub(super) fn allocate(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        let (asked, count) = Self::head(command, context)?;
        if let Some(done) = self.change_entries(command, false, context) {
            return done;
        }
        let kind = asked.resource();
        if !is_resource(kind) {
            let what = "resource of a type that does not exist";
            let ledger = &mut context.ledger;
            ledger.breach(what, || format!("type {kind:#x}"));
            return Err(ReturnCode::Invalid);
        }
        let all = numbers(Resource::from_code(kind));
        if Resource::from_code(kind) == Resource::Recipe {
            let kind = format!("resource type {kind:#x}");
            context.ledger.remark(
                "recipe of a driver, which the model has no number for",
                || kind,
            );
        }
        // Also if the search shall begin at the end: the order of rows would only count if flags of
        // packets were known.
        let free = all.filter(|number| !self.held.contains(&(kind, *number)));
        let given: Vec<u16> = free.take(count).collect();
        // All or none: a driver is not told the numbers of a request that fails.
        if given.len() < count {
            return Err(ReturnCode::NoSpace);
        }
        for (index, number) in given.into_iter().enumerate() {
            self.held.insert((kind, number));
            self.taken.remove(&(kind, number));
            command.put_bytes(ResourceElements::SIZE + 2 * index, &number.to_le_bytes())?;
        }
        command.done()
    }

    /// Frees the listed resources and returns their type.
    pub(super) fn free(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Result<Vec<(Resource, u16)>, ReturnCode> {
        let (asked, count) = Self::head(command, context)?;
        if let Some(done) = self.change_entries(command, true, context) {
            return done.map(|_| Vec::new());
        }
        let kind = asked.resource();
        let mut freed = Vec::new();
        for index in 0..count {
            let number = command.number16(ResourceElements::SIZE + 2 * index)?;
            let entry = (kind, number);
            if !self.held.remove(&entry) && !self.taken.remove(&entry) {
                context
                    .ledger
                    .breach("resource freed that was not allocated", || {
                        format!("type {kind:#x}, number {number}")
                    });
                return Err(ReturnCode::NoEntry);
            }
            freed.push((Resource::from_code(kind), number));
        }
        Ok(freed)
    }
}
