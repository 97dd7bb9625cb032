//! Filter rules of the switch: addresses, all packets, VLANs. VSIs share the rule of a packet.

use super::{plain, read_at, switch};
use crate::admin::switch_rules::{
    ListKind, ListName, Loopback, Made, Member, RulePackets, SharedRule, VsiList,
};
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{
    LOOKUP_HEADER_BYTES, LookupRule, Resource, RuleHeader, RuleType, SingleAction, SwitchRules,
    VsiListRule, action, recipe,
};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// Offset of the tag's control in a rule's header.
const TAG_CONTROL_AT: usize = 14;
/// The header that every rule's header begins as: locally administered addresses and an empty tag.
/// The rule's own fields replace parts of it. Source: ice `ice_switch.c`, `dummy_eth_header`, which
/// lists these values.
const HEADER: [u8; LOOKUP_HEADER_BYTES] = [0x02, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0x81, 0, 0, 0];
/// First byte of the destination that means all frames to groups; that of [`HEADER`] means all to
/// single stations. Source: ice `ice_switch.c`, `ice_set_vsi_promisc`.
const ALL_GROUPS: u8 = 0x03;

impl AdminQueue {
    /// Delivers frames to `mac` to VSI `vsi`; returns the rule's number. See
    /// [`AdminQueue::add_rule`].
    pub fn add_mac_rule(&self, vsi: u16, mac: [u8; 6]) -> Result<u16, AdminError> {
        self.add_rule(RulePackets::To(mac), vsi, Loopback::Allowed)
    }

    /// Has the switch give these packets to VSI `vsi`; returns the rule's number. For a VLAN: lets
    /// its packets pass to and from the VSI.
    ///
    /// A further caller for the same packets gets the rule that exists, and has to remove it too.
    /// Several VSIs share a rule, but not that of a single station's address.
    ///
    /// Errors: [`AdminError::AddressTaken`]; those of the commands: the rule is as before.
    pub fn add_rule(
        &self,
        packets: RulePackets,
        vsi: u16,
        loopback: Loopback,
    ) -> Result<u16, AdminError> {
        let mut made = self.switch_rules.made();
        let member = Member {
            vsi,
            loopback,
            users: 1,
        };
        let place = made.rules.iter().position(|rule| rule.packets == packets);
        let Some((place, rule)) = place.and_then(|at| Some((at, made.rules.get_mut(at)?))) else {
            return self.make_rule(&mut made, packets, member);
        };
        let number = rule.number;
        if let Some(known) = rule.members.iter_mut().find(|known| known.vsi == vsi) {
            known.users += 1;
            return Ok(number);
        }
        if let (true, Some(owner)) = (packets.is_station(), rule.members.first()) {
            return Err(AdminError::AddressTaken { vsi: owner.vsi });
        }
        let mut wider = rule.clone();
        wider.members.push(member);
        self.change_rule(&mut made, place, wider)?;
        Ok(number)
    }

    /// Takes VSI `vsi` from rule `number`, with the last caller that asked for it. The rule goes
    /// with its last VSI, as does one that was not made here.
    ///
    /// Errors: those of the commands; the VSI counts as not taken from the rule then.
    pub fn remove_rule(&self, vsi: u16, number: u16) -> Result<(), AdminError> {
        let mut made = self.switch_rules.made();
        let place = made.rules.iter().position(|rule| rule.number == number);
        let Some((place, rule)) = place.and_then(|at| Some((at, made.rules.get_mut(at)?))) else {
            return self.unmake_rule(number);
        };
        let Some(member) = rule.members.iter_mut().find(|member| member.vsi == vsi) else {
            return Ok(());
        };
        if member.users > 1 {
            member.users -= 1;
            return Ok(());
        }
        let mut narrower = rule.clone();
        narrower.members.retain(|member| member.vsi != vsi);
        if !narrower.members.is_empty() {
            return self.change_rule(&mut made, place, narrower);
        }
        let list = rule.list;
        self.unmake_rule(number)?;
        made.rules.swap_remove(place);
        self.give_list(&mut made, list);
        Ok(())
    }

