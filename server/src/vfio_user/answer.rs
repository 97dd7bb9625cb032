//! Answers the messages of a client.

use super::mappings::{Allowance, Mappings};
use super::refusal::{ENOTSUP, EPROTO, Refusal};
use ringside_bus::memory::is_event_descriptor;
use ringside_bus::vfio_user::message::{
    self, Area, DeviceFlags, DeviceInfo, DmaMap, DmaUnmap, InterruptFlags, InterruptInfo,
    RegionAccess, RegionFlags, RegionInfo, SetInterrupts, Version,
};
use ringside_bus::vfio_user::{Capabilities, Command, Message};
use ringside_bus::{Iova, Memory};
use ringside_model::device::{Reply, Request};
use ringside_model::world::World;
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_BYTES};
use std::os::fd::{AsFd, OwnedFd};

/// The first capability in configuration space; a reset can be requested only after it.
const CAPABILITIES_AT: u64 = 0x40;

/// An answer that is not a refusal.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) payload: Vec<u8>,
    /// Memory whose descriptor is sent with it.
    pub(super) descriptor: Option<Memory>,
}

impl Answer {
    const fn payload(payload: Vec<u8>) -> Self {
        Self {
            payload,
            descriptor: None,
        }
    }
}

/// The state of one client.
pub(super) struct Session {
    negotiated: bool,
    doorbell_page: Option<Memory>,
    mappings: Mappings,
    /// Copies of the event descriptors that are connected to vectors: a reset that a driver
    /// requests disconnects them from the function, and VFIO keeps them.
    events: Vec<Option<OwnedFd>>,
}

impl Session {
    pub(super) fn new(doorbell_page: Option<Memory>, allowance: Allowance) -> Self {
        Self {
            negotiated: false,
            doorbell_page,
            mappings: Mappings::new(allowance),
            events: Vec::new(),
        }
    }

    pub(super) const fn doorbell_page(&self) -> Option<&Memory> {
        self.doorbell_page.as_ref()
    }

    pub(super) fn answer(
        &mut self,
        message: Message,
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        let Message {
            header,
            body,
            descriptors,
            ..
        } = message;
        let Some(command) = Command::from_code(header.command) else {
            return Err(Refusal::new(ENOTSUP, "an unknown command"));
        };
        if self.negotiated == (command == Command::Version) {
            return Err(Refusal::new(EPROTO, "the version comes first, and once"));
        }
        let takes_descriptors = matches!(command, Command::DmaMap | Command::SetInterrupts);
        if !takes_descriptors && !descriptors.is_empty() {
            return Err(Refusal::invalid("descriptors that were not requested"));
        }
        match command {
            Command::Version => self.version(&body),
            Command::DmaMap => self.map(&body, descriptors, world, index),
            Command::DmaUnmap => self.unmap(&body, world, index),
            Command::DeviceInfo => device_info(&body),
            Command::RegionInfo => self.region_info(&body, world, index),
            Command::InterruptInfo => interrupt_info(&body, world, index),
            Command::SetInterrupts => self.set_interrupts(&body, descriptors, world, index),
            Command::RegionRead => read_region(&body, world, index),
            Command::RegionWrite => self.write_region(&body, world, index),
            Command::Reset => {
                let reply = world.handle(index, Request::Reset);
                self.events.clear();
                done(reply)
            }
            Command::RegionDescriptors
            | Command::DmaRead
            | Command::DmaWrite
            | Command::DirtyPages
            | Command::RegionWriteMultiple
            | Command::DeviceFeature
            | Command::MigrationRead
            | Command::MigrationWrite => Err(Refusal::new(ENOTSUP, "not served here")),
        }
    }

