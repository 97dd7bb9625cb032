//! Regions of the device: their place in its descriptor, and the parts that can be mapped.

use super::ioctl::{self, Request};
use crate::mapping::RegisterMapping;
use crate::vfio_user::message::{REGION_CONFIG, REGION_ROM, RegionInfo};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes of a page of the processor.
const PAGE: u64 = 4096;

/// The longest answer about a region that is requested.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The largest area that is mapped.
const MAX_AREA_BYTES: u64 = 1 << 30;

/// One region: a base address register, or configuration space.
pub(super) struct Region {
    pub(super) size: u64,
    /// its start in the device's descriptor
    pub(super) offset: u64,
    pub(super) mapped: Vec<(Range<u64>, Arc<RegisterMapping>)>,
}

impl Region {
    const NONE: Self = Self {
        size: 0,
        offset: 0,
        mapped: Vec::new(),
    };

    /// The mapping that holds `offset` of the region, and the offset in it.
    pub(super) fn place(&self, offset: u64) -> Option<(&Arc<RegisterMapping>, usize)> {
        let (range, mapping) = self
            .mapped
            .iter()
            .find(|(range, _)| range.contains(&offset))?;
        Some((mapping, usize::try_from(offset - range.start).ok()?))
    }
}

/// The place of the MSI-X table. Its page must never be mapped: a write to it can direct the
/// device's interrupts anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MsixTable {
    pub(super) bar: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl MsixTable {
    /// Bytes of an entry. Source: PCI Express base specification, section 7.7.2.
    const ENTRY: u64 = 16;

    /// From the capability's table dword and its number of entries.
    pub(super) fn new(table: MsixTablePlace, entries: u16) -> Self {
        Self {
            bar: table.bar(),
            // the field counts in units of 8 bytes
            offset: u64::from(table.offset_over_8()) * 8,
            bytes: u64::from(entries) * Self::ENTRY,
        }
    }
}

ringside_spec::words! {
    /// The place of the MSI-X table. Source: PCI Express base specification, section 7.7.2.3.
    pub(super) struct MsixTablePlace: u32 {
        /// base address register
        bar: [2:0],
        /// offset in it, in units of 8 bytes
        offset_over_8: [31:3],
    }
}

/// Queries all regions by their index; a region that the device does not have is empty.
pub(super) fn query_all(device: BorrowedFd<'_>) -> Result<Vec<(Region, RegionInfo)>, Errno> {
    let mut found = Vec::new();
    for index in 0..=REGION_CONFIG {
        found.push(match query(device, index) {
            Ok(info) => {
                let region = Region {
                    size: info.size,
                    offset: info.offset,
                    mapped: Vec::new(),
                };
                (region, info)
            }
            // the kernel's answer for a region that does not exist
            Err(Errno::INVAL) if index != REGION_CONFIG => (Region::NONE, no_region(index)),
            Err(error) => return Err(error),
        });
    }
    Ok(found)
}

const fn no_region(index: u32) -> RegionInfo {
    RegionInfo::question(index, RegionInfo::BYTES)
}

fn query(device: BorrowedFd<'_>, index: u32) -> Result<RegionInfo, Errno> {
    let mut length = RegionInfo::BYTES as usize;
    loop {
        let mut bytes = RegionInfo::question(index, RegionInfo::BYTES).encode_question();
        bytes.resize(length, 0);
        ioctl::ask(device, Request::RegionInfo, &mut bytes)?;
        let info = RegionInfo::decode(&bytes).map_err(|_| Errno::BADMSG)?;
        let wanted = info.argument_size as usize;
        // queried again with room for the capabilities
        if wanted <= length || length > RegionInfo::BYTES as usize || wanted > MAX_ANSWER_BYTES {
            return Ok(info);
        }
        length = wanted;
    }
}

