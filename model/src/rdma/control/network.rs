//! Commands about addresses.

use super::{DONE, Executed, NO_SUCH_OBJECT, Outcome};
use crate::function::Context;
use crate::rdma::RdmaEngine;
use ringside_spec::rdma::commands::{CreateAddressHandle, ManageArp};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::MULTICAST_GROUPS;

impl RdmaEngine {
    pub(super) fn manage_arp(
        &mut self,
        command: &ManageArp,
        context: &mut Context<'_>,
    ) -> Executed {
        let index = command.arp_index;
        let Some(slot) = self.objects.arp.get_mut(usize::from(index)) else {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("ARP entry {index}"),
            );
        };
        if command.query {
            let value = u32::from(slot.is_some());
            return Ok(Outcome { value, minor: 0 });
        }
        if !command.entry_valid && slot.is_none() {
            context
                .ledger
                .breach("a command for an object that does not exist", || {
                    format!("ARP entry {index} is deleted twice")
                });
        }
        *slot = command.entry_valid.then_some(command.mac_address);
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
        if self.address_handles.contains_key(&number) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("address handle {number}"),
            );
        }
        self.address_handles.insert(number, *command);
        DONE
    }

    pub(super) fn destroy_address_handle(
        &mut self,
        number: u32,
        context: &mut Context<'_>,
    ) -> Executed {
        match self.address_handles.remove(&number) {
            Some(_) => DONE,
            None => Self::refuse(
                context,
                "a command for an object that does not exist",
                NO_SUCH_OBJECT,
                || format!("address handle {number}"),
            ),
        }
    }

    pub(super) fn create_multicast_group(
        &mut self,
        index: u16,
        context: &mut Context<'_>,
    ) -> Executed {
        let beyond = u32::from(index) >= MULTICAST_GROUPS;
        if beyond || !self.multicast_groups.insert(index) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("multicast group {index}"),
            );
        }
        DONE
    }

    pub(super) fn find_multicast_group(&self, index: u16) -> Executed {
        match self.multicast_groups.contains(&index) {
            true => DONE,
            false => Err(NO_SUCH_OBJECT),
        }
    }

    pub(super) fn destroy_multicast_group(&mut self, index: u16) -> Executed {
        match self.multicast_groups.remove(&index) {
            true => DONE,
            false => Err(NO_SUCH_OBJECT),
        }
    }
}
