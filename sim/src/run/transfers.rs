//! Writes, reads, sends, receives of connections.

use super::Run;
use crate::memory::{Claim, Purpose};
use crate::oracle::{Message, Receive, Request};
use crate::rig::{Handle, SENDS};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Connected, Flags, Operation, PostError, QueuePair, Status};

/// Regions that a request may gather from.
const SOURCES: &[Purpose] = &[Purpose::Open, Purpose::ZeroBased, Purpose::ReadOnly];

/// Regions that a peer may write to.
const TARGETS: &[Purpose] = &[Purpose::Open, Purpose::ZeroBased];

/// Bytes of the longest message of most runs.
pub(super) const MAX_BYTES: usize = 5_000;

/// A request that is about to be posted.
pub(super) struct Plan {
    pub(super) operation: Operation,
    pub(super) wrong: &'static [Status],
    pub(super) claims: Vec<Claim>,
    pub(super) message: Option<Message>,
    pub(super) flags: Flags,
}

impl Plan {
    pub(super) fn new(operation: Operation, claims: Vec<Claim>) -> Self {
        Self {
            operation,
            wrong: &[],
            claims,
            message: None,
            flags: Flags::NONE,
        }
    }
}

/// A place to post to: connection and end.
pub(super) type Place = (u32, usize);