    fn make_rule(
        &self,
        made: &mut Made,
        packets: RulePackets,
        member: Member,
    ) -> Result<u16, AdminError> {
        let mut rule = SharedRule {
            packets,
            number: 0,
            members: vec![member],
            list: None,
        };
        rule.list = self.take_list(made, &rule)?;
        match self.send_rule(Opcode::AddSwitchRules, &rule) {
            Ok(number) => {
                rule.number = number;
                made.rules.push(rule);
                Ok(number)
            }
            Err(error) => {
                self.give_list(made, rule.list);
                Err(error)
            }
        }
    }

    /// Gives the rule at `place` other members (0x02A1).
    fn change_rule(
        &self,
        made: &mut Made,
        place: usize,
        mut new: SharedRule,
    ) -> Result<(), AdminError> {
        let old = new.list;
        new.list = self.take_list(made, &new)?;
        if let Err(error) = self.send_rule(Opcode::UpdateSwitchRules, &new) {
            self.give_list(made, new.list);
            return Err(error);
        }
        if let Some(rule) = made.rules.get_mut(place) {
            *rule = new;
        }
        // Last: the device looks into it as long as the rule names it.
        self.give_list(made, old);
        Ok(())
    }

    /// Adds (0x02A0) or changes (0x02A1) a rule; returns its number.
    fn send_rule(&self, opcode: Opcode, rule: &SharedRule) -> Result<u16, AdminError> {
        let buffer = encode(opcode, rule);
        let answer = self.execute(opcode, &one_rule(), Data::Send(&buffer))?;
        let done: LookupRule = read_at(opcode, &answer.data, 0)?;
        switch::check_status(opcode, done.header)?;
        Ok(done.index.get())
    }

    /// Removes rule `index` (0x02A2). The firmware goes by the number alone.
    fn unmake_rule(&self, index: u16) -> Result<(), AdminError> {
        let opcode = Opcode::RemoveSwitchRules;
        let rule = LookupRule {
            index: index.into(),
            ..LookupRule::zeroed()
        };
        let answer = self.execute(opcode, &one_rule(), Data::Send(rule.as_bytes()))?;
        let done: RuleHeader = read_at(opcode, &answer.data, 0)?;
        switch::check_status(opcode, done)
    }

    /// The list that a rule needs: one that exists, or a new one.
    fn take_list(
        &self,
        made: &mut Made,
        rule: &SharedRule,
    ) -> Result<Option<ListName>, AdminError> {
        let Some((kind, vsis)) = rule.wanted_list() else {
            return Ok(None);
        };
        let same = |list: &&mut VsiList| list.name.kind == kind && list.vsis == vsis;
        if let Some(list) = made.lists.iter_mut().find(same) {
            list.users += 1;
            return Ok(Some(list.name));
        }
        let number = self.make_list(kind, &vsis)?;
        let name = ListName { kind, number };
        made.lists.push(VsiList {
            name,
            vsis,
            users: 1,
        });
        Ok(Some(name))
    }

    /// One rule less names a list; it is freed with the last.
    fn give_list(&self, made: &mut Made, name: Option<ListName>) {
        let named = |list: &VsiList| Some(list.name) == name;
        let Some(place) = made.lists.iter().position(named) else {
            return;
        };
        let Some(list) = made.lists.get_mut(place) else {
            return;
        };
        list.users -= 1;
        if list.users > 0 {
            return;
        }
        let ListName { kind, number } = made.lists.swap_remove(place).name;
        if let Err(error) = self.free_list(kind, number) {
            tracing::warn!(%error, number, "a VSI list stays until the next reset");
        }
    }

