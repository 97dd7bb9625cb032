//! Requests of connections: posted requests and their expected results.

mod remaining;

use super::flight::{DatagramEnd, Flight};
use super::requests::{End, Link, Message, Owner, Receive, Request, Seen};
use super::status::objection;
use super::weather::Weather;
use crate::memory::{Claim, Memory};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Receives that a queue pair may have taken from a shared queue and that were never polled.
const MAX_FED: u64 = 32;

fn receive_text(number: u32, end: usize, seen: &Seen, why: &str) -> String {
    format!(
        "receive {} of connection {number}, side {end}: {why}; {seen:?}",
        seen.id
    )
}

/// All outstanding requests.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) memory: Memory,
    pub(crate) links: BTreeMap<u32, Link>,
    pub(super) owners: BTreeMap<u64, Owner>,
    /// Numbers of queue pairs in use.
    numbers: BTreeMap<(usize, u32), u32>,
    completed: BTreeSet<u64>,
    /// Requests whose keys were destroyed while they were outstanding.
    dying: BTreeSet<u64>,
    pub(crate) pools: [BTreeMap<u64, Receive>; 2],
    pub(crate) datagrams: [Option<DatagramEnd>; 2],
    pub(crate) flights: Vec<Flight>,
    pub(crate) weather: Weather,
    /// Requests that were outstanding on queue pairs when these were destroyed, by side.
    pub(crate) dropped: [u64; 2],
    /// Receives of the shared queue may have been lost without a completion.
    pool_is_lost: [bool; 2],
    /// Uses of memory, by side, of queue pairs whose destruction the device did not confirm: the
    /// device may write there until it is contained.
    kept: [Vec<Claim>; 2],
    /// Sides whose device has failed and is contained.
    contained: [bool; 2],
    former: [FormerRings; 2],
}

/// Completions that a side's queues took out of rings that were replaced.
#[derive(Debug, Default)]
struct FormerRings {
    /// A ring was replaced, and the queues were not polled until they were empty since.
    may_wait: bool,
    /// Numbers of destroyed queue pairs whose shared receives may be among them.
    destroyed: BTreeSet<u32>,
}

impl Ledger {
    pub(crate) fn add_link(&mut self, number: u32, link: Link) {
        for (side, end) in link.ends.iter().enumerate() {
            self.numbers.insert((side, end.number), number);
        }
        self.links.insert(number, link);
    }

    pub(crate) fn end_mut(&mut self, link: u32, end: usize) -> Option<&mut End> {
        self.links.get_mut(&link)?.ends.get_mut(end)
    }

    /// Returns the connection of this queue pair.
    pub(crate) fn link_of(&self, side: usize, queue_pair: u32) -> Option<u32> {
        self.numbers.get(&(side, queue_pair)).copied()
    }

    pub(crate) fn posted(
        &mut self,
        link: u32,
        end: usize,
        request: Request,
        message: Option<Message>,
    ) {
        self.owners.insert(request.id, Owner::Send { link, end });
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        let fails = [!request.wrong.is_empty(), request.is_refused_by_peer()];
        for (place, fails) in [end, 1 - end].into_iter().zip(fails) {
            if let Some(wrong) = link.wrong.get_mut(place) {
                *wrong |= fails;
            }
        }
        let Some(end) = link.ends.get_mut(end) else {
            return;
        };
        end.sends.push_back(request);
        if let Some(message) = message {
            end.messages_sent += 1;
            end.under_way.push_back(message);
        }
    }

    /// The key that a request names, of the peer or of its own side, is destroyed. If the request
    /// is outstanding, it may be refused, and that fails both ends. The packets of one that was
    /// flushed may still travel.
    pub(crate) fn key_dies(&mut self, link: u32, end: usize, id: u64) {
        let Some(link) = self.links.get_mut(&link) else {
            return;
        };
        link.wrong = [true; 2];
        let sends = link.ends.get_mut(end).map(|end| end.sends.iter_mut());
        let request = sends.and_then(|mut sends| sends.find(|request| request.id == id));
        if let Some(request) = request {
            request.key_dies = true;
            self.dying.insert(id);
        }
    }

