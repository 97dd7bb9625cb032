//! Requests of connections: what was posted, what has to come of it.

mod remaining;

use super::datagrams::{DatagramEnd, Flight};
use crate::rule::{Problem, Rule};
use super::status::{Moment, Weather, objection};
use crate::memory::{Claim, Memory};
use ringside_pmd::rdma::{Datagram, Operation, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A completion as the driver's user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number that the request was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// Of the send queue.
    pub is_send: bool,
    /// Its result.
    pub status: Status,
    /// Its previous value.
    pub operation: Operation,
    /// Bytes of the message.
    pub byte_length: u32,
    /// The data that came with it.
    pub immediate: Option<u32>,
    /// Key that the message invalidated.
    pub invalidated_key: Option<u32>,
    /// The source of a datagram.
    pub datagram: Option<Datagram>,
}

/// A request of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    pub(crate) operation: Operation,
    /// Statuses of which it must end with one; empty: it is right.
    pub(crate) wrong: &'static [Status],
    pub(crate) claims: Vec<Claim>,
    /// Receives that the peer had posted, and messages sent before: for one that needs a receive.
    pub(crate) receives_needed: Option<(u64, u64)>,
    /// When it was posted.
    pub(crate) posted: Moment,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) claim: Claim,
    pub(crate) length: usize,
    /// A message that nobody took may have been written there.
    pub(crate) used: bool,
}

/// The value that the next receive of the peer must report.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    /// Bytes that go into the receive; nothing for a write.
    pub(crate) bytes: Vec<u8>,
    /// The length that the completion reports.
    pub(crate) length: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidates: Option<u32>,
    pub(crate) operation: Operation,
    /// It does not fit: the receive fails.
    pub(crate) too_long: bool,
}

/// Receives that a queue pair may have taken from a shared queue and that nobody polled.
const FED_MOST: u64 = 32;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) number: u32,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    /// A shared receive queue feeds it.
    pub(crate) fed: bool,
    /// It has failed, or was failed or destroyed.
    pub(crate) torn: bool,
    pub(crate) sends: VecDeque<Request>,
    pub(crate) receives: VecDeque<Receive>,
    /// Messages that the other end has not received yet.
    pub(crate) under_way: VecDeque<Message>,
    pub(crate) messages_sent: u64,
    pub(crate) receives_posted: u64,
}

impl End {
    pub(crate) fn new(number: u32, (retries, not_ready_retries): (u8, u8), fed: bool) -> Self {
        Self {
            number,
            retries,
            not_ready_retries,
            fed,
            torn: false,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            under_way: VecDeque::new(),
            messages_sent: 0,
            receives_posted: 0,
        }
    }

    fn is_awaited(&self) -> bool {
        self.sends.iter().any(|request| request.signalled)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    /// A wrong request was posted: both ends fail.
    pub(crate) wrong: bool,
    /// Uses of memory of which nobody knows how they ended; over once both ends are gone.
    stale: Vec<Claim>,
    /// Sides whose device did not confirm that their end is gone.
    unconfirmed: [bool; 2],
}

impl Link {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        Self {
            ends,
            wrong: false,
            stale: Vec::new(),
            unconfirmed: [false; 2],
        }
    }

    fn end(&self, end: usize) -> &End {
        let [first, second] = &self.ends;
        if end == 0 { first } else { second }
    }

    /// Whether the queue pair of an end may have failed. What fails the other end does not fail this
    /// one: it hears no more answers, which fails it if it waits for one.
    pub(crate) fn may_have_failed(&self, end: usize, weather: &Weather) -> bool {
        let own = self.end(end);
        let unanswered = |request: &Request| {
            self.may_lack_receives(end, request) || self.may_be_silent(end, weather, request.posted)
        };
        let harmed = weather.harm_at(end).is_any();
        self.wrong || own.torn || harmed || own.sends.iter().any(unanswered)
    }

    /// Whether frames were lost since the oldest request of an end was posted that has not completed,
    /// or since `before` if that is earlier.
    pub(crate) fn has_lost(&self, end: usize, weather: &Weather, before: Moment) -> bool {
        let oldest = self.end(end).sends.front();
        let since = oldest.map_or(before, |request| request.posted);
        weather.lost_since(since).max(weather.lost_since(before)) > 0
    }

    /// Whether the other end may not have answered `end`; that takes more losses than retries since
    /// the request was posted, or an end that is gone.
    pub(super) fn may_be_silent(&self, end: usize, weather: &Weather, posted: Moment) -> bool {
        let lost = |end: usize, since: Moment| {
            weather.lost_since(since) > u64::from(self.end(end).retries)
        };
        let peer = self.end(1 - end);
        // It may have failed by itself, and nobody has heard of it yet.
        let may_have_failed = peer.sends.iter().any(|request| {
            self.may_lack_receives(1 - end, request) || lost(1 - end, request.posted)
        });
        let harmed = weather.harm.iter().any(|harm| harm.is_any());
        self.wrong || peer.torn || may_have_failed || harmed || lost(end, posted)
    }

