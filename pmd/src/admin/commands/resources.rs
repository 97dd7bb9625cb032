//! Resources of the firmware, in commands with one list: profiles, rows, counters, VSI lists, and
//! amounts of filter entries.

use super::read_at;
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::switch::{
    AllocateResource, Resource, ResourceElements, ResourceType,
};
use ringside_spec::lan::registers::filters::{FLOW_DIRECTOR_MASK_SELECT, HASH_MASK_SELECT};
use ringside_spec::lan::registers::statistics::FLOW_DIRECTOR_MATCHES;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U16;

/// Flow director counters of a block.
pub(crate) const COUNTERS_PER_BLOCK: u16 = 256;
/// Rows of a match memory. Source: reference e810-lan-data, section 4.2.
const TABLE_ROWS: u32 = 512;
/// Numbers of VSI lists: [`SingleAction::vsi`](ringside_spec::lan::admin::switch::SingleAction)
/// has ten bits.
const VSI_LISTS: u32 = 1 << 10;

impl AdminQueue {
    /// Allocates a resource (0x0208), or an amount of filter entries, for which the list has one
    /// element, too; returns the number that the firmware gives. Registers and tables are indexed
    /// by it, so a number that the device does not have is given back and refused.
    /// Source: ice `ice_common.c`, `ice_alloc_hw_res`; `ice_fdir.c`, `ice_alloc_fd_guar_item`.
    pub(crate) fn allocate_resource(
        &self,
        kind: ResourceType,
        amount: u16,
    ) -> Result<u16, AdminError> {
        let opcode = Opcode::AllocateResource;
        let data = Data::Send(&list(kind, amount, 0));
        let answer = self.execute(opcode, &one_list(), data)?;
        let resource = Resource::from_code(kind.resource());
        let decoded = decode_number(resource, &answer);
        if decoded.is_err()
            && let Ok(number) = number_of(&answer)
            && let Err(error) = self.free_resource(resource, amount, number)
        {
            tracing::debug!(%error, ?resource, "the firmware keeps a number that cannot be used");
        }
        decoded
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

fn number_of(answer: &Answer) -> Result<u16, AdminError> {
    let opcode = Opcode::AllocateResource;
    let number: U16 = read_at(opcode, &answer.data, ResourceElements::SIZE)?;
    Ok(number.get())
}

/// The number in an answer; one that the device does not have is refused. That of an amount of
/// entries is no index.
pub(super) fn decode_number(resource: Resource, answer: &Answer) -> Result<u16, AdminError> {
    let number = number_of(answer)?;
    let count = match resource {
        Resource::HashProfile => HASH_MASK_SELECT.count,
        Resource::FlowDirectorProfile => FLOW_DIRECTOR_MASK_SELECT.count,
        Resource::HashTcam | Resource::FlowDirectorTcam => TABLE_ROWS,
        Resource::FlowDirectorCounters => {
            FLOW_DIRECTOR_MATCHES.count / u32::from(COUNTERS_PER_BLOCK)
        }
        Resource::VsiListReplication | Resource::VsiListPrune => VSI_LISTS,
        _ => return Ok(number),
    };
    if u32::from(number) < count {
        return Ok(number);
    }
    let reason = format!("{resource:?} {number} is beyond the device's {count}");
    Err(AdminError::malformed(Opcode::AllocateResource, reason))
}
