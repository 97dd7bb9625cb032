//! The operations that grant and revoke access to memory: windows, fast regions, invalidation,
//! reregistration.
//!
//! Each step performs a full cycle, and waits for its requests while other work continues.

use super::Run;
use super::transfers::{Place, Plan};
use crate::memory::{Claim, Purpose};
use crate::oracle::{Message, Seen};
use crate::rule::{Problem, Rule};
use ringside_bus::DmaBuffer;
use ringside_pmd::rdma::{
    Access, Completion, Flags, MemoryRegion, Operation, RemoteAddress, RemoteRegion, Status,
    WindowKind,
};

/// The status of a request that uses an invalidated key.
const REFUSED: &[Status] = &[Status::RemoteAccess];

/// Bytes that are written through a key.
const BYTES: usize = 24;

type Done = Option<(Seen, Completion)>;

impl Run<'_> {
    /// Picks an end whose connection is known to be intact, with the resources for another request.
    fn pick_whole(&mut self) -> Result<Option<Place>, Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(None);
        };
        let (number, end) = place;
        self.feed(place)?;
        self.feed((number, 1 - end))?;
        let link = self.ledger.links.get(&number);
        let whole =
            link.is_some_and(|link| !link.is_wrong() && !link.ends.iter().any(|end| end.torn));
        let both = self.queue_pair((number, 1 - end)).is_some();
        Ok((whole && both).then_some(place))
    }

    /// Waits for a request, if it was posted; `None` unless it succeeded.
    fn succeeded(&mut self, posted: Option<u64>) -> Result<Done, Problem> {
        let Some(id) = posted else {
            return Ok(None);
        };
        self.watched.insert(id);
        let done = self.wait_for(id)?;
        Ok(done.filter(|(seen, _)| seen.status == Status::Success))
    }

    /// The peer of `place` writes through a key. The bytes must appear in the slot, if it is in a
    /// tracked region. False unless it succeeded: then the caller abandons the memory, because a
    /// write may still be outstanding while a device or the link is in trouble.
    fn write_through(
        &mut self,
        place: Place,
        remote: RemoteAddress,
        data: &[u8],
        slot: Option<Claim>,
    ) -> Result<bool, Problem> {
        let mut plan = Plan::new(Operation::Write, slot.into_iter().collect());
        plan.flags = Flags::SIGNALLED;
        if let Some(slot) = slot {
            self.ledger.memory.expect(slot, data.to_vec());
        }
        let posted = self.post(place, plan, |queue_pair, id, flags| {
            queue_pair.write_inline(id, data, remote, None, flags)
        })?;
        Ok(self.succeeded_or_dies(place, posted)?.is_some())
    }

    /// The same for a request whose key the caller destroys unless the request succeeded.
    fn succeeded_or_dies(
        &mut self,
        (number, end): Place,
        posted: Option<u64>,
    ) -> Result<Done, Problem> {
        let done = self.succeeded(posted)?;
        if let Some(id) = posted.filter(|_| done.is_none()) {
            self.ledger.key_dies(number, end, id);
        }
        Ok(done)
    }

    /// Writes through an invalidated key: the write must fail.
    fn write_in_vain(&mut self, place: Place, remote: RemoteAddress) -> Result<(), Problem> {
        let data = self.random.bytes(BYTES);
        let mut plan = Plan::new(Operation::Write, Vec::new());
        (plan.wrong, plan.flags) = (REFUSED, Flags::SIGNALLED);
        let posted = self.post(place, plan, |queue_pair, id, flags| {
            queue_pair.write_inline(id, &data, remote, None, flags)
        })?;
        self.succeeded(posted)?;
        Ok(())
    }

    /// Invalidates a key of the owner: by a request of its own, or by a send of the peer.
    fn close_key(&mut self, owner: Place, key: u32) -> Result<bool, Problem> {
        let (number, end) = owner;
        if self.random.chance(500) {
            let mut plan = Plan::new(Operation::LocalInvalidate, Vec::new());
            plan.flags = Flags::SIGNALLED | Flags::LOCAL_FENCE;
            let posted = self.post(owner, plan, |queue_pair, id, flags| {
                queue_pair.invalidate(id, key, flags)
            })?;
            return Ok(self.succeeded_or_dies(owner, posted)?.is_some());
        }
        let peer = (number, 1 - end);
        let Some((source, bytes)) = self.source(1 - end, BYTES)? else {
            return Ok(false);
        };
        let pieces = self.ledger.memory.fragments(source, BYTES, 1);
        let mut plan = Plan::new(Operation::Send, vec![source]);
        plan.flags = Flags::SIGNALLED;
        plan.message = Some(Message {
            id: 0,
            length: bytes.len() as u32,
            bytes,
            immediate: None,
            invalidates: Some(key),
            operation: Operation::Receive,
            solicited: false,
            too_long: false,
        });
        let posted = self.post(peer, plan, |queue_pair, id, flags| {
            queue_pair.send_and_invalidate(id, &pieces, key, flags)
        })?;
        self.feed(peer)?;
        Ok(self.succeeded_or_dies(peer, posted)?.is_some())
    }

    /// Posts a bind; the region is the one of the slot.
    fn bind(
        &mut self,
        owner: Place,
        window: &mut ringside_pmd::rdma::MemoryWindow,
        slot: Claim,
        length: usize,
    ) -> Result<Option<RemoteRegion>, Problem> {
        let start = self.ledger.memory.start(slot);
        let range = if length == 0 {
            0..0
        } else {
            start..start + length
        };
        let Some(region) = self.take_region(slot) else {
            return Ok(None);
        };
        let mut plan = Plan::new(Operation::BindWindow, Vec::new());
        plan.flags = Flags::SIGNALLED;
        let mut opened = None;
        let posted = self.post(owner, plan, |queue_pair, id, flags| {
            let access = Access::REMOTE_WRITE;
            opened = Some(queue_pair.bind_window(id, window, (&region, range), access, flags)?);
            Ok(())
        });
        self.put_region(slot, region);
        Ok(self.succeeded_or_dies(owner, posted?)?.and(opened))
    }

    fn take_region(&mut self, slot: Claim) -> Option<MemoryRegion> {
        let arenas = self.ledger.memory.arenas.get_mut(slot.side)?;
        arenas.get_mut(slot.arena)?.region.take()
    }

    fn put_region(&mut self, slot: Claim, region: MemoryRegion) {
        let arenas = self.ledger.memory.arenas.get_mut(slot.side);
        if let Some(arena) = arenas.and_then(|arenas| arenas.get_mut(slot.arena)) {
            arena.region = Some(region);
        }
    }

    pub(super) fn window(&mut self) -> Result<(), Problem> {
        let Some(owner) = self.pick_whole()? else {
            return Ok(());
        };
        let (number, end) = owner;
        let kind = if self.random.chance(500) {
            WindowKind::One
        } else {
            WindowKind::Two
        };
        let domain = self.side(end).domain.clone();
        let Some(mut window) = self.must(end, "a memory window", |_| domain.memory_window(kind))?
        else {
            return Ok(());
        };
        let room = (BYTES, true);
        let slot = self
            .ledger
            .memory
            .claim(end, &[Purpose::Open], room, &mut self.random);
        let Some(slot) = slot else {
            return Ok(());
        };
        let length = self.ledger.memory.capacity(slot);
        let Some(open) = self.bind(owner, &mut window, slot, length)? else {
            return self.give_back(vec![slot]);
        };
        let peer = (number, 1 - end);
        let data = self.random.bytes(BYTES);
        if !self.write_through(peer, open.at(0), &data, Some(slot))? {
            return Ok(());
        }
        let closed = match kind {
            WindowKind::One => self.bind(owner, &mut window, slot, 0)?.is_some(),
            WindowKind::Two => self.close_key(owner, open.key)?,
        };
        if closed && self.random.chance(250) {
            self.write_in_vain(peer, open.at(0))?;
        }
        self.call("dropping a memory window", |_| drop(window))
    }

    pub(super) fn fast_register(&mut self) -> Result<(), Problem> {
        let Some(owner) = self.pick_whole()? else {
            return Ok(());
        };
        let (number, end) = owner;
        let domain = self.side(end).domain.clone();
        let pages = self.random.within(1, 5) as u32;
        let Some(mut fast) = self.must(end, "a fast region", |_| domain.fast_region(pages))? else {
            return Ok(());
        };
        for _ in 0..self.random.within(1, 2) {
            let length = self.random.within(1, pages as usize) * 4096;
            let picture = self.random.bytes(length);
            let loaded = self.must(end, "loading a fast region", |run| {
                let buffer = run.side(end).device.allocate(length)?;
                let _ = buffer.write(0, &picture);
                fast.load(vec![buffer]).map_err(|error| error.error)
            })?;
            if loaded.is_none() {
                return Ok(());
            }
            let mut plan = Plan::new(Operation::FastRegister, Vec::new());
            plan.flags = Flags::SIGNALLED;
            let posted = self.post(owner, plan, |queue_pair, id, flags| {
                queue_pair.register_fast(id, &mut fast, Access::ALL, flags)
            })?;
            let mut expected = picture;
            let mut going = self.succeeded_or_dies(owner, posted)?.is_some();
            if going {
                let at = self.random.below(length - BYTES);
                let data = self.random.bytes(BYTES);
                let remote = fast.remote().at(at as u64);
                going = self.write_through((number, 1 - end), remote, &data, None)?;
                if let Some(place) = expected.get_mut(at..at + BYTES).filter(|_| going) {
                    place.copy_from_slice(&data);
                }
            }
            if !going {
                // Its queue pair has failed, or waits for retries: the memory is returned by
                // command.
                self.must(end, "resetting a fast region", |_| fast.reset().map(drop))?;
                return Ok(());
            }
            let mut plan = Plan::new(Operation::LocalInvalidate, Vec::new());
            plan.flags = Flags::SIGNALLED;
            let posted = self.post(owner, plan, |queue_pair, id, flags| {
                queue_pair.invalidate_fast(id, &mut fast, flags)
            })?;
            let Some((_, done)) = self.succeeded_or_dies(owner, posted)? else {
                self.must(end, "resetting a fast region", |_| fast.reset().map(drop))?;
                return Ok(());
            };
            let Some(buffers) = fast.take_back(&done) else {
                let what = "an invalidated fast region did not return its memory";
                return Err(Problem::new(Rule::CallRight, what));
            };
            compare(&buffers, &expected, "a fast region")?;
        }
        self.call("dropping a fast region", |_| drop(fast))
    }

    pub(super) fn invalidate(&mut self) -> Result<(), Problem> {
        let Some(owner) = self.pick_whole()? else {
            return Ok(());
        };
        let (number, end) = owner;
        let length = 4096;
        let mut picture = self.random.bytes(length);
        let domain = self.side(end).domain.clone();
        let region = self.must(end, "a region", |run| {
            let buffer = run
                .side(end)
                .device
                .allocate(length)
                .map_err(|error| error.to_string())?;
            let _ = buffer.write(0, &picture);
            domain
                .register(buffer, Access::ALL)
                .map_err(|error| error.to_string())
        })?;
        let Some(region) = region else {
            return Ok(());
        };
        let peer = (number, 1 - end);
        let data = self.random.bytes(BYTES);
        if !self.write_through(peer, region.remote().at(100), &data, None)? {
            return Ok(());
        }
        if let Some(place) = picture.get_mut(100..100 + BYTES) {
            place.copy_from_slice(&data);
        }
        if self.close_key(owner, region.local_key())? {
            let valid = self.must(end, "a region's state", |_| region.is_valid())?;
            if valid == Some(true) {
                let what = "a region whose key was invalidated reports that it is valid";
                return Err(Problem::new(Rule::CallRight, what));
            }
            if self.random.chance(250) {
                self.write_in_vain(peer, region.remote().at(100))?;
            }
        }
        let buffers = self.must(end, "deregistering", |_| region.deregister())?;
        compare(
            &buffers.unwrap_or_default(),
            &picture,
            "an invalidated region",
        )
    }

    /// Reads into a region, and invalidates its key by that read.
    pub(super) fn closing_read(&mut self) -> Result<(), Problem> {
        let Some(reader) = self.pick_whole()? else {
            return Ok(());
        };
        let (_, end) = reader;
        let length = 4096;
        let mut regions = Vec::new();
        let pictures = [self.random.bytes(length), self.random.bytes(length)];
        for (side, picture) in [end, 1 - end].into_iter().zip(&pictures) {
            let domain = self.side(side).domain.clone();
            let region = self.must(side, "a region", |run| {
                let buffer = run.side(side).device.allocate(length);
                let buffer = buffer.map_err(|error| error.to_string())?;
                let _ = buffer.write(0, picture);
                let made = domain.register(buffer, Access::ALL);
                made.map_err(|error| error.to_string())
            })?;
            regions.extend(region);
        }
        let Ok([into, from]) = <[MemoryRegion; 2]>::try_from(regions) else {
            return Ok(());
        };
        let bytes = self.random.within(1, length);
        let Ok(fragment) = into.slice(0..bytes) else {
            return Ok(());
        };
        let mut plan = Plan::new(Operation::Read, Vec::new());
        plan.flags = Flags::SIGNALLED;
        let remote = from.remote().at(0);
        let posted = self.post(reader, plan, |queue_pair, id, flags| {
            queue_pair.read_and_invalidate(id, &[fragment], remote, flags)
        })?;
        let done = self.succeeded_or_dies(reader, posted)?.is_some();
        let valid = self.must(end, "a region's state", |_| into.is_valid())?;
        if done && valid == Some(true) {
            let what = "a region that a read was to invalidate reports that it is valid";
            return Err(Problem::new(Rule::CallRight, what));
        }
        let buffers = self.must(end, "deregistering", |_| into.deregister())?;
        let [mut expected, read] = pictures;
        if let (Some(place), Some(read)) = (expected.get_mut(..bytes), read.get(..bytes)) {
            place.copy_from_slice(read);
        }
        if done {
            compare(&buffers.unwrap_or_default(), &expected, "what was read")?;
        }
        let buffers = self.must(1 - end, "deregistering", |_| from.deregister())?;
        compare(&buffers.unwrap_or_default(), &read, "what was read from")
    }

    pub(super) fn reregister(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        let arenas = self.ledger.memory.arenas.get(side);
        let idle = arenas.map(|arenas| {
            let numbered = arenas.iter().enumerate();
            let idle =
                numbered.filter(|(_, arena)| arena.is_idle() && arena.purpose != Purpose::Receives);
            idle.map(|(number, _)| number).collect::<Vec<_>>()
        });
        let Some(number) = self.random.pick(&idle.unwrap_or_default()) else {
            return Ok(());
        };
        let arenas = self.ledger.memory.arenas.get_mut(side);
        let Some(arena) = arenas.and_then(|arenas| arenas.get_mut(number)) else {
            return Ok(());
        };
        let Some(region) = arena.region.take() else {
            return Ok(());
        };
        let (old, access) = (region.remote().at(64), region.access());
        let domain = self.side(side).domain.clone();
        let result = self.call("reregistering a region", |_| {
            region.reregister(&domain, access)
        })?;
        let (region, error) = match result {
            Ok(region) => (Some(region), None),
            Err(error) => (error.region.map(|region| *region), Some(error.error)),
        };
        let arenas = self.ledger.memory.arenas.get_mut(side);
        if let Some(arena) = arenas.and_then(|arenas| arenas.get_mut(number)) {
            arena.region = region;
        }
        if let Some(error) = error.filter(|_| !self.is_troubled_at(side)) {
            return Err(Problem::new(
                Rule::CallRight,
                format!("reregistering a region: {error}"),
            ));
        }
        if let Some(dead) = self.dead_keys.get_mut(side) {
            dead.push(old);
        }
        Ok(())
    }
}

/// Checks that returned memory has the expected content.
fn compare(buffers: &[DmaBuffer], picture: &[u8], what: &str) -> Result<(), Problem> {
    let mut rest = picture;
    for buffer in buffers {
        let (ought, later) = rest.split_at(buffer.length().min(rest.len()));
        rest = later;
        let mut actual = vec![0; ought.len()];
        if !buffer.read(0, &mut actual) || actual != ought {
            let wrong = actual.iter().zip(ought).position(|(is, ought)| is != ought);
            let text = format!("{what} came back with a wrong byte at {wrong:?}");
            return Err(Problem::new(Rule::BytesIntact, text));
        }
    }
    Ok(())
}
