//! Entries of the flow director: amounts of them, which are allocated and freed at once.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{
    AllocateResource, Resource, ResourceElements, ResourceType,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U16;

impl AdminQueue {
    /// Allocates `amount` entries of a kind (0x0208); returns the number that the firmware gives with
    /// them, which freeing them names. The list has one element for all of them.
    /// Source: ice `ice_fdir.c`, `ice_alloc_fd_guar_item`, `ice_alloc_fd_shrd_item`.
    pub(crate) fn allocate_filter_entries(
        &self,
        kind: Resource,
        amount: u16,
    ) -> Result<u16, AdminError> {
        let opcode = Opcode::AllocateResource;
        let answer = self.execute(opcode, &one(), Data::Send(&list(kind, amount, 0)))?;
        let number: U16 = read_at(opcode, &answer.data, ResourceElements::SIZE)?;
        Ok(number.get())
    }

    /// Frees them (0x0209).
    pub(crate) fn free_filter_entries(
        &self,
        kind: Resource,
        amount: u16,
        number: u16,
    ) -> Result<(), AdminError> {
        let data = list(kind, amount, number);
        self.execute(Opcode::FreeResource, &one(), Data::Send(&data))?;
        Ok(())
    }
}

fn one() -> AllocateResource {
    AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    }
}

fn list(kind: Resource, amount: u16, number: u16) -> Vec<u8> {
    let kind = ResourceType::ZERO.with_resource(kind.code());
    let head = ResourceElements {
        resource_type: kind.0.into(),
        count: amount.into(),
    };
    [head.as_bytes(), &number.to_le_bytes()].concat()
}
