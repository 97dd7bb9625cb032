//! From a steering tag and an address to pieces of the host's memory.

use super::hmc::{Hmc, HmcFault};
use super::objects::regions::{Region, RegionTable, TagFault};
use crate::roce::AccessFault;
use crate::wire::Pieces;
use ringside_bus::{DmaSpace, Iova};
use ringside_spec::rdma::commands::{AccessRights, PageList, SteeringTag};
use ringside_spec::rdma::segments::PBLES_PER_LEAF;

/// Who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) rights: AccessRights,
    pub(super) protection_domain: u32,
    pub(super) queue_pair: u32,
    /// The queue pair may use tag 0: all of memory, without translation.
    pub(super) privileged: bool,
}

/// Memory that a tag gave access to; [`Granted::pieces`] finds where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    region: Region,
}

/// Where the tables are.
pub(super) struct Tables<'a> {
    pub(super) regions: &'a mut RegionTable,
    pub(super) hmc: &'a mut Hmc,
    pub(super) memory: &'a DmaSpace,
}

impl Tables<'_> {
    /// Checks that `length` bytes at `address` of `tag` may be accessed.
    #[inline]
    pub(super) fn grant(
        &mut self,
        tag: u32,
        address: u64,
        length: u64,
        access: &Access,
    ) -> Result<Granted, TagFault> {
        if tag == 0 {
            return self.grant_all(access);
        }
        let region = self.lookup(SteeringTag(tag))?;
        if region.protection_domain != access.protection_domain {
            return Err(AccessFault::BadProtectionDomain.into());
        }
        if region.window && region.queue_pair != access.queue_pair && !region.type_1 {
            return Err(AccessFault::BadQueuePair.into());
        }
        if region.rights.0 & access.rights.0 != access.rights.0 {
            return Err(AccessFault::Rights.into());
        }
        within(&region, address, length)?;
        if !region.window {
            return Ok(Granted { region });
        }
        let parent = self.lookup(SteeringTag(region.parent))?;
        let address = if region.va_based {
            address
        } else {
            region.virtual_address.wrapping_add(address)
        };
        within(&parent, address, length)?;
        let virtual_address = parent.virtual_address;
        let region = Region {
            va_based: true,
            virtual_address,
            ..parent
        };
        Ok(Granted { region })
    }

    #[cold]
    fn grant_all(&mut self, access: &Access) -> Result<Granted, TagFault> {
        if !access.privileged {
            return Err(TagFault::Privileged);
        }
        let region = Region {
            va_based: true,
            ..Region::NONE
        };
        Ok(Granted { region })
    }

    /// The region of a tag that may be used, key and all index bits matched.
    #[inline]
    pub(super) fn lookup(&mut self, tag: SteeringTag) -> Result<Region, TagFault> {
        let region = self.regions.read(tag.index(), self.hmc, self.memory)?;
        if region.tag == tag && region.valid {
            return Ok(region);
        }
        Err(TagFault::Access(if !region.allocated {
            AccessFault::UnallocatedKey
        } else if region.tag.index() != tag.index() {
            AccessFault::BadKeyIndex
        } else if !region.valid {
            AccessFault::InvalidKey
        } else {
            AccessFault::BadKeyByte
        }))
    }

    /// Adds the places of `length` bytes at `address` to `pieces`; false if they are too many.
    #[inline]
    pub(super) fn pieces(
        &mut self,
        granted: &Granted,
        address: u64,
        length: u32,
        pieces: &mut Pieces,
    ) -> Result<bool, HmcFault> {
        let region = &granted.region;
        if region.is_all_of_memory() {
            return Ok(length == 0 || pieces.push(Iova(address), length));
        }
        let page_bytes = region.page_bytes();
        // Offset from the start of the first page.
        let mut offset = if region.va_based {
            (region.virtual_address % page_bytes)
                .wrapping_add(address.wrapping_sub(region.virtual_address))
        } else {
            (region.virtual_address % page_bytes).wrapping_add(address)
        };
        if region.page_list == PageList::Contiguous {
            let at = Iova(region.first_block).add(offset);
            return Ok(length == 0 || pieces.push(at, length));
        }
        let mut left = length;
        while left > 0 {
            let within = offset % page_bytes;
            let here = u64::from(left).min(page_bytes - within) as u32;
            let page = self.page(region, offset / page_bytes)?;
            if !pieces.push(Iova(page).add(within), here) {
                return Ok(false);
            }
            offset += u64::from(here);
            left -= here;
        }
        Ok(true)
    }

    fn page(&mut self, region: &Region, index: u64) -> Result<u64, HmcFault> {
        let first = u64::from(region.first_entry);
        let entry = if region.page_list == PageList::TwoLevels {
            let leaf = index / u64::from(PBLES_PER_LEAF);
            let leaf = self.hmc.page_list_entry(first + leaf, self.memory)?;
            leaf.wrapping_add(index % u64::from(PBLES_PER_LEAF))
        } else {
            first + index
        };
        self.hmc.page_list_entry(entry, self.memory)
    }
}

/// Checks the bounds of a region.
#[inline]
fn within(region: &Region, address: u64, length: u64) -> Result<(), AccessFault> {
    let end = address.checked_add(length).ok_or(AccessFault::Wrap)?;
    if region.is_all_of_memory() {
        return Ok(());
    }
    let start = if region.va_based {
        region.virtual_address
    } else {
        0
    };
    let limit = start
        .checked_add(region.length_bytes)
        .ok_or(AccessFault::Wrap)?;
    if address < start || end > limit {
        return Err(AccessFault::Bounds);
    }
    Ok(())
}