    fn version(&mut self, body: &[u8]) -> Result<Answer, Refusal> {
        let asked = Version::decode(body)?;
        if asked.major != message::VERSION_MAJOR {
            let reason = format!("major version {} is not supported", asked.major);
            return Err(Refusal::new(ENOTSUP, reason));
        }
        Capabilities::from_text(&asked.text)
            .map_err(|error| Refusal::invalid(error.to_string()))?;
        self.negotiated = true;
        let reply = Version {
            major: message::VERSION_MAJOR,
            minor: asked.minor.min(message::VERSION_MINOR),
            text: Capabilities::OURS.to_text(),
        };
        Ok(Answer::payload(reply.encode()))
    }

    fn map(
        &mut self,
        body: &[u8],
        descriptors: Vec<OwnedFd>,
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        let map = DmaMap::decode(body)?;
        let Some(reachable) = self.mappings.map(&map, descriptors)? else {
            return Ok(Answer::default());
        };
        let request = Request::MapDma {
            iova: Iova(map.address),
            memory: reachable.memory,
            range: reachable.range,
            access: reachable.access,
        };
        let answer = done(world.handle(index, request));
        if answer.is_err() {
            self.mappings.forget(map.address);
        }
        answer
    }

    fn unmap(&mut self, body: &[u8], world: &mut World, index: usize) -> Result<Answer, Refusal> {
        let unmap = DmaUnmap::decode(body)?;
        for (first, length) in self.mappings.unmap(&unmap)? {
            let iova = Iova(first);
            done(world.handle(index, Request::UnmapDma { iova, length }))?;
        }
        Ok(Answer::payload(unmap.encode()))
    }

    fn region_info(&self, body: &[u8], world: &mut World, index: usize) -> Result<Answer, Refusal> {
        let asked = RegionInfo::decode(body)?;
        if asked.argument_size < RegionInfo::BYTES {
            return Err(Refusal::invalid("no room for the answer"));
        }
        let size = region_bytes(asked.index, world, index)?;
        let page = self.doorbell_page.clone();
        let page = page.filter(|_| asked.index == message::REGION_BAR_0);
        let area = page.as_ref().map(|_| Area {
            offset: DOORBELL_PAGE,
            size: DOORBELL_PAGE_BYTES,
        });
        let there = size > 0;
        let info = RegionInfo {
            argument_size: 0,
            flags: RegionFlags::ZERO
                .with_read(there)
                .with_write(there)
                .with_mmap(page.is_some()),
            index: asked.index,
            size,
            offset: 0,
            areas: area.into_iter().collect(),
        };
        Ok(Answer {
            payload: info.encode(asked.argument_size),
            descriptor: page,
        })
    }

    fn set_interrupts(
        &mut self,
        body: &[u8],
        descriptors: Vec<OwnedFd>,
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        let set = SetInterrupts::decode(body)?;
        let flags = set.flags;
        let count = vectors(set.index, world, index)?;
        let kinds = [flags.data_none(), flags.data_bool(), flags.data_eventfd()];
        let one_kind = kinds.iter().filter(|kind| **kind).count() == 1;
        let actions = flags.with_data_none(false).with_data_bool(false);
        let actions = actions.with_data_eventfd(false);
        if !one_kind || actions.0.count_ones() != 1 {
            return Err(Refusal::invalid("not one action with one kind of data"));
        }
        if !flags.action_trigger() {
            return Err(Refusal::new(
                ENOTSUP,
                "vectors are masked in the MSI-X table",
            ));
        }
        let end = set.start.checked_add(set.count);
        if end.is_none_or(|end| end > count) {
            return Err(Refusal::invalid(
                "interrupts that the function does not have",
            ));
        }
        if !flags.data_eventfd() && !descriptors.is_empty() {
            return Err(Refusal::invalid(
                "descriptors with a command that takes none",
            ));
        }
        if flags.data_eventfd() {
            return self.connect(&set, descriptors, world, index);
        }
        if flags.data_none() && set.count == 0 {
            let everything = SetInterrupts {
                start: 0,
                count,
                ..set
            };
            let answer = self.connect(&everything, Vec::new(), world, index)?;
            // The other indexes have no interrupts that could be disconnected.
            if set.index == message::INTERRUPT_MSIX {
                self.events.clear();
            }
            return Ok(answer);
        }
        let wanted = body.get(20..).unwrap_or(&[]);
        if flags.data_bool() && wanted.len() < set.count as usize {
            return Err(Refusal::invalid("fewer truth values than interrupts"));
        }
        for at in 0..set.count as usize {
            let wanted = flags.data_none() || wanted.get(at).is_some_and(|wanted| *wanted != 0);
            if let Some(Some(event)) = self.events.get(set.start as usize + at)
                && wanted
            {
                // One that does not take it is its client's loss.
                let _ = ringside_bus::event::signal(event.as_fd());
            }
        }
        Ok(Answer::default())
    }