    /// Allocates a list (0x0208) and puts VSIs into it; returns its number.
    fn make_list(&self, kind: ListKind, vsis: &BTreeSet<u16>) -> Result<u16, AdminError> {
        let list = self.allocate_resource(plain(resource_of(kind)), 1)?;
        let set = match kind {
            ListKind::Replication => RuleType::VsiListSet,
            ListKind::Prune => RuleType::PruneListSet,
        };
        let head = VsiListRule {
            header: of_kind(set),
            list: list.into(),
            count: (vsis.len() as u16).into(),
        };
        let mut buffer = head.as_bytes().to_vec();
        buffer.extend(vsis.iter().flat_map(|vsi| vsi.to_le_bytes()));
        let added = self.execute(Opcode::AddSwitchRules, &one_rule(), Data::Send(&buffer));
        if let Err(error) = added {
            // It is empty; if it cannot be freed, clearing the function's configuration frees it.
            let _ = self.free_list(kind, list);
            return Err(error);
        }
        Ok(list)
    }

    /// Frees a list (0x0209).
    fn free_list(&self, kind: ListKind, list: u16) -> Result<(), AdminError> {
        self.free_resource(resource_of(kind), 1, list)
    }
}

/// The rule and the header that it matches.
///
/// Rules for addresses are transmit rules and apply to received frames too. Frames that the device
/// sends to a single station of its own stay inside; others also go to the wire, those of a VLAN
/// with a rule among them. A change (0x02A1) names the rule by its number, and says that no header
/// follows.
/// Source: ice `ice_switch.c`, `ice_fill_sw_info`, `ice_fill_sw_rule`.
fn encode(opcode: Opcode, rule: &SharedRule) -> Vec<u8> {
    let of_member = rule.members.first().map_or(0, |member| member.vsi);
    let target = SingleAction::ZERO
        .with_vsi(rule.list.map_or(of_member, |list| list.number).into())
        .with_is_list(rule.list.is_some());
    let forward = target.with_kind(action::FORWARD).with_valid(true);
    let mut header = HEADER;
    let (kind, recipe, source, act) = match rule.packets {
        RulePackets::To(mac) => {
            put(&mut header, 0, &mac);
            let loops = rule.loops_back();
            let stays = loops && rule.packets.is_station();
            let act = forward.with_loopback(loops).with_lan(!stays);
            (RuleType::LookupTransmit, recipe::MAC, of_member, act)
        }
        RulePackets::AllUnicast { port } | RulePackets::AllGroups { port } => {
            if matches!(rule.packets, RulePackets::AllGroups { .. }) {
                put(&mut header, 0, &[ALL_GROUPS]);
            }
            let port = port.into();
            (RuleType::LookupReceive, recipe::PROMISCUOUS, port, forward)
        }
        RulePackets::Vlan(vlan) => {
            put(&mut header, TAG_CONTROL_AT, &vlan.to_be_bytes());
            let prune = target.with_kind(action::PRUNE);
            let act = prune.with_egress(true).with_ingress(true).with_lan(true);
            (RuleType::LookupTransmit, recipe::VLAN, of_member, act)
        }
    };
    let header_bytes = match opcode {
        Opcode::UpdateSwitchRules => 0,
        _ => LOOKUP_HEADER_BYTES as u16,
    };
    let lookup = LookupRule {
        header: of_kind(kind),
        recipe: recipe.into(),
        source: source.into(),
        action: act.0.into(),
        index: rule.number.into(),
        header_length: header_bytes.into(),
    };
    [lookup.as_bytes(), &header].concat()
}

fn put(header: &mut [u8; LOOKUP_HEADER_BYTES], at: usize, bytes: &[u8]) {
    for (to, from) in header.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

fn of_kind(kind: RuleType) -> RuleHeader {
    RuleHeader {
        kind: kind.code().into(),
        status: 0.into(),
    }
}

fn one_rule() -> SwitchRules {
    SwitchRules {
        rule_count: 1.into(),
        ..SwitchRules::zeroed()
    }
}

const fn resource_of(kind: ListKind) -> Resource {
    match kind {
        ListKind::Replication => Resource::VsiListReplication,
        ListKind::Prune => Resource::VsiListPrune,
    }
}