/// The parts of a region to map: the areas that the kernel offers, whole pages, without the MSI-X
/// table.
pub(super) fn plan(info: &RegionInfo, table: Option<MsixTable>) -> Vec<Range<u64>> {
    if !info.flags.mmap() || info.index >= REGION_ROM {
        return Vec::new();
    }
    let whole = std::iter::once(0..info.size);
    let mut offered: Vec<_> = info
        .areas
        .iter()
        .map(|area| area.offset..area.offset.saturating_add(area.size).min(info.size))
        .collect();
    if offered.is_empty() {
        offered = whole.collect();
    }
    let hole = table
        .filter(|table| table.bar == info.index)
        .map(|table| table.offset..table.offset.saturating_add(table.bytes));
    let parts = offered
        .into_iter()
        .flat_map(|area| cut(&area, hole.as_ref()));
    parts
        .map(|part| page_up(part.start)..part.end / PAGE * PAGE)
        .filter(|part| part.start < part.end && part.end - part.start <= MAX_AREA_BYTES)
        .collect()
}

/// The next page boundary; an offset beyond the last one stays beyond everything.
fn page_up(offset: u64) -> u64 {
    offset.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// `area` without the pages that `hole` touches.
fn cut(area: &Range<u64>, hole: Option<&Range<u64>>) -> Vec<Range<u64>> {
    let Some(hole) = hole.filter(|hole| hole.start < area.end && area.start < hole.end) else {
        return vec![area.clone()];
    };
    let before = area.start..(hole.start / PAGE * PAGE).max(area.start);
    let after = page_up(hole.end).min(area.end)..area.end;
    vec![before, after]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::message::{Area, RegionFlags};

    fn region(size: u64, areas: &[(u64, u64)]) -> RegionInfo {
        let areas = areas.iter().map(|&(offset, size)| Area { offset, size });
        RegionInfo {
            flags: RegionFlags::ZERO.with_mmap(true),
            size,
            areas: areas.collect(),
            ..RegionInfo::question(3, 32)
        }
    }

    fn table(bar: u32, offset: u64, entries: u16) -> Option<MsixTable> {
        let place = MsixTablePlace::ZERO
            .with_bar(bar)
            .with_offset_over_8((offset / 8) as u32);
        Some(MsixTable::new(place, entries))
    }

    #[test]
    fn all_of_a_region_is_mapped_where_nothing_stands_against_it() {
        assert_eq!(plan(&region(32 << 20, &[]), None), vec![0..32 << 20]);
        let elsewhere = table(0, 0, 512);
        assert_eq!(plan(&region(0x1_0000, &[]), elsewhere), vec![0..0x1_0000]);
    }

    #[test]
    fn no_page_that_the_interrupt_table_touches_is_mapped() {
        // 512 entries of 16 bytes: two pages
        let whole = region(0x1_0000, &[]);
        assert_eq!(plan(&whole, table(3, 0, 512)), vec![0x2000..0x1_0000]);
        assert_eq!(
            plan(&whole, table(3, 0x1FF0, 2)),
            [0..0x1000, 0x3000..0x1_0000]
        );
        assert_eq!(plan(&whole, table(3, 0xF800, 1024)), vec![0..0xF000]);
        let offered = region(0x1_0000, &[(0, 0x4000), (0x8000, 0x8000)]);
        assert_eq!(
            plan(&offered, table(3, 0x1000, 1)),
            [0..0x1000, 0x2000..0x4000, 0x8000..0x1_0000]
        );
        assert_eq!(plan(&region(0x1000, &[]), table(3, 0, 1)), []);
    }

    #[test]
    fn areas_are_whole_pages_inside_the_region() {
        let odd = region(0x8000, &[(0x800, 0x2000), (0x7000, 0x9000), (0x6000, 0x10)]);
        assert_eq!(plan(&odd, None), [0x1000..0x2000, 0x7000..0x8000]);
        let endless = region(0x8000, &[(u64::MAX - 1, u64::MAX)]);
        assert_eq!(plan(&endless, None), []);
    }

    #[test]
    fn unmappable_regions_and_the_rom_are_not_mapped() {
        let mut closed = region(0x8000, &[]);
        closed.flags = RegionFlags::ZERO;
        let mut rom = region(0x8000, &[]);
        rom.index = REGION_ROM;
        assert_eq!((plan(&closed, None), plan(&rom, None)), (vec![], vec![]));
    }
}
