//! Commands about addresses.

use super::{CommandFailure, DONE, Executed, NO_SUCH_OBJECT, Outcome, REFUSED};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::access::{aligned, reached};
use crate::rdma::objects::multicast::MulticastGroup;
use ringside_bus::Iova;
use ringside_spec::rdma::commands::{
    CreateAddressHandle, CreateMulticastGroup, MULTICAST_GROUP_MEMBERS, ManageArp,
    ModifyAddressHandle, ModifyMulticastGroup, MulticastMember,
};
use ringside_spec::rdma::fpm::ObjectType;

impl RdmaEngine {
    pub(super) fn manage_arp(
        &mut self,
        command: &ManageArp,
        context: &mut Context<'_>,
    ) -> Executed {
        let index = command.arp_index;
        if !self.objects.arp.holds(index) {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("ARP entry {index}"),
            );
        }
        let is_set = self.objects.arp.get(index).is_some();
        if command.query {
            let value = u32::from(is_set);
            return Ok(Outcome { value, minor: 0 });
        }
        if !command.entry_valid && !is_set {
            context
                .ledger
                .breach("a command for an object that does not exist", || {
                    format!("ARP entry {index} is deleted twice")
                });
        }
        let address = command.entry_valid.then_some(command.mac_address);
        self.objects.arp.set(index, address);
        DONE
    }

    pub(super) fn create_address_handle(
        &mut self,
        command: &CreateAddressHandle,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.ah_number;
        if number >= self.objects.hmc.count(ObjectType::AddressVector) {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("address handle {number}"),
            );
        }
        if self.objects.address_handles.contains_key(&number) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("address handle {number}"),
            );
        }
        self.objects.address_handles.insert(number, *command);
        DONE
    }

    pub(super) fn modify_address_handle(
        &mut self,
        command: &ModifyAddressHandle,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.ah_number;
        match self.objects.address_handles.get_mut(&number) {
            Some(handle) => {
                *handle = (*command).into();
                DONE
            }
            None => Self::no_such(context, "address handle", number),
        }
    }

    pub(super) fn destroy_address_handle(
        &mut self,
        number: u32,
        context: &mut Context<'_>,
    ) -> Executed {
        match self.objects.address_handles.remove(&number) {
            Some(_) => DONE,
            None => Self::no_such(context, "address handle", number),
        }
    }

    fn no_such(context: &mut Context<'_>, what: &str, number: u32) -> Executed {
        Self::refuse(
            context,
            "a command for an object that does not exist",
            NO_SUCH_OBJECT,
            || format!("{what} {number}"),
        )
    }

    /// Reads a group's list of members.
    fn read_group(
        command: &CreateMulticastGroup,
        context: &mut Context<'_>,
    ) -> Result<MulticastGroup, CommandFailure> {
        let address = command.member_list_address;
        if !aligned(
            context,
            "list of a multicast group",
            address,
            size_of::<u64>(),
        ) {
            return Err(REFUSED);
        }
        let words = context.memory.read_words(Iova(address));
        let words = reached(context, "list of a multicast group", words).ok_or(REFUSED)?;
        let reserved = words.map(|word| MulticastMember::reserved_bits(&[word])[0]);
        if reserved != [0; MULTICAST_GROUP_MEMBERS] {
            context
                .ledger
                .breach("reserved bits are set in a multicast group", || {
                    format!("group {}: {reserved:x?}", command.group_index)
                });
        }
        let members = words.map(|word| MulticastMember::decode(&[word]));
        if let Some(member) = members.iter().find(|member| member.pf_number != 0) {
            context
                .ledger
                .breach("a member of a multicast group names a function", || {
                    format!("group {}: {member:?}", command.group_index)
                });
        }
        Ok(MulticastGroup::new(command, &words))
    }

    pub(super) fn create_multicast_group(
        &mut self,
        command: &CreateMulticastGroup,
        context: &mut Context<'_>,
    ) -> Executed {
        let index = command.group_index;
        let group = Self::read_group(command, context)?;
        if u32::from(index) >= self.objects.hmc.count(ObjectType::MulticastGroup) {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("multicast group {index}"),
            );
        }
        if self.multicast_groups.contains_key(&index) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("multicast group {index}"),
            );
        }
        let mut others = self.multicast_groups.iter();
        if let Some((other, _)) = others.find(|(_, other)| other.is_same(&group)) {
            // irdma adds members to the first: `verbs.c`, irdma_attach_mcast.
            context
                .ledger
                .breach("two multicast groups have one address and VLAN", || {
                    format!("groups {other} and {index}")
                });
        }
        self.multicast_groups.insert(index, group);
        let user = format!("multicast group {index}");
        self.check_queue_set(command.queue_set_handle, &user, context);
        DONE
    }

    pub(super) fn modify_multicast_group(
        &mut self,
        command: &ModifyMulticastGroup,
        context: &mut Context<'_>,
    ) -> Executed {
        let index = command.group_index;
        let changed = Self::read_group(&(*command).into(), context)?;
        match self.multicast_groups.get_mut(&index) {
            Some(group) => *group = changed,
            None => return Self::no_such(context, "multicast group", index.into()),
        }
        let user = format!("multicast group {index}");
        self.check_queue_set(command.queue_set_handle, &user, context);
        DONE
    }

    pub(super) fn destroy_multicast_group(
        &mut self,
        index: u16,
        context: &mut Context<'_>,
    ) -> Executed {
        match self.multicast_groups.remove(&index) {
            Some(_) => DONE,
            None => Self::no_such(context, "multicast group", index.into()),
        }
    }
}