    pub(crate) fn posted_receive(&mut self, link: u32, end: usize, receive: Receive) {
        self.owners.insert(receive.id, Owner::Receive { link, end });
        self.memory.expect_anything(receive.claim, receive.length);
        if let Some(end) = self.end_mut(link, end) {
            end.receives.push_back(receive);
            end.receives_posted += 1;
        }
    }

    pub(crate) fn posted_to_pool(&mut self, side: usize, receive: Receive) {
        self.owners.insert(receive.id, Owner::Pool { side });
        self.memory.expect_anything(receive.claim, receive.length);
        if let Some(pool) = self.pools.get_mut(side) {
            pool.insert(receive.id, receive);
        }
    }

    /// Checks a completion.
    pub(crate) fn completed(&mut self, side: usize, seen: &Seen) -> Result<(), Problem> {
        let Some(owner) = self.owners.get(&seen.id).copied() else {
            let what = if self.completed.contains(&seen.id) {
                "has completed before, or its queue pair is destroyed"
            } else {
                "was never posted"
            };
            let text = format!("request {} of side {side} {what}: {seen:?}", seen.id);
            return Err(Problem::new(Rule::CompletesOnce, text));
        };
        let (right_side, right_direction) = match owner {
            Owner::Send { end, .. } => (end, true),
            Owner::Receive { end, .. } => (end, false),
            Owner::Pool { side } | Owner::DatagramReceive { side } => (side, false),
            Owner::DatagramSend { side } => (side, true),
        };
        if (right_side, right_direction) != (side, seen.is_send) {
            let text = format!(
                "request {} of side {right_side} ({owner:?}) came as {seen:?} of side {side}",
                seen.id
            );
            return Err(Problem::new(Rule::MessageRight, text));
        }
        match owner {
            Owner::Send { link, end } => self.send_completed(link, end, seen),
            Owner::Receive { link, end } => self.receive_completed(link, end, seen),
            Owner::Pool { side } => self.pooled_completed(side, seen),
            Owner::DatagramSend { side } => self.datagram_sent(side, seen),
            Owner::DatagramReceive { side } => self.datagram_received(side, seen),
        }
    }

    pub(super) fn over(&mut self, id: u64) {
        self.owners.remove(&id);
        self.completed.insert(id);
    }

    fn send_completed(&mut self, number: u32, end: usize, seen: &Seen) -> Result<(), Problem> {
        let weather = self.weather;
        let Some(link) = self.links.get_mut(&number) else {
            return Ok(());
        };
        let place = link
            .end(end)
            .sends
            .iter()
            .position(|request| request.id == seen.id);
        let place = place.unwrap_or(0);
        let sends = &link.end(end).sends;
        let text = |why: &str| {
            format!(
                "request {} of connection {number}, side {end}: {why}; {seen:?}",
                seen.id
            )
        };
        if let Some(passed) = sends.iter().take(place).find(|request| request.signalled) {
            let why = format!(
                "request {} was posted before it and has not completed",
                passed.id
            );
            return Err(Problem::new(Rule::InOrder, text(&why)));
        }
        let Some(request) = sends.get(place) else {
            return Ok(());
        };
        if (request.operation, link.end(end).number) != (seen.operation, seen.queue_pair) {
            let why = format!(
                "it was a {:?} of queue pair {}",
                request.operation,
                link.end(end).number
            );
            return Err(Problem::new(Rule::MessageRight, text(&why)));
        }
        if let Some(why) = objection(seen.status, request, link, end, &weather) {
            return Err(Problem::new(Rule::StatusAllowed, text(why)));
        }
        let good = seen.status == Status::Success;
        let mut done = Vec::new();
        if let Some(end) = link.ends.get_mut(end) {
            end.torn |= !good;
            end.sends_failed |= !good;
            done.extend(end.sends.drain(..=place));
        }
        for request in done {
            self.over(request.id);
            if good && !request.wrong.is_empty() {
                return Err(Problem::new(
                    Rule::StatusAllowed,
                    text("one before it was wrong, so this one must fail"),
                ));
            }
            for claim in request.claims {
                if good {
                    self.memory.done(claim, &text("its bytes"))?;
                } else if claim.side == end && !weather.is_troubled_at(end) {
                    // The destination of its data is no longer written.
                    self.memory.unknown(claim, &text("it has failed"))?;
                } else if let Some(link) = self.links.get_mut(&number) {
                    link.stale.push(claim);
                }
            }
        }
        Ok(())
    }

