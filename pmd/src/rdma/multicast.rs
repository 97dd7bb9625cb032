//! Multicast groups of datagram queue pairs.
//!
//! A group has one context in the device with up to eight members of this function. The first
//! member creates it, the last one that leaves destroys it.
//! Source: irdma `verbs.c`, irdma_attach_mcast; `uda.c`, irdma_create_mg_ctx.

use super::RdmaError;
use super::address::{MacAddress, as_number, multicast_mac};
use super::claim::Claim;
use super::engine::Engine;
use super::lifecycle::{By, Destroyed, Making};
use super::objects::Object;
use super::objects::{Held, Objects, Table};
use super::records::{GroupKey, MulticastRecord};
use super::session::Session;
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
    /// Writes the list that the device reads at the next command. Members name no function: that is
    /// the one of the command. Source: irdma `uda.c`, irdma_create_mg_ctx.
    fn write_list(&self) {
        let words = self.list.words();
        for place in 0..MULTICAST_GROUP_MEMBERS {
            let word = self.members.get(place).map_or(0, |number| {
                let member = MulticastMember {
                    qp_number: *number,
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
}

impl Object for MulticastRecord {
    const NAME: &'static str = "multicast group";
    const CONTEXT: ObjectType = ObjectType::MulticastGroup;
    type Destroy = DestroyMulticastGroup;

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.multicast_groups
    }

    fn destruction(&self, _number: u32) -> DestroyMulticastGroup {
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

    fn into_memory(self) -> Vec<DmaBuffer> {
        vec![self.list]
    }
}

impl Session<'_> {
    /// Adds a queue pair to a group.
    pub(super) fn join_group(
        &mut self,
        engine: &Engine,
        key: GroupKey,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        self.claimed(Claim::Groups, |session| {
            let joined = session.join_claimed(engine, key, queue_pair);
            session.publish_groups();
            joined
        })
    }

    fn join_claimed(
        &mut self,
        engine: &Engine,
        key: GroupKey,
        queue_pair: u32,
    ) -> Result<(), RdmaError> {
        let (address, _) = key;
        if multicast_mac(address).is_none() {
            return Err(RdmaError::NotMulticast { address });
        }
        self.objects
            .queue_pairs
            .must(queue_pair)?
            .usable(queue_pair)?;
        let known = self.group_of(key);
        let Some(number) = known else {
            return self.create_group(engine, key, queue_pair);
        };
        let group = self.objects.multicast_groups.must_mut(number)?;
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
        group.write_list();
        let modification = group.modification();
        if let Err(error) = self.execute(modification) {
            let group = self.objects.multicast_groups.must_mut(number)?;
            group.members.retain(|member| *member != queue_pair);
            group.write_list();
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
        let queue_set_handle = self.made.queue_set_handle.unwrap_or(0);
        let mut making = Making::<MulticastRecord>::begin(self)?;
        let number = making.number();
        making.state().take_group_rule(mac)?;
        making.hold(Held::GroupRule(mac));
        let command = CreateMulticastGroup {
            group_mac: mac,
            hmc_function_index: engine.facts.function_index,
            queue_set_handle,
            vlan_id: vlan_tag.unwrap_or(0) % VLAN_NUMBERS,
            member_list_address: list.iova().0,
            group_index: number as u16,
            vlan_valid: vlan_tag.is_some(),
            ipv4: address.is_ipv4(),
            group_ip: as_number(address),
        };
        let group = MulticastRecord {
            key,
            command,
            list,
            members: vec![queue_pair],
        };
        group.write_list();
        making.finish(command, group)?;
        Ok(())
    }

    /// Number of a group that queue pairs of this function are in.
    fn group_of(&self, key: GroupKey) -> Option<u32> {
        let mut groups = self.objects.multicast_groups.iter();
        let found = groups.find(|(_, group)| group.key == key);
        found.map(|(number, _)| number)
    }

    /// Ends that; the group goes with its last member.
    pub(super) fn leave_group(&mut self, key: GroupKey, queue_pair: u32) -> Result<(), RdmaError> {
        self.claimed(Claim::Groups, |session| {
            let left = session.leave_claimed(key, queue_pair);
            session.publish_groups();
            left
        })
    }

    fn leave_claimed(&mut self, key: GroupKey, queue_pair: u32) -> Result<(), RdmaError> {
        let missing = RdmaError::NotInGroup {
            group: key.0,
            queue_pair,
        };
        let Some(number) = self.group_of(key) else {
            return Err(missing);
        };
        let group = self.objects.multicast_groups.must_mut(number)?;
        if !group.members.contains(&queue_pair) {
            return Err(missing);
        }
        if group.members == [queue_pair] {
            return self.destroy_group(number);
        }
        group.members.retain(|member| *member != queue_pair);
        group.write_list();
        let modification = group.modification();
        if let Err(error) = self.execute(modification) {
            // The device still sends to it: it stays a member until the device agrees.
            let group = self.objects.multicast_groups.must_mut(number)?;
            group.members.push(queue_pair);
            group.write_list();
            return Err(error.into());
        }
        Ok(())
    }

    /// Destroys a group with its last member. If the device refuses, the member stays.
    fn destroy_group(&mut self, number: u32) -> Result<(), RdmaError> {
        match self.destroy::<MulticastRecord>(number, By::Owner) {
            Destroyed::Gone(_) => Ok(()),
            Destroyed::DeviceFailed { object, .. } => {
                let memory = object.map(MulticastRecord::into_memory);
                self.free_after_reset(memory.unwrap_or_default());
                Ok(())
            }
            Destroyed::Refused(error) | Destroyed::Unconfirmed(error) => Err(error),
        }
    }

    /// Takes a queue pair that is to be destroyed out of its groups.
    pub(crate) fn leave_all_groups(&mut self, queue_pair: u32) -> Result<(), RdmaError> {
        let groups = self.objects.multicast_groups.iter();
        let keys: Vec<GroupKey> = groups
            .filter(|(_, group)| group.members.contains(&queue_pair))
            .map(|(_, group)| group.key)
            .collect();
        let mut result = Ok(());
        for key in keys {
            let left = self.leave_group(key, queue_pair);
            result = result.and(left);
        }
        result
    }
}

/// The caller has claimed the groups: the engine is unlocked while the firmware is asked.
impl Session<'_> {
    /// One group of this MAC address more.
    fn take_group_rule(&mut self, mac: MacAddress) -> Result<(), RdmaError> {
        if self.group_rules.share(mac) {
            return Ok(());
        }
        let vsi_number = self.group_rules.vsi_number;
        let rule = self.firmware(|admin| admin.add_mac_rule(vsi_number, mac))?;
        self.group_rules.enter(mac, rule);
        Ok(())
    }

    /// One less; the rule goes with the last.
    pub(super) fn give_group_rule(&mut self, mac: MacAddress) -> Result<(), RdmaError> {
        let Some(rule) = self.group_rules.give(mac) else {
            return Ok(());
        };
        let vsi_number = self.group_rules.vsi_number;
        self.firmware(|admin| admin.remove_rule(vsi_number, rule))?;
        Ok(())
    }
}
