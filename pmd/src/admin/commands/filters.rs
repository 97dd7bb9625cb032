//! Filter rules of the switch beyond those for own addresses.

use super::{read_at, switch};
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{
    AllocateResource, LOOKUP_HEADER_BYTES, LookupRule, Resource, ResourceElements, ResourceType,
    RuleHeader, RuleType, SingleAction, SwitchRules, VsiListRule, action, recipe,
};
use zerocopy::IntoBytes;

/// Offset of the tag control in a rule's header.
const TAG_CONTROL_AT: usize = 14;
/// First bytes of the headers that mean all frames to one station, and all to groups. Source: ice
/// `ice_switch.c`, `ice_set_vsi_promisc`.
const ALL_UNICAST: u8 = 0x02;
const ALL_GROUPS: u8 = 0x03;

impl AdminQueue {
    /// Delivers all frames from `port` to single stations, or to groups, to VSI `vsi`; returns the
    /// rule's number.
    pub fn add_promiscuous_rule(
        &self,
        port: u8,
        vsi: u16,
        groups: bool,
    ) -> Result<u16, AdminError> {
        let mut header = [0; LOOKUP_HEADER_BYTES];
        let first = if groups { ALL_GROUPS } else { ALL_UNICAST };
        put(&mut header, 0, &[first]);
        let act = SingleAction::ZERO
            .with_kind(action::FORWARD)
            .with_vsi(vsi.into())
            .with_valid(true);
        let rule = LookupRule {
            header: of_kind(RuleType::LookupReceive),
            recipe: recipe::PROMISCUOUS.into(),
            source: u16::from(port).into(),
            action: act.0.into(),
            index: 0.into(),
            header_length: (LOOKUP_HEADER_BYTES as u16).into(),
        };
        self.add_rule(&rule, &header)
    }

    /// Lets frames of a VLAN pass to and from the VSIs of prune list `list`; returns the rule's
    /// number. VLAN 0 is that of frames without a tag.
    pub fn add_vlan_rule(&self, vsi: u16, list: u16, vlan: u16) -> Result<u16, AdminError> {
        let mut header = [0; LOOKUP_HEADER_BYTES];
        put(&mut header, 12, &[0x81, 0x00]);
        put(&mut header, TAG_CONTROL_AT, &vlan.to_be_bytes());
        let act = SingleAction::ZERO
            .with_kind(action::PRUNE)
            .with_vsi(list.into())
            .with_is_list(true)
            .with_egress(true)
            .with_ingress(true);
        let rule = LookupRule {
            header: of_kind(RuleType::LookupTransmit),
            recipe: recipe::VLAN.into(),
            source: vsi.into(),
            action: act.0.into(),
            index: 0.into(),
            header_length: (LOOKUP_HEADER_BYTES as u16).into(),
        };
        self.add_rule(&rule, &header)
    }

    fn add_rule(
        &self,
        rule: &LookupRule,
        header: &[u8; LOOKUP_HEADER_BYTES],
    ) -> Result<u16, AdminError> {
        let opcode = Opcode::AddSwitchRules;
        let buffer = [rule.as_bytes(), header].concat();
        let answer = self.execute(opcode, &one_rule(), Data::Send(&buffer))?;
        let done: LookupRule = read_at(opcode, &answer.data, 0)?;
        switch::check_status(opcode, done.header)?;
        Ok(done.index.get())
    }

    /// Allocates a list of VSIs to prune by (0x0208) with `vsi` in it; returns its number.
    pub fn add_prune_list(&self, vsi: u16) -> Result<u16, AdminError> {
        let opcode = Opcode::AllocateResource;
        let answer = self.execute(opcode, &one_resource(), Data::Send(&prune_lists(0)))?;
        let list: zerocopy::byteorder::little_endian::U16 =
            read_at(opcode, &answer.data, ResourceElements::SIZE)?;
        let list = list.get();
        let member = VsiListRule {
            header: of_kind(RuleType::PruneListSet),
            list: list.into(),
            count: 1.into(),
        };
        let buffer = [member.as_bytes(), &vsi.to_le_bytes()].concat();
        let added = self.execute(Opcode::AddSwitchRules, &one_rule(), Data::Send(&buffer));
        if let Err(error) = added {
            // It is empty; if it cannot be freed, clearing the function's configuration frees it.
            let _ = self.free_prune_list(list);
            return Err(error);
        }
        Ok(list)
    }

    /// Frees a list of VSIs to prune by (0x0209).
    pub fn free_prune_list(&self, list: u16) -> Result<(), AdminError> {
        let data = prune_lists(list);
        self.execute(Opcode::FreeResource, &one_resource(), Data::Send(&data))?;
        Ok(())
    }
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

fn one_resource() -> AllocateResource {
    AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    }
}

fn prune_lists(number: u16) -> Vec<u8> {
    let kind = ResourceType::ZERO.with_resource(Resource::VsiListPrune.code());
    let head = ResourceElements {
        resource_type: kind.0.into(),
        count: 1.into(),
    };
    [head.as_bytes(), &number.to_le_bytes()].concat()
}