    fn receive_completed(&mut self, number: u32, end: usize, seen: &Seen) -> Result<(), Problem> {
        let Some(receiver) = self.end_mut(number, end) else {
            return Ok(());
        };
        let text = |why: &str| {
            format!(
                "receive {} of connection {number}, side {end}: {why}; {seen:?}",
                seen.id
            )
        };
        let Some(receive) = receiver.receives.pop_front() else {
            return Ok(());
        };
        if receive.id != seen.id {
            let why = format!(
                "receive {} was posted before it and has not completed",
                receive.id
            );
            return Err(Problem::new(Rule::InOrder, text(&why)));
        }
        self.over(receive.id);
        self.judge_receive(number, end, receive, seen)
    }

    fn pooled_completed(&mut self, side: usize, seen: &Seen) -> Result<(), Problem> {
        let receive = self
            .pools
            .get_mut(side)
            .and_then(|pool| pool.remove(&seen.id));
        let Some(receive) = receive else {
            return Ok(());
        };
        self.over(receive.id);
        if seen.status == Status::Flushed && self.weather.harm_at(side).is_any() {
            // Its device has failed; it may not have been in any queue pair's queue yet.
            self.memory.adopt(receive.claim, receive.length);
            return Ok(());
        }
        match self.link_of(side, seen.queue_pair) {
            Some(link) => self.judge_receive(link, side, receive, seen),
            // Nothing is known of its message: the connection is gone.
            None if seen.status == Status::Success && self.is_late(side, seen.queue_pair) => {
                self.memory.adopt(receive.claim, receive.length);
                Ok(())
            }
            None => Err(Problem::new(
                Rule::MessageRight,
                format!(
                    "shared receive {} names queue pair {}, which does not exist",
                    seen.id, seen.queue_pair
                ),
            )),
        }
    }

    fn judge_receive(
        &mut self,
        number: u32,
        end: usize,
        receive: Receive,
        seen: &Seen,
    ) -> Result<(), Problem> {
        let text = |why: &str| receive_text(number, end, seen, why);
        let Some(link) = self.links.get_mut(&number) else {
            return Ok(());
        };
        if link.end(end).number != seen.queue_pair {
            let why = format!("it was of queue pair {}", link.end(end).number);
            return Err(Problem::new(Rule::MessageRight, text(&why)));
        }
        if seen.status != Status::Success {
            return self.judge_failed_receive(number, end, receive, seen);
        }
        if link.end(end).receives_failed {
            let why = "one before it failed, and so did its queue pair";
            return Err(Problem::new(Rule::StatusAllowed, text(why)));
        }
        let sender = link.ends.get_mut(1 - end);
        let Some(message) = sender.and_then(|sender| sender.under_way.pop_front()) else {
            return Err(Problem::new(
                Rule::CompletesOnce,
                text("no message is under way"),
            ));
        };
        let is = (
            seen.operation,
            seen.byte_length,
            seen.immediate,
            seen.invalidated_key,
            seen.solicited,
        );
        let ought = (
            message.operation,
            message.length,
            message.immediate,
            message.invalidates,
            message.solicited,
        );
        if is != ought || message.too_long {
            let why = format!("the message of request {} is {ought:?}", message.id);
            return Err(Problem::new(Rule::MessageRight, text(&why)));
        }
        let why = format!("bytes of the message of request {}", message.id);
        if receive.used {
            return self.memory.received_over(
                receive.claim,
                receive.length,
                &message.bytes,
                &text(&why),
            );
        }
        self.memory
            .received(receive.claim, (0, &message.bytes), &text(&why))
    }