    /// True if the other end may have had no receive for a request, more often than is allowed.
    pub(super) fn may_lack_receives(&self, end: usize, request: &Request) -> bool {
        let Some((posted, before)) = request.receives_needed else {
            return false;
        };
        self.end(end).not_ready_retries < 7 && (self.end(1 - end).fed || posted <= before)
    }
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Send { link: u32, end: usize },
    Receive { link: u32, end: usize },
    Pool { side: usize },
    DatagramSend { side: usize },
    DatagramReceive { side: usize },
}

/// Everything that was asked.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) memory: Memory,
    pub(crate) links: BTreeMap<u32, Link>,
    pub(super) owners: BTreeMap<u64, Owner>,
    /// Numbers of queue pairs in use.
    numbers: BTreeMap<(usize, u32), u32>,
    completed: BTreeSet<u64>,
    pub(crate) pools: [BTreeMap<u64, Receive>; 2],
    pub(crate) datagrams: [Option<DatagramEnd>; 2],
    pub(crate) flights: Vec<Flight>,
    pub(crate) weather: Weather,
    /// Requests that were outstanding on queue pairs when these were destroyed, by side.
    pub(crate) dropped: [u64; 2],
    /// Receives of the shared queue may have gone without a completion.
    pool_is_lost: [bool; 2],
    /// Uses of memory, by side, of queue pairs whose destruction the device did not confirm: it may
    /// write there until it is contained.
    kept: [Vec<Claim>; 2],
    /// Sides whose device has failed and is contained.
    contained: [bool; 2],
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

    /// The connection that this queue pair is an end of.
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
        link.wrong |= !request.wrong.is_empty();
        let Some(end) = link.ends.get_mut(end) else {
            return;
        };
        end.sends.push_back(request);
        if let Some(message) = message {
            end.messages_sent += 1;
            end.under_way.push_back(message);
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

    /// Judges a completion.
    pub(crate) fn completed(&mut self, side: usize, seen: &Seen) -> Result<(), Problem> {
        let Some(owner) = self.owners.get(&seen.id).copied() else {
            let what = if self.completed.contains(&seen.id) {
                "has completed before, or its queue pair is gone"
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
                    // What it read goes nowhere any more.
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
            // Its device has failed; it may have been in no queue pair's queue yet.
            self.memory.adopt(receive.claim, receive.length);
            return Ok(());
        }
        match self.link_of(side, seen.queue_pair) {
            Some(link) => self.judge_receive(link, side, receive, seen),
            None => Err(Problem::new(
                Rule::MessageRight,
                format!(
                    "shared receive {} names queue pair {}, which is none",
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
        let weather = self.weather;
        let text = |why: &str| {
            format!(
                "receive {} of connection {number}, side {end}: {why}; {seen:?}",
                seen.id
            )
        };
        let Some(link) = self.links.get_mut(&number) else {
            return Ok(());
        };
        if link.end(end).number != seen.queue_pair {
            let why = format!("it was of queue pair {}", link.end(end).number);
            return Err(Problem::new(Rule::MessageRight, text(&why)));
        }
        if seen.status != Status::Success {
            let next = link.end(1 - end).under_way.front();
            let too_long = next.is_some_and(|message| message.too_long);
            let allowed = match seen.status {
                Status::LocalLength => too_long,
                Status::Flushed => link.may_have_failed(end, &weather),
                _ => weather.harm_at(end).is_any(),
            };
            if !allowed {
                return Err(Problem::new(
                    Rule::StatusAllowed,
                    text("nothing leads to this status"),
                ));
            }
            if let Some(end) = link.ends.get_mut(end) {
                end.torn = true;
            }
            if weather.is_troubled_at(end) {
                link.stale.push(receive.claim);
                return Ok(());
            }
            // Nothing is written there any more.
            return self.memory.unknown(receive.claim, &text("it has failed"));
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
        );
        let ought = (
            message.operation,
            message.length,
            message.immediate,
            message.invalidates,
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

    /// An end was destroyed, and its device has confirmed that or not: what it had outstanding is
    /// not reported.
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
            // One that a shared queue feeds may have had its window.
            *dropped += ids.len() as u64 + if fed { FED_MOST } else { 0 };
        }
        let claims = sends.into_iter().flat_map(|request| request.claims);
        let claims = claims.chain(receives.into_iter().map(|receive| receive.claim));
        // What is here is at rest as soon as its queue pair is gone.
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
        if fed && let Some(pool) = self.pools.get_mut(side) {
            // What it had received and nobody polled serves others again.
            pool.values_mut().for_each(|receive| receive.used = true);
        }
        Ok(())
    }

    /// Both ends are gone: what nobody knew the end of has ended.
    pub(crate) fn buried(&mut self, number: u32) -> Result<(), Problem> {
        let Some(link) = self.links.remove(&number) else {
            return Ok(());
        };
        for claim in link.stale {
            if link.unconfirmed.get(claim.side) == Some(&true) {
                self.keep(claim)?;
                continue;
            }
            let what = format!("connection {number} is gone");
            self.memory.unknown(claim, &what)?;
        }
        Ok(())
    }
}
