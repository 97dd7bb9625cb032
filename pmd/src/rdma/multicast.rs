//! Multicast groups that datagram queue pairs belong to.
//!
//! A group has one context in the device with up to eight members of this function. The first
//! member creates it, the last one that leaves destroys it.
//! Source: irdma `verbs.c`, irdma_attach_mcast; `uda.c`, irdma_create_mg_ctx.

use super::RdmaError;
use super::address::{MacAddress, as_number, multicast_mac};
use super::engine::{Engine, EngineState};
use super::records::{GroupKey, MulticastRecord};
use ringside_bus::DmaBuffer;
use ringside_spec::rdma::commands::{
    CreateMulticastGroup, DestroyMulticastGroup, MULTICAST_GROUP_MEMBERS, ModifyMulticastGroup,
    MulticastMember,
};
use ringside_spec::rdma::fpm::ObjectType;

/// Alignment of a list of members: its own size.
const LIST_BYTES: usize = MULTICAST_GROUP_MEMBERS * 8;

/// The number of a VLAN in its tag: the tag's bits 0 to 11.
const VLAN_NUMBERS: u16 = 1 << 12;

impl MulticastRecord {
    /// Writes the list that the device reads at the next command.
    fn write_list(&self, function: u8) {
        let words = self.list.words();
        for place in 0..MULTICAST_GROUP_MEMBERS {
            let word = self.members.get(place).map_or(0, |number| {
                let member = MulticastMember {
                    qp_number: *number,
                    pf_number: function,
                    valid: true,
                    ..MulticastMember::ZERO
                };
                let [word] = member.encode();
                word
            });
            words.store_release(place, word);
        }
    }

    fn modification(&self) -> ModifyMulticastGroup {
        let made = &self.command;
        ModifyMulticastGroup {
            group_mac: made.group_mac,
            hmc_function_index: made.hmc_function_index,
            queue_set_handle: made.queue_set_handle,
            vlan_id: made.vlan_id,
            member_list_address: made.member_list_address,
            group_index: made.group_index,
            vlan_valid: made.vlan_valid,
            ipv4: made.ipv4,
            group_ip: made.group_ip,
        }
    }

    fn destruction(&self) -> DestroyMulticastGroup {
        let made = &self.command;
        DestroyMulticastGroup {
            group_mac: made.group_mac,
            hmc_function_index: made.hmc_function_index,
            queue_set_handle: made.queue_set_handle,
            vlan_id: made.vlan_id,
            member_list_address: made.member_list_address,
            group_index: made.group_index,
            vlan_valid: made.vlan_valid,
            ipv4: made.ipv4,
            group_ip: made.group_ip,
        }
    }
}

impl EngineState {
    /// Lets a queue pair receive what is sent to a group.
    pub(super) fn join_group(
        &mut self,
        engine: &Engine,
        key: GroupKey,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        let (address, _) = key;
        if multicast_mac(address).is_none() {
            return Err(RdmaError::NotMulticast { address });
        }
        let function = engine.facts.function_index;
        let Some(group) = self.multicast_groups.get_mut(&key) else {
            return self.create_group(engine, key, queue_pair);
        };
        if group.members.contains(&queue_pair) {
            return Ok(());
        }
        if group.members.len() >= MULTICAST_GROUP_MEMBERS {
            return Err(RdmaError::GroupFull {
                group: address,
                members: group.members.len(),
            });
        }
        group.members.push(queue_pair);
        group.write_list(function);
        if let Err(error) = self.control.execute(group.modification()) {
            group.members.retain(|member| *member != queue_pair);
            group.write_list(function);
            return Err(error.into());
        }
        Ok(())
    }