    /// Checks a failed receive: its status must have a cause, and its memory must not be written
    /// any more, unless the device is in trouble.
    fn judge_failed_receive(
        &mut self,
        number: u32,
        end: usize,
        receive: Receive,
        seen: &Seen,
    ) -> Result<(), Problem> {
        let weather = self.weather;
        let text = |why: &str| receive_text(number, end, seen, why);
        let Some(link) = self.links.get_mut(&number) else {
            return Ok(());
        };
        let next = link.end(1 - end).under_way.front();
        let too_long = next.is_some_and(|message| message.too_long);
        let allowed = match seen.status {
            Status::LocalLength => too_long,
            Status::Flushed => link.may_have_failed(end, &weather),
            // The key that the message was to invalidate was destroyed while the message was under
            // way.
            Status::RemoteAccess
                if next.is_some_and(|message| {
                    message.invalidates.is_some() && self.dying.contains(&message.id)
                }) =>
            {
                true
            }
            _ => weather.harm_at(end).may_mislead(),
        };
        if !allowed {
            return Err(Problem::new(
                Rule::StatusAllowed,
                text("no fault explains this status"),
            ));
        }
        if let Some(end) = link.ends.get_mut(end) {
            (end.torn, end.receives_failed) = (true, true);
        }
        if weather.is_troubled_at(end) {
            link.stale.push(receive.claim);
            return Ok(());
        }
        // The device no longer writes there.
        self.memory.unknown(receive.claim, &text("it has failed"))
    }

    /// An end was destroyed, with or without the device's confirmation. Its outstanding requests
    /// are not reported.
    pub(crate) fn destroyed(
        &mut self,
        number: u32,
        side: usize,
        confirmed: bool,
    ) -> Result<(), Problem> {
        let Some(link) = self.links.get_mut(&number) else {
            return Ok(());
        };
        if let Some(unconfirmed) = link.unconfirmed.get_mut(side) {
            *unconfirmed = !confirmed;
        }
        let Some(end) = link.ends.get_mut(side) else {
            return Ok(());
        };
        end.torn = true;
        let (queue_pair, fed) = (end.number, end.fed);
        let sends = std::mem::take(&mut end.sends);
        let receives = std::mem::take(&mut end.receives);
        let ids = sends
            .iter()
            .map(|request| request.id)
            .chain(receives.iter().map(|receive| receive.id));
        let ids: Vec<u64> = ids.collect();
        if let Some(dropped) = self.dropped.get_mut(side) {
            // A queue pair that a shared queue feeds may have held a full window of receives.
            *dropped += ids.len() as u64 + if fed { MAX_FED } else { 0 };
        }
        let claims = sends.into_iter().flat_map(|request| request.claims);
        let claims = claims.chain(receives.into_iter().map(|receive| receive.claim));
        // Memory on this side is unused once its queue pair is destroyed.
        let (at_rest, stale): (Vec<Claim>, Vec<Claim>) =
            claims.partition(|claim| confirmed && claim.side == side);
        link.stale.extend(stale);
        for claim in at_rest {
            let what = format!("side {side} of connection {number} is destroyed");
            self.memory.unknown(claim, &what)?;
        }
        for id in ids {
            self.over(id);
        }
        self.numbers.remove(&(side, queue_pair));
        if let Some(former) = self.former.get_mut(side)
            && former.may_wait
            && fed
        {
            former.destroyed.insert(queue_pair);
        }
        if fed && let Some(pool) = self.pools.get_mut(side) {
            // Receives that it had received and that were not polled are available again.
            pool.values_mut().for_each(|receive| receive.used = true);
        }
        Ok(())
    }

    /// Both ends are destroyed: requests with an unknown result have ended.
    pub(crate) fn buried(&mut self, number: u32) -> Result<(), Problem> {
        let Some(link) = self.links.remove(&number) else {
            return Ok(());
        };
        for claim in link.stale {
            if link.unconfirmed.get(claim.side) == Some(&true) {
                self.keep(claim)?;
                continue;
            }
            let what = format!("connection {number} is destroyed");
            self.memory.unknown(claim, &what)?;
        }
        Ok(())
    }
}
