//! A server's description of its regions, and the parts that can be mapped.

use super::exchange::Exchange;
use crate::memory::{ForeignError, ForeignFile};
use crate::vfio_user::Command;
use crate::vfio_user::message::RegionInfo;
use crate::{Doorbell, FunctionError, Memory};
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The longest answer about a region that is requested.
const ANSWER_BYTES: u32 = 4096;

/// The largest area that is mapped: a larger one is not a page of doorbells.
const MAX_AREA_BYTES: u64 = 64 << 20;

/// One region.
pub(super) struct Region {
    pub(super) size: u64,
    areas: Vec<(Range<u64>, Memory)>,
}

impl Region {
    /// The parts that are mapped, as ranges of the region.
    pub(super) fn mapped_ranges(&self) -> Vec<Range<u64>> {
        self.areas.iter().map(|(range, _)| range.clone()).collect()
    }

    /// A doorbell that is a plain store, if `offset` lies in a part that is mapped.
    pub(super) fn doorbell(&self, offset: u64) -> Option<Doorbell> {
        let (range, memory) = self
            .areas
            .iter()
            .find(|(range, _)| range.contains(&offset))?;
        let within = usize::try_from(offset.checked_sub(range.start)?).ok()?;
        Doorbell::mapped(memory, within)
    }
}

/// Queries region `index` and maps the areas that can be mapped.
pub(super) fn query(exchange: &mut Exchange, index: u32) -> Result<Region, FunctionError> {
    let question = RegionInfo::question(index, RegionInfo::BYTES);
    let mut reply = exchange.ask(Command::RegionInfo, &question.encode_question(), &[])?;
    let mut info = decode(exchange, &reply.body, index)?;
    if info.argument_size > RegionInfo::BYTES {
        let room = info.argument_size.min(ANSWER_BYTES);
        let question = RegionInfo::question(index, room);
        reply = exchange.ask(Command::RegionInfo, &question.encode_question(), &[])?;
        info = decode(exchange, &reply.body, index)?;
    }
    let mut areas = Vec::new();
    let descriptor = reply.descriptors.into_iter().next();
    if let (true, Some(descriptor)) = (info.flags.mmap(), descriptor) {
        let whole = vec![(0, info.size)];
        let listed: Vec<_> = info
            .areas
            .iter()
            .map(|area| (area.offset, area.size))
            .collect();
        let wanted = if listed.is_empty() { whole } else { listed };
        for (offset, size) in wanted {
            match map_area(&descriptor, &info, offset, size) {
                Ok(Some(area)) => areas.push(area),
                Ok(None) => {}
                // Not fatal: areas that are not mapped are accessed by message.
                Err(error) => tracing::warn!(region = index, %error, "an area was not mapped"),
            }
        }
    }
    Ok(Region {
        size: info.size,
        areas,
    })
}

fn decode(exchange: &Exchange, body: &[u8], index: u32) -> Result<RegionInfo, FunctionError> {
    match RegionInfo::decode(body) {
        Ok(info) if info.index == index => Ok(info),
        Ok(info) => {
            let reason = format!("it described region {} instead of {index}", info.index);
            Err(exchange.not_ours(&reason))
        }
        Err(error) => Err(exchange.not_ours(&error.to_string())),
    }
}

/// Maps one area; `None` if it lies outside its region or is too large to be useful.
fn map_area(
    descriptor: &OwnedFd,
    info: &RegionInfo,
    offset: u64,
    size: u64,
) -> Result<Option<(Range<u64>, Memory)>, ForeignError> {
    let end = offset.checked_add(size).filter(|end| *end <= info.size);
    let in_file = info.offset.checked_add(offset);
    let (Some(end), Some(in_file)) = (end, in_file) else {
        return Ok(None);
    };
    if size == 0 || size > MAX_AREA_BYTES || !in_file.is_multiple_of(4096) {
        return Ok(None);
    }
    let system = |error: std::io::Error| ForeignError::System {
        operation: "duplicating a descriptor",
        error: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::MFILE),
    };
    let descriptor = descriptor.try_clone().map_err(system)?;
    // A server that truncates a mapped file would kill this process: only sealed files are mapped.
    let memory = ForeignFile::inspect(descriptor, false)?.map_part(in_file, size)?;
    Ok(Some((offset..end, memory)))
}