impl Run<'_> {
    /// Picks an end of a connection that can send and is not known to have failed.
    pub(super) fn pick_end(&mut self) -> Option<Place> {
        let all = self.held.iter().flat_map(|(link, ends)| {
            let numbered = ends.iter().enumerate();
            let ready = numbered.filter(|(_, held)| matches!(held.handle, Handle::Ready(_)));
            ready.map(|(end, _)| (*link, end))
        });
        let ready: Vec<Place> = all.collect();
        let whole = |place: &Place| {
            let link = self.ledger.links.get(&place.0);
            link.is_some_and(|link| !link.is_wrong() && !link.ends.iter().any(|end| end.torn))
        };
        let good: Vec<Place> = ready.iter().copied().filter(whole).collect();
        // Sometimes a failed end: the driver must report it.
        let failed_too = good.is_empty() || self.random.chance(30);
        self.random.pick(if failed_too { &ready } else { &good })
    }

    pub(super) fn queue_pair(&mut self, (link, end): Place) -> Option<&mut QueuePair<Connected>> {
        match &mut self.held.get_mut(&link)?.get_mut(end)?.handle {
            Handle::Ready(queue_pair) => Some(queue_pair),
            _ => None,
        }
    }

    /// Draws a message length: often short, sometimes zero.
    pub(super) fn length(&mut self, most: usize) -> usize {
        let most = match self.random.below(10) {
            0 => return 0,
            1..=4 => most.min(64),
            5..=7 => most.min(256),
            _ => most,
        };
        self.random.within(1, most.max(1))
    }

    pub(super) fn random_flags(&mut self) -> Flags {
        let choices = [
            (Flags::SIGNALLED, 700),
            (Flags::SOLICITED, 100),
            (Flags::READ_FENCE, 60),
            (Flags::LOCAL_FENCE, 60),
        ];
        let mut flags = Flags::NONE;
        for (flag, chance) in choices {
            if self.random.chance(chance) {
                flags = flags | flag;
            }
        }
        flags
    }

    /// Posts a request and records it; returns its number if it was accepted.
    pub(super) fn post(
        &mut self,
        place: Place,
        plan: Plan,
        put: impl FnOnce(&mut QueuePair<Connected>, u64, Flags) -> Result<(), PostError>,
    ) -> Result<Option<u64>, Problem> {
        let (link, end) = place;
        let outstanding = self
            .ledger
            .end_mut(link, end)
            .map_or(SENDS, |end| end.sends.len());
        if outstanding >= SENDS {
            self.give_back(plan.claims)?;
            return Ok(None);
        }
        let full_soon = outstanding + 2 >= SENDS;
        let flags = if full_soon {
            plan.flags | Flags::SIGNALLED
        } else {
            plan.flags
        };
        let id = self.take_id();
        self.look_at_wire();
        let posted = self.ledger.weather.moment();
        let Some(queue_pair) = self.queue_pair(place) else {
            self.give_back(plan.claims)?;
            return Ok(None);
        };
        if let Err(error) = put(queue_pair, id, flags) {
            self.give_back(plan.claims)?;
            return self.refused(place, &error, outstanding).map(|()| None);
        }
        self.note(|| {
            format!(
                "connection {link}, side {end}: request {id}, {:?}",
                plan.operation
            )
        });
        self.digest.add(&[id, link.into(), end as u64]);
        self.counts.posted += 1;
        let needs = plan.message.is_some();
        let receives_needed = needs.then(|| self.receives(place)).flatten();
        let message = plan.message.map(|message| Message {
            id,
            solicited: flags.contains(Flags::SOLICITED),
            ..message
        });
        let request = Request {
            id,
            signalled: flags.contains(Flags::SIGNALLED),
            operation: plan.operation,
            wrong: plan.wrong,
            key_dies: false,
            claims: plan.claims,
            receives_needed,
            posted,
        };
        self.ledger.posted(link, end, request, message);
        Ok(Some(id))
    }

    /// Returns the receives that the peer has posted so far, and the messages sent.
    fn receives(&mut self, (link, end): Place) -> Option<(u64, u64)> {
        let posted = self.ledger.end_mut(link, 1 - end)?.receives_posted;
        let sent = self.ledger.end_mut(link, end)?.messages_sent;
        Some((posted, sent))
    }

    pub(super) fn give_back(&mut self, claims: Vec<Claim>) -> Result<(), Problem> {
        for claim in claims {
            self.ledger
                .memory
                .unknown(claim, "a request that was not posted")?;
        }
        Ok(())
    }

    /// Checks that a request may have been refused with this error.
    fn refused(
        &mut self,
        (link, end): Place,
        error: &PostError,
        outstanding: usize,
    ) -> Result<(), Problem> {
        self.note(|| format!("connection {link}, side {end}: {error}"));
        self.look_at_wire();
        let weather = self.ledger.weather;
        let allowed = match error {
            PostError::Failed => {
                let link = self.ledger.links.get(&link);
                link.is_none_or(|link| link.may_have_failed(end, &weather))
            }
            PostError::Destroyed | PostError::DeviceFailed => self.is_troubled_at(end),
            _ => false,
        };
        if allowed {
            return Ok(());
        }
        let text = format!(
            "connection {link}, side {end}, with {outstanding} requests outstanding: {error}"
        );
        Err(Problem::new(Rule::CallRight, text))
    }

    /// Rings the doorbell, or leaves it to a later step.
    pub(super) fn ring_perhaps(&mut self, place: Place) {
        let now = self.random.chance(900);
        if let Some(queue_pair) = self.queue_pair(place).filter(|_| now) {
            queue_pair.ring();
        }
    }

    fn limits(&self, (link, end): Place) -> (usize, usize) {
        let held = self.held.get(&link).and_then(|ends| ends.get(end));
        held.map_or((0, 1), |held| (held.inline, held.fragments))
    }

    pub(super) fn write(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        self.put_write(place)?;
        self.ring_perhaps(place);
        Ok(())
    }

    pub(super) fn read(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        self.put_read(place)?;
        self.ring_perhaps(place);
        Ok(())
    }

    pub(super) fn send(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        self.put_send(place)?;
        self.ring_perhaps(place);
        Ok(())
    }

    pub(super) fn no_operation(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        self.put_nothing(place)?;
        self.ring_perhaps(place);
        Ok(())
    }

    pub(super) fn chain(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        for _ in 0..self.random.within(2, 8) {
            match self.random.below(7) {
                0..=2 => self.put_write(place)?,
                3 | 4 => self.put_send(place)?,
                5 => self.put_read(place)?,
                _ => self.put_nothing(place)?,
            }
        }
        self.ring_perhaps(place);
        Ok(())
    }

    fn put_nothing(&mut self, place: Place) -> Result<(), Problem> {
        let mut plan = Plan::new(Operation::Nop, Vec::new());
        plan.flags = self.random_flags();
        self.post(place, plan, |queue_pair, id, flags| {
            queue_pair.no_operation(id, flags)
        })?;
        Ok(())
    }

    fn put_write(&mut self, place: Place) -> Result<(), Problem> {
        let (_, end) = place;
        let (inline, fragments) = self.limits(place);
        let is_inline = self.random.chance(250);
        let length = self.length(if is_inline { inline } else { self.longest });
        let Some(target) =
            self.ledger
                .memory
                .claim(1 - end, TARGETS, (length, true), &mut self.random)
        else {
            return Ok(());
        };
        let Some(remote) = self.ledger.memory.remote(target) else {
            return self.give_back(vec![target]);
        };
        let mut plan = Plan::new(Operation::Write, vec![target]);
        plan.flags = self.random_flags();
        let immediate = self.random.chance(250).then(|| self.random.next() as u32);
        plan.message = immediate.map(|immediate| Message {
            id: 0,
            bytes: Vec::new(),
            length: length as u32,
            immediate: Some(immediate),
            invalidates: None,
            operation: Operation::ReceiveWriteImmediate,
            solicited: false,
            too_long: false,
        });
        if is_inline {
            let data = self.random.bytes(length);
            self.ledger.memory.expect(target, data.clone());
            self.post(place, plan, |queue_pair, id, flags| {
                queue_pair.write_inline(id, &data, remote, immediate, flags)
            })?;
            return Ok(());
        }
        let Some((source, bytes)) = self.source(end, length)? else {
            return self.give_back(plan.claims);
        };
        plan.claims.push(source);
        self.ledger.memory.expect(target, bytes);
        let pieces = self.random.within(1, fragments);
        let pieces = self.ledger.memory.fragments(source, length, pieces);
        self.post(place, plan, |queue_pair, id, flags| match immediate {
            Some(number) => queue_pair.write_with_immediate(id, &pieces, remote, number, flags),
            None => queue_pair.write(id, &pieces, remote, flags),
        })?;
        Ok(())
    }

    /// A slot to gather from, and its bytes.
    pub(super) fn source(
        &mut self,
        side: usize,
        length: usize,
    ) -> Result<Option<(Claim, Vec<u8>)>, Problem> {
        let memory = &mut self.ledger.memory;
        let Some(claim) = memory.claim(side, SOURCES, (length, false), &mut self.random) else {
            return Ok(None);
        };
        let bytes = memory.source(claim, length, &mut self.random);
        Ok(Some((claim, bytes)))
    }

    fn put_read(&mut self, place: Place) -> Result<(), Problem> {
        let (_, end) = place;
        let (_, fragments) = self.limits(place);
        let length = self.length(self.longest);
        let memory = &mut self.ledger.memory;
        let Some(into) = memory.claim(end, SOURCES, (length, true), &mut self.random) else {
            return Ok(());
        };
        let Some(from) = memory.claim(1 - end, SOURCES, (length, false), &mut self.random) else {
            return self.give_back(vec![into]);
        };
        let bytes = memory.content(from, length);
        memory.expect(into, bytes);
        let pieces = self.random.within(1, fragments);
        let pieces = memory.fragments(into, length, pieces);
        let Some(remote) = memory.remote(from) else {
            return self.give_back(vec![into, from]);
        };
        let mut plan = Plan::new(Operation::Read, vec![into, from]);
        plan.flags = self.random_flags();
        self.post(place, plan, |queue_pair, id, flags| {
            queue_pair.read(id, &pieces, remote, flags)
        })?;
        Ok(())
    }

    fn put_send(&mut self, place: Place) -> Result<(), Problem> {
        let (link, end) = place;
        let (inline, fragments) = self.limits(place);
        let peer = self.held.get(&link).and_then(|ends| ends.get(1 - end));
        let most = peer.map_or(0, |peer| peer.receive_bytes);
        let is_inline = self.random.chance(300);
        let length = self.length(if is_inline { inline.min(most) } else { most });
        let immediate = self.random.chance(300).then(|| self.random.next() as u32);
        let mut plan = Plan::new(Operation::Send, Vec::new());
        plan.flags = self.random_flags();
        let message = |bytes: Vec<u8>| Message {
            id: 0,
            length: bytes.len() as u32,
            bytes,
            immediate,
            invalidates: None,
            operation: Operation::Receive,
            solicited: false,
            too_long: false,
        };
        if is_inline {
            let data = self.random.bytes(length);
            plan.message = Some(message(data.clone()));
            self.post(place, plan, |queue_pair, id, flags| {
                queue_pair.send_inline(id, &data, immediate, flags)
            })?;
            return Ok(());
        }
        let Some((source, bytes)) = self.source(end, length)? else {
            return Ok(());
        };
        plan.claims.push(source);
        plan.message = Some(message(bytes));
        let pieces = self.random.within(1, fragments);
        let pieces = self.ledger.memory.fragments(source, length, pieces);
        self.post(place, plan, |queue_pair, id, flags| match immediate {
            Some(number) => queue_pair.send_with_immediate(id, &pieces, number, flags),
            None => queue_pair.send(id, &pieces, flags),
        })?;
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Result<(), Problem> {
        let Some(place) = self.pick_end() else {
            return Ok(());
        };
        for _ in 0..self.random.within(1, 4) {
            self.put_receive(place)?;
        }
        Ok(())
    }

    /// Posts a receive to the queue pair or to the shared queue that feeds it; false if there was
    /// no room.
    pub(super) fn put_receive(&mut self, place: Place) -> Result<bool, Problem> {
        let (link, end) = place;
        let held = self.held.get(&link).and_then(|ends| ends.get(end));
        let Some((length, most)) = held.map(|held| (held.receive_bytes, held.receives)) else {
            return Ok(false);
        };
        let fed = self.ledger.end_mut(link, end).is_some_and(|end| end.fed);
        if fed {
            return self.put_shared_receive(end);
        }
        let outstanding = self
            .ledger
            .end_mut(link, end)
            .map_or(most, |end| end.receives.len());
        if outstanding >= most {
            return Ok(false);
        }
        let memory = &mut self.ledger.memory;
        let Some(claim) = memory.claim(end, &[Purpose::Receives], (length, true), &mut self.random)
        else {
            return Ok(false);
        };
        let pieces = self.random.within(1, 2);
        let pieces = memory.fragments(claim, length, pieces);
        let id = self.take_id();
        let held = self.held.get_mut(&link).and_then(|ends| ends.get_mut(end));
        let result = match held.map(|held| &mut held.handle) {
            Some(Handle::Ready(queue_pair)) => queue_pair.receive(id, &pieces),
            Some(Handle::Drained(queue_pair)) => queue_pair.receive(id, &pieces),
            _ => {
                self.give_back(vec![claim])?;
                return Ok(false);
            }
        };
        if let Err(error) = result {
            self.give_back(vec![claim])?;
            return self.refused(place, &error, outstanding).map(|()| false);
        }
        self.note(|| format!("connection {link}, side {end}: receive {id} of {length} bytes"));
        self.counts.posted += 1;
        self.ledger.posted_receive(
            link,
            end,
            Receive {
                id,
                claim,
                length,
                used: false,
            },
        );
        Ok(true)
    }

    fn put_shared_receive(&mut self, side: usize) -> Result<bool, Problem> {
        let length = super::connections::SHARED_RECEIVE_BYTES;
        let outstanding = self.ledger.pools.get(side).map_or(0, |pool| pool.len());
        if outstanding >= super::connections::SHARED_RECEIVES as usize {
            return Ok(false);
        }
        let memory = &mut self.ledger.memory;
        let Some(claim) =
            memory.claim(side, &[Purpose::Receives], (length, true), &mut self.random)
        else {
            return Ok(false);
        };
        let pieces = memory.fragments(claim, length, 1);
        let id = self.take_id();
        let Some(shared) = &mut self.side(side).shared else {
            self.give_back(vec![claim])?;
            return Ok(false);
        };
        if let Err(error) = shared.post(id, &pieces) {
            self.give_back(vec![claim])?;
            if error == PostError::DeviceFailed && self.is_troubled_at(side) {
                return Ok(false);
            }
            let text =
                format!("a shared receive of side {side}, with {outstanding} outstanding: {error}");
            return Err(Problem::new(Rule::CallRight, text));
        }
        self.note(|| format!("side {side}: shared receive {id}"));
        self.counts.posted += 1;
        self.ledger.posted_to_pool(
            side,
            Receive {
                id,
                claim,
                length,
                used: false,
            },
        );
        Ok(true)
    }

    /// Posts a receive at the peer of `place` for each sent message, as far as there is room.
    /// Returns true if it has all of them.
    pub(super) fn feed(&mut self, (link, end): Place) -> Result<bool, Problem> {
        while self.lacks_receives((link, end)) {
            if !self.put_receive((link, 1 - end))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does the same for all connections.
    pub(super) fn feed_all(&mut self) -> Result<(), Problem> {
        let links: Vec<u32> = self.held.keys().copied().collect();
        for link in links {
            self.feed((link, 0))?;
            self.feed((link, 1))?;
        }
        Ok(())
    }

    fn lacks_receives(&self, (link, end): Place) -> bool {
        let Some(link) = self.ledger.links.get(&link) else {
            return false;
        };
        let [first, second] = &link.ends;
        let (sender, receiver) = match end {
            0 => (first, second),
            _ => (second, first),
        };
        if receiver.torn {
            return false;
        }
        if receiver.fed {
            // Other queue pairs hold windows: only a full pool is enough for all.
            let posted = self.ledger.pools.get(1 - end).map_or(0, |pool| pool.len());
            let most = super::connections::SHARED_RECEIVES as usize;
            return !sender.under_way.is_empty() && posted < most;
        }
        receiver.receives_posted < sender.messages_sent
    }
}
