//! Translation of a steering tag and an address to pieces of the host's memory.

use super::hmc::{Hmc, HmcFault};
use crate::frame::Pieces;
use crate::rdma::regions::{Region, RegionTable, TagFault};
use crate::roce::AccessFault;
use ringside_bus::{DmaSpace, Iova};
use ringside_spec::rdma::commands::{AccessRights, PageList, SteeringTag};
use ringside_spec::rdma::segments::PBLES_PER_LEAF;

/// A request for access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) rights: AccessRights,
    pub(super) protection_domain: u32,
    pub(super) queue_pair: u32,
    /// The queue pair may use tag 0: all of memory, without translation.
    pub(super) privileged: bool,
}

/// Memory that a tag gave access to; [`Tables::pieces`] finds where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Granted {
    /// One block: the host's address is the given one plus this, modulo 2^64.
    Block(u64),
    /// Pages that are listed.
    Listed(Region),
}

/// The tables of a translation.
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
        // Nearly all accesses: one block, to which an access was granted before.
        let stamp = (self.memory.generation(), self.hmc.generation());
        let asked = (access.rights, access.protection_domain);
        if let Some(offset) = self.regions.quick(tag, (address, length), asked, stamp) {
            return Ok(Granted::Block(offset));
        }
        self.grant_from_table(tag, address, length, access)
    }

    fn grant_from_table(
        &mut self,
        tag: u32,
        address: u64,
        length: u64,
        access: &Access,
    ) -> Result<Granted, TagFault> {
        if let Some(region) = self.regions.cached(SteeringTag(tag), self.hmc, self.memory)
            && region.page_list == PageList::Contiguous
            && !region.window
            && region.protection_domain == access.protection_domain
            && region.rights.0 & access.rights.0 == access.rights.0
            && within(region, address, length).is_ok()
            && tag != 0
        {
            let granted = block(region);
            if let (Granted::Block(offset), Some(bounds)) = (granted, bounds(region)) {
                let region = *region;
                let stamp = (self.memory.generation(), self.hmc.generation());
                self.regions.keep_quick(&region, bounds, offset, stamp);
            }
            return Ok(granted);
        }
        self.grant_slowly(tag, address, length, access)
    }

    #[cold]
    fn grant_slowly(
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
            return Ok(granted(&region));
        }
        self.through_window(&region, address, length)
    }

    /// Access through a window: its region decides where the bytes lie.
    fn through_window(
        &mut self,
        window: &Region,
        address: u64,
        length: u64,
    ) -> Result<Granted, TagFault> {
        let parent = self.lookup(SteeringTag(window.parent))?;
        if window.va_based {
            within(&parent, address, length)?;
            return Ok(granted(&parent));
        }
        // Offset 0 is the window's first byte.
        within(
            &parent,
            window.virtual_address.wrapping_add(address),
            length,
        )?;
        Ok(match granted(&parent) {
            Granted::Block(offset) => Granted::Block(offset.wrapping_add(window.virtual_address)),
            // Zero-based from the window's first byte on.
            Granted::Listed(region) => Granted::Listed(Region {
                virtual_address: from_first_page(&region, window.virtual_address),
                va_based: false,
                ..region
            }),
        })
    }

    #[cold]
    fn grant_all(&mut self, access: &Access) -> Result<Granted, TagFault> {
        if !access.privileged {
            return Err(TagFault::Privileged);
        }
        Ok(Granted::Block(0))
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
        match granted {
            Granted::Block(offset) => {
                let at = Iova(offset.wrapping_add(address));
                Ok(length == 0 || pieces.push(at, length))
            }
            Granted::Listed(region) => self.listed_pieces(region, address, length, pieces),
        }
    }

    fn listed_pieces(
        &mut self,
        region: &Region,
        address: u64,
        length: u32,
        pieces: &mut Pieces,
    ) -> Result<bool, HmcFault> {
        let page_bytes = region.page_bytes();
        let mut offset = from_first_page(region, address);
        let mut left = length;
        while left > 0 {
            let within = offset % page_bytes;
            let here = u64::from(left).min(page_bytes - within) as u32;
            let page = self.page(region, offset / page_bytes)?;
            if !pieces.push(Iova(page).add(within), here) {
                return Ok(false);
            }
            offset = offset.wrapping_add(u64::from(here));
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
        self.hmc
            .listed_page(entry, region.page_bytes(), self.memory)
    }
}

/// Offset of an address from the start of the region's first page.
#[inline]
fn from_first_page(region: &Region, address: u64) -> u64 {
    if region.va_based {
        let first = region.virtual_address % region.page_bytes();
        first.wrapping_add(address.wrapping_sub(region.virtual_address))
    } else {
        // The first byte's offset; a window's may lie behind the first page.
        region.virtual_address.wrapping_add(address)
    }
}

/// A region of one block.
#[inline]
fn block(region: &Region) -> Granted {
    if region.is_all_of_memory() {
        return Granted::Block(0);
    }
    Granted::Block(region.first_block.wrapping_add(from_first_page(region, 0)))
}

fn granted(region: &Region) -> Granted {
    if region.page_list == PageList::Contiguous {
        block(region)
    } else {
        Granted::Listed(*region)
    }
}

/// Addresses of a region: the first, and the one behind the last.
fn bounds(region: &Region) -> Option<(u64, u64)> {
    if region.is_all_of_memory() {
        return Some((0, u64::MAX));
    }
    let start = if region.va_based {
        region.virtual_address
    } else {
        0
    };
    Some((start, start.checked_add(region.length_bytes)?))
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