    /// Connects vectors to descriptors, or disconnects them if there are none.
    fn connect(
        &mut self,
        set: &SetInterrupts,
        descriptors: Vec<OwnedFd>,
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        let count = set.count as usize;
        if !descriptors.is_empty() && descriptors.len() != count {
            let reason = format!("{} descriptors for {count} interrupts", descriptors.len());
            return Err(Refusal::invalid(reason));
        }
        if !descriptors
            .iter()
            .all(|event| is_event_descriptor(event.as_fd()))
        {
            return Err(Refusal::invalid("a descriptor that is no eventfd"));
        }
        let mut kept: Vec<_> = descriptors.into_iter().map(Some).collect();
        kept.resize_with(count, || None);
        let first = u16::try_from(set.start)
            .map_err(|_| Refusal::invalid("interrupts that the function does not have"))?;
        let events = duplicate(&kept)?;
        done(world.handle(index, Request::SetInterrupts { first, events }))?;
        let end = usize::from(first) + count;
        if self.events.len() < end {
            self.events.resize_with(end, || None);
        }
        for (place, event) in self.events.iter_mut().skip(first.into()).zip(kept) {
            *place = event;
        }
        Ok(Answer::default())
    }

    fn write_region(
        &self,
        body: &[u8],
        world: &mut World,
        index: usize,
    ) -> Result<Answer, Refusal> {
        let access = RegionAccess::decode_with_data(body)?;
        check_access(&access, world, index)?;
        if access.region == message::REGION_CONFIG {
            let offset = access.offset as u16;
            let bytes = access.data.to_vec();
            let end = access.offset + u64::from(access.count);
            done(world.handle(index, Request::ConfigWrite { offset, bytes }))?;
            if end > CAPABILITIES_AT && !self.events.is_empty() {
                // This may have been a function-level reset.
                let events = duplicate(&self.events)?;
                done(world.handle(index, Request::SetInterrupts { first: 0, events }))?;
            }
        } else {
            let mut value = [0; 8];
            let place = value.get_mut(..access.data.len());
            let place = place.ok_or_else(|| Refusal::invalid("a register has 4 or 8 bytes"))?;
            place.copy_from_slice(access.data);
            let request = Request::RegisterWrite {
                bar: access.region as u8,
                offset: access.offset,
                width: access.count as u8,
                value: u64::from_le_bytes(value),
            };
            done(world.handle(index, request))?;
        }
        Ok(Answer::payload(
            RegionAccess {
                data: &[],
                ..access
            }
            .encode(),
        ))
    }
}

fn device_info(body: &[u8]) -> Result<Answer, Refusal> {
    DeviceInfo::decode(body)?;
    let info = DeviceInfo {
        flags: DeviceFlags::ZERO.with_reset(true).with_pci(true),
        regions: message::REGIONS,
        interrupts: message::INTERRUPTS,
    };
    Ok(Answer::payload(info.encode()))
}

