//! Switch rules and lists of VSIs.

use super::command::{Command, Outcome};
use super::recipes::PREDEFINED;
use super::switch::Resources;
use super::vsi::Vsis;
use crate::chip::{Context, FilteredAddress, ReceiveFilter};
use crate::frame::Cast;
use crate::packet::MacAddress;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::switch::{
    LOOKUP_HEADER_BYTES, LookupRule, Resource, RuleHeader, RuleType, SingleAction, SwitchRules,
    VsiListRule, action, recipe,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rules that fit: two for each VLAN. The number is the model's choice.
const MAX_RULES: u16 = 8192;

/// One lookup rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number that the firmware gave.
    pub index: u16,
    /// Received or sent packets; see [`RuleType`].
    pub kind: u16,
    /// The recipe, which selects the fields to compare.
    pub recipe: u16,
    /// Port or VSI.
    pub source: u16,
    /// The action.
    pub action: u32,
    /// Destination, source, tag.
    pub header: [u8; LOOKUP_HEADER_BYTES],
}

/// Kinds of lists of VSIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListKind {
    Replication,
    Prune,
}

impl ListKind {
    /// The kind that a rule about lists means.
    const fn of(kind: RuleType) -> Self {
        match kind {
            RuleType::PruneListSet | RuleType::PruneListClear => Self::Prune,
            _ => Self::Replication,
        }
    }

    /// The resource that a driver allocates for a list.
    /// Source: ice `ice_switch.c`, `ice_aq_alloc_free_vsi_list`.
    const fn resource(self) -> Resource {
        match self {
            Self::Replication => Resource::VsiListReplication,
            Self::Prune => Resource::VsiListPrune,
        }
    }
}

/// Members of the lists that rules named so far: thousands of rules may share a long list.
#[derive(Debug, Default)]
pub(super) struct KnownLists(BTreeMap<(ListKind, u16), Arc<[u16]>>);

/// The switch's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    rules: BTreeMap<u16, Rule>,
    /// the rules of each recipe and header
    alike: BTreeMap<(u16, [u8; LOOKUP_HEADER_BYTES]), Vec<u16>>,
    /// no number below it is free
    least_free: u16,
    /// by kind and number: each kind counts its lists by itself
    lists: BTreeMap<(ListKind, u16), BTreeSet<u16>>,
    /// an answer of the firmware was lost or garbled: the driver cannot know which rules exist
    answer_is_lost: bool,
}

impl Rules {
    pub(super) fn clear(&mut self) {
        self.rules.clear();
        self.alike.clear();
        self.least_free = 0;
        self.lists.clear();
        self.answer_is_lost = false;
    }

    /// Records that the driver cannot know the outcome of a command.
    pub(super) const fn answer_lost(&mut self) {
        self.answer_is_lost = true;
    }

    /// All lookup rules.
    pub(super) fn list(&self) -> Vec<Rule> {
        self.rules.values().cloned().collect()
    }

