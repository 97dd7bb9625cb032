//! Datagrams, to the other side and to a group.

use super::Run;
use crate::memory::Claim;
use crate::memory::Purpose;
use crate::oracle::{DatagramEnd, Flight, Moment, Receive, Request};
use crate::rig::{RECEIVES, SENDS, Side};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Datagram, Destination, Flags, Operation, QueuePairConfig, To};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Queue key of both sides.
const KEY: u32 = 0x00C0_FFEE;

/// The group.
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));

/// Bytes of a datagram at most: with the route before it, it fits a short slot.
const MAX_BYTES: usize = 200;

/// Bytes of a receive.
const RECEIVE_BYTES: usize = 256;

/// The memory that a datagram lies in, and its bytes.
type Payload = (Vec<Claim>, Vec<u8>);

impl Run<'_> {
    /// A datagram queue pair on each side, and the ways between them.
    pub(super) fn open_datagrams(&mut self) -> Result<(), Problem> {
        for side in 0..2 {
            let place = self.side(side);
            let Some(queue) = place.queues.first() else {
                return Ok(());
            };
            let config = QueuePairConfig::datagram(&queue.queue)
                .send_requests(SENDS as u32)
                .receive_requests(RECEIVES as u32)
                .receive_fragments(2)
                .inline_bytes(48);
            let domain = place.domain.clone();
            let made = self.must(side, "a datagram queue pair", |_| {
                domain.datagram_queue_pair(config)
            })?;
            let Some(made) = made else {
                continue;
            };
            let ready = self.must(side, "a datagram queue pair", |_| made.ready(KEY))?;
            if let Some(ready) = &ready {
                let end = DatagramEnd {
                    number: ready.number(),
                    sends: VecDeque::new(),
                    receives: VecDeque::new(),
                };
                if let Some(place) = self.ledger.datagrams.get_mut(side) {
                    *place = Some(end);
                }
            }
            self.side(side).datagrams = ready;
        }
        for side in 0..2 {
            let Some(peer) = &self.side(1 - side).datagrams else {
                continue;
            };
            let destination = Destination::from(&peer.endpoint());
            let domain = self.side(side).domain.clone();
            let made = self.must(side, "an address handle", |_| {
                domain.address_handle(&destination)
            })?;
            self.side(side).to_peer = made;
            if let Some(group) = Destination::group(GROUP) {
                let made =
                    self.must(side, "an address handle", |_| domain.address_handle(&group))?;
                self.side(side).to_group = made;
            }
        }
        Ok(())
    }

    /// Joins the group, or leaves it.
    pub(super) fn group(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        self.change_membership(side)
    }

    /// Leaves the group, or joins it.
    pub(super) fn change_membership(&mut self, side: usize) -> Result<(), Problem> {
        let inside = self.side(side).in_group;
        let done = self.must(side, "joining or leaving a group", |run| {
            match &run.side(side).datagrams {
                Some(queue_pair) if inside => queue_pair.leave(GROUP),
                Some(queue_pair) => queue_pair.join(GROUP),
                None => Ok(()),
            }
        })?;
        let place = self.side(side);
        match done {
            Some(()) => place.in_group = !inside,
            // The device may have carried it out without an answer.
            None => place.perhaps_in_group = place.datagrams.is_some(),
        }
        // Datagrams in flight may arrive or not, also at a new member.
        for flight in &mut self.ledger.flights {
            flight.certain = false;
            if let Some(to) = flight.to.get_mut(side).filter(|_| flight.to_group) {
                *to = true;
            }
        }
        Ok(())
    }

    pub(super) fn datagram(&mut self, to_group: bool) -> Result<(), Problem> {
        let side = self.random.below(2);
        self.put_datagram_receives()?;
        let outstanding = self.outstanding_datagrams(side);
        if outstanding >= SENDS {
            return Ok(());
        }
        let to = self.recipients(side, to_group);
        let is_inline = self.random.chance(400);
        let length = self.length(if is_inline { 48 } else { MAX_BYTES });
        let immediate = self.random.chance(300).then(|| self.random.next() as u32);
        let flags = self.datagram_flags(outstanding);
        let Some((claims, bytes)) = self.payload(side, is_inline, length)? else {
            return Ok(());
        };
        let memory = &self.ledger.memory;
        let pieces = claims
            .first()
            .map(|claim| memory.fragments(*claim, length, 2));
        let id = self.take_id();
        let number = self.datagram_number(1 - side, to_group);
        let crowded = self.crowded(to);
        let certain = self.is_certain(to_group, crowded);
        let place = self.side(side);
        let handles = (&place.to_group, &place.to_peer);
        let handle = if to_group { handles.0 } else { handles.1 };
        let (Some(queue_pair), Some(handle)) = (&mut place.datagrams, handle) else {
            return self.give_back(claims);
        };
        let to_whom = To {
            handle,
            queue_pair: number,
            queue_key: KEY,
        };
        let result = match &pieces {
            Some(pieces) => queue_pair.post_send_to(id, &to_whom, pieces, immediate, flags),
            None => queue_pair.post_send_inline_to(id, &to_whom, &bytes, immediate, flags),
        };
        queue_pair.ring();
        let from = (side, queue_pair.number());
        if let Err(error) = result {
            return self.refused_datagram(side, claims, &error.to_string());
        }
        self.note(|| format!("side {side}: datagram {id} of {length} bytes to {to:?}"));
        self.counts.posted += 1;
        self.digest.add(&[id, side as u64, 0xDA7A]);
        let request = Request {
            id,
            signalled: flags.contains(Flags::SIGNALLED),
            operation: Operation::Send,
            wrong: &[],
            key_dies: false,
            claims,
            receives_needed: None,
            posted: Moment::default(),
        };
        let flight = Flight {
            id,
            from,
            to,
            to_group,
            bytes,
            immediate,
            arrived: [0; 2],
            certain,
        };
        self.ledger.posted_datagram(side, request, flight, crowded);
        Ok(())
    }

    /// Posts up to three receives on each side.
    fn put_datagram_receives(&mut self) -> Result<(), Problem> {
        for receiver in 0..2 {
            for _ in 0..self.random.below(4) {
                self.put_datagram_receive(receiver)?;
            }
        }
        Ok(())
    }

    /// Handles a refused datagram: only a device in trouble may refuse one.
    fn refused_datagram(
        &mut self,
        side: usize,
        claims: Vec<Claim>,
        error: &str,
    ) -> Result<(), Problem> {
        self.give_back(claims)?;
        if self.is_troubled_at(side) {
            return Ok(());
        }
        let what = format!("a datagram of side {side}: {error}");
        Err(Problem::new(Rule::CallRight, what))
    }

    /// Returns the bytes of a datagram, and their memory; `None` if there is no room.
    fn payload(
        &mut self,
        side: usize,
        is_inline: bool,
        length: usize,
    ) -> Result<Option<Payload>, Problem> {
        if is_inline {
            return Ok(Some((Vec::new(), self.random.bytes(length))));
        }
        let source = self.source(side, length)?;
        Ok(source.map(|(claim, bytes)| (vec![claim], bytes)))
    }

    /// True if no fault can stop a datagram: a quiet wire, room, and known members.
    fn is_certain(&self, to_group: bool, crowded: [bool; 2]) -> bool {
        let known = !(to_group && self.sides.iter().any(|side| side.perhaps_in_group));
        self.quiet_wire && crowded == [false; 2] && known
    }

    /// The queue pair that a datagram to this side, or to the group, names.
    fn datagram_number(&self, side: usize, to_group: bool) -> u32 {
        if to_group {
            return To::MULTICAST_QUEUE_PAIR;
        }
        let end = self.ledger.datagrams.get(side).and_then(Option::as_ref);
        end.map_or(0, |end| end.number)
    }

    /// Sends of the datagram queue pair that have not completed; all that it holds if there is
    /// none.
    fn outstanding_datagrams(&self, side: usize) -> usize {
        let end = self.ledger.datagrams.get(side).and_then(Option::as_ref);
        end.map_or(SENDS, |end| end.sends.len())
    }

    /// Signalled in most cases, and always before the queue is full of unsignalled requests.
    fn datagram_flags(&mut self, outstanding: usize) -> Flags {
        let chosen = match self.random.chance(700) {
            true => Flags::SIGNALLED,
            false => Flags::NONE,
        };
        match outstanding + 2 >= SENDS {
            true => chosen | Flags::SIGNALLED,
            false => chosen,
        }
    }

    /// The sides that may receive a datagram of `side`.
    fn recipients(&self, side: usize, to_group: bool) -> [bool; 2] {
        if !to_group {
            return [side == 1, side == 0];
        }
        let joined = |side: &Side| side.in_group || side.perhaps_in_group;
        [0, 1].map(|member| self.sides.get(member).is_some_and(joined))
    }

    /// Returns the sides that have no receive for one more datagram, besides those still in flight.
    fn crowded(&self, to: [bool; 2]) -> [bool; 2] {
        let room = |side: usize| {
            let end = self.ledger.datagrams.get(side).and_then(Option::as_ref);
            let receives = end.map_or(0, |end| end.receives.len());
            let coming = self.ledger.flights.iter().filter(|flight| {
                flight.to.get(side) == Some(&true) && flight.arrived.get(side) == Some(&0)
            });
            receives > coming.count()
        };
        [0, 1].map(|side| to.get(side) == Some(&true) && !room(side))
    }

    fn put_datagram_receive(&mut self, side: usize) -> Result<(), Problem> {
        let end = self.ledger.datagrams.get(side).and_then(Option::as_ref);
        let outstanding = end.map_or(RECEIVES, |end| end.receives.len());
        if outstanding >= RECEIVES {
            return Ok(());
        }
        let memory = &mut self.ledger.memory;
        let room = (RECEIVE_BYTES, true);
        let Some(claim) = memory.claim(side, &[Purpose::Receives], room, &mut self.random) else {
            return Ok(());
        };
        // The route headers in their own fragment, or not.
        let pieces = self.random.within(1, 2);
        let pieces = memory.fragments(claim, RECEIVE_BYTES, pieces);
        const { assert!(MAX_BYTES + Datagram::PAYLOAD_OFFSET <= RECEIVE_BYTES) };
        let id = self.take_id();
        let Some(queue_pair) = &mut self.side(side).datagrams else {
            return self.give_back(vec![claim]);
        };
        if let Err(error) = queue_pair.receive(id, &pieces) {
            self.give_back(vec![claim])?;
            if self.is_troubled_at(side) {
                return Ok(());
            }
            let text = format!("a datagram receive of side {side}: {error}");
            return Err(Problem::new(Rule::CallRight, text));
        }
        self.counts.posted += 1;
        let receive = Receive {
            id,
            claim,
            length: RECEIVE_BYTES,
            used: false,
        };
        self.ledger.posted_datagram_receive(side, receive);
        Ok(())
    }

    /// Destroys both datagram queue pairs and the ways.
    pub(super) fn close_datagrams(&mut self) -> Result<(), Problem> {
        for side in 0..2 {
            let place = self.side(side);
            let queue_pair = place.datagrams.take();
            let destroyed =
                self.must(
                    side,
                    "destroying a datagram queue pair",
                    |_| match queue_pair {
                        Some(queue_pair) => queue_pair.destroy(),
                        None => Ok(()),
                    },
                )?;
            self.side(side).in_group = false;
            self.side(side).perhaps_in_group = false;
            self.ledger
                .datagram_end_destroyed(side, destroyed.is_some())?;
            let place = self.side(side);
            place.to_peer = None;
            place.to_group = None;
        }
        Ok(())
    }
}