fn interrupt_info(body: &[u8], world: &mut World, index: usize) -> Result<Answer, Refusal> {
    let asked = InterruptInfo::decode(body)?;
    let count = vectors(asked.index, world, index)?;
    let there = count > 0;
    let info = InterruptInfo {
        flags: InterruptFlags::ZERO
            .with_eventfd(there)
            .with_no_resize(there),
        index: asked.index,
        count,
    };
    Ok(Answer::payload(info.encode()))
}

/// The number of interrupts of an index: only MSI-X has any.
fn vectors(interrupt: u32, world: &mut World, index: usize) -> Result<u32, Refusal> {
    if interrupt >= message::INTERRUPTS {
        return Err(Refusal::invalid(format!(
            "there is no interrupt index {interrupt}"
        )));
    }
    if interrupt != message::INTERRUPT_MSIX {
        return Ok(0);
    }
    match world.handle(index, Request::InterruptVectors) {
        Reply::Vectors(count) => Ok(count.into()),
        other => Err(unexpected(&other)),
    }
}

/// Bytes of a region; 0 if the function does not have it.
fn region_bytes(region: u32, world: &mut World, index: usize) -> Result<u64, Refusal> {
    match region {
        message::REGION_CONFIG => Ok(ringside_model::function::CONFIG_BYTES as u64),
        bar if bar < message::REGION_ROM => {
            match world.handle(index, Request::Bar { bar: bar as u8 }) {
                Reply::Bar(info) => Ok(info.size),
                other => Err(unexpected(&other)),
            }
        }
        other if other < message::REGIONS => Ok(0),
        other => Err(Refusal::invalid(format!("there is no region {other}"))),
    }
}

/// Refuses accesses outside the region, or of a width that no register has.
fn check_access(access: &RegionAccess<'_>, world: &mut World, index: usize) -> Result<(), Refusal> {
    let size = region_bytes(access.region, world, index)?;
    let (offset, count) = (access.offset, access.count);
    let end = offset.checked_add(count.into());
    let inside = count > 0 && end.is_some_and(|end| end <= size);
    let whole = access.region == message::REGION_CONFIG || matches!(count, 4 | 8);
    if inside && whole {
        return Ok(());
    }
    let region = access.region;
    Err(Refusal::invalid(format!(
        "{count} bytes at {offset:#x} of region {region}, which has {size:#x}"
    )))
}

fn read_region(body: &[u8], world: &mut World, index: usize) -> Result<Answer, Refusal> {
    let access = RegionAccess::decode(body)?;
    check_access(&access, world, index)?;
    let request = if access.region == message::REGION_CONFIG {
        Request::ConfigRead {
            offset: access.offset as u16,
            length: access.count as u16,
        }
    } else {
        Request::RegisterRead {
            bar: access.region as u8,
            offset: access.offset,
            width: access.count as u8,
        }
    };
    let answer = |data: &[u8]| Answer::payload(RegionAccess { data, ..access }.encode());
    match world.handle(index, request) {
        Reply::Bytes(bytes) if bytes.len() == access.count as usize => Ok(answer(&bytes)),
        Reply::Value(value) => {
            let bytes = value.to_le_bytes();
            Ok(answer(bytes.get(..access.count as usize).unwrap_or(&bytes)))
        }
        other => Err(unexpected(&other)),
    }
}

fn done(reply: Reply) -> Result<Answer, Refusal> {
    match reply {
        Reply::Done => Ok(Answer::default()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> Refusal {
    match reply {
        Reply::Refused(reason) => Refusal::invalid(reason.clone()),
        other => Refusal::invalid(format!("the model answered {other:?}")),
    }
}

fn duplicate(events: &[Option<OwnedFd>]) -> Result<Vec<Option<OwnedFd>>, Refusal> {
    let copies = events
        .iter()
        .map(|event| event.as_ref().map(OwnedFd::try_clone));
    let copies = copies.map(Option::transpose).collect::<Result<_, _>>();
    copies.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0).unsigned_abs().max(1);
        Refusal::new(errno, format!("duplicating an event descriptor: {error}"))
    })
}