    /// All lookup rules, in place.
    pub(super) fn all(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    /// The VSIs that an action names, as far as they exist.
    pub(super) fn targets(
        &self,
        action: SingleAction,
        vsis: &Vsis,
        known: &mut KnownLists,
    ) -> Arc<[u16]> {
        let number = action.vsi() as u16;
        let exists = |vsi: &u16| vsis.exists(*vsi);
        if !action.is_list() {
            return Some(number).into_iter().filter(exists).collect();
        }
        let kind = match action.kind() {
            action::PRUNE => ListKind::Prune,
            _ => ListKind::Replication,
        };
        let members = || {
            let all = self.lists.get(&(kind, number)).into_iter().flatten();
            all.copied().filter(exists).collect()
        };
        let list = known.0.entry((kind, number)).or_insert_with(members);
        Arc::clone(list)
    }

    /// All lists that have members: number and VSIs.
    pub(super) fn vsi_lists(&self) -> Vec<(u16, Vec<u16>)> {
        let lists = self.lists.iter().filter(|(_, members)| !members.is_empty());
        lists
            .map(|((_, number), members)| (*number, members.iter().copied().collect()))
            .collect()
    }

    /// A list was freed.
    pub(super) fn forget_list(&mut self, kind: ListKind, list: u16) {
        self.lists.remove(&(kind, list));
    }

    /// Adds all rules of a command, or none: a driver is not told the numbers of a request that
    /// fails.
    pub(super) fn add(
        &mut self,
        command: &mut Command,
        vsis: &Vsis,
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Outcome {
        let (mut added, mut lists) = (Vec::new(), BTreeMap::new());
        let outcome = self.each(command, context, |rules, command, at, context| {
            let header: RuleHeader = command.item(at)?;
            match RuleType::from_code(header.kind.get()) {
                RuleType::LookupReceive | RuleType::LookupTransmit => {
                    let (index, bytes) =
                        rules.add_lookup(command, at, (vsis, resources), context)?;
                    added.push(index);
                    Ok(bytes)
                }
                RuleType::LargeAction | RuleType::Unknown(_) => Err(ReturnCode::NotImplemented),
                kind => {
                    let rule: VsiListRule = command.item(at)?;
                    rules.check_list(rule, kind, resources, context)?;
                    let key = (ListKind::of(kind), rule.list.get());
                    let before = || rules.lists.get(&key).cloned();
                    lists.entry(key).or_insert_with(before);
                    rules.change_list(command, at, kind, vsis, context)
                }
            }
        });
        if outcome.is_err() {
            for index in added {
                self.remove_lookup(index);
            }
            for (key, before) in lists {
                match before {
                    Some(members) => self.lists.insert(key, members),
                    None => self.lists.remove(&key),
                };
            }
        }
        outcome
    }

    pub(super) fn update(
        &mut self,
        command: &mut Command,
        vsis: &Vsis,
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Outcome {
        self.each(command, context, |rules, command, at, context| {
            let header: RuleHeader = command.item(at)?;
            match RuleType::from_code(header.kind.get()) {
                RuleType::LookupReceive | RuleType::LookupTransmit => {
                    let new: LookupRule = command.item(at)?;
                    if new.header_length.get() != 0 {
                        let kind = "switch rule changed with a header";
                        context.ledger.breach(kind, || format!("{new:?}"));
                    }
                    let action = SingleAction(new.action.get());
                    rules.check_action(action, vsis, resources, context)?;
                    let rule = rules
                        .rules
                        .get_mut(&new.index.get())
                        .ok_or(ReturnCode::NoEntry)?;
                    rule.action = new.action.get();
                    rule.source = new.source.get();
                    Ok(LookupRule::SIZE + usize::from(new.header_length.get()))
                }
                RuleType::LargeAction | RuleType::Unknown(_) => Err(ReturnCode::NotImplemented),
                kind => {
                    rules.check_list(command.item(at)?, kind, resources, context)?;
                    rules.change_list(command, at, kind, vsis, context)
                }
            }
        })
    }

    pub(super) fn remove(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        self.each(command, context, |rules, command, at, context| {
            let header: RuleHeader = command.item(at)?;
            match RuleType::from_code(header.kind.get()) {
                RuleType::LookupReceive | RuleType::LookupTransmit => {
                    let rule: LookupRule = command.item(at)?;
                    if !rules.remove_lookup(rule.index.get()) {
                        if rules.answer_is_lost {
                            return Err(ReturnCode::NoEntry);
                        }
                        context
                            .ledger
                            .breach("switch rule removed that does not exist", || {
                                format!("rule {}", rule.index.get())
                            });
                        return Err(ReturnCode::NoEntry);
                    }
                    Ok(LookupRule::SIZE + usize::from(rule.header_length.get()))
                }
                RuleType::LargeAction | RuleType::Unknown(_) => Err(ReturnCode::NotImplemented),
                _ => {
                    let rule: VsiListRule = command.item(at)?;
                    let kind = ListKind::of(RuleType::from_code(header.kind.get()));
                    rules.lists.remove(&(kind, rule.list.get()));
                    Ok(VsiListRule::SIZE + 2 * usize::from(rule.count.get()))
                }
            }
        })
    }

    /// Carries out rule after rule; the first failure is the command's.
    fn each(
        &mut self,
        command: &mut Command,
        context: &mut Context<'_>,
        mut one: impl FnMut(
            &mut Self,
            &mut Command,
            usize,
            &mut Context<'_>,
        ) -> Result<usize, ReturnCode>,
    ) -> Outcome {
        let asked: SwitchRules = command.parameters();
        let mut at = 0;
        for _ in 0..asked.rule_count.get() {
            let taken = one(self, command, at, context)?;
            let header: RuleHeader = command.item(at)?;
            command.put(
                at,
                &RuleHeader {
                    status: 0.into(),
                    ..header
                },
            )?;
            at += taken;
        }
        command.done()
    }

    /// Refuses an action on a VSI that does not exist or a list that is not allocated, and one that
    /// the model does not execute.
    fn check_action(
        &self,
        action: SingleAction,
        vsis: &Vsis,
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let ledger = &mut context.ledger;
        let number = action.vsi() as u16;
        let list = match action.kind() {
            action::FORWARD => ListKind::Replication,
            action::PRUNE => ListKind::Prune,
            other => {
                let kind = "switch rule with an action that the model does not execute";
                ledger.remark(kind, || format!("kind {other}: {action:?}"));
                return Err(ReturnCode::NotImplemented);
            }
        };
        if list == ListKind::Replication && (!action.valid() || action.drop()) {
            return Ok(());
        }
        if action.is_list() {
            if resources.holds(list.resource(), number) || self.answer_is_lost {
                return Ok(());
            }
            let kind = "switch rule for a VSI list that is not allocated";
            ledger.breach(kind, || format!("{list:?}, list {number}"));
            return Err(ReturnCode::NoEntry);
        }
        if list == ListKind::Replication && !vsis.exists(number) {
            let kind = "switch rule for a VSI that does not exist";
            ledger.breach(kind, || format!("VSI {number}"));
            return Err(ReturnCode::NoEntry);
        }
        Ok(())
    }

    /// Adds a rule; its number, and its bytes in the command.
    fn add_lookup(
        &mut self,
        command: &mut Command,
        at: usize,
        (vsis, resources): (&Vsis, &Resources),
        context: &mut Context<'_>,
    ) -> Result<(u16, usize), ReturnCode> {
        let new: LookupRule = command.item(at)?;
        let bytes = usize::from(new.header_length.get());
        if bytes != LOOKUP_HEADER_BYTES {
            context
                .ledger
                .breach("switch rule without a header of 16 bytes", || {
                    format!("{bytes}")
                });
            return Err(ReturnCode::Invalid);
        }
        let action = SingleAction(new.action.get());
        self.check_action(action, vsis, resources, context)?;
        if !PREDEFINED.contains(&new.recipe.get()) {
            let kind = "switch rule of a recipe that the model does not execute";
            let ledger = &mut context.ledger;
            ledger.remark(kind, || format!("recipe {}", new.recipe.get()));
            return Err(ReturnCode::NotImplemented);
        }
        let header: [u8; LOOKUP_HEADER_BYTES] = command.item(at + LookupRule::SIZE)?;
        self.check_new(&new, header, context)?;
        let mut free = self.least_free.max(1)..MAX_RULES;
        let index = free.find(|index| !self.rules.contains_key(index));
        let index = index.ok_or(ReturnCode::NoSpace)?;
        self.least_free = index;
        let rule = Rule {
            index,
            kind: new.header.kind.get(),
            recipe: new.recipe.get(),
            source: new.source.get(),
            action: action.0,
            header,
        };
        let alike = self.alike.entry((rule.recipe, header)).or_default();
        alike.push(index);
        self.rules.insert(index, rule);
        command.put(
            at,
            &LookupRule {
                index: index.into(),
                ..new
            },
        )?;
        Ok((index, LookupRule::SIZE + bytes))
    }

    /// Removes a rule; false if there is none of that number.
    fn remove_lookup(&mut self, index: u16) -> bool {
        let Some(rule) = self.rules.remove(&index) else {
            return false;
        };
        self.least_free = self.least_free.min(index);
        let key = (rule.recipe, rule.header);
        if let Some(alike) = self.alike.get_mut(&key) {
            alike.retain(|other| *other != index);
            if alike.is_empty() {
                self.alike.remove(&key);
            }
        }
        true
    }

    /// Refuses a rule for the packets of another one.
    fn check_new(
        &self,
        new: &LookupRule,
        header: [u8; LOOKUP_HEADER_BYTES],
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let alike = self.alike.get(&(new.recipe.get(), header));
        let alike = alike.map_or(&[][..], Vec::as_slice);
        let others = || alike.iter().filter_map(|index| self.rules.get(index));
        if others().any(|rule| rule.source == new.source.get()) {
            return Err(ReturnCode::Exists);
        }
        // These recipes do not compare the source. Source: ice `ice_switch.c`,
        // `ice_find_rule_entry`.
        let shared = [recipe::MAC, recipe::MAC_VLAN, recipe::VLAN].contains(&new.recipe.get());
        let other = others().find(|rule| rule.kind == new.header.kind.get());
        if let Some(Rule { index, source, .. }) = other
            && shared
            && !SingleAction(new.action.get()).drop()
        {
            context
                .ledger
                .breach("switch rule for the packets of another one", || {
                    format!("rule {index} of VSI {source}: VSIs share a rule by a list")
                });
            return Err(ReturnCode::Exists);
        }
        Ok(())
    }

    /// Refuses a rule about a list that the function has not allocated, or has freed. Drivers clear
    /// a list before they free it.
    /// Source: ice `ice_switch.c`, `ice_rem_update_vsi_list`.
    fn check_list(
        &self,
        rule: VsiListRule,
        kind: RuleType,
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let list = rule.list.get();
        if resources.holds(ListKind::of(kind).resource(), list) {
            return Ok(());
        }
        if !self.answer_is_lost {
            let ledger = &mut context.ledger;
            ledger.breach("switch rule for a VSI list that is not allocated", || {
                format!("{kind:?}, list {list}")
            });
        }
        Err(ReturnCode::NoEntry)
    }

    /// Changes the members of a list that is allocated.
    fn change_list(
        &mut self,
        command: &Command,
        at: usize,
        kind: RuleType,
        vsis: &Vsis,
        context: &mut Context<'_>,
    ) -> Result<usize, ReturnCode> {
        let rule: VsiListRule = command.item(at)?;
        let count = usize::from(rule.count.get());
        let key = (ListKind::of(kind), rule.list.get());
        let clear = matches!(kind, RuleType::VsiListClear | RuleType::PruneListClear);
        for member in 0..count {
            let vsi = command.number16(at + VsiListRule::SIZE + 2 * member)?;
            if clear {
                if let Some(members) = self.lists.get_mut(&key) {
                    members.remove(&vsi);
                }
            } else if vsis.exists(vsi) {
                self.lists.entry(key).or_default().insert(vsi);
            } else {
                context
                    .ledger
                    .breach("VSI list with a VSI that does not exist", || {
                        format!("VSI {vsi}")
                    });
                return Err(ReturnCode::NoEntry);
            }
        }
        Ok(VsiListRule::SIZE + 2 * count)
    }

    /// True if a VSI of a list lets RDMA in; `None` if none of them exists.
    fn list_lets_rdma_in(&self, list: u16, vsis: &Vsis) -> Option<bool> {
        let members = self.lists.get(&(ListKind::Replication, list));
        let mut members = members.into_iter().flatten();
        let exist = members.clone().any(|vsi| vsis.exists(*vsi));
        exist.then(|| members.any(|vsi| vsis.exists(*vsi) && vsis.lets_rdma_in(*vsi)))
    }

    /// The effect of the rules on frames from the wire. The rules of a driver for its own address
    /// are of the transmit kind and count for received frames all the same.
    pub(super) fn receive_filter(&self, vsis: &Vsis) -> ReceiveFilter {
        let mut filter = ReceiveFilter::default();
        let mut lists = BTreeMap::new();
        for rule in self.rules.values() {
            let action = SingleAction(rule.action);
            if action.kind() != action::FORWARD || !action.valid() || action.drop() {
                continue;
            }
            let number = action.vsi() as u16;
            let rdma = if action.is_list() {
                let found = lists.entry(number);
                *found.or_insert_with(|| self.list_lets_rdma_in(number, vsis))
            } else {
                vsis.exists(number).then(|| vsis.lets_rdma_in(number))
            };
            let Some(rdma) = rdma else { continue };
            let [a, b, c, d, e, f, ..] = rule.header;
            let address = MacAddress([a, b, c, d, e, f]);
            match rule.recipe {
                recipe::MAC | recipe::MAC_VLAN => {
                    filter.add_address(FilteredAddress {
                        address,
                        rdma,
                        loopback: action.loopback(),
                    });
                }
                recipe::PROMISCUOUS | recipe::PROMISCUOUS_VLAN => {
                    filter.add_promiscuous(Cast::of(address), rdma)
                }
                recipe::DEFAULT_VSI | recipe::LOGICAL_PORT => filter.add_default(rdma),
                _ => {}
            }
        }
        filter
    }
}

#[cfg(test)]
mod tests;