    fn create_group(
        &mut self,
        engine: &Engine,
        key: GroupKey,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        let (address, vlan_tag) = key;
        let list = engine.pool.allocate(LIST_BYTES, LIST_BYTES)?;
        let mac = multicast_mac(address).ok_or(RdmaError::NotMulticast { address })?;
        let numbers = self.numbers.as_mut().ok_or(RdmaError::ShutDown)?;
        let number = numbers.multicast_groups.take(&mut self.random)?;
        let backed = self.back(ObjectType::MulticastGroup, number);
        if let Err(error) = backed.and_then(|()| self.take_group_rule(engine, mac)) {
            self.give_group_number(number);
            return Err(error);
        }
        let command = CreateMulticastGroup {
            group_mac: mac,
            hmc_function_index: engine.facts.function_index,
            queue_set_handle: self.queue_set_handle.unwrap_or(0),
            vlan_id: vlan_tag.unwrap_or(0) % VLAN_NUMBERS,
            member_list_address: list.iova().0,
            group_index: number as u16,
            vlan_valid: vlan_tag.is_some(),
            ipv4: address.is_ipv4(),
            group_ip: as_number(address),
        };
        let group = MulticastRecord {
            command,
            list,
            members: vec![queue_pair],
        };
        group.write_list(engine.facts.function_index);
        if let Err(error) = self.control.execute(command) {
            if error.is_refusal() {
                self.give_group_number(number);
            } else {
                group.list.leak();
            }
            self.give_group_rule(engine, mac)?;
            return Err(error.into());
        }
        self.multicast_groups.insert(key, group);
        Ok(())
    }

    /// Has the switch let a group's MAC address in.
    fn take_group_rule(&mut self, engine: &Engine, mac: MacAddress) -> Result<(), RdmaError> {
        if let Some((_, users)) = self.group_rules.get_mut(&mac) {
            *users += 1;
            return Ok(());
        }
        let rule = engine.admin.add_mac_rule(engine.facts.vsi_number, mac)?;
        self.group_rules.insert(mac, (rule, 1));
        Ok(())
    }

    fn give_group_rule(&mut self, engine: &Engine, mac: MacAddress) -> Result<(), RdmaError> {
        let Some((rule, users)) = self.group_rules.get_mut(&mac) else {
            return Ok(());
        };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return Ok(());
        }
        let rule = *rule;
        self.group_rules.remove(&mac);
        engine.admin.remove_rule(rule)?;
        Ok(())
    }

    /// Ends that; the group goes with its last member.
    pub(super) fn leave_group(
        &mut self,
        engine: &Engine,
        key: GroupKey,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        let missing = RdmaError::NotInGroup {
            group: key.0,
            queue_pair,
        };
        let Some(group) = self.multicast_groups.get_mut(&key) else {
            return Err(missing);
        };
        let before = group.members.len();
        group.members.retain(|member| *member != queue_pair);
        if group.members.len() == before {
            return Err(missing);
        }
        if !group.members.is_empty() {
            group.write_list(group.command.hmc_function_index);
            self.control.execute(group.modification())?;
            return Ok(());
        }
        let Some(group) = self.multicast_groups.remove(&key) else {
            return Err(missing);
        };
        let destroyed = self.control.execute(group.destruction());
        let closed = self.give_group_rule(engine, group.command.group_mac);
        if let Err(error) = destroyed {
            DmaBuffer::leak(group.list);
            return Err(error.into());
        }
        self.give_group_number(group.command.group_index.into());
        closed
    }

    /// Takes a queue pair that is to be destroyed out of its groups.
    pub(crate) fn leave_all_groups(
        &mut self,
        engine: &Engine,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        let keys: Vec<GroupKey> = self
            .multicast_groups
            .iter()
            .filter(|(_, group)| group.members.contains(&queue_pair))
            .map(|(key, _)| *key)
            .collect();
        let mut result = Ok(());
        for key in keys {
            let left = self.leave_group(engine, key, queue_pair);
            result = result.and(left);
        }
        result
    }

    fn give_group_number(&mut self, number: u32) {
        if let Some(numbers) = &mut self.numbers {
            numbers.multicast_groups.give(number);
        }
    }
}

impl Engine {
    /// Takes back what the switch still lets in for groups.
    pub(super) fn remove_group_rules(&self, state: &mut EngineState) -> Result<(), RdmaError> {
        let mut result = Ok(());
        for (rule, _) in std::mem::take(&mut state.group_rules).into_values() {
            let removed = self.admin.remove_rule(rule);
            result = result.and(removed.map_err(RdmaError::from));
        }
        result
    }
}
