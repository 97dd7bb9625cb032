//! Resources of the firmware, in commands with one list: profiles, rows, counters, VSI lists, and
//! amounts of filter entries.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{
    AllocateResource, Resource, ResourceElements, ResourceType,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U16;

impl AdminQueue {
    /// Allocates a resource (0x0208), or an amount of filter entries, for which the list has one
    /// element, too; returns the number that the firmware gives.
    /// Source: ice `ice_common.c`, `ice_alloc_hw_res`; `ice_fdir.c`, `ice_alloc_fd_guar_item`.
    pub(crate) fn allocate_resource(
        &self,
        kind: ResourceType,
        amount: u16,
    ) -> Result<u16, AdminError> {
        let opcode = Opcode::AllocateResource;
        let data = Data::Send(&list(kind, amount, 0));
        let answer = self.execute(opcode, &one_list(), data)?;
        let number: U16 = read_at(opcode, &answer.data, ResourceElements::SIZE)?;
        Ok(number.get())
    }

    /// Frees it (0x0209).
    pub(crate) fn free_resource(
        &self,
        resource: Resource,
        amount: u16,
        number: u16,
    ) -> Result<(), AdminError> {
        let data = list(plain(resource), amount, number);
        self.execute(Opcode::FreeResource, &one_list(), Data::Send(&data))?;
        Ok(())
    }
}

/// A resource type without options.
pub(crate) fn plain(resource: Resource) -> ResourceType {
    ResourceType::ZERO.with_resource(resource.code())
}

fn one_list() -> AllocateResource {
    AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    }
}

fn list(kind: ResourceType, amount: u16, number: u16) -> Vec<u8> {
    let head = ResourceElements {
        resource_type: kind.0.into(),
        count: amount.into(),
    };
    [head.as_bytes(), &number.to_le_bytes()].concat()
}
