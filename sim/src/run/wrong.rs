//! Requests and calls with an error, and the results that they must have.

use super::Run;
use super::transfers::{Place, Plan};
use crate::memory::Purpose;
use crate::oracle::Message;
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{
    Access, Base, Flags, Fragment, Operation, PostError, QueuePairConfig, RdmaError, RemoteAddress,
    Status, WindowKind,
};

/// The status of a request that the peer's device refuses.
const REFUSED: &[Status] = &[Status::RemoteAccess];

/// The status of a request whose local memory does not match its description.
const UNPROTECTED: &[Status] = &[Status::LocalProtection];

/// The status of a message that is too long for its receive.
const TOO_LONG: &[Status] = &[Status::RemoteInvalidRequest, Status::RemoteOperation];

const REFUSED_BYTES: usize = 16;

impl Run<'_> {
    /// A write or read that the peer has not permitted.
    pub(super) fn wrong_remote(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        let (_, end) = place;
        let Some((remote, is_read)) = self.forbidden(1 - end) else {
            return Ok(());
        };
        if !is_read {
            let data = self.random.bytes(REFUSED_BYTES);
            let mut plan = Plan::new(Operation::Write, Vec::new());
            (plan.wrong, plan.flags) = (REFUSED, Flags::SIGNALLED);
            self.post(place, plan, |queue_pair, id, flags| {
                queue_pair.write_inline(id, &data, remote, None, flags)
            })?;
        } else {
            let memory = &mut self.ledger.memory;
            let room = (REFUSED_BYTES, true);
            let Some(into) = memory.claim(end, &[Purpose::Open], room, &mut self.random) else {
                return Ok(());
            };
            // Nothing may arrive: the content stays.
            let old = memory.content(into, REFUSED_BYTES);
            memory.expect(into, old);
            let pieces = memory.fragments(into, REFUSED_BYTES, 1);
            let mut plan = Plan::new(Operation::Read, vec![into]);
            (plan.wrong, plan.flags) = (REFUSED, Flags::SIGNALLED);
            self.post(place, plan, |queue_pair, id, flags| {
                queue_pair.read(id, &pieces, remote, flags)
            })?;
        }
        self.ring_perhaps(place);
        Ok(())
    }

    /// Returns an address of a side that a peer may not use, and true if it is to be read.
    fn forbidden(&mut self, side: usize) -> Option<(RemoteAddress, bool)> {
        let arenas = self.ledger.memory.arenas.get(side)?;
        let region = |purpose: Purpose| {
            let arena = arenas.iter().find(|arena| arena.purpose == purpose);
            arena.and_then(|arena| arena.region.as_ref())
        };
        let open = region(Purpose::Open)?;
        let length = open.length() as u64;
        let good = open.remote();
        let is_read = self.random.chance(400);
        let address = match self.random.below(6) {
            0 => RemoteAddress {
                key: good.key ^ (1 << self.random.within(8, 31)),
                ..good.at(0)
            },
            // The part of the key that the consumer chooses.
            1 => RemoteAddress {
                key: good.key ^ (1 << self.random.below(8)),
                ..good.at(0)
            },
            2 => good.at(length - REFUSED_BYTES as u64 + 1),
            3 => good.at(u64::MAX - 7),
            4 => {
                let receives = region(Purpose::Receives)?;
                return Some((receives.remote().at(64), is_read));
            }
            _ => {
                let dead = self.dead_keys.get(side)?;
                match self.random.pick(dead) {
                    Some(address) => address,
                    None => return Some((region(Purpose::ReadOnly)?.remote().at(64), false)),
                }
            }
        };
        // By chance it may be the key of another region.
        let taken = arenas.iter().filter_map(|arena| arena.region.as_ref());
        let mut taken = taken.map(ringside_pmd::rdma::MemoryRegion::remote_key);
        let elsewhere = address.key != good.key && taken.any(|key| key == address.key);
        (!elsewhere).then_some((address, is_read))
    }

    /// A request whose local memory does not match its description.
    pub(super) fn wrong_local(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        let (_, end) = place;
        let memory = &mut self.ledger.memory;
        let Some(target) = memory.claim(1 - end, &[Purpose::Open], (8, true), &mut self.random)
        else {
            return Ok(());
        };
        let (old, remote) = (memory.content(target, 8), memory.remote(target));
        memory.expect(target, old);
        let arena = memory.arenas.get(end).and_then(|arenas| arenas.first());
        let region = arena.and_then(|arena| arena.region.as_ref());
        let piece = region.and_then(|region| region.slice(0..8).ok());
        let length = region.map_or(0, |region| region.length() as u64);
        let (Some(piece), Some(remote)) = (piece, remote) else {
            return self.give_back(vec![target]);
        };
        let wrong = match self.random.below(3) {
            0 => Fragment {
                steering_tag: piece.steering_tag ^ (1 << self.random.within(8, 31)),
                ..piece
            },
            1 => Fragment {
                steering_tag: piece.steering_tag ^ (1 << self.random.below(8)),
                ..piece
            },
            _ => Fragment {
                address: piece.address + length - 4,
                ..piece
            },
        };
        let operation = match self.random.chance(400) {
            true => Operation::Read,
            false => Operation::Write,
        };
        let mut plan = Plan::new(operation, vec![target]);
        (plan.wrong, plan.flags) = (UNPROTECTED, Flags::SIGNALLED);
        self.post(place, plan, |queue_pair, id, flags| match operation {
            Operation::Read => queue_pair.read(id, &[wrong], remote, flags),
            _ => queue_pair.write(id, &[wrong], remote, flags),
        })?;
        self.ring_perhaps(place);
        Ok(())
    }

    /// A message that its receive cannot hold.
    pub(super) fn too_long(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        let (link, end) = place;
        let peer = self.held.get(&link).and_then(|ends| ends.get(1 - end));
        let most = peer.map_or(0, |peer| peer.receive_bytes);
        let length = most + self.random.within(1, 100);
        if length > super::transfers::MAX_BYTES {
            return Ok(());
        }
        let Some((source, bytes)) = self.source(end, length)? else {
            return Ok(());
        };
        let pieces = self.ledger.memory.fragments(source, length, 1);
        let mut plan = Plan::new(Operation::Send, vec![source]);
        (plan.wrong, plan.flags) = (TOO_LONG, Flags::SIGNALLED);
        plan.message = Some(Message {
            id: 0,
            length: bytes.len() as u32,
            bytes,
            immediate: None,
            invalidates: None,
            operation: Operation::Receive,
            solicited: false,
            too_long: true,
        });
        self.post(place, plan, |queue_pair, id, flags| {
            queue_pair.send(id, &pieces, flags)
        })?;
        self.feed(place)?;
        self.ring_perhaps(place);
        Ok(())
    }

    /// Calls that are refused at once, and change nothing.
    pub(super) fn wrong_call(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        match self.random.below(3) {
            0 => self.wrong_posts(),
            1 => self.wrong_objects(side),
            _ => self.wrong_numbers(side),
        }
    }

    fn wrong_posts(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        let whole = |run: &Self, (link, _): Place| {
            let link = run.ledger.links.get(&link);
            link.is_some_and(|link| !link.is_wrong() && !link.ends.iter().any(|end| end.torn))
        };
        let (_, end) = place;
        let arena = self
            .ledger
            .memory
            .arenas
            .get(end)
            .and_then(|arenas| arenas.first());
        let region = arena.and_then(|arena| arena.region.as_ref());
        let piece = region.and_then(|region| region.slice(0..8).ok());
        if region.is_some_and(|region| region.slice(0..region.length() + 1).is_ok()) {
            return Err(Problem::new(
                Rule::CallRight,
                "a slice beyond the region was given",
            ));
        }
        let Some(piece) = piece.filter(|_| whole(self, place)) else {
            return Ok(());
        };
        let remote = RemoteAddress { address: 0, key: 0 };
        let Some(queue_pair) = self.queue_pair(place) else {
            return Ok(());
        };
        let refusals = [
            (
                "14 fragments",
                queue_pair.write(1, &[piece; 14], remote, Flags::NONE),
            ),
            (
                "102 bytes inline",
                queue_pair.send_inline(1, &[0; 102], None, Flags::NONE),
            ),
            (
                "an atomic operation",
                queue_pair.fetch_and_add(1, piece, remote, 1, Flags::NONE),
            ),
            (
                "a receive of 14 fragments",
                queue_pair.receive(1, &[piece; 14]),
            ),
        ];
        for (what, result) in refusals {
            let expected = !matches!(
                result,
                Ok(()) | Err(PostError::QueueFull | PostError::Destroyed)
            );
            if !expected {
                return Err(Problem::new(Rule::CallRight, format!("{what}: {result:?}")));
            }
        }
        Ok(())
    }

    fn wrong_objects(&mut self, side: usize) -> Result<(), Problem> {
        let other = self.side(1 - side).domain.clone();
        let place = self.side(side);
        let domain = place.domain.clone();
        let Some(queue) = place.queues.first() else {
            return Ok(());
        };
        let config = || QueuePairConfig::reliable(&queue.queue);
        let refusals = [
            (
                "the other device's queue",
                other.queue_pair(config()).map(drop),
            ),
            (
                "a path MTU of 1500",
                domain.queue_pair(config().path_mtu(1500)).map(drop),
            ),
            (
                "14 fragments",
                domain.queue_pair(config().receive_fragments(14)).map(drop),
            ),
            (
                "100000 sends",
                domain.queue_pair(config().send_requests(100_000)).map(drop),
            ),
            ("no pages", domain.fast_region(0).map(drop)),
            ("513 pages", domain.fast_region(513).map(drop)),
        ];
        self.check_refusals(side, refusals.into())
    }

    fn wrong_numbers(&mut self, side: usize) -> Result<(), Problem> {
        let place = self.side(side);
        let domain = place.domain.clone();
        let device = &place.device;
        let short = device.allocate(64);
        let gap = short.and_then(|first| {
            let second = device.allocate(4096)?;
            let made = domain.register_based(vec![first, second], Access::ALL, Base::Address);
            made.map(drop).map_err(|error| error.error)
        });
        let refusals = [
            ("no completions", device.completion_queue(0).map(drop)),
            (
                "too many completions",
                device.completion_queue(1 << 20).map(drop),
            ),
            ("a region with a gap", gap),
        ];
        let window = domain.memory_window(WindowKind::One).map(drop);
        self.check_refusals(side, refusals.into())?;
        self.must(side, "a memory window", |_| window)?;
        Ok(())
    }

    fn check_refusals(
        &mut self,
        side: usize,
        refusals: Vec<(&'static str, Result<(), RdmaError>)>,
    ) -> Result<(), Problem> {
        for (what, result) in refusals {
            let by_device = matches!(result, Err(RdmaError::Control(_) | RdmaError::Function(_)));
            if result.is_ok() || (by_device && !self.is_troubled_at(side)) {
                return Err(Problem::new(Rule::CallRight, format!("{what}: {result:?}")));
            }
        }
        Ok(())
    }
}
